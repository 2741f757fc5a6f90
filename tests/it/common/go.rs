//! The output of `go tool pprof` for a file.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Stdio};

use super::run::{self, Output};

/// Runs `go tool pprof ARGS… FILE`.
#[track_caller]
pub fn pprof(args: &[&str], file: &Path) -> Output {
    let mut go = Command::new("go");
    go.args(["tool", "pprof"]).args(args).arg(file).stdin(Stdio::null());
    // Its cache is no concern of the tests, and HOME may not be writable.
    run::run(go).ok()
}

/// Function → (flat, cum) of one sample type, unscaled.
#[track_caller]
pub fn top(file: &Path, kind: &str, unit: &str) -> BTreeMap<String, (i64, i64)> {
    let options = [
        "-top",
        "-nodecount=10000000",
        "-nodefraction=0",
        "-edgefraction=0",
        &format!("-sample_index={kind}"),
        &format!("-unit={unit}"),
    ];
    let text = pprof(&options, file).text();
    let rows = text.lines().skip_while(|l| !l.trim_start().starts_with("flat ")).skip(1);
    rows.map(|row| {
        // flat flat% sum% cum cum% name…; a function that is inlined everywhere is marked so, one
        // that is inlined here and called there, too (glibc's `call_init`).
        let words: Vec<&str> = row.split_whitespace().collect();
        let number = |i: usize| {
            let digits = words[i].trim_end_matches(|c: char| c.is_alphabetic());
            digits.parse::<i64>().unwrap_or_else(|e| panic!("{row:?}: {e}"))
        };
        let name = words[5..].join(" ");
        let name = [" (inline)", " (partial-inline)"]
            .iter()
            .fold(&*name, |n, end| n.trim_end_matches(end));
        (name.to_string(), (number(0), number(3)))
    })
    .collect()
}
