//! Names of files that are mapped at one address in turn (tests/targets/in_turn.c): those of the
//! file that was there at the sample, or none.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::common::pprof::Sample;
use crate::common::targets::built;
use crate::common::{Build, Pprof, Prof, ProfRecording, Running, read, target, temp_dir};

/// Flags of the linker, with what they say.
const BUILDS: [(&str, &[&str]); 2] =
    [("with build IDs", &["-Wl,--build-id"]), ("without build IDs", &["-Wl,--build-id=none"])];

/// The programs or the libraries: `-DLIBRARY=N`, `-DPROGRAM=N`.
fn both(role: &str, flags: &[&str]) -> [PathBuf; 2] {
    ["1", "2"].map(|n| {
        let role = format!("-D{}={n}", role.to_uppercase());
        let flags = [&["-O2", "-fomit-frame-pointer", &role], flags].concat();
        built(&format!("in_turn_{n}"), "in_turn.c", "gcc", &flags)
    })
}

fn libraries(flags: &[&str]) -> [PathBuf; 2] {
    both("library", &[&["-shared", "-fPIC"], flags].concat())
}

/// A sample's frames: of a caller, and of the code that it calls.
#[derive(Default)]
struct Found {
    /// Values of the samples that have the name of the right file, and of the other.
    right: i64,
    wrong: i64,
    /// Values of those with neither.
    unnamed: i64,
}

/// Compares who calls with what is called: `is_from` says of a sample whether it is of the first or
/// the second file, or of neither.
fn compare(p: &Pprof, kind: &str, is_from: impl Fn(&Sample) -> Option<usize>) -> [Found; 2] {
    let mut found = [Found::default(), Found::default()];
    let column = p.sample_types.len() - 1;
    for sample in &p.samples {
        let Some(of) = is_from(sample) else { continue };
        let value = sample.values[column];
        let has = |n: usize| p.frames(sample).contains(&format!("{kind}_{}", n + 1).as_str());
        match (has(of), has(1 - of)) {
            (_, true) => found[of].wrong += value,
            (true, false) => found[of].right += value,
            (false, false) => found[of].unnamed += value,
        }
    }
    found
}

/// Samples below `calls_1` and `calls_2`.
fn of_libraries(p: &Pprof) -> [Found; 2] {
    compare(p, "library", |s| ["calls_1", "calls_2"].iter().position(|c| p.frames(s).contains(c)))
}

#[track_caller]
fn assert_none_is_wrong(what: &str, found: &[Found; 2]) {
    for (n, found) in found.iter().enumerate() {
        assert_eq!(found.wrong, 0, "{what}: {} of {} are right", found.right, n + 1);
        assert!(found.right > 0, "{what}: {} of {} have no name", found.unnamed, n + 1);
    }
}

/// Besides the time in the dynamic loader, nothing below the callers has another name.
#[track_caller]
fn assert_named(what: &str, found: &[Found; 2]) {
    assert_none_is_wrong(what, found);
    for found in found {
        assert!(found.unnamed * 10 < found.right, "{what}: {} of {}", found.unnamed, found.right);
    }
}

fn record(dir: &Path, args: &str, mode: &str, libraries: &[PathBuf; 2]) -> Pprof {
    let program = target("in_turn", Build::C);
    let args = &format!("record {args}");
    let [first, second] = libraries;
    let target = format!("{mode} {} {}", first.display(), second.display());
    let out = Prof::new(dir, args).target(program, &target).run().ok();
    let same = out.text();
    let same: i32 = same.split(' ').nth(2).and_then(|n| n.parse().ok()).expect(&same);
    assert!(same > 100, "the libraries were at one address {same} times");
    read(dir.join("profile.pb.gz"))
}

#[test]
fn libraries_in_turn_at_one_address_have_their_own_names() {
    for (what, flags) in BUILDS {
        for rate in ["99", "997"] {
            let dir = temp_dir();
            let p = record(dir.path(), &format!("-F {rate}"), "paths", &libraries(flags));
            assert_named(&format!("{what}, -F {rate}"), &of_libraries(&p));
        }
    }
}

/// A library is replaced, by a link or by a copy, and loaded again.
#[test]
fn a_reloaded_library_has_its_own_names() {
    for (what, flags) in BUILDS {
        let dir = temp_dir();
        let p = record(dir.path(), "-F 997", "links", &libraries(flags));
        assert_none_is_wrong(&format!("links {what}"), &of_libraries(&p));
        let dir = temp_dir();
        let p = record(dir.path(), "-F 997", "copies", &libraries(flags));
        let found = of_libraries(&p);
        let [first, second] = &found;
        assert_eq!((first.wrong, second.wrong), (0, 0), "copies {what}");
        // A copy is at its path for some milliseconds: whether prof opens it in time is chance. If
        // it does not, the stacks say so.
        let right = first.right + second.right;
        let replaced = p.total_share("[truncated: binary replaced]");
        assert!(right > 0 || replaced > 10.0, "copies {what}: {replaced} % replaced");
    }
}

#[test]
fn libraries_that_an_attached_program_loads_have_their_own_names() {
    let dir = temp_dir();
    let mut command = Command::new(target("in_turn", Build::C));
    command.arg("waits").args(libraries(&["-Wl,--build-id"])).stdin(Stdio::piped());
    let mut program = Running::start(&mut command);
    let recording =
        ProfRecording::start(dir.path(), "attached", &format!("-F 997 -p {}", program.pid()));
    drop(program.stdin());
    program.finish().ok();
    assert_named("attached", &of_libraries(&recording.finish()));
}

#[test]
fn allocations_in_libraries_at_one_address_have_their_own_names() {
    let dir = temp_dir();
    let libraries = libraries(&["-Wl,--build-id"]);
    let p = record(dir.path(), "-T alloc --heap-interval 1K", "paths", &libraries);
    assert_none_is_wrong("allocations", &of_libraries(&p));
}

/// Programs at fixed addresses that execute each other: the name of a process tells which it was.
#[test]
fn programs_that_execute_each_other_have_their_own_names() {
    for (what, flags) in BUILDS {
        let [first, second] = both("program", &[&["-no-pie"], flags].concat());
        let dir = temp_dir();
        let target = format!("100 {} {}", second.display(), first.display());
        Prof::new(&dir, "record -F 997").target(&first, &target).run().ok();
        let p = read(dir.path().join("profile.pb.gz"));
        let names = ["in_turn_1", "in_turn_2"];
        let found = compare(&p, "program", |s| {
            let in_main = p.frames(s).contains(&"main");
            names.iter().position(|&name| in_main && s.labels["process"] == name)
        });
        assert_named(what, &found);
    }
}
