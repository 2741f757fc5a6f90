//! pprof's filters, and a few of prof's own: a [`Filter`] is applied to a profile once, so that
//! every view, and a file, has the same samples.
//!
//! The order is pprof's: frames that the profile itself drops ([`Profile::drop_frames`]), frames of
//! labels, samples and frames by name, `show_from`, samples by label, labels by key, `prune_from`.

pub(crate) mod edit;
mod matcher;
mod names;
mod prune;
mod select;
mod tag_frames;
mod tags;
mod units;

#[cfg(test)]
mod tests;

pub(crate) use prune::without_parameters;
pub use select::Selector;
pub(super) use tags::label_units;
pub use tags::{TagError, TagMatch};
pub(super) use units::text as number_text;

use profile::{Profile, Unfiltered, UnfilteredType};
use regex::Regex;

use super::time::{TimeRange, select_time};
use super::{Cancel, quality};

/// Selection of a profile's samples, frames and labels. A frame matches a regular expression if its
/// function's name, its source file or its binary's path does.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    /// Only samples with a frame that matches.
    pub focus: Option<Regex>,
    /// No samples with a frame that matches.
    pub ignore: Option<Regex>,
    /// Only frames that match.
    pub show: Option<Regex>,
    /// No frames that match.
    pub hide: Option<Regex>,
    /// Only samples with a frame that matches, without the callers of the outermost one.
    pub show_from: Option<Regex>,
    /// No callees of the innermost frame whose function matches.
    pub prune_from: Option<Regex>,
    /// Only samples with labels that match.
    pub tag_focus: Option<TagMatch>,
    /// No samples with labels that match.
    pub tag_ignore: Option<TagMatch>,
    /// Only labels whose key matches.
    pub tag_show: Option<Regex>,
    /// No labels whose key matches.
    pub tag_hide: Option<Regex>,
    /// Keys of labels whose values become outermost frames, the first one outermost.
    pub tag_root: Vec<String>,
    /// Keys of labels whose values become innermost frames, the last one innermost.
    pub tag_leaf: Vec<String>,
    /// Only samples of this thread.
    pub thread: Option<Selector>,
    /// Only samples of this process.
    pub process: Option<Selector>,
    /// Only samples with a frame in this binary.
    pub binary: Option<Selector>,
    /// Only samples within this range of time. It applies before the others, and what is outside is
    /// not counted in [`Profile::unfiltered`]: the part is like a shorter recording.
    pub time: Option<TimeRange>,
}

/// One condition of a [`Filter`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Condition {
    /// [`Filter::focus`].
    Focus,
    /// [`Filter::ignore`].
    Ignore,
    /// [`Filter::show`].
    Show,
    /// [`Filter::hide`].
    Hide,
    /// [`Filter::show_from`].
    ShowFrom,
    /// [`Filter::prune_from`].
    PruneFrom,
    /// [`Filter::tag_focus`].
    TagFocus,
    /// [`Filter::tag_ignore`].
    TagIgnore,
    /// [`Filter::tag_show`].
    TagShow,
    /// [`Filter::tag_hide`].
    TagHide,
    /// [`Filter::tag_root`].
    TagRoot,
    /// [`Filter::tag_leaf`].
    TagLeaf,
    /// [`Filter::thread`].
    Thread,
    /// [`Filter::process`].
    Process,
    /// [`Filter::binary`].
    Binary,
    /// [`Filter::time`].
    Time,
}

impl Condition {
    /// All of them, in the order in which a [`Filter`] applies them.
    pub const ALL: [Condition; 16] = [
        Condition::Time,
        Condition::Process,
        Condition::Thread,
        Condition::TagRoot,
        Condition::TagLeaf,
        Condition::Binary,
        Condition::Focus,
        Condition::Ignore,
        Condition::Hide,
        Condition::Show,
        Condition::ShowFrom,
        Condition::TagFocus,
        Condition::TagIgnore,
        Condition::TagShow,
        Condition::TagHide,
        Condition::PruneFrom,
    ];

    /// Its name, as in pprof where pprof has it.
    pub fn name(self) -> &'static str {
        match self {
            Condition::Focus => "focus",
            Condition::Ignore => "ignore",
            Condition::Show => "show",
            Condition::Hide => "hide",
            Condition::ShowFrom => "show-from",
            Condition::PruneFrom => "prune-from",
            Condition::TagFocus => "tagfocus",
            Condition::TagIgnore => "tagignore",
            Condition::TagShow => "tagshow",
            Condition::TagHide => "taghide",
            Condition::TagRoot => "tagroot",
            Condition::TagLeaf => "tagleaf",
            Condition::Thread => "thread",
            Condition::Process => "process",
            Condition::Binary => "binary",
            Condition::Time => "time",
        }
    }

    /// The reason why a profile does not meet it.
    pub fn nothing_found(self) -> &'static str {
        match self {
            Condition::TagFocus | Condition::TagIgnore => "no sample matches",
            Condition::TagShow | Condition::TagHide => "no label matches",
            Condition::TagRoot | Condition::TagLeaf => "no sample has such a label",
            Condition::Thread => "no thread matches",
            Condition::Process => "no process matches",
            Condition::Binary => "no binary matches",
            Condition::Time => "no sample in this range",
            Condition::Focus
            | Condition::Ignore
            | Condition::Show
            | Condition::Hide
            | Condition::ShowFrom
            | Condition::PruneFrom => "no frame matches",
        }
    }
}

/// A profile after a [`Filter`].
#[derive(Debug)]
pub struct Filtered {
    /// The samples that pass. [`Profile::unfiltered`] has the figures of all.
    pub profile: Profile,
    /// Conditions that nothing in the profile meets.
    pub unmatched: Vec<Condition>,
    /// The sums of samples without a time that [`Filter::time`] has left out, by sample type.
    pub without_time: Vec<i64>,
}

impl Filter {
    /// True if it leaves every profile as it is, apart from its own
    /// [`drop_frames`](Profile::drop_frames).
    pub fn is_empty(&self) -> bool {
        self.time.is_none() && !self.has_conditions_but_time()
    }

    fn has_conditions_but_time(&self) -> bool {
        self.has_frame_conditions()
            || self.tag_focus.is_some()
            || self.tag_ignore.is_some()
            || self.tag_show.is_some()
            || self.tag_hide.is_some()
            || !self.tag_root.is_empty()
            || !self.tag_leaf.is_empty()
            || self.thread.is_some()
            || self.process.is_some()
    }

    fn has_frame_conditions(&self) -> bool {
        let regexes = [&self.focus, &self.ignore, &self.show, &self.hide];
        regexes.into_iter().chain([&self.show_from, &self.prune_from]).any(Option::is_some)
            || self.binary.is_some()
    }

    /// The profile through this filter. Samples that become equal are added up.
    ///
    /// Samples without a stack pass, unless a frame is required of them (`focus`, `show`,
    /// `show_from`, `binary`); pprof leaves them out even without a filter.
    pub fn apply(&self, profile: Profile) -> Filtered {
        self.apply_until(profile, &Cancel::default())
    }

    /// The same. After `cancel`, any part of the samples is missing.
    pub fn apply_until(&self, profile: Profile, cancel: &Cancel) -> Filtered {
        let mut profile = profile;
        let (mut unmatched, mut without_time) = (Vec::new(), Vec::new());
        if let Some(range) = self.time {
            let part = select_time(profile, range);
            (profile, without_time) = (part.profile, part.without_time);
            unmatched.extend(profile.samples.is_empty().then_some(Condition::Time));
        }
        prune::drop_uninteresting(&mut profile, cancel);
        if !self.has_conditions_but_time() || cancel.is_canceled() {
            return Filtered { profile, unmatched, without_time };
        }
        keep_figures(&mut profile);
        let units = tags::label_units(&profile);
        self.select_by_label(&mut profile, &mut unmatched);
        tag_frames::add(&mut profile, self, &mut unmatched);
        if self.has_frame_conditions() {
            names::filter(&mut profile, self, &mut unmatched, cancel);
        }
        if cancel.is_canceled() {
            return Filtered { profile, unmatched, without_time };
        }
        self.filter_by_tag(&mut profile, &units, &mut unmatched);
        self.filter_tags(&mut profile, &mut unmatched);
        if let Some(regex) = &self.prune_from {
            let found = prune::from(&mut profile, regex, cancel);
            unmatched.extend((!found).then_some(Condition::PruneFrom));
        }
        let keeps_stacks_and_labels = self.hide.is_none()
            && self.show.is_none()
            && self.show_from.is_none()
            && self.prune_from.is_none()
            && self.tag_show.is_none()
            && self.tag_hide.is_none();
        if !keeps_stacks_and_labels {
            edit::add_up(&mut profile);
        }
        Filtered { profile, unmatched, without_time }
    }

    fn select_by_label(&self, profile: &mut Profile, unmatched: &mut Vec<Condition>) {
        use profile::label::{PID, PROCESS, THREAD, TID};
        let selections = [
            (&self.process, Condition::Process, PROCESS, PID),
            (&self.thread, Condition::Thread, THREAD, TID),
        ];
        for (selector, condition, name, id) in selections {
            let Some(selector) = selector else { continue };
            let keep = selector.label_sets(profile, name, id);
            unmatched.extend((!keep.contains(&true)).then_some(condition));
            edit::retain(profile, |sample| keep[sample.labels.0 as usize]);
        }
    }

    fn filter_by_tag(
        &self,
        profile: &mut Profile,
        units: &tags::LabelUnits,
        unmatched: &mut Vec<Condition>,
    ) {
        if self.tag_focus.is_none() && self.tag_ignore.is_none() {
            return;
        }
        let matches =
            |tag: &Option<TagMatch>| tag.as_ref().map(|tag| tag.label_sets(profile, units));
        let focus = matches(&self.tag_focus);
        let ignore = matches(&self.tag_ignore);
        let missing = |sets: &Option<Vec<bool>>| sets.as_ref().is_some_and(|s| !s.contains(&true));
        unmatched.extend(missing(&focus).then_some(Condition::TagFocus));
        unmatched.extend(missing(&ignore).then_some(Condition::TagIgnore));
        edit::retain(profile, |sample| {
            let labels = sample.labels.0 as usize;
            focus.as_ref().is_none_or(|sets| sets[labels])
                && !ignore.as_ref().is_some_and(|sets| sets[labels])
        });
    }

    fn filter_tags(&self, profile: &mut Profile, unmatched: &mut Vec<Condition>) {
        if self.tag_show.is_none() && self.tag_hide.is_none() {
            return;
        }
        let found = tags::retain_keys(profile, self.tag_show.as_ref(), self.tag_hide.as_ref());
        unmatched.extend((self.tag_show.is_some() && !found.shown).then_some(Condition::TagShow));
        unmatched.extend((self.tag_hide.is_some() && !found.hidden).then_some(Condition::TagHide));
    }
}

/// Keeps the figures of a profile from before the first change of its samples.
pub(super) fn keep_figures(profile: &mut Profile) {
    if profile.unfiltered.is_none() {
        profile.unfiltered = Some(Box::new(figures(profile)));
    }
}

/// Figures of the profile as it is.
fn figures(profile: &Profile) -> Unfiltered {
    let width = profile.sample_types.len().max(1);
    let values = |index: usize| {
        let values = || profile.values.iter().skip(index).step_by(width);
        let (events, effective) = quality::sample_sizes(profile, index);
        UnfilteredType {
            sum: profile.total(index),
            magnitude: values().fold(0i64, |sum, v| sum.saturating_add(v.saturating_abs())),
            positive: values().fold(0i64, |sum, &v| sum.saturating_add(v.max(0))),
            events,
            effective,
        }
    };
    Unfiltered {
        samples: profile.samples.len(),
        types: (0..profile.sample_types.len()).map(values).collect(),
    }
}
