//! Programs whose files and code would take the recorder much time or memory: they are recorded as
//! long as they run, and the costs of prof are those of any other program.

use std::path::Path;
use std::process::Command;

use crate::common;
use crate::common::{Pprof, Prof, read, temp_dir};

/// Makes such a program by tests/targets/hostile_elf.py; `None` if a tool is missing.
fn hostile(dir: &Path, kind: &str) -> Option<String> {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/targets/hostile_elf.py");
    let program = dir.join(kind).display().to_string();
    let made = Command::new("python3").args([script, kind, &program]).status();
    if !made.is_ok_and(|status| status.success()) {
        common::skip("python3, gcc or objcopy is not installed");
        return None;
    }
    Some(program)
}

/// Records such a program.
fn recorded(kind: &str) -> Option<Pprof> {
    let dir = temp_dir();
    let program = hostile(dir.path(), kind)?;
    Prof::new(&dir, "record -F 997 --no-symbolize").target(&program, "").run().exits(0);
    Some(read(dir.path().join("profile.pb.gz")))
}

/// CPU seconds of prof while it recorded, of any program of this size.
const CPU_SECONDS: f64 = 3.0;

/// Bytes that prof uses, with its rings.
const MEMORY: i64 = 150 << 20;

#[track_caller]
fn costs_no_more_than_others(p: &Pprof) {
    assert!(p.figure("samples") > 50, "{:?}", p.comments);
    let cpu = p.comment("recording-cpu-seconds").unwrap();
    assert!(cpu.parse::<f64>().unwrap() < CPU_SECONDS, "{cpu} s of CPU");
    let memory = p.figure("own-peak-memory");
    assert!(memory < MEMORY, "{memory} bytes");
}

/// Comparing each with one name took an hour: two million symbols, each of a megabyte.
#[test]
fn names_without_an_end_do_not_hold_up_a_recording() {
    let Some(p) = recorded("names") else { return };
    costs_no_more_than_others(&p);
}

/// Each was searched for its end, which took a minute.
#[test]
fn names_without_an_end_do_not_hold_up_the_search_for_a_function() {
    let dir = temp_dir();
    let Some(program) = hostile(dir.path(), "names") else { return };
    let out =
        Prof::new(&dir, &format!("record -e probe:{program}:absent")).target(&program, "").run();
    assert!(out.stderr.contains("absent"), "{}", out.stderr);
}

/// They took hours, and a build ID of 1 GB took 4 GB of memory.
#[test]
fn headers_of_a_file_hold_up_neither_a_recording_nor_the_lookup_of_names() {
    let dir = temp_dir();
    for kind in ["sections", "notes", "build-id"] {
        let Some(program) = hostile(dir.path(), kind) else { return };
        Prof::new(&dir, "record -F 997").target(&program, "").run().exits(0);
        costs_no_more_than_others(&read(dir.path().join("profile.pb.gz")));
    }
}

/// They took 430 MB.
#[test]
fn tables_that_are_large_only_when_decompressed_count_as_missing() {
    let Some(p) = recorded("tables") else { return };
    costs_no_more_than_others(&p);
    let says = |c: &&String| c.contains("the limit of time and memory");
    assert_eq!(p.comments.iter().filter(says).count(), 1, "{:?}", p.comments);
}

/// They took 28 seconds.
#[test]
fn ten_thousand_branches_are_analysed_once_for_all_their_addresses() {
    let Some(p) = recorded("branches") else { return };
    costs_no_more_than_others(&p);
    let (truncated, stacks) = p.pair("truncated");
    assert!(truncated * 20 < stacks, "{truncated} of {stacks} stacks are truncated");
    assert!(p.figure("lost") * 20 < stacks, "{} lost", p.figure("lost"));
}
