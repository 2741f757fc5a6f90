//! Filtered profiles, kept so that another view of the same samples does not filter again.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use profile::Profile;
use view::query::AddedFilter;
use view::{Cancel, Filter};

/// Results that are kept although no page has them: those of the last queries.
const KEPT: usize = 2;

/// The reason why a filter by time fails.
const NO_TIMES: &str = "the profile has no times of samples; prof record --timestamps keeps them";

/// What passes the filters of a page.
#[derive(Clone, Debug)]
pub struct Part {
    /// The samples.
    pub profile: Arc<Profile>,
    /// The filters that nothing in the profile meets.
    pub unmatched: Vec<AddedFilter>,
    /// The sums of samples without a time that a filter by time has left out, by sample type.
    pub without_time: Vec<i64>,
}

impl Part {
    /// All of a profile.
    pub fn whole(profile: &Arc<Profile>) -> Part {
        Part { profile: profile.clone(), unmatched: Vec::new(), without_time: Vec::new() }
    }

    /// The reason why nothing is shown, with the filters that may be wrong.
    pub fn explained(&self, reason: String) -> String {
        let notes = self.unmatched.iter().map(AddedFilter::unmatched);
        [reason].into_iter().chain(notes).collect::<Vec<_>>().join("; ")
    }
}

/// A profile through filters.
struct Entry {
    whole: Weak<Profile>,
    filters: Vec<AddedFilter>,
    part: Weak<Profile>,
    unmatched: Vec<AddedFilter>,
    without_time: Vec<i64>,
}

/// Filtered profiles that pages have, and the last ones.
#[derive(Default)]
pub struct FilterCache {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    entries: Vec<Entry>,
    last: Vec<Arc<Profile>>,
}

impl FilterCache {
    /// The part of a profile that passes the filters, one after the other; the one by time is the
    /// first. Fails after `cancel`.
    pub fn filtered(
        &self,
        profile: &Arc<Profile>,
        filters: &[AddedFilter],
        cancel: &Cancel,
    ) -> Result<Part, String> {
        let (first, others): (Vec<_>, Vec<_>) = filters.iter().cloned().partition(|f| f.is_time());
        let filters = &[first, others].concat();
        let known = self.longest(profile, filters);
        let (start, rest) = known.unwrap_or_else(|| (Part::whole(profile), filters));
        if rest.is_empty() {
            return Ok(start);
        }
        let applied = rest.iter().map(AddedFilter::filter);
        let applied = applied.collect::<Result<Vec<Filter>, String>>()?;
        let Part { profile: whole, mut unmatched, mut without_time } = start;
        if whole.times.is_empty() && rest.iter().any(AddedFilter::is_time) {
            return Err(NO_TIMES.to_owned());
        }
        let mut part = Profile::clone(&whole);
        for (filter, added) in applied.iter().zip(rest) {
            let filtered = filter.apply_until(part, cancel);
            if added.is_time() {
                without_time.clone_from(&filtered.without_time);
            }
            if cancel.is_canceled() {
                return Err("canceled".to_owned());
            }
            part = filtered.profile;
            unmatched.extend((!filtered.unmatched.is_empty()).then(|| added.clone()));
        }
        let part = Part { profile: Arc::new(part), unmatched, without_time };
        self.add(profile, filters, &part);
        Ok(part)
    }

    /// The known part through as many of the filters as possible, and the other filters.
    fn longest<'f>(
        &self,
        profile: &Arc<Profile>,
        filters: &'f [AddedFilter],
    ) -> Option<(Part, &'f [AddedFilter])> {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        (1..=filters.len()).rev().find_map(|count| {
            let (first, rest) = filters.split_at(count);
            let is_it = |entry: &&Entry| {
                entry.filters == first && std::ptr::eq(entry.whole.as_ptr(), Arc::as_ptr(profile))
            };
            let entry = state.entries.iter().find(is_it)?;
            let profile = entry.part.upgrade()?;
            let (unmatched, without_time) = (entry.unmatched.clone(), entry.without_time.clone());
            Some((Part { profile, unmatched, without_time }, rest))
        })
    }

    fn add(&self, profile: &Arc<Profile>, filters: &[AddedFilter], part: &Part) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.entries.retain(|entry| entry.part.strong_count() > 0);
        let Part { profile: part, unmatched, without_time } = part;
        state.entries.push(Entry {
            whole: Arc::downgrade(profile),
            filters: filters.to_vec(),
            part: Arc::downgrade(part),
            unmatched: unmatched.clone(),
            without_time: without_time.clone(),
        });
        if state.last.len() == KEPT {
            state.last.remove(0);
        }
        state.last.push(part.clone());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use view::Condition;
    use view::testing::{answers, processes};

    fn focus(text: &str) -> AddedFilter {
        AddedFilter { condition: Condition::Focus, value: text.to_owned() }
    }

    #[test]
    fn equal_filters_are_applied_once() {
        let profile = Arc::new(answers());
        let cache = FilterCache::default();
        let get = |filters: &[AddedFilter]| {
            cache.filtered(&profile, filters, &Cancel::default()).unwrap().profile
        };
        assert!(Arc::ptr_eq(&get(&[]), &profile));
        let foo = get(&[focus("foo")]);
        assert!(Arc::ptr_eq(&get(&[focus("foo")]), &foo));
        let both = get(&[focus("foo"), focus("bar")]);
        assert!(both.samples.len() < foo.samples.len());
        assert!(Arc::ptr_eq(&get(&[focus("foo")]), &foo));
        // Another profile has other parts.
        let other = Arc::new(answers());
        let part = cache.filtered(&other, &[focus("foo")], &Cancel::default()).unwrap();
        assert!(!Arc::ptr_eq(&part.profile, &foo));
    }

    #[test]
    fn what_no_page_has_is_freed() {
        let profile = Arc::new(answers());
        let cache = FilterCache::default();
        let get =
            |text: &str| cache.filtered(&profile, &[focus(text)], &Cancel::default()).unwrap();
        let first = Arc::downgrade(&get("foo").profile);
        assert!(first.upgrade().is_some());
        get("bar");
        get("main");
        assert!(first.upgrade().is_none());
    }

    #[test]
    fn a_canceled_filter_fails() {
        let profile = Arc::new(answers());
        let cancel = Cancel::new();
        cancel.cancel();
        let cache = FilterCache::default();
        let found = cache.filtered(&profile, &[focus("foo")], &cancel);
        assert_eq!(found.err().as_deref(), Some("canceled"));
        // The incomplete part is not kept.
        let found = cache.filtered(&profile, &[focus("foo")], &Cancel::default());
        assert_eq!(found.map(|part| part.profile.samples.len()).ok(), Some(4));
        let wrong = cache.filtered(&profile, &[focus("(")], &Cancel::default());
        assert_eq!(wrong.err().as_deref(), Some("unclosed group"));
    }

    #[test]
    fn a_range_of_time_is_selected_before_samples_are() {
        let profile = Arc::new(view::testing::phases());
        let time = AddedFilter { condition: Condition::Time, value: "1s..2s".to_owned() };
        let cache = FilterCache::default();
        let get = |filters: &[AddedFilter]| {
            cache.filtered(&profile, filters, &Cancel::default()).unwrap()
        };
        // As in `prof report --time 1s..2s --focus .`.
        for filters in [[time.clone(), focus(".")], [focus("."), time.clone()]] {
            let part = get(&filters);
            let whole = part.profile.unfiltered.as_ref().unwrap();
            assert_eq!((part.profile.total(0), whole.types[0].sum), (10, 10));
            assert_eq!(part.without_time, [1, 100_000_000]);
        }
        let of_none = Arc::new(answers());
        let none = cache.filtered(&of_none, &[time], &Cancel::default());
        assert_eq!(none.err().as_deref(), Some(NO_TIMES));
    }

    #[test]
    fn filters_that_nothing_meets_are_known() {
        let profile = Arc::new(answers());
        let cache = FilterCache::default();
        let wrong = |filters: &[AddedFilter]| -> Vec<String> {
            let part = cache.filtered(&profile, filters, &Cancel::default()).unwrap();
            part.unmatched.iter().map(AddedFilter::unmatched).collect()
        };
        let hide = AddedFilter { condition: Condition::Hide, value: "typo".to_owned() };
        let filters = [focus("foo"), hide.clone(), focus("bar")];
        assert_eq!(wrong(&filters[..1]), Vec::<String>::new());
        for _ in 0..2 {
            assert_eq!(wrong(&filters[..2]), ["hide=typo: no frame matches"]);
            assert_eq!(wrong(&filters), ["hide=typo: no frame matches"]);
        }
        let part = Part { unmatched: vec![hide], ..Part::whole(&profile) };
        assert_eq!(part.explained("nothing".to_owned()), "nothing; hide=typo: no frame matches");
    }

    #[test]
    fn frames_that_a_profile_drops_are_dropped_before_the_filters() {
        let mut profile = processes();
        profile.drop_frames = profile.strings.intern("serve");
        let profile = Arc::new(profile);
        let filters = [
            AddedFilter { condition: Condition::TagRoot, value: "process".to_owned() },
            focus("query"),
        ];
        let cache = FilterCache::default();
        let part = cache.filtered(&profile, &filters, &Cancel::default()).unwrap();
        assert_eq!((part.profile.samples.len(), part.unmatched), (1, Vec::new()));
    }
}
