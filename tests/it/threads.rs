//! `prof threads`: the current stack and state of each thread.

use std::process::Command;

use crate::common;
use crate::common::system::{self, needs_root};
use crate::common::targets::built;
use crate::common::unprivileged::{can_drop_rights, open_dir, unprivileged};
use crate::common::{Build, Prof, Running, needs, read, target, temp_dir, until};

/// The program with `waiters` threads that wait for its mutex, when all threads are in their
/// places.
fn program(waiters: usize) -> Running {
    let program = target("blocked", Build::CDebug);
    Running::start(Command::new(program).arg(waiters.to_string())).wait_for("ready").0
}

fn state_of(pid: i32) -> String {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let state = status.lines().find(|l| l.starts_with("State:")).unwrap();
    state.to_owned()
}

/// The block of the text that begins with these words.
fn block<'a>(text: &'a str, begin: &str) -> &'a str {
    let found = text.split("\n\n").find(|block| block.trim_start().starts_with(begin));
    found.unwrap_or_else(|| panic!("{begin:?} is not in:\n{text}"))
}

/// Checks that all words are in the text, in this order.
#[track_caller]
fn in_order(text: &str, words: &[&str]) {
    let mut rest = text;
    for word in words {
        let at = rest.find(word).unwrap_or_else(|| panic!("{word:?} is missing in:\n{text}"));
        rest = &rest[at + word.len()..];
    }
}

#[test]
fn threads_with_equal_stacks_are_grouped() {
    let dir = temp_dir();
    let running = program(5);
    let pid = running.pid();
    let out = Prof::new(&dir, &format!("threads -p {pid}")).run().ok();
    let text = out.text();
    assert!(text.starts_with(&format!("blocked {pid}: 10 threads\n")), "{text}");
    let waiting = block(&text, "5 threads sleeping: waiter ");
    in_order(
        waiting,
        &["waits_for_the_mutex  [blocked", "blocked.c:", "begin", "clone3  [libc.so.6]"],
    );
    assert_eq!(waiting.lines().next().unwrap().split(' ').count(), 3 + 1 + 5, "{waiting}");
    in_order(
        block(&text, "1 thread sleeping: conditional "),
        &["waits_for_the_condition", "clone3"],
    );
    in_order(
        block(&text, "1 thread sleeping: reader "),
        &["read", "reads_from_the_pipe", "clone3"],
    );
    in_order(block(&text, "1 thread sleeping: sleeper "), &["sleeps", "clone3"]);
    in_order(block(&text, "1 thread running: runner "), &["runs", "begin", "clone3"]);
    in_order(block(&text, "1 thread sleeping: blocked "), &["pause", "main", "_start"]);
    assert!(!text.contains("not known"), "{text}");
    assert!(!out.stderr.contains("truncated"), "{}", out.stderr);
    assert_eq!(state_of(pid), "State:\tS (sleeping)");
}

/// A program that sleeps for ever, when it does.
fn sleeper(name: &str, flags: &[&str]) -> Running {
    let program = built(name, "sleeps.c", "gcc", flags);
    let running = Running::start(&mut Command::new(program)).wait_for("ready").0;
    until(|| system::is_in_call(running.pid(), name, libc::SYS_poll));
    running
}

/// Of a sleeping thread, only the stack and the instruction pointer can be read from outside.
#[test]
fn sleepers_below_functions_with_frame_pointers_have_whole_stacks() {
    let dir = temp_dir();
    let without_tables = ["-O2", "-fno-omit-frame-pointer", "-fno-asynchronous-unwind-tables"];
    for (name, flags) in [
        ("sleeps_fp", &["-O2", "-fno-omit-frame-pointer"][..]),
        ("sleeps_o0", &["-O0"]),
        ("sleeps_fp_only", &without_tables),
        ("sleeps_sp", &["-O2", "-fomit-frame-pointer"]),
    ] {
        let running = sleeper(name, flags);
        let out = Prof::new(&dir, &format!("threads -p {}", running.pid())).run().ok();
        let words = ["poll", "inner", "middle", "outer", "__libc_start_main", "_start"];
        in_order(&out.text(), &words);
        assert!(!out.text().contains("truncated"), "{name}: {}", out.text());
    }
}

#[test]
fn a_frame_pointer_that_the_code_leaves_open_is_said_to_be_unknown() {
    let dir = temp_dir();
    let running = sleeper("sleeps_open", &["-O2", "-DALLOCA"]);
    let out = Prof::new(&dir, &format!("threads -p {}", running.pid())).run().ok();
    in_order(&out.text(), &["inner", "[truncated: frame pointer not known]"]);
    assert!(!out.text().contains("middle"), "{}", out.text());
}

#[test]
fn kernel_frames_show_the_waits_of_threads() {
    if !needs_root() {
        return;
    }
    let dir = temp_dir();
    let running = program(1);
    let text = Prof::new(&dir, &format!("threads -p {}", running.pid())).run().ok().text();
    let kernel = "[kernel.kallsyms]";
    let waiter = block(&text, "1 thread sleeping: waiter ");
    in_order(waiter, &["futex_wait", kernel, "entry_SYSCALL_64", kernel, "waits_for_the_mutex"]);
    in_order(
        block(&text, "1 thread sleeping: reader "),
        &["pipe_read", kernel, "reads_from_the_pipe"],
    );
    in_order(block(&text, "1 thread sleeping: sleeper "), &["nanosleep", kernel, "sleeps"]);
}

#[test]
fn threads_are_shown_one_by_one_or_selected() {
    let dir = temp_dir();
    let running = program(3);
    let pid = running.pid();
    let each = Prof::new(&dir, &format!("threads --each -p {pid}")).run().ok().text();
    let heads: Vec<&str> = each.lines().filter(|l| l.starts_with("1 thread ")).collect();
    assert_eq!(heads.len(), 8, "{each}");
    let number = |head: &&str| head.rsplit(' ').next().unwrap().parse::<i32>().unwrap();
    assert!(heads.iter().map(number).is_sorted(), "{heads:?}");
    let tid = number(heads.last().unwrap());
    let alone = Prof::new(&dir, &format!("threads -t {tid}")).run().ok().text();
    assert!(alone.contains(&format!(": 1 thread\n\n1 thread running: runner {tid}\n")), "{alone}");
}

#[test]
fn a_snapshot_is_written_as_a_profile() {
    let dir = temp_dir();
    let running = program(7);
    Prof::new(&dir, &format!("threads -o t.pb.gz -p {}", running.pid())).run().ok();
    let p = read(dir.path().join("t.pb.gz"));
    assert_eq!(p.sample_types, [("threads".to_owned(), "count".to_owned())]);
    let sum = |name: &str| -> i64 {
        let there = p.samples.iter().filter(|s| p.frames(s).contains(&name));
        there.map(|s| s.values[0]).sum()
    };
    assert_eq!((sum("waits_for_the_mutex"), sum("runs"), sum("main")), (7, 1, 1));
    let report = Prof::new(&dir, "report t.pb.gz --sort state").run().ok().text();
    in_order(&report, &["11", "sleeping"]);
    if !needs(&["go"]) {
        return;
    }
    let mut top = Command::new("go");
    top.args(["tool", "pprof", "-sample_index=threads", "-top"]).arg(dir.path().join("t.pb.gz"));
    let top = common::run::run(top).ok().text();
    in_order(&top, &["Type: threads", "waits_for_the_mutex"]);
}

#[test]
fn the_whole_machine_includes_kernel_threads() {
    if !needs_root() {
        return;
    }
    let dir = temp_dir();
    let running = program(2);
    let text = Prof::new(&dir, "threads -a").run().ok().text();
    let processes = text.lines().next().unwrap();
    assert!(processes.contains(" processes: ") && processes.contains(" threads"), "{processes}");
    let pid = running.pid();
    let waiting = format!("blocked {pid}, waiter ");
    let block = text.split("\n\n").find(|b| b.lines().next().unwrap().contains(&waiting));
    in_order(block.unwrap_or_else(|| panic!("{text}")), &["waits_for_the_mutex"]);
    // Threads of the kernel.
    in_order(&text, &["kthreadd 2", "kthreadd  [kernel.kallsyms]"]);
}

/// Stopped threads are shown, and stay stopped.
#[test]
fn a_stopped_process_is_shown_and_stays_stopped() {
    let dir = temp_dir();
    let running = program(1);
    let pid = running.pid();
    running.signal(libc::SIGSTOP);
    until(|| state_of(pid).contains('T'));
    let text = Prof::new(&dir, &format!("threads -p {pid}")).run().ok().text();
    in_order(block(&text, "1 thread stopped: runner "), &["runs", "begin", "clone3"]);
    in_order(block(&text, "1 thread stopped: waiter "), &["waits_for_the_mutex"]);
    assert!(state_of(pid).contains('T'));
}

#[test]
fn unreadable_processes_are_refused_in_one_line() {
    let dir = temp_dir();
    let refused = |args: &str, code: i32, words: &[&str]| {
        Prof::new(&dir, args).run().refused(code, words);
    };
    refused("threads", 2, &["-p PID", "-a"]);
    refused("threads -p 999999999", 1, &["999999999"]);
    let own = std::process::id();
    let twice = Prof::new(&dir, &format!("threads -p {own},{own} --each")).run().ok().text();
    assert_eq!(twice.matches(&format!(" {own}\n")).count(), 1, "{twice}");
    refused("threads -t 999999999", 1, &["999999999"]);
    refused("threads -p 1 -o /nowhere/t.pb.gz", 1, &["/nowhere"]);
    if !can_drop_rights() {
        return;
    }
    let (dir, running) = (open_dir(), program(1));
    let pid = running.pid().to_string();
    unprivileged(dir.path(), &format!("threads -p {pid}")).run().refused(1, &[&pid]);
    // The user's own processes are shown among all others.
    let mut sleep = Command::new("setpriv");
    sleep.args(["--reuid=65534", "--regid=65534", "--clear-groups", "--", "sleep", "100"]);
    let own = Running::start(&mut sleep);
    until(|| system::is_in_call(own.pid(), "sleep", libc::SYS_clock_nanosleep));
    let all = unprivileged(dir.path(), "threads -a").run().ok().says(&["may not read the stack"]);
    let all = all.text();
    in_order(&all, &["[stack not known: not permitted]"]);
    let own = block(&all, &format!("1 thread sleeping: sleep {}\n", own.pid()));
    in_order(own, &["nanosleep", "main", "_start"]);
}

/// Each thread is attributed to the stack that created it.
#[test]
fn lasting_threads_are_attributed_to_their_creator() {
    if !needs_root() {
        return;
    }
    let dir = temp_dir();
    let program = target("starter", Build::C);
    let running = Running::start(&mut Command::new(program)).wait_for("ready").0;
    let args = format!("record -T threads --snapshots 5 -d 3s -p {}", running.pid());
    let out = Prof::new(&dir, &args).run().ok();
    assert!(out.stderr.contains("5 snapshots of threads"), "{}", out.stderr);
    let file = dir.path().join("profile.pb.gz");
    let p = read(&file);
    let of = |kind: &str, function: &str| p.sum_below(function, kind);
    let (leaked, used) =
        (of("threads_created", "leaks_a_thread"), of("threads_created", "uses_threads"));
    assert!(leaked > 10, "{leaked}");
    // The recording may end between two calls.
    assert!((used - 2 * leaked).abs() <= 2, "{leaked} leaked, {used} used");
    assert_eq!(of("threads_grown", "leaks_a_thread"), leaked);
    assert!(of("threads_grown", "uses_threads") <= 2);
    // On average, half of the new threads that stay are there, and all of the older ones.
    let (waiting, seen) = (of("threads", "stays"), of("samples", "stays"));
    assert!(waiting >= leaked / 4, "{waiting} of {leaked}");
    // Each thread is a row of its own, and its average is rounded.
    assert!((seen - 5 * waiting).abs() <= seen / 4, "{seen} in 5 snapshots, {waiting} on average");
    if needs(&["go"]) {
        let top = common::go::top(&file, "threads_grown", "count");
        assert_eq!(top["leaks_a_thread"].1, leaked, "{top:?}");
    }
}

#[test]
fn threads_are_no_allocations() {
    let dir = temp_dir();
    let prof = Prof::new(&dir, "record -T heap,threads --heap-interval 1 -d 1s");
    prof.target("/usr/bin/sleep", "0.6").run().ok();
    let p = read(dir.path().join("profile.pb.gz"));
    let (objects, threads) = (p.column("alloc_objects"), p.column("threads"));
    let seen: Vec<_> = p.samples.iter().filter(|s| s.values[threads] > 0).collect();
    assert!(!seen.is_empty(), "the thread that sleeps is seen");
    assert!(seen.iter().all(|s| s.values[objects] == 0), "{seen:?}");
}

/// One snapshot, at once, as of `prof threads`; or several, with the CPU time of the window in one
/// file.
#[test]
fn snapshots_are_recorded_alone_and_with_cpu_time() {
    let dir = temp_dir();
    let running = program(5);
    let pid = running.pid();
    Prof::new(&dir, &format!("record -T threads -p {pid}")).run().ok();
    let p = read(dir.path().join("profile.pb.gz"));
    assert_eq!(p.sample_types, [("threads".to_owned(), "count".to_owned())]);
    assert_eq!(p.total(0), 10);
    // Nor do threads that are started in the meantime count as snapshots.
    let starter = target("starter", Build::C);
    let starter = Running::start(&mut Command::new(starter)).wait_for("ready").0;
    let threads = || std::fs::read_dir(format!("/proc/{}/task", starter.pid())).unwrap().count();
    let before = threads() as i64;
    Prof::new(&dir, &format!("record -T threads -d 400ms -p {}", starter.pid())).run().ok();
    let after = threads() as i64;
    let p = read(dir.path().join("profile.pb.gz"));
    // Two of them end soon.
    let range = before - 2..=after + 2;
    assert!(range.contains(&p.total(0)), "{} threads of {range:?}", p.total(0));
    let out = Prof::new(&dir, "report").run().ok();
    assert!(out.text().contains("Type: threads [count]"), "{}", out.text());
    let before = system::cpu_seconds(pid);
    // However busy the machine is, it runs for a twentieth of that.
    let args = format!("record -T threads,cpu --snapshots 3 -d 2s -p {pid}");
    Prof::new(&dir, &args).run().ok();
    let used = system::cpu_seconds(pid) - before;
    let p = read(dir.path().join("profile.pb.gz"));
    assert_eq!(p.total(p.column("threads")), 10);
    let cpu = p.total(p.column("cpu")) as f64 / 1e9;
    assert!((0.1..1.05 * used + 0.02).contains(&cpu), "one runs: {cpu} s of {used} s");
    let waiting = |s: &&common::pprof::Sample| p.frames(s).contains(&"waits_for_the_mutex");
    let waiting = p.samples.iter().filter(waiting);
    assert_eq!(waiting.map(|s| s.values[p.column("threads")]).sum::<i64>(), 5);
    let refused = |args: &str| Prof::new(&dir, args).run().refused(2, &["--snapshots"]);
    refused("record -T cpu --snapshots 3 -a");
    refused("record -T threads --snapshots 3 -- true");
}
