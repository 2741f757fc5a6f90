//! Models of a profile's views: a [`Filter`] selects samples and frames of a profile; a [`View`] is
//! one sample type of the result, with its frames; all others ([`Top`], [`Tree`],
//! [`Sandwich`], [`Graph`], [`Coverage`], [`Quality`], [`States`], [`Threads`]) are computed from
//! one, so that no two of them can disagree. A [`Query`](query::Query) selects a view, and
//! [`answer`](answer()) computes its model.
//!
//! Numbers, order and hierarchy, tested without a terminal. Nothing here depends on the rendering,
//! or on the source of the profile.

pub mod answer;
mod binaries;
mod boxes;
mod cancel;
mod columns;
mod coverage;
mod diff;
mod expansion;
mod file_names;
mod filter;
mod frames;
mod granularity;
mod graph;
mod groups;
mod idle;
mod interpreters;
mod layout;
mod leaf_frames;
pub mod lock_functions;
mod mean;
mod model;
mod over;
mod packages;
mod part;
mod parts;
mod peek;
mod quality;
pub mod query;
mod ratio;
mod row_sums;
mod sandwich;
mod sandwich_boxes;
mod shares;
pub mod source;
mod states;
mod tags;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
mod texts;
mod thread_states;
mod threads;
mod time;
mod top;
mod traces;
mod tree;

pub use binaries::{base_name, is_kernel, is_run_time};
pub use boxes::{BoxOptions, BoxTree, Boxes, FlameBox, Siblings};
pub use cancel::Cancel;
pub use columns::{ColumnRequest, Columns, Measure, TableColumn, TypeColumn};
pub use coverage::{Coverage, Covered};
pub use diff::{
    ByName, Change, Compared, Diff, DiffBox, DiffBoxes, DiffContent, DiffFrame, DiffName, DiffNode,
    DiffOptions, DiffRow, DiffTree, Difference, Renamed, Scale, Side, compare,
};
pub use expansion::Expansion;
pub use file_names::clean_file_names;
pub use filter::{Condition, Filter, Filtered, Selector, TagError, TagMatch};
pub use frames::{Frame, Frames, Name, fold_inlined, label_text};
pub use granularity::Granularity;
pub use graph::{Edge, Graph, GraphNode, NodeOrder, Trim};
pub use interpreters::{has_interpreted, hide_interpreters};
pub use leaf_frames::LeafFrames;
pub use model::{
    Answer, CoverageModel, Model, SandwichModel, SourceModel, StatesModel, TableModel, answer,
};
pub use over::{Over, OverOptions, OverRow, OverType};
pub use packages::name_packages;
pub use part::{Naming, Part, PartCache, without_dropped_frames};
pub use peek::{Peek, Peeked};
pub use quality::{FunctionShares, Quality, Share};
pub use ratio::{Quotient, Ratio};
pub use row_sums::RowValues;
pub use sandwich::{Sandwich, matching_frames, named_frames};
pub use sandwich_boxes::SandwichBoxes;
pub use shares::Shares;
pub use states::{ByState, States};
pub use tags::{TagKey, TagValue, Tags};
pub use texts::cut_long_texts;
pub use thread_states::{ThreadRow, ThreadStates};
pub use threads::{ListedThread, ThreadGroup, Threads};
pub use time::{TimePart, TimePoint, TimeRange, length_micros, select_time};
pub use top::{Row, Sort, Top, TopOptions};
pub use traces::{Trace, Traces};
pub use tree::{Children, Cut, Direction, Node, Ordered, Tree};

use std::ops::Range;
use std::sync::Arc;

use profile::{LabelSetId, LocationId, Profile, SampleRow, StrId, TimesId, UnfilteredType};
use query::{Statistic, ValueOptions};

/// One sample type of a profile, at one granularity.
///
/// All views of a profile are computed from one of these, so that they cannot disagree.
pub struct View<'a> {
    /// The profile.
    pub profile: &'a Profile,
    /// Index of the sample type whose values are shown.
    pub type_index: usize,
    /// The frames of all locations.
    pub frames: Arc<Frames>,
    /// Sum of the magnitudes of all values before a filter.
    pub total: i64,
    /// The same for the samples of the profile, which passed the filter.
    pub kept_total: i64,
    /// Number of the samples that [`View::leave_out_negative`] excludes.
    pub left_out: usize,
    /// Calls of a function by itself are one frame in trees; false in a new view.
    pub collapse_recursion: bool,
    /// The leaf frames of the profile that were folded into their callers; none in a new view.
    pub folded: Option<LeafFrames>,
    /// An interpreter's own frames are left out of stacks; false in a new view.
    pub hides_interpreters: bool,
    /// The value of idle kernel threads that are left out: a part of [`View::total`], but not of
    /// [`View::kept_total`]. 0 in a new view.
    pub idle: i64,
    /// What values and percentages are.
    pub value_options: ValueOptions,
    /// Ends the computation of models early.
    pub cancel: Cancel,
    /// Smallest value that is shown.
    least: i64,
}

/// What a view has of a profile, without the profile.
#[derive(Clone)]
struct ViewData {
    type_index: usize,
    frames: Arc<Frames>,
    total: i64,
    kept_total: i64,
    left_out: usize,
    collapse_recursion: bool,
    folded: Option<LeafFrames>,
    hides_interpreters: bool,
    idle: i64,
    value_options: ValueOptions,
    cancel: Cancel,
    least: i64,
}

/// One sample of a view.
#[derive(Clone, Copy)]
pub struct ViewSample<'a> {
    /// Its stack, leaf first.
    pub stack: &'a [LocationId],
    /// Its labels.
    pub labels: LabelSetId,
    /// Its value; 0 only among the samples of several sample types.
    pub value: i64,
    /// The times among which its value is divided.
    pub times: TimesId,
    /// Its number in the profile.
    pub row: usize,
}

impl<'a> View<'a> {
    /// The view of sample type `type_index`.
    pub fn new(profile: &'a Profile, type_index: usize, granularity: Granularity) -> View<'a> {
        View::cancelable(profile, type_index, granularity, &Cancel::default())
    }

    /// The same, until `cancel`: it and its models then are incomplete.
    pub fn cancelable(
        profile: &'a Profile,
        type_index: usize,
        granularity: Granularity,
        cancel: &Cancel,
    ) -> View<'a> {
        let frames = Arc::new(Frames::cancelable(profile, granularity, cancel));
        let mut view = View {
            profile,
            type_index,
            frames,
            total: 0,
            kept_total: 0,
            left_out: 0,
            collapse_recursion: false,
            folded: None,
            hides_interpreters: false,
            idle: 0,
            value_options: ValueOptions::default(),
            cancel: cancel.clone(),
            least: i64::MIN,
        };
        view.kept_total = view.sum();
        view.total = view.unfiltered().map_or(view.kept_total, |all| all.magnitude);
        view
    }

    /// The view without its profile.
    fn data(&self) -> ViewData {
        ViewData {
            type_index: self.type_index,
            frames: self.frames.clone(),
            total: self.total,
            kept_total: self.kept_total,
            left_out: self.left_out,
            collapse_recursion: self.collapse_recursion,
            folded: self.folded,
            hides_interpreters: self.hides_interpreters,
            idle: self.idle,
            value_options: self.value_options,
            cancel: self.cancel.clone(),
            least: self.least,
        }
    }

    /// The view of a profile again.
    fn from_data(profile: &'a Profile, data: &ViewData) -> View<'a> {
        let data = data.clone();
        View {
            profile,
            type_index: data.type_index,
            frames: data.frames,
            total: data.total,
            kept_total: data.kept_total,
            left_out: data.left_out,
            collapse_recursion: data.collapse_recursion,
            folded: data.folded,
            hides_interpreters: data.hides_interpreters,
            idle: data.idle,
            value_options: data.value_options,
            cancel: data.cancel,
            least: data.least,
        }
    }

    /// Figures of this sample type from before a filter, if there was one.
    fn unfiltered(&self) -> Option<&'a UnfilteredType> {
        self.profile.unfiltered.as_ref().and_then(|all| all.types.get(self.type_index))
    }

    /// Samples that have a value.
    pub fn samples(&self) -> impl Iterator<Item = ViewSample<'_>> {
        self.samples_of_type(self.type_index)
    }

    /// The samples that have a value of another sample type, with that value.
    fn samples_of_type(&self, type_index: usize) -> impl Iterator<Item = ViewSample<'_>> {
        self.samples_between(0..self.profile.samples.len(), type_index)
    }

    /// The same of the rows of a range.
    fn samples_between(
        &self,
        rows: Range<usize>,
        type_index: usize,
    ) -> impl Iterator<Item = ViewSample<'_>> {
        let width = self.profile.sample_types.len().max(1);
        let values = self.profile.values.iter().skip(rows.start * width + type_index);
        let samples = rows.clone().zip(&self.profile.samples[rows]).zip(values.step_by(width));
        let samples = samples.map(|((row, sample), value)| (row, (sample, value)));
        let samples = samples.take_while(|&(row, _)| self.goes_on(row));
        let shown = move |v: i64| v != 0 && self.shows(v);
        samples
            .filter(move |(_, (_, v))| shown(**v))
            .map(|(row, (&sample, &value))| self.sample(row, sample, value))
    }

    /// The samples that have a value, of a part of the rows.
    fn samples_in(&self, rows: Range<usize>) -> impl Iterator<Item = ViewSample<'_>> {
        self.samples_between(rows, self.type_index)
    }

    /// The samples with these numbers.
    fn samples_of(&self, rows: &[u32]) -> impl Iterator<Item = ViewSample<'_>> {
        let width = self.profile.sample_types.len();
        let numbers = rows.iter().enumerate().take_while(|&(at, _)| self.goes_on(at));
        numbers.map(move |(_, &row)| {
            let row = row as usize;
            let value = self.profile.values[row * width + self.type_index];
            self.sample(row, self.profile.samples[row], value)
        })
    }

    fn sample(&self, row: usize, sample: SampleRow, value: i64) -> ViewSample<'_> {
        let SampleRow { stack, labels, times } = sample;
        ViewSample { stack: self.profile.stacks.get(stack), labels, value, times, row }
    }

    /// False at a check after the signal; `step`: the number of samples, or else, before.
    fn goes_on(&self, step: usize) -> bool {
        !step.is_multiple_of(cancel::STEPS) || !self.cancel.is_canceled()
    }

    /// False for the values that [`View::leave_out_negative`] excludes.
    fn shows(&self, value: i64) -> bool {
        value >= self.least
    }

    /// Excludes samples of a negative value from now on, also from the totals. Returns their
    /// number.
    pub fn leave_out_negative(&mut self) -> usize {
        let count = self.samples().filter(|s| s.value < 0).count();
        if count > 0 {
            self.left_out = count;
            self.least = 1;
            self.kept_total = self.sum();
            self.total = self.unfiltered().map_or(self.kept_total, |all| all.positive);
        }
        count
    }

    /// Kind and unit of the values, for example `cpu` and `nanoseconds`.
    pub fn value_type(&self) -> (&'a str, &'a str) {
        self.profile
            .sample_types
            .get(self.type_index)
            .map_or(("", ""), |t| (self.profile.str(t.kind), self.profile.str(t.unit)))
    }

    /// Unit of the values.
    pub fn unit(&self) -> &'a str {
        self.value_type().1
    }

    /// The 100 % of all percentages.
    pub fn whole(&self) -> i64 {
        self.value_options.percent_of.whole(self.total, self.kept_total)
    }

    /// A value as it is shown: divided, and rounded towards 0.
    pub fn shown(&self, value: i64) -> i64 {
        self.value_options.shown(value)
    }

    /// True if values are means.
    pub fn has_means(&self) -> bool {
        self.value_options.statistic == Statistic::Mean
    }

    /// Kind of the first sample type, if values are means: they are divided by its values.
    pub fn counted_kind(&self) -> Option<&'a str> {
        let first = self.profile.sample_types.first().filter(|_| self.has_means());
        first.map(|first| self.profile.str(first.kind))
    }

    /// The view of the first sample type, whose values divide sums into means; `None`: values are
    /// sums.
    fn counts(&self) -> Option<View<'a>> {
        let data = self.has_means().then(|| ViewData { type_index: 0, ..self.data() })?;
        let mut counts = View::from_data(self.profile, &data);
        counts.value_options.statistic = Statistic::Sum;
        Some(counts)
    }

    /// Takes over what a part of a profile leaves out.
    pub fn set_left_out(&mut self, part: &Part) {
        self.folded = part.folded;
        self.hides_interpreters = part.hides_interpreters;
        self.idle = part.idle.get(self.type_index).copied().unwrap_or(0);
    }

    /// What passes the filters, with what is left out of it otherwise.
    pub fn passed(&self) -> i64 {
        self.kept_total.saturating_add(self.idle)
    }

    /// Replaces the totals by means, if values are.
    fn average_totals(&mut self) {
        if !self.has_means() {
            return;
        }
        let width = self.profile.sample_types.len().max(1);
        let count = self.profile.values.iter().step_by(width);
        let count = count.fold(0i64, |sum, value| sum.saturating_add(value.saturating_abs()));
        let all = self.profile.unfiltered.as_ref().and_then(|all| all.types.first());
        self.total = mean::mean(self.total, all.map_or(count, |first| first.magnitude));
        self.kept_total = mean::mean(self.kept_total, count);
    }

    /// `value` in percent of [`View::whole`].
    pub fn percent(&self, value: i64) -> f64 {
        percent(value, self.whole())
    }

    /// Values of the label `key` among the samples of the view, largest sum first, with their sums.
    pub fn label_values(&self, key: &str) -> Vec<(String, i64)> {
        let Some(key) = self.profile.strings.find(key) else { return Vec::new() };
        let mut by_set: Vec<Option<i64>> = vec![None; self.profile.labels.len()];
        for sample in self.samples() {
            let sum = by_set[sample.labels.0 as usize].get_or_insert(0);
            *sum = sum.saturating_add(sample.value);
        }
        let mut sums = rustc_hash::FxHashMap::default();
        for (number, sum_of_set) in by_set.into_iter().enumerate() {
            let set = LabelSetId(number as u32);
            let Some(sum_of_set) = sum_of_set else { continue };
            if let Some(value) = self.profile.labels.value(set, key) {
                let sum: &mut i64 = sums.entry(value).or_default();
                *sum = sum.saturating_add(sum_of_set);
            }
        }
        let mut out: Vec<_> =
            sums.into_iter().map(|(v, sum)| (frames::label_text(self.profile, v), sum)).collect();
        out.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
        out
    }

    fn sum(&self) -> i64 {
        self.samples().fold(0i64, |sum, s| sum.saturating_add(s.value.saturating_abs()))
    }
}

/// `value` in percent of `total`; 0 if there is no total.
pub fn percent(value: i64, total: i64) -> f64 {
    if total == 0 { 0.0 } else { value as f64 * 100.0 / total as f64 }
}

/// Ids of label keys; `None` for keys that the profile does not contain.
fn key_ids(profile: &Profile, keys: &[String]) -> Vec<Option<StrId>> {
    keys.iter().map(|k| profile.strings.find(k)).collect()
}
