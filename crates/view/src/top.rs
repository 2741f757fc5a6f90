//! The table: self value and total of each function (or binary, process, line, …).

use std::cmp::Ordering;

use super::View;
use super::groups::Groups;
use super::row_sums::{RowSums, RowValues};
use profile::LabelValue;

/// Order of the rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sort {
    /// Largest self value first.
    #[default]
    SelfValue,
    /// Largest total first.
    Total,
    /// By name.
    Name,
}

/// Options of a [`Top`].
#[derive(Clone, Debug, Default)]
pub struct TopOptions {
    /// Order of the rows.
    pub sort: Sort,
    /// Label keys that distinguish rows, in addition to the frames of the view.
    pub labels: Vec<String>,
    /// Most rows to keep; 0: all.
    pub limit: usize,
    /// Omit rows below this percentage of the total.
    pub min_percent: f64,
    /// Sort and omit rows by their self value only.
    pub self_only: bool,
}

/// One row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// Id of its frame, see [`super::Frames::get`].
    pub frame: u32,
    /// Index in [`Top::groups`].
    pub group: u32,
    /// Sum of the samples whose leaf it is.
    pub self_value: i64,
    /// Sum of the samples that contain it, once for each stack even in a recursion.
    pub total: i64,
}

/// A table of functions, sorted and cut.
pub struct Top {
    /// The rows that are shown.
    pub rows: Vec<Row>,
    /// Values of the labels of [`TopOptions::labels`], one set for each distinct combination.
    pub groups: Vec<Vec<Option<LabelValue>>>,
    /// Number of rows before `limit` and `min_percent`.
    pub row_count: usize,
    /// Sum of the self values of the rows shown.
    pub shown: i64,
}

impl Top {
    /// The table of `view`.
    pub fn new(view: &View, options: &TopOptions) -> Top {
        let mut sums = RowSums::<RowValues>::new(view.frames.len());
        if options.labels.is_empty() {
            let groups = vec![Vec::new()];
            let mut rows = Rows::new(view, options, &groups);
            sums.add_all(view);
            rows.extend(&mut sums, 0);
            return rows.finish().top(groups);
        }
        let samples = view.samples().map(|sample| (sample.row, sample.labels));
        let groups = Groups::new(view, samples, &options.labels);
        let mut rows = Rows::new(view, options, &groups.values);
        for (group, numbers) in groups.iter().enumerate() {
            for sample in view.samples_of(numbers) {
                sums.add_sample(&view.frames, &sample, sample.value, Some);
            }
            rows.extend(&mut sums, group as u32);
        }
        rows.finish().top(groups.values)
    }
}

/// The rows of a table that is being made.
struct Rows<'a> {
    view: &'a View<'a>,
    options: &'a TopOptions,
    groups: &'a [Vec<Option<LabelValue>>],
    kept: Vec<Row>,
    /// The first row that was dropped because of the limit: those behind it are dropped, too.
    beyond: Option<Row>,
    count: usize,
}

/// The rows of a finished table.
struct Finished {
    rows: Vec<Row>,
    count: usize,
}

/// Rows that are collected, at least, before those beyond the limit are dropped.
const COLLECTED: usize = 1000;

impl<'a> Rows<'a> {
    fn new(
        view: &'a View<'a>,
        options: &'a TopOptions,
        groups: &'a [Vec<Option<LabelValue>>],
    ) -> Rows<'a> {
        Rows { view, options, groups, kept: Vec::new(), beyond: None, count: 0 }
    }

    /// Adds the rows of a group.
    fn extend(&mut self, sums: &mut RowSums<RowValues>, group: u32) {
        let taken = sums.take();
        if self.options.limit == 0 {
            self.kept.reserve(taken.len());
        }
        for (frame, RowValues { self_value, total }) in taken {
            self.push(Row { frame, group, self_value, total });
        }
    }

    /// Adds a row, unless it is below the percentage.
    fn push(&mut self, row: Row) {
        let TopOptions { limit, min_percent, self_only, .. } = *self.options;
        self.count += 1;
        let judged = if self_only { row.self_value } else { row.total };
        if min_percent > 0.0 && self.view.percent(judged).abs() < min_percent {
            return;
        }
        let is_beyond =
            |beyond: &Row| compare(self.view, self.groups, self.options.sort, &row, beyond).is_gt();
        if self.beyond.as_ref().is_some_and(is_beyond) {
            return;
        }
        self.kept.push(row);
        if limit > 0 && self.kept.len() >= limit.saturating_mul(2).max(COLLECTED) {
            self.cut();
        }
    }

    fn cut(&mut self) {
        let Rows { view, options, groups, .. } = *self;
        if options.limit > 0 && options.limit < self.kept.len() {
            let compare = |a: &Row, b: &Row| compare(view, groups, options.sort, a, b);
            self.kept.select_nth_unstable_by(options.limit, compare);
            self.beyond = Some(self.kept[options.limit].clone());
            self.kept.truncate(options.limit);
        }
    }

    /// The rows in their order.
    fn finish(mut self) -> Finished {
        self.cut();
        let Rows { view, options, groups, mut kept, count, .. } = self;
        kept.sort_unstable_by(|a, b| compare(view, groups, options.sort, a, b));
        Finished { rows: kept, count }
    }
}

impl Finished {
    fn top(self, groups: Vec<Vec<Option<LabelValue>>>) -> Top {
        let Finished { rows, count } = self;
        let shown = rows.iter().fold(0i64, |sum, r| sum.saturating_add(r.self_value));
        Top { rows, groups, row_count: count, shown }
    }
}

fn compare(
    view: &View,
    groups: &[Vec<Option<LabelValue>>],
    sort: Sort,
    a: &Row,
    b: &Row,
) -> Ordering {
    compare_values(sort, a, b).then_with(|| compare_names(view, groups, a, b))
}

/// The order of rows by their values.
pub(super) fn compare_values(sort: Sort, a: &Row, b: &Row) -> Ordering {
    // By magnitude, so that the largest losses in a difference are next to the largest gains.
    let size = |v: i64| v.unsigned_abs();
    let by_self = || size(b.self_value).cmp(&size(a.self_value));
    let by_total = || size(b.total).cmp(&size(a.total));
    match sort {
        Sort::SelfValue => by_self().then_with(by_total),
        Sort::Total => by_total().then_with(by_self),
        Sort::Name => Ordering::Equal,
    }
}

/// The order of rows of equal values.
pub(super) fn compare_names(
    view: &View,
    groups: &[Vec<Option<LabelValue>>],
    a: &Row,
    b: &Row,
) -> Ordering {
    let frame = |r: &Row| view.frames.get(r.frame);
    frame(a)
        .cmp_name(frame(b), view.profile)
        .then_with(|| groups[a.group as usize].cmp(&groups[b.group as usize]))
        .then(a.frame.cmp(&b.frame))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{answers, frames_profile, processes};
    use crate::{Filter, Granularity};
    use profile::Profile;

    fn view(p: &Profile, g: Granularity) -> View<'_> {
        View::new(p, p.default_type_index(), g)
    }

    fn table(p: &Profile, g: Granularity, o: &TopOptions) -> Vec<(String, i64, i64)> {
        let view = view(p, g);
        let top = Top::new(&view, o);
        let name = |r: &Row| view.frames.get(r.frame).display(p).into_owned();
        top.rows.iter().map(|r| (name(r), r.self_value, r.total)).collect()
    }

    fn row(name: &str, self_value: i64, total: i64) -> (String, i64, i64) {
        (name.to_string(), self_value, total)
    }

    #[test]
    fn a_known_profile() {
        let p = answers();
        let half = 500_000_000;
        let by_self = table(&p, Granularity::FUNCTION, &TopOptions::default());
        let expected = [
            row("bar", 10 * half, 10 * half),
            row("main", 4 * half, 18 * half),
            row("foo1", 3 * half, 8 * half),
            row("foo2", half, 6 * half),
        ];
        assert_eq!(by_self, expected);
        let total = TopOptions { sort: Sort::Total, ..TopOptions::default() };
        let names: Vec<_> =
            table(&p, Granularity::FUNCTION, &total).into_iter().map(|r| r.0).collect();
        assert_eq!(names, ["main", "bar", "foo1", "foo2"]);
        let name = TopOptions { sort: Sort::Name, ..TopOptions::default() };
        let names: Vec<_> =
            table(&p, Granularity::FUNCTION, &name).into_iter().map(|r| r.0).collect();
        assert_eq!(names, ["bar", "foo1", "foo2", "main"]);
    }

    #[test]
    fn recursion_counts_once_and_self_adds_up() {
        let p = processes();
        let rows = table(&p, Granularity::FUNCTION, &TopOptions::default());
        assert_eq!(rows, [row("serve", 3, 4), row("query", 1, 1)]);
    }

    #[test]
    fn unknown_frames_are_rows() {
        let p = frames_profile();
        let rows = table(&p, Granularity::FUNCTION, &TopOptions::default());
        assert_eq!(rows.iter().map(|r| r.1).sum::<i64>(), 5);
        assert!(rows.contains(&row("libx.so+0x1234", 1, 1)));
        assert!(rows.contains(&row("0xdead", 1, 1)));
        assert!(rows.contains(&row("inner", 2, 2)));
        assert!(rows.contains(&row("outer", 0, 1)));
        let binaries = Granularity { binary: true, ..Granularity::NONE };
        assert_eq!(table(&p, binaries, &TopOptions::default())[0].1, 3);
        let lines = Granularity { line: true, ..Granularity::FUNCTION };
        let rows = table(&p, lines, &TopOptions::default());
        assert_eq!(rows.iter().filter(|r| r.0 == "inner").count(), 2);
    }

    #[test]
    fn an_empty_stack_is_a_row() {
        let mut p = answers();
        let stack = p.stacks.push(&[]);
        p.samples.push(profile::SampleRow {
            stack,
            labels: Default::default(),
            times: Default::default(),
        });
        p.values.extend([1, 7]);
        let rows = table(&p, Granularity::FUNCTION, &TopOptions::default());
        assert!(rows.contains(&row("[no stack]", 7, 7)));
    }

    #[test]
    fn labels_distinguish_rows() {
        let p = processes();
        let o = TopOptions { labels: vec!["process".into()], ..TopOptions::default() };
        let v = view(&p, Granularity::NONE);
        let top = Top::new(&v, &o);
        assert_eq!(top.rows.iter().map(|r| r.self_value).collect::<Vec<_>>(), [3, 1]);
        assert_eq!(top.groups.len(), 2);
        let v = view(&p, Granularity::FUNCTION);
        let top = Top::new(&v, &o);
        // serve of web, query of db, serve of db.
        assert_eq!(
            top.rows.iter().map(|r| (r.self_value, r.total)).collect::<Vec<_>>(),
            [(3, 3), (1, 1), (0, 1)]
        );
    }

    #[test]
    fn limits_cut_rows_and_count_them() {
        let p = answers();
        let v = view(&p, Granularity::FUNCTION);
        let top = Top::new(&v, &TopOptions { limit: 2, ..TopOptions::default() });
        assert_eq!((top.rows.len(), top.row_count, top.shown), (2, 4, 7_000_000_000));
        let o = TopOptions { min_percent: 16.0, self_only: true, ..TopOptions::default() };
        let top = Top::new(&v, &o);
        assert_eq!(top.rows.len(), 3);
        let o = TopOptions { min_percent: 34.0, ..TopOptions::default() };
        assert_eq!(Top::new(&v, &o).rows.len(), 3);
    }

    #[test]
    fn filters_equal_those_of_pprof() {
        let p = answers();
        let re = |s: &str| Some(s.parse().unwrap());
        let sum = |f: &Filter| {
            let p = f.apply(p.clone()).profile;
            let v = view(&p, Granularity::FUNCTION);
            let top = Top::new(&v, &TopOptions::default());
            assert_eq!(v.total, 9_000_000_000);
            assert_eq!(v.kept_total, top.shown);
            (v.kept_total / 500_000_000, top.rows.len())
        };
        assert_eq!(sum(&Filter { focus: re("^foo1$"), ..Filter::default() }), (8, 3));
        assert_eq!(sum(&Filter { ignore: re("foo"), ..Filter::default() }), (4, 1));
        assert_eq!(sum(&Filter { focus: re(r"app\.c$"), ..Filter::default() }), (18, 4));
        assert_eq!(sum(&Filter { ignore: re("/usr/bin/app"), ..Filter::default() }), (0, 0));
        // Hidden frames add their value to their callers; a stack without frames is gone.
        assert_eq!(sum(&Filter { hide: re("bar"), ..Filter::default() }), (18, 3));
        assert_eq!(sum(&Filter { show: re("foo"), ..Filter::default() }), (14, 2));
    }

    #[test]
    fn hostile_values_do_not_overflow() {
        let mut p = answers();
        p.values.iter_mut().for_each(|v| *v = i64::MAX);
        let rows = table(&p, Granularity::FUNCTION, &TopOptions::default());
        assert!(rows.iter().all(|r| r.2 == i64::MAX));
        p.values.iter_mut().for_each(|v| *v = i64::MIN);
        table(&p, Granularity::FUNCTION, &TopOptions::default());
    }
}
