//! The part of a profile that a query is about.

mod cache;
mod passes;

use std::sync::Arc;

use super::idle::leave_out_idle;
use super::interpreters::hide_interpreters;
use super::leaf_frames::fold_leaf_frames;
use super::query::{AddedFilter, Query, QueryError, Timed};
use super::{Cancel, Filter, LeafFrames, fold_inlined, name_packages};
use passes::{Pass, passes};
use profile::{Profile, StrId};

pub use cache::PartCache;

/// The part of a profile that a query is about: what passes its filters, with the names of frames
/// that it asks for.
#[derive(Clone, Debug)]
pub struct Part {
    /// The samples.
    pub profile: Arc<Profile>,
    /// The filters that nothing in the profile meets.
    pub unmatched: Vec<AddedFilter>,
    /// The sums of samples without a time that a filter by time has left out, by sample type.
    pub without_time: Vec<i64>,
    /// Its start, in microseconds since that of the recording.
    pub start: u64,
    /// The profile has times of samples.
    pub has_times: bool,
    /// The leaf frames that are folded into their callers, if there are any.
    pub folded: Option<LeafFrames>,
    /// An interpreter's own frames are left out of stacks.
    pub hides_interpreters: bool,
    /// The sums by sample type of idle kernel threads that are left out; none if there are none.
    pub idle: Vec<i64>,
    /// The keys of labels whose values are leaf frames.
    pub tag_leaf: Vec<String>,
}

/// The frames of a view, and their names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Naming {
    /// Inlined functions have the names of those that they were inlined into, see
    /// [`fold_inlined`].
    pub folds_inlined: bool,
    /// Functions have the names of their packages, see [`name_packages`].
    pub packages: bool,
    /// The leaf frames that are folded into their callers.
    pub folds: Option<LeafFrames>,
    /// The time in which kernel threads wait for work is left out.
    pub leaves_out_idle: bool,
    /// The frames of interpreters are hidden in stacks with functions of their programs.
    pub hides_interpreters: bool,
}

impl Naming {
    /// Changes the frames of a profile, of which those of the labels `tag_leaf` stay. Returns what it
    /// has done of what it was to do.
    fn apply(self, profile: &mut Profile, tag_leaf: &[String], cancel: &Cancel) -> Naming {
        // Functions of interpreters say what is waited for (`take_gil`, `ObjectMonitor::enter`).
        let fold = |leaves| fold_leaf_frames(profile, leaves, tag_leaf, cancel);
        let is_folded = self.folds.is_some_and(fold);
        let hides_interpreters = self.hides_interpreters && hide_interpreters(profile, cancel);
        if self.folds_inlined {
            fold_inlined(profile);
        }
        if self.packages {
            name_packages(profile);
        }
        Naming { folds: self.folds.filter(|_| is_folded), hides_interpreters, ..self }
    }
}

impl Part {
    /// All of a profile.
    pub fn whole(profile: Arc<Profile>) -> Part {
        Part {
            has_times: !profile.times.is_empty(),
            profile,
            unmatched: Vec::new(),
            without_time: Vec::new(),
            start: 0,
            folded: None,
            hides_interpreters: false,
            idle: Vec::new(),
            tag_leaf: Vec::new(),
        }
    }

    /// The part that a query is about. The profile is copied only if it is changed, and others have
    /// it.
    ///
    /// # Errors
    ///
    /// A filter is none, or the profile lacks the times that it needs; `cancel`.
    pub fn new(profile: Arc<Profile>, query: &Query, cancel: &Cancel) -> Result<Part, QueryError> {
        let naming = query.naming(&profile);
        Part::whole(profile).filtered(&query.filters, cancel)?.named(naming, cancel)
    }

    /// What passes the filters, one after the other; the one by time is the first.
    ///
    /// # Errors
    ///
    /// As of [`Part::new`].
    pub fn filtered(self, filters: &[AddedFilter], cancel: &Cancel) -> Result<Part, QueryError> {
        let passes = passes(&in_order(filters))?;
        if filters.iter().any(AddedFilter::is_time) && !self.has_times {
            return Err(QueryError::NoTimes(Timed::Filter));
        }
        let mut part = self;
        for Pass { filter, added } in passes {
            if let Some(range) = filter.time {
                // A range within a range begins after that.
                part.start = part.start.saturating_add(range.start(&part.profile));
            }
            part.tag_leaf.extend(filter.tag_leaf.iter().cloned());
            let filtered = filter.apply_until(Arc::unwrap_or_clone(part.profile), cancel);
            if cancel.is_canceled() {
                return Err(QueryError::Canceled);
            }
            part.profile = Arc::new(filtered.profile);
            add(&mut part.without_time, &filtered.without_time);
            let is_unmatched = |added: &AddedFilter| filtered.unmatched.contains(&added.condition);
            part.unmatched.extend(added.into_iter().filter(is_unmatched));
        }
        Ok(part)
    }

    /// The same with other frames.
    ///
    /// # Errors
    ///
    /// `cancel`.
    pub fn named(self, naming: Naming, cancel: &Cancel) -> Result<Part, QueryError> {
        if naming == Naming::default() {
            return Ok(self);
        }
        let mut profile = Arc::unwrap_or_clone(self.profile);
        let idle = if naming.leaves_out_idle { leave_out_idle(&mut profile) } else { Vec::new() };
        let done = naming.apply(&mut profile, &self.tag_leaf, cancel);
        if cancel.is_canceled() {
            return Err(QueryError::Canceled);
        }
        let Naming { folds: folded, hides_interpreters, .. } = done;
        Ok(Part { profile: Arc::new(profile), folded, hides_interpreters, idle, ..self })
    }

    /// True if a sample has a value of this type.
    pub fn has_values(&self, type_index: usize) -> bool {
        let width = self.profile.sample_types.len().max(1);
        self.profile.values.iter().skip(type_index).step_by(width).any(|&value| value != 0)
    }

    /// The reason why nothing is shown, with the filters that may be wrong.
    pub fn explained(&self, reason: String) -> String {
        let notes = self.unmatched.iter().map(AddedFilter::unmatched);
        [reason].into_iter().chain(notes).collect::<Vec<_>>().join("; ")
    }
}

/// Adds sums by sample type to others, of which there may be none yet.
fn add(sums: &mut Vec<i64>, more: &[i64]) {
    sums.resize(sums.len().max(more.len()), 0);
    sums.iter_mut().zip(more).for_each(|(sum, value)| *sum = sum.saturating_add(*value));
}

/// The filters in the order in which they apply: a range of time selects the recording that the others
/// select from.
fn in_order(filters: &[AddedFilter]) -> Vec<AddedFilter> {
    let (first, others): (Vec<_>, Vec<_>) = filters.iter().cloned().partition(AddedFilter::is_time);
    [first, others].concat()
}

/// A profile without the frames that it says are of no interest ([`Profile::drop_frames`]). No query
/// sees them.
pub fn without_dropped_frames(profile: Profile) -> Profile {
    match profile.drop_frames {
        StrId::EMPTY => profile,
        _ => Filter::default().apply(profile).profile,
    }
}

#[cfg(test)]
mod tests;
