//! Profiles of one kind in several units: their values are those of `go tool pprof`.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::common::run::run;
use crate::common::{Prof, needs, read, temp_dir};
use formats::pprof;
use profile::{Builder, Column, LabelSetId, ValueType};

/// Writes a profile of `main` that calls `leaf`, which has all values; the period is of the last
/// type.
fn write(dir: &Path, name: &str, types: &[(&str, &str)], values: &[i64], period: i64) -> PathBuf {
    let mut b = Builder::new(types);
    let stack = ["main", "leaf"].map(|name| b.named_location(name));
    let values: Vec<_> = values.iter().enumerate().map(|(i, &v)| (Column(i), v)).collect();
    b.add_stack(&stack, None, LabelSetId::EMPTY, 0, &values);
    let mut profile = b.finish(None);
    let ValueType { kind, unit } = *profile.sample_types.last().unwrap();
    profile.period_type = ValueType { kind, unit };
    profile.period = period;
    let path = dir.join(name);
    pprof::write(&profile, File::create(&path).unwrap()).unwrap();
    path
}

/// Self value of `leaf` in `go tool pprof`, in this unit.
fn of_pprof(files: &[PathBuf], unit: &str) -> i64 {
    let mut go = Command::new("go");
    go.args(["tool", "pprof", "-symbolize=none", "-top"]).arg(format!("-unit={unit}"));
    go.args(files).stdin(Stdio::null());
    let text = run(go).ok().text();
    let row = text.lines().find(|line| line.ends_with(" leaf")).unwrap_or_else(|| panic!("{text}"));
    let word = row.split_whitespace().next().unwrap();
    word.trim_end_matches(char::is_alphabetic).parse().unwrap()
}

/// Self value of `leaf` in `prof report`, and the period.
fn of_prof(dir: &Path, files: &[PathBuf]) -> (i64, i64) {
    let mut prof = Prof::new(dir, "report --json");
    for file in files {
        prof = prof.arg(file);
    }
    let json: Value = serde_json::from_slice(&prof.run().ok().stdout).unwrap();
    let row = json["rows"].as_array().unwrap().iter().find(|row| row["function"] == "leaf");
    (row.unwrap()["self"].as_i64().unwrap(), json["period"].as_i64().unwrap())
}

#[test]
fn profiles_in_other_units_add_up_as_in_pprof() {
    if !needs(&["go"]) {
        return;
    }
    let dir = temp_dir();
    let file = |name: &str, types: &[_], values: &[i64], period| {
        write(dir.path(), name, types, values, period)
    };
    let wall = |name, unit, value, period| {
        file(name, &[("sample", "count"), ("wall", unit)], &[10, value], period)
    };
    let cpu = |name, unit, value, period| file(name, &[("cpu", unit)], &[value], period);
    let space = |name, kind, unit, value, period| file(name, &[(kind, unit)], &[value], period);
    let cases = [
        (
            vec![
                wall("wall-us", "microseconds", 100_000, 10_000),
                wall("wall-ns", "nanoseconds", 100_000_000, 10_000_000),
            ],
            ("ns", 200_000_000),
            10_000_000,
        ),
        (
            vec![
                cpu("s", "seconds", 2, 1),
                cpu("ms", "milliseconds", 100, 10),
                cpu("us", "us", 7, 10),
            ],
            ("us", 2_100_007),
            1_000_000,
        ),
        (
            vec![
                space("b", "space", "bytes", 5, 512),
                space("kb", "space", "KB", 3, 1),
                space("mb", "space", "megabytes", 1, 1),
            ],
            ("b", 5 + (3 << 10) + (1 << 20)),
            1 << 20,
        ),
        (
            vec![cpu("h", "hours", 1, 1), cpu("again", "ns", 1, 1)],
            ("ns", 3_600_000_000_001),
            3_600_000_000_000,
        ),
    ];
    for (files, (unit, value), period) in cases {
        for files in [files.clone(), files.into_iter().rev().collect()] {
            assert_eq!(of_pprof(&files, unit), value, "{files:?}");
            assert_eq!(of_prof(dir.path(), &files), (value, period), "{files:?}");
        }
    }
}

#[test]
fn equal_values_in_other_units_are_no_difference() {
    let dir = temp_dir();
    write(dir.path(), "ms", &[("cpu", "milliseconds")], &[100], 10);
    write(dir.path(), "ns", &[("cpu", "nanoseconds")], &[100_000_000], 10_000_000);
    let json = Prof::new(&dir, "diff --json ms ns").run().ok().stdout;
    let json: Value = serde_json::from_slice(&json).unwrap();
    let row = &json["rows"][0];
    assert_eq!(row["self"]["before"], row["self"]["after"], "{json}");
    let text = Prof::new(&dir, "diff --stdio ns ms").run().ok().text();
    assert!(text.contains("total 100.0 ms → 100.0 ms"), "{text}");
}

#[test]
fn values_of_other_dimensions_are_refused() {
    let dir = temp_dir();
    write(dir.path(), "time", &[("x", "ns")], &[1], 1);
    write(dir.path(), "space", &[("x", "bytes")], &[1], 1);
    for command in ["report time space", "merge time space -o all"] {
        Prof::new(&dir, command).run().refused(1, &["x/bytes", "x/ns", "same kind"]);
    }
    Prof::new(&dir, "diff time space").run().refused(2, &["x/bytes", "\"x/ns\""]);
}

#[test]
fn a_type_that_is_left_out_of_a_sum_is_named() {
    let dir = temp_dir();
    write(dir.path(), "both", &[("cpu", "ns"), ("wall", "ns")], &[1, 2], 1);
    write(dir.path(), "one", &[("cpu", "us")], &[3], 1);
    for command in ["report --stdio one both", "merge both one -o all"] {
        let errors = Prof::new(&dir, command).run().ok().stderr;
        assert!(errors.contains("not all files have wall: left out"), "{errors}");
    }
    let sum = read(dir.path().join("all"));
    assert_eq!(sum.total(0), 3001);
    let errors = Prof::new(&dir, "report --stdio one one").run().ok().stderr;
    assert_eq!(errors, "");
}

#[test]
fn a_sum_beyond_63_bits_is_reported_once() {
    let dir = temp_dir();
    write(dir.path(), "large", &[("cpu", "ns"), ("n", "count")], &[1 << 62, 5], 1);
    write(dir.path(), "hours", &[("cpu", "hours"), ("n", "count")], &[1 << 40, 5], 1);
    for command in
        ["report --stdio large large", "diff --stdio hours large", "merge large hours -o all"]
    {
        let errors = Prof::new(&dir, command).run().ok().stderr;
        let notes = errors.lines().filter(|line| line.contains("63 bits"));
        let notes: Vec<_> = notes.collect();
        assert_eq!(
            notes,
            ["prof: sums of cpu are beyond 63 bits: they are not exact"],
            "{command}"
        );
    }
    let errors = Prof::new(&dir, "report --stdio large").run().ok().stderr;
    assert_eq!(errors, "");
}
