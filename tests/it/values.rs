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
