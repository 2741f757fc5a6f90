//! Wall time: the time of each thread, on a CPU and off it.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use crate::common;
use crate::common::machine::Sysctl;
use crate::common::pprof::Sample;
use crate::common::system::{self, has_kernel_programs, needs_root, needs_tracefs};
use crate::common::targets::built;
use crate::common::unprivileged::{can_drop_rights, open_dir, unprivileged};
use crate::common::waits::label;
use crate::common::{Build, Pprof, Prof, Running, needs, read, target, temp_dir, until};

/// Seconds that the program measured, by thread and function.
type Measured = BTreeMap<(String, String), f64>;

fn measured(text: &str) -> Measured {
    let line = |line: &str| {
        let mut words = line.split(' ').map(str::to_owned);
        Some(((words.next()?, words.next()?), words.next()?.parse().ok()?))
    };
    text.lines().filter_map(line).collect()
}

/// Seconds of wall time of the samples that `keep` selects.
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

/// Checks that each function has the time that the program measured, and that each thread's states
/// add up.
fn assert_as_measured(p: &Pprof, measured: &Measured, names: &str) {
    for ((thread, function), want) in measured {
        let got = of_thread(p, thread, function, "");
        // Not measured are the reading of the clocks, the naming of the thread, and a tick of the
        // machine; and a thread may have to wait for a CPU at that moment.
        let (off, queued) = ((got - want).abs(), of_thread(p, thread, "all", "runnable"));
        let most = 0.01 * want + 0.005 + queued;
        assert!(off < most, "{names}: {thread} {function}: {got} s of {want} s ({queued} queued)");
    }
    let slept = of_thread(p, "napper", "nap", "sleeping");
    let queued = of_thread(p, "napper", "nap", "runnable");
    let napped = measured[&("napper".into(), "nap".into())];
    assert!(slept > 0.9 * napped - queued, "{slept} s asleep, {queued} s queued of {napped} s");
    let ran = of_thread(p, "napper", "work", "running");
    assert!(ran > 0.3, "{ran} s of work");
    let on_cpu = of_thread(p, "reader", "all", "running");
    assert!(on_cpu < 0.05, "the reader waits: {on_cpu}");
}

/// Records the program `waits`, with the machine to itself: its times are compared to a few
/// milliseconds.
fn record(dir: &Path, args: &str) -> (Pprof, Measured) {
    let program = target("waits", Build::C);
    let prof = Prof::new(dir, args).target(program, "50");
    let out = prof.run().ok();
    (read(dir.join("profile.pb.gz")), measured(&out.text()))
}

#[test]
fn wall_time_is_attributed_by_thread_function_and_state() {
    let dir = temp_dir();
    let (p, measured) = record(dir.path(), "record -T cpu,wall -F 499");
    assert_eq!(measured.len(), 6, "{measured:?}");
    assert_as_measured(&p, &measured, "sched_switch");
    // CPU time is the same as without wall time.
    let cpu = p.total(p.column("cpu")) as f64 / 1e9;
    let ran = seconds(&p, |s| label(s, "state") == "running");
    assert!((cpu - ran).abs() < 0.1 * ran, "cpu {cpu} s, running {ran} s");
    let out = Prof::new(&dir, "report --type wall --sort thread,state").run().ok();
    assert!(out.text().contains("sleeping"), "{}", out.text());
    // The states in total: in words above the table, in colours in the flame graph.
    let states = |out: &str| out.lines().any(|l| l.starts_with("States: "));
    assert!(states(&out.text()), "{}", out.text());
    let out = Prof::new(&dir, "report --type cpu").run().ok();
    assert!(!states(&out.text()), "{}", out.text());
    let legend = |out: &str| out.contains("</tspan> running") && out.contains("</tspan> sleeping");
    let out = Prof::new(&dir, "flame --type wall").run().ok();
    assert!(legend(&out.text()));
    let out = Prof::new(&dir, "flame --type cpu").run().ok();
    assert!(!legend(&out.text()));
    Prof::new(&dir, "flame --type cpu --colors state").run().ok();
    if needs(&["go"]) {
        let theirs = common::go::top(&dir.path().join("profile.pb.gz"), "wall", "nanoseconds");
        let naps = p.samples.iter().filter(|s| p.frames(s).contains(&"nap"));
        let naps = naps.map(|s| s.values[p.column("wall")]).sum::<i64>();
        assert_eq!(theirs["nap"].1, naps);
    }
}

/// If CPUs are listed, wall time comes from the kernel's records of switches, not from programs in
/// the kernel.
#[test]
fn switch_records_give_the_same_wall_time() {
    let cpus = std::thread::available_parallelism().unwrap().get() - 1;
    let dir = temp_dir();
    let (p, measured) = record(dir.path(), &format!("record -T wall -F 499 -C 0-{cpus}"));
    assert_as_measured(&p, &measured, "-C");
}

/// Of waits that are too frequent, some are sampled and represent all: all those of each function;
/// and each thread's states still add up.
#[test]
fn frequent_waits_are_sampled_and_extrapolated() {
    if !needs_root() {
        return;
    }
    let dir = temp_dir();
    let program = target("turns", Build::C);
    // About 700 of the short waits are sampled in this time, so that their sum has a standard error
    // of 4 %, and the clock's samples show precisely enough where the threads ran.
    let out = Prof::new(&dir, "record -T wall -F 997").target(program, "12").run();
    let out = out.ok().says(&["only some of the", "were sampled", "to the time of each thread"]);
    let (p, measured) = (read(dir.path().join("profile.pb.gz")), measured(&out.text()));
    assert_eq!(p.figure("lost"), 0, "{}", out.text());
    for ((thread, function), want) in &measured {
        let got = of_thread(&p, thread, function, "");
        assert!((got - want).abs() < 0.1 * want, "{function}: {got} s of {want} s");
    }
    // Both live a little longer than that, and the recording continues until it detects their end.
    let (lasted, duration) = (measured.values().sum::<f64>(), p.duration_nanos as f64 / 1e9);
    for thread in ["asks", "answers"] {
        let all = of_thread(&p, thread, "all", "");
        let all_of_it = 0.99 * lasted..1.01 * duration;
        assert!(all_of_it.contains(&all), "{thread}: {all} s of {lasted} s, {duration} s in all");
    }
}

/// The kernel has replaced the return addresses of two functions on the stacks of the waits.
#[test]
fn waits_below_return_probes_have_whole_stacks() {
    if !needs_tracefs() {
        return;
    }
    if !has_kernel_programs() {
        return common::skip("waits are not measured by programs in the kernel");
    }
    let dir = temp_dir();
    let program = target("probed_waits", Build::C);
    let probe = |function| format!("-e probe:{}:{function}%return", program.display());
    let args = format!("record -T wall {} {}", probe("lower"), probe("wait_here"));
    Prof::new(&dir, &args).target(&program, "300").run().ok();
    let p = read(dir.path().join("profile.pb.gz"));
    let (mut waits, mut whole) = (0, 0);
    for sample in p.samples.iter().filter(|s| label(s, "state") == "sleeping") {
        let frames = p.user_frames(sample);
        let Some(at) = frames.iter().position(|&f| f == "wait_here") else { continue };
        waits += 1;
        whole += u32::from(frames[at..].starts_with(&["wait_here", "lower", "upper", "main"]));
        assert!(!frames.last().is_some_and(|f| f.starts_with("[truncated")), "{frames:?}");
    }
    assert!(waits > 0 && whole == waits, "{whole} of {waits}: {:?}", p.comments);
}

/// The thread has the ID of its process from then on, and its former ID no longer exists.
#[test]
fn a_thread_that_execs_keeps_its_time() {
    let dir = temp_dir();
    let program = target("replaces", Build::C);
    Prof::new(&dir, "record -T wall").target(program, "").run().ok();
    let p = read(dir.path().join("profile.pb.gz"));
    let (mut by_thread, wall) = (BTreeMap::<_, f64>::new(), p.column("wall"));
    for sample in &p.samples {
        *by_thread.entry(label(sample, "tid")).or_default() += sample.values[wall] as f64 / 1e9;
    }
    let (main, other) = by_thread.iter().partition::<Vec<_>, _>(|(tid, _)| {
        p.samples.iter().any(|s| label(s, "tid") == **tid && label(s, "pid") == **tid)
    });
    let (main, other) = (main.iter().map(|t| t.1).sum::<f64>(), other.iter().map(|t| t.1).sum());
    let duration = p.duration_nanos as f64 / 1e9;
    assert!((0.68..duration + 0.02).contains(&main), "{main} of {duration}: {by_thread:?}");
    assert!((0.25f64..duration - 0.35).contains(&other), "{other} of {duration}: {by_thread:?}");
}

/// The kernel's threads without work wait uninterruptibly, but for no disk: `I` in
/// `/proc/PID/stat`.
#[test]
fn idle_kernel_threads_sleep() {
    if !needs_root() {
        return;
    }
    let dir = temp_dir();
    Prof::new(&dir, "record -a -T wall -d 1s").run().ok();
    let p = read(dir.path().join("profile.pb.gz"));
    // It waits for other threads only.
    let of_rcu = |state: &str| {
        seconds(&p, |s| {
            ["rcu_preempt", "rcu_sched"].contains(&label(s, "thread")) && label(s, "state") == state
        })
    };
    assert!(of_rcu("sleeping") > 0.5, "{:?}", p.label_values("thread"));
    assert_eq!(of_rcu("disk"), 0.0);
    // They are no rows of a report, which has their time in its total.
    let report = |args: &str| Prof::new(&dir, "report").args(args).run().ok().text();
    let line = "of kernel threads that wait for work (--all-frames)";
    let text = report("");
    // The time in which it waits for a CPU or runs stays.
    let is_idle = |row: &str| row.contains("sleeping") && row.contains("rcu_gp_kthread");
    assert!(text.contains(line) && !text.lines().any(is_idle), "{text}");
    // Rows of processes lack them, too, and the shares in the head of both are the same.
    let by_process = report("--sort process -n 0");
    let is_long = |row: &str| row.contains("rcu_preempt") && row.contains(" s ");
    assert!(by_process.contains(line) && !by_process.lines().any(is_long), "{by_process}");
    let head = |text: &str| {
        let is_share =
            |l: &&str| ["Warning:", "States:", "Processes:"].iter().any(|w| l.starts_with(w));
        text.lines().filter(is_share).map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(head(&text), head(&by_process));
    let json = |args: &str| serde_json::from_str::<serde_json::Value>(&report(args)).unwrap();
    let (table, whole) = (json("--json"), json("--json --all-frames"));
    let number = |answer: &serde_json::Value, key: &str| answer[key].as_i64().unwrap();
    let left_out = number(&table, "idle_left_out");
    assert!(left_out > 500_000_000, "{left_out}");
    assert_eq!(number(&table, "kept") + left_out, number(&table, "total"));
    assert_eq!(number(&table, "total"), number(&whole, "total"));
    assert!(whole["idle_left_out"].is_null() && !report("--all-frames").contains(line));
}

#[test]
fn off_cpu_alone_sums_up_short_waits() {
    let dir = temp_dir();
    let (p, _) = record(dir.path(), "record --off-cpu --min-block 10ms");
    assert_eq!(seconds(&p, |s| label(s, "state") == "running"), 0.0);
    assert!(of_thread(&p, "napper", "nap", "sleeping") > 0.9);
    // On a busy machine, many short waits for a CPU add up to long ones.
    let short = seconds(&p, |s| {
        p.frames(s) == ["[waits shorter than --min-block]"] && label(s, "state") != "runnable"
    });
    assert!(short < 1.0, "{short}");
}

/// Two threads that share one CPU and wake each other: the woken one waits for the other to sleep.
#[test]
fn a_woken_thread_is_runnable_until_it_gets_a_cpu() {
    if !needs_root() {
        return;
    }
    let dir = temp_dir();
    // Enough work for each turn that there are few turns, and none is left out by sampling.
    let program = target("pingpong", Build::C);
    Prof::new(&dir, "record -T wall").target(program, "1 1000000").run().ok();
    let p = read(dir.path().join("profile.pb.gz"));
    let waits = |state: &str| {
        seconds(&p, |s| p.frames(s).contains(&"waits_for") && label(s, "state") == state)
    };
    // Each thread sleeps while the other works, which wakes it just before it sleeps itself.
    let (slept, queued) = (waits("sleeping"), waits("runnable"));
    assert!(slept > 0.2 && queued > 0.0, "{slept} s asleep, {queued} s queued");
    assert!(queued < slept, "{slept} s asleep, {queued} s queued");
}

/// A user who may sample the kernel, but not use tracepoints.
#[test]
fn without_root_context_switch_events_give_wall_time() {
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
        common::copy_program(path, &to);
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
    assert_as_measured(&p, &measured(&out.text()), "context-switches");
}

/// A thread that sleeps from before the beginning to the end of the recording has its stack.
#[test]
fn a_thread_that_sleeps_throughout_is_recorded_with_its_stack() {
    let dir = temp_dir();
    let mut command = Command::new(target("waits", Build::C));
    let (running, _) = Running::start(command.arg("200")).wait_for("ready");
    let pid = running.pid();
    until(|| system::is_in_call(pid, "idler", libc::SYS_read));
    Prof::new(&dir, &format!("record -T wall -d 1s -p {pid}")).run().ok();
    let p = read(dir.path().join("profile.pb.gz"));
    let dozed = of_thread(&p, "idler", "doze", "sleeping");
    let duration = p.duration_nanos as f64 / 1e9;
    assert!((dozed - duration).abs() < 0.02 * duration, "{dozed} s of {duration} s");
    if needs_root() {
        let slept = of_thread(&p, "idler", "vfs_read", "sleeping");
        assert_eq!(slept, dozed, "the kernel function in which it waits is missing");
    }
    for thread in ["napper", "reader", "idler"] {
        let all = of_thread(&p, thread, "all", "");
        assert!((all - duration).abs() < 0.02 * duration, "{thread}: {all} s of {duration} s");
    }
}

/// The scheduler's programs are called for the idle thread, too.
#[test]
fn a_process_has_no_time_of_an_idle_cpu() {
    if !needs_tracefs() {
        return;
    }
    let dir = temp_dir();
    let mut command = Command::new(target("waits", Build::C));
    let (running, _) = Running::start(command.arg("200")).wait_for("ready");
    let pid = running.pid().to_string();
    for args in ["-T wall", "-T wall,lock,syscalls,io --tree"] {
        Prof::new(&dir, &format!("record {args} -d 1s -p {pid}")).run().ok();
        let p = read(dir.path().join("profile.pb.gz"));
        assert!(seconds(&p, |s| label(s, "pid") == pid) > 1.0, "{args}");
        assert_eq!(seconds(&p, |s| label(s, "pid") != pid), 0.0, "{args}");
    }
}

/// Waits of 20 ms: the copies of short ones are smaller than this stack. The first and the last wait
/// are short ones if less than 10 ms of them are in the recording.
#[test]
fn long_waits_in_deep_stacks_have_whole_stacks() {
    if !has_kernel_programs() {
        return common::skip("waits are not measured by programs in the kernel");
    }
    let dir = temp_dir();
    let program = built("sleeps_sp", "sleeps.c", "gcc", &["-O2", "-fomit-frame-pointer"]);
    let mut command = Command::new(program);
    let (running, _) = Running::start(command.arg("20")).wait_for("ready");
    Prof::new(&dir, &format!("record -T wall -d 1s -p {}", running.pid())).run().ok();
    let p = read(dir.path().join("profile.pb.gz"));
    let slept = of_thread(&p, "sleeps_sp", "poll", "sleeping");
    let below = of_thread(&p, "sleeps_sp", "outer", "sleeping");
    assert!(slept > 0.5 && slept - below < 0.02, "{below} s of {slept} s have a whole stack");
}

/// Processes start and end: none has more time than there was, nor do the CPUs.
#[test]
fn no_thread_has_more_time_than_the_recording() {
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

/// Recorded together, all values are the same as alone: a nap is no CPU time, a page fault no nap.
#[test]
fn wall_time_cpu_time_and_events_are_recorded_together() {
    let dir = temp_dir();
    let program = target("faults", Build::C);
    let args = "record -T cpu,wall -F 999 -e page-faults";
    Prof::new(&dir, args).target(program, "100000").run().ok();
    let p = read(dir.path().join("profile.pb.gz"));
    let faults = p.total(p.column("page-faults"));
    assert!((100_000..102_000).contains(&faults), "{faults}");
    let cpu = p.total(p.column("cpu")) as f64 / 1e9;
    let ran = seconds(&p, |s| label(s, "state") == "running");
    assert!((cpu - ran).abs() < 0.1 * ran + 0.01, "cpu {cpu} s, running {ran} s");
    Prof::new(&dir, "record -T wall -e page-faults -- sleep 0.2").run().ok();
    let p = read(dir.path().join("profile.pb.gz"));
    assert!(p.total(p.column("page-faults")) > 10);
    let slept = seconds(&p, |s| label(s, "state") == "sleeping");
    assert!(slept > 0.1, "{slept}");
}

/// Without the right to sample the kernel, prof records the code that threads run, but not
/// their waits.
#[test]
fn without_rights_wall_time_is_left_out_and_cpu_time_recorded() {
    if !can_drop_rights() {
        return;
    }
    let Some(_paranoid) = Sysctl::set("kernel.perf_event_paranoid", "2") else { return };
    let dir = open_dir();
    let out = unprivileged(dir.path(), "record -T cpu,wall").target("./known", "0.5").run().ok();
    assert!(out.stderr.contains("prof: wall time is left out: "), "{}", out.stderr);
    let p = read(dir.path().join("profile.pb.gz"));
    assert!(p.total_share("main") > 90.0, "{}", out.stderr);
    assert!(p.sample_types.iter().all(|(kind, _)| kind != "wall"), "{:?}", p.sample_types);
    let out = unprivileged(dir.path(), "record -T wall").target("./known", "0.5").run();
    out.refused(1, &["kernel.perf_event_paranoid"]);
}

#[test]
fn min_block_needs_wall_time() {
    let dir = temp_dir();
    let refused = |args: &str, words: &[&str]| Prof::new(&dir, args).run().refused(2, words);
    refused("record --min-block 1us -a", &["--min-block"]);
}
