//! The order of the rows of a difference by a column.

use std::cmp::Ordering;

use super::{Change, Diff, DiffFrame, DiffRow};
use crate::query::{Column, Order, Values};

impl DiffRow {
    /// The change of its self value or its total.
    pub fn change(&self, values: Values) -> &Change {
        match values {
            Values::Own => &self.itself,
            Values::Total => &self.total,
        }
    }
}

/// The order of rows by the names of their frames, then by their labels; `frames` and `groups` are
/// those of the difference.
pub(super) fn by_name(
    frames: &[DiffFrame],
    groups: &[Vec<Option<String>>],
    a: &DiffRow,
    b: &DiffRow,
) -> Ordering {
    let frame = |row: &DiffRow| &frames[row.frame as usize];
    let group = |row: &DiffRow| &groups[row.group as usize];
    frame(a).cmp(frame(b)).then_with(|| group(a).cmp(group(b)))
}

impl Diff {
    /// Sorts the rows by a column of these values; [`Column::Change`] is the order that they have.
    pub fn reorder(&mut self, values: Values, order: Order) {
        if order.column != Column::Change {
            self.sort_by_column(values, order.column);
        }
        if order.reversed {
            self.rows.reverse();
        }
    }

    fn sort_by_column(&mut self, values: Values, column: Column) {
        // Numbers that are none are last.
        let largest = |a: Option<f64>, b: Option<f64>| match (a, b) {
            (Some(a), Some(b)) => b.total_cmp(&a),
            (a, b) => b.is_some().cmp(&a.is_some()),
        };
        let Diff { frames, groups, rows, .. } = self;
        rows.sort_by(|a, b| {
            let (left, right) = (a.change(values), b.change(values));
            let first = match column {
                Column::Before => largest(Some(left.before), Some(right.before)),
                Column::After => largest(Some(left.after), Some(right.after)),
                Column::Ratio => largest(left.ratio(), right.ratio()),
                Column::Probability => {
                    largest(left.adjusted_p.map(|p| -p), right.adjusted_p.map(|p| -p))
                }
                _ => Ordering::Equal,
            };
            first.then_with(|| by_name(frames, groups, a, b))
        });
    }
}
