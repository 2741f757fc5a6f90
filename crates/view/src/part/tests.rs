use super::*;
use crate::query::{Groups, Rows, Shown};
use crate::testing::{answers, frames_profile, phases, processes};
use crate::{Condition, Granularity};

fn focus(text: &str) -> AddedFilter {
    added(Condition::Focus, text)
}

fn added(condition: Condition, value: &str) -> AddedFilter {
    AddedFilter { condition, value: value.to_owned() }
}

fn query(filters: &[AddedFilter]) -> Query {
    Query { filters: filters.to_vec(), ..Query::new(Shown::functions()) }
}

fn part(profile: &Arc<Profile>, filters: &[AddedFilter]) -> Result<Part, QueryError> {
    PartCache::default().part(profile, &query(filters), &Cancel::default())
}

#[test]
fn equal_filters_are_applied_once() {
    let profile = Arc::new(answers());
    let cache = PartCache::default();
    let get = |filters: &[AddedFilter]| {
        cache.part(&profile, &query(filters), &Cancel::default()).unwrap().profile
    };
    assert!(Arc::ptr_eq(&get(&[]), &profile));
    let foo = get(&[focus("foo")]);
    assert!(Arc::ptr_eq(&get(&[focus("foo")]), &foo));
    let both = get(&[focus("foo"), focus("bar")]);
    assert!(both.samples.len() < foo.samples.len());
    assert!(Arc::ptr_eq(&get(&[focus("foo")]), &foo));
    // Another profile has other parts.
    let other = Arc::new(answers());
    let part = cache.part(&other, &query(&[focus("foo")]), &Cancel::default()).unwrap();
    assert!(!Arc::ptr_eq(&part.profile, &foo));
}

#[test]
fn packages_are_named_once_for_a_part() {
    let profile = Arc::new(answers());
    let cache = PartCache::default();
    let get = |rows: Rows, folds_inlined: bool| {
        let query = Query { folds_inlined, ..Query::new(Shown::table(rows)) };
        cache.part(&profile, &query, &Cancel::default()).unwrap().profile
    };
    let packages = get(Rows::Packages, false);
    assert!(Arc::ptr_eq(&get(Rows::Packages, false), &packages));
    let granularity = Granularity { binary: true, ..Granularity::PACKAGES };
    let groups = Groups { granularity, labels: vec!["process".to_owned()] };
    assert!(Arc::ptr_eq(&get(Rows::from(groups), false), &packages));
    assert!(!Arc::ptr_eq(&get(Rows::Packages, true), &packages));
    assert!(Arc::ptr_eq(&get(Rows::Functions, false), &profile));
}

#[test]
fn what_nobody_has_is_freed() {
    let profile = Arc::new(answers());
    let cache = PartCache::default();
    let get =
        |text: &str| cache.part(&profile, &query(&[focus(text)]), &Cancel::default()).unwrap();
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
    let cache = PartCache::default();
    let found = cache.part(&profile, &query(&[focus("foo")]), &cancel);
    assert!(matches!(found, Err(QueryError::Canceled)));
    // The incomplete part is not kept.
    let found = cache.part(&profile, &query(&[focus("foo")]), &Cancel::default());
    assert_eq!(found.map(|part| part.profile.samples.len()).ok(), Some(4));
    let wrong = part(&profile, &[focus("foo"), focus("(")]);
    let Err(QueryError::NoFilter(wrong, error)) = wrong else { panic!("a wrong filter passes") };
    assert_eq!((wrong, error.to_string()), (focus("("), "unclosed group".to_owned()));
}

#[test]
fn a_range_of_time_is_selected_before_samples_are() {
    let profile = Arc::new(phases());
    let time = added(Condition::Time, "1s..2s");
    // As in `prof report --time 1s..2s --focus .`.
    for filters in [[time.clone(), focus(".")], [focus("."), time.clone()]] {
        let part = part(&profile, &filters).unwrap();
        let whole = part.profile.unfiltered.as_ref().unwrap();
        assert_eq!((part.profile.total(0), whole.types[0].sum), (10, 10));
        assert_eq!(part.without_time, [1, 100_000_000]);
        assert_eq!(part.start, 1_000_000);
    }
    // A range within a range.
    let within = [added(Condition::Time, "1s.."), added(Condition::Time, "..1s")];
    let found = part(&profile, &within).unwrap();
    assert_eq!((found.start, found.profile.total(0)), (1_000_000, 10));
    assert_eq!(found.without_time, [1, 100_000_000]);
    let none = part(&Arc::new(answers()), &[time]);
    assert!(matches!(none, Err(QueryError::NoTimes(Timed::Filter))));
    // Nothing is left, but the recording has times.
    let empty = part(&profile, &[added(Condition::Time, "100s..200s")]).unwrap();
    assert!(empty.profile.samples.is_empty() && empty.has_times);
}

#[test]
fn filters_that_nothing_meets_are_known() {
    let profile = Arc::new(answers());
    let cache = PartCache::default();
    let wrong = |filters: &[AddedFilter]| -> Vec<String> {
        let part = cache.part(&profile, &query(filters), &Cancel::default()).unwrap();
        part.unmatched.iter().map(AddedFilter::unmatched).collect()
    };
    let hide = added(Condition::Hide, "typo");
    let filters = [focus("foo"), hide.clone(), focus("bar")];
    assert_eq!(wrong(&filters[..1]), Vec::<String>::new());
    for _ in 0..2 {
        assert_eq!(wrong(&filters[..2]), ["hide=typo: no frame matches"]);
        assert_eq!(wrong(&filters), ["hide=typo: no frame matches"]);
    }
    let part = Part { unmatched: vec![hide], ..Part::whole(profile.clone()) };
    assert_eq!(part.explained("nothing".to_owned()), "nothing; hide=typo: no frame matches");
}

#[test]
fn frames_that_a_profile_drops_are_dropped_before_the_filters() {
    let mut profile = processes();
    profile.drop_frames = profile.strings.intern("serve");
    let profile = Arc::new(without_dropped_frames(profile));
    let filters = [added(Condition::TagRoot, "process"), focus("query")];
    let part = part(&profile, &filters).unwrap();
    assert_eq!((part.profile.samples.len(), part.unmatched), (1, Vec::new()));
}

#[test]
fn a_filter_finds_inlined_functions_that_views_fold() {
    let query = Query {
        filters: vec![focus("inner")],
        folds_inlined: true,
        ..Query::new(Shown::functions())
    };
    let part = Part::new(Arc::new(frames_profile()), &query, &Cancel::default()).unwrap();
    assert_eq!(part.unmatched, []);
    assert!(!part.profile.samples.is_empty());
    assert!(part.profile.locations.iter().all(|location| location.line_count <= 1));
}
