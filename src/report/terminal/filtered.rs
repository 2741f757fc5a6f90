//! Filtered profiles, kept so that another view of the same samples does not filter again.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use super::query::AddedFilter;
use profile::Profile;
use view::{Cancel, Filter};

/// Results that are kept although no page has them: those of the last queries.
const KEPT: usize = 2;

/// A profile through filters.
struct Entry {
    of: Weak<Profile>,
    filters: Vec<AddedFilter>,
    part: Weak<Profile>,
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
    /// The part of a profile that passes the filters, one after the other. Fails after `cancel`.
    pub fn filtered(
        &self,
        profile: &Arc<Profile>,
        filters: &[AddedFilter],
        cancel: &Cancel,
    ) -> Result<Arc<Profile>, String> {
        let known = self.longest(profile, filters);
        let (start, rest) = known.unwrap_or_else(|| (profile.clone(), filters));
        if rest.is_empty() {
            return Ok(start);
        }
        let rest = rest.iter().map(AddedFilter::filter).collect::<Result<Vec<Filter>, String>>()?;
        let mut part = Profile::clone(&start);
        for filter in rest {
            part = filter.apply_until(part, cancel).profile;
            if cancel.is_canceled() {
                return Err("canceled".to_owned());
            }
        }
        let part = Arc::new(part);
        self.add(profile, filters, &part);
        Ok(part)
    }

    /// The known part through as many of the filters as possible, and the other filters.
    fn longest<'f>(
        &self,
        profile: &Arc<Profile>,
        filters: &'f [AddedFilter],
    ) -> Option<(Arc<Profile>, &'f [AddedFilter])> {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        (1..=filters.len()).rev().find_map(|count| {
            let (first, rest) = filters.split_at(count);
            let is_it = |entry: &&Entry| {
                entry.filters == first && std::ptr::eq(entry.of.as_ptr(), Arc::as_ptr(profile))
            };
            Some((state.entries.iter().find(is_it)?.part.upgrade()?, rest))
        })
    }

    fn add(&self, profile: &Arc<Profile>, filters: &[AddedFilter], part: &Arc<Profile>) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.entries.retain(|entry| entry.part.strong_count() > 0);
        let of = Arc::downgrade(profile);
        state.entries.push(Entry { of, filters: filters.to_vec(), part: Arc::downgrade(part) });
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
    use view::testing::answers;

    fn focus(text: &str) -> AddedFilter {
        AddedFilter { condition: Condition::Focus, value: text.to_owned() }
    }

    #[test]
    fn equal_filters_are_applied_once() {
        let profile = Arc::new(answers());
        let cache = FilterCache::default();
        let get = |filters: &[AddedFilter]| {
            cache.filtered(&profile, filters, &Cancel::default()).unwrap()
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
        assert!(!Arc::ptr_eq(&part, &foo));
    }

    #[test]
    fn what_no_page_has_is_freed() {
        let profile = Arc::new(answers());
        let cache = FilterCache::default();
        let get =
            |text: &str| cache.filtered(&profile, &[focus(text)], &Cancel::default()).unwrap();
        let first = Arc::downgrade(&get("foo"));
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
        assert_eq!(found.map(|part| part.samples.len()).ok(), Some(4));
        let wrong = cache.filtered(&profile, &[focus("(")], &Cancel::default());
        assert_eq!(wrong.err().as_deref(), Some("unclosed group"));
    }
}
