//! Recordings that keep their last moments only (`--last`), and what ends them (`--when`).

use std::process::Command;
use std::time::{Duration, Instant};

use crate::common::system::{has_kernel_programs, until_has_run};
use crate::common::waits::label;
use crate::common::{Build, Pprof, Prof, Running, holds, read, target, temp_dir, until};

/// The length of the slices of `--last 1s`.
const SLICE: f64 = 0.1;

fn seconds(p: &Pprof) -> f64 {
    p.duration_nanos as f64 / 1e9
}

/// A process that is busy without end.
fn busy() -> Running {
    Running::start(Command::new(target("known", Build::C)).arg("0"))
}

#[test]
fn the_last_time_of_a_command_is_in_the_profile() {
    let dir = temp_dir();
    let program = target("phases", Build::CDebug);
    let begin = Instant::now();
    let out = Prof::new(&dir, "record -F 999 --last 1s --timestamps").target(program, "2000");
    out.run().ok();
    let p = read(dir.path().join("profile.pb.gz"));
    assert!(begin.elapsed() > Duration::from_secs(6), "it is recorded to its end");
    assert_eq!(p.total_share("g"), 0.0, "g ended more than two seconds before");
    assert!(p.total_share("f") > 95.0);
    // A slice ends late where the machine is slow.
    assert!((1.0..1.0 + 10.0 * SLICE).contains(&seconds(&p)), "{}", seconds(&p));
    assert_eq!(p.figure("samples"), p.total(p.column("samples")));
    let end = p.time_nanos + p.duration_nanos;
    let now = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap().as_nanos() as i64;
    assert!((0..20_000_000_000).contains(&(now - end)), "it ends with the recording");
    let over = Prof::plain(&dir, "report --over 500ms --json").run().ok().text();
    let over: serde_json::Value = serde_json::from_str(&over).unwrap();
    let sums: Vec<i64> = over["sums"].as_array().unwrap().iter().flat_map(|n| n.as_i64()).collect();
    assert_eq!(sums.iter().sum::<i64>(), p.total(p.column("cpu")), "{over}");
    assert_eq!(over["without_time"], 0);
    assert!(sums.len() >= 2 && sums[0] > 0, "times are those of the profile: {sums:?}");
}

#[test]
fn waits_count_for_their_time_in_the_profile() {
    let dir = temp_dir();
    let program = Running::start(&mut Command::new(target("blocked", Build::C)));
    let (program, _) = program.wait_for("ready");
    let prof = Prof::new(&dir, "record -T wall --last 1s -d 3s -p").arg(program.pid().to_string());
    prof.run().ok();
    let p = read(dir.path().join("profile.pb.gz"));
    assert!((1.0..2.0).contains(&seconds(&p)), "{}", seconds(&p));
    let wall = p.column("wall");
    let threads = p.label_values("thread");
    for thread in ["waiter", "conditional", "reader", "sleeper", "runner", "blocked"] {
        assert!(threads.contains(thread), "{threads:?}");
        let samples = p.samples.iter().filter(|s| label(s, "thread") == thread);
        let sum: i64 = samples.map(|s| s.values[wall]).sum();
        let of_each = sum as f64 / 1e9 / if thread == "waiter" { 5.0 } else { 1.0 };
        // A sample on a CPU stands for the time since the one before, also in an earlier slice; a
        // thread that has to wait for a CPU is sampled the later.
        let queued = p.samples.iter().filter(|s| label(s, "state") == "runnable");
        let queued: i64 = queued.map(|s| s.values[wall]).sum();
        let (off, most) = ((of_each - seconds(&p)).abs(), 0.05 + queued as f64 / 1e9);
        assert!(off < most, "{thread}: {of_each} of {} s, {queued} ns queued", seconds(&p));
    }
}

#[test]
fn a_signal_writes_what_was_kept() {
    let dir = temp_dir();
    for signal in [libc::SIGUSR2, libc::SIGUSR1, libc::SIGINT, libc::SIGTERM] {
        let known = busy();
        let prof = Prof::new(&dir, "record -F 999 --last 1s -p").arg(known.pid().to_string());
        let prof = prof.start().sampling();
        until_has_run(known.pid(), 0.3);
        prof.signal(signal);
        prof.finish().ok();
        let p = read(dir.path().join("profile.pb.gz"));
        assert!(p.total_share("main") > 90.0);
    }
}

#[test]
fn a_busy_process_ends_the_recording() {
    let dir = temp_dir();
    // The shell waits until the other one runs.
    let script = "read line; while :; do :; done";
    let mut shell = Command::new("bash");
    shell.args(["-c", script]).stdin(std::process::Stdio::piped());
    let mut idle = Running::start(&mut shell);
    let prof = Prof::new(&dir, "record --last 2s --when cpu>20% -p").arg(idle.pid().to_string());
    let prof = prof.start().sampling();
    drop(idle.stdin());
    let out = prof.finish().ok();
    let said = format!("({}) used ", idle.pid());
    let out = out.says(&["cpu>20%", "held", "bash", &said]);
    assert!(read(dir.path().join("profile.pb.gz")).figure("samples") > 0, "{}", out.stderr);
}

#[test]
fn a_command_that_succeeds_ends_the_recording() {
    let dir = temp_dir();
    let known = busy();
    let (checks, file) = (dir.path().join("checks"), dir.path().join("now"));
    let condition = format!("echo noise | tee -a {}; test -e {}", checks.display(), file.display());
    let prof = Prof::new(&dir, "record --last 2s -p").arg(known.pid().to_string());
    let mut prof = prof.arg("--when").arg(condition).start().sampling();
    until(|| std::fs::read_to_string(&checks).is_ok_and(|text| text.lines().count() >= 2));
    assert!(prof.is_running(), "there is no such file");
    std::fs::write(&file, "").unwrap();
    let out = prof.finish().ok().says(&["test -e", "held"]);
    assert!(!out.text().contains("noise") && !out.stderr.contains("\nnoise"), "{}", out.stderr);
    assert!(read(dir.path().join("profile.pb.gz")).total_share("main") > 90.0);
}

#[test]
fn a_condition_that_did_not_hold_is_reported() {
    let dir = temp_dir();
    let known = busy();
    let idle = Running::start(Command::new("sleep").arg("1000s"));
    let prof = Prof::new(&dir, "record --last 1s --when cpu>20% -d 2500ms -o idle.pb.gz -p");
    prof.arg(idle.pid().to_string()).run().ok().says(&["cpu>20%", "before", "held"]);
    let prof = Prof::new(&dir, "record --last 1s -d 1500ms -p").arg(known.pid().to_string());
    let out = prof.arg("--when").arg("sleep 1000").run().ok();
    out.says(&["sleep 1000", "before", "held"]);
    assert!(read(dir.path().join("profile.pb.gz")).total_share("main") > 90.0);
    let sleeper = || Command::new("pgrep").args(["-f", "^sleep 1000$"]).output().unwrap().stdout;
    assert!(holds(|| sleeper().is_empty()), "the command was left behind");
}

#[test]
fn conditions_and_times_that_cannot_be_are_refused() {
    let dir = temp_dir();
    let known = busy();
    let pid = known.pid().to_string();
    let refused = |args: &str, words: &[&str]| {
        Prof::plain(&dir, args).args(&format!("-p {pid}")).run().refused(2, words);
    };
    refused("record --last 10ms", &["--last", "1s"]);
    refused("record --last 5s -T heap", &["--last", "-T heap"]);
    refused("record --last 5s --when cpu>x", &["cpu>80%"]);
    refused("record --last 5s --when no-such-command-anywhere", &["no-such-command-anywhere"]);
    refused("record --when true", &["--last"]);
    assert!(!dir.path().join("profile.pb.gz").exists());
}

/// More processes than there can be sets of labels.
#[test]
fn processes_of_a_long_time_leave_room_for_the_last() {
    let dir = temp_dir();
    let script = "for i in {1..5000}; do (:); done; while :; do (:); done";
    let shell = Running::start(Command::new("bash").args(["-c", script]));
    let prof = Prof::new(&dir, "record -F 999 --last 1s -d 12s -p").arg(shell.pid().to_string());
    prof.run().ok();
    let p = read(dir.path().join("profile.pb.gz"));
    assert!((1.0..3.0).contains(&seconds(&p)), "{}", seconds(&p));
    let with = p.samples.iter().filter(|s| s.labels.contains_key("tid")).count();
    let all = p.samples.len();
    assert!(all > 100 && with == all, "{with} of {all}");
}

#[test]
fn types_of_events_keep_what_ended_last() {
    let dir = temp_dir();
    if !has_kernel_programs() {
        return;
    }
    let script = "while :; do sleep 0.2; done";
    let mut shell = Command::new("bash");
    let shell = Running::start(shell.args(["-c", script]));
    let prof = Prof::new(&dir, "record -T syscalls --last 1s -d 4s -p");
    prof.arg(shell.pid().to_string()).run().ok();
    let p = read(dir.path().join("profile.pb.gz"));
    let calls = p.column("syscalls");
    let naps = p.samples.iter().filter(|s| label(s, "syscall").ends_with("nanosleep"));
    let naps: i64 = naps.map(|s| s.values[calls]).sum();
    assert!((2..=9).contains(&naps), "one each 0.2 s: {naps} in {} s", seconds(&p));
}
