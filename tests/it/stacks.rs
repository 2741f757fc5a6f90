//! Stacks one by one, and the values of labels: those of `go tool pprof`.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::Path;

use regex::Regex;
use serde_json::Value;

use crate::common::go::pprof;
use crate::common::{Prof, needs, temp_dir, views};
use profile::{Builder, Column, Label, LabelSetId, LabelValue};

fn json(dir: &Path, args: &str, file: &str) -> Value {
    let text = Prof::new(dir, args).args("--json").arg(file).run().ok().text();
    serde_json::from_str(&text).unwrap()
}

/// Stacks with labels, one of which has the unit of bytes.
fn labeled(dir: &Path) -> &'static str {
    let mut b = Builder::new(&[("samples", "count"), ("cpu", "nanoseconds")]);
    let [main, f, g] = ["main", "f", "g"].map(|name| b.named_location(name));
    let mut text = |text: &str| b.profile.strings.intern(text);
    let [thread, bytes, unit] = [text("thread"), text("size"), text("bytes")];
    let names = ["one", "two"].map(text);
    let rows = [(0, 8192, 5), (0, 8193, 2), (1, 16384, 3), (1, 16, 1)];
    for (number, (name, size, count)) in rows.into_iter().enumerate() {
        let labels = [
            Label { key: thread, value: LabelValue::Str(names[name]) },
            Label { key: bytes, value: LabelValue::Num { value: size, unit } },
        ];
        let labels = b.profile.labels.intern(&labels);
        let stack = if number % 2 == 0 { vec![f, main] } else { vec![g, f, main] };
        b.add(&stack, labels, 0, &[(Column(0), count), (Column(1), count * 1_000_000)]);
    }
    b.add(&[main], LabelSetId::EMPTY, 0, &[(Column(0), 4), (Column(1), 4_000_000)]);
    let profile = b.finish(None);
    let file = File::create(dir.join("labeled.pb.gz")).unwrap();
    formats::pprof::write(&profile, file).unwrap();
    "labeled.pb.gz"
}

/// Values and names of the frames of all stacks.
type Stacks = Vec<(i64, Vec<String>)>;

/// The sums of the stacks with equal frames: pprof adds up equal samples of a file on reading.
fn added_up(stacks: Stacks) -> BTreeMap<Vec<String>, i64> {
    let mut sums = BTreeMap::new();
    stacks.into_iter().for_each(|(value, frames)| *sums.entry(frames).or_insert(0) += value);
    sums
}

/// The stacks of `prof report --traces`.
fn own(dir: &Path, file: &str, kind: &str) -> Stacks {
    let traces = json(dir, &format!("report --traces --type {kind}"), file);
    let traces = traces["traces"].as_array().unwrap();
    let values: Vec<u64> =
        traces.iter().map(|trace| trace["value"].as_i64().unwrap().unsigned_abs()).collect();
    assert!(values.is_sorted_by(|a, b| a >= b), "{values:?}");
    let name = |frame: &Value| frame["function"].as_str().unwrap().to_owned();
    let stack = |trace: &Value| {
        let frames = trace["frames"].as_array().unwrap().iter().map(name).collect();
        (trace["value"].as_i64().unwrap(), frames)
    };
    traces.iter().map(stack).collect()
}

/// The stacks of `go tool pprof -traces`.
fn theirs(dir: &Path, file: &str, kind: &str, unit: &str) -> Stacks {
    let options =
        ["-traces", "-symbolize=none", &format!("-sample_index={kind}"), &format!("-unit={unit}")];
    let text = pprof(&options, &dir.join(file)).text();
    let first = Regex::new(r"^ *(-?\d+)[a-zA-Z]*   (\S.*)$").unwrap();
    let frame = |text: &str| text.trim().trim_end_matches(" (inline)").to_owned();
    let mut stacks = Stacks::new();
    let mut is_begin = false;
    for line in text.lines().skip_while(|line| !line.starts_with("-----")) {
        if line.starts_with("-----") {
            is_begin = true;
        } else if let Some(found) = first.captures(line).filter(|_| is_begin) {
            stacks.push((found[1].parse().unwrap(), vec![frame(&found[2])]));
            is_begin = false;
        } else if !is_begin {
            stacks.last_mut().unwrap().1.push(frame(line));
        }
    }
    stacks.retain(|(value, _)| *value != 0);
    stacks
}

#[test]
fn stacks_are_those_of_pprof() {
    if !needs(&["go"]) {
        return;
    }
    let dir = temp_dir();
    views::known(&dir);
    views::go_profiles(&dir);
    let labeled = labeled(dir.path());
    for (file, kind, unit) in [
        ("known.pb.gz", "cpu", "ns"),
        ("known.pb.gz", "samples", "count"),
        (labeled, "cpu", "ns"),
        ("cpu.pb.gz", "cpu", "ns"),
        ("heap.pb.gz", "alloc_space", "B"),
        ("heap.pb.gz", "inuse_objects", "count"),
    ] {
        let stacks = own(dir.path(), file, kind);
        assert!(!stacks.is_empty(), "{file} {kind}");
        let theirs = theirs(dir.path(), file, kind, unit);
        assert!(stacks.len() >= theirs.len(), "{file} {kind}");
        assert_eq!(added_up(stacks), added_up(theirs), "{file} {kind}");
    }
}

#[test]
fn stacks_have_labels_and_limits() {
    let dir = temp_dir();
    let file = labeled(dir.path());
    let text = Prof::new(&dir, "report --traces -n 2").arg(file).run().ok().text();
    for part in [
        "Showing 2 of 5 stacks (3 left out, -n 0 shows all)",
        "thread:  one\n",
        "size:  8192 bytes\n",
        "   5.00 ms   33.33%  f\n",
        "                     main\n",
    ] {
        assert!(text.contains(part), "{part:?} is not in\n{text}");
    }
    assert!(!text.contains("two"), "{text}");
    let first = &json(dir.path(), "report --traces -n 1", file)["traces"][0];
    assert_eq!(
        first["labels"],
        serde_json::json!([
            {"key": "thread", "value": "one"},
            {"key": "size", "value": 8192},
        ])
    );
    assert_eq!((&first["value"], &first["times_micros"]), (&5_000_000.into(), &Value::Null));
    Prof::new(&dir, "report --traces --sort thread").arg(file).run().refused(2, &["--traces"]);
}

#[test]
fn labels_are_those_of_pprof() {
    if !needs(&["go"]) {
        return;
    }
    let dir = temp_dir();
    let file = labeled(dir.path());
    let options = ["-tags", "-symbolize=none", "-sample_index=samples"];
    let theirs = pprof(&options, &dir.path().join(file)).text();
    // `size: Total 11.0` and `7.0 (63.64%): 8kB`.
    let mut expected = Vec::new();
    for line in theirs.lines().map(str::trim).filter(|line| line.contains(": ")) {
        if let Some((key, total)) = line.split_once(": Total ") {
            expected.push((key.to_owned(), total.trim().to_owned(), String::new()));
        } else if let Some((values, text)) = line.split_once(": ").filter(|l| l.0.ends_with(')')) {
            let (value, percent) = values.split_once(" (").unwrap();
            let percent = percent.trim_end_matches("%)").trim().to_owned();
            expected.push((text.trim().to_owned(), value.trim().to_owned(), percent));
        }
    }
    let mut found = Vec::new();
    let tags = json(dir.path(), "report --tags --type samples", file);
    for tag in tags["tags"].as_array().unwrap() {
        let total = tag["total"].as_i64().unwrap();
        let key = tag["key"].as_str().unwrap().to_owned();
        found.push((key, format!("{:.1}", total as f64), String::new()));
        for value in tag["values"].as_array().unwrap() {
            let (text, value) = (value["text"].as_str().unwrap(), value["value"].as_f64().unwrap());
            let percent = format!("{:.2}", 100.0 * value / total as f64);
            found.push((text.to_owned(), format!("{value:.1}"), percent));
        }
    }
    assert_eq!(found, expected, "{theirs}");
    assert_eq!(found.len(), 2 + 3 + 2);
}

#[test]
fn labels_have_limits() {
    let dir = temp_dir();
    let file = labeled(dir.path());
    let text = |args: &str| Prof::new(&dir, args).arg(file).run().ok().text();
    let all = text("report --tags --type samples");
    for part in [
        "size: total 11 (73.33%), 3 values\n",
        "         7   63.64%  8kB\n",
        "thread: total 11 (73.33%), 2 values\n",
        "         4   36.36%  two\n",
    ] {
        assert!(all.contains(part), "{part:?} is not in\n{all}");
    }
    assert!(text("report --tags -n 1").contains("… and 2 more; -n 0 shows all"));
    assert!(!text("report --tags --percent-limit 40").contains("two"));
    assert!(text("report --tags --mean --type cpu").contains("1.00 ms"), "{all}");
    views::known(&dir);
    let none = Prof::new(&dir, "report --tags known.pb.gz").run().ok().text();
    assert!(none.contains("No sample has a label."), "{none}");
    Prof::new(&dir, "report --tags --sort thread").arg(file).run().refused(2, &["--tags"]);
}
