//! Calls that BPF programs time (`sampler::bpf::syscalls`): some are sampled with their stacks, and
//! extrapolated to the sums of all.

use rustc_hash::FxHashMap;

use super::Tags;
use super::open_pairs::OpenPairs;
use crate::sampler::bpf::extrapolate;
use crate::sampler::bpf::syscalls::{CallSum, MAX_SUMS, OpenCall, SyscallProgram, TimedCall};
use crate::sampler::stack_maker::{
    ColumnSums, Extrapolated, NOT_SAMPLED, PendingStack, SampledSums, Shares, StackMaker,
};
use crate::sampler::types::End;
use profile::LabelSetId;
use sys::record::Sample;
use sys::{ThreadId, procfs};

/// The key of a sum: the calls of a thread with the same object and kind.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct CallSort {
    tid: i32,
    object: u64,
    kind: u64,
}

/// The sampled calls.
#[derive(Default)]
pub struct TimedCalls {
    /// Sums of count and nanoseconds of the samples of each sort.
    sampled: FxHashMap<CallSort, SampledSums<2>>,
    extrapolated: Extrapolated,
    /// The fraction that remains when counts are rounded down.
    rest: f64,
}

impl TimedCalls {
    /// Forgets all sums, which have labels.
    pub fn forget_labels(&mut self) {
        self.sampled.clear();
        self.extrapolated = Extrapolated::default();
    }

    /// Adds a call that has ended.
    pub fn call(
        &mut self,
        maker: &mut StackMaker,
        pairs: &mut OpenPairs,
        sample: &Sample<'_>,
        call: &TimedCall,
        tags: &Tags,
    ) {
        maker.make_stack_below_program(sample);
        let stack = pairs.keep(maker.last_stack());
        let thread = sample.thread();
        let added = self.add(maker, pairs, &stack, thread, call, tags);
        pairs.recycle(stack);
        let sort = CallSort { tid: thread.tid, object: call.object, kind: call.kind };
        if self.sampled.len() >= MAX_SUMS as usize && !self.sampled.contains_key(&sort) {
            return;
        }
        let sums = self.sampled.entry(sort).or_default().get(added.labels);
        for (known, value) in sums.iter_mut().zip(added.values) {
            *(if added.is_estimate { &mut known.estimated } else { &mut known.exact }) += value;
        }
    }

    /// Adds a call, extrapolated if it is shorter than the interval.
    fn add(
        &mut self,
        maker: &mut StackMaker,
        pairs: &mut OpenPairs,
        stack: &PendingStack,
        thread: ThreadId,
        call: &TimedCall,
        tags: &Tags,
    ) -> Added {
        let TimedCall { lasted, again, interval, .. } = *call;
        let ended = f64::from(u8::from(!again));
        self.rest += ended * (interval as f64 / lasted.max(1) as f64).max(1.0);
        let count = self.rest.floor();
        self.rest -= count;
        let nanos = i64::try_from(extrapolate(lasted, lasted, interval)).unwrap_or(i64::MAX);
        let values = [count as i64, nanos];
        let labels = pairs.labels(maker, thread, tags);
        let is_estimate = lasted < interval;
        let own = if is_estimate { self.extrapolated.labels(maker, labels) } else { labels };
        maker.add_pending(stack, own, 0, pairs.columns(0, &values).as_slice());
        Added { labels, values, is_estimate }
    }

    /// Adds the calls in progress at the end of the recording, and scales the others to the sums.
    pub fn end(
        &mut self,
        maker: &mut StackMaker,
        pairs: &mut OpenPairs,
        program: &SyscallProgram,
        &End { time, is_last_part, .. }: &End,
        tags_of: impl Fn(&TimedCall) -> Tags,
    ) {
        // Calls that were not sampled have no known end.
        maker.builder.set_time(None);
        if !is_last_part {
            self.scale(maker, pairs, program.sums(), &tags_of);
        }
        maker.builder.set_time(Some(time));
        for open in program.open().into_iter().filter(|open| open.since < time) {
            let OpenCall { tid, since, object, kind } = open;
            let Some((pid, _)) = procfs::owner(tid) else { continue };
            let thread = ThreadId { pid, tid };
            let stack = maker.stack_of_waiting(thread);
            let call = TimedCall { object, kind, lasted: time - since, again: false, interval: 0 };
            self.add(maker, pairs, &stack, thread, &call, &tags_of(&call));
        }
    }

    fn scale(
        &mut self,
        maker: &mut StackMaker,
        pairs: &mut OpenPairs,
        sums: Vec<CallSum>,
        tags_of: &impl Fn(&TimedCall) -> Tags,
    ) {
        let mut by_labels: FxHashMap<LabelSetId, [ColumnSums; 2]> = FxHashMap::default();
        let mut add = |labels, sums: [ColumnSums; 2]| {
            let known = by_labels.entry(labels).or_default();
            known.iter_mut().zip(sums).for_each(|(known, sum)| known.add(sum));
        };
        for CallSum { pid, tid, object, kind, count, nanos } in sums {
            let all = [count, nanos].map(|n| i64::try_from(n).unwrap_or(i64::MAX));
            if let Some(sampled) = self.sampled.remove(&CallSort { tid, object, kind }) {
                sampled.split(all, &mut add);
                continue;
            }
            let call = TimedCall { object, kind, lasted: nanos, again: false, interval: 0 };
            let stack = PendingStack::single(maker.builder.named_location(NOT_SAMPLED));
            let thread = ThreadId { pid, tid };
            let values = pairs.columns(0, &all);
            pairs.add(maker, &stack, thread, &tags_of(&call), &values);
        }
        // Calls for which there was no room have no sum.
        self.sampled.drain().for_each(|(_, sampled)| sampled.keep(&mut add));
        let values = pairs.columns(0, &[0, 0]);
        for (i, &(column, _)) in values.as_slice().iter().enumerate() {
            let mut shares = Shares::default();
            for (&labels, known) in &by_labels {
                self.extrapolated.share(&mut shares, labels, known[i]);
            }
            maker.scale_later(column, shares);
        }
    }
}

/// A call that was added.
struct Added {
    labels: LabelSetId,
    /// Count and nanoseconds.
    values: [i64; 2],
    is_estimate: bool,
}
