//! Whose events the programs are about: threads, with a value for each that says what is known of
//! it.

use std::io;

use super::btf::Btf;
use super::code::{Code, Helper, If, Reg, Size};
use super::steps::{self, CONTEXT, KEY};
use super::syscall::Map;

use Reg::{R0, R1, R6, R8, R10};

/// Who is recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whose {
    /// Whoever runs.
    Everybodys,
    /// Those that were inserted, and whom they start.
    Theirs,
    /// Those that were inserted alone.
    TheirsAlone,
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
pub struct Members<'a> {
    /// By number.
    pub threads: &'a Map,
    /// See [`steps::control`].
    pub control: &'a Map,
    /// Bytes of a value.
    pub size: i16,
    /// Where its flags lie.
    pub flags: i16,
    /// Who is one.
    pub whose: Whose,
    /// The kernel's.
    pub fields: &'a Fields,
}

/// A field of a new thread's value: where it lies, how large it is, and what it is.
pub type Set = (i16, Size, Result<Reg, i32>);

impl Members<'_> {
    /// Where a new value begins on the stack.
    pub fn value(&self) -> i16 {
        CONTEXT - self.size
    }

    /// Adds the thread whose number is at [`KEY`]. `R0` = 0, if there is room.
    pub fn add(&self, c: &mut Code, fields: &[Set]) {
        for at in (0..self.size).step_by(8) {
            c.store_value(Size::Long, R10, self.value() + at, 0);
        }
        for &(at, size, value) in fields {
            match value {
                Ok(reg) => c.store(size, R10, self.value() + at, reg),
                Err(number) => c.store_value(size, R10, self.value() + at, number),
            }
        }
        steps::update(c, self.threads, self.value());
    }

    /// `sched_wakeup_new(thread)`, in the one that has started it: adds it. In `R8` is the time, and
    /// in `R1` the number of its process.
    pub fn is_born(&self, fields: &[Set]) -> Vec<u64> {
        let mut c = Code::default();
        let out = c.label();
        c.load(Size::Long, R6, R1, 0);
        steps::this_thread(&mut c);
        if self.whose != Whose::Everybodys {
            steps::look_up(&mut c, self.threads, out);
            c.load(Size::Word, R1, R0, self.flags);
            c.jump_if_value(If::Equal, R1, steps::AWAITED, out);
        }
        c.call(Helper::KtimeGetNs);
        c.op(super::code::Op::Mov, R8, R0);
        c.load(Size::Word, R1, R6, self.fields.tid);
        c.store(Size::Word, R10, KEY, R1);
        c.load(Size::Word, R1, R6, self.fields.pid);
        self.add(&mut c, fields);
        c.jump_if_value(If::Equal, R0, 0, out);
        steps::count_lost(&mut c, self.control);
        c.put(out);
        c.exit();
        c.finish()
    }
}
