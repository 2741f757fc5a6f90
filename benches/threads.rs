//! What a look at all threads costs, and how long the target stands still for it: `prof threads`
//! against `gdb` (what `pstack` is made of).
//!
//! cargo bench --bench threads [-- --threads 10,100,1000 --rounds 5]
//!
//! The target's threads sleep, but for one that looks at the clock all the time; its longest gap is
//! how long it did not run. Without a tool, that is what the machine does to it anyway.

mod support;

use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStdout, Command, Stdio};

use support::{PROF, Usage, claim, measure, median, option, target};

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

/// A look at the target: its cost, and the target's longest gap in milliseconds.
fn look(threads: usize, command: impl Fn(&str) -> Option<Command>) -> (Usage, f64) {
    let target = Gaps::start(threads, 3.0);
    support::settle(300);
    let usage = match command(&target.child.id().to_string()) {
        Some(mut command) => {
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
            measure(&mut command)
        }
        None => Usage { ok: true, ..Usage::default() },
    };
    assert!(usage.ok, "the tool failed");
    (usage, target.longest())
}

/// Looks at the process with this number; `None`: it is left alone.
type Tool = fn(&str) -> Option<Command>;

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

fn main() {
    let rounds: usize = option("rounds", 5);
    let counts: String = option("threads", "10,100,1000".to_owned());
    let with_gdb = support::has("gdb");
    if !with_gdb {
        println!("gdb is not installed; on Debian: apt-get install gdb");
    }
    println!("{:>7} {:<8} {:>9} {:>9} {:>12}", "threads", "tool", "ms", "CPU ms", "longest gap");
    for count in counts.split(',').map(|n| n.parse::<usize>().expect("a number")) {
        let mut gaps = Vec::new();
        let tools: [(&str, Tool); 3] = [("none", |_| None), ("prof", prof), ("gdb", gdb)];
        for (name, tool) in tools.into_iter().filter(|(name, _)| *name != "gdb" || with_gdb) {
            let looks: Vec<(Usage, f64)> = (0..rounds).map(|_| look(count, tool)).collect();
            let of = |f: fn(&(Usage, f64)) -> f64| median(looks.iter().map(f).collect());
            let gap = of(|l| l.1);
            println!(
                "{count:>7} {name:<8} {:>9.1} {:>9.1} {gap:>9.3} ms",
                1e3 * of(|l| l.0.wall),
                1e3 * of(|l| l.0.cpu),
            );
            gaps.push(gap);
        }
        let (none, prof) = (gaps[0], gaps[1]);
        claim(
            prof < none + 1.0,
            &format!("{count} threads: {prof:.3} ms still, {none:.3} without"),
        );
    }
}
