//! Allocated memory and memory in use, by stack, extrapolated from sampled allocations.
//!
//! An allocation of `n` bytes is sampled with the probability 1 - exp(-n / interval), so a sampled
//! one represents the reciprocal of that; sums of these are unbiased for any sizes. The interval is
//! the one at the time of the sample: the library raises it when prof cannot keep up.

use std::hash::{Hash, Hasher};

use hashbrown::HashTable;
use rustc_hash::{FxHashMap, FxHasher};

use super::HeapSettings;
use super::exits::ExitFindings;
use super::leaks::Leaks;
use super::peak::{self, Peak};
use super::spec::HeapSpec;
use ::heap::layout::LIVE;
use ::heap::weight;
use messages::Message;
use profile::{Builder, Column, LabelSetId, LocationId, StackId, StackTable};

/// Maximum number of live sampled allocations (48 bytes each); the library does not track more.
const MAX_LIVE: usize = LIVE as usize;

/// Maximum number of distinct stacks, and of their frames in total (180 and 4 bytes each).
const MAX_STACKS: usize = 7 << 13;
const MAX_FRAMES: usize = 4 << 20;

/// The frame that gets the values of stacks beyond the limit.
const BEYOND: &str = "[beyond prof's memory limit]";

/// Number of objects and bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct HeapSum {
    /// Objects.
    pub objects: f64,
    /// Bytes.
    pub bytes: f64,
}

impl HeapSum {
    /// Adds `weight` allocations of a size; a negative weight subtracts them.
    pub fn add(&mut self, size: u64, weight: f64) {
        self.objects += weight;
        self.bytes += weight * size as f64;
    }

    /// The sum of both.
    pub fn and(self, other: HeapSum) -> HeapSum {
        HeapSum { objects: self.objects + other.objects, bytes: self.bytes + other.bytes }
    }
}

/// The values of a stack with its labels.
#[derive(Default)]
pub struct AllocationSite {
    /// Its labels.
    pub labels: LabelSetId,
    allocated: HeapSum,
    /// In use by live processes.
    now: HeapSum,
    /// In use by processes when they ended.
    left: HeapSum,
    temporary: HeapSum,
    /// In use at the peak.
    at_peak: peak::Part,
}

/// A sampled allocation.
pub struct Allocated {
    /// Its ID.
    pub id: u64,
    /// The process ID.
    pub pid: i32,
    /// Its size in bytes.
    pub size: u64,
    /// The interval with which it was sampled.
    pub interval: u64,
    /// True if its end will be recorded.
    pub tracked: bool,
}

/// A sampled allocation that is in use.
#[derive(Clone, Copy)]
pub struct Live {
    /// Index of its stack.
    pub row: u32,
    /// Its size in bytes.
    pub size: u64,
    /// The interval with which it was sampled.
    pub interval: u64,
}

impl Live {
    /// Number of allocations that it represents.
    pub fn weight(&self) -> f64 {
        weight(self.size, self.interval)
    }
}

/// Statistics of the samples.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HeapCounts {
    /// Number of sampled allocations.
    pub sampled: u64,
    /// Number of those sampled with a longer interval than requested, and the longest.
    pub paced: u64,
    /// See [`HeapCounts::paced`].
    pub longest: u64,
    /// Number of those of unknown processes.
    pub unknown: u64,
    /// Number of sampled allocations that could not be tracked, for lack of space.
    pub untracked: u64,
    /// Number of sampled allocations without a stack of their own, because there were too many
    /// stacks.
    pub beyond: u64,
    /// Number of frees that arrived before their allocation and found no space.
    pub late_frees: u64,
}

/// Allocations by stack.
pub struct HeapModel {
    spec: HeapSpec,
    /// The first column of its sample types.
    first: Column,
    stacks: StackTable,
    rows: Vec<AllocationSite>,
    index: HashTable<u32>,
    /// By process and ID.
    live: FxHashMap<i32, FxHashMap<u64, Live>>,
    /// Number of allocations in `live`.
    alive: usize,
    /// Frees that arrived before their allocation, with true for temporary ones. Together with the
    /// live ones, no more than are tracked.
    early: FxHashMap<u64, bool>,
    /// Number of allocations that are no longer tracked since [`HeapModel::take_ended`].
    ended: u64,
    peak: Peak,
    leaks: Leaks,
    /// The statistics.
    pub counts: HeapCounts,
}

impl HeapModel {
    /// Sets the first column of the values.
    pub fn set_columns(&mut self, first: Column) {
        self.first = first;
    }

    /// A model without allocations.
    pub fn new(spec: HeapSpec) -> HeapModel {
        HeapModel {
            spec,
            first: Column::default(),
            stacks: StackTable::default(),
            rows: Vec::new(),
            index: HashTable::new(),
            live: FxHashMap::default(),
            alive: 0,
            early: FxHashMap::default(),
            ended: 0,
            peak: Peak::default(),
            leaks: Leaks::default(),
            counts: HeapCounts::default(),
        }
    }

    /// Adds a sampled allocation; `stack` is outermost first.
    pub fn allocated(
        &mut self,
        allocation: &Allocated,
        stack: &[LocationId],
        labels: LabelSetId,
        builder: &mut Builder,
    ) {
        let Allocated { id, pid, size, interval, tracked } = *allocation;
        self.counts.sampled += 1;
        if interval > self.spec.settings.interval {
            self.counts.paced += 1;
            self.counts.longest = self.counts.longest.max(interval);
        }
        let row = self.row(stack, labels, builder);
        let live = Live { row, size, interval };
        self.rows[row as usize].allocated.add(size, live.weight());
        if !self.spec.follows() {
            self.ended += u64::from(tracked);
            return;
        }
        if let Some(temporary) = self.early.remove(&id) {
            self.ended += 1;
            if temporary {
                self.rows[row as usize].temporary.add(size, live.weight());
            }
            return;
        }
        if !tracked || self.alive >= MAX_LIVE {
            self.counts.untracked += 1;
            self.ended += u64::from(tracked);
            return;
        }
        self.live.entry(pid).or_default().insert(id, live);
        self.alive += 1;
        self.change(id, live, 1.0);
    }

    /// Number of tracked allocations that have ended, or whose end will not be recorded, since the
    /// last call.
    pub fn take_ended(&mut self) -> u64 {
        std::mem::take(&mut self.ended)
    }

    /// Handles a free; `temporary`: before the thread allocated anything else.
    pub fn freed(&mut self, id: u64, pid: i32, temporary: bool) {
        if !self.spec.follows() {
            return;
        }
        let Some(live) = self.live.get_mut(&pid).and_then(|live| live.remove(&id)) else {
            // A slow writer may write an allocation after its free.
            if self.alive + self.early.len() < MAX_LIVE {
                self.early.insert(id, temporary);
            } else {
                self.counts.late_frees += 1;
            }
            return;
        };
        self.alive -= 1;
        self.ended += 1;
        self.change(id, live, -1.0);
        if temporary {
            self.rows[live.row as usize].temporary.add(live.size, live.weight());
        }
    }

    /// Handles the end of a process or its `execve`: its memory is gone, and counts as in use.
    pub fn ended(&mut self, pid: i32) {
        let live = self.live.remove(&pid).unwrap_or_default();
        self.leaks_of(pid, &live, false);
        for (id, live) in live {
            self.alive -= 1;
            self.ended += 1;
            self.change(id, live, -1.0);
            self.rows[live.row as usize].left.add(live.size, live.weight());
        }
    }

    /// Stores the leak check of a process that exits.
    pub fn exits(&mut self, pid: i32, result: ExitFindings) {
        self.leaks.exits(pid, result);
    }

    /// Adds the memory in use of a process when it ended, or when the recording did and it was
    /// `running`.
    fn leaks_of(&mut self, pid: i32, live: &FxHashMap<u64, Live>, running: bool) {
        if self.spec.settings.leaks {
            let left = live.iter().map(|(&id, &live)| (id, live, live.weight()));
            self.leaks.ended(pid, running, &left.collect::<Vec<_>>());
        }
    }

    /// Adds an allocation to the memory in use, or removes it (`sign` -1).
    fn change(&mut self, id: u64, live: Live, sign: f64) {
        let row = &mut self.rows[live.row as usize];
        row.now.add(live.size, sign * live.weight());
        if self.spec.settings.peak {
            self.peak.change(id, live, sign, &mut row.at_peak);
        }
    }

    fn row(&mut self, stack: &[LocationId], labels: LabelSetId, builder: &mut Builder) -> u32 {
        let HeapModel { stacks, rows, index, .. } = self;
        let known = |&i: &u32| {
            let known_stack = stacks.get(StackId(i));
            rows[i as usize].labels == labels && known_stack == stack
        };
        let hash = hash(stack, labels);
        if let Some(&row) = index.find(hash, known) {
            return row;
        }
        let full = rows.len() >= MAX_STACKS || stacks.frame_count() + stack.len() > MAX_FRAMES;
        if full && stack.len() != 1 {
            self.counts.beyond += 1;
            let beyond = [builder.named_location(BEYOND)];
            return self.row(&beyond, LabelSetId::EMPTY, builder);
        }
        let row = stacks.push(stack).0;
        rows.push(AllocationSite { labels, ..AllocationSite::default() });
        index.insert_unique(hash, row, |&i| {
            self::hash(stacks.get(StackId(i)), rows[i as usize].labels)
        });
        row
    }

    /// Writes all values to the profile; returns notes for the user.
    pub fn finish(&mut self, builder: &mut Builder) -> Vec<Message> {
        let HeapSpec { in_use, settings } = self.spec;
        let HeapSettings { peak, temporary, .. } = settings;
        let wanted = [true, in_use, peak, temporary];
        for (pid, live) in std::mem::take(&mut self.live) {
            self.leaks_of(pid, &live, true);
        }
        for (i, row) in self.rows.iter_mut().enumerate() {
            let at_peak = self.peak.at_peak(&row.at_peak);
            let sums = [row.allocated, row.now.and(row.left), at_peak, row.temporary];
            let sums = sums.iter().zip(wanted).filter(|(_, wanted)| *wanted);
            let values = sums.flat_map(|(sum, _)| [sum.objects, sum.bytes]);
            let at = |i: usize| Column(self.first.0 + i);
            let values = values.enumerate().map(|(i, value)| (at(i), value.round() as i64));
            let values: Vec<(Column, i64)> = values.collect();
            builder.add_stack(self.stacks.get(StackId(i as u32)), None, row.labels, 0, &values);
        }
        let last = Column(self.first.0 + self.spec.sample_types().count() - 2);
        self.leaks.finish(last, &self.rows, &self.stacks, builder)
    }
}

fn hash(stack: &[LocationId], labels: LabelSetId) -> u64 {
    let mut hasher = FxHasher::default();
    labels.0.hash(&mut hasher);
    stack.iter().for_each(|location| location.0.hash(&mut hasher));
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Recorded {
        heap: HeapModel,
        builder: Builder,
    }

    impl Recorded {
        fn new(interval: u64) -> Recorded {
            let settings =
                HeapSettings { interval, peak: true, temporary: true, ..HeapSettings::default() };
            let spec = HeapSpec { in_use: true, settings };
            let types: Vec<_> = spec.sample_types().map(|t| (t.kind, t.unit)).collect();
            Recorded { heap: HeapModel::new(spec), builder: Builder::new(&types) }
        }

        /// Allocates from stack `at`.
        fn allocate(&mut self, id: u64, pid: i32, size: u64, at: u64) {
            let leaf = [self.builder.location(None, at)];
            let interval = self.heap.spec.settings.interval;
            let allocation = Allocated { id, pid, size, interval, tracked: id < 1000 };
            self.heap.allocated(&allocation, &leaf, LabelSetId::EMPTY, &mut self.builder);
        }

        /// By stack: allocated, in use, at the peak, temporary; objects and bytes of each.
        fn values(mut self) -> Vec<Vec<i64>> {
            self.heap.finish(&mut self.builder);
            let profile = self.builder.finish(None);
            profile.values.chunks(8).map(<[i64]>::to_vec).collect()
        }
    }

    #[test]
    fn what_is_freed_is_not_in_use() {
        let mut r = Recorded::new(1);
        for id in 1..=10 {
            r.allocate(id, 1, 1 << 20, 7);
            if id != 7 {
                r.heap.freed(id, 1, id == 3);
            }
        }
        let mib = 1 << 20;
        assert_eq!(r.values(), [[10, 10 * mib, 1, mib, 2, 2 * mib, 1, mib]]);
    }

    #[test]
    fn the_peak_is_what_all_stacks_had_at_one_moment() {
        let mut r = Recorded::new(1);
        r.allocate(1, 1, 100, 1);
        r.allocate(2, 1, 10, 2);
        // 110 here.
        r.heap.freed(1, 1, false);
        r.allocate(3, 1, 90, 3);
        r.allocate(4, 1, 20, 2);
        // The peak: 10 + 90 + 20.
        r.heap.freed(2, 1, false);
        r.heap.freed(3, 1, false);
        r.allocate(5, 1, 50, 1);
        let peak: Vec<Vec<i64>> = r.values().iter().map(|v| v[4..6].to_vec()).collect();
        assert_eq!(peak, [[0, 0], [2, 30], [1, 90]]);
    }

    #[test]
    fn what_ended_processes_had_is_in_use_but_takes_no_space() {
        let mut r = Recorded::new(1);
        for pid in 1..=3 {
            r.allocate(pid as u64, pid, 100, 1);
            r.heap.ended(pid);
        }
        assert_eq!(r.values(), [[3, 300, 3, 300, 1, 100, 0, 0]]);
    }

    #[test]
    fn samples_stand_for_what_was_not_sampled() {
        let mut r = Recorded::new(512 << 10);
        let of = |size: u64| weight(size, 512 << 10);
        // Small ones represent as many as fit into the interval, large ones only themselves.
        assert!((of(16) * 16.0 / f64::from(512 << 10) - 1.0).abs() < 1e-4);
        assert!((of(1 << 30) - 1.0).abs() < 1e-9);
        assert!((of(512 << 10) - 1.0 / (1.0 - (-1.0f64).exp())).abs() < 1e-9);
        r.allocate(1, 1, 512 << 10, 1);
        let whole = (f64::from(512 << 10) * of(512 << 10)).round() as i64;
        let values = r.values();
        assert_eq!((&values[0][..4], &values[0][6..]), (&[2, whole, 2, whole][..], &[0, 0][..]));
    }

    /// Each sample is weighted by the interval with which it was taken.
    #[test]
    fn samples_of_several_intervals_are_added_up() {
        let mut r = Recorded::new(1);
        let leaf = [r.builder.location(None, 7)];
        for (id, interval) in [(1, 1), (2, 1 << 20)] {
            let allocation = Allocated { id, pid: 1, size: 64, interval, tracked: true };
            r.heap.allocated(&allocation, &leaf, LabelSetId::EMPTY, &mut r.builder);
        }
        assert_eq!((r.heap.counts.paced, r.heap.counts.longest), (1, 1 << 20));
        let whole = 64 + (1 << 20) + 32;
        assert_eq!(r.values()[0][..4], [16386, whole, 16386, whole]);
    }

    #[test]
    fn an_end_may_come_before_its_beginning() {
        let mut r = Recorded::new(1);
        r.heap.freed(1, 1, false);
        r.allocate(1, 1, 8, 1);
        r.allocate(1001, 1, 8, 1);
        assert_eq!(r.heap.counts.untracked, 1);
        assert_eq!(r.values(), [[2, 16, 0, 0, 0, 0, 0, 0]]);
    }

    /// The maximum number of tracked frees, none of which may appear to be in use. Those beyond are
    /// counted.
    #[test]
    fn all_ends_may_come_before_their_beginning() {
        let mut r = Recorded::new(1);
        let first = 1001;
        let all = MAX_LIVE as u64;
        (first..first + all).for_each(|id| r.heap.freed(id, 1, id % 2 == 0));
        assert_eq!(r.heap.counts.late_frees, 0);
        r.heap.freed(1, 1, false);
        assert_eq!(r.heap.counts.late_frees, 1);
        let leaf = [r.builder.location(None, 7)];
        for id in first..first + all {
            let allocation = Allocated { id, pid: 1, size: 8, interval: 1, tracked: true };
            r.heap.allocated(&allocation, &leaf, LabelSetId::EMPTY, &mut r.builder);
        }
        assert_eq!((r.heap.take_ended(), r.heap.counts.untracked), (all, 0));
        let (all, half) = (all as i64, all as i64 / 2);
        assert_eq!(r.values(), [[all, 8 * all, 0, 0, 0, 0, half, 8 * half]]);
    }

    #[test]
    fn a_leak_is_not_one_more_allocation() {
        let settings = HeapSettings { interval: 1, leaks: true, ..HeapSettings::default() };
        let spec = HeapSpec { in_use: true, settings };
        let types: Vec<_> = spec.sample_types().map(|t| (t.kind, t.unit)).collect();
        let mut r = Recorded { heap: HeapModel::new(spec), builder: Builder::new(&types) };
        r.allocate(1, 1, 100, 7);
        r.heap.ended(1);
        r.heap.finish(&mut r.builder);
        let profile = r.builder.finish(None);
        let sums: Vec<i64> = (0..types.len()).map(|column| profile.total(column)).collect();
        assert_eq!(sums, [1, 100, 1, 100, 1, 100]);
    }
}
