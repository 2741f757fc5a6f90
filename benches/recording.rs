//! What a recording costs, against `perf record` in the same run: the profiler's own CPU time,
//! the bytes that it writes, the slow-down of the target, the samples lost.
//!
//! cargo bench --bench recording [-- --seconds 10 --rounds 3 --hz 99,999,9999 --dump 16384,32768,65528]
//!
//! Each has been started once just before, so that its files are in the page cache.
//!
//! The target is C++ -O2 without frame pointers; prof and perf attach to it before it begins its
//! fixed work and end with it. Neither looks up symbols.

mod support;

use std::path::Path;
use std::process::{Command, Stdio};

use support::{Busy, Usage, claim, median, option};

/// A profiler on the target: one recording.
struct Run {
    /// Its own cost.
    usage: Usage,
    /// CPU time and wall-clock time of the target's work.
    work: support::Work,
    /// Size of its file.
    bytes: u64,
    /// What it said.
    said: String,
}

/// Runs `command` on something short first: what is measured is the recording, not how its
/// program and libraries get from the disk into the page cache.
fn record(command: &mut Command, file: &Path, rounds: u64) -> Run {
    let mut first = Command::new(command.get_program());
    first.args(command.get_args().filter(|a| *a != "-d" && *a != "1h")).args(["--", "true"]);
    first.stdout(Stdio::null()).stderr(Stdio::null()).status().expect("it could be started");
    let busy = Busy::start(rounds);
    command.arg("-p").arg(busy.pid()).stdin(Stdio::null()).stdout(Stdio::null());
    let profiler = support::start(command.stderr(Stdio::piped()));
    support::settle(700);
    let work = busy.work();
    let (usage, said) = profiler.finish();
    let bytes = file.metadata().map_or(0, |m| m.len());
    std::fs::remove_file(file).ok();
    if !usage.ok {
        println!("failed: {command:?}\n{said}");
    }
    Run { usage, work, bytes, said }
}

fn prof(dir: &Path, hz: u32, stacks: &str, rounds: u64) -> Run {
    let file = dir.join("prof.pb.gz");
    let mut command = support::prof();
    command.args(["record", "--no-symbolize", "-e", "cpu-clock", "-d", "1h", "-g", stacks]);
    command.arg("-F").arg(hz.to_string()).arg("-o").arg(&file);
    record(&mut command, &file, rounds)
}

fn perf(dir: &Path, hz: u32, stacks: &str, rounds: u64) -> Run {
    let file = dir.join("perf.data");
    let mut command = Command::new("perf");
    command.args(["record", "-e", "cpu-clock", "--call-graph", stacks]);
    command.arg("-F").arg(hz.to_string()).arg("-o").arg(&file);
    record(&mut command, &file, rounds)
}

/// `N lost` in prof's summary.
fn lost(run: &Run) -> Option<u64> {
    let (before, _) = run.said.split_once(" lost")?;
    before.rsplit(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
}

/// Medians over the rounds.
struct Row {
    /// Percent of a core, while the target worked.
    cpu: f64,
    bytes: f64,
    /// Least CPU time of the target against the least without a profiler, minus 1, in percent.
    slowdown: f64,
    lost: Option<u64>,
}

fn row(runs: &[Run], alone: &[f64]) -> Row {
    let of = |f: &dyn Fn(&Run) -> f64| median(runs.iter().map(f).collect());
    Row {
        cpu: of(&|r| 100.0 * r.usage.cpu / r.work.wall),
        bytes: of(&|r| r.bytes as f64),
        // The least of each: what else happens on the machine only adds to the work.
        slowdown: 100.0
            * (least(runs.iter().map(|r| r.work.cpu)) / least(alone.iter().copied()) - 1.0),
        lost: runs.iter().map(lost).sum(),
    }
}

fn least(times: impl Iterator<Item = f64>) -> f64 {
    times.fold(f64::INFINITY, f64::min)
}

/// Runs prof, perf and the target alone in turns; prints the row of each.
fn compare(dir: &Path, hz: u32, stacks: &str, rounds: u64, times: usize) -> (Row, Row) {
    let (mut ours, mut theirs, mut alone) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..times {
        alone.push(Busy::start(rounds).work().cpu);
        ours.push(prof(dir, hz, stacks, rounds));
        theirs.push(perf(dir, hz, stacks, rounds));
    }
    let (ours, theirs) = (row(&ours, &alone), row(&theirs, &alone));
    let lost = ours.lost.map_or("?".to_string(), |n| n.to_string());
    println!(
        "{hz:>5} {stacks:<12} {:>7.3} {:>7.3} {:>7.1}x {:>9.1} {:>11.1} {:>8.0}x {:>7.2} {:>7.2} {lost:>6}",
        ours.cpu,
        theirs.cpu,
        theirs.cpu / ours.cpu,
        ours.bytes / 1024.0,
        theirs.bytes / 1024.0,
        theirs.bytes / ours.bytes,
        ours.slowdown,
        theirs.slowdown,
    );
    (ours, theirs)
}

fn numbers(text: String) -> Vec<u32> {
    text.split(',').filter_map(|n| n.parse().ok()).collect()
}

fn main() {
    if !support::has("perf") {
        println!("perf is not installed; on Debian: apt-get install linux-perf");
        return;
    }
    let seconds: f64 = option("seconds", 10.0);
    let times: usize = option("rounds", 3);
    let rates = numbers(option("hz", "99,999,9999".to_string()));
    let dumps = numbers(option("dump", "16384,32768,65528".to_string()));
    let dir = support::temp_dir();
    let rounds = support::rounds_for(seconds);
    println!("C++ -O2 without frame pointers, {seconds} s of work, median of {times}");
    println!(
        "{:>5} {:<12} {:>7} {:>7} {:>8} {:>9} {:>11} {:>9} {:>7} {:>7} {:>6}",
        "Hz",
        "stacks",
        "prof %",
        "perf %",
        "ratio",
        "prof KiB",
        "perf KiB",
        "ratio",
        "slow %",
        "perf %",
        "lost"
    );
    let mut claims = Vec::new();
    for &hz in &rates {
        for &dump in &dumps {
            let (ours, theirs) = compare(dir.path(), hz, &format!("dwarf,{dump}"), rounds, times);
            judge(&mut claims, hz, dump, &ours, &theirs);
        }
        let (ours, theirs) = compare(dir.path(), hz, "fp", rounds, times);
        claims.push((ours.cpu <= theirs.cpu, format!("{hz} Hz fp: CPU no more than perf's")));
    }
    for (holds, what) in claims {
        claim(holds, &what);
    }
}

fn judge(claims: &mut Vec<(bool, String)>, hz: u32, dump: u32, ours: &Row, theirs: &Row) {
    let at = format!("{hz} Hz, {dump} bytes");
    if hz == 999 {
        claims.push((ours.cpu <= 0.4, format!("{at}: CPU {:.3} % of a core (0.4)", ours.cpu)));
    }
    let ratio = theirs.cpu / ours.cpu;
    claims.push((ratio >= 8.0, format!("{at}: an eighth of perf's CPU time ({ratio:.1}x)")));
    let ratio = theirs.bytes / ours.bytes;
    claims.push((ratio >= 200.0, format!("{at}: 200 times fewer bytes ({ratio:.0}x)")));
    // Half a percent is what two equal runs differ by.
    let fair = ours.slowdown <= theirs.slowdown + 0.5;
    claims.push((
        fair,
        format!("{at}: slow-down {:.2} %, perf {:.2} %", ours.slowdown, theirs.slowdown),
    ));
    if hz >= 9999 {
        claims.push((ours.lost == Some(0), format!("{at}: no sample lost ({:?})", ours.lost)));
    }
}
