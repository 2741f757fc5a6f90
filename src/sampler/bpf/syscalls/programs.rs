//! The programs of [`super`].

use std::io;

use super::{CALL_SIZE, MARKED, SyscallProgram, TracedCalls, sum, thread};
use crate::sampler::arch::{self, CallArguments};
use crate::sampler::bpf::btf::Btf;
use crate::sampler::bpf::code::{AccessSize, AluOp, BpfCode, CodeLabel, Helper, If, Reg};
use crate::sampler::bpf::snippets::{self, CONTEXT, ChoiceRegisters, KEY, Output};
use crate::sampler::bpf::thread_set::{ThreadScope, ThreadSet};
use crate::sampler::thread_state;

use Reg::{R0, R1, R2, R3, R4, R6, R7, R8, R9, R10};

/// `linux/futex.h`: the mask without the flags for a private word and for the clock; the operations
/// that wait.
const FUTEX_CMD_MASK: i32 = 127;
const FUTEX_WAIT: i32 = 0;
const FUTEX_LOCK_PI: i32 = 6;
const FUTEX_WAIT_BITSET: i32 = 9;
const FUTEX_LOCK_PI2: i32 = 13;
const WAITS: [i32; 4] = [FUTEX_WAIT, FUTEX_WAIT_BITSET, FUTEX_LOCK_PI, FUTEX_LOCK_PI2];

/// Numbers of system calls.
const SYS_FUTEX: i32 = libc::SYS_futex as i32;
const SYS_FUTEX_WAIT: i32 = 455;

/// The value of a contended mutex of glibc, Rust and Go.
const CONTENDED: i32 = 2;

/// A signal arrived, and the kernel restarts the call (`ERESTART_RESTARTBLOCK` of `linux/errno.h`,
/// and the four above it).
const LAST_RESTART: i32 = 516;

/// The tracepoint at which a thread continues.
const RESUME: &str = "sched_exit_tp";

/// The bit of this signal, which ends a wait for good.
const SIGKILL: i32 = 1 << (libc::SIGKILL - 1);

/// Bits of `task_struct.jobctl`: a stop of the process, by a signal, a tracer or the freezer, has
/// begun (`JOBCTL_STOP_PENDING`, `_TRAP_STOP`, `_TRAP_NOTIFY`, `_TRAP_FREEZE`).
const STOPS: i32 = 1 << 17 | 1 << 19 | 1 << 20 | 1 << 23;

/// Offsets of a thread's pending signals and stops, because of which the kernel restarts a call.
struct Signals {
    blocked: i16,
    stops: i16,
    /// The thread's own.
    own: i16,
    /// The pointer to those of the process, and their offset from there.
    process: i16,
    shared: i16,
}

impl Signals {
    fn find(kernel: &Btf) -> io::Result<Signals> {
        let field = |path: &[&str]| kernel.field("task_struct", path);
        Ok(Signals {
            blocked: field(&["blocked"])?,
            stops: field(&["jobctl"])?,
            own: field(&["pending", "signal"])?,
            process: field(&["signal"])?,
            shared: kernel.field("signal_struct", &["shared_pending", "signal"])?,
        })
    }
}

/// Assembles the programs. In all of them, `R7` is the thread's value.
pub struct CallPrograms<'a> {
    maps: &'a SyscallProgram,
    members: ThreadSet<'a>,
    args: CallArguments,
    which: TracedCalls,
}

/// Offset of the output on the stack: object, kind, length, again, interval, time of the walk.
const RAW: i16 = CONTEXT - CALL_SIZE as i16;
/// Offsets of a sum's key and value on the stack.
const SUM_KEY: i16 = RAW - sum::KEY as i16;
const SUM: i16 = SUM_KEY - sum::SIZE as i16;

impl<'a> CallPrograms<'a> {
    /// For calls of these threads.
    ///
    /// # Errors
    ///
    /// This kernel stores arguments of calls elsewhere.
    pub fn new(
        kernel: &Btf,
        maps: &'a SyscallProgram,
        members: ThreadSet<'a>,
        which: TracedCalls,
    ) -> io::Result<CallPrograms<'a>> {
        let args = arch::call_arguments(|name| kernel.field("pt_regs", &[name]))?;
        Ok(CallPrograms { maps, members, args, which })
    }

    /// All programs at the beginning and the end of each system call, with their tracepoints; the
    /// last is only for following new threads.
    pub fn at_calls(&self) -> Vec<(&'static str, Vec<u64>)> {
        let mut programs = vec![("sys_enter", self.on_entry()), ("sys_exit", self.on_return())];
        programs.extend(self.thread_programs());
        programs
    }

    /// The same for waits, at the switches of threads: other system calls cost nothing then.
    ///
    /// # Errors
    ///
    /// This kernel lacks the tracepoint at which a thread continues (before Linux 6.16), or stores
    /// pending signals elsewhere.
    pub fn at_switches(&self, kernel: &Btf) -> io::Result<Vec<(&'static str, Vec<u64>)>> {
        kernel.tracepoint(RESUME)?;
        let signals = Signals::find(kernel)?;
        let mut programs =
            vec![("sched_switch", self.on_sleep()), (RESUME, self.on_resume(&signals))];
        programs.extend(self.thread_programs());
        Ok(programs)
    }

    fn thread_programs(&self) -> [(&'static str, Vec<u64>); 3] {
        [
            ("sched_process_exit", self.on_thread_exit()),
            ("sched_process_exec", self.on_exec()),
            ("sched_wakeup_new", self.members.on_new_thread(&[])),
        ]
    }

    /// `sys_enter(registers, number)`
    fn on_entry(&self) -> Vec<u64> {
        let mut c = BpfCode::default();
        let out = c.label();
        // `R8`: the object, `R9`: the kind.
        match self.which {
            TracedCalls::Waits => self.waits(&mut c, out),
            TracedCalls::All => self.any(&mut c),
        }
        self.begin(&mut c, out);
        c.put(out);
        c.exit();
        c.finish()
    }

    /// The current thread begins the call whose object and kind are in `R8` and `R9`, if it is
    /// recorded. Jumps to `out`.
    fn begin(&self, c: &mut BpfCode, out: CodeLabel) {
        let found = c.label();
        snippets::this_thread(c);
        if self.members.scope == ThreadScope::Everyone {
            let unknown = c.label();
            // prof's own calls are not recorded: each record would cause further ones.
            c.op_value(AluOp::Rsh, R0, 32);
            c.jump_if_value(If::Equal, R0, std::process::id() as i32, out);
            snippets::look_up(c, &self.maps.threads, unknown);
            c.jump(found);
            c.put(unknown);
            self.members.add(c, &[]);
        }
        snippets::look_up(c, &self.maps.threads, out);
        c.put(found);
        c.op(AluOp::Mov, R7, R0);
        c.load(AccessSize::Long, R1, R7, thread::FLAGS);
        c.jump_if_value(If::Equal, R1, snippets::AWAITED, out);
        c.store(AccessSize::Long, R7, thread::OBJECT, R8);
        c.store(AccessSize::Long, R7, thread::KIND, R9);
        c.call(Helper::KtimeGetNs);
        c.store(AccessSize::Long, R7, thread::SINCE, R0);
    }

    /// `sched_switch(preempted, thread, next, state)`: the current thread stops running; it may wait
    /// for a word.
    fn on_sleep(&self) -> Vec<u64> {
        let mut c = BpfCode::default();
        let [out, sleeps] = [(); 2].map(|()| c.label());
        c.load(AccessSize::Long, R2, R1, 24);
        c.jump_if_value(If::Both, R2, thread_state::INTERRUPTIBLE as i32, sleeps);
        c.jump(out);
        c.put(sleeps);
        c.load(AccessSize::Long, R2, R1, 0);
        c.op_value(AluOp::And, R2, 0xff);
        c.jump_if_value(If::Differ, R2, 0, out);
        if self.members.scope != ThreadScope::Everyone {
            // Most switches are those of others.
            snippets::this_thread(&mut c);
            snippets::look_up(&mut c, &self.maps.threads, out);
        }
        c.call(Helper::CurrentTask);
        c.op(AluOp::Mov, R1, R0);
        c.call(Helper::TaskRegs);
        c.op(AluOp::Mov, R3, R0);
        c.load(AccessSize::Long, R2, R3, self.args.number);
        self.arguments(&mut c, out);
        self.begin(&mut c, out);
        c.put(out);
        c.exit();
        c.finish()
    }

    /// `sched_exit_tp(is_switch)`: the current thread continues, if it was switched out.
    fn on_resume(&self, signals: &Signals) -> Vec<u64> {
        let mut c = BpfCode::default();
        let [out, again, once] = [(); 3].map(|()| c.label());
        c.store(AccessSize::Long, R10, CONTEXT, R1);
        snippets::this_thread(&mut c);
        snippets::look_up(&mut c, &self.maps.threads, out);
        c.op(AluOp::Mov, R7, R0);
        c.load(AccessSize::Long, R1, R7, thread::SINCE);
        c.jump_if_value(If::Equal, R1, 0, out);
        // `R9`: the signals that it does not block.
        c.call(Helper::CurrentTask);
        c.load(AccessSize::Long, R1, R0, signals.blocked);
        c.op_value(AluOp::Mov, R9, -1);
        c.op(AluOp::Sub, R9, R1);
        c.op_value(AluOp::And, R9, !SIGKILL);
        c.store_value(AccessSize::Long, R10, RAW + 24, 0);
        c.load(AccessSize::Long, R1, R0, signals.stops);
        c.jump_if_value(If::Both, R1, STOPS, again);
        c.load(AccessSize::Long, R1, R0, signals.own);
        c.jump_if(If::Both, R1, R9, again);
        c.load(AccessSize::Long, R1, R0, signals.process);
        c.load(AccessSize::Long, R1, R1, signals.shared);
        c.jump_if(If::Both, R1, R9, again);
        c.jump(once);
        c.put(again);
        c.store_value(AccessSize::Long, R10, RAW + 24, 1);
        c.put(once);
        c.op(AluOp::Mov, R0, R7);
        self.report(&mut c, out);
        c.put(out);
        c.exit();
        c.finish()
    }

    /// Object and kind, in `R8` and `R9`, of a system call that waits for a word, which has the
    /// number in `R2` and the arguments in the registers at `R3`; others jump to `out`.
    fn arguments(&self, c: &mut BpfCode, out: CodeLabel) {
        let [new, wait, native, done] = [(); 4].map(|()| c.label());
        c.jump_if_value(If::Equal, R2, SYS_FUTEX_WAIT, new);
        c.jump_if_value(If::Differ, R2, SYS_FUTEX, out);
        c.load(AccessSize::Long, R9, R3, self.args.second);
        c.op_value(AluOp::And, R9, FUTEX_CMD_MASK);
        c.load(AccessSize::Long, R6, R3, self.args.third);
        WAITS.iter().for_each(|&kind| c.jump_if_value(If::Equal, R9, kind, wait));
        c.jump(out);
        c.put(new);
        c.op_value(AluOp::Mov, R9, FUTEX_WAIT);
        c.load(AccessSize::Long, R6, R3, self.args.second);
        c.put(wait);
        c.load(AccessSize::Long, R8, R3, self.args.first);
        // Call numbers of 32-bit programs differ.
        self.compat(c);
        c.jump_if_value(If::Equal, R1, 0, native);
        c.jump(out);
        c.put(native);
        c.op_value(AluOp::Lsh, R6, 32);
        c.op_value(AluOp::Rsh, R6, 32);
        c.jump_if_value(If::Differ, R6, CONTENDED, done);
        c.op_value(AluOp::Add, R9, MARKED as i32);
        c.put(done);
    }

    fn waits(&self, c: &mut BpfCode, out: CodeLabel) {
        let wait = c.label();
        c.load(AccessSize::Long, R2, R1, 8);
        c.jump_if_value(If::Equal, R2, SYS_FUTEX, wait);
        c.jump_if_value(If::Differ, R2, SYS_FUTEX_WAIT, out);
        c.put(wait);
        c.load(AccessSize::Long, R3, R1, 0);
        self.arguments(c, out);
    }

    fn any(&self, c: &mut BpfCode) {
        let native = c.label();
        c.load(AccessSize::Long, R8, R1, 8);
        self.compat(c);
        c.op_value(AluOp::Mov, R9, 0);
        c.jump_if_value(If::Equal, R1, 0, native);
        c.op_value(AluOp::Mov, R9, MARKED as i32);
        c.put(native);
    }

    /// `R1` is not 0 if the call is that of a 32-bit program.
    fn compat(&self, c: &mut BpfCode) {
        c.call(Helper::CurrentTask);
        c.load(AccessSize::Word, R1, R0, self.members.fields.compat);
        c.op_value(AluOp::And, R1, arch::COMPAT_BIT);
    }

    /// `sys_exit(registers, result)`
    fn on_return(&self) -> Vec<u64> {
        let mut c = BpfCode::default();
        let [out, ours, once] = [(); 3].map(|()| c.label());
        c.store(AccessSize::Long, R10, CONTEXT, R1);
        if self.which == TracedCalls::Waits {
            // Calls that do not wait are left as early as possible, because they are the majority.
            let futex = c.label();
            c.load(AccessSize::Long, R2, R1, 0);
            c.load(AccessSize::Long, R3, R2, self.args.number);
            c.jump_if_value(If::Equal, R3, SYS_FUTEX, futex);
            c.jump_if_value(If::Equal, R3, SYS_FUTEX_WAIT, ours);
            c.jump(out);
            c.put(futex);
            c.load(AccessSize::Long, R3, R2, self.args.second);
            c.op_value(AluOp::And, R3, FUTEX_CMD_MASK);
            WAITS.iter().for_each(|&kind| c.jump_if_value(If::Equal, R3, kind, ours));
            c.jump(out);
        }
        c.put(ours);
        c.load(AccessSize::Long, R6, R1, 8);
        c.op_value(AluOp::Add, R6, LAST_RESTART);
        c.store_value(AccessSize::Long, R10, RAW + 24, 0);
        c.jump_if_value(If::Greater, R6, 4, once);
        c.store_value(AccessSize::Long, R10, RAW + 24, 1);
        c.put(once);
        snippets::this_thread(&mut c);
        snippets::look_up(&mut c, &self.maps.threads, out);
        self.report(&mut c, out);
        c.put(out);
        c.exit();
        c.finish()
    }

    /// Reports the call of the thread whose value is `R0`, if it is in one.
    fn report(&self, c: &mut BpfCode, out: CodeLabel) {
        let in_order = c.label();
        c.op(AluOp::Mov, R7, R0);
        c.load(AccessSize::Long, R6, R7, thread::SINCE);
        c.jump_if_value(If::Equal, R6, 0, out);
        c.store_value(AccessSize::Long, R7, thread::SINCE, 0);
        c.call(Helper::KtimeGetNs);
        c.op(AluOp::Mov, R8, R0);
        c.op_value(AluOp::Mov, R9, 0);
        c.jump_if(If::Greater, R6, R8, in_order);
        c.op(AluOp::Mov, R9, R8);
        c.op(AluOp::Sub, R9, R6);
        c.put(in_order);
        for (at, field) in [(0, thread::OBJECT), (8, thread::KIND)] {
            c.load(AccessSize::Long, R1, R7, field);
            c.store(AccessSize::Long, R10, RAW + at, R1);
        }
        c.store(AccessSize::Long, R10, RAW + 16, R9);
        self.add_up(c);
        let registers = ChoiceRegisters { now: R8, took: R9, control: R6 };
        snippets::choose(c, &self.maps.control, registers, Some(R7), out);
        c.store(AccessSize::Long, R10, RAW + 32, R4);
        self.maps.parts.write(c, Output::by_cpu(&self.maps.events), RAW);
    }

    /// Adds the call that lasted `R9` nanoseconds to the sum of its kind; the thread is at [`KEY`].
    /// `R7` = number of calls in the sum.
    fn add_up(&self, c: &mut BpfCode) {
        let [new, done] = [(); 2].map(|()| c.label());
        c.load(AccessSize::Word, R1, R10, KEY);
        c.store(AccessSize::Word, R10, SUM_KEY + sum::THREAD, R1);
        c.load(AccessSize::Long, R1, R10, RAW);
        c.store(AccessSize::Long, R10, SUM_KEY + sum::OBJECT, R1);
        c.load(AccessSize::Long, R1, R10, RAW + 8);
        c.store(AccessSize::Word, R10, SUM_KEY + sum::KIND, R1);
        // A restarted call is not counted again.
        c.op_value(AluOp::Mov, R6, 1);
        c.load(AccessSize::Long, R1, R10, RAW + 24);
        c.op(AluOp::Sub, R6, R1);
        snippets::look_up_at(c, &self.maps.sums, SUM_KEY, new);
        c.add_to(R0, sum::NANOS, R9, R1);
        c.add_to(R0, sum::COUNT, R6, R7);
        c.jump(done);
        c.put(new);
        c.call(Helper::PidTgid);
        c.op_value(AluOp::Rsh, R0, 32);
        c.store(AccessSize::Long, R10, SUM + sum::PROCESS, R0);
        c.store(AccessSize::Long, R10, SUM + sum::COUNT, R6);
        c.store(AccessSize::Long, R10, SUM + sum::NANOS, R9);
        c.op_value(AluOp::Mov, R7, 1);
        snippets::update_at(c, &self.maps.sums, SUM_KEY, SUM);
        c.put(done);
    }

    /// `sched_process_exit(thread)`: the thread may be in a call.
    fn on_thread_exit(&self) -> Vec<u64> {
        let mut c = BpfCode::default();
        let [out, gone] = [(); 2].map(|()| c.label());
        c.store(AccessSize::Long, R10, CONTEXT, R1);
        c.store_value(AccessSize::Long, R10, RAW + 24, 0);
        snippets::this_thread(&mut c);
        snippets::look_up(&mut c, &self.maps.threads, out);
        self.report(&mut c, gone);
        c.put(gone);
        snippets::this_thread(&mut c);
        snippets::delete(&mut c, &self.maps.threads);
        c.put(out);
        c.exit();
        c.finish()
    }

    /// `sched_process_exec(thread, old tid, program)`: its other calls are over.
    fn on_exec(&self) -> Vec<u64> {
        let mut c = BpfCode::default();
        let out = c.label();
        c.load(AccessSize::Long, R6, R1, 8);
        c.store(AccessSize::Word, R10, KEY, R6);
        snippets::look_up(&mut c, &self.maps.threads, out);
        snippets::delete(&mut c, &self.maps.threads);
        snippets::this_thread(&mut c);
        self.members.add(&mut c, &[]);
        c.put(out);
        c.exit();
        c.finish()
    }
}
