use super::*;
use crate::profile::{Builder, LabelValue};
use crate::sampler::record::{Callchain, UserStack};
use crate::sampler::{Event, Stacks};

const PID: i32 = i32::MAX;
const TID: i32 = i32::MAX - 1;
const CLOCK: usize = 0;
const SWITCH: usize = 1;

fn aggregator() -> Aggregator {
    let builder = Builder::new(&[("samples", "count"), ("wall", "nanoseconds")]);
    let mut aggregator = Aggregator::new(builder, Stacks::None, Vec::new());
    aggregator.set_wall(Wall::new(WallSpec {
        column: Column(1),
        running: true,
        min_block: 0,
        began: 0,
        clock: CLOCK,
        switch: SWITCH,
        cpu: None,
    }));
    aggregator
}

fn sample(event: usize, time: u64, ip: u64) -> Event<'static> {
    let sample = Sample {
        id: 1,
        ip,
        pid: PID,
        tid: TID,
        time,
        period: None,
        kernel: true,
        callchain: Callchain::default(),
        raw: &[],
        user: UserStack::None,
    };
    Event::Sample { event, weight: 1, sample }
}

fn switch(time: u64, out: bool) -> Event<'static> {
    Event::Other(Record::Switch { pid: PID, tid: TID, time, out, preempted: false })
}

/// Wall time by state and address (0: no stack is known).
fn times(mut aggregator: Aggregator, end: u64) -> Vec<(String, u64, i64)> {
    aggregator.end_of_wall(end);
    let state = aggregator.keys.state;
    let profile = aggregator.builder.finish(None);
    let mut times: Vec<(String, u64, i64)> = Vec::new();
    for (i, sample) in profile.samples.iter().enumerate() {
        let Some(LabelValue::Str(state)) = profile.labels.value(sample.labels, state) else {
            panic!("no state")
        };
        let leaf = profile.stacks.get(sample.stack)[0];
        let address = profile.locations[leaf.0 as usize].address;
        times.push((profile.str(state).to_owned(), address, profile.values[i * 2 + 1]));
    }
    times.sort();
    times
}

fn sleeping(address: u64, time: i64) -> (String, u64, i64) {
    ("sleeping".into(), address, time)
}

fn running(address: u64, time: i64) -> (String, u64, i64) {
    ("running".into(), address, time)
}

#[test]
fn the_fields_of_a_switch_have_the_state() {
    assert_eq!(prev_state(&[0; 39]), None);
    let mut raw = [0; 64];
    raw[32] = 2;
    assert_eq!(prev_state(&raw), Some(2));
}

#[test]
fn time_is_divided_where_it_changes() {
    let mut a = aggregator();
    // It runs when it is heard of first, at 100, and stops at 130.
    for event in [sample(CLOCK, 100, 0xa), sample(SWITCH, 129, 0xb), switch(130, true)] {
        a.event(&event);
    }
    // It comes back at 1000, and stops at 1010, which was not sampled.
    for event in [switch(1000, false), switch(1010, true), switch(1050, false)] {
        a.event(&event);
    }
    // Of the time that no sample stands for, the last sample is the nearest.
    let want = [running(0xa, 190), sleeping(0xb, 910)];
    assert_eq!(times(a, 1100), want);
}

#[test]
fn many_waits_are_told_by_some_of_them() {
    let mut a = aggregator();
    let mut time = 0;
    for n in 1..=610u64 {
        let (address, wait) = if n % 2 == 0 { (0xa, 10) } else { (0xb, 30) };
        time += 5;
        if n % 61 == 0 {
            a.event(&sample(SWITCH, time, address));
        }
        a.event(&switch(time, true));
        time += wait;
        a.event(&switch(time, false));
    }
    let slept = times(a, time).into_iter().filter(|t| t.0 == "sleeping").collect::<Vec<_>>();
    assert_eq!(slept, [sleeping(0xa, 305 * 10), sleeping(0xb, 305 * 30)]);
}

#[test]
fn what_has_ended_waits_no_more() {
    let mut a = aggregator();
    a.event(&switch(50, false));
    a.event(&Event::Other(Record::Exit { pid: PID, tid: TID, time: 90 }));
    for event in [sample(SWITCH, 95, 0xa), switch(96, true)] {
        a.event(&event);
    }
    // Until 50 it slept, as it seems; nobody knows where.
    let all = times(a, 1000);
    assert_eq!(all.iter().map(|t| t.2).sum::<i64>(), 90);
    assert!(all.iter().all(|t| t.1 == 0), "{all:?}");
}
