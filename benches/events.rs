//! Cost of an event for the target and the machine with prof, compared with `perf record -g` and,
//! as the lower bound, the counts of `perf stat`: tracepoints with and without a filter, probes,
//! USDT markers, page faults, context switches, and requests to a block device.
//!
//! cargo bench --bench events [-- --rounds 5 --times 100000]
//!
//! The target works about 10 us before each event. It runs alone and recorded by turns; each figure
//! is the median of the pairs. The cost of an event is CPU time, to which other programs do not
//! matter; the slowdown is of wall-clock time, to which they do.

mod support;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use support::units::{NOT_MEASURED, time};
use support::{
    Figures, NOT_INSTALLED, PROF, children_cpu, claim, median, option, settle, target, temp_dir,
};

/// Rounds of a loop before each event: about 10 us.
const ROUNDS: &str = "40000";

/// A kind of event, and the options that record it.
struct Kind {
    /// The name of its row.
    name: &'static str,
    /// The target's argument.
    kind: &'static str,
    /// Divisor of the number of events.
    share: usize,
    prof: &'static [&'static str],
    perf: &'static [&'static str],
}

const CALL: &str = "syscalls:sys_enter_getppid";
const ISSUE_COMPLETE: &str = "block:block_rq_issue,block:block_rq_complete";

const KINDS: &[Kind] = &[
    Kind { name: "tracepoint", kind: "calls", share: 1, prof: &["-e", CALL], perf: &["-e", CALL] },
    Kind {
        name: "tracepoint, kept by a filter",
        kind: "calls",
        share: 1,
        prof: &["-e", CALL, "--filter", "__syscall_nr > 0"],
        perf: &["-e", CALL, "--filter", "__syscall_nr > 0"],
    },
    Kind {
        name: "tracepoint, dropped by a filter",
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
        name: "probe on an instruction that is stepped over",
        kind: "stepped",
        share: 2,
        prof: &["-e", "probe:stepped"],
        perf: &["-e", "probe_events:stepped"],
    },
    Kind {
        name: "USDT marker",
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

/// The cost of a run of the target, in seconds, and the losses that its recorder reports.
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
        let wall = seconds.next().expect("wall-clock time");
        let cpu = seconds.next().expect("CPU time");
        let lost = err.lines().find(|l| l.contains(" lost") && !l.contains(" 0 lost"));
        Run { wall, cpu, all, lost: lost.unwrap_or_default().trim().to_owned() }
    }

    /// Prints the cost of a recorded event for the target; returns that for all programs, in
    /// nanoseconds of CPU time.
    fn compare(&self, kind: &Kind, tool: &Tool, rounds: usize) -> f64 {
        let events = (self.times / kind.share) as f64;
        let mut slower = Vec::new();
        let mut costs = Vec::new();
        let mut all = Vec::new();
        let mut lost = String::new();
        for _ in 0..rounds {
            let alone = self.run(kind, &[]);
            let recorded = self.run(kind, &tool.command);
            slower.push(100.0 * (recorded.wall / alone.wall - 1.0));
            costs.push(1e9 * (recorded.cpu - alone.cpu) / events);
            all.push(1e9 * (recorded.all - alone.all) / events);
            lost = recorded.lost;
        }
        let cost = median(costs);
        let all = median(all);
        let slower = median(slower);
        println!(
            "{:<45} {:<15} {cost:>9.0} {slower:>9.1} % {all:>12.0}  {lost}",
            kind.name, tool.name
        );
        all
    }
}

/// A recorder before the command that it starts.
struct Tool {
    name: &'static str,
    command: Vec<String>,
}

impl Tool {
    fn new(name: &'static str, command: &[&str], options: &[&str]) -> Tool {
        let command = [command, options, &["--"]].concat().into_iter().map(str::to_owned).collect();
        Tool { name, command }
    }
}

/// The recorders of a kind of event: prof with copies of stacks and with frame pointers, then
/// perf's.
fn tools(kind: &Kind, with_perf: bool) -> Vec<Tool> {
    let prof = &[PROF, "record", "-v", "--no-symbolize"];
    let pointers = [&prof[..], &["-g", "fp"]].concat();
    let mut tools =
        vec![Tool::new("prof", prof, kind.prof), Tool::new("prof -g fp", &pointers, kind.prof)];
    if with_perf {
        let record = &["perf", "record", "-g", "-o", "perf.data"];
        tools.push(Tool::new("perf record -g", record, kind.perf));
        let counted: Vec<&str> =
            kind.perf.iter().copied().filter(|w| !["-c", "1"].contains(w)).collect();
        tools.push(Tool::new("perf stat", &["perf", "stat"], &counted));
    }
    tools
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
    let rounds: usize = option("rounds", 5);
    let times: usize = option("times", 100_000);
    let perf = support::has_or_advise("perf", "linux-perf");
    let program = target("events.c", "gcc", &["-O2", "-pthread"]);
    let memory = tempfile::tempdir_in("/dev/shm").unwrap_or_else(|_| temp_dir());
    let disk = Loop::new(memory.path());
    let bench = Bench { program, dir: temp_dir(), disk, times };
    let _probes = perf.then(|| PerfProbes::new(&bench.program, bench.dir.path()));
    println!("{:<45} {:<15} {:>9} {:>11} {:>12}", "", "", "ns CPU", "slowdown", "ns CPU, all");
    let mut figures = Figures::new(&[
        "Event",
        "prof, frame pointers",
        "`perf record -g`",
        "prof, copies of stacks",
        "`perf stat`, counts alone",
    ]);
    figures.conditions(&format!("Medians of {rounds} pairs of runs."));
    for kind in KINDS {
        if kind.kind == "reads" && bench.disk.is_none() {
            println!("{:<45} no loop device can be made here", kind.name);
            figures.row(kind.name, std::iter::repeat_n(NOT_MEASURED.to_owned(), 4));
            continue;
        }
        let tools = tools(kind, perf);
        let costs: Vec<f64> = tools.iter().map(|tool| bench.compare(kind, tool, rounds)).collect();
        // In the order of the columns.
        let cell = |i: usize| {
            costs.get(i).map_or(NOT_INSTALLED.to_owned(), |nanoseconds| time(nanoseconds * 1e-9))
        };
        figures.row(kind.name, [cell(1), cell(2), cell(0), cell(3)]);
        if let [_, pointers, perf, _] = costs[..] {
            claim(
                pointers <= perf,
                &format!(
                    "{}: {pointers:.0} ns of CPU time with frame pointers, perf {perf:.0}",
                    kind.name
                ),
            );
        }
    }
    figures.publish();
}
