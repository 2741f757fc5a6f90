use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::{Cancel, Granularity, Top, TopOptions};
use profile::{Builder, Function, FunctionId, Line, Profile, SampleRow, StackTable, TimesId};

/// A stack as indices of locations, leaf first, and its value.
type Sample = (Vec<usize>, i64);

/// A profile of locations with these functions, innermost first.
fn profile(locations: &[Vec<u32>], samples: &[Sample]) -> Profile {
    let mut b = Builder::new(&[("cpu", "nanoseconds")]);
    for number in 0..=locations.iter().flatten().copied().max().unwrap_or(0) {
        let name = b.profile.strings.intern(&format!("f{number}"));
        b.profile.functions.push(Function { name, ..Function::default() });
    }
    for (address, functions) in (1..).zip(locations) {
        let location = b.location(None, address);
        let line = |&number: &u32| Line { function: FunctionId(number), line: 0, column: 0 };
        let lines: Vec<Line> = functions.iter().map(line).collect();
        b.profile.set_lines(location, &lines);
    }
    let mut profile = b.finish(None);
    let mut stacks = StackTable::default();
    for (stack, value) in samples {
        let stack = stacks.push_iter(stack.iter().map(|&at| LocationId(at as u32)));
        let labels = profile::LabelSetId::EMPTY;
        profile.samples.push(SampleRow { stack, labels, times: TimesId::NONE });
        profile.values.push(*value);
    }
    profile.stacks = stacks;
    profile
}

fn view(profile: &Profile) -> View<'_> {
    View::new(profile, 0, Granularity::FUNCTION)
}

/// The rows with samples, and their sums.
fn taken(mut sums: RowSums<RowValues>) -> Vec<(u32, RowValues)> {
    let mut rows: Vec<_> = sums.take().collect();
    rows.sort_by_key(|(row, _)| *row);
    rows
}

fn by_frame(view: &View) -> Vec<(u32, RowValues)> {
    let mut sums = RowSums::new(view.frames.len());
    view.samples().for_each(|sample| sums.add_by_frame(view, &sample));
    taken(sums)
}

fn by_location(view: &View) -> Vec<(u32, RowValues)> {
    let mut sums = RowSums::new(view.frames.len());
    sums.add_by_location(view);
    taken(sums)
}

fn chosen(view: &View) -> Vec<(u32, RowValues)> {
    let mut sums = RowSums::new(view.frames.len());
    sums.add_all(view);
    taken(sums)
}

/// Locations of few functions, so that stacks have a function several times: in one location, in
/// several, and by a location that is in them several times. One without a function is a row of its
/// own.
fn profiles() -> impl Strategy<Value = Profile> {
    let sizes = (1..20usize, 1..30u32);
    sizes.prop_flat_map(|(locations, functions)| {
        let functions = vec(vec(0..functions, 0..9), locations);
        let value = prop_oneof![Just(0i64), -1000..1000i64, any::<i32>().prop_map(i64::from)];
        let samples = vec((vec(0..locations, 0..25), value), 0..40);
        (functions, samples).prop_map(|(functions, samples)| profile(&functions, &samples))
    })
}

proptest! {
    #[test]
    fn sums_by_location_are_those_by_frame(profile in profiles()) {
        let view = view(&profile);
        prop_assert_eq!(by_location(&view), by_frame(&view));
        prop_assert_eq!(chosen(&view), by_frame(&view));
    }
}

#[test]
fn locations_with_rows_of_their_own_are_summed_up_by_location() {
    let stacks = |value| vec![(vec![0, 1, 2, 1], value); 9];
    let own = profile(&[vec![0, 1], vec![1], vec![2]], &stacks(5));
    assert!(pays(&view(&own)));
    let expected = [(2, 45, 45), (3, 0, 45), (4, 0, 45)];
    let expected = expected.map(|(row, self_value, total)| (row, RowValues { self_value, total }));
    assert_eq!(chosen(&view(&own)), expected);
    let shared = profile(&[vec![0], vec![0], vec![0], vec![0], vec![0], vec![0]], &stacks(5));
    assert!(!pays(&view(&shared)));
    let once = profile(&[vec![0, 1], vec![1], vec![2]], &stacks(5)[..1]);
    assert!(!pays(&view(&once)));
}

#[test]
fn sums_that_reach_a_limit_are_added_in_the_order_of_the_samples() {
    let locations = [vec![0], vec![1], vec![2]];
    let [up, down] = [i64::MAX - 3, -7].map(|value| (vec![0, 1, 2, 0, 1, 2, 0, 1, 2], value));
    let samples = [up.clone(), up, down.clone(), down];
    let profile = profile(&locations, &samples);
    let view = view(&profile);
    assert!(!pays(&view));
    assert!(chosen(&view).iter().all(|(_, sums)| sums.total == i64::MAX - 14));
}

#[test]
fn samples_without_a_stack_have_a_row() {
    let samples: Vec<Sample> = (0..9).map(|n| (vec![0; n], 1)).collect();
    let profile = profile(&[vec![0]], &samples);
    let view = view(&profile);
    assert!(pays(&view));
    let no_stack = (view.frames.no_stack, RowValues { self_value: 1, total: 1 });
    assert!(chosen(&view).contains(&no_stack));
    assert_eq!(chosen(&view), by_frame(&view));
}

#[test]
fn a_canceled_table_ends_early() {
    let samples = vec![(vec![0, 1, 0], 1); 9];
    let profile = profile(&[vec![0], vec![1]], &samples);
    let cancel = Cancel::new();
    let view = View::cancelable(&profile, 0, Granularity::FUNCTION, &cancel);
    assert!(pays(&view));
    assert_eq!(Top::new(&view, &TopOptions::default()).row_count, 2);
    cancel.cancel();
    assert_eq!(Top::new(&view, &TopOptions::default()).row_count, 0);
}
