//! Scales values to a known sum.

use rustc_hash::FxHashMap;

use super::{Builder, Column, LabelSetId};

impl Builder {
    /// Scales the values of a column to the sum `total`; if their sum is 0, they stay. Returns
    /// whether they were scaled.
    pub fn scale_to(&mut self, column: Column, total: i64) -> bool {
        self.times.iter_mut().for_each(|times| times.before_scaling(&self.tables.values));
        let width = self.profile.sample_types.len();
        let cells = || (column.0..).step_by(width);
        let all = self.tables.values.len();
        let sum: i128 =
            cells().take_while(|&i| i < all).map(|i| i128::from(self.tables.values[i])).sum();
        if sum <= 0 {
            return false;
        }
        // Rounds the running sum, not each value: then the total is exact.
        let mut before = 0i128;
        let mut given = 0i64;
        for i in cells().take_while(|&i| i < all) {
            before += i128::from(self.tables.values[i]);
            let scaled = ((before * i128::from(total) + sum / 2) / sum) as i64;
            self.tables.values[i] = scaled - given;
            given = scaled;
        }
        true
    }

    /// Scales the values of a column in the samples with some labels, by a fraction for each.
    /// Rounding remainders are carried to the next value with the same labels, so that sums are
    /// exact.
    pub fn scale_labelled(&mut self, column: Column, shares: &FxHashMap<LabelSetId, (i64, i64)>) {
        self.times.iter_mut().for_each(|times| times.before_scaling(&self.tables.values));
        let width = self.profile.sample_types.len();
        let mut rests: FxHashMap<LabelSetId, i128> = FxHashMap::default();
        for (row, values) in self.tables.rows.iter().zip(self.tables.values.chunks_mut(width)) {
            if let Some(&(numerator, denominator)) = shares.get(&row.labels) {
                let value = &mut values[column.0];
                let denominator = i128::from(denominator.max(1));
                let rest = rests.entry(row.labels).or_default();
                let scaled = i128::from(*value) * i128::from(numerator) + *rest;
                *value = scaled.div_euclid(denominator) as i64;
                *rest = scaled.rem_euclid(denominator);
            }
        }
    }
}
