//! Stacks of Go programs that are on two stacks, and of Go's scheduler.

use crate::common::pprof::Sample;
use crate::common::system::{has_deep_stacks, has_kernel_programs, needs_tracefs};
use crate::common::waits::label;
use crate::common::{Build, Pprof, Prof, needs, read, skip, target, temp_dir};

/// Names without what Go's linker adds.
fn frames<'a>(p: &'a Pprof, sample: &Sample) -> Vec<&'a str> {
    p.user_frames(sample).into_iter().map(|f| f.trim_end_matches(".abi0")).collect()
}

fn record(options: &str, name: &str, args: &str) -> Pprof {
    let dir = temp_dir();
    Prof::new(&dir, &format!("record {options}")).target(target(name, Build::Go), args).run().ok();
    read(dir.path().join("profile.pb.gz"))
}

/// The scheduler has given up the goroutine that called it: as in Go's own stack traces, its stacks
/// begin at the switch to the thread's stack, and are whole.
#[test]
fn stacks_of_go_s_scheduler_begin_where_it_left_the_goroutine() {
    if !needs(&["go"]) {
        return;
    }
    let p = record("-F 999", "goroutines", "2");
    let mut begun = 0;
    for frames in p.samples.iter().map(|s| frames(&p, s)) {
        let Some(at) = frames.iter().position(|&f| f == "runtime.schedule") else { continue };
        let root = frames[frames.len() - 1];
        let roots = ["runtime.mcall", "runtime.morestack", "runtime.clone", "runtime.rt0_go"];
        // The first thread's scheduler begins in the function that the program's entry calls.
        let is_root = roots.contains(&root) || root.starts_with("_rt0") || root == "runtime.mstart";
        assert!(is_root, "{:?}", &frames[at..]);
        begun += u32::from(root == "runtime.mcall");
    }
    assert!(begun > 0, "no stack of the scheduler");
}

/// A stack is copied to a larger one on the thread's stack, for a function that waits.
#[test]
fn stacks_of_growing_goroutines_lead_to_what_needs_them() {
    if !needs(&["go"]) || !has_deep_stacks() {
        return;
    }
    let p = record("-F 999", "growing", "2");
    let (mut all, mut whole) = (0, 0);
    for frames in p.samples.iter().map(|s| frames(&p, s)) {
        let Some(at) = frames.iter().position(|&f| f == "runtime.morestack") else { continue };
        if !frames[..at].contains(&"runtime.copystack") {
            continue;
        }
        all += 1;
        if frames.last() != Some(&"runtime.goexit") {
            continue;
        }
        whole += 1;
        let callers = &frames[at + 1..];
        if callers.contains(&"main.grow") {
            assert!(callers[0].starts_with("main."), "{callers:?}");
            let outer = callers.iter().rposition(|&f| f == "main.deeper");
            let outer = outer.map_or(callers, |i| &callers[i + 1..]);
            let inner = outer.iter().take_while(|&&f| f != "main.grow");
            assert!(inner.clone().all(|f| f.ends_with(".deepen")), "{outer:?}");
        }
    }
    // A few are taken before the goroutine's registers are saved, or in a signal handler.
    assert!(all > 0 && whole * 4 > all * 3, "{whole} of {all} are whole");
}

/// Checks the stacks of waits in C that Go has called, and in Go that C has called back.
#[track_caller]
fn assert_waits(p: &Pprof, is_wait: impl Fn(&Sample) -> bool) {
    let goroutine = ["runtime.cgocall", "main.goOuter", "main.main.func1", "runtime.goexit"];
    let callback =
        ["main.goCallback", "runtime.cgocallbackg", "runtime.cgocallback", "crosscall2", "c_outer"];
    for (function, through) in [("c_sleep", &[][..]), ("main.goSleep", &callback)] {
        let (mut all, mut whole) = (0, 0);
        for sample in p.samples.iter().filter(|s| is_wait(s)) {
            let frames = frames(p, sample);
            if frames.contains(&function) {
                all += 1;
                let mut left = frames.iter();
                let in_order = through.iter().chain(&goroutine).all(|f| left.any(|g| g == f));
                whole += u32::from(in_order);
                assert!(in_order || frames.len() > 3, "{frames:?}");
            }
        }
        assert!(all > 0 && whole == all, "{function}: {whole} of {all} whole");
    }
}

#[test]
fn waits_in_go_and_c_have_both_stacks() {
    if !needs(&["go", "gcc"]) || !needs_tracefs() {
        return;
    }
    if !has_kernel_programs() {
        return skip("waits are not measured by programs in the kernel");
    }
    let p = record("-T wall", "blocking", "100");
    assert_waits(&p, |s| label(s, "state") == "sleeping");
    let p = record("-T syscalls", "blocking", "100");
    assert_waits(&p, |s| label(s, "syscall").ends_with("nanosleep"));
}
