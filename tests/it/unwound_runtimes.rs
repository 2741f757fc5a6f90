//! Stacks of run-time systems whose frames nothing but their own tables and code describe.

use std::path::Path;

use crate::common::targets::built;
use crate::common::{Build, Pprof, Prof, edges, needs, read, system, target, temp_dir, whole};

/// Records a program; its edges have to be right, except those that `no_call` makes.
#[track_caller]
fn recorded(name: &str, program: &Path, args: &str, no_call: NoCall) -> Pprof {
    recorded_with(name, "", program, args, no_call)
}

#[track_caller]
fn recorded_with(name: &str, options: &str, program: &Path, args: &str, no_call: NoCall) -> Pprof {
    let dir = temp_dir();
    Prof::new(&dir, &format!("record -F 999 {options}")).target(program, args).run().ok();
    let p = read(dir.path().join("profile.pb.gz"));
    let edges = edges::check(&p);
    let mut wrong = edges.wrong;
    wrong.retain(|(callee, caller), _| match no_call {
        NoCall::To(name) => !callee.contains(name),
        NoCall::From(names) => !names.iter().any(|name| caller.starts_with(name)),
    });
    assert!(wrong.is_empty(), "{name}: {wrong:#?}");
    assert!(edges.right > 100, "{name}: {} right edges", edges.right);
    p
}

/// Edges without a call.
#[derive(Clone, Copy)]
enum NoCall {
    /// To functions whose names contain this.
    To(&'static str),
    /// From functions whose names begin so.
    From(&'static [&'static str]),
}

/// Goroutines begin with a return address to `goexit`, and signal handlers with one to the other.
const GOEXIT: NoCall = NoCall::From(&["runtime.goexit", "runtime.sigreturn"]);

/// Fails unless at least that percentage of the stacks with this function is whole.
#[track_caller]
fn assert_whole(name: &str, p: &Pprof, function: &str, at_least: f64) {
    let share = whole::of_profile(p, |s| p.user_frames(s).contains(&function));
    println!("{name}: {:.2} % of {} whole", share.percent(), share.all);
    assert!(share.all >= 100, "{name}: {} stacks with {function}", share.all);
    assert!(share.percent() >= at_least, "{name}: {:#?}", share.others);
}

/// `deep.go`, stripped as programs are released, with further flags.
fn stripped(flags: &[&str]) -> std::path::PathBuf {
    built("deep", "deep.go", "go", &[&["build", "-ldflags=-s -w"], flags].concat())
}

/// The main function is called through a register, by code without call frame information.
#[test]
fn stripped_go_stacks_are_whole() {
    if !needs(&["go"]) {
        return;
    }
    for (name, program) in
        [("stripped", stripped(&[])), ("position-independent", stripped(&["-buildmode=pie"]))]
    {
        let p = recorded(name, &program, "20 1 main", GOEXIT);
        assert_whole(name, &p, "main.main", 99.0);
        let outer = ["main.descend", "main.main", "runtime.main", "runtime.goexit"];
        let frames = |s| p.user_frames(s);
        // A signal handler runs on a stack of its own.
        let is_cut = |f: &[&str]| f.last().is_some_and(|f| f.starts_with("[truncated"));
        let burning = p.samples.iter().map(frames).filter(|f| f.contains(&"main.burn"));
        for frames in burning.filter(|f| !is_cut(f)) {
            assert!(frames.ends_with(&outer), "{name}: {frames:?}");
        }
        let p = recorded(name, &program, "20 1", GOEXIT);
        assert_whole(name, &p, "main.burn", 99.0);
    }
}

/// Go's scheduler switches stacks; its callers are found through frame pointers.
#[test]
fn stripped_go_scheduler_stacks_are_whole() {
    if !needs(&["go"]) {
        return;
    }
    let flags = ["build", "-ldflags=-s -w"];
    let program = built("goroutines", "goroutines.go", "go", &flags);
    let dir = temp_dir();
    Prof::new(&dir, "record -F 999").target(&program, "2").run().ok();
    let p = read(dir.path().join("profile.pb.gz"));
    let share = whole::of_profile(&p, |_| true);
    assert!(share.all >= 200 && share.percent() >= 90.0, "{share:#?}");
}

/// Fails unless the samples with this function end with that reason, in that percentage at least.
#[track_caller]
fn assert_ends(name: &str, p: &Pprof, function: &str, reason: &str, at_least: f64) {
    let end = format!("[truncated: {reason}]");
    let column = p.column("samples");
    let (mut all, mut right) = (0, 0);
    for sample in &p.samples {
        let frames = p.user_frames(sample);
        if frames.contains(&function) {
            let samples = sample.values[column];
            all += samples;
            right += if frames.last() == Some(&end.as_str()) { samples } else { 0 };
        }
    }
    assert!(all > 0, "{name}: no stack with {function}");
    let share = 100.0 * right as f64 / all as f64;
    assert!(share >= at_least, "{name}: {share} % end with {reason}");
}

/// The address to which the first function returns was stored by code, with or without symbols.
#[test]
fn stacks_of_fibers_begin_where_they_were_made() {
    let flags = ["-O2", "-fomit-frame-pointer"];
    let program = built("fibers", "fibers.c", "gcc", &flags);
    let p = recorded("fibers", &program, "1", NoCall::From(&["enter"]));
    assert_ends("fibers", &p, "work", "no caller on this stack", 99.0);
    // A counter's interrupt may come while the kernel switches to another process, whose memory is
    // not read then.
    let unread = Some(&"[truncated: no user memory]");
    let of_work = |f: &Vec<&str>| f.contains(&"work") && f.last() != unread;
    for frames in p.samples.iter().map(|s| p.user_frames(s)).filter(of_work) {
        assert!(frames.contains(&"in_fiber") && frames[frames.len() - 2] == "enter", "{frames:?}");
    }
    let program = built("fibers", "fibers.c", "gcc", &[&flags[..], &["-s"]].concat());
    let dir = temp_dir();
    let out = Prof::new(&dir, "record -F 999").target(&program, "1").run().ok();
    assert!(!out.stderr.contains("-fasynchronous-unwind-tables"), "{}", out.stderr);
}

/// No copy has more than one segment, of any size.
#[test]
fn stacks_in_segments_have_a_reason_of_their_own() {
    let flags = ["-O2", "-fomit-frame-pointer", "-fsplit-stack"];
    let program = built("segments", "segments.c", "gcc", &flags);
    // Its caller is that of the function that has called it before its own frame.
    let no_call = NoCall::To("__morestack");
    let p = recorded("segments", &program, "100 1", no_call);
    assert_ends("segments", &p, "work", "stack in segments", 95.0);
}

/// The kernel has replaced the return addresses of each call; a program in it copies them.
#[test]
fn stacks_continue_behind_return_probes() {
    if !system::has_deep_stacks() {
        return;
    }
    let program = target("return_probes", Build::C);
    for (name, probed) in [("leaf", "work"), ("function", "inner"), ("recursion", "outer")] {
        let probe = format!("-e cpu-clock -e probe:{}:{probed}%return", program.display());
        let p = recorded_with(name, &probe, &program, "1", NoCall::To("[uprobes]"));
        assert_whole(name, &p, "work", 95.0);
        for caller in ["first", "second"] {
            let share = p.total_share(caller);
            assert!((25.0..75.0).contains(&share), "{name}: {share} % below {caller}");
        }
    }
}
