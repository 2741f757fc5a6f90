//! Cost of recording waits for locks and system calls, in the target and in prof, compared with
//! `perf record` and `perf trace`; and the difference between the recorded delay and what the
//! target measured itself.
//!
//! cargo bench --bench lock [-- --rounds 5]
//!
//! The targets do a fixed piece of work, alone and recorded by turns; the slowdown is the median of
//! the pairs; that of redis is the time of its requests.

mod support;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use support::units::{NOT_MEASURED, added, percent};
use support::{
    Figures, NOT_INSTALLED, PROF, Started, claim, measure, median, option, running_time, settle,
    start, target, temp_dir,
};

/// A program that measures its own work.
struct Work {
    name: &'static str,
    program: PathBuf,
    args: Vec<String>,
}

/// One run of it.
struct Run {
    seconds: f64,
    /// All figures that it prints: the seconds, and the number of waits or calls.
    printed: Vec<f64>,
    stderr: String,
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
        let stderr = String::from_utf8_lossy(&out.stderr).into_owned();
        assert!(out.status.success(), "{words:?}: {stderr}");
        let text = String::from_utf8_lossy(&out.stdout);
        let printed: Vec<f64> = text.split_whitespace().filter_map(|w| w.parse().ok()).collect();
        Run { seconds: printed[0], printed, stderr }
    }
}

/// A recorder before the command that it starts.
struct Recorder {
    /// The heading of its column.
    name: &'static str,
    command: Vec<&'static str>,
}

impl Recorder {
    fn prof(name: &'static str, options: &[&'static str]) -> Recorder {
        let command = [&[PROF, "record", "-v"], options, &["--no-symbolize", "--"]].concat();
        Recorder { name, command }
    }

    fn perf(name: &'static str, options: &[&'static str]) -> Recorder {
        Recorder { name, command: [&["perf"], options, &["--"]].concat() }
    }
}

/// The cost of recording a piece of work.
struct Cost {
    recorder: &'static str,
    /// In percent of its time.
    slowdown: f64,
    /// Of a call, in seconds.
    call: f64,
}

/// The costs of a piece of work by recorder.
fn costs(work: &Work, recorders: &[&Recorder], rounds: usize) -> Vec<Cost> {
    let dir = temp_dir();
    let cost = |recorder: &&Recorder| {
        let mut slowdowns = Vec::new();
        let mut calls = Vec::new();
        let mut lost = String::new();
        for _ in 0..rounds {
            let alone = work.run(dir.path(), &[]);
            let recorded = work.run(dir.path(), &recorder.command);
            slowdowns.push(100.0 * (recorded.seconds / alone.seconds - 1.0));
            calls.push((recorded.seconds - alone.seconds) / recorded.printed[1]);
            let line = recorded.stderr.lines().find(|l| l.contains("lost") || l.contains("LOST"));
            lost = line.unwrap_or_default().trim().to_owned();
        }
        let cost =
            Cost { recorder: recorder.name, slowdown: median(slowdowns), call: median(calls) };
        // The target does not measure how many times a thread waited for the mutex.
        let call = match work.name {
            "mutex" => String::new(),
            _ => format!("{:.0} ns a call", 1e9 * cost.call),
        };
        let name = cost.recorder;
        let slowdown = cost.slowdown;
        println!("{:<10} {name:<28} {slowdown:>8.1} % {call:>16}  {lost}", work.name);
        cost
    };
    recorders.iter().map(cost).collect()
}

/// A redis server under load.
struct Redis(Started);

/// What some requests cost.
struct Served {
    seconds: f64,
    /// CPU time of the server, in nanoseconds.
    cpu: u64,
}

impl Redis {
    const PORT: &str = "7399";
    const REQUESTS: &str = "400000";

    /// Starts the server; `None` if it is not installed.
    fn start(dir: &Path) -> Option<Redis> {
        let has = support::has_or_advise("redis-server", "redis-server")
            && support::has_or_advise("redis-benchmark", "redis-tools");
        let mut command = Command::new("redis-server");
        command.args(["--port", Redis::PORT, "--save", "", "--bind", "127.0.0.1"]);
        command.current_dir(dir).stdout(Stdio::null());
        let started = has.then(|| Redis(start(&mut command)))?;
        settle(1000);
        Some(started)
    }

    fn serve(&self) -> Served {
        let mut command = Command::new("redis-benchmark");
        command.args(["-p", Redis::PORT, "-q", "-t", "get", "-c", "50", "-n", Redis::REQUESTS]);
        let before = running_time(self.0.pid());
        let usage = measure(command.stdout(Stdio::null()));
        assert!(usage.ok, "{command:?}");
        Served { seconds: usage.wall, cpu: running_time(self.0.pid()) - before }
    }

    /// The same while the server's waits for locks are recorded.
    fn serve_recorded(&self, dir: &Path) -> Served {
        let mut command = Command::new(PROF);
        command.args(["record", "-q", "-T", "lock", "--no-symbolize", "-p"]);
        let prof = start(command.arg(self.0.pid().to_string()).current_dir(dir));
        settle(1000);
        let served = self.serve();
        prof.signal(libc::SIGINT);
        assert!(prof.finish().0.ok, "{command:?}");
        served
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        self.0.signal(libc::SIGKILL);
    }
}

/// How much longer redis takes for its requests while its waits for locks are recorded, in percent;
/// without redis, `None`.
fn redis(rounds: usize) -> Option<f64> {
    let dir = temp_dir();
    let redis = Redis::start(dir.path())?;
    redis.serve();
    let pairs: Vec<(Served, Served)> =
        (0..rounds).map(|_| (redis.serve(), redis.serve_recorded(dir.path()))).collect();
    let more = |cost: fn(&Served) -> f64| {
        let ratios = pairs.iter().map(|(alone, recorded)| cost(recorded) / cost(alone));
        100.0 * (median(ratios.collect()) - 1.0)
    };
    let (time, cpu) = (more(|served| served.seconds), more(|served| served.cpu as f64));
    println!("redis      prof    {time:.1} % of the time more, {cpu:.1} % of its CPU time");
    claim(time < 2.0, &format!("redis is {time:.1} % slower, < 2 %"));
    Some(time)
}

const FUTEX: &str = "syscalls:sys_enter_futex,syscalls:sys_exit_futex";

/// The recorders of locks, and those of system calls.
struct Recorders {
    locks: Vec<Recorder>,
    calls: Vec<Recorder>,
}

impl Recorders {
    fn all() -> Recorders {
        Recorders {
            locks: vec![
                Recorder::prof("prof", &["-T", "lock"]),
                Recorder::prof("prof `-g fp`", &["-T", "lock", "-g", "fp"]),
                Recorder::perf(
                    "`perf record -g` (futex)",
                    &["record", "-qg", "-o", "perf.data", "-e", FUTEX],
                ),
                // It records the kernel's locks only, unless it is built with BPF; Debian's is not.
                Recorder::perf("`perf lock record`", &["lock", "record", "-o", "lock.data"]),
            ],
            calls: vec![
                Recorder::prof("prof", &["-T", "syscalls"]),
                Recorder::prof("prof `-g fp`", &["-T", "syscalls", "-g", "fp"]),
                Recorder::perf("`perf trace -s`", &["trace", "-s", "-o", "trace.txt"]),
            ],
        }
    }
}

const COLUMNS: [&str; 6] = [
    "Measurement",
    "prof",
    "prof `-g fp`",
    "`perf record -g` (futex)",
    "`perf lock record`",
    "`perf trace -s`",
];

/// The cells of a row: the costs of those that were measured, in the order of the columns.
fn cells(recorders: &[Recorder], costs: &[Cost], text: impl Fn(&Cost) -> String) -> Vec<String> {
    let cell = |column: &&str| {
        let measured = costs.iter().find(|cost| cost.recorder == *column);
        let missing =
            if recorders.iter().any(|r| r.name == *column) { NOT_INSTALLED } else { NOT_MEASURED };
        measured.map_or_else(|| missing.to_owned(), &text)
    };
    COLUMNS[1..].iter().map(cell).collect()
}

fn main() {
    let rounds: usize = option("rounds", 5);
    let perf = support::has_or_advise("perf", "linux-perf");
    let program = target("contended.c", "gcc", &["-O2", "-pthread"]);
    let work = |name, words: &str| {
        let args = words.split(' ').map(str::to_owned).collect();
        Work { name, program: program.clone(), args }
    };
    let Recorders { locks, calls } = Recorders::all();
    let installed = |recorder: &&Recorder| perf || recorder.command[0] == PROF;
    let lock_tools: Vec<&Recorder> = locks.iter().filter(installed).collect();
    let call_tools: Vec<&Recorder> = calls.iter().filter(installed).collect();
    let mutex = costs(&work("mutex", "mutex 1000000"), &lock_tools, rounds);
    let slower = mutex[0].slowdown;
    claim(slower < 7.0, &format!("a contended mutex is {slower:.1} % slower, < 7 %"));
    let wakes = costs(&work("wakes", "wakes 2000000"), &lock_tools[..1], rounds);
    let syscalls = costs(&work("calls", "calls 1000000"), &call_tools, rounds);
    agreement();
    let redis = redis(3 * rounds);
    let mut figures = Figures::new(&COLUMNS);
    figures.conditions(&format!("Medians of {rounds} pairs of runs."));
    let slowdown = |cost: &Cost| percent(cost.slowdown);
    let call = |cost: &Cost| added(cost.call);
    let name = "`-T lock`, four threads that contend for a mutex: slowdown";
    figures.row(name, cells(&locks, &mutex, slowdown));
    let mut row = vec![redis.map_or_else(|| NOT_INSTALLED.to_owned(), percent)];
    row.resize(COLUMNS.len() - 1, NOT_MEASURED.to_owned());
    figures.row("`-T lock`, redis under load: slowdown", row);
    let name = "`-T lock`, wake-ups of a futex without waiters: a call";
    figures.row(name, cells(&locks[..1], &wakes, call));
    figures.row("`-T syscalls`: a system call", cells(&calls, &syscalls, call));
    figures.publish();
}

/// Compares the delay with what the program measured.
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
