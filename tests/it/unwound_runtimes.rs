//! Stacks of run-time systems whose frames nothing but their own tables and code describe.

use std::path::Path;

use crate::common::targets::built;
use crate::common::{Pprof, Prof, edges, needs, read, temp_dir, whole};

/// Records a program; its edges have to be right.
#[track_caller]
fn recorded(name: &str, program: &Path, args: &str) -> Pprof {
    let dir = temp_dir();
    Prof::new(&dir, "record -F 999").target(program, args).run().ok();
    let p = read(dir.path().join("profile.pb.gz"));
    // Frame pointers leave out a goroutine's first function if that is the one that switches to
    // another stack.
    let mut wrong = edges::check(&p).wrong;
    wrong.retain(|(callee, caller), _| {
        !(callee.starts_with("runtime.systemstack") && caller.starts_with("runtime.goexit"))
    });
    assert!(wrong.is_empty(), "{name}: {wrong:#?}");
    p
}

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
        let p = recorded(name, &program, "20 1 main");
        assert_whole(name, &p, "main.main", 99.0);
        let outer = ["main.descend", "main.main", "runtime.main", "runtime.goexit"];
        let frames = |s| p.user_frames(s);
        let burning = p.samples.iter().map(frames).filter(|f| f.contains(&"main.burn"));
        for frames in burning {
            assert!(frames.ends_with(&outer), "{name}: {frames:?}");
        }
        let p = recorded(name, &program, "20 1");
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
