//! Time from the end of a recording to the flame graph on disk: 60,000 samples of a Rust program
//! with 160 MB of debug information, with inlined functions, compared with `perf script` and `perf
//! report`.
//!
//! cargo bench --bench flame [-- --seconds 6 --functions 2200 --limit 120]
//!
//! The first run compiles the program, which takes one to three minutes. perf is stopped after
//! LIMIT seconds.

mod support;

use std::path::Path;
use std::process::{Command, Stdio};

use support::units::time;
use support::{Busy, Figures, NOT_INSTALLED, claim, measure, option};

/// Rounds of the generated program that are timed, to calculate those of a recording.
const PROBE: u64 = 20_000;

/// Records the program with a profiler that attaches by `-p`.
fn record(command: &mut Command, program: &Path, rounds: u64) {
    let busy = Busy::program(program, rounds);
    command.arg("-p").arg(busy.pid()).stdin(Stdio::null()).stdout(Stdio::null());
    let profiler = support::start(command.stderr(Stdio::piped()));
    support::settle(1500);
    busy.work();
    let (usage, stderr) = profiler.finish();
    print!("{}", stderr.lines().map(|l| format!("  {l}\n")).collect::<String>());
    assert!(usage.ok, "{command:?}");
}

fn step(name: &str, command: &mut Command) -> f64 {
    let usage = measure(command);
    let peak = usage.peak as f64 / f64::from(1 << 20);
    println!("{name:<32} {:>8.2} s CPU {:>8.2} s {peak:>8.0} MiB", usage.cpu, usage.wall);
    assert!(usage.ok, "{command:?}");
    usage.cpu
}

fn prof(dir: &Path, program: &Path, rounds: u64) -> f64 {
    let file = |name: &str| dir.join(name);
    let mut command = support::prof();
    command.args(["record", "--no-symbolize", "-e", "cpu-clock", "-F", "9999", "-d", "1h"]);
    record(command.arg("-o").arg(file("raw.pb.gz")), program, rounds);
    let mut command = support::prof();
    command.arg("symbolize").arg(file("raw.pb.gz")).arg("-o").arg(file("named.pb.gz"));
    let symbols = step("prof symbolize", command.stderr(Stdio::null()));
    let svg = std::fs::File::create(file("out.svg")).expect("a file");
    let mut command = support::prof();
    let flame = step("prof flame", command.arg("flame").arg(file("named.pb.gz")).stdout(svg));
    let drawn = file("out.svg").metadata().map_or(0, |m| m.len());
    println!("{:<32} {:>8.2} s CPU {:>21} KiB of SVG", "together", symbols + flame, drawn / 1024);
    symbols + flame
}

/// The end of a perf command.
enum End {
    /// With all its work done.
    Done,
    /// Stopped at the limit: it would have used more.
    Stopped,
    /// By itself, without having done its work.
    Failed(Option<i32>),
}

/// CPU time of one perf command and of the addr2line processes that it starts.
fn perf(dir: &Path, limit: u64, args: &[&str]) -> (f64, End) {
    let mut command = Command::new("timeout");
    command.arg(limit.to_string()).arg("perf").args(args).arg("-i").arg(dir.join("perf.data"));
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let (usage, code) = support::measure_family(&mut command);
    let name = format!("perf {}", args.join(" "));
    println!("{name:<32} {:>8.2} s CPU {:>8.2} s", usage.cpu, usage.wall);
    let end = match code {
        Some(0) => End::Done,
        // The exit code of timeout(1) when it stopped the command.
        Some(124) => End::Stopped,
        other => End::Failed(other),
    };
    (usage.cpu, end)
}

fn main() {
    let seconds: f64 = option("seconds", 6.2);
    let functions: usize = option("functions", 2200);
    let limit: u64 = option("limit", 120);
    let program = support::generic_program(functions);
    let size = program.metadata().map_or(0, |m| m.len());
    println!("a Rust program of {:.0} MB", size as f64 / 1e6);
    let probe = Busy::program(&program, PROBE).work();
    let rounds = (PROBE as f64 * seconds / probe.wall) as u64;
    let dir = support::temp_dir();
    let ours = prof(dir.path(), &program, rounds);
    claim(ours < 2.0, &format!("{ours:.2} s of CPU from the recording to the picture (2 s)"));
    let mut figures = Figures::new(&["Measurement", "prof", "`perf script`", "`perf report`"]);
    figures.conditions(&format!(
        "A Rust program of {:.0} MB, recorded for {seconds} s at 9,999 Hz.",
        size as f64 / 1e6
    ));
    let mut cells = vec![time(ours)];
    if support::has_or_advise("perf", "linux-perf") {
        let mut command = Command::new("perf");
        command.args(["record", "-e", "cpu-clock", "-F", "9999", "--call-graph", "dwarf,8192"]);
        record(command.arg("-o").arg(dir.path().join("perf.data")), &program, rounds);
        for args in [["script", "--inline"].as_slice(), &["report", "--stdio", "--inline"]] {
            cells.push(against(dir.path(), limit, args, ours));
        }
    } else {
        cells.extend([NOT_INSTALLED, NOT_INSTALLED].map(str::to_owned));
    }
    figures.row("CPU time", cells);
    figures.publish();
}

/// Prints the ratio of a perf command to prof; returns the text of its CPU time. CPU time is
/// compared with CPU time, never with the limit, which is wall-clock time.
fn against(dir: &Path, limit: u64, args: &[&str], ours: f64) -> String {
    match perf(dir, limit, args) {
        (cpu, End::Done) => {
            println!("ratio {:.1}x", cpu / ours);
            time(cpu)
        }
        (cpu, End::Stopped) => {
            println!("ratio more than {:.1}x (stopped after {limit} s)", cpu / ours);
            format!("not finished after {}", time(cpu))
        }
        (_, End::Failed(code)) => {
            println!("no ratio: perf failed ({code:?})");
            "failed".to_owned()
        }
    }
}
