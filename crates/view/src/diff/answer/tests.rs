use std::sync::Arc;

use super::*;
use crate::query::{Comparison, Limits, Roots, Rows};
use crate::testing::{answers, processes};
use crate::{Condition, Cut, Direction, Scale};
use profile::Profile;

fn compared(before: Profile, after: Profile, query: &Query) -> Compared {
    let part = |profile| Part::new(Arc::new(profile), query, &Cancel::default()).unwrap();
    let sides = [vec![part(before)], vec![part(after)]];
    let [before, after] = sides;
    Compared { before, after, types: vec![0, 0], renamed: None }
}

fn difference(before: Profile, after: Profile, query: &Query) -> Result<Difference, QueryError> {
    compare(&compared(before, after, query), query, &Cancel::default())
}

fn focus(value: &str) -> AddedFilter {
    AddedFilter { condition: Condition::Focus, value: value.to_owned() }
}

#[test]
fn filters_apply_to_both_sides_before_they_are_compared() {
    let query = Query { filters: vec![focus("foo1")], ..Query::new(Shown::diff(Rows::Functions)) };
    let found = difference(answers(), answers(), &query).unwrap();
    assert_eq!((found.diff.before.recorded, found.diff.after.recorded), (8, 8));
    assert_eq!(found.diff.rows.len(), 3);
    assert!(found.boxes.boxes.is_empty());
    // A filter that one side meets is not wrong.
    let unmatched = |before: Profile, filters: &[&str]| {
        let filters = filters.iter().map(|value| focus(value)).collect();
        let query = Query { filters, ..query.clone() };
        difference(before, answers(), &query).unwrap().unmatched
    };
    // One that only the side before meets, and one that only the side after does.
    for filters in [["serve", "typo", "foo1"], ["typo", "foo1", "serve"]] {
        assert_eq!(unmatched(processes(), &filters), [focus("typo")], "{filters:?}");
    }
    assert_eq!(unmatched(answers(), &["foo1", "typo", "main"]), [focus("typo")]);
    assert_eq!(unmatched(answers(), &["foo1", "main", "bar"]), []);
}

#[test]
fn boxes_have_their_roots_and_no_rows() {
    let flame = Query::new(Shown::diff_flame());
    let usual = Query { roots: Roots::Usual, ..flame.clone() };
    let found = difference(processes(), processes(), &usual).unwrap();
    let name = |found: &Difference, at: usize| {
        let frame = found.boxes.boxes[at].frame.unwrap();
        found.boxes.frames[frame as usize].name.to_string()
    };
    assert_eq!(name(&found, 0), "db");
    assert!(found.diff.rows.is_empty());
    let alone = difference(answers(), answers(), &usual).unwrap();
    assert_eq!(name(&alone, 0), "main");
    let required = Query { roots: Roots::Required(vec!["cgroup".to_owned()]), ..flame.clone() };
    let error = difference(processes(), answers(), &required).unwrap_err();
    assert!(matches!(error, QueryError::NoLabel(key) if key == "cgroup"));
    let wide = Limits { cut: Cut::Width(60.0), ..Limits::NONE };
    let found = difference(answers(), answers(), &Query { limits: wide, ..flame }).unwrap();
    assert_eq!(found.boxes.boxes.len(), 1);
}

#[test]
fn what_cannot_be_compared_is_an_error() {
    let scale = |scale| Query {
        comparison: Comparison { scale, absolute: false },
        ..Query::new(Shown::diff(Rows::Functions))
    };
    let mut unknown = answers();
    unknown.duration_nanos = 0;
    let error = difference(answers(), unknown, &scale(Scale::PerSecond)).unwrap_err();
    assert!(matches!(error, QueryError::NoUnit(Scale::PerSecond)));
    let none = Query { filters: vec![focus("typo")], ..scale(Scale::Total) };
    let error = difference(answers(), answers(), &none).unwrap_err();
    assert!(matches!(error, QueryError::NoUnit(Scale::Total)));
    let tree = Query::new(Shown::Tree(Direction::Callees));
    let error = difference(answers(), answers(), &tree).unwrap_err();
    assert!(matches!(error, QueryError::NotAnswered));
    let cancel = Cancel::new();
    cancel.cancel();
    let query = Query::new(Shown::diff_flame());
    let found = compare(&compared(answers(), answers(), &query), &query, &cancel);
    assert!(matches!(found, Err(QueryError::Canceled)));
}
