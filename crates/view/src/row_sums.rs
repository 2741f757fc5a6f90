//! Sums of samples by row. All tables add up their values with these: of functions, of several
//! sample types, over time, of differences, of source lines.

mod by_location;

use super::mean::mean;
use super::parts::by_parts;
use super::{Frames, View, ViewSample};
use by_location::LocationSums;

/// The self value and the total of a row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RowValues {
    /// Sum of the samples whose leaf it is.
    pub self_value: i64,
    /// Sum of the samples that contain it, once for each stack even in a recursion.
    pub total: i64,
}

/// What is added up for a row; `A`: what a sample adds.
pub(super) trait Sum<A: Copy>: Default {
    /// Adds the amount of a sample whose leaf is the row.
    fn add_self(&mut self, amount: A);

    /// Adds the amount of a sample that contains the row.
    fn add_total(&mut self, amount: A);
}

impl Sum<i64> for RowValues {
    #[inline(always)]
    fn add_self(&mut self, amount: i64) {
        self.self_value = self.self_value.saturating_add(amount);
    }

    #[inline(always)]
    fn add_total(&mut self, amount: i64) {
        self.total = self.total.saturating_add(amount);
    }
}

/// The sums of rows, which are numbered from 0.
pub(super) struct RowSums<S> {
    rows: Vec<RowSum<S>>,
    /// Number of the last sample.
    sample: u32,
    /// The rows that have samples.
    touched: Vec<u32>,
}

/// The sums of a row, next to its mark: a large profile has few of them in a cache.
#[derive(Clone, Default)]
struct RowSum<S> {
    /// Number of the last sample that was added to the total; 0: none.
    sample: u32,
    sums: S,
}

impl<S> RowSum<S> {
    /// Adds the amount of a sample, to the total once. True if it is the row's first sample.
    #[inline(always)]
    fn add_once<A: Copy>(&mut self, sample: u32, amount: A, is_leaf: bool) -> bool
    where
        S: Sum<A>,
    {
        if is_leaf {
            self.sums.add_self(amount);
        }
        if self.sample == sample {
            return false;
        }
        let is_first = self.sample == 0;
        self.sample = sample;
        self.sums.add_total(amount);
        is_first
    }
}

/// Once for each row, not in the loop over frames.
#[cold]
#[inline(never)]
fn push(touched: &mut Vec<u32>, row: u32) {
    touched.push(row);
}

/// If more than this part of all rows has samples, all are visited in their order, which is faster
/// than one by one.
const DENSE: usize = 8;

impl<S: Default> RowSums<S> {
    /// Sums of this number of rows without samples.
    pub(super) fn new(rows: usize) -> RowSums<S> {
        let mut sums = RowSums { rows: Vec::new(), sample: 0, touched: Vec::new() };
        sums.rows.resize_with(rows, RowSum::default);
        sums
    }

    /// Begins a sample: [`RowSums::add`] adds to the total of a row once until the next one.
    #[inline(always)]
    pub(super) fn begin_sample(&mut self) {
        self.sample = self.sample.wrapping_add(1);
        if self.sample == 0 {
            // Not 0, which marks a row without samples.
            self.rows.iter_mut().for_each(|row| row.sample = row.sample.min(1));
            self.sample = 2;
        }
    }

    /// Adds the amount of the sample to a row.
    #[inline(always)]
    pub(super) fn add<A: Copy>(&mut self, row: u32, amount: A, is_leaf: bool)
    where
        S: Sum<A>,
    {
        if self.rows[row as usize].add_once(self.sample, amount, is_leaf) {
            push(&mut self.touched, row);
        }
    }

    /// Adds a sample to the rows of its frames; `row_of`: the row of a frame, if it has one. Every
    /// frame of every sample passes through this: no hash, and nothing in the loop but the row.
    #[inline(always)]
    pub(super) fn add_sample<A: Copy>(
        &mut self,
        frames: &Frames,
        sample: &ViewSample<'_>,
        amount: A,
        mut row_of: impl FnMut(u32) -> Option<u32>,
    ) where
        S: Sum<A>,
    {
        self.begin_sample();
        let (rows, touched, number) = (self.rows.as_mut_slice(), &mut self.touched, self.sample);
        let mut is_leaf = true;
        let mut add = |frame: u32| {
            if let Some(row) = row_of(frame)
                && rows[row as usize].add_once(number, amount, is_leaf)
            {
                push(touched, row);
            }
            is_leaf = false;
        };
        for &location in sample.stack {
            for &frame in frames.at(location) {
                add(frame);
            }
        }
        if sample.stack.is_empty() {
            add(frames.no_stack);
        }
    }

    /// The rows that have samples, with their sums, which are then empty.
    pub(super) fn take(&mut self) -> impl ExactSizeIterator<Item = (u32, S)> {
        let RowSums { rows, touched, .. } = self;
        if touched.len() > rows.len() / DENSE {
            touched.clear();
            let with_samples = (0..).zip(rows.iter()).filter(|(_, row)| row.sample != 0);
            touched.extend(with_samples.map(|(number, _)| number));
        }
        touched.drain(..).map(|row| (row, std::mem::take(&mut rows[row as usize]).sums))
    }

    /// The sums of a row that has samples.
    pub(super) fn get(&self, row: u32) -> Option<&S> {
        let RowSum { sample, sums } = &self.rows[row as usize];
        (*sample != 0).then_some(sums)
    }
}

impl RowValues {
    /// Divides sums by counts.
    pub(super) fn average(&mut self, counts: RowValues) {
        self.self_value = mean(self.self_value, counts.self_value);
        self.total = mean(self.total, counts.total);
    }
}

impl RowSums<RowValues> {
    /// Divides the sums of all rows by those of the same rows of the first sample type.
    pub(super) fn average(&mut self, counts: &RowSums<RowValues>) {
        let rows = self.rows.iter_mut().zip(&counts.rows);
        rows.for_each(|(row, counts)| row.sums.average(counts.sums));
    }

    /// Adds all samples of a view. The row of a frame is its id.
    pub(super) fn add_all(&mut self, view: &View) {
        if by_location::pays(view) {
            return self.add_by_location(view);
        }
        for sample in view.samples() {
            self.add_by_frame(view, &sample);
        }
    }

    fn add_by_location(&mut self, view: &View) {
        let parts = by_parts(view, |rows| {
            let mut sums = LocationSums::new(&view.frames, view.profile.locations.len());
            view.samples_in(rows).for_each(|sample| sums.add(sample.stack, sample.value));
            sums
        });
        parts.into_iter().for_each(|sums| sums.add_to(self));
    }

    #[inline(always)]
    fn add_by_frame(&mut self, view: &View, sample: &ViewSample<'_>) {
        self.add_sample(&view.frames, sample, sample.value, Some);
    }

    /// The sums of a row that has samples from now on.
    #[inline]
    fn touched(&mut self, row: u32) -> &mut RowValues {
        self.sample = self.sample.max(1);
        let RowSum { sample, sums } = &mut self.rows[row as usize];
        if *sample == 0 {
            *sample = self.sample;
            push(&mut self.touched, row);
        }
        sums
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(sums: &mut RowSums<RowValues>) -> Vec<(u32, i64, i64)> {
        sums.take().map(|(row, sum)| (row, sum.self_value, sum.total)).collect()
    }

    #[test]
    fn a_sample_is_added_to_a_total_once() {
        let mut sums = RowSums::<RowValues>::new(3);
        for amount in [5, -2] {
            sums.begin_sample();
            sums.add(1, amount, true);
            sums.add(1, amount, false);
            sums.add(2, amount, false);
        }
        assert_eq!(sums.get(0), None);
        assert_eq!(sums.get(2), Some(&RowValues { self_value: 0, total: 3 }));
        assert_eq!(taken(&mut sums), [(1, 3, 3), (2, 0, 3)]);
        assert_eq!(taken(&mut sums), []);
        sums.begin_sample();
        sums.add(2, 1, true);
        assert_eq!(taken(&mut sums), [(2, 1, 1)]);
    }

    #[test]
    fn few_rows_of_many_are_taken_as_they_came() {
        let mut sums = RowSums::<RowValues>::new(100);
        sums.begin_sample();
        [70, 3].into_iter().for_each(|row| sums.add(row, 1, row == 70));
        assert_eq!(taken(&mut sums), [(70, 1, 1), (3, 0, 1)]);
    }

    #[test]
    fn the_numbers_of_samples_begin_again() {
        let mut sums = RowSums::<RowValues>::new(20);
        sums.begin_sample();
        sums.add(7, 1, true);
        sums.sample = u32::MAX;
        for _ in 0..2 {
            sums.begin_sample();
            sums.add(7, 1, true);
            sums.add(8, 1, false);
        }
        assert_eq!(taken(&mut sums), [(7, 3, 3), (8, 0, 2)]);
    }
}
