//! Targets that are hard to record, with each profile type: those that exec, fork, die, are stopped
//! or confined. All that can be recorded of them is, and they go on undisturbed.

use std::process::Command;

use crate::common;
use crate::common::system::{needs_root, needs_tracefs, until_has_run};
use crate::common::unprivileged::{can_drop_rights, open_dir, unprivileged};
use crate::common::waits::{assert_waits, waits};
use crate::common::{Build, Pprof, Prof, Running, read, target, temp_dir};

/// Each profile type of a recording, and several of them at once.
const TYPES: &[&str] = &["cpu", "wall", "cpu,wall"];

/// Records a command that is in trouble, once with each type.
fn each_type(mode: &str, check: impl Fn(&str, &Pprof, &str)) {
    if !needs_root() {
        return;
    }
    let program = target("hardship", Build::C);
    // All types that a command can be recorded with, in one file.
    let all = "cpu,wall,lock,syscalls,alloc,threads";
    for types in TYPES.iter().chain([&all]) {
        let dir = temp_dir();
        let prof = Prof::new(&dir, &format!("record -F 499 -T {types}"));
        // The exit code of the command, as in a shell.
        let code = if mode == "dies" { 128 + libc::SIGKILL } else { 0 };
        let out = prof.target(&program, mode).run().exits(code);
        let p = read(dir.path().join("profile.pb.gz"));
        check(types, &p, &out.stderr);
    }
}

/// Fails unless some samples have this function on their stack.
#[track_caller]
fn assert_sampled(types: &str, p: &Pprof, function: &str) {
    let seen = p.samples.iter().any(|s| p.frames(s).contains(&function));
    assert!(seen, "-T {types}: no sample is in {function}");
}

#[test]
fn a_command_is_recorded_before_and_after_exec() {
    each_type("exec", |types, p, _| {
        assert_sampled(types, p, "works_before");
        assert_sampled(types, p, "works_afterwards");
    });
}

#[test]
fn all_processes_of_a_forking_command_are_recorded() {
    each_type("forks", |types, p, _| {
        let afterwards = |s: &&common::pprof::Sample| p.frames(s).contains(&"works_afterwards");
        let samples = p.samples.iter().filter(afterwards);
        let pids: std::collections::BTreeSet<_> = samples.map(|s| s.labels.get("pid")).collect();
        assert_eq!(pids.len(), 3, "-T {types}: {pids:?}");
    });
}

#[test]
fn a_killed_command_keeps_its_samples_and_its_exit_code() {
    each_type("dies", |types, p, stderr| {
        assert_sampled(types, p, "works_before");
        assert!(stderr.contains("the command was killed by signal 9"), "-T {types}: {stderr}");
    });
}

/// The filter kills it for a system call that it does not make by itself.
#[test]
fn a_command_confined_by_seccomp_is_recorded_unharmed() {
    each_type("confined", |types, p, stderr| {
        assert_sampled(types, p, "works_afterwards");
        assert!(!stderr.contains("killed"), "-T {types}: {stderr}");
    });
}

/// Its locks are recorded as those of any other, and nothing is put into it while it runs.
#[test]
fn a_confined_process_has_its_locks_recorded_but_not_its_heap() {
    if !needs_tracefs() {
        return;
    }
    let dir = temp_dir();
    let program = target("locks", Build::C);
    let p = assert_waits(dir.path(), &program, "mutex 20 confined", "mutex", "take");
    assert!(waits(&p, |_| true).1 >= 20);
    let confined = Running::start(Command::new(target("confined", Build::C)).arg("60"));
    let confined = confined.wait_for("ready").0;
    let of_it = |types: &str| {
        let args = format!("record -d 500ms -p {} --inject -T {types}", confined.pid());
        Prof::new(&dir, &args).run()
    };
    of_it("heap").refused(1, &["confined by seccomp", "continues unchanged"]);
    let out = of_it("heap,threads,lock").ok();
    assert_eq!(out.stderr.matches("the heap is left out").count(), 1, "{}", out.stderr);
    assert!(out.stderr.contains("confined by seccomp"), "{}", out.stderr);
    let p = read(dir.path().join("profile.pb.gz"));
    assert_eq!(p.total(p.column("threads")), 1);
    let status = std::fs::read_to_string(format!("/proc/{}/status", confined.pid())).unwrap();
    assert!(status.contains("State:\tS"), "{status}");
}

/// It stays stopped while it is recorded, and goes on with SIGCONT.
#[test]
fn a_stopped_process_stays_stopped_while_it_is_recorded() {
    if !needs_root() {
        return;
    }
    for types in TYPES {
        let dir = temp_dir();
        let program = target("hardship", Build::C);
        let running = Running::start(Command::new(program).arg("works")).wait_for("ready").0;
        let pid = running.pid();
        // Then it works again, whether it sleeps or not.
        until_has_run(pid, 0.05);
        running.signal(libc::SIGSTOP);
        let out = Prof::new(&dir, &format!("record -T {types} -d 500ms -p {pid}")).run().ok();
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        assert!(status.contains("State:\tT (stopped)"), "-T {types}: {status}");
        let p = read(dir.path().join("profile.pb.gz"));
        if types.contains("wall") {
            let wall = p.column("wall");
            let stopped = p.samples.iter().filter(|s| s.labels["state"] == "stopped");
            let seconds = stopped.map(|s| s.values[wall]).sum::<i64>() as f64 / 1e9;
            let all = p.duration_nanos as f64 / 1e9;
            // The states are read when the 0.5 s are over, after the end of the duration: on a busy
            // machine, prof waits for a CPU in between (0.6 ms were seen, 0.5 ms were allowed).
            let is_all = all >= 0.5 && (0.45..all + 0.1).contains(&seconds);
            assert!(is_all, "-T {types}: {seconds} s of {all} s stopped");
            assert_sampled(types, &p, "works_afterwards");
        } else {
            assert!(out.stderr.contains("no samples"), "-T {types}: {}", out.stderr);
        }
        running.signal(libc::SIGCONT);
        running.signal(libc::SIGKILL);
    }
}

/// The kernel denies users the observation of programs with other rights than theirs.
#[test]
fn a_setuid_program_is_recorded_by_root_only() {
    if !can_drop_rights() {
        return;
    }
    let dir = open_dir();
    let program = dir.path().join("setuid");
    common::copy_program(target("hardship", Build::C), &program);
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o4755);
    std::fs::set_permissions(&program, mode).unwrap();
    let out = unprivileged(dir.path(), "record -F 499").target("./setuid", "dies").run().exits(137);
    assert!(out.stderr.contains("./setuid is setuid"), "{}", out.stderr);
    assert!(out.stderr.contains("run prof as root"), "{}", out.stderr);
    // For root it is a program like any other.
    let prof = Prof::new(dir.path(), "record -F 499 -o root.pb.gz").target(&program, "dies");
    let out = prof.run().exits(137);
    assert!(!out.stderr.contains("setuid:"), "{}", out.stderr);
    assert_sampled("cpu", &read(dir.path().join("root.pb.gz")), "works_before");
}

/// Its allocations and waits: users without the right to record them get one line, and the other
/// types; root gets all, while the program's rights are root's.
#[test]
fn locks_of_a_setuid_program_are_recorded_by_root_only() {
    if !can_drop_rights() || !needs_tracefs() {
        return;
    }
    let dir = open_dir();
    let program = dir.path().join("setuid");
    common::copy_program(target("locks", Build::C), &program);
    let setuid =
        || std::fs::set_permissions(&program, std::os::unix::fs::PermissionsExt::from_mode(0o4755));
    setuid().unwrap();
    let record = |types: &str| {
        let prof = unprivileged(dir.path(), &format!("record -T {types} -o user.pb.gz"));
        prof.target("./setuid", "mutex 20").run()
    };
    record("heap").refused(1, &["./setuid is setuid", "preloads nothing"]);
    record("lock").refused(1, &["tracefs is readable by root only"]);
    let out = record("cpu,heap,lock").ok().says(&["lock contention is left out"]);
    assert_eq!(out.stderr.matches("the heap is left out").count(), 1, "{}", out.stderr);
    assert!(out.stderr.contains("kernel hides it from this user"), "{}", out.stderr);
    assert_waits(dir.path(), &program, "mutex 20", "mutex", "take");
    // If they become another user's, its own events end with that, but not programs in the kernel.
    std::os::unix::fs::chown(&program, Some(65534), None).unwrap();
    setuid().unwrap();
    let record = |types: &str| {
        let prof = Prof::new(&dir, &format!("record -T {types} -o root.pb.gz"));
        prof.target(&program, "mutex 20").run()
    };
    record("heap").refused(1, &["is setuid", "preloads nothing"]);
    record("lock").ok();
    let p = read(dir.path().join("root.pb.gz"));
    let waited = p.sum_below("take", "delay");
    assert!(waited > 180_000_000, "{waited} ns");
    let out = record("lock --holders").ok();
    out.says(&["is setuid: when it starts, the kernel ends the recording"]);
}

/// Another user's processes are refused in one line, with each profile type.
#[test]
fn a_process_of_another_user_is_refused_in_one_line() {
    if !can_drop_rights() {
        return;
    }
    let dir = open_dir();
    let program = target("hardship", Build::C);
    let running = Running::start(Command::new(program).arg("works")).wait_for("ready").0;
    for types in TYPES {
        let args = format!("record -T {types} -d 500ms -p {}", running.pid());
        let out = unprivileged(dir.path(), &args).run();
        assert_eq!(out.code(), 1, "-T {types}: {}", out.stderr);
        assert!(!out.stderr.contains("panicked"), "-T {types}: {}", out.stderr);
        // Wall time needs the kernel's records of switches first.
        let why = ["belongs to another user", "kernel.perf_event_paranoid"];
        let last = out.stderr.lines().last().unwrap_or_default();
        assert!(why.iter().any(|w| last.contains(w)), "-T {types}: {}", out.stderr);
    }
}
