use super::*;
use crate::{Label, LabelSetId, LabelValue, Limits, LocationId, StrId};

const START: u64 = 1_000_000;

fn builder(max_samples: u64) -> Builder {
    let mut b = Builder::new(&[("samples", "count"), ("cpu", "nanoseconds")]);
    b.keep_times(TimeLimits { start: START, max_samples });
    b
}

/// (times, values) of the rows of a profile.
fn rows(p: &Profile) -> Vec<(Vec<u64>, Vec<i64>)> {
    let rows = p.samples.iter().enumerate();
    rows.map(|(i, row)| (p.times.get(row.times).to_vec(), p.values_of(i).to_vec())).collect()
}

fn add(b: &mut Builder, micros: u64, address: u64, weight: i64) {
    b.set_time(Some(START + 1000 * micros));
    let at = b.location(None, address);
    b.add(&[at], LabelSetId::EMPTY, 1, &[(Column(1), weight)]);
}

#[test]
fn samples_of_equal_values_share_a_row() {
    let mut b = builder(100);
    for (micros, address, weight) in [(9, 1, 10), (3, 1, 10), (5, 1, 7), (4, 2, 10)] {
        add(&mut b, micros, address, weight);
    }
    b.set_time(None);
    let at = b.location(None, 3);
    b.add(&[at], LabelSetId::EMPTY, 1, &[(Column(1), 2)]);
    assert_eq!(b.without_time(), Some(0));
    let p = b.finish(None);
    let expected = [
        (vec![3, 9], vec![2, 20]),
        (vec![5], vec![1, 7]),
        (vec![4], vec![1, 10]),
        (vec![], vec![1, 2]),
    ];
    assert_eq!(rows(&p), expected);
}

#[test]
fn samples_beyond_the_limit_have_no_time() {
    let mut b = builder(2);
    for micros in 0..5 {
        add(&mut b, micros, 1, 10);
    }
    assert_eq!(b.without_time(), Some(3));
    assert_eq!(rows(&b.finish(None)), [(vec![0, 1], vec![2, 20]), (vec![], vec![3, 30])]);
}

#[test]
fn scaled_values_keep_their_sum() {
    let mut b = builder(4);
    for (micros, weight) in [(1, 10), (2, 20), (3, 30), (4, 30), (5, 13)] {
        add(&mut b, micros, 1, weight);
    }
    b.scale_to(Column(1), 1000);
    let p = b.finish(None);
    assert_eq!((p.total(0), p.total(1)), (5, 1000));
    let expected = [
        (vec![1], vec![1, 97]),
        (vec![2], vec![1, 194]),
        (vec![3, 4], vec![2, 582]),
        (vec![], vec![1, 127]),
    ];
    assert_eq!(rows(&p), expected);
}

/// Time, stack, labels and values of every sample, sorted.
fn samples_of(p: &Profile) -> Vec<String> {
    let mut out = Vec::new();
    for (i, row) in p.samples.iter().enumerate() {
        let stack = p.stacks.get(row.stack).iter();
        let stack: Vec<u64> = stack.map(|l| p.locations[l.0 as usize].address).collect();
        let times = p.times.get(row.times);
        let labels = p.labels.get(row.labels);
        out.push(format!("{times:?} {stack:?} {labels:?} {:?}", p.values_of(i)));
    }
    out.sort();
    out
}

fn filled(mut b: Builder) -> Builder {
    let key = b.profile.strings.intern("tid");
    let mut seed = 1u64;
    for n in 0..60_000 {
        seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        let stack: Vec<LocationId> = (0..(seed >> 60))
            .map(|i| b.location(None, 100 * i + ((seed >> (3 * i)) & 7)))
            .collect();
        let value = LabelValue::Num { value: (seed >> 50) as i64 & 3, unit: StrId::EMPTY };
        let labels = b.profile.labels.intern(&[Label { key, value }]);
        b.set_time(Some(START + 1000 * n + (seed >> 55)));
        b.add(&stack, labels, 1, &[(Column(1), (seed >> 40) as i64 & 3)]);
    }
    b
}

#[test]
fn times_are_the_same_through_files() {
    let whole = filled(builder(50_000)).finish(None);
    let small = Limits { part_nodes: 3000, part_rows: 2000, ..Limits::default() };
    let none: OpenSpill = || Err(io::ErrorKind::StorageFull.into());
    let full: OpenSpill = || std::fs::OpenOptions::new().write(true).open("/dev/full");
    for open in [tempfile::tempfile, none, full] {
        let mut b = Builder::new(&[("samples", "count"), ("cpu", "nanoseconds")])
            .with_limits(small)
            .with_spill(open);
        b.keep_times(TimeLimits { start: START, max_samples: 50_000 });
        let mut b = filled(b);
        b.settle().unwrap();
        let p = b.finish(None);
        assert_eq!((p.total(0), p.times.len()), (60_000, 50_000));
        assert_eq!(samples_of(&p), samples_of(&whole));
    }
}
