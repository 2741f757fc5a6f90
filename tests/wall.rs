//! Wall time: where the time of each thread goes, on a CPU and off it.

mod common;

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use common::pprof::Sample;
use common::system::{Sysctl, needs_root};
use common::{Build, Pprof, Prof, Running, needs, read, target, temp_dir};

/// What the program says of itself, in seconds, by thread and function.
type Said = BTreeMap<(String, String), f64>;

fn said(text: &str) -> Said {
    let line = |line: &str| {
        let mut words = line.split(' ').map(str::to_owned);
        Some(((words.next()?, words.next()?), words.next()?.parse().ok()?))
    };
    text.lines().filter_map(line).collect()
}

fn label<'a>(sample: &'a Sample, key: &str) -> &'a str {
    sample.labels.get(key).map_or("", String::as_str)
}

/// Seconds of wall time of the samples that are to be kept.
fn seconds(p: &Pprof, keep: impl Fn(&Sample) -> bool) -> f64 {
    let wall = p.column("wall");
    let sum: i64 = p.samples.iter().filter(|s| keep(s)).map(|s| s.values[wall]).sum();
    sum as f64 / 1e9
}

fn of_thread(p: &Pprof, thread: &str, function: &str, state: &str) -> f64 {
    seconds(p, |s| {
        label(s, "thread") == thread
            && (function == "all" || p.frames(s).contains(&function))
            && (state.is_empty() || label(s, "state") == state)
    })
}

/// Each function's time is what the program measured, and each thread's states add up.
fn assert_as_said(p: &Pprof, said: &Said, names: &str) {
    for ((thread, function), want) in said {
        let got = of_thread(p, thread, function, "");
        // Reading the clocks and naming the thread lies outside, and a tick of the machine's; a
        // thread may have to wait for a CPU just then.
        let (off, queued) = ((got - want).abs(), of_thread(p, thread, "all", "runnable"));
        let most = 0.01 * want + 0.005 + queued;
        assert!(off < most, "{names}: {thread} {function}: {got} s of {want} s ({queued} queued)");
    }
    let slept = of_thread(p, "napper", "nap", "sleeping");
    assert!(slept > 0.9 * said[&("napper".into(), "nap".into())], "{slept}");
    let ran = of_thread(p, "napper", "work", "running");
    assert!(ran > 0.3, "{ran} s of work");
    let on_cpu = of_thread(p, "reader", "all", "running");
    assert!(on_cpu < 0.05, "the reader waits: {on_cpu}");
}

fn record(dir: &Path, args: &str) -> (Pprof, Said) {
    let program = target("waits", Build::C);
    let prof = Prof::new(dir, args).target(program, "50");
    let out = prof.run().ok();
    (read(dir.join("profile.pb.gz")), said(&out.text()))
}

#[test]
fn each_thread_s_time_is_told_by_function_and_state() {
    let dir = temp_dir();
    let (p, said) = record(dir.path(), "record -T cpu,wall -F 499");
    assert_eq!(said.len(), 6, "{said:?}");
    assert_as_said(&p, &said, "sched_switch");
    // CPU time is what it is without wall time.
    let cpu = p.total(p.column("cpu")) as f64 / 1e9;
    let ran = seconds(&p, |s| label(s, "state") == "running");
    assert!((cpu - ran).abs() < 0.1 * ran, "cpu {cpu} s, running {ran} s");
    let out = Prof::new(&dir, "report --type wall --sort thread,state").run().ok();
    assert!(out.text().contains("sleeping"), "{}", out.text());
}

#[test]
fn waits_alone_and_short_ones_in_sum() {
    let dir = temp_dir();
    let (p, _) = record(dir.path(), "record --off-cpu --min-block 10ms");
    assert_eq!(seconds(&p, |s| label(s, "state") == "running"), 0.0);
    assert!(of_thread(&p, "napper", "nap", "sleeping") > 0.9);
    let short = seconds(&p, |s| p.frames(s) == ["[waits shorter than --min-block]"]);
    assert!(short < 1.0, "{short}");
}

/// Whoever may sample the kernel, but not use tracepoints.
#[test]
fn without_root_the_software_event_tells_it() {
    if !needs_root() || !needs(&["setpriv"]) {
        return;
    }
    let Some(_paranoid) = Sysctl::set("kernel.perf_event_paranoid", "1") else { return };
    let dir = temp_dir();
    let program = target("waits", Build::C);
    let everyone = std::os::unix::fs::PermissionsExt::from_mode(0o777);
    std::fs::set_permissions(dir.path(), everyone).unwrap();
    let inside = |path: &Path, name: &str| {
        let to = dir.path().join(name);
        std::fs::copy(path, &to).unwrap();
        to
    };
    let prof = inside(Path::new(env!("CARGO_BIN_EXE_prof")), "prof");
    let program = inside(&program, "waits");
    let mut command = Command::new("setpriv");
    command.args(["--reuid=1000", "--regid=1000", "--clear-groups"]).arg(prof);
    command.args(["record", "-T", "wall", "-F", "499", "--"]).arg(program).arg("50");
    let out = common::run::run({
        command.current_dir(dir.path());
        command
    });
    let out = out.ok();
    let p = read(dir.path().join("profile.pb.gz"));
    assert_as_said(&p, &said(&out.text()), "context-switches");
}

/// A thread that sleeps from before the beginning to the end of the recording has its stack.
#[test]
fn who_sleeps_all_the_time_is_told() {
    let dir = temp_dir();
    let mut command = Command::new(target("waits", Build::C));
    let (running, _) = Running::start(command.arg("200")).wait_for("ready");
    // It has to get there.
    std::thread::sleep(std::time::Duration::from_millis(50));
    let pid = running.pid();
    Prof::new(&dir, &format!("record -T wall -d 1s -p {pid}")).run().ok();
    let p = read(dir.path().join("profile.pb.gz"));
    let dozed = of_thread(&p, "idler", "doze", "sleeping");
    let duration = p.duration_nanos as f64 / 1e9;
    assert!((dozed - duration).abs() < 0.02 * duration, "{dozed} s of {duration} s");
    if needs_root() {
        let slept = of_thread(&p, "idler", "vfs_read", "sleeping");
        assert_eq!(slept, dozed, "what it waits for in the kernel is not told");
    }
    for thread in ["napper", "reader", "idler"] {
        let all = of_thread(&p, thread, "all", "");
        assert!((all - duration).abs() < 0.02 * duration, "{thread}: {all} s of {duration} s");
    }
}

/// Processes come and go: none has more time than there was, nor had the CPUs.
#[test]
fn nobody_has_more_time_than_there_was() {
    if !needs_root() {
        return;
    }
    let dir = temp_dir();
    let mut command = Command::new("sh");
    command.args(["-c", "while :; do /bin/true; done"]);
    let running = Running::start(&mut command);
    Prof::new(&dir, "record -T wall -a -d 1s").run().ok();
    drop(running);
    let p = read(dir.path().join("profile.pb.gz"));
    let duration = p.duration_nanos as f64 / 1e9;
    let mut threads: BTreeMap<&str, f64> = BTreeMap::new();
    let wall = p.column("wall");
    for sample in &p.samples {
        *threads.entry(label(sample, "tid")).or_default() += sample.values[wall] as f64 / 1e9;
    }
    assert!(threads.len() > 50, "{} threads", threads.len());
    let longest = threads.values().copied().fold(0.0, f64::max);
    assert!(longest < 1.02 * duration, "{longest} s of {duration} s");
    let cpus = std::thread::available_parallelism().unwrap().get() as f64;
    let ran = seconds(&p, |s| label(s, "state") == "running");
    assert!(ran < 1.02 * cpus * duration, "{ran} s on {cpus} CPUs in {duration} s");
}

#[test]
fn what_cannot_be_recorded_is_one_line() {
    let dir = temp_dir();
    let refused = |args: &str, words: &[&str]| Prof::new(&dir, args).run().refused(2, words);
    refused("record -T wall -e page-faults -a", &["-T and -e"]);
    refused("record --min-block 1us -a", &["--min-block"]);
}
