//! Columns of a table: several sample types side by side, and ratios of them.

use super::groups::Groups;
use super::top::{compare_names, compare_values};
use super::{Quotient, Ratio, Row, Top, TopOptions, View};
use profile::{LabelValue, Profile};

/// The property of a row that a column shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Measure {
    /// Its self value.
    SelfValue,
    /// Its self value in percent of the total.
    SelfShare,
    /// Its total.
    Total,
    /// Its total in percent of the total of all rows.
    TotalShare,
}

impl Measure {
    /// All of them, in the order of a table.
    pub const ALL: [Measure; 4] =
        [Measure::SelfValue, Measure::SelfShare, Measure::Total, Measure::TotalShare];

    /// True if callees are included.
    pub fn is_total(self) -> bool {
        matches!(self, Measure::Total | Measure::TotalShare)
    }
}

/// A column of numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TableColumn {
    /// A value of one sample type.
    Value {
        /// Index of the sample type in the profile.
        type_index: usize,
        /// The value.
        measure: Measure,
    },
    /// A quotient of two sample types.
    Ratio {
        /// The types.
        quotient: Quotient,
        /// That of the totals instead of the self values.
        totals: bool,
    },
}

/// The sample types and columns of a table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ColumnRequest {
    /// Indices of the sample types whose samples make rows. The first one is that of the view; rows
    /// are in its order.
    pub types: Vec<usize>,
    /// The columns; none: all values of the types.
    pub columns: Vec<TableColumn>,
    /// Ratios in addition to those of `columns`.
    pub quotients: Vec<Quotient>,
}

/// The values of a row in one sample type.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RowValues {
    /// Sum of the samples whose leaf it is.
    pub self_value: i64,
    /// Sum of the samples that contain it.
    pub total: i64,
}

/// The values of one sample type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TypeColumn {
    /// Index of the type in the profile.
    pub type_index: usize,
    /// Kind of the values.
    pub kind: String,
    /// Their unit.
    pub unit: String,
    /// Sum of the magnitudes of all values before a filter: 100 %.
    pub total: i64,
    /// The same after the filter.
    pub kept_total: i64,
    /// Values of the rows of the table.
    pub rows: Vec<RowValues>,
}

/// Columns of a table in addition to those of the view's sample type.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Columns {
    /// The sample types that make rows, the view's first, then others that have a column. None:
    /// the view's alone.
    pub types: Vec<TypeColumn>,
    /// Number of those that make rows.
    pub row_types: usize,
    /// Ratios, in the order of their columns.
    pub ratios: Vec<Ratio>,
    /// The chosen columns; none: all values of the types that make rows, and the ratios.
    pub chosen: Vec<TableColumn>,
}

impl Columns {
    /// The table of `view` with the requested columns.
    pub fn new(view: &View, options: &TopOptions, request: &ColumnRequest) -> (Top, Columns) {
        let mut types: Vec<usize> = vec![view.type_index];
        let add = |types: &mut Vec<usize>, index: usize| {
            if !types.contains(&index) {
                types.push(index);
            }
        };
        request.types.iter().for_each(|&index| add(&mut types, index));
        let row_types = types.len();
        let mut quotients: Vec<Quotient> = Vec::new();
        for column in &request.columns {
            match *column {
                TableColumn::Value { type_index, .. } => add(&mut types, type_index),
                TableColumn::Ratio { quotient, .. } if !quotients.contains(&quotient) => {
                    quotients.push(quotient);
                }
                TableColumn::Ratio { .. } => {}
            }
        }
        let further = request.quotients.iter().filter(|quotient| !quotients.contains(quotient));
        let further: Vec<Quotient> = further.copied().collect();
        quotients.extend(further);
        let shown_types = types.len();
        for quotient in &quotients {
            add(&mut types, quotient.numerator);
            add(&mut types, quotient.denominator);
        }
        if types.len() == 1 {
            let chosen = request.columns.clone();
            return (Top::new(view, options), Columns { chosen, ..Columns::default() });
        }
        let sums = Sums::new(view, &options.labels, &types, row_types);
        let rows = sums.shown_rows(view, options);
        let row_count = sums.is_row.iter().filter(|&&is_row| is_row).count();
        let shown = rows.iter().fold(0i64, |sum, (row, _)| sum.saturating_add(row.self_value));
        let ratios = quotients.iter().map(|&quotient| sums.ratio(view.profile, quotient, &rows));
        let columns = Columns {
            ratios: ratios.collect(),
            row_types,
            types: sums.types(view, &rows, shown_types),
            chosen: request.columns.clone(),
        };
        let rows = rows.into_iter().map(|(row, _)| row).collect();
        (Top { rows, groups: sums.groups, row_count, shown }, columns)
    }
}

/// Sums of several sample types, by label values and frame.
struct Sums<'t> {
    types: &'t [usize],
    /// Number of the types that make rows.
    row_types: usize,
    groups: Vec<Vec<Option<LabelValue>>>,
    /// Frame and group.
    keys: Vec<(u32, u32)>,
    /// Some sample of the types that make rows has it.
    is_row: Vec<bool>,
    /// `keys.len() * types.len()` values, row by row.
    values: Vec<RowValues>,
    /// Sum of the magnitudes, by type.
    kept: Vec<i64>,
}

impl<'t> Sums<'t> {
    fn new(view: &View, labels: &[String], types: &'t [usize], row_types: usize) -> Sums<'t> {
        // All samples: one without a value of the view's type may have others.
        let samples = view.profile.samples.iter().map(|row| row.labels).enumerate();
        let by_group = Groups::new(view, samples, labels);
        let mut sums = Sums {
            types,
            row_types,
            groups: Vec::new(),
            keys: Vec::new(),
            is_row: Vec::new(),
            values: Vec::new(),
            kept: vec![0; types.len()],
        };
        let count = view.frames.len();
        let mut dense = Dense { row: vec![0; count], stamp: vec![0; count], last: 0 };
        for (group, samples) in by_group.iter().enumerate() {
            let first = sums.keys.len();
            for (_, &sample) in samples.iter().enumerate().take_while(|&(at, _)| view.goes_on(at)) {
                sums.add(view, sample as usize, group as u32, &mut dense);
            }
            // Only the rows of this group, which are few if there are many groups.
            for &(frame, _) in &sums.keys[first..] {
                dense.row[frame as usize] = 0;
            }
        }
        sums.groups = by_group.values;
        sums
    }

    /// Adds a sample to the rows of its frames.
    fn add(&mut self, view: &View, sample: usize, group: u32, dense: &mut Dense) {
        let all = view.profile.values_of(sample);
        let value = |index: usize| all.get(index).copied().filter(|&v| view.shows(v)).unwrap_or(0);
        if self.types.iter().all(|&index| value(index) == 0) {
            return;
        }
        let is_row = self.types[..self.row_types].iter().any(|&index| value(index) != 0);
        for (kept, &index) in self.kept.iter_mut().zip(self.types) {
            *kept = kept.saturating_add(value(index).saturating_abs());
        }
        dense.next();
        let stack = view.profile.stacks.get(view.profile.samples[sample].stack);
        let types = self.types;
        let mut is_leaf = true;
        let mut count = |frame: u32| {
            if !dense.is_new(frame) {
                return;
            }
            let row = self.row(frame, group, dense);
            self.is_row[row] |= is_row;
            let cells = &mut self.values[row * types.len()..(row + 1) * types.len()];
            for (cell, &index) in cells.iter_mut().zip(types) {
                if is_leaf {
                    cell.self_value = cell.self_value.saturating_add(value(index));
                }
                cell.total = cell.total.saturating_add(value(index));
            }
            is_leaf = false;
        };
        for &location in stack {
            view.frames.at(location).iter().for_each(|&frame| count(frame));
        }
        if stack.is_empty() {
            count(view.frames.no_stack);
        }
    }

    fn row(&mut self, frame: u32, group: u32, dense: &mut Dense) -> usize {
        let known = &mut dense.row[frame as usize];
        if *known == 0 {
            self.keys.push((frame, group));
            self.is_row.push(false);
            self.values.resize(self.values.len() + self.types.len(), RowValues::default());
            *known = self.keys.len() as u32;
        }
        *known as usize - 1
    }

    fn values(&self, row: usize) -> &[RowValues] {
        &self.values[row * self.types.len()..(row + 1) * self.types.len()]
    }

    /// The rows that the options keep, in their order, with their numbers.
    fn shown_rows(&self, view: &View, options: &TopOptions) -> Vec<(Row, usize)> {
        let totals: Vec<i64> =
            (0..self.row_types).map(|at| unfiltered(view, self.types[at], self.kept[at])).collect();
        let is_large = |row: usize| {
            let mut values = self.values(row).iter().zip(&totals);
            values.any(|(value, &total)| {
                let judged = if options.self_only { value.self_value } else { value.total };
                super::percent(judged, total).abs() >= options.min_percent
            })
        };
        let numbers = (0..self.keys.len()).filter(|&row| self.is_row[row]);
        let kept = numbers.filter(|&row| options.min_percent <= 0.0 || is_large(row));
        let mut rows: Vec<(Row, usize)> = kept.map(|row| (self.row_of(row, 0), row)).collect();
        let compare = |a: &(Row, usize), b: &(Row, usize)| {
            let by_values = (0..self.row_types).map(|at| {
                compare_values(options.sort, &self.row_of(a.1, at), &self.row_of(b.1, at))
            });
            let unequal = by_values.into_iter().find(|order| order.is_ne());
            unequal.unwrap_or_else(|| compare_names(view, &self.groups, &a.0, &b.0))
        };
        if options.limit > 0 && options.limit < rows.len() {
            rows.select_nth_unstable_by(options.limit, compare);
            rows.truncate(options.limit);
        }
        rows.sort_unstable_by(compare);
        rows
    }

    /// A row with the values of type number `at`.
    fn row_of(&self, row: usize, at: usize) -> Row {
        let (frame, group) = self.keys[row];
        let RowValues { self_value, total } = self.values(row)[at];
        Row { frame, group, self_value, total }
    }

    fn types(&self, view: &View, rows: &[(Row, usize)], count: usize) -> Vec<TypeColumn> {
        let column = |at: usize| {
            let type_index = self.types[at];
            let value_type = view.profile.sample_types.get(type_index);
            let text = |id: Option<profile::StrId>| {
                id.map_or_else(String::new, |id| view.profile.str(id).to_owned())
            };
            TypeColumn {
                type_index,
                kind: text(value_type.map(|t| t.kind)),
                unit: text(value_type.map(|t| t.unit)),
                total: unfiltered(view, type_index, self.kept[at]),
                kept_total: self.kept[at],
                rows: rows.iter().map(|&(_, row)| self.values(row)[at]).collect(),
            }
        };
        (0..count).map(column).collect()
    }

    fn ratio(&self, profile: &Profile, quotient: Quotient, rows: &[(Row, usize)]) -> Ratio {
        let place = |index: usize| self.types.iter().position(|&t| t == index).unwrap_or(0);
        let [above, below] = [quotient.numerator, quotient.denominator].map(place);
        let divide = |above: i64, below: i64| (below != 0).then(|| above as f64 / below as f64);
        let rows = rows.iter().map(|&(_, row)| {
            let values = self.values(row);
            let [above, below] = [values[above], values[below]];
            (divide(above.self_value, below.self_value), divide(above.total, below.total))
        });
        Ratio { name: quotient.name(profile), quotient, rows: rows.collect() }
    }
}

/// Scratch space for the frames of samples.
struct Dense {
    /// Number of the row of each frame in this group, plus one; 0: none.
    row: Vec<u32>,
    /// Number of the last sample that had the frame.
    stamp: Vec<u32>,
    last: u32,
}

impl Dense {
    /// Begins a sample.
    fn next(&mut self) {
        self.last = self.last.wrapping_add(1);
        if self.last == 0 {
            self.stamp.fill(0);
            self.last = 1;
        }
    }

    /// True at the first call with this frame for a sample.
    fn is_new(&mut self, frame: u32) -> bool {
        std::mem::replace(&mut self.stamp[frame as usize], self.last) != self.last
    }
}

/// The total of a type before a filter; without one, that of the samples.
fn unfiltered(view: &View, type_index: usize, kept: i64) -> i64 {
    if type_index == view.type_index {
        return view.total;
    }
    let all = view.profile.unfiltered.as_ref();
    all.and_then(|all| all.types.get(type_index)).map_or(kept, |column| column.magnitude)
}

#[cfg(test)]
mod tests;
