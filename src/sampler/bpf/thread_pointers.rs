//! The thread pointers of threads, running or not: where the memory of their own is, from which the
//! frames of an interpreter are found. Otherwise, a thread would have to be stopped.
//!
//! An iterator over threads (`Documentation/bpf/bpf_iterators.rst` of the kernel) reads them.

use std::io;
use std::os::fd::OwnedFd;

use super::btf::Btf;
use super::code::{AccessSize, AluOp, BpfCode, Helper, If, Reg};
use super::number;
use super::syscall;
use super::thread_set::Fields;
use crate::sampler::arch;
use sys::{ThreadId, procfs};

use Reg::{R1, R2, R3, R6, R7, R10};

/// The kernel's iterator over threads.
const ITERATOR: &str = "bpf_iter_task";

/// Offsets in its argument: what it is called for, and the thread, which is null at the end; and of
/// the output in the former (`bpf_iter__task`, `bpf_iter_meta`).
const META: i16 = 0;
const TASK: i16 = 8;
const OUTPUT: i16 = 0;

/// Size of what the program writes of a thread: thread ID, process ID, thread pointer.
const SIZE: i16 = 24;

/// The program that reads them.
#[derive(Debug)]
pub struct ThreadPointers {
    program: OwnedFd,
}

impl ThreadPointers {
    /// Loads the program.
    ///
    /// # Errors
    ///
    /// This kernel is too old, the user lacks the privilege, or prof is in a PID namespace of its own.
    pub fn load() -> io::Result<ThreadPointers> {
        if !procfs::is_first_pid_namespace() {
            // The program sees other thread IDs.
            return Err(io::ErrorKind::Unsupported.into());
        }
        let kernel = Btf::running()?;
        let fields = Fields::find(&kernel)?;
        let pointer = kernel.field("task_struct", arch::THREAD_POINTER)?;
        let code = program(&fields, pointer);
        let program = syscall::load_iterator("prof_pointers", kernel.function(ITERATOR)?, &code)?;
        Btf::release();
        Ok(ThreadPointers { program })
    }

    /// The thread pointer of a thread; `None`: it has ended.
    pub fn of(&self, thread: ThreadId) -> Option<u64> {
        let written = syscall::iterate_thread(&self.program, thread.tid).ok()?;
        let number = |at| number(&written, at);
        let is_it = number(0)? == thread.tid as u64 && number(8)? == thread.pid as u64;
        number(16).filter(|_| is_it)
    }
}

/// Writes the numbers and the thread pointer of a thread.
fn program(fields: &Fields, pointer: i16) -> Vec<u64> {
    let mut c = BpfCode::default();
    let end = c.label();
    c.load(AccessSize::Long, R6, R1, META);
    c.load(AccessSize::Long, R7, R1, TASK);
    c.jump_if_value(If::Equal, R7, 0, end);
    for (at, size, field) in [
        (0, AccessSize::Word, fields.tid),
        (8, AccessSize::Word, fields.pid),
        (16, AccessSize::Long, pointer),
    ] {
        c.load(size, R1, R7, field);
        c.store(AccessSize::Long, R10, at - SIZE, R1);
    }
    c.load(AccessSize::Long, R1, R6, OUTPUT);
    c.op(AluOp::Mov, R2, R10);
    c.op_value(AluOp::Add, R2, i32::from(-SIZE));
    c.op_value(AluOp::Mov, R3, SIZE.into());
    c.call(Helper::SeqWrite);
    c.put(end);
    c.exit();
    c.finish()
}

#[cfg(test)]
mod tests {
    use std::os::unix::thread::JoinHandleExt;

    use super::*;
    use crate::sampler::bpf::testing::skip_programs;

    #[test]
    fn threads_have_their_own_pointers() {
        if sys::os::uid() != 0 {
            return skip_programs("this user may not load programs into the kernel");
        }
        let pointers = ThreadPointers::load().unwrap();
        let pid = std::process::id() as i32;
        let (tell, told) = std::sync::mpsc::channel();
        let (end, wait) = std::sync::mpsc::channel::<()>();
        let other = std::thread::spawn(move || {
            let own = std::fs::read_link("/proc/thread-self").unwrap();
            let tid: i32 = own.file_name().unwrap().to_str().unwrap().parse().unwrap();
            tell.send(tid).unwrap();
            let _ = wait.recv();
        });
        let tid = told.recv().unwrap();
        // By the ABI, that of `pthread_self`.
        let own = other.as_pthread_t() as u64;
        // On other architectures than x86-64, glibc's structure lies before it.
        let found = pointers.of(ThreadId { pid, tid });
        assert!(found.is_some());
        if cfg!(target_arch = "x86_64") {
            assert_eq!(found, Some(own));
        }
        assert_ne!(found, pointers.of(ThreadId::main_thread(pid)));
        assert_eq!(pointers.of(ThreadId { pid: pid + 1, tid }), None);
        drop(end);
        other.join().unwrap();
        assert_eq!(pointers.of(ThreadId { pid, tid }), None);
    }
}
