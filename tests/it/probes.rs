//! Probes by name: functions, their returns, offsets, markers, and impossible probes.

use std::process::Command;

use crate::common::recorders::ProfRecording;
use crate::common::run::tool;
use crate::common::system::{self, needs_root, needs_tracefs};
use crate::common::unprivileged::{can_drop_rights, open_dir, unprivileged};
use crate::common::{Build, Pprof, Prof, Waiting, go, needs, read, skip, target, temp_dir};

/// Support for probes in programs on this machine; without it, the test is skipped.
fn can_probe() -> bool {
    let there = std::path::Path::new("/sys/bus/event_source/devices/uprobe/type").exists();
    if !there {
        skip("this kernel has no uprobes");
    }
    needs_root() && there
}

/// Records events of the program with these arguments.
fn record(events: &[&str], args: &str) -> Pprof {
    let dir = temp_dir();
    let mut prof = Prof::new(&dir, "record");
    for event in events {
        prof = prof.arg("-e").arg(event);
    }
    prof.target(target("probes", Build::C), args).run().ok();
    read(dir.path().join("profile.pb.gz"))
}

/// Count of an event in stacks that contain a function.
fn through(p: &Pprof, event: &str, function: &str) -> i64 {
    let column = p.column(event);
    let in_it = p.samples.iter().filter(|s| p.frames(s).contains(&function));
    in_it.map(|s| s.values[column]).sum()
}

#[test]
fn each_call_is_counted_by_its_stack() {
    if !can_probe() {
        return;
    }
    let p = record(&["probe:leaf"], "600");
    assert_eq!(p.sample_types[1], ("probe:leaf".into(), "count".into()));
    assert_eq!(p.total(p.column("probe:leaf")), 1800);
    for caller in ["first", "second", "child"] {
        assert_eq!(through(&p, "probe:leaf", caller), 600, "{caller}");
    }
    // At the first instruction, the stack is still the caller's.
    assert!(p.samples.iter().all(|s| p.frames(s)[0] == "leaf"));
    assert_eq!(p.figure("truncated"), 0, "{:?}", p.comments);
    assert_eq!((p.figure("samples"), p.figure("lost")), (1800, 0));
}

#[test]
fn returns_and_offsets_are_counted() {
    if !can_probe() {
        return;
    }
    let program = target("probes", Build::C);
    let by_path = format!("probe:{}:leaf%return", program.display());
    let p = record(&[&by_path], "600");
    assert_eq!(p.total(p.column(&by_path)), 1800);
    assert_eq!(p.figure("truncated"), 0, "{:?}", p.comments);
    let leaves: std::collections::BTreeSet<_> = p.samples.iter().map(|s| p.frames(s)[0]).collect();
    // The leaf is the function that the call returns to.
    assert!(leaves.iter().all(|f| ["first", "second", "child"].contains(f)), "{leaves:?}");
    let p = record(&["probe:leaf+1,probe:probes:leaf+0x4", "uretprobe:second"], "150");
    assert_eq!(p.total(p.column("probe:leaf+1")), 450);
    assert_eq!(p.total(p.column("probe:probes:leaf+0x4")), 450);
    assert_eq!(p.total(p.column("uretprobe:second")), 150);
}

/// One of the markers is executed only while its counter is not 0.
#[test]
fn markers_are_counted() {
    if !can_probe() {
        return;
    }
    let p = record(&["sdt:app:step,usdt:probes:app:heard"], "600");
    assert_eq!(through(&p, "sdt:app:step", "first"), 600);
    assert_eq!(through(&p, "usdt:probes:app:heard", "first"), 600);
    assert_eq!(p.total(p.column("sdt:app:step")), 600);
    if !needs(&["/usr/bin/python3"]) {
        return;
    }
    let dir = temp_dir();
    let collections = |n: u32| {
        let script = format!("import gc\ngc.disable()\nfor i in range({n}): gc.collect()");
        let prof = Prof::new(&dir, "record -e sdt:python:gc__start");
        let out = prof.target("/usr/bin/python3", "-c").arg(script).run();
        if out.stderr.contains("no markers at all") {
            return None;
        }
        out.ok();
        let p = read(dir.path().join("profile.pb.gz"));
        Some(p.total(p.column("sdt:python:gc__start")))
    };
    // Python also collects by itself when it starts and ends.
    match (collections(0), collections(50)) {
        (Some(none), Some(fifty)) => assert_eq!(fifty - none, 50),
        _ => skip("this python3 has no markers"),
    }
}

/// Far more events than a ring buffer holds: the loss is reported, and the values are still right.
#[test]
fn lost_probe_events_are_extrapolated() {
    if !can_probe() {
        return;
    }
    let dir = temp_dir();
    let prof = Prof::new(&dir, "record -g dwarf,65528 -e probe:leaf");
    let out = prof.target(target("probes", Build::C), "20000").run().ok();
    let p = read(dir.path().join("profile.pb.gz"));
    assert_eq!(p.total(p.column("probe:leaf")), 60_000);
    if p.figure("lost") > 0 {
        out.says(&["probe:leaf are scaled to what the kernel counted"]);
    } else {
        assert_eq!(p.figure("samples"), 60_000);
    }
}

#[test]
fn probes_count_in_a_running_process() {
    if !can_probe() {
        return;
    }
    let dir = temp_dir();
    let program = target("probes", Build::C);
    let waiting = Waiting::start(Command::new(program).args(["600", "wait"]));
    let args = format!("-e probe:leaf,sdt:app:heard -e probe:libc:_exit -p {}", waiting.pid());
    let recording = ProfRecording::start(dir.path(), "p.pb.gz", &args);
    waiting.work();
    let p = recording.finish();
    assert_eq!(p.total(p.column("probe:leaf")), 1800);
    assert_eq!(p.total(p.column("sdt:app:heard")), 600);
    assert!(p.total(p.column("probe:libc:_exit")) >= 1);
}

#[test]
fn probes_count_after_exec() {
    if !can_probe() {
        return;
    }
    let p = record(&["probe:leaf"], "500 exec");
    assert_eq!(p.total(p.column("probe:leaf")), 1500);
}

/// Nothing is left behind in the target.
#[test]
fn stopped_and_killed_targets_are_left_unharmed() {
    if !can_probe() {
        return;
    }
    let dir = temp_dir();
    let program = target("probes", Build::C);
    let waiting = Waiting::start(Command::new(&program).args(["600", "wait"]));
    // SAFETY: kill takes two numbers.
    let signal = |number| assert_eq!(unsafe { libc::kill(waiting.pid(), number) }, 0);
    signal(libc::SIGSTOP);
    let args = format!("-e probe:leaf -d 300ms -p {}", waiting.pid());
    let p = ProfRecording::start(dir.path(), "p.pb.gz", &args).finish();
    assert_eq!(p.figure("samples"), 0);
    signal(libc::SIGCONT);
    let args = format!("-e probe:leaf -d 30s -p {}", waiting.pid());
    let recording = ProfRecording::start(dir.path(), "p.pb.gz", &args);
    signal(libc::SIGKILL);
    recording.finish();
    // If prof itself is killed, the program is left unchanged, too.
    let waiting = Waiting::start(Command::new(program).args(["600", "wait"]));
    let running =
        Prof::new(&dir, "record -e probe:leaf -d 60s").args(&format!("-p {}", waiting.pid()));
    let running = running.start().sampling();
    running.signal(libc::SIGKILL);
    drop(running);
    waiting.work();
}

#[test]
fn cpp_functions_are_probed_by_their_readable_names() {
    if !can_probe() {
        return;
    }
    let dir = temp_dir();
    let program = target("overloads", Build::Cpp);
    let events = "probe:shop::Cart::total,probe:shop::Cart::add(double)";
    let prof = Prof::new(&dir, "record -e").arg(events).target(&program, "100");
    prof.run().ok();
    let p = read(dir.path().join("profile.pb.gz"));
    assert_eq!(p.total(p.column("probe:shop::Cart::total")), 100);
    assert_eq!(p.total(p.column("probe:shop::Cart::add(double)")), 200);
    let prof = Prof::new(&dir, "record -e probe:shop::Cart::add").target(&program, "1");
    prof.run()
        .refused(2, &["several functions", "shop::Cart::add(int)", "shop::Cart::add(double)"]);
}

#[test]
fn go_tool_pprof_shows_the_same_counts() {
    if !can_probe() || !needs(&["go"]) {
        return;
    }
    let dir = temp_dir();
    let prof = Prof::new(&dir, "record -e probe:leaf -e sdt:app:step");
    prof.target(target("probes", Build::C), "400").run().ok();
    let file = dir.path().join("profile.pb.gz");
    let top = go::top(&file, "probe:leaf", "count");
    assert_eq!((top["leaf"], top["second"]), ((1200, 1200), (0, 400)));
    assert_eq!(go::top(&file, "sdt:app:step", "count")["first"], (400, 400));
}

#[test]
fn impossible_probes_are_refused_in_one_line() {
    if !can_probe() || !needs(&["strip"]) {
        return;
    }
    let dir = temp_dir();
    let program = target("probes", Build::C);
    let refused = |event: &str, code: i32, words: &[&str]| {
        let out = Prof::new(&dir, "record -e").arg(event).target(&program, "1").run();
        out.refused(code, words);
        assert_eq!(out.stderr.lines().count(), 1, "{}", out.stderr);
        assert!(!dir.path().join("profile.pb.gz").exists(), "a file was written");
    };
    refused("probe:leafs", 2, &["'leafs'", "'leaf'"]);
    refused("probe:nosuchfunction", 2, &["no function 'nosuchfunction'"]);
    refused("probe:/no/such/file:f", 2, &["/no/such/file", "No such file"]);
    refused("probe:libnosuch:f", 2, &["libnosuch"]);
    refused("probe:leaf+2", 2, &["leaf+0x2", "middle of an instruction"]);
    refused("probe:leaf+100", 2, &["there is no +0x64"]);
    refused("probe:leaf+1%return", 2, &["leave out the offset"]);
    refused("probe:libc:memcpy", 2, &["memcpy", "indirect"]);
    refused("sdt:app:stop", 2, &["'app:stop'", "'app:step'"]);
    refused("sdt:nobody:x", 2, &["'nobody:x'", "app:step"]);
    refused("sdt:app", 2, &["sdt:PROVIDER:NAME"]);
    refused("probe:", 2, &["no function is named"]);
    let stripped = dir.path().join("stripped");
    tool("strip", &["-o".as_ref(), stripped.as_ref(), "/bin/true".as_ref()]);
    refused(&format!("probe:{}:main", stripped.display()), 2, &["stripped", "main"]);
    let text = dir.path().join("text");
    std::fs::write(&text, "no program\n").unwrap();
    refused(&format!("probe:{}:main", text.display()), 2, &["ELF"]);
    let out = Prof::new(&dir, "record -a -d 10ms -e probe:leaf").run();
    out.refused(2, &["no file is named", "probe:FILE:FUNCTION"]);
}

/// Either the kernel has kprobes, or prof names the missing option.
#[test]
fn kernel_functions_are_counted_or_the_missing_option_is_named() {
    if !needs_root() {
        return;
    }
    let dir = temp_dir();
    let run = |event: &str| Prof::new(&dir, "record -e").arg(event).target("true", "").run();
    if !std::path::Path::new("/sys/bus/event_source/devices/kprobe/type").exists() {
        run("kprobe:do_exit").refused(1, &["kprobe:do_exit", "CONFIG_KPROBE_EVENTS"]);
        return;
    }
    run("kprobe:do_exit").ok();
    let p = read(dir.path().join("profile.pb.gz"));
    assert_eq!(p.total(p.column("kprobe:do_exit")), 1);
    run("kprobe:do_exiit").refused(2, &["do_exiit", "do_exit"]);
}

#[test]
fn without_rights_the_missing_one_is_named() {
    if !can_probe() || !can_drop_rights() {
        return;
    }
    let dir = open_dir();
    let out = unprivileged(dir.path(), "record -e probe:main").target("./known", "0.1").run();
    out.refused(1, &["probe:main", "only root", "setcap cap_perfmon"]);
}

#[test]
fn filters_select_tracepoint_events() {
    if !needs_tracefs() {
        return;
    }
    let dir = temp_dir();
    let script = "for i in 1 2 3 4 5 6 7 8 9 10; do /bin/true; done";
    let count = |args: &[&str]| {
        let mut prof = Prof::new(&dir, "record");
        prof.command.args(args);
        prof.target("sh", "-c").arg(script).run().ok();
        let p = read(dir.path().join("profile.pb.gz"));
        p.sample_types.iter().map(|(kind, _)| p.total(p.column(kind))).collect::<Vec<_>>()
    };
    let exec = "sched:sched_process_exec";
    let all = count(&["-e", exec])[1];
    let some = count(&["-e", exec, "--filter", "filename ~ \"*/true\""])[1];
    assert_eq!((all, some), (11, 10));
    // A filter applies only to the event before it, and all of several filters have to match.
    let exit = "sched:sched_process_exit";
    let both = count(&["-e", exec, "--filter", "filename ~ \"*/true\"", "-e", exit]);
    assert_eq!(both[1..], [10, 11]);
    let filters = ["--filter", "filename ~ \"*/true\"", "--filter", "pid == 1"];
    assert_eq!(count(&[&["-e", exec], &filters[..]].concat())[1], 0);
    let refused = |args: &[&str], code: i32, words: &[&str]| {
        let mut prof = Prof::new(&dir, "record");
        prof.command.args(args);
        prof.target("true", "").run().refused(code, words);
    };
    refused(
        &["-e", exec, "--filter", "nosuch == 1"],
        2,
        &["'nosuch == 1'", "filename, pid, old_pid"],
    );
    refused(&["-e", exec, "--filter", "pid =="], 2, &["'pid =='", "filename"]);
    refused(&["--filter", "pid == 1", "-e", exec], 2, &["-e SYSTEM:EVENT first"]);
    refused(&["-e", "page-faults", "--filter", "pid == 1"], 2, &["'page-faults'", "tracepoints"]);
}

/// The kernel has replaced the return addresses of two functions on the stacks of the waits.
#[test]
fn locks_and_system_calls_below_return_probes_have_whole_stacks() {
    if !can_probe() || !needs_tracefs() {
        return;
    }
    if !system::has_kernel_programs() {
        return skip("waits are not measured by programs in the kernel");
    }
    let program = target("probed_locks", Build::C);
    let probe = |function| format!("-e probe:{}:{function}%return", program.display());
    for kind in ["lock", "syscalls"] {
        let dir = temp_dir();
        let args = format!("record -T {kind} {} {}", probe("lower"), probe("wait_here"));
        Prof::new(&dir, &args).target(&program, "100").run().ok();
        let p = read(dir.path().join("profile.pb.gz"));
        let column = p.column(if kind == "lock" { "delay" } else { "syscall_time" });
        let (mut waits, mut whole) = (0, 0);
        for sample in p.samples.iter().filter(|s| s.values[column] > 0) {
            let frames = p.user_frames(sample);
            let Some(at) = frames.iter().position(|&f| f == "wait_here") else { continue };
            waits += 1;
            whole += u32::from(frames[at..].starts_with(&["wait_here", "lower", "upper", "run"]));
            assert!(!frames.last().is_some_and(|f| f.starts_with("[truncated")), "{frames:?}");
        }
        assert!(waits > 0 && whole == waits, "{kind}: {whole} of {waits}: {:?}", p.comments);
    }
}
