//! Cost of a recording, compared with `perf record` in the same run: the profiler's own CPU time,
//! the bytes that it writes, the slowdown of the target, the samples lost.
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

use support::units::{count, percent, size};
use support::{Busy, Figures, Usage, claim, median, option, peer};

/// A profiler on the target: one recording.
struct Run {
    /// Its own cost.
    usage: Usage,
    /// CPU time and wall-clock time of the target's work.
    work: support::Work,
    /// Size of its file.
    bytes: u64,
    /// Its standard error.
    stderr: String,
}

/// Records the target. Runs `command` on a short program first: measured is the recording, not the
/// way of its program and libraries from the disk into the page cache.
fn record(command: &mut Command, file: &Path, rounds: u64) -> Run {
    let mut first = Command::new(command.get_program());
    first.args(command.get_args().filter(|a| *a != "-d" && *a != "1h")).args(["--", "true"]);
    first.stdout(Stdio::null()).stderr(Stdio::null()).status().expect("it could be started");
    let busy = Busy::start(rounds);
    command.arg("-p").arg(busy.pid()).stdin(Stdio::null()).stdout(Stdio::null());
    let profiler = support::start(command.stderr(Stdio::piped()));
    support::settle(700);
    let work = busy.work();
    let (usage, stderr) = profiler.finish();
    let bytes = file.metadata().map_or(0, |m| m.len());
    std::fs::remove_file(file).ok();
    if !usage.ok {
        println!("failed: {command:?}\n{stderr}");
    }
    Run { usage, work, bytes, stderr }
}

fn prof(dir: &Path, setting: &Setting, rounds: u64) -> Run {
    let file = dir.join("prof.pb.gz");
    let mut command = support::prof();
    command.args(["record", "-v", "--no-symbolize", "-e", "cpu-clock", "-d", "1h"]);
    command.args(["-g", &setting.stacks, "-F", &setting.hz.to_string(), "-o"]).arg(&file);
    record(&mut command, &file, rounds)
}

fn perf(dir: &Path, setting: &Setting, rounds: u64) -> Run {
    let file = dir.join("perf.data");
    let mut command = Command::new("perf");
    command.args(["record", "-e", "cpu-clock", "--call-graph", &setting.stacks]);
    command.args(["-F", &setting.hz.to_string(), "-o"]).arg(&file);
    record(&mut command, &file, rounds)
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
        // The least of each: other programs on the machine only add to the work.
        slowdown: 100.0
            * (least(runs.iter().map(|r| r.work.cpu)) / least(alone.iter().copied()) - 1.0),
        lost: runs.iter().map(|r| support::lost(&r.stderr)).sum(),
    }
}

fn least(times: impl Iterator<Item = f64>) -> f64 {
    times.fold(f64::INFINITY, f64::min)
}

/// Stacks of a recording, and the rate of samples.
struct Setting {
    hz: u32,
    /// The value of `-g` and `--call-graph`.
    stacks: String,
}

impl Setting {
    /// The name of its row.
    fn name(&self) -> String {
        let rate = count(u64::from(self.hz));
        match self.stacks.strip_prefix("dwarf,").and_then(|bytes| bytes.parse::<f64>().ok()) {
            Some(bytes) => format!("{rate} Hz, copies of {}", size(bytes)),
            None => format!("{rate} Hz, frame pointers"),
        }
    }
}

/// The runs of one setting.
struct Bench {
    dir: tempfile::TempDir,
    /// Rounds of the target's work.
    work: u64,
    rounds: usize,
    with_perf: bool,
}

impl Bench {
    /// Runs prof, perf and the target alone in turns; prints and returns the row of each.
    fn compare(&self, setting: &Setting) -> (Row, Option<Row>) {
        let dir = self.dir.path();
        let mut ours = Vec::new();
        let mut theirs = Vec::new();
        let mut alone = Vec::new();
        for _ in 0..self.rounds {
            alone.push(Busy::start(self.work).work().cpu);
            ours.push(prof(dir, setting, self.work));
            if self.with_perf {
                theirs.push(perf(dir, setting, self.work));
            }
        }
        let ours = row(&ours, &alone);
        let theirs = self.with_perf.then(|| row(&theirs, &alone));
        for (tool, row) in [("prof", Some(&ours)), ("perf", theirs.as_ref())] {
            let Some(row) = row else { continue };
            println!(
                "{:<28} {tool}: CPU {:.3} %, {:.1} KiB, slowdown {:.2} %, lost {:?}",
                setting.name(),
                row.cpu,
                row.bytes / 1024.0,
                row.slowdown,
                row.lost
            );
        }
        (ours, theirs)
    }
}

fn numbers(text: String) -> Vec<u32> {
    text.split(',').filter_map(|n| n.parse().ok()).collect()
}

fn main() {
    let seconds: f64 = option("seconds", 10.0);
    let rounds: usize = option("rounds", 3);
    let rates = numbers(option("hz", "99,999,9999".to_string()));
    let dumps = numbers(option("dump", "16384,32768,65528".to_string()));
    let with_perf = support::has_or_advise("perf", "linux-perf");
    let work = support::rounds_for(seconds);
    let bench = Bench { dir: support::temp_dir(), work, rounds, with_perf };
    let mut figures = Figures::new(&[
        "Rate and stacks",
        "CPU time of prof",
        "of perf",
        "slowdown by prof",
        "by perf",
        "written by prof",
        "written by perf",
        "lost by prof",
    ]);
    figures.conditions(&format!("{seconds} s of work, {rounds} runs of each."));
    let mut claims = Vec::new();
    for &hz in &rates {
        let copies = dumps.iter().map(|bytes| format!("dwarf,{bytes}"));
        for stacks in copies.chain(["fp".to_owned()]) {
            let setting = Setting { hz, stacks };
            let (ours, theirs) = bench.compare(&setting);
            add(&mut figures, &setting, &ours, theirs.as_ref());
            judge(&mut claims, &setting, &ours, theirs.as_ref());
        }
    }
    for (holds, text) in claims {
        claim(holds, &text);
    }
    figures.publish();
}

fn add(figures: &mut Figures, setting: &Setting, ours: &Row, theirs: Option<&Row>) {
    let cells = [
        percent(ours.cpu),
        peer(theirs.map(|r| r.cpu), percent),
        percent(ours.slowdown),
        peer(theirs.map(|r| r.slowdown), percent),
        size(ours.bytes),
        peer(theirs.map(|r| r.bytes), size),
        ours.lost.map_or(support::units::NOT_MEASURED.to_owned(), count),
    ];
    figures.row(&setting.name(), cells);
}

fn judge(claims: &mut Vec<(bool, String)>, setting: &Setting, ours: &Row, theirs: Option<&Row>) {
    let hz = setting.hz;
    let at = format!("{hz} Hz, {}", setting.stacks);
    if setting.stacks == "fp" {
        let Some(theirs) = theirs else { return };
        claims.push((ours.cpu <= theirs.cpu, format!("{hz} Hz fp: CPU no more than perf's")));
        return;
    }
    if hz == 999 {
        claims.push((ours.cpu <= 0.4, format!("{at}: CPU {:.3} % of a core (0.4)", ours.cpu)));
    }
    if hz >= 9999 {
        claims.push((ours.lost == Some(0), format!("{at}: no sample lost ({:?})", ours.lost)));
    }
    let Some(theirs) = theirs else { return };
    let ratio = theirs.cpu / ours.cpu;
    claims.push((ratio >= 8.0, format!("{at}: an eighth of perf's CPU time ({ratio:.1}x)")));
    let ratio = theirs.bytes / ours.bytes;
    claims.push((ratio >= 200.0, format!("{at}: 200 times fewer bytes ({ratio:.0}x)")));
    // Half a percent is the difference of two equal runs.
    let fair = ours.slowdown <= theirs.slowdown + 0.5;
    let slower = format!("{at}: slowdown {:.2} %, perf {:.2} %", ours.slowdown, theirs.slowdown);
    claims.push((fair, slower));
}
