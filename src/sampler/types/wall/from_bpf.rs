//! Wall time aggregated by BPF programs (`sampler::bpf::sched`): a wait is sampled with its stack
//! when it is over, frequent waits only in part; the sums of a thread's time in each state follow
//! at its exit. Samples are scaled to the sums.

use rustc_hash::FxHashMap;

use super::{ExitedThreads, Ran, SHORT, Spec, StackOr, StateSums, add, software_event};
use crate::sampler::EventSpec;
use crate::sampler::bpf::sched::{LastState, Sums, ThreadTimes, TimedWait, WAIT_SIZE};
use crate::sampler::stack_maker::{ColumnSums, NOT_SAMPLED, PendingStack, SampledSums, StackMaker};
use crate::sampler::types::{End, TypeEvent};
use perf_event_open_sys::bindings as abi;
use profile::{LabelSetId, ThreadState};
use sys::record::{Record, Sample};
use sys::{ThreadId, procfs};

/// Bytes of stack that are copied at the end of a short wait: the thread continues, so its stack cannot
/// be read later; but a few hundred copies have to fit into a ring.
const COPY_OF_SHORT: u32 = 32 << 10;

/// Number of the event of threads that exit, whose samples have the sums of these.
const ENDS: usize = 2;

/// The time of the walk is the last word of a wait.
const WALKED_AT: usize = WAIT_SIZE - 8;

/// The events to which the programs write: short waits with a stack, the sums of threads that exit, and
/// long waits with a stack.
pub fn events() -> Vec<TypeEvent> {
    let output = abi::PERF_COUNT_SW_BPF_OUTPUT;
    let event = |name| {
        let spec = software_event(name, output);
        EventSpec { raw: true, anywhere: true, ..spec }
    };
    let wait = |name| EventSpec { walked_at: Some(WALKED_AT), ..event(name) };
    let short = EventSpec { most_dump: COPY_OF_SHORT, ..wait("waits") };
    let ends = EventSpec { stack: false, with_records: true, ..event("ends") };
    [short, ends, wait("long waits")].map(TypeEvent::each_time).into()
}

/// True for the events of waits; event 0 is the clock.
pub fn is_wait(event: usize) -> bool {
    event != 0 && event != ENDS
}

/// The state of a thread.
#[derive(Default)]
struct BpfThread {
    /// True if it was sampled on a CPU.
    ran: bool,
    /// The stack of its last wait.
    off: PendingStack,
    /// Its samples in each state.
    sampled: [SampledSums<1>; ThreadState::ALL.len()],
}

/// Wall time of all threads.
#[derive(Default)]
pub struct FromBpf {
    threads: FxHashMap<i32, BpfThread>,
    /// Threads that have exited: the clock may still sample them shortly afterwards.
    exited: ExitedThreads,
    /// The sums to which the samples are scaled.
    pub sums: StateSums,
}

impl FromBpf {
    /// Forgets all sums, which have labels.
    pub fn forget_labels(&mut self) {
        self.sums = StateSums::default();
        self.threads.values_mut().for_each(|thread| thread.sampled = Default::default());
    }

    /// A thread was sampled on a CPU. True if its time counts.
    pub fn runs(&mut self, thread: ThreadId) -> bool {
        let counts = self.exited.is_alive(thread);
        if counts {
            self.threads.entry(thread.tid).or_default().ran = true;
        }
        counts
    }

    /// A sample on a CPU was added.
    pub fn ran(&mut self, thread: ThreadId, ran: &Ran) {
        self.sampled(thread, ThreadState::Running, ran.labels).exact += ran.nanos;
    }

    fn sampled(
        &mut self,
        thread: ThreadId,
        state: ThreadState,
        labels: LabelSetId,
    ) -> &mut ColumnSums {
        let thread = self.threads.entry(thread.tid).or_default();
        let [sum] = thread.sampled[state as usize].get(labels);
        sum
    }

    /// Handles a record of a program.
    pub fn sample(
        &mut self,
        spec: &Spec,
        maker: &mut StackMaker,
        event: usize,
        sample: &Sample<'_>,
    ) {
        if is_wait(event) {
            let Some(wait) = TimedWait::parse(sample.raw) else { return };
            maker.make_stack_below_program(sample);
            let mut off = std::mem::take(&mut self.threads.entry(sample.tid).or_default().off);
            off.clone_from(maker.last_stack());
            self.add_wait(spec, maker, sample.thread(), &off, &wait);
            self.threads.entry(sample.tid).or_default().off = off;
        } else if let Some(times) = ThreadTimes::parse(sample.raw) {
            self.settle(spec, maker, &times);
        }
    }

    /// Handles the start or exit of a thread.
    pub fn record(&mut self, record: &Record<'_>) {
        match *record {
            Record::Fork { tid, .. } => {
                self.exited.forked(tid);
            }
            Record::Exit { tid, .. } => {
                self.exited.exited(tid);
                if let Some(thread) = self.threads.remove(&tid) {
                    self.keep(thread);
                }
            }
            _ => {}
        }
    }

    /// The recording ends: adds the sums of all threads that have not exited.
    pub fn end(
        &mut self,
        spec: &Spec,
        maker: &mut StackMaker,
        &End { time, is_last_part, .. }: &End,
        threads: Vec<(ThreadTimes, LastState)>,
    ) {
        for (mut times, last) in threads {
            let lasted = time.saturating_sub(last.since);
            let thread = times.thread;
            match last.state {
                Some(ThreadState::Running) | None => {
                    times.all[ThreadState::Running as usize] += lasted;
                }
                Some(_) if procfs::stat(thread.tid).is_none() && times.all == Sums::default() => {
                    continue;
                }
                Some(state) => {
                    let queued = match (state, last.woken) {
                        (ThreadState::Runnable, _) => lasted,
                        (_, 0) => 0,
                        (_, woken) => time.saturating_sub(woken).min(lasted),
                    };
                    let wait = TimedWait { state, waited: lasted - queued, queued, interval: 0 };
                    times.all[state as usize] += wait.waited;
                    times.all[ThreadState::Runnable as usize] += queued;
                    // The stack of a wait that continues is read now.
                    let stack = maker.stack_of_waiting(thread);
                    self.add_wait(spec, maker, thread, &stack, &wait);
                }
            }
            if !is_last_part {
                self.settle(spec, maker, &times);
            }
        }
        let unsettled = std::mem::take(&mut self.threads);
        unsettled.into_values().for_each(|thread| self.keep(thread));
    }

    /// Adds a wait by its stack.
    fn add_wait(
        &mut self,
        spec: &Spec,
        maker: &mut StackMaker,
        thread: ThreadId,
        stack: &PendingStack,
        wait: &TimedWait,
    ) {
        let lasted = wait.waited + wait.queued;
        let stack = if lasted < spec.min_block { Err(SHORT) } else { Ok(stack) };
        for (nanos, state) in [(wait.waited, wait.state), (wait.queued, ThreadState::Runnable)] {
            let nanos = i64::try_from(wait.extrapolate(nanos)).unwrap_or(i64::MAX);
            if nanos == 0 {
                continue;
            }
            if lasted < wait.interval {
                let labels = maker.labels_in_state(thread, Some(state));
                self.sampled(thread, state, labels).estimated += nanos;
                let own = self.sums.extrapolated.labels(maker, labels);
                add(maker, stack, own, spec.column, nanos);
            } else {
                self.add_exact(spec, maker, thread, state, stack, nanos);
            }
        }
    }

    fn add_exact(
        &mut self,
        spec: &Spec,
        maker: &mut StackMaker,
        thread: ThreadId,
        state: ThreadState,
        stack: StackOr<'_>,
        nanos: i64,
    ) {
        let labels = maker.labels_in_state(thread, Some(state));
        self.sampled(thread, state, labels).exact += nanos;
        add(maker, stack, labels, spec.column, nanos);
    }

    /// Adds a thread's sums.
    fn settle(&mut self, spec: &Spec, maker: &mut StackMaker, times: &ThreadTimes) {
        let ThreadTimes { thread: id, all } = *times;
        let nanos = all.map(|nanos| i64::try_from(nanos).unwrap_or(i64::MAX));
        let skipped = usize::from(!spec.running);
        let thread = self.threads.entry(id.tid).or_default();
        if spec.running && !thread.ran && nanos[0] > 0 {
            // It ran for less than a period, and stopped in an unknown stack.
            let off = std::mem::take(&mut thread.off);
            let stack = if off.is_empty() { Err(NOT_SAMPLED) } else { Ok(&off) };
            self.add_exact(spec, maker, id, ThreadState::Running, stack, nanos[0]);
        }
        let sampled = self.threads.remove(&id.tid).unwrap_or_default().sampled;
        let states = ThreadState::ALL.into_iter().zip(nanos).zip(sampled).skip(skipped);
        for ((state, nanos), mut sampled) in states.filter(|((_, nanos), _)| *nanos > 0) {
            if sampled.is_empty() {
                sampled.get(maker.labels_in_state(id, Some(state)));
            }
            sampled.split([nanos], |labels, [sum]| self.sums.add(labels, sum));
        }
    }

    /// Adds the samples of a thread whose sums are missing: they stay as they are.
    fn keep(&mut self, thread: BpfThread) {
        for sampled in thread.sampled {
            sampled.keep(|labels, [sum]| self.sums.add(labels, sum));
        }
    }
}
