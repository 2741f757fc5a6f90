//! BPF programs that stop a thread where no system call can be interrupted: while it runs user
//! code, or at the end of a system call.
//!
//! A thread that `ptrace(2)` interrupts may be asleep, and many calls then fail with `EINTR` or
//! restart their time-out (`signal(7)`). A signal that a program sends in an interrupt of user
//! code, or at the end of a system call, is handled by the thread before its next instruction. The
//! signal is one that is ignored by default and that the thread neither blocks nor handles: a
//! tracer sees the thread stop; without a tracer nothing happens.
//!
//! A thread that wakes up for microseconds would be asleep again before prof traces it. Therefore
//! the program at the end of a call waits briefly for the tracer.

#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::SeqCst;

use memmap2::MmapRaw;

use super::btf::Btf;
use super::code::{AccessSize, AluOp, BpfCode, CodeLabel, Helper, If, Reg};
use super::snippets::{self, KEY};
use super::syscall::{EntrySize, Map, MapKind, Programs, load_for_samples};
use crate::sampler::stops;
use heap::inject::{Near, StopPrograms};

use Reg::{R0, R1, R2, R6, R7, R8, R9, R10};

/// Nanoseconds for which a thread waits at the end of a call to be traced, and between two such
/// waits.
const HOLD: i32 = 400_000;
const GAP: i32 = 3_000_000;

/// Maximum number of checks whether it is traced in that time.
const MAX_CHECKS: i32 = 4000;

/// Results of calls that the kernel restarts: -516 to -512 (`linux/errno.h`).
const LAST_RESTART: i32 = 516;
const RESTARTS: i32 = 5;

/// Offsets in the memory that prof and the programs share, in bytes.
mod shared {
    /// The process of which a thread is to be stopped.
    pub const PROCESS: i16 = 0;
    /// The thread that is to be stopped, once it is traced.
    pub const WANTED: i16 = 8;
    /// The thread that waits at the end of a call.
    pub const HELD: i16 = 16;
    /// The last thread seen in user code.
    pub const SEEN: i16 = 24;
    /// Time of the last wait of a thread.
    pub const SINCE: i16 = 32;
    /// Size of the memory.
    pub const SIZE: usize = 40;
}

/// Offset of the current thread's ID on the stack.
const THREAD: i16 = -16;

/// The location at which a program runs.
#[derive(Clone, Copy, PartialEq)]
enum At {
    /// The end of a system call: `sys_exit(registers, result)`.
    Exit,
    /// An interrupt of user code.
    Sample,
}

/// The programs.
#[derive(Debug)]
pub struct Stopper {
    memory: MmapRaw,
    at_exit: Programs,
    at_sample: OwnedFd,
    /// Time of the last wait of a thread that prof knows of.
    since: AtomicU64,
    _map: Map,
}

impl Stopper {
    /// Loads the programs, which stop threads with this signal.
    ///
    /// # Errors
    ///
    /// This kernel is too old, or the user lacks the privilege.
    pub fn load(signal: i32) -> io::Result<Stopper> {
        let kernel = Btf::running()?;
        let map = Map::new(MapKind::Mapped, EntrySize::by_number(shared::SIZE), 1)?;
        let memory = map.memory()?;
        let writer = StopProgram::new(&kernel, &map, signal)?;
        let at_exit = Programs::load(&kernel, &[("sys_exit", writer.write(At::Exit))])?;
        let at_sample = load_for_samples("stop", &writer.write(At::Sample))?;
        Ok(Stopper { memory, at_exit, at_sample, since: AtomicU64::new(0), _map: map })
    }

    fn word(&self, at: i16) -> &AtomicU64 {
        // SAFETY: within the mapping, aligned, and used by both sides as a number of eight bytes.
        unsafe { &*self.memory.as_ptr().add(at as usize).cast() }
    }
}

impl StopPrograms for Stopper {
    fn begin(&mut self, pid: i32) -> io::Result<()> {
        for at in [shared::WANTED, shared::HELD, shared::SEEN, shared::SINCE] {
            self.word(at).store(0, SeqCst);
        }
        self.since.store(0, SeqCst);
        self.word(shared::PROCESS).store(pid as u64, SeqCst);
        self.at_exit.attach()
    }

    fn end(&mut self) {
        self.word(shared::PROCESS).store(0, SeqCst);
        self.word(shared::WANTED).store(0, SeqCst);
        self.at_exit.detach();
    }

    fn watch(&self, tid: i32, period: u64) -> io::Result<File> {
        stops::with_program(tid, period, self.at_sample.as_raw_fd())
    }

    fn near(&self) -> Option<Near> {
        let value_at = |at| self.word(at).load(SeqCst) as i32;
        match value_at(shared::HELD) {
            0 => match self.word(shared::SEEN).swap(0, SeqCst) as i32 {
                0 => None,
                tid => Some(Near { tid, held: false }),
            },
            tid => {
                self.since.store(self.word(shared::SINCE).load(SeqCst), SeqCst);
                Some(Near { tid, held: true })
            }
        }
    }

    fn missed(&self) -> bool {
        let since = self.word(shared::SINCE).load(SeqCst);
        // One that waits now is for the next call of `near`.
        self.word(shared::HELD).load(SeqCst) == 0 && self.since.swap(since, SeqCst) != since
    }

    fn want(&self, tid: i32) {
        self.word(shared::WANTED).store(tid as u64, SeqCst);
    }
}

impl Drop for Stopper {
    fn drop(&mut self) {
        self.end();
    }
}

/// Offsets of the kernel's fields that the programs read.
struct StopProgram<'a> {
    map: &'a Map,
    signal: i32,
    ptrace: i16,
    blocked: i16,
    handlers: i16,
    handler: i16,
}

impl<'a> StopProgram<'a> {
    fn new(kernel: &Btf, map: &'a Map, signal: i32) -> io::Result<StopProgram<'a>> {
        let field = |name, path: &[&str]| kernel.field(name, path);
        let actions = field("sighand_struct", &["action"])?;
        let size = kernel.size("k_sigaction")?;
        let handler = field("k_sigaction", &["sa", "sa_handler"])?;
        Ok(StopProgram {
            map,
            signal,
            ptrace: field("task_struct", &["ptrace"])?,
            blocked: field("task_struct", &["blocked"])?,
            handlers: field("task_struct", &["sighand"])?,
            handler: actions + size * (signal as i16 - 1) + handler,
        })
    }

    /// `R6`: the thread; `R7`: the shared memory; `R9`: its ID, later a counter.
    fn write(&self, at: At) -> Vec<u64> {
        let mut c = BpfCode::default();
        let [out, traced] = [(); 2].map(|()| c.label());
        if at == At::Exit {
            c.load(AccessSize::Long, R8, R1, 8);
            c.op_value(AluOp::Add, R8, LAST_RESTART);
            c.jump_if_value(If::Less, R8, RESTARTS, out);
        }
        c.call(Helper::PidTgid);
        c.op(AluOp::Mov, R9, R0);
        c.store_value(AccessSize::Word, R10, KEY, 0);
        snippets::look_up(&mut c, self.map, out);
        c.op(AluOp::Mov, R7, R0);
        c.op(AluOp::Mov, R1, R9);
        c.op_value(AluOp::Rsh, R1, 32);
        c.load(AccessSize::Long, R2, R7, shared::PROCESS);
        c.jump_if(If::Differ, R1, R2, out);
        c.op_value(AluOp::Lsh, R9, 32);
        c.op_value(AluOp::Rsh, R9, 32);
        c.store(AccessSize::Long, R10, THREAD, R9);
        c.call(Helper::CurrentTask);
        c.op(AluOp::Mov, R6, R0);
        self.reaches(&mut c, out);
        c.load(AccessSize::Word, R1, R6, self.ptrace);
        c.jump_if_value(If::Differ, R1, 0, traced);
        match at {
            At::Exit => self.hold(&mut c, traced, out),
            At::Sample => {
                c.store(AccessSize::Long, R7, shared::SEEN, R9);
                c.jump(out);
            }
        }
        c.put(traced);
        let free = c.label();
        c.load(AccessSize::Long, R1, R7, shared::WANTED);
        c.load(AccessSize::Long, R2, R10, THREAD);
        c.jump_if(If::Differ, R1, R2, free);
        c.op_value(AluOp::Mov, R1, self.signal);
        c.call(Helper::SendSignalThread);
        c.put(free);
        if at == At::Exit {
            c.store_value(AccessSize::Long, R7, shared::HELD, 0);
        }
        c.put(out);
        c.exit();
        c.finish()
    }

    /// Jumps to `out` unless the signal would stop a traced thread and be ignored otherwise: the
    /// thread neither blocks nor handles it.
    fn reaches(&self, c: &mut BpfCode, out: CodeLabel) {
        c.load(AccessSize::Long, R1, R6, self.blocked);
        c.number(R2, 1 << (self.signal - 1));
        c.jump_if(If::Both, R1, R2, out);
        c.load(AccessSize::Long, R1, R6, self.handlers);
        c.jump_if_value(If::Equal, R1, 0, out);
        c.load(AccessSize::Long, R1, R1, self.handler);
        // `SIG_DFL` or `SIG_IGN`.
        c.jump_if_value(If::Greater, R1, 1, out);
    }

    /// Waits until the thread is traced.
    fn hold(&self, c: &mut BpfCode, traced: CodeLabel, out: CodeLabel) {
        let [again, expired] = [(); 2].map(|()| c.label());
        c.load(AccessSize::Long, R1, R7, shared::HELD);
        c.jump_if_value(If::Differ, R1, 0, out);
        c.call(Helper::KtimeGetNs);
        c.op(AluOp::Mov, R8, R0);
        c.load(AccessSize::Long, R1, R7, shared::SINCE);
        c.op(AluOp::Mov, R2, R8);
        c.op(AluOp::Sub, R2, R1);
        c.jump_if_value(If::Less, R2, GAP, out);
        c.store(AccessSize::Long, R7, shared::SINCE, R8);
        c.store(AccessSize::Long, R7, shared::HELD, R9);
        c.op_value(AluOp::Mov, R9, MAX_CHECKS);
        c.put(again);
        c.load(AccessSize::Word, R1, R6, self.ptrace);
        c.jump_if_value(If::Differ, R1, 0, traced);
        // Three times, to reduce the number of checks: the time between them is what counts.
        (0..3).for_each(|_| c.call(Helper::KtimeGetNs));
        c.op(AluOp::Sub, R0, R8);
        c.jump_if_value(If::Greater, R0, HOLD, expired);
        c.op_value(AluOp::Sub, R9, 1);
        c.jump_if_value(If::Differ, R9, 0, again);
        c.put(expired);
        c.store_value(AccessSize::Long, R7, shared::HELD, 0);
        c.jump(out);
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::skip_programs;
    use super::*;

    /// The kernel accepts the programs, if this user may load any.
    #[test]
    fn the_kernel_accepts_the_programs() {
        if sys::os::uid() != 0 || Btf::running().is_err() {
            return skip_programs("programs need root");
        }
        let mut stopper = match Stopper::load(libc::SIGURG) {
            Err(e) if e.kind() == io::ErrorKind::PermissionDenied => {
                return skip_programs(&e.to_string());
            }
            stopper => stopper.unwrap(),
        };
        stopper.begin(std::process::id() as i32).unwrap();
        let watched = stopper.watch(0, 100_000).unwrap();
        let began = std::time::Instant::now();
        // The thread is not traced, so it is only seen; its calls return.
        while stopper.near().is_none() {
            assert!(began.elapsed().as_secs() < 20, "never seen");
            std::hint::black_box(sys::os::uid());
        }
        drop(watched);
        stopper.end();
    }
}
