//! The set of threads that programs record: a map with a value for each.

use std::io;

use super::btf::Btf;
use super::code::{AccessSize, BpfCode, Helper, If, Reg};
use super::snippets::{self, CONTEXT, KEY};
use super::syscall::Map;
use crate::sampler::arch;

use Reg::{R0, R1, R6, R8, R10};

/// The threads that are recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ThreadScope {
    /// All threads.
    Everyone,
    /// The inserted threads, and all that they start.
    WithChildren,
    /// The inserted threads only.
    Alone,
}

/// Offsets of fields of `task_struct`.
pub struct Fields {
    /// The thread ID.
    pub tid: i16,
    /// The process ID.
    pub pid: i16,
    /// Nanoseconds for which it has run.
    pub ran: i16,
    /// `PF_*`.
    pub flags: i16,
    /// See [`arch::COMPAT_FIELD`].
    pub compat: i16,
}

impl Fields {
    /// For this kernel.
    ///
    /// # Errors
    ///
    /// The kernel lacks one of them.
    pub fn find(kernel: &Btf) -> io::Result<Fields> {
        let field = |path: &[&str]| kernel.field("task_struct", path);
        Ok(Fields {
            tid: field(&["pid"])?,
            pid: field(&["tgid"])?,
            ran: field(&["se", "sum_exec_runtime"])?,
            flags: field(&["flags"])?,
            compat: field(&["thread_info", arch::COMPAT_FIELD])?,
        })
    }
}

/// The threads.
pub struct ThreadSet<'a> {
    /// A value for each thread ID.
    pub threads: &'a Map,
    /// See [`snippets::control`].
    pub control: &'a Map,
    /// Size of a value in bytes.
    pub size: i16,
    /// Offset of the flags in a value.
    pub flags: i16,
    /// The threads that belong to the set.
    pub scope: ThreadScope,
    /// Offsets in the kernel's structs.
    pub fields: &'a Fields,
}

/// A field of a new thread's value.
#[derive(Clone, Copy)]
pub struct NewField {
    /// Its offset.
    pub offset: i16,
    /// Its size.
    pub size: AccessSize,
    /// Its content.
    pub content: Content,
}

/// The content of a [`NewField`].
#[derive(Clone, Copy)]
pub enum Content {
    /// That of a register.
    Register(Reg),
    /// A constant.
    Constant(i32),
}

impl NewField {
    /// A field with the content of a register.
    pub fn register(offset: i16, size: AccessSize, register: Reg) -> NewField {
        NewField { offset, size, content: Content::Register(register) }
    }

    /// A field with a constant.
    pub fn constant(offset: i16, size: AccessSize, number: i32) -> NewField {
        NewField { offset, size, content: Content::Constant(number) }
    }
}

impl ThreadSet<'_> {
    /// Offset of a new value on the stack.
    pub fn value(&self) -> i16 {
        CONTEXT - self.size
    }

    /// Adds the thread whose ID is at [`KEY`]. `R0` = 0 if there is room.
    pub fn add(&self, c: &mut BpfCode, fields: &[NewField]) {
        for at in (0..self.size).step_by(8) {
            c.store_value(AccessSize::Long, R10, self.value() + at, 0);
        }
        for &NewField { offset, size, content } in fields {
            let at = self.value() + offset;
            match content {
                Content::Register(register) => c.store(size, R10, at, register),
                Content::Constant(number) => c.store_value(size, R10, at, number),
            }
        }
        snippets::update(c, self.threads, self.value());
    }

    /// `sched_wakeup_new(thread)`, in the thread that started it: adds it. `R8` has the time, `R1`
    /// its process ID.
    pub fn on_new_thread(&self, fields: &[NewField]) -> Vec<u64> {
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
