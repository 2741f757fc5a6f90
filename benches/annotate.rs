//! `prof annotate` of the hottest function of a Rust binary of 160 MB, its lines and its
//! instructions, compared with `perf annotate`.
//!
//! cargo bench --bench annotate [-- --functions 2050 --limit 120 --runs 3]
//!
//! The first run compiles the program, which takes one to three minutes. `perf annotate` is stopped
//! after LIMIT seconds.

#![allow(unsafe_code)]

mod support;

use std::fs::File;
use std::path::Path;
use std::process::{Command, Stdio};

use support::units::{NOT_MEASURED, time};
use support::{Busy, Figures, NOT_INSTALLED, PROF, Usage, claim, measure, median, option};

/// Rounds of the program that are timed, to calculate those of a recording, and its seconds.
const PROBE: u64 = 20_000;
const SECONDS: f64 = 3.0;

/// Part of the name of the program.
const BINARY: &str = "generic";

/// Starts the program with work for a recording.
fn busy(program: &Path) -> Busy {
    let probe = Busy::program(program, PROBE).work();
    Busy::program(program, (PROBE as f64 * SECONDS / probe.wall) as u64)
}

/// Records the program with prof, with names.
fn record(program: &Path, file: &Path) {
    let busy = busy(program);
    let mut command = Command::new(PROF);
    command.args(["record", "-q", "-F", "999", "-p", &busy.pid(), "-o"]).arg(file);
    let prof = support::start(command.stdout(Stdio::null()));
    support::settle(1000);
    busy.work();
    assert!(prof.finish().0.ok, "prof record");
}

/// The hottest function of a program in a recording.
fn hottest(file: &Path) -> String {
    let mut command = Command::new(PROF);
    command.args(["report", "--json", "-n", "1", "--binary", BINARY]).arg(file);
    let output = command.output().expect("prof starts").stdout;
    let table: serde_json::Value = serde_json::from_slice(&output).expect("JSON");
    table["rows"][0]["function"].as_str().expect("a function").to_owned()
}

/// The costs of `prof annotate` of a function.
fn ours(file: &Path, function: &str, args: &[&str], runs: usize) -> Vec<Usage> {
    let run = |_| {
        let mut command = Command::new(PROF);
        let pattern = format!("^{}$", regex::escape(function));
        command.arg("annotate").arg(pattern).arg(file).args(args).arg("--no-cache");
        let usage = measure(command.stdout(Stdio::null()).stderr(Stdio::null()));
        assert!(usage.ok, "prof annotate {args:?}");
        usage
    };
    (0..runs.max(1)).map(run).collect()
}

/// The hottest symbol of a program in a recording of perf that is an instance of a function.
///
/// perf finds a function by the name in the binary only if it does not demangle; a demangled name
/// is that of all instances of a generic function.
fn symbol(data: &Path, program: &Path, function: &str) -> Option<String> {
    let mut report = Command::new("perf");
    report.args(["report", "--stdio", "--no-demangle", "-F", "overhead,sym", "-d"]);
    report.arg(program.file_name()?).arg("-i").arg(data);
    let output = report.stderr(Stdio::null()).output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let name = function.rsplit("::").next()?;
    // Both manglings of Rust have identifiers with their length in front.
    let mangled = format!("{}{name}", name.len());
    let mut symbols = text.lines().filter_map(|line| Some(line.split_once("[.] ")?.1.trim()));
    symbols.find(|symbol| symbol.contains(&mangled)).map(str::to_owned)
}

/// The seconds of `perf annotate` of an instance of the function; its limit if it was stopped.
fn perf(program: &Path, dir: &Path, function: &str, limit: u64) -> Option<(f64, bool)> {
    let data = dir.join("perf.data");
    let busy = busy(program);
    let mut command = Command::new("perf");
    command.args(["record", "-e", "cpu-clock:u", "-F", "999", "-p", &busy.pid(), "-o"]);
    let perf = support::start(command.arg(&data).stdout(Stdio::null()).stderr(Stdio::null()));
    support::settle(1000);
    busy.work();
    if !perf.finish().0.ok {
        return None;
    }
    let symbol = symbol(&data, program, function)?;
    let listing = dir.join("perf.txt");
    let mut command = Command::new("timeout");
    command.arg(limit.to_string()).args(["perf", "annotate", "--stdio", "--no-demangle", "-l"]);
    command.args(["-s", &symbol, "-i"]).arg(&data).stdin(Stdio::null());
    command.stdout(File::create(&listing).ok()?);
    let (usage, code) = support::measure_family(command.stderr(Stdio::null()));
    println!("perf annotate -l -s {symbol}: {:.2} s, exit code {code:?}", usage.wall);
    match code {
        // Without samples of the symbol it prints nothing, and succeeds.
        Some(0) if listing.metadata().is_ok_and(|m| m.len() > 0) => Some((usage.wall, true)),
        Some(124) => Some((usage.wall, false)),
        _ => None,
    }
}

fn main() {
    let runs: usize = option("runs", 3);
    let program = support::generic_program(option("functions", 2050));
    let dir = support::temp_dir();
    let file = dir.path().join("profile.pb.gz");
    record(&program, &file);
    let function = hottest(&file);
    let bytes = program.metadata().map_or(0, |m| m.len()) as f64;
    println!("{function} of a program of {:.0} MB", bytes / 1e6);
    let lines = ours(&file, &function, &[], runs);
    let code = ours(&file, &function, &["--asm"], runs);
    let wall = |all: &[Usage]| median(all.iter().map(|u| u.wall).collect());
    println!("lines {:.3} s, instructions {:.3} s", wall(&lines), wall(&code));
    claim(wall(&code) < 1.0, &format!("{:.2} s (1 s)", wall(&code)));
    let theirs = if support::has_or_advise("perf", "linux-perf") {
        match perf(&program, dir.path(), &function, option("limit", 120)) {
            Some((seconds, true)) => time(seconds),
            Some((seconds, false)) => format!("over {}", time(seconds)),
            None => "failed".to_owned(),
        }
    } else {
        NOT_INSTALLED.to_owned()
    };
    let mut figures = Figures::new(&["Measurement", "prof", "`perf annotate`"]);
    let mb = bytes / 1e6;
    figures.conditions(&format!("The hottest function of a Rust program of {mb:.0} MB."));
    figures.row("time of the instructions with lines", [time(wall(&code)), theirs]);
    figures.row("time of the lines", [time(wall(&lines)), NOT_MEASURED.to_owned()]);
    figures.publish();
}
