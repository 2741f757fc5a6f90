//! The difference of two profiles, or of several recordings before and after a change: what each
//! function had before, what it has after, and whether the change exceeds sampling error.
//!
//! Frames are matched by text: functions by name, binaries by base name. Addresses without a name
//! are one row for each binary. [`significance`] describes the test.

mod answer;
mod boxes;
mod cells;
mod names;
mod order;
mod probability;
mod renamed;
mod significance;
mod tree;

use std::borrow::Borrow;
use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::sync::Arc;

use crate::{LeafFrames, Sort, View, quality};
use cells::Cells;
use names::NameTable;
use profile::{Profile, ValueType, comment};
use significance::Judge;

pub use answer::{Compared, Difference, compare};
pub use boxes::{DiffBox, DiffBoxes, DiffContent};
pub use names::{ByName, DiffFrame, DiffName};
pub use renamed::Renamed;
pub use tree::{DiffNode, DiffTree};

/// The unit of comparison.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Scale {
    /// Values as recorded: the mean of a side's recordings.
    #[default]
    AsRecorded,
    /// Values per second of the recordings.
    PerSecond,
    /// Values after are scaled so that their total is that before (pprof's `-normalize`).
    Total,
}

/// Options of a [`Diff`].
#[derive(Clone, Debug, Default)]
pub struct DiffOptions {
    /// The unit of comparison.
    pub scale: Scale,
    /// Test for values that are equal in the unit of comparison, rather than for the ratio of what
    /// did not change.
    pub absolute: bool,
    /// Order of the rows among those that changed, and among the others: by the change of the self
    /// value or total, or by name.
    pub sort: Sort,
    /// Label keys that distinguish rows, in addition to the frames of the views.
    pub labels: Vec<String>,
    /// The main binaries that are compared as one, for the renderers.
    pub renamed: Option<Renamed>,
}

/// A value on both sides.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Change {
    /// Before, in the unit of comparison.
    pub before: f64,
    /// After, in the unit of comparison.
    pub after: f64,
    /// Probability that sampling alone makes two recordings of the same program differ this much;
    /// `None`: not tested, because no difference of so few samples could be significant, or the
    /// value is negative.
    pub p: Option<f64>,
    /// The same, corrected for the number of tests (Holm).
    pub adjusted_p: Option<f64>,
}

impl Change {
    /// Largest probability of listing anything as changed if nothing has.
    pub const FAMILY_ERROR: f64 = 0.05;

    /// After minus before.
    pub fn difference(&self) -> f64 {
        self.after - self.before
    }

    /// After divided by before; `None` if that is no number.
    pub fn ratio(&self) -> Option<f64> {
        Some(self.after / self.before).filter(|ratio| ratio.is_finite())
    }

    /// It exceeds sampling error.
    pub fn is_significant(&self) -> bool {
        self.adjusted_p.is_some_and(|p| p <= Change::FAMILY_ERROR)
    }
}

/// One row.
#[derive(Clone, Debug, PartialEq)]
pub struct DiffRow {
    /// Index in [`Diff::frames`].
    pub frame: u32,
    /// Index in [`Diff::groups`].
    pub group: u32,
    /// Self value.
    pub itself: Change,
    /// Total.
    pub total: Change,
}

impl DiffRow {
    /// Its self value or its total changed.
    pub fn is_significant(&self) -> bool {
        self.itself.is_significant() || self.total.is_significant()
    }
}

/// The recordings before or after.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Side {
    /// Number of recordings.
    pub recordings: usize,
    /// Sum of all values, as recorded.
    pub recorded: i64,
    /// The same in the unit of comparison.
    pub total: f64,
    /// Sum of their lengths in nanoseconds; 0 if one of them is unknown.
    pub duration_nanos: i64,
    /// Number of samples; 0 if it is unknown.
    pub samples: f64,
    /// Number of samples of equal weight with the same confidence.
    pub effective: f64,
    /// Unit of comparison in a recorded unit.
    pub factor: f64,
    /// Whether the stacks of one of them are estimates, as those of a callgrind file: totals are, too.
    pub is_estimated: bool,
    /// Whether functions have binaries; if those of the other side have, they are compared by name.
    pub has_binaries: bool,
}

/// The difference.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Diff {
    /// Kind of the values, for example `cpu`.
    pub kind: String,
    /// Their unit, for example `nanoseconds`.
    pub unit: String,
    /// The unit of comparison.
    pub scale: Scale,
    /// The recordings before.
    pub before: Side,
    /// The recordings after.
    pub after: Side,
    /// Ratio that the rows are tested against: of what did not change, after to before as recorded.
    pub common: f64,
    /// Variance of what did not change, between the sides (or, with three recordings or more, among
    /// the recordings of a side), in units of the sampling variance; at least 1.
    pub dispersion: f64,
    /// The variance was measured among the recordings of a side.
    pub replicated: bool,
    /// Number of tests.
    pub tests: usize,
    /// The main binaries that are compared as one.
    pub renamed: Option<Renamed>,
    /// The leaf frames that were folded into their callers.
    pub folded: Option<LeafFrames>,
    /// An interpreter's own frames are left out of stacks.
    pub hides_interpreters: bool,
    /// Other binaries of which functions are compared by name.
    pub by_name: Vec<ByName>,
    /// Names of functions that are gone in one binary and new in another.
    pub split: Vec<Arc<str>>,
    /// Frames of the rows.
    pub frames: Vec<DiffFrame>,
    /// Values of the labels of the rows, one set for each combination.
    pub groups: Vec<Vec<Option<String>>>,
    /// Rows: those that changed, then the others.
    pub rows: Vec<DiffRow>,
}

impl Diff {
    /// The difference of these recordings, which have the same granularity.
    pub fn new(before: &[View], after: &[View], options: &DiffOptions) -> Diff {
        let all = || before.iter().chain(after);
        let (names, ids) = NameTable::new(before, after);
        let mut cells = Cells::new(before.len(), after.len());
        for (run, (view, ids)) in all().zip(&ids).enumerate() {
            if view.cancel.is_canceled() {
                return Diff::default();
            }
            cells.add(run, view, ids, &options.labels);
        }
        let mut diff = Diff::between(before, after, options.scale);
        let equal = diff.before.factor / diff.after.factor;
        if all().any(|view| view.cancel.is_canceled()) {
            return Diff::default();
        }
        let judge = Judge::new(&cells, before.len(), options.absolute.then_some(equal));
        (diff.common, diff.dispersion) = (judge.common, judge.dispersion);
        diff.replicated = judge.replicated;
        diff.before.effective = judge.effective(0);
        diff.after.effective = judge.effective(1);
        diff.rows = cells
            .keys()
            .map(|(group, frame)| DiffRow {
                frame,
                group,
                itself: Change::default(),
                total: Change::default(),
            })
            .collect();
        for (index, row) in diff.rows.iter_mut().enumerate() {
            let [own, total] = cells.sums(index);
            row.itself = change(own, &diff.before, &diff.after);
            row.total = change(total, &diff.before, &diff.after);
        }
        diff.tests = judge.test(&cells, &mut diff.rows);
        diff.frames = names.frames;
        diff.by_name = names.by_name;
        diff.split = diff.split_names();
        diff.groups = cells.groups;
        diff.renamed.clone_from(&options.renamed);
        diff.sort(options.sort);
        diff
    }

    fn between(before: &[View], after: &[View], scale: Scale) -> Diff {
        let (kind, unit) = before.iter().chain(after).next().map_or(("", ""), View::value_type);
        let mut diff = Diff {
            kind: kind.to_owned(),
            unit: unit.to_owned(),
            scale,
            before: side(before),
            after: side(after),
            ..Diff::default()
        };
        let recordings = |side: &Side| 1.0 / side.recordings.max(1) as f64;
        let per_second = |side: &Side| 1e9 / side.duration_nanos as f64;
        let known = |side: &Side| side.duration_nanos > 0;
        let totals =
            [&diff.before, &diff.after].map(|side| side.recorded as f64 * recordings(side));
        diff.before.factor = recordings(&diff.before);
        diff.after.factor = recordings(&diff.after);
        match scale {
            Scale::PerSecond if known(&diff.before) && known(&diff.after) => {
                diff.before.factor = per_second(&diff.before);
                diff.after.factor = per_second(&diff.after);
            }
            Scale::Total if totals[0] != 0.0 && totals[1] != 0.0 => {
                diff.after.factor *= totals[0] / totals[1];
            }
            // Without lengths or totals, only the recorded values can be compared.
            _ => diff.scale = Scale::AsRecorded,
        }
        for side in [&mut diff.before, &mut diff.after] {
            side.total = side.recorded as f64 * side.factor;
        }
        diff
    }

    /// Number of rows that changed.
    pub fn changed(&self) -> usize {
        self.rows.iter().filter(|row| row.is_significant()).count()
    }

    /// The total of both sides.
    pub fn total(&self) -> Change {
        let (before, after) = (self.before.total, self.after.total);
        Change { before, after, ..Change::default() }
    }

    /// The names of functions of which a row is gone and another one is new, in order.
    fn split_names(&self) -> Vec<Arc<str>> {
        let names = |is_it: fn(&Change) -> bool| -> BTreeSet<&Arc<str>> {
            let changed = self.rows.iter().filter(|row| row.is_significant() && is_it(&row.total));
            let frames = changed.map(|row| &self.frames[row.frame as usize]);
            frames.filter(|f| f.kind == DiffName::Function).map(|f| &f.name).collect()
        };
        let gone = names(|total| total.before != 0.0 && total.after == 0.0);
        let new = names(|total| total.before == 0.0 && total.after != 0.0);
        gone.intersection(&new).map(|&name| name.clone()).collect()
    }

    fn sort(&mut self, sort: Sort) {
        let Diff { frames, groups, rows, .. } = self;
        let size = |change: &Change| change.difference().abs();
        let largest = |a: &Change, b: &Change| size(b).total_cmp(&size(a));
        let compare = |a: &DiffRow, b: &DiffRow| {
            let by_value = match sort {
                Sort::SelfValue => {
                    largest(&a.itself, &b.itself).then_with(|| largest(&a.total, &b.total))
                }
                Sort::Total => {
                    largest(&a.total, &b.total).then_with(|| largest(&a.itself, &b.itself))
                }
                Sort::Name => Ordering::Equal,
            };
            let changed_first = b.is_significant().cmp(&a.is_significant());
            changed_first.then(by_value).then_with(|| order::by_name(frames, groups, a, b))
        };
        rows.sort_by(compare);
    }
}

fn side(views: &[View]) -> Side {
    let lengths = || views.iter().map(|view| view.profile.duration_nanos);
    let known = lengths().all(|nanos| nanos > 0);
    let duration_nanos = if known { lengths().fold(0i64, i64::saturating_add) } else { 0 };
    let sum = |view: &View| view.samples().fold(0i64, |sum, s| sum.saturating_add(s.value));
    let recorded = views.iter().map(sum).fold(0i64, i64::saturating_add);
    let samples = |view: &View| {
        // Rows of estimated stacks are no samples.
        if is_estimated(view) {
            counted_samples(view.profile)
        } else {
            quality::sample_sizes(view.profile, view.type_index).0
        }
    };
    let samples = views.iter().map(samples).sum();
    Side {
        recordings: views.len(),
        recorded,
        samples,
        duration_nanos,
        is_estimated: views.iter().any(is_estimated),
        has_binaries: names::have_binaries(views),
        ..Side::default()
    }
}

/// The sum of the sample type that counts samples; 0 if there is none.
fn counted_samples(profile: &Profile) -> f64 {
    let is_count =
        |t: &ValueType| (profile.str(t.kind), profile.str(t.unit)) == ("samples", "count");
    profile
        .sample_types
        .iter()
        .position(is_count)
        .map_or(0.0, |column| profile.total(column) as f64)
}

/// Whether the stacks of a profile are estimates.
fn is_estimated(view: &View) -> bool {
    let text = comment::ESTIMATED_STACKS;
    view.profile.comments.iter().any(|&comment| view.profile.str(comment) == text)
}

fn change([before, after]: [i64; 2], from: &Side, to: &Side) -> Change {
    let before = before as f64 * from.factor;
    Change { before, after: after as f64 * to.factor, ..Change::default() }
}

impl Diff {
    /// Index of the sample type in each profile with the kind and unit of type `index` of profile
    /// number `reference`. A profile without any types has no samples either: any index will do.
    ///
    /// # Errors
    ///
    /// The number of a profile that has other types only.
    pub fn common_type<P: Borrow<Profile>>(
        profiles: &[P],
        reference: usize,
        index: usize,
    ) -> Result<Vec<usize>, usize> {
        let name = |p: &Profile, index: usize| -> Option<[String; 2]> {
            let value_type = p.sample_types.get(index)?;
            Some([value_type.kind, value_type.unit].map(|id| p.str(id).to_owned()))
        };
        let wanted = profiles.get(reference).and_then(|p| name(p.borrow(), index));
        let find = |(number, profile): (usize, &P)| {
            let profile = profile.borrow();
            let types = profile.sample_types.len();
            // Of two types of one name, the one with the same index.
            let mut candidates = std::iter::once(index).chain(0..types);
            let there = candidates.find(|&i| i < types && name(profile, i) == wanted);
            let any = (types == 0).then_some(0);
            there.or(any).ok_or(number)
        };
        profiles.iter().enumerate().map(find).collect()
    }
}

#[cfg(test)]
mod tests;
