//! Wall time that programs in the kernel add up (`sampler::bpf::waits`): they tell of waits with
//! their stacks when they are over, of some for all where there are many, and each thread's time in
//! each state at the end. Samples are scaled to that.

use super::{Aggregator, Held, Thread};
use crate::sampler::bpf::waits::{Last, Sums, Times, Wait as Told};
use profile::{Column, LabelSetId, ThreadState};
use sys::procfs;
use sys::record::Sample;

const NOT_SAMPLED: &str = "[stack not known: it was not sampled]";
const WENT_ON: &str = "[stack not known: it went on as the recording ended]";
const SHORT: &str = "[waits shorter than --min-block]";

impl Aggregator {
    /// A sample of a thread that runs was counted, with these labels and the first value.
    pub(super) fn note_run(&mut self, labels: LabelSetId, (column, nanos): (Column, i64)) {
        let counts = |wall: &super::Wall| wall.spec.programs && wall.spec.column == column;
        if !self.wall.as_ref().is_some_and(counts) {
            return;
        }
        self.note_wait(labels, 0, nanos);
    }

    /// A wait is over.
    pub(in super::super) fn has_waited(&mut self, sample: &Sample<'_>) {
        let Some(told) = Told::parse(sample.raw) else { return };
        let mut scratch = std::mem::take(&mut self.scratch);
        let leaf = self.stack_below_program(sample, &mut scratch);
        if let Some(wall) = &mut self.wall {
            let thread = wall.thread(sample.pid, sample.tid);
            thread.off.set(&scratch, leaf);
        }
        self.scratch = scratch;
        let thread = (sample.pid, sample.tid);
        self.with_thread(thread, |aggregator, held| {
            aggregator.add_wait(thread, Ok(&held.off), &told);
        });
    }

    /// A thread ends, and its sums are told.
    pub(in super::super) fn has_ended(&mut self, sample: &Sample<'_>) {
        if let Some(times) = Times::parse(sample.raw) {
            self.settle(&times);
        }
    }

    /// The recording ends at `time`, and the sums of all that have not ended are told.
    pub(super) fn end_of_told(&mut self, time: u64, told: Vec<(Times, Last)>) {
        for (mut times, last) in told {
            let since = last.since.min(time);
            let lasted = time - since;
            let tid = times.tid;
            match last.state {
                Some(ThreadState::Running) | None => {
                    times.all[ThreadState::Running as usize] += lasted;
                }
                Some(_) if procfs::stat(tid).is_none() && times.all == Sums::default() => continue,
                Some(state) => {
                    let queued = match (state, last.woken) {
                        (ThreadState::Runnable, _) => lasted,
                        (_, 0) => 0,
                        (_, woken) => time.saturating_sub(woken).min(lasted),
                    };
                    let wait = Told { state, waited: lasted - queued, queued, interval: 0 };
                    times.all[state as usize] += wait.waited;
                    times.all[ThreadState::Runnable as usize] += queued;
                    self.waits_on((times.pid, tid), &wait);
                }
            }
            self.settle(&times);
        }
        self.divide_what_was_thinned();
    }

    /// A thread waits beyond the end of the recording: where, is looked up.
    fn waits_on(&mut self, (pid, tid): (i32, i32), wait: &Told) {
        let held = self.stack_of_waiting(pid, tid);
        self.add_wait((pid, tid), Ok(&held), wait);
    }

    /// The stack of a thread that waited as the recording ended; it may have gone on since.
    pub(in super::super) fn stack_of_waiting(&mut self, pid: i32, tid: i32) -> Held {
        let mut scratch = std::mem::take(&mut self.scratch);
        let stack = self.stack_of_sleeper(pid, tid, &mut scratch).ok().flatten();
        let mut held = Held::default();
        match stack {
            Some(leaf) => held.set(&scratch, leaf),
            None => held.callers.push(self.builder.named_location(WENT_ON)),
        }
        self.scratch = scratch;
        held
    }

    /// Does something with what is known of a thread.
    fn with_thread(&mut self, (pid, tid): (i32, i32), act: impl FnOnce(&mut Aggregator, &Thread)) {
        let Some(thread) = self.wall.as_mut().map(|wall| {
            wall.thread(pid, tid);
            wall.threads.remove(&tid).expect("it was there just now")
        }) else {
            return;
        };
        act(self, &thread);
        if let Some(wall) = &mut self.wall {
            wall.threads.insert(tid, thread);
        }
    }

    /// Counts a wait by its stack; without one: by why it has none.
    fn add_wait(&mut self, thread: (i32, i32), stack: Result<&Held, &'static str>, told: &Told) {
        let min_block = self.wall.as_ref().map_or(0, |wall| wall.spec.min_block);
        let stack = if told.waited + told.queued < min_block { Err(SHORT) } else { stack };
        for (nanos, state) in [(told.waited, told.state), (told.queued, ThreadState::Runnable)] {
            let estimate = told.waited + told.queued < told.interval;
            let time = (told.stands_for(nanos), estimate);
            self.add_time(thread, stack, state, time);
        }
    }

    fn add_time(
        &mut self,
        (pid, tid): (i32, i32),
        stack: Result<&Held, &'static str>,
        state: ThreadState,
        (nanos, estimate): (u64, bool),
    ) {
        let nanos = i64::try_from(nanos).unwrap_or(i64::MAX);
        let Some(column) = self.wall.as_ref().map(|wall| wall.spec.column).filter(|_| nanos > 0)
        else {
            return;
        };
        let labels = self.labels_of(pid, tid, Some(state));
        let mut with = labels;
        if estimate {
            with = self.note_estimate(labels, nanos);
        } else {
            self.note_wait(labels, 0, nanos);
        }
        let values = [(column, nanos)];
        match stack {
            Ok(held) => self.builder.add_stack(&held.callers, held.innermost, with, &values),
            Err(why) => {
                let nowhere = [self.builder.named_location(why)];
                self.builder.add_stack(&nowhere, None, with, &values);
            }
        }
    }

    /// A sample with these labels stands for others, too. Returns the labels that tell it apart.
    fn note_estimate(&mut self, labels: LabelSetId, nanos: i64) -> LabelSetId {
        let Some(wall) = &mut self.wall else { return labels };
        let waits = wall.waits.entry(labels).or_default();
        waits.estimated = waits.estimated.saturating_add(nanos);
        let mut twins = std::mem::take(&mut wall.twins);
        let with = self.twin(&mut twins, labels);
        if let Some(wall) = &mut self.wall {
            wall.twins = twins;
        }
        with
    }

    /// Takes in a thread's sums.
    fn settle(&mut self, times: &Times) {
        let Times { pid, tid, all } = *times;
        let Some(wall) = &mut self.wall else { return };
        let skipped = usize::from(!wall.spec.running);
        let thread = wall.threads.remove(&tid).unwrap_or_else(|| Thread::new(pid, 0, None));
        if skipped == 0 && thread.ran.is_empty() {
            // It ran for less than a period, and stopped somewhere.
            let stack = if thread.off.is_empty() { Err(NOT_SAMPLED) } else { Ok(&thread.off) };
            self.add_time((pid, tid), stack, ThreadState::Running, (all[0], false));
        }
        let by_state = ThreadState::ALL.into_iter().zip(all).skip(skipped);
        for (state, nanos) in by_state.filter(|&(_, nanos)| nanos > 0) {
            let labels = self.labels_of(pid, tid, Some(state));
            self.note_wait(labels, i64::try_from(nanos).unwrap_or(i64::MAX), 0);
        }
    }
}
