//! Lock contention: waits for locks, and waits that are no contention.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::common::pprof::Sample;
use crate::common::system::{self, needs_tracefs};
use crate::common::unprivileged::{can_drop_rights, open_dir, unprivileged};
use crate::common::waits::{assert_waits, is_most_of, label, said, waits};
use crate::common::{Build, Prof, Running, go, needs, read, target, temp_dir, until};

#[test]
fn c_library_locks_are_classified_by_their_waits() {
    if !needs_tracefs() {
        return;
    }
    let dir = temp_dir();
    let program = target("locks", Build::C);
    for (kind, class) in [
        ("mutex", "mutex"),
        ("recursive", "mutex"),
        ("errorcheck", "mutex"),
        ("adaptive", "mutex"),
        ("pi", "pi"),
        ("read", "rwlock"),
        ("write", "rwlock"),
        ("semaphore", "semaphore"),
    ] {
        let p = assert_waits(dir.path(), &program, &format!("{kind} 20"), class, "take");
        let thread = |s: &Sample| label(s, "thread") == "waiter";
        assert!(waits(&p, thread).0 > 0.95 * waits(&p, |_| true).0, "{kind}");
    }
    let out = Prof::new(&dir, "report --sort lock,kind --type contentions").run().ok().text();
    assert!(out.contains("semaphore") && out.contains("0x"), "{out}");
    let types = ["contentions", "delay"].map(str::to_owned);
    let p = read(dir.path().join("profile.pb.gz"));
    assert!(p.sample_types.iter().map(|(kind, _)| kind).eq(&types), "{:?}", p.sample_types);
}

/// Waits for work are no contention, and are reported.
#[test]
fn waits_for_work_are_left_out_and_counted() {
    if !needs_tracefs() {
        return;
    }
    let dir = temp_dir();
    let rust = target("locks", Build::Rust);
    for (program, kind, what) in [
        (target("locks", Build::C), "condition", "condition variables"),
        (target("locks", Build::C), "join", "joins"),
        (target("locks", Build::Cpp), "condition", "condition variables"),
        (rust.clone(), "condition", "condition variables"),
        (rust, "park", "parked threads"),
    ] {
        let args = format!("{kind} 20");
        let out = Prof::new(&dir, "record -T lock").target(program, &args).run().ok();
        let p = read(dir.path().join("profile.pb.gz"));
        let (seconds, _) = waits(&p, |_| true);
        assert!(seconds < 0.1 * said(&out.text()).0, "{args}: {seconds} s: {}", out.stderr);
        let figure =
            |c: &String| c.strip_prefix(&format!("waits-left-out: {what}: "))?.parse().ok();
        let left_out: i64 = p.comments.iter().find_map(figure).unwrap_or_else(|| panic!("{args}"));
        // The program's own end may be a wait, too.
        assert!((20..=24).contains(&left_out), "{args}: {left_out}");
        assert!(out.stderr.contains(&format!("{left_out} at {what}")), "{args}: {}", out.stderr);
    }
}

#[test]
fn cpp_and_rust_locks_are_classified_by_their_waits() {
    if !needs_tracefs() {
        return;
    }
    let dir = temp_dir();
    for build in [Build::Cpp, Build::Rust] {
        let program = target("locks", build);
        for (kind, class) in [("mutex", "mutex"), ("read", "rwlock"), ("write", "rwlock")] {
            assert_waits(dir.path(), &program, &format!("{kind} 20"), class, "take");
        }
    }
}

/// A monitor is made of a condition variable, which as such is no lock.
#[test]
fn java_monitors_are_distinguished_from_waits_for_work() {
    if !needs_tracefs() || !needs(&["javac"]) {
        return;
    }
    let dir = temp_dir();
    let classes = target("Locks", Build::Java);
    let mut prof = Prof::new(&dir, "record -T lock --");
    prof.command.args(["java", "-Xint", "-cp"]).arg(classes).args(["Locks", "20"]);
    let out = prof.run().ok();
    let p = read(dir.path().join("profile.pb.gz"));
    let want: f64 = out.text().trim().split(' ').next().unwrap().parse().unwrap();
    let (got, _) = waits(&p, |s| label(s, "kind") == "monitor" && label(s, "thread") == "waiter");
    assert!(is_most_of(got, want), "{got} s of {want} s: {}", out.stderr);
    let (all, _) = waits(&p, |_| true);
    assert!(all < 2.0 * want, "{all} s in all: {}", out.stderr);
    // The monitor is a row of the method that waits for it, not of the C library.
    let report = Prof::new(&dir, "report").run().ok().text();
    let first = report.lines().skip_while(|line| !line.contains("self%")).nth(1).unwrap();
    assert!(first.contains("Locks.take()"), "{report}");
}

/// Goroutines that wait for each other leave threads without work, which wait for no lock.
#[test]
fn idle_go_threads_are_no_contention() {
    if !needs_tracefs() || !needs(&["go"]) {
        return;
    }
    let dir = temp_dir();
    let program = target("locks", Build::Go);
    let out = Prof::new(&dir, "record -T lock").target(program, "50").run().ok();
    let p = read(dir.path().join("profile.pb.gz"));
    assert!(out.stderr.contains(" at parked threads"), "{}", out.stderr);
    assert!(waits(&p, |_| true).0 < 0.02, "{}", out.stderr);
}

/// A recording without names has all waits; once it has names, it equals one that had them at once.
#[test]
fn late_symbolization_classifies_waits_alike() {
    if !needs_tracefs() {
        return;
    }
    let dir = temp_dir();
    let program = target("locks", Build::C);
    let unnamed = |args| Prof::new(&dir, "record -T lock --no-symbolize").target(&program, args);
    unnamed("condition 20").run().ok();
    let file = dir.path().join("profile.pb.gz");
    let (all, _) = waits(&read(&file), |s| label(s, "kind") == "unknown");
    assert!(all > 0.19, "{all} s");
    let out = Prof::new(&dir, "symbolize").run().ok();
    assert!(out.stderr.contains(" at condition variables"), "{}", out.stderr);
    let p = read(&file);
    assert!(waits(&p, |_| true).0 < 0.02);
    assert!(p.comments.iter().any(|c| c.starts_with("waits-left-out: condition variables: ")));
    unnamed("mutex 20").run().ok();
    let (likely, _) = waits(&read(&file), |s| label(s, "kind") == "mutex?");
    Prof::new(&dir, "symbolize").run().ok();
    let (later, _) = waits(&read(&file), |s| label(s, "kind") == "mutex");
    assert!(likely > 0.19 && likely == later, "{likely} s, then {later} s");
    // Earlier decisions stay.
    Prof::new(&dir, "symbolize --force").run().ok();
    assert_eq!(waits(&read(&file), |s| label(s, "kind") == "mutex").0, later);
}

#[test]
fn go_tool_pprof_shows_the_same_waits() {
    if !needs_tracefs() || !needs(&["go"]) {
        return;
    }
    let dir = temp_dir();
    Prof::new(&dir, "record -T lock").target(target("locks", Build::C), "mutex 20").run().ok();
    let file = dir.path().join("profile.pb.gz");
    let p = read(&file);
    let delay = p.column("delay");
    let ours: i64 = p.samples.iter().map(|s| s.values[delay]).sum();
    let top = go::top(&file, "delay", "nanoseconds");
    assert_eq!(top["take"].1, ours);
    assert_eq!(top.values().map(|(flat, _)| flat).sum::<i64>(), ours);
    let count = p.total(p.column("contentions"));
    assert!(count >= 20, "{count} waits");
    assert_eq!(go::top(&file, "contentions", "count")["take"].1, count);
}

/// The same waits by the thread that releases the lock.
#[test]
fn holders_are_the_threads_that_release_the_lock() {
    if !needs_tracefs() {
        return;
    }
    let dir = temp_dir();
    let programs = [
        (Build::C, "mutex", "mutex"),
        (Build::C, "pi", "pi"),
        (Build::C, "write", "rwlock"),
        (Build::C, "semaphore", "semaphore"),
        (Build::Rust, "mutex", "mutex"),
    ];
    for (build, kind, class) in programs {
        let program = target("locks", build);
        let args = format!("{kind} 20");
        let out = Prof::new(&dir, "record -T lock --holders").target(program, &args).run().ok();
        let p = read(dir.path().join("profile.pb.gz"));
        let (delay, _) = waits(&p, |s| label(s, "kind") == class && label(s, "thread") == "waiter");
        let held = p.column("holder_delay");
        let gives = |s: &&Sample| {
            let in_give = p.frames(s).iter().any(|f| f.contains("give"));
            in_give && label(s, "tid") == label(s, "pid") && label(s, "kind") == class
        };
        let given = p.samples.iter().filter(gives).map(|s| s.values[held]).sum::<i64>();
        let (all, given) = (p.total(held) as f64 / 1e9, given as f64 / 1e9);
        let name = format!("{args}: {}", out.stderr);
        assert!(given > 0.8 * delay && given < 1.01 * delay, "{given} s of {delay} s: {name}");
        assert!(all < 1.3 * delay, "{all} s of {delay} s: {name}");
    }
    // A thread that announces work holds nothing.
    let program = target("locks", Build::C);
    Prof::new(&dir, "record -T lock --holders").target(program, "condition 20").run().ok();
    let p = read(dir.path().join("profile.pb.gz"));
    let all = p.total(p.column("holder_delay")) as f64 / 1e9;
    assert!(all < 0.02, "{all} s");
}

/// Recorded together, all have the values that they have alone.
#[test]
fn locks_cpu_and_wall_time_are_recorded_together() {
    if !needs_tracefs() {
        return;
    }
    let dir = temp_dir();
    let prof = Prof::new(&dir, "record -T cpu,wall,lock -F 499 -e page-faults");
    let out = prof.target(target("locks", Build::C), "mutex 20").run().ok();
    let p = read(dir.path().join("profile.pb.gz"));
    let want = said(&out.text()).0;
    let (waited, _) = waits(&p, |s| p.frames(s).contains(&"take"));
    assert!(is_most_of(waited, want), "{waited} s of {want} s");
    let wall = p.column("wall");
    let blocked = |s: &&Sample| p.frames(s).contains(&"take") && label(s, "state") == "sleeping";
    let wall = p.samples.iter().filter(blocked).map(|s| s.values[wall]).sum::<i64>() as f64 / 1e9;
    assert!(is_most_of(wall, want), "{wall} s of {want} s");
    assert!(p.total(p.column("page-faults")) > 10);
    // A wait is no sample of time.
    let (samples, count) = (p.column("samples"), p.column("contentions"));
    assert!(p.samples.iter().all(|s| s.values[samples] == 0 || s.values[count] == 0));
}

/// Gives a wait its length, which is what is measured; returns the seconds that it has lasted.
fn lasts(ms: u64) -> f64 {
    let since = Instant::now();
    std::thread::sleep(Duration::from_millis(ms));
    since.elapsed().as_secs_f64()
}

/// A wait from before the recording is unknown; one until the end of the recording counts.
#[test]
fn a_wait_counts_until_the_recording_ends() {
    if !needs_tracefs() || !needs(&["python3"]) {
        return;
    }
    let dir = temp_dir();
    // The first wait begins before the recording, the second within it; both never end.
    let program = "import sys, threading, time\n\
        locks = [threading.Lock(), threading.Lock()]\n\
        [lock.acquire() for lock in locks]\n\
        threading.Thread(target=locks[0].acquire, daemon=True).start()\n\
        print('ready', flush=True)\n\
        sys.stdin.readline()\n\
        threading.Thread(target=locks[1].acquire, daemon=True).start()\n\
        time.sleep(60)";
    let Waiter { running, recording, asked } = Waiter::start(dir.path(), program);
    let pid = running.pid();
    let in_call = |number| system::threads_in_call(pid, "python3", number);
    until(|| in_call(libc::SYS_futex) == 2 && in_call(libc::SYS_clock_nanosleep) == 1);
    let least = lasts(400);
    recording.signal(libc::SIGINT);
    recording.finish().ok();
    let most = asked.elapsed().as_secs_f64();
    let p = read(dir.path().join("profile.pb.gz"));
    // The main thread waits for the other to begin.
    let started = |s: &Sample| label(s, "tid") != label(s, "pid");
    let (seconds, count) = waits(&p, |s| started(s) && label(s, "kind") == "python lock");
    assert_eq!(count, 1);
    assert!((least..most).contains(&seconds), "{seconds} s of {least} to {most} s");
}

/// Processes that the target starts are recorded, too; one that ends during a wait has waited until
/// then.
#[test]
fn waits_of_children_and_of_killed_processes_are_recorded() {
    if !needs_tracefs() || !needs(&["python3"]) {
        return;
    }
    let dir = temp_dir();
    let program = target("locks", Build::C);
    let program = program.display();
    // In a child, and in the program that takes the place of the shell.
    let script = format!("{program} mutex 20; exec {program} read 20");
    let mut prof = Prof::new(&dir, "record -T lock -- sh -c");
    prof.command.arg(script);
    let out = prof.run().ok();
    let p = read(dir.path().join("profile.pb.gz"));
    let want: Vec<f64> = out.text().lines().map(|line| said(line).0).collect();
    let got = ["mutex", "rwlock"].map(|kind| waits(&p, |s| label(s, "kind") == kind).0);
    assert!(is_most_of(got[0], want[0]) && is_most_of(got[1], want[1]), "{got:?} of {want:?}");

    let killed = "import os, signal, threading, time\n\
        lock = threading.Lock()\n\
        lock.acquire()\n\
        main = f'/proc/self/task/{os.getpid()}/stat'\n\
        def kill():\n\
        \x20   while open(main).read().rsplit(') ')[1][0] != 'S': time.sleep(0.01)\n\
        \x20   time.sleep(0.5)\n\
        \x20   os.kill(os.getpid(), signal.SIGKILL)\n\
        threading.Thread(target=kill).start()\n\
        lock.acquire()";
    let mut prof = Prof::new(&dir, "record -T lock -- python3 -c");
    prof.command.arg(killed);
    let out = prof.run().exits(137).says(&["the command was killed by signal 9"]);
    let p = read(dir.path().join("profile.pb.gz"));
    let main = |s: &Sample| label(s, "tid") == label(s, "pid") && label(s, "kind") == "python lock";
    let (seconds, _) = waits(&p, main);
    assert!((0.4..5.0).contains(&seconds), "{seconds} s: {}", out.stderr);
}

/// A stopped process does not wait for its lock in that time; afterwards the wait goes on.
#[test]
fn a_stop_neither_counts_as_a_wait_nor_splits_one() {
    if !needs_tracefs() || !needs(&["python3"]) {
        return;
    }
    let dir = temp_dir();
    let program = "import threading, sys\n\
        lock = threading.Lock()\n\
        lock.acquire()\n\
        print('ready', flush=True)\n\
        sys.stdin.readline()\n\
        lock.acquire()";
    let Waiter { running, recording, asked } = Waiter::start(dir.path(), program);
    let pid = running.pid();
    until(|| system::is_in_call(pid, "python3", libc::SYS_futex));
    let before = lasts(400);
    running.signal(libc::SIGSTOP);
    until(|| system::state(pid) == 'T');
    let most_before = asked.elapsed().as_secs_f64();
    lasts(1500);
    let continued = Instant::now();
    running.signal(libc::SIGCONT);
    let is_asleep = || system::state(pid) == 'S';
    until(|| is_asleep() && system::is_in_call(pid, "python3", libc::SYS_futex));
    let after = lasts(400);
    recording.signal(libc::SIGINT);
    recording.finish().ok();
    let most_after = continued.elapsed().as_secs_f64();
    let p = read(dir.path().join("profile.pb.gz"));
    let (seconds, count) = waits(&p, |s| label(s, "kind") == "python lock");
    assert_eq!(count, 1);
    let range = before + after..most_before + most_after;
    assert!(range.contains(&seconds), "{seconds} s, {range:?}");
}

/// The kernel's own locks, with the whole machine.
#[test]
fn kernel_locks_have_their_type_and_flags() {
    if !needs_tracefs() {
        return;
    }
    let dir = temp_dir();
    // Threads of one process that map memory at the same time take its mmap_lock for writing.
    let program = target("mappers", Build::C);
    let running = Running::start(Command::new(program).arg("4"));
    let recording = Prof::new(&dir, "record -T lock -a -d 1h").start().sampling();
    system::until_has_run(running.pid(), 1.5);
    recording.signal(libc::SIGINT);
    recording.finish().ok();
    drop(running);
    let p = read(dir.path().join("profile.pb.gz"));
    let rwsem = |s: &Sample| label(s, "kind") == "kernel rwsem" && label(s, "flags") == "write";
    let mappers = |s: &Sample| rwsem(s) && label(s, "process") == "mappers";
    let (seconds, count) = waits(&p, mappers);
    assert!(count > 10 && seconds > 0.001, "{count} waits, {seconds} s");
    let longest = 4.0 * p.duration_nanos as f64 / 1e9;
    assert!(seconds < longest, "{seconds} s of {longest} s");
}

/// A user who may not use tracepoints gets one line about it, and the other types.
#[test]
fn without_rights_locks_are_left_out_and_other_types_recorded() {
    if !can_drop_rights() {
        return;
    }
    let dir = open_dir();
    let record = |types: &str| {
        unprivileged(dir.path(), &format!("record -T {types}")).target("./known", "0.5").run()
    };
    for kind in ["lock", "io", "syscalls"] {
        record(kind).refused(1, &["tracefs is readable by root only", "setcap"]);
    }
    let out = record("cpu,lock").ok();
    let note = "prof: lock contention is left out: ";
    assert_eq!(out.stderr.matches(note).count(), 1, "{}", out.stderr);
    let p = read(dir.path().join("profile.pb.gz"));
    assert!(p.total_share("bar") > 20.0);
    assert!(p.sample_types.iter().all(|(kind, _)| kind != "delay"), "{:?}", p.sample_types);
}

#[test]
fn impossible_lock_options_are_refused_in_one_line() {
    let dir = temp_dir();
    let refused = |args: &str, words: &[&str]| Prof::new(&dir, args).run().refused(2, words);
    refused("record --holders -a", &["--holders", "-T lock"]);
    refused("record -T lock -C 0 -a", &["-C", "all CPUs"]);
}

/// A recorded Python program that waits for a lock once it is asked to.
struct Waiter {
    running: Running,
    recording: Running,
    asked: Instant,
}

impl Waiter {
    /// The program prints `ready`, and reads a line before it waits.
    fn start(dir: &Path, program: &str) -> Waiter {
        let mut command = Command::new("python3");
        command.args(["-c", program]).stdin(Stdio::piped());
        let (mut running, _) = Running::start(&mut command).wait_for("ready");
        let prof = Prof::new(dir, &format!("record -T lock -d 1h -p {}", running.pid()));
        let recording = prof.start().sampling();
        let asked = Instant::now();
        std::io::Write::write_all(&mut running.stdin(), b"\n").unwrap();
        Waiter { running, recording, asked }
    }
}
