//! `prof report --quality`: the uncertainty of the values in a profile.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use crate::common::{Build, Prof, machine, read, target};

/// Two seconds of the program with known answers.
fn recording() -> &'static Path {
    static FILE: OnceLock<PathBuf> = OnceLock::new();
    machine::share();
    FILE.get_or_init(|| {
        let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join("quality");
        std::fs::create_dir_all(&dir).unwrap();
        let known = target("known", Build::C);
        Prof::new(&dir, "record -F 999 -e cpu-clock").target(known, "2").run().ok();
        dir.join("profile.pb.gz")
    })
}

/// The report as JSON, of the recording, taken `times` times.
fn json(options: &str, times: usize) -> serde_json::Value {
    let mut prof = Prof::new(std::env::temp_dir(), "report --quality --json").args(options);
    for _ in 0..times {
        prof = prof.arg(recording());
    }
    serde_json::from_slice(&prof.run().ok().stdout).unwrap()
}

/// The row of a function.
fn row(report: &serde_json::Value, function: &str) -> serde_json::Value {
    let rows = report["rows"].as_array().unwrap();
    rows.iter().find(|r| r["function"] == function).unwrap_or_else(|| panic!("{report}")).clone()
}

fn number(value: &serde_json::Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("{value} is not a number"))
}

#[test]
fn the_figures_are_those_of_the_file() {
    let p = read(recording());
    let report = json("", 1);
    let samples = p.total(p.column("samples"));
    assert_eq!(report["samples"].as_i64(), Some(samples));
    assert_eq!(report["samples_to_halve"].as_i64(), Some(3 * samples));
    // Each sample weighs the same.
    assert!((number(&report["effective_samples"]) - samples as f64).abs() < 1e-6 * samples as f64);
    let rows = report["rows"].as_array().unwrap();
    let shares = rows.iter().map(|r| number(&r["self"]["share"])).filter(|&p| p > 0.0);
    let entropy: f64 = shares.clone().map(|p| -p * p.log2()).sum();
    assert!((number(&report["entropy_bits"]) - entropy).abs() < 1e-6, "{entropy} {report}");
    assert_eq!(report["functions"].as_u64(), Some(shares.count() as u64));
    for function in ["bar", "foo1", "foo2", "main"] {
        let row = row(&report, function);
        for (part, found) in [("self", p.self_share(function)), ("total", p.total_share(function))]
        {
            let [share, low, high] = ["share", "low", "high"].map(|key| number(&row[part][key]));
            assert!((100.0 * share - found).abs() < 1e-6, "{function} {part}: {share}, {found}");
            assert!(0.0 <= low && low <= share && share <= high && high <= 1.0, "{row}");
        }
    }
    // The interval has the width that the binomial distribution gives.
    let bar = row(&report, "bar");
    let [share, low, high] = ["share", "low", "high"].map(|key| number(&bar["self"][key]));
    let width = 2.0 * 1.96 * (share * (1.0 - share) / samples as f64).sqrt();
    assert!(((high - low) / width - 1.0).abs() < 0.01, "{bar}");
}

/// The meaning of `samples_to_halve`: with three times as many additional samples, intervals are
/// half as wide.
#[test]
fn four_times_the_samples_halve_the_intervals() {
    let (once, four_times) = (json("", 1), json("", 4));
    let more = number(&four_times["samples"]) - number(&once["samples"]);
    assert_eq!(more, number(&once["samples_to_halve"]));
    for function in ["bar", "foo1", "main"] {
        let width = |report| {
            let row = row(report, function);
            number(&row["self"]["high"]) - number(&row["self"]["low"])
        };
        let ratio = width(&four_times) / width(&once);
        assert!((ratio - 0.5).abs() < 0.01, "{function}: {ratio}");
    }
    assert_eq!(once["entropy_bits"], four_times["entropy_bits"]);
}

#[test]
fn the_text_shows_the_figures_of_the_json() {
    let report = json("", 1);
    let text =
        Prof::new(std::env::temp_dir(), "report --quality").arg(recording()).run().ok().text();
    let entropy = format!("entropy: {:.2} bits", number(&report["entropy_bits"]));
    assert!(text.contains(&entropy), "{entropy} is not in:\n{text}");
    assert!(text.contains("95 % confidence") && text.contains(" more samples"), "{text}");
    let bar = &row(&report, "bar")["self"];
    let percent = |key: &str, end: &str| format!("{:.2}{end}", 100.0 * number(&bar[key]));
    let line = text.lines().find(|l| l.ends_with("  bar")).unwrap_or_else(|| panic!("{text}"));
    let words: Vec<&str> = line.split_whitespace().collect();
    let want = [percent("share", "%"), percent("low", ""), "…".into(), percent("high", "%")];
    assert_eq!(words[..4], want, "{line}");
}

#[test]
fn rows_are_selected_as_in_the_report() {
    let functions = |options: &str| -> Vec<String> {
        let report = json(options, 1);
        let rows = report["rows"].as_array().unwrap().iter();
        rows.map(|r| r["function"].as_str().unwrap().to_string()).collect()
    };
    assert_eq!(functions("-n 1"), ["bar"]);
    assert_eq!(functions("--percent-limit 10 --no-children"), ["bar", "main", "foo1"]);
    let by_total = functions("--sort total -n 6");
    assert!(
        by_total.iter().any(|f| f == "_start" || f.starts_with("__libc_start")),
        "{by_total:?}"
    );
    // The shares of filtered samples are shares of the whole.
    let filtered = row(&json("--focus foo2", 1), "bar");
    let all = row(&json("", 1), "bar");
    let share = |row: &serde_json::Value| number(&row["self"]["share"]);
    assert!(share(&filtered) < 0.7 * share(&all), "{filtered} {all}");
}

#[test]
fn an_empty_selection_has_no_rows() {
    let out = Prof::new(std::env::temp_dir(), "report --quality --focus nowhere")
        .arg(recording())
        .run()
        .ok();
    assert!(out.text().contains("No sample passes the filter"), "{}", out.text());
    let report = json("--focus nowhere", 1);
    assert_eq!(report["rows"].as_array().map(Vec::len), Some(0), "{report}");
    assert_eq!(number(&report["entropy_bits"]), 0.0);
}

#[test]
fn quality_is_refused_for_anything_but_functions() {
    for (options, word) in [
        ("--sort dso", "--sort"),
        ("--sort process", "--sort"),
        ("--sort self,line", "--sort"),
        ("--lines", "--lines"),
        ("-g", "call-graph"),
        ("--coverage", "--coverage"),
    ] {
        let out = Prof::new(std::env::temp_dir(), "report --quality")
            .arg(recording())
            .args(options)
            .run();
        out.refused(2, &[word]);
    }
}
