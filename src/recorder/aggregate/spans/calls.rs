//! Calls that programs in the kernel time (`sampler::bpf::calls`): some are told of with their stacks,
//! and scaled to the sums of all.

use rustc_hash::FxHashMap;

use super::super::estimates::{Known, Twins};
use super::super::held::Held;
use super::super::{Aggregator, Shares};
use crate::sampler::SpanType;
use crate::sampler::bpf::calls::{Call, MAX_SUMS, Open, Sum};
use crate::sampler::bpf::stands_for;
use crate::sampler::spans::tags_of_call;
use profile::{Column, LabelSetId};
use sys::procfs;
use sys::record::Sample;

/// What was told of.
#[derive(Default)]
pub(super) struct Told {
    /// The labels of each thread's calls with an object and kind.
    labels: FxHashMap<(i32, u64, u64), LabelSetId>,
    /// By labels.
    samples: FxHashMap<LabelSetId, Samples>,
    twins: Twins,
    /// What was left of counts, which are whole.
    rest: f64,
}

/// Samples with the same labels.
#[derive(Clone, Copy, Default)]
struct Samples {
    /// How many, and for how many nanoseconds.
    known: [Known; 2],
}

impl Aggregator {
    /// Takes in a call that is over.
    pub(super) fn call(&mut self, of: usize, call: &Call, sample: &Sample<'_>) {
        let mut held = self.spans[of].spare.pop().unwrap_or_default();
        let mut scratch = std::mem::take(&mut self.scratch);
        let leaf = self.stack_below_program(sample, &mut scratch);
        held.set(&scratch, leaf);
        self.scratch = scratch;
        self.add_call(of, &held, (sample.pid, sample.tid), call, true);
        self.spans[of].spare(held);
    }

    /// Counts a call, and those that it stands for if it is shorter than the interval. `over`: it is
    /// one of those that are added up.
    fn add_call(
        &mut self,
        of: usize,
        stack: &Held,
        (pid, tid): (i32, i32),
        call: &Call,
        over: bool,
    ) {
        let Call { object, kind, lasted, again, interval } = *call;
        let estimate = lasted < interval;
        let told = &mut self.spans[of].told;
        let one = f64::from(u8::from(!again));
        told.rest += one * (interval as f64 / lasted.max(1) as f64).max(1.0);
        let count = told.rest.floor();
        told.rest -= count;
        let nanos = i64::try_from(stands_for(lasted, lasted, interval)).unwrap_or(i64::MAX);
        let values = [count as i64, nanos];
        let tags = tags_of_call(self.spans[of].set.of, call);
        let base = self.labels_of(pid, tid, None);
        let plain = self.tagged(of, base, &tags);
        let mut labels = plain;
        if estimate {
            let mut twins = std::mem::take(&mut self.spans[of].told.twins);
            labels = self.twin(&mut twins, plain);
            self.spans[of].told.twins = twins;
        }
        self.add_values(stack, labels, &self.columns_of(of, values));
        let told = &mut self.spans[of].told;
        if !over || told.labels.len() >= MAX_SUMS as usize {
            return;
        }
        told.labels.insert((tid, object, kind), plain);
        let samples = told.samples.entry(plain).or_default();
        for (known, value) in samples.known.iter_mut().zip(values) {
            *(if estimate { &mut known.estimated } else { &mut known.exact }) += value;
        }
    }

    fn columns_of(&self, of: usize, values: [i64; 2]) -> [(Column, i64); 2] {
        let first = self.spans[of].first.0;
        [(Column(first), values[0]), (Column(first + 1), values[1])]
    }

    /// The recording ended at `time`: calls that threads were in then, and the sums of all others.
    pub fn end_of_calls(&mut self, calls: Vec<(SpanType, Vec<Open>, Vec<Sum>)>, time: u64) {
        for (kind, open, sums) in calls {
            let of = self.spans.iter().position(|spans| spans.set.of == kind);
            let Some(of) = of else { continue };
            self.settle_sums(of, sums);
            for Open { tid, since, object, kind } in open.into_iter().filter(|c| c.since < time) {
                // Where it waits is looked up.
                let Some((pid, _)) = procfs::owner(tid) else { continue };
                let held = self.stack_of_waiting(pid, tid);
                let (lasted, again, interval) = (time - since, false, 0);
                let call = Call { object, kind, lasted, again, interval };
                self.add_call(of, &held, (pid, tid), &call, false);
            }
        }
    }

    /// Scales the samples to the sums.
    fn settle_sums(&mut self, of: usize, sums: Vec<Sum>) {
        for Sum { pid, tid, object, kind, count, nanos } in sums {
            let all = [count, nanos].map(|n| i64::try_from(n).unwrap_or(i64::MAX));
            let told = &mut self.spans[of].told;
            if let Some(labels) = told.labels.get(&(tid, object, kind)) {
                let samples = told.samples.get_mut(labels).expect("it has samples");
                samples.known.iter_mut().zip(all).for_each(|(known, all)| known.all += all);
                continue;
            }
            let (again, interval) = (false, 0);
            let tags = tags_of_call(
                self.spans[of].set.of,
                &Call { object, kind, lasted: nanos, again, interval },
            );
            let nowhere = self.builder.named_location("[stack not known: it was not sampled]");
            let held = Held { callers: vec![nowhere], ..Held::default() };
            self.add_span(of, &held, (pid, tid), &tags, &self.columns_of(of, all));
        }
        let columns = self.columns_of(of, [0, 0]).map(|(column, _)| column);
        for (i, column) in columns.into_iter().enumerate() {
            let (told, mut shares) = (&self.spans[of].told, Shares::default());
            // What there was no room for has no sum.
            for (&labels, samples) in told.samples.iter().filter(|(_, s)| s.known[1].all > 0) {
                told.twins.share(&mut shares, labels, samples.known[i]);
            }
            self.shares.push((column, shares));
        }
    }
}
