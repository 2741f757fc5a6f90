//! Sums of samples by location. Those of the rows follow from them, with a correction for the
//! stacks in which several locations have one row.
//!
//! A stack of a large profile mostly has a location once, but its rows are in no cache, and how
//! many a location has is hard to predict. So each location of a stack is one addition, and only
//! rows that several locations have are visited.

use super::{RowSums, RowValues};
use crate::{Frames, View};
use profile::LocationId;

/// Stacks that a location is in on average, from which on sums by location pay.
const STACKS: usize = 4;

/// True if the rows of a view are summed up faster by location, with equal results: many locations
/// have rows of their own, each is in several stacks, and no sum reaches a limit, where the order
/// of additions matters.
pub(super) fn pays(view: &View) -> bool {
    2 * view.frames.len() > view.profile.locations.len()
        && view.profile.stacks.frame_count() / STACKS > view.frames.id_count()
        && view.kept_total < i64::MAX
        && u32::try_from(view.profile.samples.len()).is_ok()
        && view.frames.id_count() < LARGEST
}

/// Sums by location.
pub(super) struct LocationSums<'f> {
    frames: &'f Frames,
    locations: Vec<LocationSum>,
    /// Sums of the samples whose leaf it is, by location.
    self_values: Vec<i64>,
    /// Sum of the samples without a stack, if there are any.
    without_stack: Option<i64>,
    shared: SharedRows,
    /// Number of the last sample.
    sample: u32,
}

/// What is added up for a location.
#[derive(Clone, Copy, Default)]
struct LocationSum {
    /// Sum of the samples that contain it.
    total: i64,
    /// Number of the last sample that was added; 0: none.
    sample: u32,
    rows: SharedIds,
}

impl<'f> LocationSums<'f> {
    /// The sums of this number of locations without samples.
    pub(super) fn new(frames: &'f Frames, locations: usize) -> LocationSums<'f> {
        let mut shared = SharedRows::new(frames, locations);
        let rows = shared.of_locations(frames, locations);
        LocationSums {
            frames,
            locations: rows.map(|rows| LocationSum { rows, ..LocationSum::default() }).collect(),
            self_values: vec![0; locations],
            without_stack: None,
            shared,
            sample: 0,
        }
    }

    /// Adds a sample.
    #[inline(always)]
    pub(super) fn add(&mut self, stack: &[LocationId], amount: i64) {
        self.sample += 1;
        let sum = match stack.first() {
            Some(leaf) => &mut self.self_values[leaf.0 as usize],
            None => self.without_stack.get_or_insert(0),
        };
        *sum = sum.wrapping_add(amount);
        self.shared.begin_stack(stack.len());
        for location in stack {
            let sum = &mut self.locations[location.0 as usize];
            if sum.sample != self.sample {
                sum.sample = self.sample;
                sum.total = sum.total.wrapping_add(amount);
                self.shared.expand(sum.rows);
            }
        }
        self.shared.add_excess(self.sample, amount);
    }

    /// Adds the sums to those of the rows.
    pub(super) fn add_to(self, rows: &mut RowSums<RowValues>) {
        if let Some(value) = self.without_stack {
            let row = rows.touched(self.frames.no_stack);
            row.self_value = row.self_value.wrapping_add(value);
            row.total = row.total.wrapping_add(value);
        }
        for (number, sum) in self.locations.iter().enumerate().filter(|(_, sum)| sum.sample != 0) {
            let frames = self.frames.at(LocationId(number as u32));
            if let Some(&leaf) = frames.first() {
                let row = rows.touched(leaf);
                row.self_value = row.self_value.wrapping_add(self.self_values[number]);
            }
            for &frame in frames {
                let row = rows.touched(frame);
                row.total = row.total.wrapping_add(sum.total);
            }
        }
        for (&row, excess) in self.shared.rows.iter().zip(self.shared.excess) {
            if excess != 0 {
                let row = rows.touched(row);
                row.total = row.total.wrapping_sub(excess);
            }
        }
    }
}

/// Rows that are at several places of the frames of all locations, numbered from 0.
struct SharedRows {
    /// The row of each number.
    rows: Vec<u32>,
    /// Number of the last sample that contains it.
    samples: Vec<u32>,
    /// What the sums of the locations contain more than once.
    excess: Vec<i64>,
    /// Numbers of the rows of all locations; those of more than [`FEW`] follow their count.
    ids: Vec<u32>,
    /// Numbers of the rows of a stack, and unused space.
    stack: Vec<u32>,
    /// How many of `stack` are used.
    used: usize,
    /// How many the stack can use: [`FEW`] for each location, more for those of many.
    needed: usize,
}

/// The rows of a location in [`SharedRows::ids`]: where they begin, and in the lowest bits their
/// count, or [`MANY`].
#[derive(Clone, Copy, Default)]
struct SharedIds(u32);

/// Rows that are copied at once, needed or not: their count is hard to predict.
const FEW: usize = 4;

/// A count above [`FEW`].
const MANY: usize = FEW + 1;

const COUNT_BITS: u32 = 3;

/// Number of ids that [`SharedIds`] can represent, with the counts.
const LARGEST: usize = 1 << (31 - COUNT_BITS);

impl SharedRows {
    fn new(frames: &Frames, locations: usize) -> SharedRows {
        let mut is_used = vec![false; frames.len()];
        let mut is_shared = vec![false; frames.len()];
        for location in 0..locations as u32 {
            for &row in frames.at(LocationId(location)) {
                let is_used = &mut is_used[row as usize];
                is_shared[row as usize] |= *is_used;
                *is_used = true;
            }
        }
        let rows = (0..).zip(is_shared).filter(|(_, is_shared)| *is_shared);
        let rows: Vec<u32> = rows.map(|(row, _)| row).collect();
        SharedRows {
            samples: vec![0; rows.len()],
            excess: vec![0; rows.len()],
            rows,
            ids: Vec::new(),
            stack: Vec::new(),
            used: 0,
            needed: 0,
        }
    }

    /// The rows of each location, which are put into `ids`.
    fn of_locations(&mut self, frames: &Frames, locations: usize) -> std::vec::IntoIter<SharedIds> {
        const NONE: u32 = u32::MAX;
        let mut numbers = vec![NONE; frames.len()];
        (0..).zip(&self.rows).for_each(|(number, &row)| numbers[row as usize] = number);
        let mut found = Vec::with_capacity(locations);
        let mut ids = Vec::new();
        for location in 0..locations as u32 {
            let rows = frames.at(LocationId(location)).iter().map(|&row| numbers[row as usize]);
            let rows = rows.filter(|&number| number != NONE);
            let count = rows.clone().count();
            let begin = ids.len() as u32;
            if count > FEW {
                ids.push(count as u32);
            }
            ids.extend(rows);
            found.push(SharedIds(begin << COUNT_BITS | count.min(MANY) as u32));
        }
        ids.resize(ids.len() + FEW, 0);
        self.ids = ids;
        found.into_iter()
    }

    /// Begins a stack of this number of locations.
    #[inline(always)]
    fn begin_stack(&mut self, locations: usize) {
        self.used = 0;
        self.needed = FEW * locations;
        self.reserve();
    }

    #[inline(always)]
    fn reserve(&mut self) {
        if self.stack.len() < self.needed {
            self.stack.resize(self.needed, 0);
        }
    }

    /// Adds the rows of a location to those of the stack.
    #[inline(always)]
    fn expand(&mut self, rows: SharedIds) {
        let begin = (rows.0 >> COUNT_BITS) as usize;
        let count = rows.0 as usize & ((1 << COUNT_BITS) - 1);
        if count > FEW {
            return self.expand_many(begin);
        }
        let space = &mut self.stack[self.used..self.used + FEW];
        space.copy_from_slice(&self.ids[begin..begin + FEW]);
        self.used += count;
    }

    /// The same for a location of many rows.
    #[cold]
    #[inline(never)]
    fn expand_many(&mut self, begin: usize) {
        let count = self.ids[begin] as usize;
        self.needed += count;
        self.reserve();
        let rows = &self.ids[begin + 1..][..count];
        self.stack[self.used..][..count].copy_from_slice(rows);
        self.used += count;
    }

    /// Adds an amount to the rows that are in the stack already, for each further time.
    #[inline(always)]
    fn add_excess(&mut self, sample: u32, amount: i64) {
        for &row in &self.stack[..self.used] {
            let last = std::mem::replace(&mut self.samples[row as usize], sample);
            if last == sample {
                let excess = &mut self.excess[row as usize];
                *excess = excess.wrapping_add(amount);
            }
        }
    }
}

#[cfg(test)]
mod tests;
