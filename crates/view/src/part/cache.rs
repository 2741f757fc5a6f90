//! Parts of profiles, kept so that another view of the same samples does not filter again.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use super::{Naming, Part, in_order};
use crate::query::{AddedFilter, Query, QueryError};
use crate::{Cancel, LeafFrames};
use profile::Profile;

/// Results that are kept although nobody has them: those of the last queries.
const KEPT: usize = 2;

/// Parts that somebody has, and the last ones.
#[derive(Default)]
pub struct PartCache {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    entries: Vec<Entry>,
    last: Vec<Arc<Profile>>,
}

/// A part of a profile.
struct Entry {
    whole: Weak<Profile>,
    filters: Vec<AddedFilter>,
    naming: Naming,
    profile: Weak<Profile>,
    /// The part without its profile.
    facts: Facts,
}

/// What is known of a part, apart from its samples.
#[derive(Clone)]
struct Facts {
    unmatched: Vec<AddedFilter>,
    without_time: Vec<i64>,
    start: u64,
    has_times: bool,
    folded: Option<LeafFrames>,
    hides_interpreters: bool,
    idle: Vec<i64>,
    tag_leaf: Vec<String>,
}

impl Entry {
    fn part(&self) -> Option<Part> {
        let facts = self.facts.clone();
        let Facts {
            unmatched,
            without_time,
            start,
            has_times,
            folded,
            hides_interpreters,
            idle,
            tag_leaf,
        } = facts;
        let profile = self.profile.upgrade()?;
        Some(Part {
            profile,
            unmatched,
            without_time,
            start,
            has_times,
            folded,
            hides_interpreters,
            idle,
            tag_leaf,
        })
    }
}

impl PartCache {
    /// The part of a profile that a query is about.
    ///
    /// # Errors
    ///
    /// As of [`Part::new`].
    pub fn part(
        &self,
        profile: &Arc<Profile>,
        query: &Query,
        cancel: &Cancel,
    ) -> Result<Part, QueryError> {
        let (filters, naming) = (in_order(&query.filters), query.naming(profile));
        if let Some(part) = self.known(profile, &filters, naming) {
            return Ok(part);
        }
        let part = self.filtered(profile, &filters, cancel)?.named(naming, cancel)?;
        if !filters.is_empty() || naming != Naming::default() {
            self.keep(&part);
        }
        if naming != Naming::default() {
            self.add(profile, &filters, naming, &part);
        }
        Ok(part)
    }

    fn filtered(
        &self,
        profile: &Arc<Profile>,
        filters: &[AddedFilter],
        cancel: &Cancel,
    ) -> Result<Part, QueryError> {
        // The known part through as many of the filters as possible.
        let known = (1..=filters.len()).rev().find_map(|count| {
            let (first, rest) = filters.split_at(count);
            Some((self.known(profile, first, Naming::default())?, rest))
        });
        let (start, rest) = known.unwrap_or_else(|| (Part::whole(profile.clone()), filters));
        let part = start.filtered(rest, cancel)?;
        if !rest.is_empty() {
            self.add(profile, filters, Naming::default(), &part);
        }
        Ok(part)
    }

    fn known(
        &self,
        profile: &Arc<Profile>,
        filters: &[AddedFilter],
        naming: Naming,
    ) -> Option<Part> {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let is_it = |entry: &&Entry| {
            entry.filters == filters
                && entry.naming == naming
                && std::ptr::eq(entry.whole.as_ptr(), Arc::as_ptr(profile))
        };
        state.entries.iter().find(is_it)?.part()
    }

    fn add(&self, whole: &Arc<Profile>, filters: &[AddedFilter], naming: Naming, part: &Part) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.entries.retain(|entry| entry.profile.strong_count() > 0);
        let Part {
            profile,
            unmatched,
            without_time,
            start,
            has_times,
            folded,
            hides_interpreters,
            idle,
            tag_leaf,
        } = part.clone();
        state.entries.push(Entry {
            whole: Arc::downgrade(whole),
            filters: filters.to_vec(),
            naming,
            profile: Arc::downgrade(&profile),
            facts: Facts {
                unmatched,
                without_time,
                start,
                has_times,
                folded,
                hides_interpreters,
                idle,
                tag_leaf,
            },
        });
    }

    /// Keeps the result of a query, but for those before the last ones.
    fn keep(&self, part: &Part) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.last.len() == KEPT {
            state.last.remove(0);
        }
        state.last.push(part.profile.clone());
    }
}
