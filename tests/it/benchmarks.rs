//! `docs/benchmarks.md` has a section for each bench, as `cargo bench -- --update` writes it.

use std::path::Path;

use regex::Regex;

#[allow(dead_code)]
#[path = "../../benches/support/document.rs"]
mod document;
#[allow(dead_code)]
#[path = "../../benches/support/units.rs"]
mod units;

/// A bench that compares two builds of prof has no section.
const WITHOUT_SECTION: &str = "pairs";

fn read(path: &str) -> String {
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap()
}

/// Names of the benches in Cargo.toml that have a section.
fn benches() -> Vec<String> {
    let manifest = read("Cargo.toml");
    let named = Regex::new(r#"\[\[bench\]\]\nname = "([^"]+)""#).unwrap();
    let names = named.captures_iter(&manifest).map(|found| found[1].to_owned());
    names.filter(|name| name != WITHOUT_SECTION).collect()
}

#[test]
fn each_bench_has_a_section_with_machine_and_date() {
    let document = read("docs/benchmarks.md");
    let machine =
        Regex::new(r"^\S.*, \d+ CPUs, .*virtual machine with.* counters, .*; .*\d{4}-\d\d-\d\d")
            .unwrap();
    let benches = benches();
    assert!(benches.len() > 10, "only {benches:?} in Cargo.toml");
    for bench in &benches {
        let section = document::section(&document, bench);
        let section = section.unwrap_or_else(|| panic!("no section {}", document::marker(bench)));
        let first = section.lines().next().unwrap_or_default();
        assert!(machine.is_match(first), "{bench}: no machine and date: {first}");
        let table = document::table(section);
        assert!(table.len() > 1, "{bench}: no rows");
        let columns = table[0].len();
        for row in &table {
            assert_eq!(row.len(), columns, "{bench}: {row:?}");
            assert!(row.iter().all(|cell| !cell.is_empty()), "{bench}: {row:?}");
        }
        let lines = section.lines().filter(|line| line.contains('|')).count();
        assert_eq!(lines, table.len() + 1, "{bench}: rows, and the line below the columns' names");
    }
}

#[test]
fn each_section_belongs_to_a_bench() {
    let document = read("docs/benchmarks.md");
    let benches = benches();
    let marks: Vec<&str> = document.lines().filter(|line| line.starts_with("<!--")).collect();
    assert_eq!(marks.len(), 2 * benches.len(), "a section for each bench: {marks:#?}");
    for mark in marks.chunks(2) {
        let known = benches.iter().any(|bench| document::marker(bench) == mark[0]);
        assert!(known && mark[1] == document::END, "{mark:?}");
    }
}

const OLD: &str = "A machine; 2026-11-22.\n\n| Time | prof | perf |\n|---|---|---|\n\
                   | short | 2 s | 3 s |\n| long | 4 s | n/a |\n\n";

#[test]
fn an_update_replaces_its_section_only() {
    let around = |section: &str| {
        format!(
            "# Title\n{}\n{OLD}<!-- end -->\ntext\n{}\n{section}<!-- end -->\nmore\n",
            document::marker("a"),
            document::marker("b")
        )
    };
    let new = OLD.replace("4 s", "1 s");
    assert_eq!(document::replaced(&around(OLD), "b", &new), Some(around(&new)));
    assert_eq!(document::replaced(&around(OLD), "c", &new), None);
}

#[test]
fn an_update_reports_the_figures_that_it_would_lose() {
    assert_eq!(document::missing(OLD, OLD), [""; 0]);
    assert_eq!(document::missing(OLD, &OLD.replace("4 s", "5 s")), [""; 0]);
    let poorer = OLD.replace("3 s", "not installed");
    assert_eq!(document::missing(OLD, &poorer), ["short (perf)"]);
    assert_eq!(document::missing(&poorer, OLD), [""; 0]);
    assert_eq!(document::missing(OLD, &OLD.replace("long", "longer")), ["long"]);
    assert_eq!(document::missing(OLD, ""), ["short", "long"]);
}

#[test]
fn figures_have_two_digits_and_a_unit() {
    for (seconds, text) in [
        (0.414e-9, "0.41 ns"),
        (1.46e-9, "1.5 ns"),
        (128e-9, "130 ns"),
        (999.6e-9, "1.0 µs"),
        (0.0046, "4.6 ms"),
        (1.0, "1.0 s"),
        (86.2, "86 s"),
        (1234.0, "1,200 s"),
        (-0.25e-6, "-250 ns"),
        (0.0, "0 ns"),
        (f64::NAN, "n/a"),
    ] {
        assert_eq!(units::time(seconds), text);
    }
    assert_eq!(units::added(1.5e-9), "1.5 ns more");
    assert_eq!(units::added(-12e-9), "12 ns less");
    for (bytes, text) in [(65528.0, "64 KiB"), (5.1 * 1024.0 * 1_048_576.0, "5.1 GiB")] {
        assert_eq!(units::size(bytes), text);
    }
    for (share, text) in [
        (100.0, "100 %"),
        (99.97, "99.97 %"),
        (99.2, "99.2 %"),
        (99.9962, "99.996 %"),
        (98.96, "99 %"),
        (58.3, "58 %"),
        (0.0, "0 %"),
    ] {
        assert_eq!(units::share(share), text);
    }
    assert_eq!(units::count(1_234_567), "1,234,567");
    assert_eq!(units::number(227_272.7), "230,000");
}
