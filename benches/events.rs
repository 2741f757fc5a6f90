//! What an event costs the target and the machine with prof, beside `perf record -g` and, as the
//! least that a count costs, `perf stat`: tracepoints with and without a filter, probes, markers,
//! page faults, context switches, and requests to a block device.
//!
//! cargo bench --bench events [-- --rounds 5 --times 100000]
//!
//! The target works about 10 us before each event. It runs alone and recorded by turns; each figure
//! is the median of the pairs. What an event costs the target is told by its CPU time, so that other
//! programs do not matter, the slow-down by the wall's clock, where they do.

mod support;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use support::{PROF, children_cpu, claim, has, median, option, settle, target, temp_dir};

/// Rounds of a loop before each event: about 10 us.
const ROUNDS: &str = "40000";

/// A kind of event, and how it is recorded.
struct Kind {
    name: &'static str,
    /// Of the target.
    kind: &'static str,
    /// Part of so many times that the target does it.
    share: usize,
    prof: &'static [&'static str],
    perf: &'static [&'static str],
}

const CALL: &str = "syscalls:sys_enter_getppid";
const ISSUE_COMPLETE: &str = "block:block_rq_issue,block:block_rq_complete";

const KINDS: &[Kind] = &[
    Kind { name: "tracepoint", kind: "calls", share: 1, prof: &["-e", CALL], perf: &["-e", CALL] },
    Kind {
        name: "  filter keeps",
        kind: "calls",
        share: 1,
        prof: &["-e", CALL, "--filter", "__syscall_nr > 0"],
        perf: &["-e", CALL, "--filter", "__syscall_nr > 0"],
    },
    Kind {
        name: "  filter drops",
        kind: "calls",
        share: 1,
        prof: &["-e", CALL, "--filter", "__syscall_nr == 0"],
        perf: &["-e", CALL, "--filter", "__syscall_nr == 0"],
    },
    Kind {
        name: "probe",
        kind: "emulated",
        share: 1,
        prof: &["-e", "probe:emulated"],
        perf: &["-e", "probe_events:emulated"],
    },
    Kind {
        name: "probe, stepped",
        kind: "stepped",
        share: 2,
        prof: &["-e", "probe:stepped"],
        perf: &["-e", "probe_events:stepped"],
    },
    Kind {
        name: "marker",
        kind: "markers",
        share: 1,
        prof: &["-e", "sdt:app:step"],
        perf: &["-e", "sdt_app:step"],
    },
    Kind {
        name: "page fault",
        kind: "faults",
        share: 1,
        prof: &["-e", "page-faults", "-c", "1"],
        perf: &["-e", "page-faults", "-c", "1"],
    },
    Kind {
        name: "context switch",
        kind: "switches",
        share: 1,
        prof: &["-e", "context-switches", "-c", "1"],
        perf: &["-e", "context-switches", "-c", "1"],
    },
    Kind {
        name: "block request",
        kind: "reads",
        share: 4,
        prof: &["-T", "io"],
        perf: &["-e", ISSUE_COMPLETE],
    },
];

/// What a run of the target cost, in seconds, and what its recorder says of losses.
struct Run {
    wall: f64,
    /// The target's CPU time.
    cpu: f64,
    /// That, and its recorder's.
    all: f64,
    lost: String,
}

struct Bench {
    program: PathBuf,
    dir: tempfile::TempDir,
    disk: Option<Loop>,
    times: usize,
}

impl Bench {
    /// Runs the target, below a recorder if there is one.
    fn run(&self, kind: &Kind, recorder: &[String]) -> Run {
        let times = (self.times / kind.share).to_string();
        let mut words = recorder.to_vec();
        words.extend([self.program.display().to_string(), kind.kind.into(), times, ROUNDS.into()]);
        words.extend(self.disk.iter().map(|disk| disk.0.clone()));
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).current_dir(&self.dir).env("PROF_CACHE_SIZE", "0");
        let mut before = children_cpu();
        let mut out = command.stderr(Stdio::piped()).output().expect("it runs");
        // perf 6.1 aborts while another profiler records build ids on all CPUs.
        while String::from_utf8_lossy(&out.stderr).contains("build-id.c") {
            settle(2000);
            before = children_cpu();
            out = command.output().expect("it runs");
        }
        let all = children_cpu() - before;
        let err = String::from_utf8_lossy(&out.stderr);
        assert!(out.status.success(), "{words:?}: {err}");
        let text = String::from_utf8_lossy(&out.stdout);
        let mut seconds = text.split_whitespace().map(|w| w.parse::<f64>().expect("seconds"));
        let (wall, cpu) = (seconds.next().expect("wall"), seconds.next().expect("CPU"));
        let lost = err.lines().find(|l| l.contains(" lost") && !l.contains(" 0 lost"));
        Run { wall, cpu, all, lost: lost.unwrap_or_default().trim().to_owned() }
    }

    /// What an event costs more when it is recorded, in nanoseconds of CPU time, prints it for the
    /// target, and returns it for all together.
    fn compare(&self, kind: &Kind, (name, recorder): (&str, Vec<String>), rounds: usize) -> f64 {
        let events = (self.times / kind.share) as f64;
        let (mut slower, mut costs, mut all, mut lost) = (vec![], vec![], vec![], String::new());
        for _ in 0..rounds {
            let alone = self.run(kind, &[]);
            let recorded = self.run(kind, &recorder);
            slower.push(100.0 * (recorded.wall / alone.wall - 1.0));
            costs.push(1e9 * (recorded.cpu - alone.cpu) / events);
            all.push(1e9 * (recorded.all - alone.all) / events);
            lost = recorded.lost;
        }
        let (cost, all, slower) = (median(costs), median(all), median(slower));
        println!("{:<16} {name:<16} {cost:>9.0} {slower:>9.1} % {all:>12.0}  {lost}", kind.name);
        all
    }
}

/// A block device in memory, gone when dropped.
struct Loop(String);

impl Loop {
    fn new(dir: &Path) -> Option<Loop> {
        let file = dir.join("disk");
        std::fs::write(&file, vec![7; 4 << 20]).ok()?;
        let out = Command::new("losetup").args(["-f", "--show"]).arg(&file).output().ok()?;
        out.status.success().then(|| Loop(String::from_utf8_lossy(&out.stdout).trim().to_owned()))
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        Command::new("losetup").args(["-d", &self.0]).status().ok();
    }
}

/// perf's probes and marker in the target, gone when dropped.
struct PerfProbes;

impl PerfProbes {
    fn new(program: &Path, dir: &Path) -> PerfProbes {
        let perf = |args: &[&str]| {
            let mut command = Command::new("perf");
            command.args(args).env("HOME", dir).stderr(Stdio::null());
            command
        };
        for name in ["emulated", "stepped"] {
            let mut command = perf(&["probe", "-q", "-x"]);
            command.arg(program).args(["-a", name]).status().ok();
        }
        perf(&["buildid-cache", "--add"]).arg(program).status().ok();
        perf(&["probe", "-q", "sdt_app:step"]).status().ok();
        PerfProbes
    }
}

impl Drop for PerfProbes {
    fn drop(&mut self) {
        for name in ["probe_events:emulated", "probe_events:stepped", "sdt_app:step"] {
            Command::new("perf").args(["probe", "-q", "-d", name]).status().ok();
        }
    }
}

fn main() {
    let (rounds, times): (usize, usize) = (option("rounds", 5), option("times", 100_000));
    let perf = has("perf");
    if !perf {
        println!("perf is not installed; on Debian: apt-get install linux-perf");
    }
    let program = target("events.c", "gcc", &["-O2", "-pthread"]);
    let memory = tempfile::tempdir_in("/dev/shm").unwrap_or_else(|_| temp_dir());
    let disk = Loop::new(memory.path());
    let bench = Bench { program, dir: temp_dir(), disk, times };
    let _probes = perf.then(|| PerfProbes::new(&bench.program, bench.dir.path()));
    let words = |words: &[&str], args: &[&str]| -> Vec<String> {
        [words, args, &["--"]].concat().into_iter().map(str::to_owned).collect()
    };
    println!("{:<16} {:<16} {:>9} {:>11} {:>12}", "", "", "ns CPU", "slow-down", "ns CPU, all");
    for kind in KINDS {
        if kind.kind == "reads" && bench.disk.is_none() {
            println!("{:<16} no loop device can be made here", kind.name);
            continue;
        }
        let prof = &[PROF, "record", "--no-symbolize"];
        let mut tools = vec![("prof", words(prof, kind.prof))];
        tools.push(("prof -g fp", words(&[prof, &["-g", "fp"][..]].concat(), kind.prof)));
        if perf {
            tools.push((
                "perf record -g",
                words(&["perf", "record", "-g", "-o", "perf.data"], kind.perf),
            ));
            let count: Vec<&str> =
                kind.perf.iter().copied().filter(|w| !["-c", "1"].contains(w)).collect();
            tools.push(("perf stat", words(&["perf", "stat"], &count)));
        }
        let costs: Vec<f64> =
            tools.into_iter().map(|tool| bench.compare(kind, tool, rounds)).collect();
        if perf {
            let (prof, perf) = (costs[1], costs[2]);
            let what = format!(
                "{}: {prof:.0} ns of CPU time with frame pointers, perf {perf:.0}",
                kind.name
            );
            claim(prof <= perf, what.trim());
        }
    }
}
