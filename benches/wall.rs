//! Cost of wall time for a target whose threads stop running 200,000 times a second, compared with
//! `perf record -e sched:sched_switch -g` and `perf sched record` in the same run.
//!
//! cargo bench --bench wall [-- --seconds 4 --rounds 3]
//!
//! Two threads on one CPU wake each other. The cost of a switch is the time that a turn takes more
//! with a profiler than without.

mod support;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use support::units::{count, number, percent, size, time};
use support::{Figures, NOT_INSTALLED, PROF, claim, median, option, target};

/// Turns a second without a profiler.
const TURNS: f64 = 200_000.0;

/// One run of the target under a profiler.
struct Run {
    /// Nanoseconds that a turn took.
    turn: f64,
    /// Records that the profiler lost, as it reports.
    lost: u64,
    /// Bytes written.
    bytes: u64,
}

struct Bench {
    program: PathBuf,
    seconds: String,
    work: u64,
    dir: tempfile::TempDir,
}

impl Bench {
    /// Runs the target as the last arguments of a command; `None`: alone.
    fn run(&self, profiler: Option<&[&str]>) -> Run {
        let file = self.dir.path().join("out");
        let mut command = match profiler {
            Some(words) => {
                let mut command = Command::new(words[0]);
                command.args(&words[1..]).arg("-o").arg(&file).arg("--").arg(&self.program);
                command
            }
            None => Command::new(&self.program),
        };
        command.arg(&self.seconds).arg(self.work.to_string()).stdin(Stdio::null());
        let out = command.output().unwrap_or_else(|e| panic!("{command:?}: {e}"));
        let stdout = text(&out.stdout);
        let stderr = text(&out.stderr);
        let turn = stdout.split_whitespace().nth(1).and_then(|n| n.parse().ok());
        let turn = turn.unwrap_or_else(|| panic!("{command:?}: {stdout}{stderr}"));
        let lost = profiler.map_or(0, |words| lost(words[0], &stderr, &file));
        let bytes = file.metadata().map_or(0, |m| m.len());
        std::fs::remove_file(&file).ok();
        Run { turn, lost, bytes }
    }

    /// Sets the work of a turn, for [`TURNS`] a second.
    fn calibrate(&mut self) {
        let alone = |bench: &Bench| median((0..3).map(|_| bench.run(None).turn).collect());
        let bare = alone(self);
        self.work = 4_000;
        let each = (alone(self) - bare) / 4_000.0;
        self.work = ((1e9 / TURNS - bare) / each).max(0.0) as u64;
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Records that the profiler lost, as it reports itself.
fn lost(profiler: &str, stderr: &str, file: &Path) -> u64 {
    if profiler == PROF {
        return support::lost(stderr).expect("prof -v reports it");
    }
    let mut stats = Command::new("perf");
    let out = stats.args(["report", "--stats", "-i"]).arg(file).output().expect("perf runs");
    let count = |name: &str| {
        let out = text(&out.stdout);
        let line = out.lines().find(|l| l.contains(name)).map(str::to_owned);
        line.and_then(|l| l.split_whitespace().find_map(|w| w.parse::<u64>().ok())).unwrap_or(0)
    };
    count("LOST events") + count("LOST_SAMPLES events")
}

/// A profiler before the command that it starts.
struct Tool {
    /// The heading of its column.
    name: &'static str,
    command: &'static [&'static str],
}

const TOOLS: &[Tool] = &[
    Tool {
        name: "prof `-T wall`",
        command: &[PROF, "record", "-v", "--no-cache", "--no-symbolize", "-T", "wall"],
    },
    Tool {
        name: "prof `--off-cpu`",
        command: &[PROF, "record", "-v", "--no-cache", "--no-symbolize", "--off-cpu"],
    },
    Tool {
        name: "`perf record -e sched:sched_switch -g`",
        command: &["perf", "record", "-q", "-g", "-e", "sched:sched_switch"],
    },
    Tool { name: "`perf sched record`", command: &["perf", "sched", "record"] },
];

/// The figures of one tool.
struct Cost {
    /// Nanoseconds of a switch.
    switch: f64,
    /// In percent of a turn.
    slowdown: f64,
    lost: u64,
    bytes: u64,
}

fn main() {
    let rounds: usize = option("rounds", 3);
    let seconds: String = option("seconds", "4".into());
    let program = target("pingpong.c", "gcc", &["-O2", "-pthread"]);
    let mut bench = Bench { program, seconds, work: 0, dir: support::temp_dir() };
    bench.calibrate();
    let with_perf = support::has_or_advise("perf", "linux-perf");
    let tools = if with_perf { TOOLS } else { &TOOLS[..2] };
    let mut alone = Vec::new();
    let mut runs: Vec<Vec<Run>> = tools.iter().map(|_| Vec::new()).collect();
    for _ in 0..rounds {
        for (tool, runs) in tools.iter().zip(&mut runs) {
            let bare = bench.run(None).turn;
            let run = bench.run(Some(tool.command));
            alone.push(bare);
            runs.push(Run { turn: run.turn - bare, ..run });
        }
    }
    let bare = median(alone);
    println!("{:.0} switches a second alone ({bare:.0} ns each)", 1e9 / bare);
    println!("{:<40} {:>12} {:>10} {:>8} {:>10}", "", "ns a switch", "slowdown", "lost", "KiB");
    let mut costs = Vec::new();
    for (tool, runs) in tools.iter().zip(&runs) {
        let switch = median(runs.iter().map(|r| r.turn).collect());
        let slowdown = 100.0 * switch / bare;
        let lost = runs.iter().map(|r| r.lost).sum();
        let bytes = runs[0].bytes;
        let name = tool.name;
        let kib = bytes >> 10;
        println!("{name:<40} {switch:>12.0} {slowdown:>9.0}% {lost:>8} {kib:>10}");
        costs.push(Cost { switch, slowdown, lost, bytes });
    }
    claim(costs[0].switch <= 1300.0, "prof -T wall: at most 1.3 us a switch");
    claim(costs[0].lost == 0 && costs[1].lost == 0, "prof -T wall: nothing lost");
    if let Some(perf) = costs.get(2) {
        claim(costs[0].switch < perf.switch, "prof costs less than perf with stacks");
    }
    publish(&bench, bare, &costs);
}

fn publish(bench: &Bench, bare: f64, costs: &[Cost]) {
    let names = TOOLS.iter().map(|tool| tool.name);
    let columns: Vec<&str> = std::iter::once("Measurement").chain(names).collect();
    let mut figures = Figures::new(&columns);
    figures.conditions(&format!(
        "{} switches a second without a profiler, for {} s.",
        number(1e9 / bare),
        bench.seconds
    ));
    let mut add = |name, text: &dyn Fn(&Cost) -> String| {
        let cell = |i| costs.get(i).map_or(NOT_INSTALLED.to_owned(), text);
        figures.row(name, (0..TOOLS.len()).map(cell));
    };
    add("cost of a switch", &|c| time(c.switch * 1e-9));
    add("slowdown of the target", &|c| percent(c.slowdown));
    add("records lost in all runs", &|c| count(c.lost));
    add("written", &|c| size(c.bytes as f64));
    figures.publish();
}
