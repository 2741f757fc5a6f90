//! The programs of [`super`].

use super::{IDLE, LONG_COPIES, LONG_WAIT, SchedProgram, UNKNOWN, WAIT_SIZE, thread};
use crate::sampler::bpf::code::{AccessSize, AluOp, BpfCode, CodeLabel, Helper, If, Reg};
use crate::sampler::bpf::snippets::{
    self, CONTEXT, ChoiceRegisters, EventIndex, KEY, Output, control,
};
use crate::sampler::bpf::thread_set::{NewField, ThreadScope, ThreadSet};
use crate::sampler::thread_state;
use profile::ThreadState;

use Reg::{R0, R1, R2, R3, R4, R6, R7, R8, R9, R10};

/// Bits of `task_struct.__state`.
const INTERRUPTIBLE: i32 = thread_state::INTERRUPTIBLE as i32;
const UNINTERRUPTIBLE: i32 = thread_state::UNINTERRUPTIBLE as i32;
const NO_LOAD: i32 = thread_state::NO_LOAD as i32;
const STOPPED: i32 = thread_state::STOPPED as i32;
/// `PF_EXITING` of `task_struct.flags`.
const EXITING: i32 = 4;

/// The flag of a thread that has not run yet.
const NEW: i32 = 1;

/// Assembles the programs. In all of them, `R7` is the thread's value, `R8` the time.
pub struct WaitPrograms<'a> {
    /// Their maps.
    pub maps: &'a SchedProgram,
    /// The recorded threads.
    pub members: ThreadSet<'a>,
}

/// The value of a thread that starts at the time in register `since`; register `pid` has its
/// process ID.
fn new_value(since: Reg, pid: Reg, state: ThreadState, flags: i32) -> [NewField; 4] {
    [
        NewField::register(thread::SINCE, AccessSize::Long, since),
        NewField::constant(thread::STATE, AccessSize::Word, state as i32),
        NewField::constant(thread::FLAGS, AccessSize::Word, flags),
        NewField::register(thread::PROCESS, AccessSize::Word, pid),
    ]
}

/// Offsets on the stack: of the number of the event that a wait is written to, of the output, and of a
/// thread's value.
const INDEX: i16 = CONTEXT - 8;
const RAW: i16 = INDEX - WAIT_SIZE as i16;
const VALUE: i16 = CONTEXT - thread::SIZE as i16;
const ENDED: i16 = VALUE - 8;

impl WaitPrograms<'_> {
    /// All programs with their tracepoints; the last is only for following new threads.
    pub fn all(&self) -> [(&'static str, Vec<u64>); 6] {
        [
            ("sched_switch", self.on_switch()),
            ("sched_exit_tp", self.on_resume()),
            ("sched_wakeup", self.on_wakeup()),
            ("sched_process_exec", self.on_exec()),
            ("sched_process_exit", self.on_thread_exit()),
            (
                "sched_wakeup_new",
                self.members.on_new_thread(&new_value(R8, R1, ThreadState::Runnable, NEW)),
            ),
        ]
    }

    /// `sched_switch(preempted, thread, next, state)`: the current thread stops running.
    fn on_switch(&self) -> Vec<u64> {
        let mut c = BpfCode::default();
        let [out, known, old, sum, state, set, stopped, disk] = [(); 8].map(|()| c.label());
        c.op(AluOp::Mov, R6, R1);
        snippets::this_thread(&mut c);
        c.op(AluOp::Mov, R9, R0);
        self.find(&mut c, known, out, ThreadState::Running);
        c.put(known);
        self.now(&mut c, out);
        c.load(AccessSize::Word, R1, R7, thread::FLAGS);
        c.jump_if_value(If::Equal, R1, 0, old);
        // Its time on the CPU is from the scheduler; before that, it waited for a CPU.
        c.store_value(AccessSize::Word, R7, thread::FLAGS, 0);
        c.load(AccessSize::Long, R1, R6, 8);
        c.load(AccessSize::Long, R2, R1, self.members.fields.ran);
        c.jump_if(If::AtLeast, R9, R2, sum);
        c.op(AluOp::Mov, R2, R9);
        c.put(sum);
        c.add_to(R7, thread::ALL, R2, R3);
        c.op(AluOp::Sub, R9, R2);
        c.add_to(R7, thread::ALL + 8, R9, R3);
        c.jump(state);
        c.put(old);
        c.add_to(R7, thread::ALL, R9, R3);
        c.put(state);
        c.store(AccessSize::Long, R7, thread::SINCE, R8);
        c.store_value(AccessSize::Long, R7, thread::WOKEN, 0);
        c.op_value(AluOp::Mov, R2, ThreadState::Runnable as i32);
        c.load(AccessSize::Long, R1, R6, 0);
        c.op_value(AluOp::And, R1, 0xff);
        c.jump_if_value(If::Differ, R1, 0, set);
        c.load(AccessSize::Long, R1, R6, 24);
        c.op_value(AluOp::And, R1, STOPPED | INTERRUPTIBLE | UNINTERRUPTIBLE | NO_LOAD);
        c.jump_if_value(If::Equal, R1, 0, set);
        c.jump_if_value(If::Both, R1, STOPPED, stopped);
        c.op_value(AluOp::Mov, R2, ThreadState::Sleeping as i32);
        c.jump_if_value(If::Both, R1, INTERRUPTIBLE | NO_LOAD, set);
        c.jump(disk);
        c.put(stopped);
        c.op_value(AluOp::Mov, R2, ThreadState::Stopped as i32);
        c.jump(set);
        c.put(disk);
        c.op_value(AluOp::Mov, R2, ThreadState::Uninterruptible as i32);
        c.put(set);
        c.store(AccessSize::Word, R7, thread::STATE, R2);
        c.put(out);
        c.exit();
        c.finish()
    }

    /// `sched_exit_tp(is_switch)`: the current thread continues, if it was switched out.
    fn on_resume(&self) -> Vec<u64> {
        let mut c = BpfCode::default();
        let [out, known, has_state, woken, sum] = [(); 5].map(|()| c.label());
        c.store(AccessSize::Long, R10, CONTEXT, R1);
        snippets::this_thread(&mut c);
        c.op(AluOp::Mov, R9, R0);
        self.find(&mut c, known, out, ThreadState::Sleeping);
        c.put(known);
        c.load(AccessSize::Word, R6, R7, thread::STATE);
        c.jump_if_value(If::Equal, R6, ThreadState::Running as i32, out);
        self.now(&mut c, out);
        c.jump_if_value(If::Differ, R6, UNKNOWN, has_state);
        c.op_value(AluOp::Mov, R6, ThreadState::Runnable as i32);
        c.put(has_state);
        // `R2`: nanoseconds for which it has waited for a CPU.
        c.op(AluOp::Mov, R2, R9);
        c.jump_if_value(If::Equal, R6, ThreadState::Runnable as i32, sum);
        c.load(AccessSize::Long, R1, R7, thread::WOKEN);
        c.jump_if_value(If::Differ, R1, 0, woken);
        c.op_value(AluOp::Mov, R2, 0);
        c.jump(sum);
        c.put(woken);
        c.op(AluOp::Mov, R2, R8);
        c.op(AluOp::Sub, R2, R1);
        c.jump_if(If::AtLeast, R9, R2, sum);
        c.op(AluOp::Mov, R2, R9);
        c.put(sum);
        c.op(AluOp::Mov, R1, R9);
        c.op(AluOp::Sub, R1, R2);
        c.store(AccessSize::Long, R10, RAW, R6);
        c.store(AccessSize::Long, R10, RAW + 8, R1);
        c.store(AccessSize::Long, R10, RAW + 16, R2);
        // Its state, as an offset that the verifier sees to be within the value.
        c.jump_if_value(If::Greater, R6, ThreadState::Stopped as i32, out);
        c.op_value(AluOp::Lsh, R6, 3);
        c.op(AluOp::Add, R6, R7);
        c.add_to(R6, thread::ALL, R1, R3);
        c.add_to(R7, thread::ALL + 8, R2, R3);
        c.store(AccessSize::Long, R7, thread::SINCE, R8);
        c.store_value(AccessSize::Long, R7, thread::WOKEN, 0);
        c.store_value(AccessSize::Word, R7, thread::STATE, ThreadState::Running as i32);
        let registers = ChoiceRegisters { now: R8, took: R9, control: R6 };
        snippets::choose(&mut c, &self.maps.control, registers, None, out);
        c.store(AccessSize::Long, R10, RAW + 24, R4);
        self.choose_event(&mut c);
        let events = Output { map: &self.maps.waits, index: EventIndex::Word(INDEX) };
        self.maps.parts.write(&mut c, events, RAW);
        c.put(out);
        c.exit();
        c.finish()
    }

    /// The word at [`INDEX`] = the number of the event for the wait that took the nanoseconds in `R9`;
    /// `R6` is the CPU's value of the control map.
    fn choose_event(&self, c: &mut BpfCode) {
        let short = c.label();
        c.number(R3, snippets::THIS_CPU);
        c.jump_if_value(If::Less, R9, LONG_WAIT, short);
        c.load(AccessSize::Long, R1, R6, control::SAMPLES);
        c.jump_if_value(If::AtLeast, R1, LONG_COPIES, short);
        c.call(Helper::CpuNumber);
        c.op(AluOp::Mov, R3, R0);
        c.op_value(AluOp::Add, R3, self.maps.cpus as i32);
        c.put(short);
        c.store(AccessSize::Long, R10, INDEX, R3);
    }

    /// `sched_wakeup(thread)`: the thread waits for a CPU.
    fn on_wakeup(&self) -> Vec<u64> {
        let mut c = BpfCode::default();
        let out = c.label();
        c.load(AccessSize::Long, R1, R1, 0);
        c.load(AccessSize::Word, R2, R1, self.members.fields.tid);
        c.store(AccessSize::Word, R10, KEY, R2);
        snippets::look_up(&mut c, &self.maps.threads, out);
        c.op(AluOp::Mov, R7, R0);
        // A thread that is woken before it has stopped keeps running.
        c.load(AccessSize::Word, R1, R7, thread::STATE);
        c.jump_if_value(If::Equal, R1, ThreadState::Running as i32, out);
        c.load(AccessSize::Long, R1, R7, thread::WOKEN);
        c.jump_if_value(If::Differ, R1, 0, out);
        c.call(Helper::KtimeGetNs);
        c.store(AccessSize::Long, R7, thread::WOKEN, R0);
        c.put(out);
        c.exit();
        c.finish()
    }

    /// `sched_process_exec(thread, old tid, program)`: the time of a COMMAND before that does not
    /// count. A thread that was not the first gets the ID of its process: this is handled as the
    /// exit of one and the start of another.
    fn on_exec(&self) -> Vec<u64> {
        let mut c = BpfCode::default();
        let [out, here, gone] = [(); 3].map(|()| c.label());
        c.store(AccessSize::Long, R10, CONTEXT, R1);
        c.load(AccessSize::Long, R6, R1, 8);
        c.call(Helper::PidTgid);
        c.op(AluOp::Mov, R9, R0);
        c.store(AccessSize::Word, R10, KEY, R6);
        snippets::look_up(&mut c, &self.maps.threads, out);
        c.op(AluOp::Mov, R7, R0);
        c.op_value(AluOp::Lsh, R9, 32);
        c.op_value(AluOp::Rsh, R9, 32);
        c.op_value(AluOp::Lsh, R6, 32);
        c.op_value(AluOp::Rsh, R6, 32);
        c.jump_if(If::Equal, R6, R9, here);
        self.report_sums(&mut c, gone);
        c.put(gone);
        c.call(Helper::KtimeGetNs);
        c.op(AluOp::Mov, R8, R0);
        c.call(Helper::PidTgid);
        c.store(AccessSize::Word, R10, KEY, R0);
        c.op(AluOp::Mov, R9, R0);
        c.op_value(AluOp::Rsh, R9, 32);
        self.members.add(&mut c, &new_value(R8, R9, ThreadState::Running, 0));
        c.jump(out);
        c.put(here);
        c.load(AccessSize::Word, R1, R7, thread::FLAGS);
        c.jump_if_value(If::Differ, R1, snippets::AWAITED, out);
        c.store_value(AccessSize::Word, R7, thread::FLAGS, 0);
        c.store_value(AccessSize::Word, R7, thread::STATE, ThreadState::Running as i32);
        c.call(Helper::KtimeGetNs);
        c.store(AccessSize::Long, R7, thread::SINCE, R0);
        c.put(out);
        c.exit();
        c.finish()
    }

    /// `sched_process_exit(thread)`: its sums are reported.
    fn on_thread_exit(&self) -> Vec<u64> {
        let mut c = BpfCode::default();
        let [out, reported] = [(); 2].map(|()| c.label());
        c.store(AccessSize::Long, R10, CONTEXT, R1);
        snippets::this_thread(&mut c);
        snippets::look_up(&mut c, &self.maps.threads, out);
        c.op(AluOp::Mov, R7, R0);
        self.report_sums(&mut c, reported);
        c.put(reported);
        c.put(out);
        c.exit();
        c.finish()
    }

    /// Reports the sums of the thread in `R7`, whose ID is at [`KEY`] and which has run until now,
    /// and removes it. Continues at `then`.
    fn report_sums(&self, c: &mut BpfCode, then: CodeLabel) {
        let [awaited, without_control] = [(); 2].map(|()| c.label());
        self.now(c, awaited);
        c.add_to(R7, thread::ALL, R9, R3);
        for at in (0..thread::SIZE as i16).step_by(8) {
            c.load(AccessSize::Long, R1, R7, at);
            c.store(AccessSize::Long, R10, VALUE + at, R1);
        }
        c.load(AccessSize::Word, R1, R10, KEY);
        c.store(AccessSize::Long, R10, ENDED, R1);
        snippets::delete(c, &self.maps.threads);
        c.store_value(AccessSize::Word, R10, KEY, 0);
        snippets::look_up(c, &self.maps.control, without_control);
        c.op(AluOp::Mov, R6, R0);
        let length = 8 + thread::SIZE as i32;
        snippets::write_record(c, &self.maps.ends, ENDED, length, R8, R6);
        c.put(without_control);
        c.jump(then);
        c.put(awaited);
        snippets::delete(c, &self.maps.threads);
        c.jump(then);
    }

    /// `R7` = the value of the current thread, whose ID is at [`KEY`], and in `R9` with that of its
    /// process. If it has none: jumps to `out`, or adds a value, with the state `doing` since the
    /// start of the recording.
    fn find(&self, c: &mut BpfCode, known: CodeLabel, out: CodeLabel, state: ThreadState) {
        let [unknown, found] = [(); 2].map(|()| c.label());
        // Its value is of no thread.
        c.load(AccessSize::Word, R1, R10, KEY);
        c.jump_if_value(If::Equal, R1, IDLE.tid, out);
        if self.members.scope != ThreadScope::Everyone {
            snippets::look_up(c, &self.maps.threads, out);
            c.op(AluOp::Mov, R7, R0);
            return c.jump(known);
        }
        snippets::look_up(c, &self.maps.threads, unknown);
        c.jump(found);
        c.put(unknown);
        // A thread whose exit was reported is not added again.
        c.call(Helper::CurrentTask);
        c.load(AccessSize::Word, R1, R0, self.members.fields.flags);
        c.jump_if_value(If::Both, R1, EXITING, out);
        c.op_value(AluOp::Rsh, R9, 32);
        c.load(AccessSize::Word, R7, R10, KEY);
        c.store_value(AccessSize::Word, R10, KEY, IDLE.tid);
        snippets::look_up(c, &self.maps.threads, out);
        c.load(AccessSize::Long, R8, R0, thread::SINCE);
        c.store(AccessSize::Word, R10, KEY, R7);
        self.members.add(c, &new_value(R8, R9, state, 0));
        snippets::look_up(c, &self.maps.threads, out);
        c.put(found);
        c.op(AluOp::Mov, R7, R0);
        c.jump(known);
    }

    /// `R8` = now, `R9` = nanoseconds since the state of the thread in `R7` began. Jumps to `out`
    /// if the thread does not count yet.
    fn now(&self, c: &mut BpfCode, out: CodeLabel) {
        let in_order = c.label();
        c.load(AccessSize::Word, R1, R7, thread::FLAGS);
        c.jump_if_value(If::Equal, R1, snippets::AWAITED, out);
        c.call(Helper::KtimeGetNs);
        c.op(AluOp::Mov, R8, R0);
        c.load(AccessSize::Long, R1, R7, thread::SINCE);
        c.op_value(AluOp::Mov, R9, 0);
        c.jump_if(If::Greater, R1, R8, in_order);
        c.op(AluOp::Mov, R9, R8);
        c.op(AluOp::Sub, R9, R1);
        c.put(in_order);
    }
}
