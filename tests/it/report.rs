//! `prof report` on pprof files.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::common;
use crate::common::views::{self, HALF};
use crate::common::{Build, Prof, needs, read, target, temp_dir};

/// Self value and total of every function in `prof report --json`.
fn functions(dir: impl AsRef<Path>, args: &str) -> BTreeMap<String, (i64, i64)> {
    let json = Prof::new(dir, "report --json --sort symbol").args(args).run().ok();
    let value: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
    let mut out = BTreeMap::new();
    for row in value["rows"].as_array().unwrap() {
        let name = row["function"].as_str().unwrap().to_string();
        let numbers = (row["self"].as_i64().unwrap(), row["total"].as_i64().unwrap());
        assert!(out.insert(name.clone(), numbers).is_none(), "{name} has two rows");
    }
    out
}

/// The same from `go tool pprof -top`.
fn go_functions(file: &Path, kind: &str, unit: &str) -> BTreeMap<String, (i64, i64)> {
    let mut command = Command::new("go");
    command.args(["tool", "pprof", "-top", "-symbolize=none", "-nodecount=0", "-nodefraction=0"]);
    command.arg(format!("-unit={unit}")).arg(format!("-sample_index={kind}")).arg(file);
    let out = common::run::run(command_without_input(command)).ok();
    assert!(!out.stderr.to_lowercase().contains("warn"), "{}", out.stderr);
    let mut rows = BTreeMap::new();
    let text = out.text();
    let mut lines = text.lines().skip_while(|l| !l.trim_start().starts_with("flat "));
    lines.next().expect("a table");
    for line in lines {
        let words: Vec<_> = line.split_whitespace().collect();
        let value = |w: &str| w.trim_end_matches(unit).parse::<i64>().expect(line);
        let name = words[5..].join(" ");
        let name = name.trim_end_matches(" (inline)").trim_end_matches(" (partial-inline)");
        let numbers = (value(words[0]), value(words[3]));
        if numbers != (0, 0) {
            rows.insert(name.to_string(), numbers);
        }
    }
    rows
}

fn command_without_input(mut command: Command) -> Command {
    command.stdin(Stdio::null());
    command
}

#[test]
fn the_known_values_are_exact() {
    let dir = temp_dir();
    views::known(&dir);
    let expected = [
        ("bar", (10 * HALF, 10 * HALF)),
        ("foo1", (3 * HALF, 8 * HALF)),
        ("foo2", (HALF, 6 * HALF)),
        ("main", (4 * HALF, 18 * HALF)),
    ];
    let expected: BTreeMap<_, _> = expected.map(|(n, v)| (n.to_string(), v)).into();
    assert_eq!(functions(&dir, "known.pb.gz"), expected);
    let text = Prof::new(&dir, "report known.pb.gz").run().ok().text();
    for part in [
        "Type: cpu [nanoseconds]; --type also: samples",
        "Total: 9.00 s",
        "5.00 s  55.56%  5.00 s   55.56%  known   bar",
    ] {
        assert!(text.contains(part), "{part:?} is not in:\n{text}");
    }
}

#[test]
fn go_tool_pprof_agrees_on_our_file() {
    if !needs(&["go"]) {
        return;
    }
    let dir = temp_dir();
    let file = views::known(&dir);
    assert_eq!(functions(&dir, "known.pb.gz"), go_functions(&file, "cpu", "ns"));
    let samples = functions(&dir, "known.pb.gz --type samples");
    assert_eq!(samples, go_functions(&file, "samples", "count"));
}

#[test]
fn go_tool_pprof_agrees_on_its_own_files() {
    if !needs(&["go"]) {
        return;
    }
    let dir = temp_dir();
    views::go_profiles(&dir);
    let cases = [
        ("cpu.pb.gz", "cpu", "ns"),
        ("cpu.pb.gz", "samples", "count"),
        ("heap.pb.gz", "alloc_objects", "count"),
        ("heap.pb.gz", "alloc_space", "B"),
        ("heap.pb.gz", "inuse_objects", "count"),
        ("heap.pb.gz", "inuse_space", "B"),
    ];
    for (file, kind, unit) in cases {
        let ours = functions(&dir, &format!("{file} --type {kind}"));
        assert!(!ours.is_empty(), "{file} {kind}");
        assert_eq!(ours, go_functions(&dir.path().join(file), kind, unit), "{file} {kind}");
    }
}

#[test]
fn several_files_are_merged() {
    let dir = temp_dir();
    let file = views::known(&dir);
    std::fs::copy(&file, dir.path().join("again.pb.gz")).unwrap();
    let once = functions(&dir, "known.pb.gz");
    let twice = functions(&dir, "known.pb.gz -i again.pb.gz");
    let doubled: BTreeMap<_, _> = once.into_iter().map(|(n, (s, t))| (n, (2 * s, 2 * t))).collect();
    assert_eq!(twice, doubled);
}

#[test]
fn the_default_file_and_standard_input_are_read() {
    let dir = temp_dir();
    Prof::new(&dir, "report").run().refused(1, &["profile.pb.gz", "prof record"]);
    let file = views::known(&dir);
    let bytes = std::fs::File::open(&file).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_prof"));
    command.args(["report", "-"]).stdin(bytes);
    assert!(common::run::run(command).ok().text().contains("foo1"));
    std::fs::rename(file, dir.path().join("profile.pb.gz")).unwrap();
    assert!(Prof::new(&dir, "report").run().ok().text().contains("foo1"));
}

#[test]
fn call_trees_start_at_callers_or_at_callees() {
    let dir = temp_dir();
    views::known(&dir);
    let tree = Prof::new(&dir, "report -g known.pb.gz").run().ok().text();
    let lines: Vec<_> = tree.lines().filter(|l| l.contains("[known]")).collect();
    assert!(lines[0].trim_end().ends_with("  main  [known]"), "{tree}");
    assert!(lines[1].starts_with("    4.00 s   44.44%      1.50 s   16.67%  ├─foo1"), "{tree}");
    let callers = Prof::new(&dir, "report -g callee known.pb.gz").run().ok().text();
    let lines: Vec<_> = callers.lines().filter(|l| l.contains("[known]")).collect();
    assert!(lines[0].starts_with("    5.00 s   55.56%  bar"), "{callers}");
}

#[test]
fn rows_can_be_grouped_filtered_and_cut() {
    let dir = temp_dir();
    views::known(&dir);
    views::odd(&dir);
    let text = |args: &str| Prof::new(&dir, "report").args(args).run().ok().text();
    let processes = text("odd.pb.gz --sort comm");
    assert!(processes.contains("3  75.00%      3  75.00%  a;b"), "{processes}");
    assert!(processes.contains("<c & d>"), "{processes}");
    let perf = text("odd.pb.gz --sort comm,dso,symbol --no-children --stdio");
    assert!(perf.contains("3  75.00%  a;b      odd     operator; 12"), "{perf}");
    let focused = text("known.pb.gz --focus ^foo2$");
    assert!(focused.contains("the filter keeps 3.00 s (33.33%)"), "{focused}");
    assert!(!focused.contains("foo1"), "{focused}");
    let cut = text("known.pb.gz -n 1");
    assert!(cut.contains("Showing 1 of 4 rows: 5.00 s, 55.56% (3 left out"), "{cut}");
    let limit = text("known.pb.gz --percent-limit 20 --no-children");
    assert!(limit.contains("Showing 2 of 4 rows"), "{limit}");
    assert!(text("known.pb.gz --lines").contains("bar known.c:7"));
    assert!(text("known.pb.gz --header").starts_with("# total samples: 18"));
    assert!(text("known.pb.gz --focus nothing").contains("No sample passes the filter."));
}

#[test]
fn an_empty_profile_is_no_failure() {
    let dir = temp_dir();
    views::empty(&dir);
    let text = Prof::new(&dir, "report empty.pb.gz").run().ok().text();
    assert!(text.contains("The profile contains no samples."), "{text}");
    assert!(functions(&dir, "empty.pb.gz").is_empty());
}

#[test]
fn bad_input_is_refused_in_one_line() {
    let dir = temp_dir();
    views::known(&dir);
    let refused = |args: &str, code, words: &[&str]| {
        let out = Prof::new(&dir, "report").args(args).run();
        out.refused(code, words);
        assert_eq!(out.stderr.trim_end().lines().count(), 1, "{}", out.stderr);
    };
    refused("missing.pb.gz", 1, &["missing.pb.gz"]);
    refused("known.pb.gz --focus (", 2, &["--focus", "not a regular expression", "unclosed"]);
    refused("known.pb.gz --type heap", 2, &["heap", "samples, cpu"]);
    std::fs::write(dir.path().join("text.pb"), "hello, I am no profile\n").unwrap();
    refused("text.pb", 1, &["text.pb"]);
}

#[test]
fn a_closed_pipe_is_no_failure() {
    let dir = temp_dir();
    views::known(&dir);
    let prof = Prof::new(&dir, "report known.pb.gz");
    let mut child = prof.command_with(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    assert!(child.wait().unwrap().success());
}

#[test]
fn a_recording_and_its_report_have_one_number_of_samples_and_a_period_of_time() {
    let dir = temp_dir();
    for types in ["cpu", "wall", "wall,syscalls", "cpu,lock"] {
        let record = Prof::plain(&dir, "record -F 499 -o f.pb.gz -T").arg(types);
        let recorded = record.target(target("known", Build::C), "0.3").run().ok();
        let p = read(dir.path().join("f.pb.gz"));
        assert_eq!((p.period_type.1.as_str(), p.period), ("nanoseconds", 2_004_008), "{types}");
        let line = recorded.stderr.lines().find(|line| line.contains(" distinct stack"));
        let number = line.unwrap().split(' ').nth(1).unwrap();
        let report = Prof::new(&dir, "report --stdio f.pb.gz").run().ok().text();
        let part = |key: &str| {
            let at = report.find(key).unwrap_or_else(|| panic!("{types}: no {key} in {report}"));
            report[at + key.len()..].split([' ', '\n']).next().unwrap().replace(',', "")
        };
        assert_eq!(part("Samples: "), number, "{types}: {report}");
        assert!(report.contains(" ms (499 Hz)"), "{types}: {report}");
    }
}
