//! Recordings without a mounted tracefs: one line reports it, and everything that does not need it
//! is recorded.

use std::process::Command;

use crate::common::system::{has_kernel_programs, needs_root, needs_tracefs};
use crate::common::{Build, Output, Pprof, Prof, needs, read, skip, target, temp_dir};

/// Removes tracefs and debugfs, in the view of the following command alone.
const WITHOUT: &str = "for d in /sys/kernel/tracing /sys/kernel/debug; do \
                       while umount -l $d 2>/dev/null; do :; done; done; \
                       test ! -e /sys/kernel/tracing/events || exit 99; exec \"$@\"";

/// Records a program (`hardship dies`: it works, and kills itself) without tracefs; `None` if that
/// is impossible here.
fn record(args: &str) -> Option<(Output, Option<Pprof>)> {
    if !needs_tracefs() || !needs(&["unshare", "umount"]) {
        return None;
    }
    let dir = temp_dir();
    let inner = Prof::new(&dir, "record").args(args).target(target("hardship", Build::C), "dies");
    let mut command = Command::new("unshare");
    command.args(["-m", "sh", "-c", WITHOUT, "sh"]).current_dir(&dir);
    command.arg(inner.command.get_program()).args(inner.command.get_args());
    let out = Prof { command }.env("PROF_CACHE_SIZE", "0").run();
    if out.status.code().is_none_or(|code| code == 99) || out.stderr.contains("unshare: ") {
        skip(&format!("no mount namespace without tracefs: {}", out.stderr));
        return None;
    }
    let file = dir.path().join("profile.pb.gz");
    let profile = file.exists().then(|| read(file));
    Some((out, profile))
}

/// Exit code of a COMMAND that kills itself.
const KILLED: i32 = 128 + 9;

const HINT: &str = "tracefs is not mounted; try: mount -t tracefs nodev /sys/kernel/tracing";

#[test]
fn types_that_need_tracefs_are_refused_in_one_line() {
    for args in [
        "-T lock --holders",
        "-T io",
        "-T lock,io --holders",
        "-e sched:sched_switch",
        "-e probe:works_before",
        "-e probe:libc:usleep",
    ] {
        let Some((out, profile)) = record(args) else { return };
        out.refused(1, &[HINT]);
        assert_eq!(out.stderr.lines().count(), 1, "{args}: {}", out.stderr);
        assert!(profile.is_none(), "{args}: a file was written");
    }
}

#[test]
fn types_that_need_tracefs_are_left_out_and_the_others_recorded() {
    let types = "-F 499 -T cpu,lock,io,syscalls,alloc,threads --heap-interval 1K -e page-faults";
    let Some((out, profile)) = record(&format!("{types} --holders")) else { return };
    let programs = has_kernel_programs();
    let mut left_out =
        vec!["lock contention is left out", "block I/O is left out", "thread creation is left out"];
    left_out.extend((!programs).then_some("system calls are left out"));
    let out = out.says(&left_out);
    assert_eq!(out.stderr.matches("left out").count(), left_out.len(), "{}", out.stderr);
    let p = profile.expect("a profile");
    for kind in ["cpu", "page-faults", "alloc_space"] {
        assert!(p.total(p.column(kind)) > 0, "{kind}: {:?}", p.comments);
    }
    let known = p.sample_types.iter().any(|(known, _)| known == "syscall_time");
    assert_eq!(known, programs, "{:?}", p.sample_types);
    for kind in ["delay", "io_delay", "threads_created"] {
        assert!(p.sample_types.iter().all(|(known, _)| known != kind), "{:?}", p.sample_types);
    }
    assert_eq!(p.comments.iter().filter(|c| c.contains(HINT)).count(), left_out.len());
}

/// Events that were named are left out like types.
#[test]
fn events_that_need_tracefs_are_left_out_and_the_others_recorded() {
    let events = "-F 499 -e sched:sched_switch,cpu-clock,probe:works_before,page-faults";
    let Some((out, profile)) = record(events) else { return };
    let left_out = ["'sched:sched_switch' is left out", "'probe:works_before' is left out"];
    let out = out.says(&left_out);
    assert_eq!(out.stderr.matches(HINT).count(), left_out.len(), "{}", out.stderr);
    let p = profile.expect("a profile");
    let kinds: Vec<&str> = p.sample_types.iter().map(|(kind, _)| kind.as_str()).collect();
    assert_eq!(kinds, ["samples", "cpu", "page-faults"]);
    assert!(kinds.iter().all(|kind| p.total(p.column(kind)) > 0), "{:?}", p.comments);
}

/// Programs in the kernel find tracepoints without tracefs.
#[test]
fn kernel_programs_record_waits_and_calls_without_tracefs() {
    if !needs_root() || !has_kernel_programs() {
        return skip("programs in the kernel are not available");
    }
    for (args, kind) in [("-T wall", "wall"), ("-T lock", "delay"), ("-T syscalls", "syscalls")] {
        let Some((out, profile)) = record(args) else { return };
        let out = out.exits(KILLED);
        let p = profile.expect("a profile");
        assert!(kind == "delay" || p.total(p.column(kind)) > 0, "{args}: {}", out.stderr);
        assert!(!out.stderr.contains("left out"), "{args}: {}", out.stderr);
    }
}

/// The event for switches has a substitute, and single threads can be probed without tracefs.
#[test]
fn types_that_do_not_need_tracefs_are_recorded() {
    for (args, kind) in [
        ("-T wall", "wall"),
        ("-T cpu,wall -F 499", "cpu"),
        ("-T heap --heap-interval 1K", "alloc_space"),
        ("-e context-switches -c 1", "context-switches"),
        ("-e probe:works_before --no-inherit", "probe:works_before"),
    ] {
        let Some((out, profile)) = record(args) else { return };
        let out = out.exits(KILLED);
        let p = profile.expect("a profile");
        assert!(p.total(p.column(kind)) > 0, "{args}: {}", out.stderr);
        assert!(!out.stderr.contains("left out"), "{args}: {}", out.stderr);
    }
}
