//! What wall time costs a target whose threads stop running 200,000 times a second, against
//! `perf record -e sched:sched_switch -g` and `perf sched record` in the same run.
//!
//! cargo bench --bench wall [-- --seconds 4 --rounds 3]
//!
//! Two threads on one CPU wake each other; what a turn takes more with a profiler than without is
//! what a switch costs.

mod support;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use support::{PROF, claim, median, option, target};

/// Turns a second without a profiler.
const TURNS: f64 = 200_000.0;

/// One run of the target under a profiler.
struct Run {
    /// Nanoseconds that a turn took.
    turn: f64,
    /// What the profiler lost, as it says.
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
        let (told, said) = (text(&out.stdout), text(&out.stderr));
        let turn = told.split_whitespace().nth(1).and_then(|n| n.parse().ok());
        let turn = turn.unwrap_or_else(|| panic!("{command:?}: {told}{said}"));
        let lost = profiler.map_or(0, |words| lost(words[0], &said, &file));
        let bytes = file.metadata().map_or(0, |m| m.len());
        std::fs::remove_file(&file).ok();
        Run { turn, lost, bytes }
    }

    /// So much work that there are [`TURNS`] a second.
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

/// Records that the profiler lost, as it says itself.
fn lost(profiler: &str, said: &str, file: &Path) -> u64 {
    if profiler == PROF {
        let before = said.split(" lost,").next().unwrap_or_default();
        return before.rsplit(' ').next().and_then(|n| n.parse().ok()).expect("a number");
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

fn main() {
    let (rounds, seconds): (usize, String) = (option("rounds", 3), option("seconds", "4".into()));
    let program = target("pingpong.c", "gcc", &["-O2", "-pthread"]);
    let mut bench = Bench { program, seconds, work: 0, dir: support::temp_dir() };
    bench.calibrate();
    const PROF_WALL: &[&str] = &[PROF, "record", "--no-cache", "--no-symbolize", "-T", "wall"];
    const PROF_OFF: &[&str] = &[PROF, "record", "--no-cache", "--no-symbolize", "--off-cpu"];
    const TOOLS: &[(&str, &[&str])] = &[
        ("prof -T wall", PROF_WALL),
        ("prof --off-cpu", PROF_OFF),
        ("perf sched_switch -g", &["perf", "record", "-q", "-g", "-e", "sched:sched_switch"]),
        ("perf sched", &["perf", "sched", "record"]),
    ];
    let mut alone = Vec::new();
    let mut runs: Vec<Vec<Run>> = TOOLS.iter().map(|_| Vec::new()).collect();
    for _ in 0..rounds {
        for (tool, runs) in TOOLS.iter().zip(&mut runs) {
            let bare = bench.run(None).turn;
            let run = bench.run(Some(tool.1));
            alone.push(bare);
            runs.push(Run { turn: run.turn - bare, ..run });
        }
    }
    let bare = median(alone);
    println!("{:.0} switches a second alone ({bare:.0} ns each)", 1e9 / bare);
    println!("{:<22} {:>12} {:>10} {:>8} {:>10}", "", "ns a switch", "slow-down", "lost", "KiB");
    let mut costs = Vec::new();
    for ((name, _), runs) in TOOLS.iter().zip(&runs) {
        let cost = median(runs.iter().map(|r| r.turn).collect());
        let (lost, kib) = (runs.iter().map(|r| r.lost).sum::<u64>(), runs[0].bytes >> 10);
        println!("{name:<22} {cost:>12.0} {:>9.0}% {lost:>8} {kib:>10}", 100.0 * cost / bare);
        costs.push((cost, lost));
    }
    claim(costs[0].0 <= 1300.0, "prof -T wall: at most 1.3 us a switch");
    claim(costs[0].1 == 0 && costs[1].1 == 0, "prof -T wall: nothing lost");
    claim(costs[0].0 < costs[2].0, "prof costs less than perf with stacks");
}
