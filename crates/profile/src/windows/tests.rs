use std::time::Duration;

use super::super::{Builder, Column, LabelSetId, PartMarks};
use super::*;

const SECOND: u64 = 1_000_000_000;

/// A recording that hands out parts.
struct Recording {
    builder: Builder,
    marks: PartMarks,
}

impl Recording {
    fn new() -> Recording {
        let mut builder = Builder::new(&[("samples", "count"), ("cpu", "nanoseconds")]);
        let file = builder.profile.strings.intern("/bin/x");
        builder.add_mapping(Mapping { limit: 0x1000, file, ..Mapping::default() });
        Recording { builder, marks: PartMarks::default() }
    }

    /// Samples of a stack, leaf first.
    fn sample(&mut self, addresses: &[u64], weight: i64) {
        let stack: Vec<LocationId> =
            addresses.iter().map(|&a| self.builder.location(Some(MappingId(0)), a)).collect();
        self.builder.add(&stack, LabelSetId::EMPTY, 1, &[(Column(1), weight)]);
    }

    fn part(&mut self) -> Part {
        self.builder.take_part(&mut self.marks).0
    }
}

/// Every stack of a profile with its values, sorted.
fn sums(p: &Profile) -> Vec<String> {
    let stack = |row: &SampleRow| {
        let frames = p.stacks.get(row.stack).iter();
        let frame = |&l: &LocationId| match p.lines_of(l).first() {
            Some(line) => p.str(p.functions[line.function.0 as usize].name).to_owned(),
            None => format!("{:#x}", p.locations[l.0 as usize].address),
        };
        frames.map(frame).collect::<Vec<_>>().join(" ")
    };
    let rows = p.samples.iter().enumerate();
    let mut all: Vec<_> =
        rows.map(|(i, row)| format!("{} {:?}", stack(row), p.values_of(i))).collect();
    all.sort();
    all
}

#[test]
fn windows_are_sums_of_the_last_parts() {
    let mut recording = Recording::new();
    let mut windows = Windows::default();
    assert!(windows.profile(LiveWindow::Last).samples.is_empty());
    for second in 0..12 {
        recording.sample(&[0x20, 0x10], 100 + second);
        if second == 11 {
            recording.sample(&[0x30, 0x10], 7);
        }
        windows.add(recording.part(), SECOND);
    }
    let last = windows.profile(LiveWindow::Last);
    assert_eq!(sums(&last), ["0x20 0x10 [1, 111]", "0x30 0x10 [1, 7]"]);
    assert_eq!(last.duration_nanos as u64, SECOND);
    assert_eq!(last.str(last.sample_types[1].kind), "cpu");
    let recent = windows.profile(LiveWindow::Recent);
    // The seconds 2 to 11.
    assert_eq!(sums(&recent), ["0x20 0x10 [10, 1065]", "0x30 0x10 [1, 7]"]);
    assert_eq!(recent.duration_nanos as u64, 10 * SECOND);
}

#[test]
fn older_values_count_less() {
    let mut recording = Recording::new();
    let mut windows = Windows::default();
    recording.sample(&[0x10], 1000);
    windows.add(recording.part(), SECOND);
    for _ in 0..30 {
        windows.add(recording.part(), SECOND);
    }
    let all = windows.profile(LiveWindow::Decayed);
    assert_eq!(all.values_of(0)[1], 500, "after one half-life");
    assert!(windows.profile(LiveWindow::Recent).samples.is_empty());
    for _ in 0..300 {
        windows.add(recording.part(), SECOND);
    }
    assert!(windows.profile(LiveWindow::Decayed).samples.is_empty(), "forgotten");
}

#[test]
fn names_stay_for_later_parts() {
    let mut recording = Recording::new();
    let mut windows = Windows::default();
    recording.sample(&[0x20, 0x10], 1);
    windows.add(recording.part(), SECOND);
    let mut request = windows.request_names().unwrap();
    assert!(windows.request_names().is_none(), "each location once");
    assert_eq!(
        (request.profile.locations.len(), request.mappings.as_slice()),
        (2, &[MappingId(0)][..])
    );
    for i in 0..2 {
        let address = request.profile.locations[i].address;
        let name = request.profile.strings.intern(if address == 0x10 { "main" } else { "leaf" });
        request.profile.functions.push(Function { name, ..Function::default() });
        let line = Line { function: FunctionId(i as u32), line: 3, column: 0 };
        request.profile.set_lines(LocationId(i as u32), &[line]);
    }
    windows.name(&request);
    recording.sample(&[0x20, 0x10], 1);
    recording.sample(&[0x28, 0x10], 1);
    windows.add(recording.part(), SECOND);
    let expected = ["0x28 main [1, 1]", "leaf main [2, 2]"];
    assert_eq!(sums(&windows.profile(LiveWindow::Recent)), expected);
    assert_eq!(windows.request_names().unwrap().profile.locations.len(), 1);
}

/// Addresses of a request.
fn addresses(request: Option<NameRequest>) -> Vec<u64> {
    let request = request.map(|request| request.profile.locations);
    request.into_iter().flatten().map(|location| location.address).collect()
}

/// Windows with samples whose innermost frames are in these binaries.
fn with_binaries(binaries: &[(&str, u64, usize)]) -> Windows {
    let mut recording = Recording::new();
    let mut windows = Windows::default();
    for &(path, address, samples) in binaries {
        let file = recording.builder.profile.strings.intern(path);
        let mapping = recording.builder.add_mapping(Mapping { file, ..Mapping::default() });
        let location = recording.builder.location(Some(mapping), address);
        for _ in 0..samples {
            recording.builder.add(&[location], LabelSetId::EMPTY, 1, &[(Column(1), 1)]);
        }
    }
    windows.add(recording.part(), SECOND);
    windows
}

#[test]
fn names_of_what_is_worth_most_are_requested_first() {
    let cost = |_: &str| Duration::from_millis(10);
    let mut windows = with_binaries(&[("/rare", 1, 1), ("/hot", 2, 90), ("/warm", 3, 9)]);
    let mut next = |most| addresses(windows.request_best(cost, Duration::from_millis(most)));
    assert_eq!(next(1), [2], "one, whatever it costs");
    assert_eq!(next(20), [1, 3], "as many as the time allows");
    assert_eq!(next(20), [0u64; 0], "each once");
}

#[test]
fn names_that_cost_less_are_requested_before_those_that_are_worth_a_little_more() {
    let cost = |file: &str| Duration::from_millis(if file == "/large" { 1000 } else { 5 });
    let mut windows = with_binaries(&[("/large", 1, 60), ("/small", 2, 40)]);
    let mut next = || addresses(windows.request_best(cost, Duration::from_millis(20)));
    assert_eq!([next(), next()], [[2], [1]]);
}

#[test]
fn names_outside_of_the_last_seconds_are_requested_at_last() {
    let cost = |_: &str| Duration::from_millis(10);
    let mut windows = with_binaries(&[("/before", 1, 99)]);
    let mut recording = Recording::new();
    for _ in 0..11 {
        windows.add(recording.part(), SECOND);
    }
    assert_eq!(addresses(windows.request_best(cost, Duration::ZERO)), [1]);
}

#[test]
fn memory_is_bounded() {
    let mut recording = Recording::new();
    let limits = WindowLimits { rows: 100 };
    let mut windows = Windows::new(limits);
    let mut total = 0;
    for part in 0..200 {
        for i in 0..150 {
            recording.sample(&[part * 37 % 400 + i, 1], 10);
            total += 10;
        }
        windows.add(recording.part(), SECOND);
        assert!(windows.all.rows.len() <= 101);
        assert!(windows.stacks() <= 2 * (11 * 101 + 101) + 1001, "{}", windows.stacks());
    }
    assert!(total > 0 && windows.folded() > 0);
    let last = windows.profile(LiveWindow::Last);
    assert_eq!((last.total(0), last.total(1)), (150, 1500), "nothing is lost");
    assert!(sums(&last).iter().any(|row| row.starts_with("[beyond")));
}

#[test]
fn profiles_without_types_and_with_equal_types_are_windows() {
    for types in [&[][..], &[("cpu", "count"), ("cpu", "count")]] {
        let mut builder = Builder::new(types);
        let mut marks = PartMarks::default();
        if !types.is_empty() {
            let deep: Vec<LocationId> = (0..10_000).map(|_| builder.named_location("f")).collect();
            builder.add(&deep, LabelSetId::EMPTY, 0, &[(Column(0), 1), (Column(1), -5)]);
        }
        let mut windows = Windows::default();
        windows.add(builder.take_part(&mut marks).0, SECOND);
        for window in LiveWindow::ALL {
            assert_eq!(windows.profile(window).samples.len(), usize::from(!types.is_empty()));
        }
    }
}
