//! Events that this machine or this user cannot have, among others: one line names each, and the
//! others are recorded.

use crate::common;
use crate::common::system::skip_hardware;
use crate::common::unprivileged::{can_drop_rights, open_dir, unprivileged};
use crate::common::{Build, Output, Pprof, Prof, needs, read, target, temp_dir};

/// Records a program that works for 0.4 s.
fn record(args: &str) -> (Output, Option<Pprof>) {
    let dir = temp_dir();
    let prof = Prof::new(&dir, "record -F 499").args(args).target(target("known", Build::C), "0.4");
    let out = prof.run();
    let file = dir.path().join("profile.pb.gz");
    let profile = file.exists().then(|| read(file));
    (out, profile)
}

/// True when the machine has no counter of cycles.
fn no_cycles() -> bool {
    let refused = !record("-e cycles").0.status.success();
    if !refused {
        skip_hardware("this machine has hardware counters");
    }
    refused
}

fn kinds(p: &Pprof) -> Vec<&str> {
    p.sample_types.iter().map(|(kind, _)| kind.as_str()).collect()
}

/// The part of the CPU time that is spent below `bar`.
fn in_bar(p: &Pprof) -> f64 {
    p.sum_below("bar", "cpu") as f64 / p.total(p.column("cpu")) as f64
}

#[test]
fn missing_events_are_left_out_and_the_others_recorded() {
    if !no_cycles() {
        return;
    }
    for (args, left_out, expected) in [
        ("-e cycles,cpu-clock", vec!["'cycles' is left out: "], vec!["samples", "cpu"]),
        (
            "-e cs,{cycles,instructions}:u,cpu-clock",
            vec!["'{cycles:u,instructions:u}' is left out: "],
            vec!["samples", "cs", "cpu"],
        ),
        (
            "-e {cpu-clock,instructions} -e branch-misses -e page-faults",
            vec!["'{cpu-clock,instructions}' is left out: ", "'branch-misses' is left out: "],
            vec!["samples", "page-faults"],
        ),
        ("-T cpu -e cycles:u", vec!["'cycles:u' is left out: "], vec!["samples", "cpu"]),
        ("-T wall -e cycles:u", vec!["'cycles:u' is left out: "], vec!["samples", "wall"]),
        (
            "-T alloc -e cycles",
            vec!["'cycles' is left out: "],
            vec!["alloc_objects", "alloc_space"],
        ),
    ] {
        let (out, profile) = record(args);
        let out = out.ok().says(&left_out);
        assert_eq!(out.stderr.matches("left out").count(), left_out.len(), "{}", out.stderr);
        assert!(out.stderr.contains("does not exist on this machine"), "{}", out.stderr);
        let p = profile.expect("a profile");
        assert_eq!(kinds(&p), expected, "{args}");
        // The file contains it, too.
        assert!(p.comments.iter().any(|c| c.contains(left_out[0])), "{:?}", p.comments);
        if expected.contains(&"cpu") {
            assert!(in_bar(&p) > 0.4, "{args}: {}", out.stderr);
        }
    }
}

#[test]
fn only_missing_events_are_an_error() {
    if !no_cycles() {
        return;
    }
    for args in ["-e cycles,instructions", "-e {cycles,instructions}:u -e branch-misses"] {
        let (out, profile) = record(args);
        out.refused(1, &["event 'cycles", "does not exist on this machine"]);
        assert_eq!(out.stderr.lines().count(), 1, "{}", out.stderr);
        assert!(profile.is_none(), "{args}");
    }
}

/// An event that no machine has is a mistake, with any other events.
#[test]
fn unknown_events_are_refused_whatever_else_is_recorded() {
    for (args, word) in [
        ("-e cpu-clock,nosuch", "'nosuch'"),
        ("-e cpu-clock -e probe:no_such_function", "no_such_function"),
        ("-T cpu -e cpu-clock:z", "cpu-clock:z"),
        ("-e nosuch --filter a==1 -e cpu-clock", "'nosuch'"),
    ] {
        let (out, profile) = record(args);
        out.refused(2, &[word]);
        assert!(profile.is_none(), "{args}");
    }
}

/// The filter of an event that is left out applies to no other.
#[test]
fn the_filter_of_an_event_left_out_applies_to_no_other() {
    if !can_drop_rights() || !needs(&["setpriv"]) {
        return;
    }
    let dir = open_dir();
    let program = dir.path().join("known");
    common::copy_program(target("known", Build::C), &program);
    let prof = unprivileged(dir.path(), "record -F 499 -e cpu-clock:u,sched:sched_switch --filter");
    let prof = prof.arg("prev_prio < 100").args("-e page-faults:u");
    let out = prof.target(&program, "0.4").run().ok();
    let out = out.says(&["'sched:sched_switch' is left out: "]);
    let p = read(dir.path().join("profile.pb.gz"));
    assert_eq!(kinds(&p), ["samples", "cpu", "page-faults:u"]);
    assert!(in_bar(&p) > 0.4, "{}", out.stderr);
    let out =
        unprivileged(dir.path(), "record -e sched:sched_switch").target(&program, "0.1").run();
    out.refused(1, &["sched:sched_switch"]);
}
