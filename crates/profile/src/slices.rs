//! The last moments of a recording: the sums of a [`Builder`] in slices of time, of which the oldest
//! is dropped when a new one begins. Addresses, labels and names are not divided.

use std::collections::VecDeque;

use rustc_hash::FxHashMap;

use super::builder::{Builder, Column};
use super::tables::StackTables;
use super::time_log::TimeLog;
use super::{LabelSetId, LabelTable, LocationId, MappingId};

/// What a [`Builder`] keeps of the past.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SliceLimits {
    /// Time that is kept in any case, in nanoseconds, if the memory suffices.
    pub length: u64,
    /// Most bytes of all slices together: the oldest are dropped when there are more.
    pub bytes: usize,
    /// The columns of durations: a value that began in an earlier slice counts there for the time
    /// in that slice.
    pub durations: Vec<Column>,
}

/// The sums of one slice that has ended.
struct Slice {
    /// Start and end, as in [`Builder::set_time`].
    began: u64,
    ended: u64,
    tables: StackTables,
}

/// The slices of a [`Builder`]; the sums of the current one are the builder's own.
pub(super) struct Slices {
    limits: SliceLimits,
    /// From the oldest to the newest.
    ended: VecDeque<Slice>,
    /// Start of the current slice.
    began: u64,
    /// Time of the samples that are added now; `None`: they have none.
    now: Option<u64>,
    /// True if the oldest were dropped for lack of memory.
    shortened: bool,
    /// Number of sets of labels that were used when they were last renumbered.
    used_labels: usize,
}

/// The time that the slices of a [`Builder`] covered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeptTime {
    /// Start of the oldest slice, as in [`Builder::set_time`].
    pub since: u64,
    /// True if older ones were dropped for lack of memory.
    pub shortened: bool,
}

impl Slices {
    /// Sets the time of the values that follow.
    pub fn set_time(&mut self, nanos: Option<u64>) {
        self.now = nanos;
    }

    /// A duration among `values` that began before the current slice: its column, start and end.
    fn earlier(&self, values: &[(Column, i64)]) -> Option<Earlier> {
        let now = self.now?;
        let age = now.saturating_sub(self.began);
        let is_longer = |&&(column, value): &&(Column, i64)| {
            u64::try_from(value).is_ok_and(|value| value > age)
                && self.limits.durations.contains(&column)
        };
        let &(column, value) = values.iter().find(is_longer)?;
        let from = now.saturating_sub(u64::try_from(value).ok()?);
        Some(Earlier { column, from, to: now, rest: age.try_into().unwrap_or(i64::MAX) })
    }

    fn since(&self) -> u64 {
        self.ended.front().map_or(self.began, |oldest| oldest.began)
    }

    fn bytes(&self) -> usize {
        self.ended.iter().map(|slice| slice.tables.bytes()).sum()
    }
}

/// A duration that began in an earlier slice.
#[derive(Clone, Copy)]
struct Earlier {
    column: Column,
    /// Its start and end.
    from: u64,
    to: u64,
    /// Its part in the current slice.
    rest: i64,
}

impl Builder {
    /// Keeps slices of time from `now` on, in nanoseconds; [`Builder::keep_times`] comes before.
    /// Nothing is moved to a file then.
    pub fn keep_slices(&mut self, limits: SliceLimits, now: u64) {
        self.spill = None;
        self.times.iter_mut().for_each(TimeLog::keep_parts);
        self.slices = Some(Slices {
            limits,
            ended: VecDeque::new(),
            began: now,
            now: Some(now),
            shortened: false,
            used_labels: 0,
        });
    }

    /// Ends the current slice, begins another, and drops those that are no longer needed. Returns
    /// the start of the oldest that is left.
    pub fn begin_slice(&mut self, now: u64) -> u64 {
        let Some(slices) = &mut self.slices else { return now };
        let mut tables = std::mem::take(&mut self.tables);
        tables.drop_caches();
        slices.ended.push_back(Slice { began: slices.began, ended: now, tables });
        slices.began = now;
        self.times.iter_mut().for_each(TimeLog::end_part);
        let oldest = now.saturating_sub(slices.limits.length);
        while let Some(slice) = slices.ended.front() {
            let is_old = slice.ended <= oldest;
            let bytes = slices.bytes() + self.times.as_ref().map_or(0, TimeLog::bytes);
            if !is_old && bytes <= slices.limits.bytes {
                break;
            }
            slices.shortened |= !is_old;
            slices.ended.pop_front();
            self.times.iter_mut().for_each(TimeLog::drop_part);
        }
        slices.since()
    }

    /// True if there are many sets of labels, and some may be of slices that were dropped: see
    /// [`Builder::renumber_labels`]. That is at half of the limit beyond which threads have no set of
    /// their own.
    pub fn has_old_labels(&self) -> bool {
        let sets = self.profile.labels.len();
        let used = self.slices.as_ref().map_or(sets, |slices| slices.used_labels);
        sets >= (self.limits.thread_sets / 2).max(used.saturating_add(used / 4))
    }

    /// Drops the sets of labels that no slice has. All others get new ids: those that are kept
    /// elsewhere are no longer valid.
    pub fn renumber_labels(&mut self) {
        let Some(slices) = &mut self.slices else { return };
        let mut labels = LabelTable::default();
        let old = std::mem::take(&mut self.profile.labels);
        let mut ids: FxHashMap<LabelSetId, LabelSetId> = FxHashMap::default();
        ids.insert(LabelSetId::EMPTY, LabelSetId::EMPTY);
        let ended = slices.ended.iter_mut().map(|slice| &mut slice.tables);
        for tables in ended.chain([&mut self.tables]) {
            let new = |id| *ids.entry(id).or_insert_with(|| labels.add(old.get(id)));
            tables.relabel(new);
        }
        self.tables.keep_recent();
        slices.used_labels = labels.len();
        self.profile.labels = labels;
    }

    /// Adds up all slices, which end with this; `None`: none were kept.
    pub fn join_slices(&mut self) -> Option<KeptTime> {
        let slices = self.slices.take()?;
        let kept = KeptTime { since: slices.since(), shortened: slices.shortened };
        let width = self.profile.sample_types.len();
        let last = std::mem::take(&mut self.tables);
        let ended = slices.ended.into_iter().map(|slice| slice.tables);
        for tables in ended.chain([last]) {
            let rows = self.tables.add_all(&tables, width);
            self.times.iter_mut().for_each(|times| times.place_part(rows.clone()));
        }
        self.times.iter_mut().for_each(|times| times.set_start(kept.since));
        Some(kept)
    }

    /// Adds the parts of a duration in `values` that are in earlier slices to these. Returns the
    /// values that are left for the current slice, if there is such a duration.
    pub(super) fn add_to_earlier_slices(
        &mut self,
        callers: &[LocationId],
        innermost: Option<(Option<MappingId>, u64)>,
        labels: LabelSetId,
        values: &[(Column, i64)],
    ) -> Option<Vec<(Column, i64)>> {
        let Earlier { column, from, to, rest } = self.slices.as_ref()?.earlier(values)?;
        let innermost = innermost.map(|(mapping, address)| self.location(mapping, address));
        let width = self.profile.sample_types.len();
        let mut slices = self.slices.take()?;
        let overlapping = slices.ended.iter_mut().rev().take_while(|slice| slice.ended > from);
        for slice in overlapping {
            let nanos = slice.ended.min(to).saturating_sub(slice.began.max(from));
            std::mem::swap(&mut self.tables, &mut slice.tables);
            let stack = callers.iter().copied().chain(innermost);
            let (row, _) = self.row_of_stack(stack, labels);
            self.tables.values[row * width + column.0] += i64::try_from(nanos).unwrap_or(i64::MAX);
            std::mem::swap(&mut self.tables, &mut slice.tables);
        }
        self.slices = Some(slices);
        let part =
            |&(other, value): &(Column, i64)| (other, if other == column { rest } else { value });
        Some(values.iter().map(part).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Profile, TimeLimits, TimesId};

    const WALL: Column = Column(1);

    fn builder(length: u64, bytes: usize) -> Builder {
        let mut builder = Builder::new(&[("samples", "count"), ("wall", "nanoseconds")]);
        builder.keep_slices(SliceLimits { length, bytes, durations: vec![WALL] }, 0);
        builder
    }

    /// Adds a wait that ends at `now`.
    fn wait(builder: &mut Builder, address: u64, now: u64, nanos: i64) {
        builder.set_time(Some(now));
        let root = builder.location(None, 1);
        let innermost = Some((None, address));
        builder.add_stack(&[root], innermost, LabelSetId::EMPTY, 1, &[(WALL, nanos)]);
    }

    /// The number of samples and the time of the stack that ends in `address`.
    fn of(profile: &Profile, address: u64) -> (i64, i64) {
        let ends_there = |i: &usize| {
            let leaf = profile.stacks.get(profile.samples[*i].stack)[0];
            profile.locations[leaf.0 as usize].address == address
        };
        let rows = (0..profile.samples.len()).filter(ends_there).map(|i| profile.values_of(i));
        rows.fold((0, 0), |sum, values| (sum.0 + values[0], sum.1 + values[1]))
    }

    #[test]
    fn what_is_older_than_the_length_is_dropped() {
        let mut b = builder(20, 1 << 20);
        for second in 0..10u64 {
            wait(&mut b, 100 + second, second * 10 + 5, 5);
            b.begin_slice((second + 1) * 10);
        }
        wait(&mut b, 100, 105, 3);
        let kept = b.join_slices();
        assert_eq!(kept, Some(KeptTime { since: 80, shortened: false }));
        let p = b.finish(None);
        assert_eq!((p.total(0), p.total(1)), (3, 13));
        assert_eq!((of(&p, 108), of(&p, 109), of(&p, 100)), ((1, 5), (1, 5), (1, 3)));
    }

    #[test]
    fn a_duration_counts_in_the_slices_in_which_it_lasted() {
        for length in [0, 5, 10, 25, 100] {
            let mut b = builder(length, 1 << 20);
            for slice in 1..=10 {
                b.begin_slice(slice * 10);
            }
            // It began at 5, so that the time that is kept is full of it.
            wait(&mut b, 7, 104, 99);
            let since = b.join_slices().unwrap().since;
            let p = b.finish(None);
            assert_eq!(of(&p, 7), (1, 104 - since.max(5) as i64), "{length}");
        }
    }

    #[test]
    fn the_oldest_are_dropped_when_the_memory_is_full() {
        let mut b = builder(1_000_000, 200_000);
        let mut since = 0;
        for slice in 1..=1000u64 {
            for n in 0..100 {
                wait(&mut b, slice * 100 + n, slice * 10, 1);
            }
            since = b.begin_slice(slice * 10);
            assert!(b.slices.as_ref().is_some_and(|slices| slices.bytes() <= 200_000));
        }
        assert!(since > 5000);
        let kept = b.join_slices();
        assert_eq!(kept, Some(KeptTime { since, shortened: true }));
        let slices = (10_000 - since) / 10;
        assert_eq!(b.finish(None).total(0), 100 * slices as i64);
    }

    #[test]
    fn labels_of_dropped_slices_are_dropped() {
        let limits = crate::Limits { thread_sets: 40, label_sets: 80, ..crate::Limits::default() };
        let mut b = builder(20, 1 << 20).with_limits(limits);
        let key = b.profile.strings.intern("tid");
        let root = b.location(None, 1);
        for tid in 0..1000i64 {
            assert_eq!(b.detail(), crate::Detail::Thread);
            b.set_time(Some(10 * (tid as u64 / 5) + 5));
            let value = crate::LabelValue::Num { value: tid, unit: crate::StrId::EMPTY };
            let labels = b.profile.labels.intern(&[crate::Label { key, value }]);
            let twin = b.profile.labels.twin(labels);
            for labels in [labels, labels, twin] {
                b.add_stack(&[root], Some((None, 7)), labels, 1, &[(WALL, 2)]);
            }
            if tid % 5 == 4 {
                b.begin_slice(10 * (tid as u64 / 5 + 1));
                if b.has_old_labels() {
                    b.renumber_labels();
                }
            }
        }
        let kept = b.join_slices();
        assert_eq!(kept.map(|kept| kept.since), Some(1980));
        let p = b.finish(None);
        // Ten threads, in two rows each.
        assert_eq!((p.samples.len(), p.total(0)), (20, 30));
        for (i, sample) in p.samples.iter().enumerate() {
            let Some(crate::LabelValue::Num { value, .. }) = p.labels.value(sample.labels, key)
            else {
                panic!("each has its thread")
            };
            assert!((990..1000).contains(&value));
            assert_eq!(p.values_of(i)[1], 2 * p.values_of(i)[0]);
        }
    }

    #[test]
    fn times_are_those_of_the_slices_that_are_left() {
        let mut b = Builder::new(&[("samples", "count"), ("wall", "nanoseconds")]);
        b.keep_times(TimeLimits { start: 0, max_samples: 8 });
        b.keep_slices(SliceLimits { length: 20_000, bytes: 1 << 20, durations: vec![WALL] }, 0);
        for slice in 0..10u64 {
            wait(&mut b, 7, slice * 10_000 + 2_000, 1);
            wait(&mut b, 7 + slice % 2, slice * 10_000 + 5_000, 1);
            b.begin_slice((slice + 1) * 10_000);
        }
        // Most of it is in a slice that ended.
        wait(&mut b, 7, 104_000, 9_000);
        assert_eq!(b.join_slices().map(|kept| kept.since), Some(80_000));
        assert_eq!(b.without_time(), Some(0));
        let p = b.finish(None);
        let times_of = |sample: &crate::SampleRow| p.times.get(sample.times).to_vec();
        let mut times: Vec<u64> = p.samples.iter().flat_map(times_of).collect();
        times.sort_unstable();
        // In microseconds since the oldest slice.
        assert_eq!(times, [2, 5, 12, 15, 24]);
        assert_eq!((p.total(0), p.total(1)), (5, 9_004));
        let without: i64 = (0..p.samples.len())
            .filter(|&i| p.samples[i].times == TimesId::NONE)
            .map(|i| p.values_of(i)[1])
            .sum();
        assert_eq!(without, 5_000);
    }
}
