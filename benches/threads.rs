//! Cost of a snapshot of all threads, and the time for which the target stands still for it:
//! `prof threads` compared with `gdb` (on which `pstack` is based).
//!
//! cargo bench --bench threads [-- --threads 10,100,1000 --rounds 5]
//!
//! The target's threads sleep, but for one that reads the clock all the time; its longest gap is
//! the longest time for which it did not run. Without a tool, the gap is the scheduler's.

mod support;

use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStdout, Command, Stdio};

use support::units::{count, time};
use support::{Figures, PROF, Usage, claim, measure, median, option, peer, target};

/// A running target.
struct Gaps {
    child: Child,
    lines: std::io::Lines<BufReader<ChildStdout>>,
}

impl Gaps {
    fn start(threads: usize, seconds: f64) -> Gaps {
        let program = target("gaps.c", "gcc", &["-O2", "-pthread"]);
        let mut command = Command::new(program);
        command.args([threads.to_string(), seconds.to_string()]).stdout(Stdio::piped());
        let mut child = command.spawn().expect("the target starts");
        let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
        let ready = lines.next().and_then(Result::ok);
        assert_eq!(ready.as_deref(), Some("ready"));
        Gaps { child, lines }
    }

    /// Its longest gap in milliseconds.
    fn longest(mut self) -> f64 {
        let line = self.lines.next().and_then(Result::ok).expect("a line");
        self.child.wait().expect("it ends");
        line.parse().expect("a number")
    }
}

/// A snapshot of the target.
struct Snapshot {
    /// The cost of the tool.
    usage: Usage,
    /// The target's longest gap in milliseconds.
    gap: f64,
}

/// The command that takes a snapshot of the process with this number; `None`: no tool.
type Tool = fn(&str) -> Option<Command>;

fn snapshot(threads: usize, tool: Tool) -> Snapshot {
    let target = Gaps::start(threads, 3.0);
    support::settle(300);
    let usage = match tool(&target.child.id().to_string()) {
        Some(mut command) => {
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
            measure(&mut command)
        }
        None => Usage { ok: true, ..Usage::default() },
    };
    assert!(usage.ok, "the tool failed");
    Snapshot { usage, gap: target.longest() }
}

fn prof(pid: &str) -> Option<Command> {
    let mut command = Command::new(PROF);
    command.args(["threads", "--no-cache", "-p", pid]);
    Some(command)
}

fn gdb(pid: &str) -> Option<Command> {
    let mut command = Command::new("gdb");
    command.args(["-batch", "-nx", "-ex", "thread apply all bt", "-p", pid]);
    Some(command)
}

/// Medians of the snapshots of one tool, in seconds.
struct Cost {
    wall: f64,
    gap: f64,
}

/// Takes snapshots with a tool; prints and returns their medians.
fn cost(threads: usize, name: &str, tool: Tool, rounds: usize) -> Cost {
    let all: Vec<Snapshot> = (0..rounds).map(|_| snapshot(threads, tool)).collect();
    let of = |f: fn(&Snapshot) -> f64| median(all.iter().map(f).collect());
    let cost = Cost { wall: of(|s| s.usage.wall), gap: 1e-3 * of(|s| s.gap) };
    println!(
        "{threads:>7} {name:<8} {:>9.1} {:>9.1} {:>9.3} ms",
        1e3 * cost.wall,
        1e3 * of(|s| s.usage.cpu),
        1e3 * cost.gap,
    );
    cost
}

fn main() {
    let rounds: usize = option("rounds", 5);
    let counts: String = option("threads", "10,100,1000".to_owned());
    let with_gdb = support::has_or_advise("gdb", "gdb");
    println!("{:>7} {:<8} {:>9} {:>9} {:>12}", "threads", "tool", "ms", "CPU ms", "longest gap");
    let mut figures = Figures::new(&[
        "Threads",
        "`prof threads`",
        "gdb",
        "longest gap of the target alone",
        "with prof",
        "with gdb",
    ]);
    figures.conditions(&format!("Medians of {rounds} snapshots."));
    for threads in counts.split(',').map(|n| n.parse::<usize>().expect("a number")) {
        let none = cost(threads, "none", |_| None, rounds);
        let prof = cost(threads, "prof", prof, rounds);
        let gdb = with_gdb.then(|| cost(threads, "gdb", gdb, rounds));
        let gdb = gdb.as_ref();
        let cells = [
            time(prof.wall),
            peer(gdb.map(|c| c.wall), time),
            time(none.gap),
            time(prof.gap),
            peer(gdb.map(|c| c.gap), time),
        ];
        figures.row(&count(threads as u64), cells);
        let [prof, none] = [prof.gap, none.gap].map(|seconds| 1e3 * seconds);
        claim(
            prof < none + 1.0,
            &format!("{threads} threads: {prof:.3} ms still, {none:.3} without"),
        );
    }
    figures.publish();
}
