//! Stacks are those of the threads at the moment of the sample. The deep stacks of the program
//! change all the time, but each of its functions has known callers, and no stack has functions of
//! two colours: every sample is checked against that.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use crate::common;
use crate::common::unprivileged::{can_drop_rights, open_dir, unprivileged};
use crate::common::{Build, Pprof, Prof, read, system, targets, temp_dir};

/// Functions and their callers, without their colour.
const CALLS: &[(&str, &[&str])] = &[
    ("spin", &["work"]),
    ("work", &["leaf", "buffer", "dive", "number"]),
    ("buffer", &["buffers"]),
    ("buffers", &["drive"]),
    ("dive", &["dive", "recursion"]),
    ("recursion", &["drive"]),
    ("leaf", &["shared", "dispatch"]),
    ("shared", &["shared", "parents"]),
    ("parents", &["drive"]),
    // Its third handler calls it at its end, and has no frame then.
    ("dispatch", &["first", "second", "dispatch", "dispatcher"]),
    ("first", &["dispatch"]),
    ("second", &["dispatch"]),
    ("third", &["dispatch"]),
    ("dispatcher", &["drive"]),
    ("number", &["factor"]),
    ("bracket", &["factor"]),
    ("factor", &["term"]),
    ("term", &["term", "expression"]),
    ("expression", &["expression", "bracket", "parser"]),
    ("parser", &["drive"]),
];

/// Shapes of stacks, and a depth at which they are deeper than the kernel's copy.
const SHAPES: [(&str, u32); 5] =
    [("buffers", 1), ("recursion", 250), ("parents", 250), ("dispatcher", 400), ("parser", 90)];

/// The compiler does not merge the functions of one colour with those of the other.
const FLAGS: &[&str] = &["-O2", "-fno-ipa-icf", "-fomit-frame-pointer", "-pthread"];

fn plain() -> PathBuf {
    targets::built("deep_stacks", "deep_stacks.c", "gcc", FLAGS)
}

/// Many of the functions are inlined, as debug information records.
fn inlined() -> PathBuf {
    let flags = [FLAGS, &["-g", "-DINLINED"]].concat();
    targets::built("deep_stacks", "deep_stacks.c", "gcc", &flags)
}

/// A function's name without its colour, and the colour.
fn colour(name: &str) -> (&str, Option<&str>) {
    match name.rsplit_once('_') {
        Some((plain, colour @ ("red" | "blue"))) => (plain, Some(colour)),
        _ => (name, None),
    }
}

/// The error in a stack, if it has one; innermost frame first.
fn impossible(frames: &[&str]) -> Option<String> {
    let mut colours = frames.iter().filter_map(|frame| colour(frame).1);
    if let Some(first) = colours.next()
        && colours.any(|other| other != first)
    {
        return Some("functions of two colours".to_owned());
    }
    let callers = |name: &str| CALLS.iter().find(|(of, _)| *of == name).map(|(_, by)| *by);
    let first = frames.iter().position(|frame| callers(colour(frame).0).is_some())?;
    for pair in frames[first..].windows(2) {
        let (callee, caller) = (colour(pair[0]).0, colour(pair[1]).0);
        if callee == "drive" || caller.starts_with("[truncated") {
            return None;
        }
        if !callers(callee).is_some_and(|by| by.contains(&caller)) {
            return Some(format!("{callee} was not called by {caller}"));
        }
    }
    None
}

/// The only reasons for which a stack of the program may be cut: the second one at high rates, the
/// others while the kernel makes the page at the end of the stack.
const REASONS: [&str; 5] = [
    "[truncated: dump too small]",
    "[truncated: dump smaller than 65528 bytes]",
    "[truncated: stack not readable]",
    "[truncated: no user memory]",
    "[truncated: registers not saved]",
];

/// Fails if a stack is one that the program cannot have; returns the share of stacks that reach
/// the thread's entry, in percent.
#[track_caller]
fn assert_possible(p: &Pprof) -> f64 {
    let column = p.column("samples");
    let (mut all, mut whole) = (0, 0);
    for sample in &p.samples {
        let frames = p.frames(sample);
        // Until the new program begins, the registers are those of the one before.
        if frames.contains(&"begin_new_exec") {
            continue;
        }
        let wrong = impossible(&frames);
        assert!(wrong.is_none(), "{}: {frames:?}", wrong.unwrap_or_default());
        all += sample.values[column];
        let reason = frames.iter().find(|frame| frame.starts_with("[truncated"));
        let is_listed = reason.is_none_or(|frame| REASONS.contains(frame));
        assert!(is_listed, "{frames:?}");
        whole += if reason.is_some() { 0 } else { sample.values[column] };
    }
    assert!(all > 150, "{all} samples: {:?}", p.comments);
    100.0 * whole as f64 / all as f64
}

/// Records all shapes of stacks.
#[track_caller]
fn assert_all_possible(program: &Path, thread: &str, deep: bool) {
    for (shape, depth) in SHAPES {
        let dir = temp_dir();
        let args = format!("{shape} {depth} 0.8 {thread}");
        let out = Prof::new(&dir, "record -F 499").target(program, &args).run().ok();
        let p = read(dir.path().join("profile.pb.gz"));
        let whole = assert_possible(&p);
        // Stacks are cut when prof cannot keep up.
        assert!(!deep || whole > 60.0, "{args}: {whole} % are whole: {}", out.stderr);
        assert!(!deep || p.figure("deep-stacks") > 100, "{args}: {:?}", p.comments);
    }
}

#[test]
fn every_stack_is_possible() {
    let deep = system::has_deep_stacks();
    assert_all_possible(&plain(), "", deep);
}

#[test]
fn every_stack_with_inlined_functions_is_possible() {
    let deep = system::has_deep_stacks();
    assert_all_possible(&inlined(), "", deep);
}

#[test]
fn every_stack_of_a_thread_is_possible() {
    let deep = system::has_deep_stacks();
    assert_all_possible(&plain(), "thread", deep);
}

/// Parts of the stack that are not in memory take room in the ring, too, and their records may be
/// those at which prof has to be woken. The position of the stack determines these records.
#[test]
fn no_deep_stack_is_lost_for_want_of_a_wake_up() {
    if !system::has_deep_stacks() {
        return;
    }
    let flags = ["-O2", "-fomit-frame-pointer"];
    let program = targets::built("untouched", "untouched.c", "gcc", &flags);
    for bytes in [0, 1000, 2000, 3000, 4000] {
        let dir = temp_dir();
        let mut prof = Prof::new(&dir, "record --no-symbolize -F 999").target("setarch", "-R");
        prof.command.arg(&program).arg("1");
        let out = prof.env("PADDING", "x".repeat(bytes)).run().ok();
        assert!(!out.stderr.contains("could not copy them in time"), "{bytes}: {}", out.stderr);
        let p = read(dir.path().join("profile.pb.gz"));
        let whole = common::whole::of_profile(&p, |_| true);
        assert!(whole.all > 500 && whole.percent() > 99.0, "{bytes}: {}", out.stderr);
    }
}

/// At high rates less is copied of each stack.
#[test]
fn every_stack_is_possible_at_high_rates() {
    for (shape, depth) in SHAPES {
        let dir = temp_dir();
        let args = format!("{shape} {depth} 0.3");
        Prof::new(&dir, "record -F 4999").target(plain(), &args).run().ok();
        assert_possible(&read(dir.path().join("profile.pb.gz")));
    }
}

/// Whole CPUs, other processes' deep stacks among them.
#[test]
fn every_stack_is_possible_when_the_whole_machine_is_recorded() {
    if !system::needs_root() {
        return;
    }
    let dir = temp_dir();
    let mut command = std::process::Command::new(plain());
    let busy = common::Running::start(command.args(["parents", "250", "100"]));
    Prof::new(&dir, "record -a -F 499 -d 2s").run().ok();
    let mut p = read(dir.path().join("profile.pb.gz"));
    let pid = busy.pid().to_string();
    p.samples.retain(|s| s.labels.get("pid") == Some(&pid));
    let whole = assert_possible(&p);
    assert!(!system::has_deep_stacks() || whole > 60.0, "{whole} %: {:?}", p.comments);
}

/// Go records the end of a goroutine's stack.
#[test]
fn deep_stacks_of_goroutines_are_whole() {
    if !system::needs(&["go"]) || !system::has_deep_stacks() {
        return;
    }
    let dir = temp_dir();
    // Of about 300 KiB.
    let program = targets::target("deep", Build::Go);
    let out = Prof::new(&dir, "record -F 499 -e cpu-clock").target(program, "1000 1").run().ok();
    let p = read(dir.path().join("profile.pb.gz"));
    let (deep, whole) = (p.total_share("main.descend"), p.total_share("main.bottom"));
    assert!(deep > 50.0, "{deep} %: {}", out.stderr);
    // Stacks are cut when prof cannot keep up.
    assert!(whole > 0.6 * deep, "{whole} of {deep} % are whole: {}", out.stderr);
}

/// A copy of the memory above a stack whose end is unknown takes time from all that the CPU does,
/// and other samples of the same moment are missing then.
#[test]
fn nothing_is_copied_from_where_no_stack_is_known() {
    if !system::has_deep_stacks() {
        return;
    }
    let dir = temp_dir();
    let program = targets::target("foreign_base", Build::C);
    let prof = Prof::new(&dir, "record -F 499 -e cpu-clock");
    let out = prof.target(program, "1000000000").run().ok();
    let p = read(dir.path().join("profile.pb.gz"));
    assert!(p.figure("samples") > 20, "{}", out.stderr);
    assert_eq!(p.figure("deep-stacks"), 0, "{}", out.stderr);
}

/// Without the right to copy more, stacks end at the end of the kernel's copy: in a buffer that was
/// not written to, after 320 bytes.
#[test]
fn without_rights_stacks_end_with_the_copy_and_the_remedy_is_named() {
    if !can_drop_rights() {
        return;
    }
    let dir = open_dir();
    let program = dir.path().join("deep_stacks");
    common::copy_program(plain(), &program);
    std::fs::set_permissions(&program, PermissionsExt::from_mode(0o755)).unwrap();
    for (shape, depth) in SHAPES {
        let args = format!("{shape} {depth} 0.8");
        let prof = unprivileged(dir.path(), "record -F 499").target("./deep_stacks", &args);
        let out = prof.run().ok().says(&["dump too small", "cap_bpf,cap_perfmon"]);
        let p = read(dir.path().join("profile.pb.gz"));
        let whole = assert_possible(&p);
        assert!(whole < 10.0, "{args}: {whole} % are whole: {}", out.stderr);
        assert_eq!(p.figure("deep-stacks"), 0);
    }
}

/// A checker that never reports an error proves nothing.
#[test]
fn impossible_stacks_are_recognized() {
    let right = ["clock_gettime", "spin_red", "work_red", "dive_red", "recursion_red", "drive"];
    assert_eq!(impossible(&right), None);
    assert_eq!(impossible(&["spin_red", "work_red", "[truncated: dump too small]"]), None);
    let of = |frames: &[&str]| impossible(frames).is_some();
    assert!(of(&["spin_red", "work_red", "leaf_red", "shared", "shared", "parents_blue", "drive"]));
    assert!(of(&["spin_red", "work_red", "buffers_red", "drive"]));
    assert!(of(&["factor", "expression", "parser_red", "drive"]));
    assert!(of(&["work_red", "main"]));
}
