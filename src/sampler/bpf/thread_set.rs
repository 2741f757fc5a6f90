//! The set of threads that programs work for: a map with a value for each.

use std::io;

use super::btf::Btf;
use super::code::{AccessSize, BpfCode, Helper, If, Reg};
use super::snippets::{self, CONTEXT, KEY};
use super::syscall::Map;

use Reg::{R0, R1, R6, R8, R10};

/// The threads that are recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ThreadScope {
    /// All.
    Everyone,
    /// Those that were inserted, and all that they start.
    WithChildren,
    /// Those that were inserted.
    Alone,
}

/// Where fields of `task_struct` lie.
pub struct Fields {
    /// The thread's number.
    pub tid: i16,
    /// Its process's.
    pub pid: i16,
    /// Nanoseconds that it has run.
    pub ran: i16,
    /// `PF_*`.
    pub flags: i16,
    /// `TS_*`.
    pub status: i16,
}

impl Fields {
    /// Of this kernel.
    ///
    /// # Errors
    ///
    /// It has not all of them.
    pub fn find(kernel: &Btf) -> io::Result<Fields> {
        let field = |path: &[&str]| kernel.field("task_struct", path);
        Ok(Fields {
            tid: field(&["pid"])?,
            pid: field(&["tgid"])?,
            ran: field(&["se", "sum_exec_runtime"])?,
            flags: field(&["flags"])?,
            status: field(&["thread_info", "status"])?,
        })
    }
}

/// The threads.
pub struct ThreadSet<'a> {
    /// By number.
    pub threads: &'a Map,
    /// See [`snippets::control`].
    pub control: &'a Map,
    /// Bytes of a value.
    pub size: i16,
    /// Where its flags lie.
    pub flags: i16,
    /// Who is one.
    pub scope: ThreadScope,
    /// The kernel's.
    pub fields: &'a Fields,
}

/// A field of a new thread's value: where it lies, how large it is, and what it is.
pub type Set = (i16, AccessSize, Result<Reg, i32>);

impl ThreadSet<'_> {
    /// Where a new value begins on the stack.
    pub fn value(&self) -> i16 {
        CONTEXT - self.size
    }

    /// Adds the thread whose number is at [`KEY`]. `R0` = 0, if there is room.
    pub fn add(&self, c: &mut BpfCode, fields: &[Set]) {
        for at in (0..self.size).step_by(8) {
            c.store_value(AccessSize::Long, R10, self.value() + at, 0);
        }
        for &(at, size, value) in fields {
            match value {
                Ok(reg) => c.store(size, R10, self.value() + at, reg),
                Err(number) => c.store_value(size, R10, self.value() + at, number),
            }
        }
        snippets::update(c, self.threads, self.value());
    }

    /// `sched_wakeup_new(thread)`, in the one that has started it: adds it. In `R8` is the time, and
    /// in `R1` the number of its process.
    pub fn is_born(&self, fields: &[Set]) -> Vec<u64> {
        let mut c = BpfCode::default();
        let out = c.label();
        c.load(AccessSize::Long, R6, R1, 0);
        snippets::this_thread(&mut c);
        if self.scope != ThreadScope::Everyone {
            snippets::look_up(&mut c, self.threads, out);
            c.load(AccessSize::Word, R1, R0, self.flags);
            c.jump_if_value(If::Equal, R1, snippets::AWAITED, out);
        }
        c.call(Helper::KtimeGetNs);
        c.op(super::code::AluOp::Mov, R8, R0);
        c.load(AccessSize::Word, R1, R6, self.fields.tid);
        c.store(AccessSize::Word, R10, KEY, R1);
        c.load(AccessSize::Word, R1, R6, self.fields.pid);
        self.add(&mut c, fields);
        c.jump_if_value(If::Equal, R0, 0, out);
        snippets::count_lost(&mut c, self.control);
        c.put(out);
        c.exit();
        c.finish()
    }
}
