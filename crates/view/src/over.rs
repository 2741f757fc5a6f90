//! Values over time: those of the rows of a table, by interval.

use rustc_hash::FxHashMap;

use super::row_sums::{RowSums, Sum};
use super::time::{length_micros, share};
use super::{ColumnRequest, Columns, Row, Top, TopOptions, TypeColumn, View, ViewSample, key_ids};
use profile::{LabelValue, TimesId};

/// Options of an [`Over`].
#[derive(Clone, Debug)]
pub struct OverOptions {
    /// The requested interval in microseconds.
    pub interval: u64,
    /// Most intervals; they are made wider, if there are more.
    pub most: usize,
    /// The rows.
    pub top: TopOptions,
}

/// A row, with its values in each interval.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OverRow {
    /// Id of its frame, see [`super::Frames::get`].
    pub frame: u32,
    /// Index in [`Over::groups`].
    pub group: u32,
    /// Self value in all intervals, and of samples without a time.
    pub self_value: i64,
    /// The same with callees.
    pub total: i64,
    /// Self value by interval.
    pub self_values: Vec<i64>,
    /// Total by interval.
    pub totals: Vec<i64>,
}

/// A table of functions by intervals of time.
#[derive(Clone, Debug)]
pub struct Over {
    /// Length of an interval in microseconds; the first begins with the profile.
    pub interval: u64,
    /// The sum of all samples by interval.
    pub sums: Vec<i64>,
    /// The rows, in the order of the table.
    pub rows: Vec<OverRow>,
    /// Values of the labels that distinguish rows.
    pub groups: Vec<Vec<Option<LabelValue>>>,
    /// Number of rows before the limit.
    pub row_count: usize,
    /// The sum of samples without a time.
    pub without_time: i64,
}

/// Most cells of a table, so that its memory stays bounded.
const MAX_CELLS: usize = 1 << 21;

/// The table of one of several sample types.
#[derive(Clone, Debug)]
pub struct OverType {
    /// Kind of the values.
    pub kind: String,
    /// Their unit.
    pub unit: String,
    /// Sum of the magnitudes of all values before a filter.
    pub total: i64,
    /// The same after the filter.
    pub kept_total: i64,
    /// The table.
    pub over: Over,
}

impl Over {
    /// The table of a view.
    pub fn new(view: &View, options: &OverOptions) -> Over {
        let intervals = Intervals::new(view, options, 1);
        let top = Top::new(view, &intervals.top(options));
        let samples = TypeSamples { view, type_index: view.type_index };
        Over::with_rows(samples, &top, intervals, &options.top.labels)
    }

    /// The tables of several sample types, the view's first. They have the same rows: those of any
    /// of these types, in the order of the first.
    pub fn by_type(view: &View, options: &OverOptions, types: &[usize]) -> Vec<OverType> {
        let intervals = Intervals::new(view, options, types.len());
        let request = ColumnRequest { types: types.to_vec(), ..ColumnRequest::default() };
        let (top, columns) = Columns::new(view, &intervals.top(options), &request);
        let labels = &options.top.labels;
        let samples = |type_index: usize| TypeSamples { view, type_index };
        let over = |type_index: usize, top: &Top| {
            let mut over = Over::with_rows(samples(type_index), top, intervals, labels);
            if view.has_means() {
                over.average(&Over::with_rows(samples(0), top, intervals, labels));
            }
            over
        };
        if columns.types.is_empty() {
            let (kind, unit) = view.value_type();
            return vec![OverType {
                kind: kind.to_owned(),
                unit: unit.to_owned(),
                total: view.total,
                kept_total: view.kept_total,
                over: over(view.type_index, &top),
            }];
        }
        let table = |column: &TypeColumn| {
            let values = top.rows.iter().zip(&column.rows);
            let rows = values.map(|(row, values)| Row {
                self_value: values.self_value,
                total: values.total,
                ..row.clone()
            });
            let groups = top.groups.clone();
            let top = Top { rows: rows.collect(), groups, row_count: top.row_count, shown: 0 };
            OverType {
                kind: column.kind.clone(),
                unit: column.unit.clone(),
                total: column.total,
                kept_total: column.kept_total,
                over: over(column.type_index, &top),
            }
        };
        columns.types.iter().map(table).collect()
    }

    fn with_rows(
        samples: TypeSamples<'_>,
        top: &Top,
        intervals: Intervals,
        labels: &[String],
    ) -> Over {
        let Intervals { interval, count, .. } = intervals;
        let mut over = Over {
            interval,
            sums: vec![0; count],
            rows: Vec::with_capacity(top.rows.len()),
            groups: top.groups.clone(),
            row_count: top.row_count,
            without_time: 0,
        };
        over.rows.extend(top.rows.iter().map(|row| OverRow {
            frame: row.frame,
            group: row.group,
            self_value: row.self_value,
            total: row.total,
            self_values: Vec::new(),
            totals: Vec::new(),
        }));
        over.fill(samples, labels);
        over
    }

    fn fill(&mut self, samples: TypeSamples<'_>, labels: &[String]) {
        let TypeSamples { view, type_index } = samples;
        let rows = self.rows.iter().zip(0..);
        let index: FxHashMap<(u32, u32), u32> =
            rows.map(|(row, number)| ((row.frame, row.group), number)).collect();
        let mut is_shown = vec![false; view.frames.len()];
        self.rows.iter().for_each(|row| is_shown[row.frame as usize] = true);
        let mut groups = Groups::new(view, labels, &self.groups);
        let mut parts: Vec<Part> = Vec::new();
        let mut sums = RowSums::<IntervalSums>::new(self.rows.len());
        for sample in view.samples_of_type(type_index) {
            if sample.times == TimesId::NONE {
                self.without_time = self.without_time.saturating_add(sample.value);
                continue;
            }
            self.divide(view, &sample, &mut parts);
            let group = groups.number(view, &sample);
            let row = |frame: u32| {
                is_shown[frame as usize].then(|| index.get(&(frame, group)).copied()).flatten()
            };
            let amount = Divided { parts: &parts, intervals: self.sums.len() };
            sums.add_sample(&view.frames, &sample, amount, row);
        }
        for (row, sums) in sums.take() {
            let row = &mut self.rows[row as usize];
            (row.self_values, row.totals) = (sums.self_values, sums.totals);
        }
        for row in &mut self.rows {
            // Of rows without a sample that has a time.
            row.self_values.resize(self.sums.len(), 0);
            row.totals.resize(self.sums.len(), 0);
        }
    }

    /// Divides the value of a sample among the intervals, and adds it to the sums.
    fn divide(&mut self, view: &View, sample: &ViewSample<'_>, parts: &mut Vec<Part>) {
        let times = view.profile.times.get(sample.times);
        parts.clear();
        let mut first = 0;
        while let Some(&time) = times.get(first) {
            let at = time / self.interval;
            let rest = &times[first..];
            let end = first + rest.partition_point(|&t| t / self.interval == at);
            let value = share(sample.value, first..end, times.len());
            parts.push(Part { interval: at as usize, value });
            first = end;
        }
        add(&mut self.sums, parts);
    }
}

/// The samples of a view with their values of one sample type.
#[derive(Clone, Copy)]
struct TypeSamples<'v> {
    view: &'v View<'v>,
    type_index: usize,
}

/// The division of a recording.
#[derive(Clone, Copy)]
struct Intervals {
    /// Length in microseconds.
    interval: u64,
    count: usize,
    /// Most rows.
    rows: usize,
}

impl Intervals {
    /// The intervals of tables of this number of sample types.
    fn new(view: &View, options: &OverOptions, types: usize) -> Intervals {
        let length = length_micros(view.profile).max(1);
        let most = options.most.clamp(1, MAX_CELLS) as u64;
        let wanted = options.interval.max(1);
        let interval = match length.div_ceil(wanted) {
            count if count > most => wanted.saturating_mul(count.div_ceil(most)),
            _ => wanted,
        };
        let count = length.div_ceil(interval) as usize;
        Intervals { interval, count, rows: (MAX_CELLS / count / types.max(1)).max(1) }
    }

    /// The options of the table of rows.
    fn top(self, options: &OverOptions) -> TopOptions {
        let mut top = options.top.clone();
        if top.limit == 0 || top.limit > self.rows {
            top.limit = self.rows;
        }
        top
    }
}

/// A part of a sample's value.
#[derive(Clone, Copy)]
struct Part {
    /// Number of the interval.
    interval: usize,
    value: i64,
}

/// The value of a sample by interval.
#[derive(Clone, Copy)]
struct Divided<'s> {
    parts: &'s [Part],
    /// Number of intervals.
    intervals: usize,
}

/// The sums of a row by interval; none without samples.
#[derive(Default)]
struct IntervalSums {
    self_values: Vec<i64>,
    totals: Vec<i64>,
}

impl Sum<Divided<'_>> for IntervalSums {
    fn add_self(&mut self, amount: Divided<'_>) {
        self.self_values.resize(amount.intervals, 0);
        add(&mut self.self_values, amount.parts);
    }

    fn add_total(&mut self, amount: Divided<'_>) {
        self.totals.resize(amount.intervals, 0);
        add(&mut self.totals, amount.parts);
    }
}

fn add(sums: &mut [i64], parts: &[Part]) {
    for part in parts {
        let sum = &mut sums[part.interval];
        *sum = sum.saturating_add(part.value);
    }
}

/// The group of each set of labels.
struct Groups {
    keys: Vec<Option<profile::StrId>>,
    index: FxHashMap<Vec<Option<LabelValue>>, u32>,
    by_set: FxHashMap<u32, u32>,
}

impl Groups {
    fn new(view: &View, labels: &[String], groups: &[Vec<Option<LabelValue>>]) -> Groups {
        let index = groups.iter().enumerate().map(|(i, values)| (values.clone(), i as u32));
        let keys = key_ids(view.profile, labels);
        Groups { keys, index: index.collect(), by_set: FxHashMap::default() }
    }

    fn number(&mut self, view: &View, sample: &ViewSample<'_>) -> u32 {
        let Groups { keys, index, by_set } = self;
        if keys.is_empty() {
            return 0;
        }
        *by_set.entry(sample.labels.0).or_insert_with(|| {
            let value = |k: &Option<_>| k.and_then(|k| view.profile.labels.value(sample.labels, k));
            let values: Vec<_> = keys.iter().map(value).collect();
            index.get(&values).copied().unwrap_or(0)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::phases;
    use crate::{Cancel, Granularity};

    fn over(p: &profile::Profile, interval: u64, most: usize) -> Vec<(String, Vec<i64>, Vec<i64>)> {
        let view = View::new(p, 0, Granularity::FUNCTION);
        let options = OverOptions { interval, most, top: TopOptions::default() };
        let over = Over::new(&view, &options);
        for row in &over.rows {
            assert!(row.self_values.iter().sum::<i64>() <= row.self_value);
        }
        let named = |row: &OverRow| view.frames.get(row.frame).display(p).into_owned();
        let rows = over.rows.iter().map(|r| (named(r), r.self_values.clone(), r.totals.clone()));
        let all = ("all".to_owned(), over.sums.clone(), vec![over.without_time]);
        std::iter::once(all).chain(rows).collect()
    }

    #[test]
    fn each_interval_has_its_samples() {
        let p = phases();
        let expected = [
            ("all".to_owned(), vec![10, 10, 10], vec![1]),
            ("f".to_owned(), vec![10, 0, 10], vec![10, 0, 10]),
            ("g".to_owned(), vec![0, 10, 0], vec![0, 10, 0]),
            ("main".to_owned(), vec![0, 0, 0], vec![10, 10, 10]),
        ];
        assert_eq!(over(&p, 1_000_000, 60), expected);
        let halves: Vec<_> = over(&p, 500_000, 60).into_iter().map(|row| row.1).collect();
        assert_eq!(halves[0], [5; 6]);
        assert_eq!(halves[2], [0, 0, 5, 5, 0, 0]);
    }

    #[test]
    fn intervals_are_widened() {
        let p = phases();
        assert_eq!(over(&p, 1, 3)[0].1, [10, 10, 10]);
        assert_eq!(over(&p, 1_000_000, 2)[0].1, [20, 10]);
        assert_eq!(over(&p, u64::MAX, 2)[0].1, [30]);
        // A time that no recording reaches.
        let mut p = p;
        let far = p.times.push([1 << 62].into_iter());
        p.samples[0].times = far;
        assert_eq!(over(&p, 1, 60)[0].1.len(), 60);
    }

    #[test]
    fn profiles_of_any_kind_have_a_table() {
        for p in [crate::testing::answers(), crate::testing::odd_names(), Default::default()] {
            let rows = over(&p, 1, 60);
            assert_eq!(rows[0].1.iter().sum::<i64>(), 0);
        }
    }

    #[test]
    fn several_types_have_the_same_rows() {
        let p = phases();
        let view = View::new(&p, 1, Granularity::FUNCTION);
        let options = OverOptions { interval: 1_000_000, most: 60, top: TopOptions::default() };
        let tables = Over::by_type(&view, &options, &[1, 0]);
        let kinds: Vec<_> = tables.iter().map(|t| (t.kind.as_str(), t.over.rows.len())).collect();
        assert_eq!(kinds, [("cpu", 3), ("samples", 3)]);
        for (at, table) in tables.iter().enumerate() {
            let alone = View::new(&p, 1 - at, Granularity::FUNCTION);
            let alone = Over::new(&alone, &options);
            assert_eq!((&table.over.rows, &table.over.sums), (&alone.rows, &alone.sums));
        }
        assert_eq!(Over::by_type(&view, &options, &[1])[0].over.rows, tables[0].over.rows);
    }

    #[test]
    fn the_signal_ends_the_tables_of_all_types() {
        let p = phases();
        let cancel = Cancel::new();
        let view = View::cancelable(&p, 0, Granularity::FUNCTION, &cancel);
        cancel.cancel();
        let options = OverOptions { interval: 1_000_000, most: 60, top: TopOptions::default() };
        let tables = Over::by_type(&view, &options, &[0, 1]);
        let sums: Vec<&[i64]> = tables.iter().map(|t| t.over.sums.as_slice()).collect();
        assert_eq!(sums, [[0; 3]; 2]);
    }

    #[test]
    fn labels_group_rows() {
        let mut p = crate::testing::processes();
        let times: Vec<_> = [[1, 3], [2, 5]].map(|t| p.times.push(t.into_iter())).to_vec();
        p.samples.iter_mut().zip(times).for_each(|(row, times)| row.times = times);
        let view = View::new(&p, 0, Granularity::NONE);
        let top = TopOptions { labels: vec!["process".into()], ..TopOptions::default() };
        let over = Over::new(&view, &OverOptions { interval: 2, most: 9, top });
        let rows: Vec<_> = over.rows.iter().map(|r| (r.total, r.totals.clone())).collect();
        assert_eq!(rows, [(3, vec![1, 2, 0]), (1, vec![0, 0, 1])]);
    }
}
