//! Wall time from the kernel's records of context switches, used without BPF programs.
//!
//! A sample on a CPU represents the time that its thread has run since the previous sample. If
//! threads stop so often that only every Nth time is sampled, a sample represents the stops since
//! the previous one, and is scaled to the time of its thread in its state; the stacks of long waits
//! are read while they last, and represent only themselves.

use rustc_hash::FxHashMap;

use super::{ExitedThreads, SHORT, Spec, StateSums, add, software_event};
use crate::sampler::events::{EventKind, Overload};
use crate::sampler::permissions::{Wanted, refused};
use crate::sampler::stack_maker::{ColumnSums, NOT_SAMPLED, PendingStack, StackMaker};
use crate::sampler::tracepoint::{Field, Tracepoint};
use crate::sampler::types::{EventTrial, TypeEvent};
use crate::sampler::{EventSpec, thread_state};
use messages::Message;
use perf_event_open_sys::bindings as abi;
use profile::ThreadState;
use std::io;
use sys::record::{Record, Sample};
use sys::{Error, ThreadId, os, procfs};

/// If threads stop running too often, every Nth stop is sampled. A prime, so that it does not
/// coincide with periodic work of programs.
pub const THINNED: u64 = 61;

/// Maximum number of threads whose stacks are read together, of those that wait with an unknown
/// stack; and the minimum length of their wait in nanoseconds.
const MAX_READ: usize = 64;
const LEAST_WAIT: u64 = 20_000_000;

/// The frame in place of a stack.
const DID_NOT_RUN: &str = "[stack not known: it did not run before]";

/// Indices of the events; 0 is the clock.
const SWITCH: usize = 1;
const THINNED_SWITCH: usize = 2;
const WAKEUP: usize = 3;

/// The state of a thread, and its start.
struct SwitchThread {
    pid: i32,
    /// Start of the state (`CLOCK_MONOTONIC`, nanoseconds).
    since: u64,
    /// `None` before its first record.
    state: Option<ThreadState>,
    /// Its apparent state when the recording started.
    seemed: ThreadState,
    /// Nanoseconds for which it has run and which no sample represents yet.
    unsampled: u64,
    /// The last sample on a CPU.
    ran: PendingStack,
    /// The state that it enters, from the sample just before it stops.
    why: Option<ThreadState>,
    /// Time at which it was woken while it waited: since then it waits for a CPU.
    woken: Option<u64>,
    /// The stack with which it has stopped.
    off: PendingStack,
    /// True if `off` is the stack of the current stop.
    known: bool,
    /// True if the current stop was sampled.
    sampled: bool,
    /// Number of stops since the last sampled one.
    times: i64,
    /// Time at which its stack was read, if it was not sampled.
    seen: Option<u64>,
}

impl SwitchThread {
    fn new(pid: i32, since: u64, state: Option<ThreadState>) -> SwitchThread {
        SwitchThread {
            pid,
            since,
            state,
            seemed: ThreadState::Sleeping,
            unsampled: 0,
            ran: PendingStack::default(),
            why: None,
            woken: None,
            off: PendingStack::default(),
            known: false,
            sampled: false,
            times: 0,
            seen: None,
        }
    }

    /// Advances the time to `now`, and returns the nanoseconds passed.
    fn elapse(&mut self, now: u64) -> u64 {
        let elapsed = now.saturating_sub(self.since);
        self.since = self.since.max(now);
        elapsed
    }

    /// The thread stops running.
    fn stops(&mut self, preempted: bool) {
        self.times = if self.known { 1 } else { self.times + 1 };
        self.known = std::mem::take(&mut self.sampled);
        self.seen = None;
        let why = self.why.take().unwrap_or(ThreadState::Sleeping);
        self.state = Some(if preempted { ThreadState::Runnable } else { why });
    }
}

/// A wait in one state.
struct StateWait {
    nanos: i64,
    state: ThreadState,
    /// The reason why it has no stack of its own.
    without_stack: Option<&'static str>,
    /// True if its stack was read.
    looked_up: bool,
}

/// The time of all threads.
#[derive(Default)]
pub struct FromSwitches {
    /// The field of `sched:sched_switch` with the state of a thread that stops (`prev_state`).
    prev_state: Option<Field>,
    /// The field of `sched:sched_wakeup` with the woken thread.
    woken: Option<Field>,
    /// Start of the recording (`CLOCK_MONOTONIC`, nanoseconds).
    began: u64,
    threads: FxHashMap<i32, SwitchThread>,
    /// Threads that have exited: if whole CPUs are recorded, they stop running after that.
    exited: ExitedThreads,
    /// Time at which the stacks of long waits were last read.
    last_read: u64,
    /// The sums to which the samples are scaled.
    pub sums: StateSums,
}

impl FromSwitches {
    /// Before any event, with the fields of its tracepoints.
    #[cfg(test)]
    pub fn with_fields(prev_state: Field, woken: Field) -> FromSwitches {
        let prev_state = Some(prev_state);
        let woken = Some(woken);
        FromSwitches { prev_state, woken, ..FromSwitches::default() }
    }

    /// Stops of threads: the tracepoint `sched:sched_switch`, which has the reason, if this user
    /// may read it, else the software event; the same thinned, for when there are too many; and
    /// wake-ups, after which a thread waits for a CPU.
    ///
    /// # Errors
    ///
    /// Kernel code, where switches happen, may not be sampled.
    pub fn events(&mut self, trial: &mut EventTrial<'_>) -> Result<Vec<TypeEvent>, Error> {
        if !trial.may_sample_kernel() {
            let denied = io::Error::from_raw_os_error(libc::EACCES);
            return Err(refused(&denied, Wanted::Kernel));
        }
        (self.prev_state, self.woken) = (None, None);
        let mut switch = software_event("context-switches", abi::PERF_COUNT_SW_CONTEXT_SWITCHES);
        if let Ok((traced, field)) = tracepoint("sched_switch", "prev_state")
            && trial.with_kernel(&traced)
        {
            (switch, self.prev_state) = (traced, Some(field));
        }
        // The kernel runs no program at the samples of tracepoints.
        let switch = EventSpec { deep_stacks: self.prev_state.is_none(), ..switch };
        let always = EventSpec { overload: Overload::Stop, ..switch.clone() };
        let thinned = EventSpec { overload: Overload::Start, ..switch };
        let mut events =
            vec![TypeEvent::each_time(always), TypeEvent { spec: thinned, period: THINNED }];
        if self.prev_state.is_some()
            && let Ok((spec, field)) = tracepoint("sched_wakeup", "pid")
        {
            let spec = EventSpec { stack: false, overload: Overload::Stop, ..spec };
            if trial.can_open(&spec).is_ok() {
                self.woken = Some(field);
                events.push(TypeEvent::each_time(spec));
            }
        }
        Ok(events)
    }

    /// A note for the user about events that were thinned.
    pub fn note_thinned(&self) -> Message {
        Message::SwitchesThinned { every: THINNED, without_wakeups: self.woken.is_some() }
    }

    /// The recording starts with these threads.
    pub fn start(&mut self, maker: &mut StackMaker, threads: Vec<ThreadId>) {
        self.began = os::monotonic_nanos();
        threads.into_iter().for_each(|thread| self.add_existing(maker, thread));
    }

    /// Adds a thread that existed at the start of the recording. The stack of a sleeping one is
    /// read, because it may sleep until the end.
    fn add_existing(&mut self, maker: &mut StackMaker, id: ThreadId) {
        let Some(stat) = procfs::stat(id.tid).filter(|stat| !matches!(stat.state, 'Z' | 'X'))
        else {
            return;
        };
        let seemed = thread_state::from_letter(stat.state);
        let asleep =
            seemed != ThreadState::Runnable && maker.make_stack_of_sleeper(id).unwrap_or(false);
        let thread = self.thread(id);
        thread.seemed = seemed;
        if asleep {
            thread.off.clone_from(maker.last_stack());
            thread.seen = Some(os::monotonic_nanos());
        }
    }

    fn thread(&mut self, id: ThreadId) -> &mut SwitchThread {
        let began = self.began;
        self.threads.entry(id.tid).or_insert_with(|| SwitchThread::new(id.pid, began, None))
    }

    /// A thread was sampled on a CPU: the sample represents the time since the previous one.
    /// `None`: its time does not count.
    pub fn runs(&mut self, sample: &Sample<'_>, stack: &PendingStack) -> Option<u64> {
        if !self.exited.is_alive(sample.thread()) {
            return None;
        }
        let thread = self.thread(sample.thread());
        let time = thread.elapse(sample.time) + std::mem::take(&mut thread.unsampled);
        (thread.state, thread.woken) = (Some(ThreadState::Running), None);
        thread.ran.clone_from(stack);
        Some(time)
    }

    /// Handles a sample of an event.
    pub fn sample(&mut self, maker: &mut StackMaker, event: usize, sample: &Sample<'_>) {
        match event {
            SWITCH | THINNED_SWITCH => self.stops_running(maker, sample),
            WAKEUP => self.is_woken(sample),
            _ => {}
        }
    }

    /// A thread is about to stop running.
    fn stops_running(&mut self, maker: &mut StackMaker, sample: &Sample<'_>) {
        if !self.exited.is_alive(sample.thread()) {
            return;
        }
        match self.prev_state {
            Some(_) => maker.make_stack_at_tracepoint(sample),
            None => maker.make_stack(sample),
        }
        let state = self.prev_state.and_then(|field| field.number(sample.raw));
        let thread = self.thread(sample.thread());
        thread.off.clone_from(maker.last_stack());
        thread.sampled = true;
        thread.woken = None;
        thread.why = state.map(thread_state::from_bits);
    }

    /// A thread is woken. If both threads are recorded, there are two records of it.
    fn is_woken(&mut self, sample: &Sample<'_>) {
        let woken = self.woken.and_then(|field| field.number(sample.raw));
        let thread = woken.and_then(|tid| self.threads.get_mut(&(tid as i32)));
        let Some(thread) = thread else { return };
        // It may be woken before it has stopped; otherwise a running thread is not woken.
        if thread.state != Some(ThreadState::Running) || thread.sampled {
            thread.woken.get_or_insert(sample.time);
        }
    }

    /// Handles a switch, or the start or exit of a thread.
    pub fn record(&mut self, spec: &Spec, maker: &mut StackMaker, record: &Record<'_>) {
        match *record {
            Record::Fork { pid, tid, time, .. } => {
                let child =
                    SwitchThread::new(pid, time.max(self.began), Some(ThreadState::Runnable));
                self.exited.forked(tid);
                self.threads.insert(tid, child);
            }
            Record::Switch { pid, tid, time, out, preempted } => {
                let id = ThreadId { pid, tid };
                if !self.exited.is_alive(id) {
                    return;
                }
                self.thread(id);
                let Some(mut thread) = self.threads.remove(&tid) else { return };
                if out && thread.state.is_none() {
                    // It ran when the recording started.
                    thread.unsampled += thread.elapse(time);
                    thread.woken = None;
                } else {
                    self.waited(spec, maker, &mut thread, tid, time);
                }
                if out {
                    thread.stops(preempted);
                } else {
                    thread.state = Some(ThreadState::Running);
                }
                self.threads.insert(tid, thread);
            }
            Record::Exit { tid, time, .. } => {
                self.exited.exited(tid);
                let Some(mut thread) = self.threads.remove(&tid) else { return };
                self.ends(spec, maker, &mut thread, tid, time);
            }
            _ => {}
        }
    }

    /// Attributes the wait of a thread until `time` to its blocking stack.
    fn waited(
        &mut self,
        spec: &Spec,
        maker: &mut StackMaker,
        thread: &mut SwitchThread,
        tid: i32,
        time: u64,
    ) {
        let state = thread.state.unwrap_or(thread.seemed);
        // It may have continued before its stack was read.
        let looked_up = thread.seen.take().is_some_and(|seen| seen < time);
        let waited = thread.elapse(time);
        if state == ThreadState::Running || waited == 0 {
            thread.unsampled += waited;
            return;
        }
        let without_stack = match waited < spec.min_block {
            true => Some(SHORT),
            false if thread.times == 0 && !looked_up => Some(DID_NOT_RUN),
            false => None,
        };
        let woken = thread.woken.take().filter(|_| state != ThreadState::Runnable);
        let queued = woken.map_or(0, |woken| time.saturating_sub(woken).min(waited));
        for (waited, state) in [(waited - queued, state), (queued, ThreadState::Runnable)] {
            if waited > 0 {
                let wait = StateWait { nanos: waited as i64, state, without_stack, looked_up };
                self.add_wait(spec, maker, thread, tid, &wait);
            }
        }
    }

    /// Adds a wait in one state by its stack, if known.
    fn add_wait(
        &mut self,
        spec: &Spec,
        maker: &mut StackMaker,
        thread: &SwitchThread,
        tid: i32,
        wait: &StateWait,
    ) {
        let StateWait { nanos, state, without_stack, looked_up } = *wait;
        let labels = maker.labels_in_state(ThreadId { pid: thread.pid, tid }, Some(state));
        if let Some(why) = without_stack {
            maker.add_without_stack(why, labels, 1, &[(spec.column, nanos)]);
            let exact = ColumnSums { all: nanos, exact: nanos, estimated: 0 };
            return self.sums.add(labels, exact);
        }
        let times = if thread.known { thread.times } else { i64::from(looked_up) };
        let extrapolated = nanos.saturating_mul(times);
        if extrapolated > 0 {
            maker.add_pending(&thread.off, labels, 1, &[(spec.column, extrapolated)]);
        }
        let sum = ColumnSums { all: nanos, exact: extrapolated, estimated: 0 };
        self.sums.add(labels, sum);
    }

    /// Reads the stacks of some of the threads that have waited for long with an unknown stack,
    /// unless that was just done.
    pub fn read_long_waits(&mut self, maker: &mut StackMaker) {
        let now = os::monotonic_nanos();
        if self.last_read + LEAST_WAIT >= now {
            return;
        }
        self.last_read = now;
        let waits = |thread: &SwitchThread| {
            let unknown = !thread.known && thread.seen.is_none();
            let off = thread.state.is_some_and(|s| s != ThreadState::Running);
            unknown && off && thread.since + LEAST_WAIT < now
        };
        let found = self.threads.iter().filter(|(_, thread)| waits(thread));
        let found: Vec<ThreadId> =
            found.take(MAX_READ).map(|(&tid, thread)| ThreadId { pid: thread.pid, tid }).collect();
        for id in found {
            if maker.make_stack_of_sleeper(id).unwrap_or(false) {
                let thread = self.thread(id);
                thread.off.clone_from(maker.last_stack());
                thread.seen = Some(os::monotonic_nanos());
            }
        }
    }

    /// A thread, or the recording of it, ends.
    fn ends(
        &mut self,
        spec: &Spec,
        maker: &mut StackMaker,
        thread: &mut SwitchThread,
        tid: i32,
        time: u64,
    ) {
        self.waited(spec, maker, thread, tid, time);
        if !spec.running || thread.unsampled == 0 {
            return;
        }
        // Its last sample is the nearest to that time; a thread that ran for less than a period has
        // none, and stopped in an unknown stack.
        let stack = if thread.ran.is_empty() { &thread.off } else { &thread.ran };
        let id = ThreadId { pid: thread.pid, tid };
        let labels = maker.labels_in_state(id, Some(ThreadState::Running));
        let stack = if stack.is_empty() { Err(NOT_SAMPLED) } else { Ok(stack) };
        add(maker, stack, labels, spec.column, thread.unsampled as i64);
    }

    /// The recording ends at `time`.
    pub fn end(&mut self, spec: &Spec, maker: &mut StackMaker, time: u64) {
        for (tid, mut thread) in std::mem::take(&mut self.threads) {
            self.ends(spec, maker, &mut thread, tid, time);
        }
    }
}

/// A tracepoint of the scheduler, and one of its fields.
fn tracepoint(name: &str, field: &str) -> io::Result<(EventSpec, Field)> {
    let found = Tracepoint::find("sched", name)?;
    let field = found.field(field)?;
    let name = format!("sched:{name}");
    let spec = EventSpec::plain(&name, EventKind::OfType, abi::PERF_TYPE_TRACEPOINT, found.id);
    Ok((EventSpec { raw: true, ..spec }, field))
}
