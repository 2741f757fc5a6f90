//! Percentages, units and quotients of values: those of `go tool pprof` with the same options.

use std::collections::BTreeMap;
use std::path::Path;

use regex::Regex;

use crate::common::go::pprof;
use crate::common::{Prof, needs, temp_dir, views};

/// The numbers of a function: self value and total, each with its percentage.
type Numbers = [f64; 4];

/// The functions of `prof report` in a file of a directory.
fn own(dir: &Path, file: &str, args: &str) -> BTreeMap<String, Numbers> {
    let row = Regex::new(
        r"(?m)^ *(-?[\d,.]+)(?: \S+)? +(-?[\d.]+)% +(-?[\d,.]+)(?: \S+)? +(-?[\d.]+)%  (.*)$",
    )
    .unwrap();
    let text = Prof::new(dir, "report --stdio --sort symbol -n 0").args(args).arg(file).run().ok();
    let text = text.text();
    let number = |text: &str| text.replace(',', "").parse::<f64>().unwrap();
    row.captures_iter(&text)
        .map(|row| (row[5].to_owned(), [1, 2, 3, 4].map(|at| number(&row[at]))))
        .collect()
}

/// The same in `go tool pprof -top`.
fn theirs(dir: &Path, file: &str, args: &str) -> BTreeMap<String, Numbers> {
    let all = ["-top", "-symbolize=none", "-nodecount=0", "-nodefraction=0"];
    let options: Vec<&str> = all.into_iter().chain(args.split_whitespace()).collect();
    let text = pprof(&options, &dir.join(file)).text();
    let rows = text.lines().skip_while(|line| !line.trim_start().starts_with("flat ")).skip(1);
    let number = |word: &str| {
        let end = word.find(|c: char| c.is_alphabetic() || c == '%').unwrap_or(word.len());
        word[..end].parse::<f64>().unwrap_or_else(|error| panic!("{word:?}: {error}\n{text}"))
    };
    rows.map(|row| {
        let words: Vec<&str> = row.split_whitespace().collect();
        let name = words[5..].join(" ");
        let name = name.trim_end_matches(" (inline)").trim_end_matches(" (partial-inline)");
        (name.to_owned(), [0, 1, 3, 4].map(|at| number(words[at])))
    })
    .collect()
}

/// Fails unless both have the same functions with the same numbers; pprof rounds percentages below
/// 1 and near 100 to fewer digits. Returns the number of functions.
fn assert_equal(dir: &Path, file: &str, ours: &str, pprof: &str) -> usize {
    let (own, theirs) = (own(dir, file, ours), theirs(dir, file, pprof));
    let has_values = |numbers: &Numbers| numbers[0] != 0.0 || numbers[2] != 0.0;
    for (name, expected) in theirs.iter().filter(|(_, numbers)| has_values(numbers)) {
        let shown = own.get(name).unwrap_or_else(|| panic!("{file} {ours}: no {name}: {own:?}"));
        for at in 0..4 {
            let is_percentage = at % 2 == 1;
            let (found, expected) = (shown[at], expected[at]);
            let is_exact = (1.0..99.9).contains(&expected.abs());
            let most = match (is_percentage, is_exact) {
                (false, _) => 1e-9 * expected.abs(),
                (true, true) => 0.0101,
                (true, false) => 0.0601,
            };
            let difference = (found - expected).abs();
            assert!(difference <= most, "{file} {ours}: {name}: {found} and {expected}");
        }
    }
    let count = own.values().filter(|numbers| has_values(numbers)).count();
    assert_eq!(count, theirs.values().filter(|numbers| has_values(numbers)).count(), "{ours}");
    count
}

#[test]
fn relative_percentages_are_those_of_pprof() {
    if !needs(&["go"]) {
        return;
    }
    let dir = temp_dir();
    views::known(&dir);
    views::go_profiles(&dir);
    let mut functions = 0;
    for (file, kind, filter) in [
        ("known.pb.gz", "cpu", "focus=foo1"),
        ("known.pb.gz", "cpu", "ignore=foo1"),
        ("known.pb.gz", "samples", "focus=bar"),
        ("cpu.pb.gz", "cpu", "focus=runtime"),
        ("cpu.pb.gz", "cpu", "ignore=runtime"),
        ("heap.pb.gz", "alloc_space", "focus=main"),
        ("heap.pb.gz", "inuse_objects", "ignore=main"),
    ] {
        let unit = match kind {
            "cpu" => "ns",
            "alloc_space" => "B",
            _ => "count",
        };
        for (ours, theirs) in [("", ""), ("--relative-percentages", "-relative_percentages")] {
            let ours = format!("--{filter} --type {kind} --columns self,self%,total,total% {ours}");
            let theirs = format!("-{filter} -sample_index={kind} -unit={unit} {theirs}");
            // Units differ here: only percentages are compared.
            let percentages = |all: BTreeMap<String, Numbers>| -> BTreeMap<String, [f64; 2]> {
                all.into_iter().map(|(name, [_, own, _, total])| (name, [own, total])).collect()
            };
            let own = percentages(own(dir.path(), file, &ours));
            let go = percentages(self::theirs(dir.path(), file, &theirs));
            for (name, expected) in &go {
                let Some(found) = own.get(name) else {
                    assert_eq!(*expected, [0.0; 2], "{file} {ours}: {name}");
                    continue;
                };
                for (found, expected) in found.iter().zip(expected) {
                    let difference = (found - expected).abs();
                    assert!(difference < 0.061, "{file} {ours}: {name}: {found} and {expected}");
                }
            }
            functions += own.len();
        }
    }
    assert!(functions > 40, "{functions}");
}

#[test]
fn percentages_of_every_view_are_of_what_passes_the_filters() {
    let dir = temp_dir();
    views::known(&dir);
    let text = |args: &str| Prof::new(&dir, args).arg("known.pb.gz").run().ok().text();
    // foo1 has 4 s of 9 s, bar 2.5 s in it.
    let relative = "--focus foo1 --relative-percentages";
    let table = text(&format!("report --stdio {relative}"));
    for part in [
        "keeps 4.00 s (44.44%); percentages are of what it keeps",
        "3 rows: 4.00 s, 100.00%",
        "2.50 s  62.50%  2.50 s   62.50%",
    ] {
        assert!(table.contains(part), "{part:?} is not in\n{table}");
    }
    for (view, part) in [
        ("report -g", "2.50 s   62.50%"),
        ("report --sandwich bar", "62.50%"),
        ("report --peek bar", "62.50%"),
        ("report --quality", "62.50%"),
        ("report --coverage", "100.00%"),
        ("report --sort process", "100.00%"),
        ("report --states", "100.00%"),
        ("graph", "(62.50%)"),
        ("flame", "62.50%"),
        ("annotate --percent bar", "62.50%"),
    ] {
        let shown = text(&format!("{view} {relative}"));
        assert!(shown.contains(part), "{view}: {part:?} is not in\n{shown}");
        let usual = text(&format!("{view} --focus foo1"));
        assert!(!usual.contains(part), "{view}: {part:?} is in\n{usual}");
    }
    // Limits are in the same percentages.
    let rows = |args: &str| {
        let json = text(&format!("report --json --focus foo1 --no-children {args}"));
        let json: serde_json::Value = serde_json::from_str(&json).unwrap();
        (json["percent_of"].clone(), json["rows"].as_array().unwrap().len())
    };
    assert_eq!(rows("--percent-limit 30"), ("total".into(), 0));
    assert_eq!(rows("--percent-limit 30 --relative-percentages"), ("kept".into(), 2));
    let error = Prof::new(&dir, "report --diff known.pb.gz known.pb.gz --relative-percentages");
    let error = error.run();
    error.refused(2, &["--relative-percentages cannot be combined with --diff"]);
}

/// The profiles of Go, and a known one.
fn profiles() -> tempfile::TempDir {
    let dir = temp_dir();
    views::known(&dir);
    views::go_profiles(&dir);
    dir
}

#[test]
fn values_in_a_unit_are_those_of_pprof() {
    if !needs(&["go"]) {
        return;
    }
    let dir = profiles();
    for (file, kind, units) in [
        ("known.pb.gz", "cpu", ["ns", "ms", "s"]),
        ("cpu.pb.gz", "cpu", ["us", "ms", "s"]),
        ("heap.pb.gz", "alloc_space", ["B", "kB", "MB"]),
        ("heap.pb.gz", "inuse_space", ["b", "kb", "MB"]),
    ] {
        for unit in units {
            let ours = format!("--type {kind} --unit {unit}");
            let theirs = format!("-sample_index={kind} -unit={unit}");
            assert!(assert_equal(dir.path(), file, &ours, &theirs) > 0, "{file} {ours}");
        }
    }
}

#[test]
fn divided_values_are_those_of_pprof() {
    if !needs(&["go"]) {
        return;
    }
    let dir = profiles();
    for (file, kind, unit, number) in [
        ("known.pb.gz", "cpu", "ms", "4"),
        ("known.pb.gz", "cpu", "s", "0.125"),
        ("known.pb.gz", "samples", "count", "2"),
        ("cpu.pb.gz", "cpu", "us", "8"),
        ("cpu.pb.gz", "samples", "count", "4"),
        ("heap.pb.gz", "alloc_space", "kB", "16"),
    ] {
        let ours = format!("--type {kind} --unit {unit} --divide-by {number}");
        let theirs = format!("-sample_index={kind} -unit={unit} -divide_by={number}");
        assert!(assert_equal(dir.path(), file, &ours, &theirs) > 0, "{file} {ours}");
    }
}

#[test]
fn means_are_those_of_pprof() {
    if !needs(&["go"]) {
        return;
    }
    let dir = profiles();
    for (file, kind, unit) in [
        ("known.pb.gz", "cpu", "ns"),
        ("cpu.pb.gz", "cpu", "us"),
        ("heap.pb.gz", "alloc_space", "B"),
    ] {
        for filter in ["", "focus=main", "ignore=main"] {
            let option =
                |dashes| filter.split_whitespace().map(|f| format!("{dashes}{f}")).collect();
            let [ours, theirs]: [String; 2] = ["--", "-"].map(option);
            let ours = format!("--mean --type {kind} --unit {unit} {ours}");
            let theirs = format!("-mean -sample_index={kind} -unit={unit} {theirs}");
            assert_equal(dir.path(), file, &ours, &theirs);
        }
    }
}

#[test]
fn quotients_and_units_are_in_every_view() {
    let dir = temp_dir();
    views::known(&dir);
    let text = |args: &str| Prof::new(&dir, args).arg("known.pb.gz").run().ok().text();
    // bar has 5 s; main 9 s.
    for (view, part) in [
        ("report --stdio", "1250.00 ms  55.56%"),
        ("report -g --stdio", "2250.00 ms  100.00%"),
        ("report --sandwich bar --stdio", "Total: 1250.00 ms, 55.56%; self: 1250.00 ms, 55.56%"),
        ("report --peek bar --stdio", "1250.00 ms"),
        ("report --states --stdio", "2250.00 ms"),
        ("graph", "1250.00 ms (55.56%)"),
        ("flame", "all (cpu 2250.00 ms, 100.00%)"),
        ("annotate bar", "self 1250.00 ms, 55.56%"),
    ] {
        let shown = text(&format!("{view} --divide-by 4 --unit ms"));
        assert!(shown.contains(part), "{view}: {part:?} is not in\n{shown}");
        assert!(shown.contains("divided by 4"), "{view}: {shown}");
    }
    let json = |args: &str| -> serde_json::Value { serde_json::from_str(&text(args)).unwrap() };
    let divided = json("report --json --divide-by 4 --unit ms");
    assert_eq!(divided["divided_by"], 4.0);
    assert_eq!((&divided["shown_unit"], &divided["mean_per"]), (&"ms".into(), &().into()));
    assert_eq!(
        (&divided["total"], &divided["rows"][0]["self"]),
        (&2_250_000_000i64.into(), &1_250_000_000i64.into())
    );
    let mean = json("report --json --mean");
    assert_eq!(
        (&mean["mean_per"], &mean["rows"][0]["self"]),
        (&"samples".into(), &500_000_000.into())
    );
}

#[test]
fn a_unit_that_does_not_fit_is_refused() {
    let dir = temp_dir();
    views::known(&dir);
    let refused = |args: &str, words: &[&str]| {
        Prof::new(&dir, args).arg("known.pb.gz").run().refused(2, words);
    };
    let fitting = "cpu is in nanoseconds; use ns, us, ms, s, h, min or auto";
    for command in ["report", "graph", "flame", "annotate bar"] {
        refused(&format!("{command} --unit kB"), &["--unit kB", fitting]);
    }
    refused("report --unit parsec", &["--unit parsec", fitting]);
    refused("report --type samples --unit ms", &["samples is in count; use count or auto"]);
    refused("report --divide-by 0", &["--divide-by", "not a number larger than 0"]);
    refused("report --mean --quality", &["--mean", "--quality"]);
    for args in ["--type samples --unit count", "--unit auto", "--type cpu,samples --unit s"] {
        Prof::new(&dir, "report").args(args).arg("known.pb.gz").run().ok();
    }
}
