//! Columns of a table: several sample types side by side, and ratios of them.

use super::groups::Groups;
use super::mean::mean;
use super::row_sums::{RowSums, RowValues, Sum};
use super::top::{compare_names, compare_values};
use super::{Quotient, Ratio, Row, Top, TopOptions, View, ViewSample};
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

impl ColumnRequest {
    /// The sample types of all columns.
    pub fn all_types(&self) -> Vec<usize> {
        let ratio = |quotient: &Quotient| [quotient.numerator, quotient.denominator];
        let column = |column: &TableColumn| match column {
            TableColumn::Value { type_index, .. } => vec![*type_index],
            TableColumn::Ratio { quotient, .. } => ratio(quotient).to_vec(),
        };
        let columns = self.columns.iter().flat_map(column);
        let ratios = self.quotients.iter().flat_map(ratio);
        self.types.iter().copied().chain(columns).chain(ratios).collect()
    }
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
    /// Sum of the magnitudes of all values before a filter.
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
    /// Puts the values into the reversed order of the rows.
    pub(super) fn reverse(&mut self) {
        self.types.iter_mut().for_each(|column| column.rows.reverse());
        self.ratios.iter_mut().for_each(|ratio| ratio.rows.reverse());
    }

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
        if types.len() == 1 && !view.has_means() {
            let chosen = request.columns.clone();
            return (Top::new(view, options), Columns { chosen, ..Columns::default() });
        }
        if view.has_means() {
            add(&mut types, 0);
        }
        let mut sums = Sums::new(view, &options.labels, &types, row_types);
        // Ratios are those of sums.
        let means = view.has_means().then(|| sums.averaged());
        let rows = means.as_ref().unwrap_or(&sums).shown_rows(view, options);
        let row_count = sums.keys.len();
        let shown = rows.iter().fold(0i64, |sum, (row, _)| sum.saturating_add(row.self_value));
        let ratios = quotients.iter().map(|&quotient| sums.ratio(view.profile, quotient, &rows));
        let columns = Columns {
            ratios: ratios.collect(),
            row_types,
            types: means.as_ref().unwrap_or(&sums).types(view, &rows, shown_types),
            chosen: request.columns.clone(),
        };
        let rows = rows.into_iter().map(|(row, _)| row).collect();
        let groups = std::mem::take(&mut sums.groups);
        (Top { rows, groups, row_count, shown }, columns)
    }
}

/// The sums of a row of several sample types.
#[derive(Default)]
struct TypeSums {
    /// By type; none before the first sample.
    values: Box<[RowValues]>,
    /// Some sample of the types that make rows has it.
    is_row: bool,
}

/// The values of a sample.
#[derive(Clone, Copy)]
struct TypeAmounts<'s> {
    /// By type.
    values: &'s [i64],
    /// It has a value of a type that makes rows.
    makes_rows: bool,
}

impl TypeSums {
    fn add(&mut self, values: &[i64], add: impl Fn(&mut RowValues, i64)) {
        if self.values.is_empty() {
            self.values = vec![RowValues::default(); values.len()].into();
        }
        self.values.iter_mut().zip(values).for_each(|(sum, &value)| add(sum, value));
    }
}

impl Sum<TypeAmounts<'_>> for TypeSums {
    fn add_self(&mut self, amounts: TypeAmounts<'_>) {
        self.add(amounts.values, Sum::add_self);
    }

    fn add_total(&mut self, amounts: TypeAmounts<'_>) {
        self.add(amounts.values, Sum::add_total);
        self.is_row |= amounts.makes_rows;
    }
}

/// Sums of several sample types, by label values and frame.
#[derive(Clone)]
struct Sums<'t> {
    types: &'t [usize],
    /// Number of the types that make rows.
    row_types: usize,
    groups: Vec<Vec<Option<LabelValue>>>,
    /// Frame and group of each row.
    keys: Vec<(u32, u32)>,
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
            values: Vec::new(),
            kept: vec![0; types.len()],
        };
        let mut rows = RowSums::new(view.frames.len());
        let mut values = vec![0; types.len()];
        for (group, samples) in by_group.iter().enumerate() {
            for sample in view.samples_of(samples) {
                sums.add(view, &sample, &mut values, &mut rows);
            }
            for (frame, row) in rows.take().filter(|(_, row)| row.is_row) {
                sums.keys.push((frame, group as u32));
                sums.values.extend(row.values);
            }
        }
        sums.groups = by_group.values;
        sums
    }

    /// Adds a sample to the rows of its frames; `values`: scratch space.
    fn add(
        &mut self,
        view: &View,
        sample: &ViewSample<'_>,
        values: &mut [i64],
        rows: &mut RowSums<TypeSums>,
    ) {
        let all = view.profile.values_of(sample.row);
        for (value, &index) in values.iter_mut().zip(self.types) {
            *value = all.get(index).copied().filter(|&v| view.shows(v)).unwrap_or(0);
        }
        if values.iter().all(|&value| value == 0) {
            return;
        }
        for (kept, value) in self.kept.iter_mut().zip(&*values) {
            *kept = kept.saturating_add(value.saturating_abs());
        }
        let makes_rows = values[..self.row_types].iter().any(|&value| value != 0);
        let amounts = TypeAmounts { values, makes_rows };
        rows.add_sample(&view.frames, sample, amounts, Some);
    }

    /// Means instead of the sums: the values of each type divided by those of the first type of the
    /// profile, which is one of them.
    fn averaged(&self) -> Sums<'t> {
        let mut means = self.clone();
        let Some(first) = self.types.iter().position(|&index| index == 0) else { return means };
        for (row, values) in means.values.chunks_mut(self.types.len()).enumerate() {
            let counts = self.values(row)[first];
            values.iter_mut().for_each(|value| value.average(counts));
        }
        means
    }

    fn values(&self, row: usize) -> &[RowValues] {
        &self.values[row * self.types.len()..(row + 1) * self.types.len()]
    }

    /// The rows that the options keep, in their order, with their numbers.
    fn shown_rows(&self, view: &View, options: &TopOptions) -> Vec<(Row, usize)> {
        let whole = |at: usize| {
            let (type_index, sum) = (self.types[at], self.kept[at]);
            let total = unfiltered(view, type_index, sum);
            view.value_options.percent_of.whole(total, kept(view, type_index, sum))
        };
        let totals: Vec<i64> = (0..self.row_types).map(whole).collect();
        let is_large = |row: usize| {
            let mut values = self.values(row).iter().zip(&totals);
            values.any(|(value, &total)| {
                let judged = if options.self_only { value.self_value } else { value.total };
                super::percent(judged, total).abs() >= options.min_percent
            })
        };
        let numbers = 0..self.keys.len();
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
                kept_total: kept(view, type_index, self.kept[at]),
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

/// The total of a type before a filter; without one, that of the samples, `kept`.
fn unfiltered(view: &View, type_index: usize, kept: i64) -> i64 {
    if type_index == view.type_index {
        return view.total;
    }
    let all = view.profile.unfiltered.as_ref();
    let total = all.and_then(|all| all.types.get(type_index)).map_or(kept, |all| all.magnitude);
    let count = all.and_then(|all| all.types.first()).map(|first| first.sum);
    average(view, total, count)
}

/// The total of a type after a filter, whose sum is `sum`.
fn kept(view: &View, type_index: usize, sum: i64) -> i64 {
    if type_index == view.type_index { view.kept_total } else { average(view, sum, None) }
}

/// A sum, or its mean if values are means; `count`: that of the first type, unless it is that of
/// the samples.
fn average(view: &View, sum: i64, count: Option<i64>) -> i64 {
    if view.has_means() { mean(sum, count.unwrap_or_else(|| view.profile.total(0))) } else { sum }
}

#[cfg(test)]
mod tests;
