//! Processes and threads that end before the recorder looks at them.

use std::process::Command;

use crate::common::pprof::Sample;
use crate::common::recorders::{ProfRecording, Waiting};
use crate::common::system::{needs_tracefs, until_has_run};
use crate::common::waits::label;
use crate::common::{Build, Pprof, Prof, Running, read, target, temp_dir};

/// System calls of `calls` that were recorded with its functions, of 10 from `ask`.
fn calls_from_ask(p: &Pprof) -> i64 {
    let column = p.column("syscalls");
    let ours = |s: &&Sample| {
        let frames = p.frames(s);
        label(s, "process") == "calls" && frames.contains(&"ask") && frames.contains(&"main")
    };
    p.samples.iter().filter(ours).map(|s| s.values[column]).sum()
}

/// It does little, so that the rings are not read before it has ended.
#[track_caller]
fn starts_before_and_ends_at_once(target_of: impl Fn(i32) -> String) {
    if !needs_tracefs() {
        return;
    }
    let dir = temp_dir();
    let file = dir.path().join("file");
    std::fs::write(&file, vec![7; 1 << 20]).unwrap();
    let args = [file.to_str().unwrap(), "4096", "10", "wait"];
    let waiting = Waiting::start(Command::new(target("calls", Build::C)).args(args));
    let args = format!("-T syscalls {}", target_of(waiting.pid()));
    let recording = ProfRecording::start(dir.path(), "p.pb.gz", &args);
    waiting.work();
    let p = recording.finish();
    assert_eq!(calls_from_ask(&p), 10);
}

#[test]
fn a_process_that_ends_just_after_the_attach_has_whole_stacks() {
    starts_before_and_ends_at_once(|pid| format!("-p {pid}"));
}

#[test]
fn a_thread_that_ends_just_after_the_attach_has_whole_stacks() {
    starts_before_and_ends_at_once(|pid| format!("-t {pid}"));
}

#[test]
fn a_process_of_the_machine_that_ends_just_after_the_start_has_whole_stacks() {
    starts_before_and_ends_at_once(|_| "-a -d 1s".into());
}

/// `/proc/PID` has no mappings when the first thread has ended, as that of an ended process.
#[test]
fn a_process_lives_when_its_first_thread_has_ended() {
    let dir = temp_dir();
    let mut command = Command::new(target("leader_ends", Build::C));
    let (busy, _) = Running::start(&mut command).wait_for("ready");
    for whom in [format!("-p {}", busy.pid()), "-a".into()] {
        let recording = Prof::new(&dir, &format!("record {whom} -d 1h")).start().sampling();
        until_has_run(busy.pid(), 0.5);
        recording.signal(libc::SIGINT);
        recording.finish().ok();
        let p = read(dir.path().join("profile.pb.gz"));
        let cpu = p.column("cpu");
        let pid = busy.pid().to_string();
        let ours = || p.samples.iter().filter(|s| label(s, "pid") == pid);
        let all: i64 = ours().map(|s| s.values[cpu]).sum();
        let whole = ours().filter(|s| p.frames(s).starts_with(&["burn", "run"]));
        let whole: i64 = whole.map(|s| s.values[cpu]).sum();
        assert!(all > 0 && whole * 10 > all * 9, "{whom}: {whole} ns of {all} ns");
    }
    let text = Prof::new(&dir, "record -d 200ms -p").arg(busy.pid().to_string()).run().ok();
    assert!(!text.stderr.contains("truncated"), "{}", text.stderr);
    let text = Prof::new(&dir, "report --stdio").run().ok().text();
    assert!(text.starts_with("File: leader_ends\n"), "{text}");
}
