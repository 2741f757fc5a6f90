//! Running programs, of each version of Java that the machine has.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use super::*;
use crate::Budget;
use crate::hotspot::heap::CodeHeap;
use crate::hotspot::layout::Layout;
use crate::hotspot::{Found, check};
use crate::tests::running::{Program, until_within};

/// Programs: java, and those that the variable `PROF_JAVAS` names, separated by colons.
fn javas() -> Vec<PathBuf> {
    let paths = std::env::var_os("PATH").unwrap_or_default();
    let mut found: Vec<PathBuf> = std::env::split_paths(&paths)
        .map(|path| path.join("java"))
        .filter(|path| path.exists())
        .collect();
    found.truncate(1);
    let others = std::env::var("PROF_JAVAS").unwrap_or_default();
    found.extend(others.split(':').map(PathBuf::from).filter(|path| path.exists()));
    if found.is_empty() {
        sys::testing::skip("there is no java");
    }
    found
}

/// A directory with the classes of a program of `scripts`; `None` without a compiler.
fn compiled(name: &str) -> Option<tempfile::TempDir> {
    let directory = tempfile::tempdir().unwrap();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts").join(name);
    let compiler = Command::new("javac")
        .args(["--release", "11", "-d"])
        .arg(directory.path())
        .arg(source)
        .stderr(Stdio::null())
        .status();
    if !compiler.is_ok_and(|status| status.success()) {
        sys::testing::skip("there is no javac");
        return None;
    }
    Some(directory)
}

/// What may be read of a program each time.
const BUDGET: Budget = Budget { bytes: 1 << 30, calls: 1 << 22 };

fn start(java: &Path, classes: &Path, options: &[&str], class: &[&str]) -> Program {
    let mut command = Command::new(java);
    command.arg("-Xshare:auto").args(options).arg("-cp").arg(classes).args(class);
    Program::start(&mut command, BUDGET)
}

/// Waits for a condition.
fn until(holds: impl FnMut() -> bool) {
    until_within(Duration::from_secs(120), holds);
}

/// Interpreted, by the first compiler, by the second, and as usual with code of all three.
const MODES: [(&[&str], &str); 4] = [
    (&["-Xint"], "2"),
    (&["-Xcomp", "-XX:TieredStopAtLevel=1"], "2"),
    (&["-Xcomp", "-XX:-TieredCompilation"], "2"),
    (&["-Xbatch"], "20000"),
];

#[test]
fn stacks_of_waiting_threads_are_those_that_the_program_states() {
    let Some(classes) = compiled("Known.java") else { return };
    for java in javas() {
        for (options, rounds) in MODES {
            let program = start(&java, classes.path(), options, &["Known", rounds]);
            until(|| program.is_ready());
            let hotspot = program.detect::<Found>().unwrap().expect("HotSpot");
            let memory = program.memory();
            let expected = stacks(&program.text());
            let mut found = Vec::new();
            for frame in hotspot.last_frames(&memory).unwrap() {
                let keys = hotspot.walk(frame, &memory);
                found.push(keys.map(|keys| lines(&hotspot, &keys, &memory)));
            }
            assert_eq!(expected.len(), 6);
            for (shape, expected) in expected {
                let what = format!("{java:?} {options:?} {shape}: {expected:#?} in {found:#?}");
                assert!(found.contains(&Some(expected)), "{what}");
            }
            assert!(!found.contains(&None), "{java:?} {options:?}: {found:?}");
        }
    }
}

#[test]
fn the_check_finds_a_changed_offset() {
    let Some(classes) = compiled("Known.java") else { return };
    let compiled = ["-Xcomp", "-XX:TieredStopAtLevel=1"];
    for java in javas() {
        let program = start(&java, classes.path(), &compiled, &["Known"]);
        until(|| program.is_ready());
        let found = program.detect::<Found>().unwrap().expect("HotSpot");
        let memory = program.memory();
        let mut missed = Vec::new();
        for field in [
            "CodeHeap._segmap",
            "CodeHeap._log2_segment_size",
            "CodeHeap._memory",
            "CodeBlob._name",
            "CodeBlob._code_begin",
            "CodeBlob._code_offset",
            "Method._constMethod",
            "ConstMethod._constants",
            "ConstantPool._pool_holder",
            "InstanceKlass._constants",
            "CompiledMethod._method",
            "CompiledMethod._scopes_data_begin",
            "nmethod._method",
            "nmethod._metadata_offset",
            "nmethod._scopes_pcs_offset",
        ] {
            let mut structs = found.structs.clone();
            let Some(offset) = structs.offsets.get_mut(field) else { continue };
            *offset += 8;
            let layout = Layout::new(found.layout.version, &structs).unwrap();
            let heaps = CodeHeap::read_all(&layout, &memory);
            let is_refused = heaps.is_err()
                || heaps.is_ok_and(|heaps| {
                    let changed = HotSpot::new(layout, structs, found.call_stub_return, heaps);
                    check::check(&changed, &memory, 2).is_err()
                });
            if !is_refused {
                missed.push(field);
            }
        }
        assert!(missed.is_empty(), "{java:?}: {missed:?}");
    }
}

#[test]
fn frame_pointers_are_kept_if_the_option_says_so() {
    let Some(classes) = compiled("Known.java") else { return };
    for java in javas() {
        for (option, kept) in
            [("-XX:+PreserveFramePointer", true), ("-XX:-PreserveFramePointer", false)]
        {
            let program = start(&java, classes.path(), &[option], &["Known"]);
            until(|| program.is_ready());
            let found = program.detect::<Found>().unwrap().expect("HotSpot");
            assert_eq!(found.has_frame_pointers, kept, "{java:?} {option}");
        }
    }
}

#[test]
fn versions_without_a_known_encoding_are_refused() {
    assert!(!Layout::has_version(10) && !Layout::has_version(26) && Layout::has_version(17));
}
