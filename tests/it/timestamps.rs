//! `prof record --timestamps`, and `--time` and `--over` on its files.

use std::fs::File;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use profile::{Builder, Column, LabelSetId, Profile, TimeLimits};
use view::testing::{answers, functions, odd_names, phases};

use crate::common::{Build, Prof, machine, needs, read, run, target, temp_dir};
use crate::terminal::Terminal;

/// The function of each phase, and the one that is not in it.
const NAMES: [(&str, &str); 3] = [("f", "g"), ("g", "f"), ("f", "g")];

/// A recording of the program that is in f, then in g, then in f.
struct Recorded {
    file: PathBuf,
    /// The milliseconds of the recording in which the program certainly is in each of the three.
    phases: [Range<u64>; 3],
}

/// The program whose phases have 0.7 s of CPU time each.
fn recorded() -> &'static Recorded {
    static RECORDED: OnceLock<Recorded> = OnceLock::new();
    machine::share();
    RECORDED.get_or_init(|| {
        let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join("timestamps");
        std::fs::create_dir_all(&dir).unwrap();
        let phases = target("phases", Build::CDebug);
        let prof = Prof::new(&dir, "record -F 999 -e cpu-clock --timestamps");
        let changes = prof.target(phases, "700").run().ok().text();
        let file = dir.join("profile.pb.gz");
        let began = read(&file).time_nanos;
        let changes = changes.lines().map(|date| date.parse::<i64>().unwrap() - began);
        let changes: Vec<u64> = changes.map(|nanos| nanos as u64 / 1_000_000).collect();
        // The beginning of a recording is known less exactly than the times of its samples.
        let phase = |n: usize| changes[n] + 10..changes[n + 1] - 10;
        Recorded { file, phases: [0, 1, 2].map(phase) }
    })
}

fn recording() -> &'static Path {
    &recorded().file
}

fn saved(profile: &Profile, dir: &Path, name: &str) -> PathBuf {
    let path = dir.join(name);
    formats::pprof::write(profile, File::create(&path).unwrap()).unwrap();
    path
}

fn json(file: &Path, options: &str) -> serde_json::Value {
    let prof = Prof::new(std::env::temp_dir(), "report --json --sort symbol").args(options);
    serde_json::from_slice(&prof.arg(file).run().ok().stdout).unwrap()
}

/// Self value of a function.
fn itself(report: &serde_json::Value, function: &str) -> i64 {
    let rows = report["rows"].as_array().unwrap();
    let of = rows.iter().filter(|row| row["function"] == function);
    of.map(|row| row["self"].as_i64().unwrap()).sum()
}

#[test]
fn each_part_has_the_phase_of_its_time() {
    for (Range { start, end }, (function, other)) in recorded().phases.iter().zip(NAMES) {
        let report = json(recording(), &format!("--time {start}ms..{end}ms"));
        let [own, others] = [function, other].map(|function| itself(&report, function));
        // Of 0.7 s, without the milliseconds around the changes.
        assert!(own > 500_000_000, "{function}: {own} ns from {start} to {end} ms: {report}");
        assert_eq!(others, 0, "{other} from {start} to {end} ms: {report}");
    }
}

#[test]
fn parts_add_up_to_the_whole() {
    let whole = json(recording(), "")["total"].as_i64().unwrap();
    let by_share = ["..10%", "10%..33.3%", "33.3%..66.7%", "66.7%.."];
    let by_time = ["..700.5ms", "700.5ms..1200ms", "1.2s.."];
    let sum = |part: &&str| json(recording(), &format!("--time {part}"))["total"].as_i64().unwrap();
    assert_eq!(by_share.iter().map(sum).sum::<i64>(), whole);
    assert_eq!(by_time.iter().map(sum).sum::<i64>(), whole);
}

#[test]
fn a_range_is_a_filter_of_the_interactive_views() {
    if !needs(&["tmux"]) {
        return;
    }
    let terminal = Terminal::start(100, 12, &[]);
    saved(&phases(), terminal.dir.path(), "phases.pb.gz");
    terminal.run("prof report phases.pb.gz --time 1s..2s");
    terminal.wait_for(" filters: time=1s..2s (no time: 100.0 ms)");
    terminal.wait_for("functions  cpu  1.00 s");
    terminal.keys(&["u"]);
    terminal.wait_for("functions  cpu  3.10 s");
    // The second range replaces the first one.
    for (range, total) in [("time=1.5s..", "1.50 s"), ("time=..500ms", "500.0 ms")] {
        terminal.keys(&["&", "C-u"]);
        terminal.run(range);
        terminal.wait_for(&format!(" filters: {range} (no time: 100.0 ms)"));
        terminal.wait_for(&format!("functions  cpu  {total}"));
    }
    terminal.keys(&["q"]);
    terminal.is_restored();
}

#[test]
fn intervals_show_the_change() {
    let report = json(recording(), "--over 100ms");
    let of = |function: &str| {
        let rows = report["rows"].as_array().unwrap();
        let row = rows.iter().find(|row| row["function"] == function).expect("a row");
        let values = row["self_over"].as_array().unwrap().iter();
        values.map(|v| v.as_i64().unwrap()).collect::<Vec<_>>()
    };
    let sums = report["sums"].as_array().unwrap().iter().map(|v| v.as_i64().unwrap());
    assert_eq!(sums.sum::<i64>(), report["total"].as_i64().unwrap());
    for (Range { start, end }, (function, other)) in recorded().phases.iter().zip(NAMES) {
        let intervals = start.div_ceil(100) as usize..(end / 100) as usize;
        let [own, others] = [of(function), of(other)].map(|over| over[intervals.clone()].to_vec());
        assert!(own.iter().sum::<i64>() > 300_000_000, "{function}: {own:?}");
        assert!(others.iter().all(|&value| value == 0), "{other} in {function}: {others:?}");
    }
    let text = Prof::new(std::env::temp_dir(), "report --over 500ms").arg(recording()).run().ok();
    let text = text.text();
    assert!(text.contains("self values in intervals of 500ms"), "{text}");
    assert!(text.lines().any(|line| line.contains("500ms") && line.contains("1.5s")), "{text}");
}

#[test]
fn times_beyond_the_limit_are_counted() {
    let dir = temp_dir();
    machine::share();
    let prof = Prof::new(&dir, "record -F 999 -e cpu-clock --timestamps --max-samples 20");
    let out = prof.target(target("phases", Build::CDebug), "100").run().ok();
    assert_eq!(out.stderr.matches("have no time, because there were more").count(), 1, "{out:?}");
    let profile = formats::read_file(&dir.path().join("profile.pb.gz")).unwrap();
    assert_eq!(profile.times.len(), 20);
    let figure = profile::comment::values(&profile, "without-time").next().unwrap();
    let rest: i64 = figure.parse().unwrap();
    assert!(rest > 0);
    assert_eq!(profile.total(0), 20 + rest);
}

#[test]
fn a_profile_without_times_is_refused() {
    let dir = temp_dir();
    let file = saved(&answers(), dir.path(), "a.pb.gz");
    for options in [
        "report --time 1s..2s",
        "report --over 1s",
        "report --over 1s --focus nothing",
        "flame --folded --time 1s..",
    ] {
        let out = Prof::new(&dir, options).arg(&file).run();
        out.refused(1, &["no times of samples", "prof record --timestamps"]);
    }
    for options in ["report --time 2s..1s", "report --time x", "report --over 0s"] {
        Prof::new(&dir, options).arg(&file).run().exits(2);
    }
}

#[test]
fn a_range_outside_of_the_recording_has_no_sample() {
    let dir = temp_dir();
    let file = saved(&phases(), dir.path(), "phases.pb.gz");
    let note = "prof: --time 4s..5s: no sample in this range; the recording has 0s..3s";
    for options in ["report", "report --sort file", "annotate main", "report --focus f"] {
        let prof = Prof::new(&dir, options).args("--time 4s..5s").arg(&file);
        let out = prof.run().ok();
        assert!(out.stderr.contains(note), "{}", out.stderr);
        let text = out.text();
        assert!(text.contains("No sample is in the range of --time."), "{text}");
        assert!(!text.contains("contains no samples"), "{text}");
    }
    for options in ["flame -o x.svg", "graph -o x.dot"] {
        let out = Prof::new(&dir, options).args("--time 4s..5s").arg(&file).run();
        out.refused(1, &["nothing to draw: No sample is in the range of --time."]);
        out.says(&[note]);
    }
}

#[test]
fn merged_profiles_keep_their_times() {
    let dir = temp_dir();
    let early = saved(&phases(), dir.path(), "early.pb.gz");
    let later = Profile { time_nanos: 11_000_000_000, ..phases() };
    let later = saved(&later, dir.path(), "later.pb.gz");
    for (first, second) in [(&early, &later), (&later, &early)] {
        let prof = Prof::new(&dir, "report --json --over 1s --type samples").arg(first).arg(second);
        let report: serde_json::Value = serde_json::from_slice(&prof.run().ok().stdout).unwrap();
        assert_eq!(report["sums"], serde_json::json!([10, 10, 10, 0, 10, 10, 10]));
        assert_eq!((&report["without_time"], &report["total"]), (&2.into(), &62.into()));
    }
}

/// The same samples with and without their times.
fn with_and_without() -> [Profile; 2] {
    [true, false].map(|timed| {
        let mut b = Builder::new(&[("samples", "count"), ("cpu", "nanoseconds")]);
        if timed {
            b.keep_times(TimeLimits { start: 0, max_samples: 900 });
        }
        let names = ["main", "work", "parse", "write", "flush"];
        let [main, rest @ ..] = names.map(|name| {
            let address = 16 * name.len() as u64 + u64::from(name.as_bytes()[0]);
            functions(&mut b, None, address, &[(name, "a.c", 1)])
        });
        for n in 0u64..1000 {
            b.set_time(Some(n * n * 1000));
            let leaf = rest[(n % 7 % 4) as usize];
            b.add(&[leaf, main], LabelSetId::EMPTY, 1, &[(Column(1), 10_000_000 + (n % 3) as i64)]);
        }
        b.finish(None)
    })
}

fn go(file: &Path, option: &str) -> String {
    let mut command = Command::new("go");
    command.args(["tool", "pprof", "-symbolize=none", "-unit=ns", option]).arg(file);
    command.stdin(Stdio::null());
    run::run(command).ok().text()
}

#[test]
fn go_reads_the_same_figures() {
    if !needs(&["go"]) {
        return;
    }
    let dir = temp_dir();
    let [with, without] = with_and_without();
    let with = saved(&with, dir.path(), "with.pb.gz");
    let without = saved(&without, dir.path(), "without.pb.gz");
    let top = go(&with, "-top");
    assert!(top.contains("parse"), "{top}");
    assert_eq!(top, go(&without, "-top"));
    let tags = go(&with, "-tags");
    assert!(tags.contains("timestamp: Total"), "{tags}");
    assert!(!go(&without, "-tags").contains("timestamp"));
}

/// What Go writes has its strings after the samples.
#[test]
fn times_survive_go() {
    if !needs(&["go"]) {
        return;
    }
    let dir = temp_dir();
    let file = saved(&phases(), dir.path(), "a.pb.gz");
    let through = dir.path().join("go.pb.gz");
    let mut command = Command::new("go");
    command.args(["tool", "pprof", "-symbolize=none", "-proto", "-output"]);
    command.arg(&through).arg(&file).stdin(Stdio::null());
    run::run(command).ok();
    let over = |file: &Path| json(file, "--over 1s")["sums"].clone();
    assert_eq!(over(&through), over(&file));
}

#[test]
fn hostile_profiles_have_a_table_over_time() {
    let dir = temp_dir();
    let mut deep = Builder::new(&[("a", "count"), ("a", "count")]);
    deep.keep_times(TimeLimits { start: 0, max_samples: 9 });
    let name = format!("{}\u{1b}[31m\u{202e}\n", "x".repeat(100_000));
    let frame = functions(&mut deep, None, 1, &[(&name, "a.c", 1)]);
    for (time, value) in [(1u64, -5), (1 << 60, 7)] {
        deep.set_time(Some(time));
        deep.add(&vec![frame; 10_000], LabelSetId::EMPTY, 0, &[(Column(0), 1), (Column(1), value)]);
    }
    let mut odd = odd_names();
    let times = odd.times.push([u64::MAX >> 1, 0].into_iter());
    odd.samples[0].times = times;
    for (i, profile) in [deep.finish(None), odd].iter().enumerate() {
        let file = saved(profile, dir.path(), &format!("{i}.pb.gz"));
        for options in
            ["--over 1s", "--over 1us --cum", "--time 0s..1s", "--time 1%..", "--over 1h"]
        {
            let out = Prof::new(&dir, "report").args(options).arg(&file).run().ok();
            let text = out.text();
            assert!(!text.contains('\u{1b}') && !text.contains('\u{202e}'), "{options}");
            json(&file, options);
        }
    }
}
