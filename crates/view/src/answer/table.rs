//! Tables: of functions, over time, with confidence intervals.

use serde::Serialize;

use super::{FrameAnswer, Head, List, Members, known_text};
use crate::{
    Columns, Over, OverRow, OverType, Quality, Ratio, RowValues, Share, Top, TypeColumn, View,
};
use profile::{LabelValue, Profile};

/// A table of functions, or of the requested groups.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TableAnswer<'a> {
    /// The members of all answers.
    #[serde(flatten)]
    pub head: Head<'a>,
    /// Number of rows before limits.
    pub row_count: usize,
    /// The sample types of columns, if they are several, first those that make rows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub column_types: Option<Vec<ColumnTypeAnswer<'a>>>,
    /// Name of the first ratio.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ratio: Option<&'a str>,
    /// Names of the ratios, if there are any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ratios: Option<Vec<&'a str>>,
    /// The rows.
    pub rows: List<'a, TableRow<'a>>,
}

/// A sample type of columns.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ColumnTypeAnswer<'a> {
    /// Kind of the values.
    pub kind: Option<&'a str>,
    /// Their unit.
    pub unit: Option<&'a str>,
    /// Sum of the magnitudes of all values before the filter.
    pub total: i64,
    /// The same after it.
    pub kept: i64,
}

/// A row of a table.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TableRow<'a> {
    /// Its frame.
    #[serde(flatten)]
    pub frame: FrameAnswer<'a>,
    /// Its values by sample type, if they are several.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub columns: Option<Vec<ColumnAnswer>>,
    /// Quotient of its self values, of the first ratio.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub self_ratio: Option<Option<f64>>,
    /// The same of its totals.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub total_ratio: Option<Option<f64>>,
    /// Its ratios.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ratios: Option<Vec<RatioAnswer>>,
    /// Sum of the samples whose innermost frame it is.
    #[serde(rename = "self")]
    pub self_value: i64,
    /// Sum of the samples that have it, each once.
    pub total: i64,
    /// Its labels, if rows are distinguished by some.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub labels: Option<Members<Option<LabelAnswer<'a>>>>,
}

/// The values of a row of one sample type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ColumnAnswer {
    /// Self value.
    #[serde(rename = "self")]
    pub self_value: i64,
    /// Total.
    pub total: i64,
}

impl ColumnAnswer {
    fn new(view: &View, RowValues { self_value, total }: RowValues) -> ColumnAnswer {
        ColumnAnswer { self_value: view.shown(self_value), total: view.shown(total) }
    }
}

/// The quotients of a row; `None` where the divisor is 0.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RatioAnswer {
    /// Of the self values.
    #[serde(rename = "self")]
    pub self_value: Option<f64>,
    /// Of the totals.
    pub total: Option<f64>,
}

/// The value of a label.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(untagged)]
pub enum LabelAnswer<'a> {
    /// A text.
    Text(&'a str),
    /// A number.
    Number(i64),
}

impl<'a> LabelAnswer<'a> {
    pub(super) fn new(profile: &'a Profile, value: LabelValue) -> LabelAnswer<'a> {
        match value {
            LabelValue::Str(text) => LabelAnswer::Text(profile.str(text)),
            LabelValue::Num { value, .. } => LabelAnswer::Number(value),
        }
    }
}

/// The labels of a group of rows with these keys; `None` without keys.
fn labels<'a>(
    profile: &'a Profile,
    keys: &[String],
    values: &[Option<LabelValue>],
) -> Option<Members<Option<LabelAnswer<'a>>>> {
    let values = values.iter().map(|value| value.map(|value| LabelAnswer::new(profile, value)));
    (!keys.is_empty()).then(|| Members(keys.iter().cloned().zip(values).collect()))
}

impl<'a> TableAnswer<'a> {
    /// The table whose rows are distinguished by the labels with these keys.
    pub fn new(
        view: &'a View<'a>,
        top: &'a Top,
        columns: &'a Columns,
        keys: &'a [String],
    ) -> TableAnswer<'a> {
        let types = columns.types.as_slice();
        let has_types = types.len() > 1;
        let names = || columns.ratios.iter().map(|ratio| ratio.name.as_str());
        let row = move |(number, row): (usize, &'a crate::Row)| {
            let ratios = columns.ratios.iter().map(|ratio| ratio_of(ratio, number));
            let ratios: Vec<RatioAnswer> = ratios.collect();
            let values = types.iter().map(|column| ColumnAnswer::new(view, column.rows[number]));
            TableRow {
                frame: FrameAnswer::new(view, row.frame),
                columns: has_types.then(|| values.collect()),
                self_ratio: ratios.first().map(|first| first.self_value),
                total_ratio: ratios.first().map(|first| first.total),
                ratios: (!ratios.is_empty()).then_some(ratios),
                self_value: view.shown(row.self_value),
                total: view.shown(row.total),
                labels: labels(view.profile, keys, &top.groups[row.group as usize]),
            }
        };
        TableAnswer {
            head: Head::new(view),
            row_count: top.row_count,
            column_types: has_types
                .then(|| types.iter().map(|column| column_type(view, column)).collect()),
            ratio: names().next(),
            ratios: (!columns.ratios.is_empty()).then(|| names().collect()),
            rows: List::new(move || top.rows.iter().enumerate().map(row)),
        }
    }
}

fn column_type<'a>(view: &View, column: &'a TypeColumn) -> ColumnTypeAnswer<'a> {
    ColumnTypeAnswer {
        kind: known_text(&column.kind),
        unit: known_text(&column.unit),
        total: view.shown(column.total),
        kept: view.shown(column.kept_total),
    }
}

fn ratio_of(ratio: &Ratio, row: usize) -> RatioAnswer {
    let (self_value, total) = ratio.rows[row];
    RatioAnswer { self_value, total }
}

/// A table of values over time.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct OverAnswer<'a> {
    /// The members of all answers.
    #[serde(flatten)]
    pub head: Head<'a>,
    /// Length of an interval.
    pub interval_micros: u64,
    /// Start of the first one, since that of the recording.
    pub from_micros: u64,
    /// Values of all samples, by interval.
    pub sums: Vec<i64>,
    /// Value of samples without a time, which are in no interval.
    pub without_time: i64,
    /// Number of rows before limits.
    pub row_count: usize,
    /// The sample types, if they are several.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub column_types: Option<Vec<OverTypeAnswer<'a>>>,
    /// The rows.
    pub rows: List<'a, OverRowAnswer<'a>>,
}

/// A sample type of a table of values over time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct OverTypeAnswer<'a> {
    /// The type.
    #[serde(flatten)]
    pub column: ColumnTypeAnswer<'a>,
    /// Values of all samples, by interval.
    pub sums: Vec<i64>,
    /// Value of samples without a time.
    pub without_time: i64,
}

/// A row of a table of values over time.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct OverRowAnswer<'a> {
    /// Its frame.
    #[serde(flatten)]
    pub frame: FrameAnswer<'a>,
    /// Its values.
    #[serde(flatten)]
    pub values: OverColumnAnswer,
    /// Its values by sample type, if they are several.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub columns: Option<Vec<OverColumnAnswer>>,
    /// Its labels, if rows are distinguished by some.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub labels: Option<Members<Option<LabelAnswer<'a>>>>,
}

/// The values of a row of one sample type.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct OverColumnAnswer {
    /// Self value of all samples.
    #[serde(rename = "self")]
    pub self_value: i64,
    /// Total of all samples.
    pub total: i64,
    /// Self values, by interval.
    pub self_over: Vec<i64>,
    /// Totals, by interval.
    pub total_over: Vec<i64>,
}

impl OverColumnAnswer {
    fn new(view: &View, row: &OverRow) -> OverColumnAnswer {
        OverColumnAnswer {
            self_value: view.shown(row.self_value),
            total: view.shown(row.total),
            self_over: shown(view, &row.self_values),
            total_over: shown(view, &row.totals),
        }
    }
}

/// Values as they are shown.
fn shown(view: &View, values: &[i64]) -> Vec<i64> {
    values.iter().map(|&value| view.shown(value)).collect()
}

impl<'a> OverAnswer<'a> {
    /// The tables of one or several sample types, whose rows are distinguished by the labels with
    /// these keys; the profile begins `from` microseconds after the recording. `None` without a
    /// table.
    pub fn new(
        view: &'a View<'a>,
        tables: &'a [OverType],
        from: u64,
        keys: &'a [String],
    ) -> Option<OverAnswer<'a>> {
        let over: &Over = &tables.first()?.over;
        let has_types = tables.len() > 1;
        let over_type = |table: &'a OverType| OverTypeAnswer {
            column: ColumnTypeAnswer {
                kind: known_text(&table.kind),
                unit: known_text(&table.unit),
                total: view.shown(table.total),
                kept: view.shown(table.kept_total),
            },
            sums: shown(view, &table.over.sums),
            without_time: view.shown(table.over.without_time),
        };
        let row = move |(number, row): (usize, &'a OverRow)| {
            let columns =
                tables.iter().map(|table| OverColumnAnswer::new(view, &table.over.rows[number]));
            OverRowAnswer {
                frame: FrameAnswer::new(view, row.frame),
                values: OverColumnAnswer::new(view, row),
                columns: has_types.then(|| columns.collect()),
                labels: labels(view.profile, keys, &over.groups[row.group as usize]),
            }
        };
        Some(OverAnswer {
            head: Head::new(view),
            interval_micros: over.interval,
            from_micros: from,
            sums: shown(view, &over.sums),
            without_time: view.shown(over.without_time),
            row_count: over.row_count,
            column_types: has_types.then(|| tables.iter().map(over_type).collect()),
            rows: List::new(move || over.rows.iter().enumerate().map(row)),
        })
    }
}

/// The confidence of the shares of functions.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct QualityAnswer<'a> {
    /// The members of all answers.
    #[serde(flatten)]
    pub head: Head<'a>,
    /// Number of samples.
    pub samples: i64,
    /// Number of samples of equal weight with the same confidence; `None` if it is infinite.
    pub effective_samples: Option<f64>,
    /// Functions with a self value.
    pub functions: usize,
    /// Entropy of the self values.
    pub entropy_bits: f64,
    /// Number of further samples that halves the intervals.
    pub samples_to_halve: i64,
    /// The functions.
    pub rows: List<'a, QualityRow<'a>>,
}

/// The confidence of the shares of a function.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct QualityRow<'a> {
    /// The function.
    #[serde(flatten)]
    pub frame: FrameAnswer<'a>,
    /// Share of its self value.
    #[serde(rename = "self")]
    pub self_value: ShareAnswer,
    /// Share of its total.
    pub total: ShareAnswer,
}

/// A share and its interval of 95 % confidence, from 0 to 1.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ShareAnswer {
    /// As measured.
    pub share: f64,
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

impl From<Share> for ShareAnswer {
    fn from(Share { measured, low, high }: Share) -> ShareAnswer {
        ShareAnswer { share: measured, low, high }
    }
}

impl<'a> QualityAnswer<'a> {
    /// The confidence of the functions of a view.
    pub fn new(view: &'a View<'a>, quality: &'a Quality) -> QualityAnswer<'a> {
        let row = |row: &'a crate::FunctionShares| QualityRow {
            frame: FrameAnswer::new(view, row.row.frame),
            self_value: row.itself.into(),
            total: row.total.into(),
        };
        QualityAnswer {
            head: Head::new(view),
            samples: quality.samples as i64,
            effective_samples: Some(quality.effective).filter(|number| number.is_finite()),
            functions: quality.functions,
            entropy_bits: quality.entropy,
            samples_to_halve: quality.to_halve() as i64,
            rows: List::new(move || quality.rows.iter().map(row)),
        }
    }
}
