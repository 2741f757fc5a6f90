//! Running programs, of each version of node that the machine has.

use std::path::PathBuf;
use std::process::Command;

use super::*;
use crate::glibc::{ThreadLayout, ThreadLists};
use crate::tests::running::{Program, until};
use crate::v8::{Found, Offsets, check};
use crate::{Budget, MappedFiles, Refusal};

/// Programs: node, and those that npm's package `node` has installed in directories which the variable
/// `PROF_NODES` names.
fn nodes() -> Vec<PathBuf> {
    let paths = std::env::var_os("PATH").unwrap_or_default();
    let mut found: Vec<PathBuf> = std::env::split_paths(&paths)
        .map(|path| path.join("node"))
        .filter(|p| p.exists())
        .collect();
    found.truncate(1);
    let directories = std::env::var("PROF_NODES").unwrap_or_default();
    let others =
        directories.split(':').map(|path| PathBuf::from(path).join("node_modules/node/bin/node"));
    found.extend(others.filter(|path| path.exists()));
    found.retain(is_supported);
    if found.is_empty() {
        sys::testing::skip("there is no node from 18 to 24");
    }
    found
}

/// Versions of node whose V8 has a table.
fn is_supported(node: &PathBuf) -> bool {
    let script = "process.exit(['10.2', '11.3', '11.8', '12.4', '12.9', '13.6'].includes(\
                  process.versions.v8.split('.').slice(0, 2).join('.')) ? 0 : 1)";
    Command::new(node).args(["-e", script]).status().is_ok_and(|status| status.success())
}

/// What may be read of a program each time.
const BUDGET: Budget = Budget { bytes: 256 << 20, calls: 1 << 22 };

fn start(command: &mut Command) -> Program {
    Program::start(command, BUDGET)
}

/// `known.js`, when all of its threads wait.
fn known(node: &PathBuf, arguments: &[&str]) -> Program {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/scripts/known.js");
    let mut command = Command::new(node);
    let program = start(command.arg("--allow-natives-syntax").arg(script).args(arguments));
    until(|| program.is_ready());
    // It is in the wait behind that.
    until(|| {
        let v8 = program.detect::<Found>();
        let Ok(Some(v8)) = v8 else { return false };
        let threads = threads(&program);
        let all = stacks(&program.text()).len();
        let waits = |(_, pointer): &&(u32, u64)| {
            let copies = copies(&v8, *pointer, &program.memory());
            frames(&v8, &copies).0 == ChainEnd::Complete
        };
        threads.iter().filter(waits).count() >= all
    });
    program
}

/// Numbers and thread pointers.
fn threads(program: &Program) -> Vec<(u32, u64)> {
    let files = MappedFiles::open(program.pid()).unwrap();
    let memory = program.memory();
    let images = files.images();
    let tid = ThreadLayout::find(&images).unwrap().tid;
    let pointers = ThreadLists::find(&images).unwrap().pointers(&memory).unwrap();
    let memory: &dyn Memory = &memory;
    let number = |pointer: &u64| memory.half(pointer + u64::from(tid)).unwrap();
    pointers.into_iter().map(|pointer| (number(&pointer), pointer)).collect()
}

#[test]
fn stacks_of_waiting_threads_are_those_that_the_program_states() {
    for node in nodes() {
        let program = known(&node, &["direct"]);
        let v8 = program.detect::<Found>().unwrap().expect("V8");
        assert!(v8.symbols.direct_caller.is_some(), "{node:?}");
        let threads = threads(&program);
        for (tid, shape, expected) in stacks(&program.text()) {
            let pointer = threads.iter().find(|thread| thread.0 == tid).unwrap().1;
            let innermost = || {
                let frames = frames(&v8, &copies(&v8, pointer, &program.memory())).1;
                match v8.name(&frames.first()?.code, &program.memory()) {
                    Name::Found(code) => Some(code.function),
                    _ => None,
                }
            };
            // It may be on the way from its report to there.
            until(|| innermost().is_some_and(|name| expected[0].starts_with(&name)));
            let (end, frames) = frames(&v8, &copies(&v8, pointer, &program.memory()));
            assert_eq!(end, ChainEnd::Complete, "{node:?} {shape}");
            compare(&v8, &frames, &expected, &program.memory(), &format!("{node:?} {shape}"));
        }
    }
}

#[test]
fn lines_are_those_of_the_source_where_v8_has_not_computed_them() {
    for node in nodes() {
        let program = known(&node, &["plain"]);
        let v8 = program.detect::<Found>().unwrap().expect("V8");
        let memory = program.memory();
        let (_, pointer) =
            threads(&program).into_iter().find(|(tid, _)| *tid == program.pid() as u32).unwrap();
        let frames = frames(&v8, &copies(&v8, pointer, &memory)).1;
        let named = |key: &CodeKey| match v8.name(key, &memory) {
            Name::Found(code) => (code.function.clone(), code.line(key.position)),
            other => panic!("{other:?}"),
        };
        let all: Vec<_> = executed(&v8, &frames, &memory).iter().map(named).collect();
        let script = include_str!("../../../scripts/known.js");
        let line = |text: &str| {
            script.lines().position(|line| line.contains(text)).map(|line| line as u32 + 1)
        };
        assert_eq!(all[0], ("wait".to_owned(), line("Atomics.wait(cell, 0, 0)")), "{node:?}");
        assert!(all.contains(&(
            "value".to_owned(),
            line("return inner();\n").or(line("    return inner();"))
        )));
    }
}

/// The name of an offset, and what changes it.
type Change = (&'static str, fn(&mut Offsets));

#[test]
fn offsets_that_are_changed_are_noticed() {
    for node in nodes() {
        let program = known(&node, &[]);
        let found = program.detect::<Found>().unwrap().expect("V8");
        let pointers: Vec<u64> = threads(&program).into_iter().map(|thread| thread.1).collect();
        let changes: [Change; 15] = [
            ("map_type", |o| o.map_type += 2),
            ("shared_data", |o| o.shared_data += 8),
            ("shared_name", |o| o.shared_name += 8),
            ("shared_script", |o| o.shared_script += 8),
            ("script_name", |o| o.script_name += 8),
            ("script_functions", |o| o.script_functions += 8),
            ("bytecode_positions", |o| o.bytecode_positions += 8),
            ("scope_words", |o| o.scope_words += 1),
            ("string_length", |o| o.string_length += 4),
            ("string_chars", |o| o.string_chars += 8),
            ("array length", |o| o.array[0] += 8),
            ("array items", |o| o.array[1] += 8),
            ("type of functions", |o| o.types.shared += 1),
            ("type of scripts", |o| o.types.script += 1),
            ("type of bytecode", |o| o.types.bytecode += 1),
        ];
        let mut missed = Vec::new();
        for (name, change) in changes {
            let mut offsets = found.offsets.clone();
            change(&mut offsets);
            let changed = V8::new(offsets, found.symbols.clone());
            if check::check(&changed, &pointers, &program.memory(), 2).is_ok() {
                missed.push(name);
            }
        }
        assert!(missed.is_empty(), "{node:?}: {missed:?}");
    }
}

/// Calls functions all the time, and never a function of C++.
const BUSY: &str = "
function a(n) { return n ? a(n - 1) + [n, 1].map((x) => x * n)[0] : 0; }
console.log('ready');
for (;;) a(20);
";

#[test]
fn a_process_that_runs_all_the_time_passes_the_check() {
    for node in nodes() {
        let program = start(Command::new(&node).args(["-e", BUSY]));
        until(|| program.is_ready());
        for _ in 0..3 {
            let found = program.detect::<Found>();
            let found = found.unwrap_or_else(|error| panic!("{node:?}: {error}"));
            assert_eq!(found.expect("V8").walks().len(), 2);
        }
    }
}

#[test]
fn a_version_without_a_table_is_refused_by_name() {
    let version = [13, 7];
    assert!(!Offsets::has_version(version) && Offsets::new(version, Default::default()).is_none());
    // 16 and 25, if they are there.
    let directories = std::env::var("PROF_NODES").unwrap_or_default();
    for directory in directories.split(':') {
        let node = PathBuf::from(directory).join("node_modules/node/bin/node");
        if node.exists() && !is_supported(&node) {
            let program = start(Command::new(&node).args(["-e", BUSY]));
            until(|| program.is_ready());
            let Err(Refusal::Version(name)) = program.detect::<Found>() else { panic!("{node:?}") };
            assert!(name.starts_with("V8 "), "{name}");
        }
    }
}
