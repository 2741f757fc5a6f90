//! What it costs to record waits for locks and system calls, in the target and in prof, beside
//! `perf record` and `perf trace`; and how near the delay is to what the target measured itself.
//!
//! cargo bench --bench lock [-- --rounds 5 --seconds 2]
//!
//! The targets do a fixed piece of work, alone and recorded by turns; the slow-down is the median
//! of the pairs.

mod support;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use support::{PROF, claim, has, median, option, target, temp_dir};

/// A program that measures its own work.
struct Work {
    name: &'static str,
    program: PathBuf,
    args: Vec<String>,
}

/// What a run of it said: seconds, and what else it says of itself.
struct Run {
    seconds: f64,
    said: Vec<f64>,
    err: String,
}

impl Work {
    /// Runs it below a recorder, if there is one.
    fn run(&self, dir: &Path, recorder: &[&str]) -> Run {
        let mut words = recorder.iter().map(|w| (*w).to_owned()).collect::<Vec<_>>();
        words.push(self.program.display().to_string());
        words.extend(self.args.iter().cloned());
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).current_dir(dir).env("PROF_CACHE_SIZE", "0");
        let out = command.stderr(Stdio::piped()).output().expect("it runs");
        assert!(out.status.success(), "{words:?}: {}", String::from_utf8_lossy(&out.stderr));
        let text = String::from_utf8_lossy(&out.stdout);
        let said: Vec<f64> = text.split_whitespace().filter_map(|w| w.parse().ok()).collect();
        let err = String::from_utf8_lossy(&out.stderr).into_owned();
        Run { seconds: said[0], said, err }
    }
}

/// A recorder before the command that it starts.
type Recorder<'a> = (&'a str, Vec<&'a str>);

/// The slow-downs of a piece of work, in percent, by recorder; and what a system call or a wait
/// costs more, in nanoseconds of a CPU, when there are so many a run.
fn slow_down(work: &Work, recorders: &[Recorder<'_>], rounds: usize) -> Vec<f64> {
    let dir = temp_dir();
    let mut slower = Vec::new();
    for (name, words) in recorders {
        let (mut pairs, mut costs, mut lost) = (Vec::new(), Vec::new(), String::new());
        for _ in 0..rounds {
            let alone = work.run(dir.path(), &[]);
            let recorded = work.run(dir.path(), words);
            pairs.push(100.0 * (recorded.seconds / alone.seconds - 1.0));
            costs.push(1e9 * (recorded.seconds - alone.seconds) / recorded.said[1]);
            let line = recorded.err.lines().find(|l| l.contains("lost") || l.contains("LOST"));
            lost = line.unwrap_or_default().trim().to_owned();
        }
        let (slow, cost) = (median(pairs), median(costs));
        // How often a thread had to wait for the mutex it does not know.
        let cost = match work.name {
            "mutex" => String::new(),
            _ => format!("{cost:.0} ns a call"),
        };
        println!("{:<10} {name:<28} {slow:>8.1} % {cost:>16}  {lost}", work.name);
        slower.push(slow);
    }
    slower
}

fn main() {
    let rounds: usize = option("rounds", 5);
    let perf = has("perf");
    if !perf {
        println!("perf is not installed; on Debian: apt-get install linux-perf");
    }
    let program = target("contended.c", "gcc", &["-O2", "-pthread"]);
    let work = |name, words: &str| {
        let args = words.split(' ').map(str::to_owned).collect();
        Work { name, program: program.clone(), args }
    };
    let mutex = work("mutex", "mutex 1000000");
    let wakes = work("wakes", "wakes 2000000");
    let calls = work("calls", "calls 1000000");
    let prof = |kind| vec![PROF, "record", "-T", kind, "-g", "fp", "--no-symbolize", "--"];
    let dwarf = |kind| vec![PROF, "record", "-T", kind, "--no-symbolize", "--"];
    let futex = "syscalls:sys_enter_futex,syscalls:sys_exit_futex";
    let mut locks = vec![("prof -T lock", dwarf("lock")), ("prof -T lock -g fp", prof("lock"))];
    let mut trace = vec![("prof -T syscalls", dwarf("syscalls"))];
    trace.push(("prof -T syscalls -g fp", prof("syscalls")));
    if perf {
        locks.push((
            "perf record -g (futex)",
            vec!["perf", "record", "-qg", "-o", "perf.data", "-e", futex, "--"],
        ));
        // It sees the kernel's locks only, unless it is built with BPF, which Debian's is not.
        locks.push(("perf lock record", vec!["perf", "lock", "record", "-o", "lock.data", "--"]));
        trace.push(("perf trace -s", vec!["perf", "trace", "-s", "-o", "trace.txt", "--"]));
    }
    let slower = slow_down(&mutex, &locks, rounds);
    claim(slower[0] < 7.0, &format!("a contended mutex is {:.1} % slower, < 7 %", slower[0]));
    slow_down(&wakes, &locks[..1], rounds);
    slow_down(&calls, &trace, rounds);
    agreement();
}

/// The delay beside what the program measured.
fn agreement() {
    let dir = temp_dir();
    let program = target("locks.c", "gcc", &["-O2", "-pthread"]);
    for kind in ["mutex", "pi", "read", "write", "semaphore"] {
        let work =
            Work { name: kind, program: program.clone(), args: vec![kind.into(), "100".into()] };
        let words = [PROF, "record", "-q", "-T", "lock", "-o", "locks.pb.gz", "--"];
        let want = work.run(dir.path(), &words).seconds;
        let mut report = Command::new(PROF);
        report.args(["report", "--json", "--focus", "take", "locks.pb.gz"]).current_dir(dir.path());
        let out = report.output().expect("prof runs");
        let json: serde_json::Value = serde_json::from_slice(&out.stdout).expect("JSON");
        let got = json["kept"].as_f64().expect("a total") / 1e9;
        let off = 100.0 * (got / want - 1.0);
        claim(off.abs() < 5.0, &format!("{kind}: {got:.4} s of {want:.4} s measured: {off:+.2} %"));
    }
}
