//! Running programs, of each version of CPython that the machine has.

use std::path::PathBuf;
use std::process::Command;

use super::*;
use crate::cpython::check::check;
use crate::cpython::{Found, Offsets};
use crate::tests::copied::assert_equal_names;
use crate::tests::running::{Program, until};
use crate::{Budget, MappedFiles, Refusal};

/// Interpreters: Debian's, and those of pyenv.
fn interpreters() -> Vec<PathBuf> {
    let mut found = vec![PathBuf::from("/usr/bin/python3")];
    let home = std::env::var_os("HOME").map(PathBuf::from).unwrap_or_default();
    if let Ok(versions) = std::fs::read_dir(home.join(".pyenv/versions")) {
        found.extend(versions.flatten().map(|version| version.path().join("bin/python3")));
    }
    found.retain(|path| path.exists());
    found
}

/// What may be read of a program each time.
const BUDGET: Budget = Budget { bytes: 64 << 20, calls: 1 << 20 };

fn start(command: &mut Command) -> Program {
    Program::start(command, BUDGET)
}

/// `known.py`, when all of its threads wait.
fn known(interpreter: &PathBuf) -> Program {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/scripts/known.py");
    let program = start(Command::new(interpreter).arg(script));
    until(|| program.is_ready());
    program
}

/// Versions of CPython with a table.
fn is_supported(interpreter: &PathBuf) -> bool {
    let script = "import sys, sysconfig\nsys.exit(sys.implementation.name != 'cpython' \
                  or sysconfig.get_config_var('Py_GIL_DISABLED') == 1 \
                  or not (3, 8) <= sys.version_info[:2] <= (3, 13))";
    let ended = Command::new(interpreter).args(["-c", script]).status();
    ended.is_ok_and(|status| status.success())
}

fn supported() -> Vec<PathBuf> {
    let found: Vec<PathBuf> = interpreters().into_iter().filter(is_supported).collect();
    if found.is_empty() {
        sys::testing::skip("there is no CPython from 3.8 to 3.13");
    }
    found
}

#[test]
fn stacks_of_waiting_threads_are_those_that_the_program_states() {
    for interpreter in supported() {
        let program = known(&interpreter);
        let cpython = program.detect::<Found>().unwrap().expect("CPython");
        let memory = program.memory();
        for (pointer, shape, expected) in stacks(&program.text()) {
            let (end, frames) = frames(&cpython, &copies(&cpython, pointer, &memory));
            assert_eq!(end, ChainEnd::Complete, "{interpreter:?} {shape}");
            assert_eq!(lines(&cpython, &frames, &memory), expected, "{interpreter:?} {shape}");
        }
    }
}

#[test]
fn code_that_is_copied_at_a_sample_has_the_names_that_it_has_in_memory() {
    for interpreter in supported() {
        let program = known(&interpreter);
        let cpython = program.detect::<Found>().unwrap().expect("CPython");
        let memory = program.memory();
        let mut equal = 0;
        for (pointer, ..) in stacks(&program.text()) {
            let copies = copies(&cpython, pointer, &memory);
            let users = frames(&cpython, &copies).1;
            equal += assert_equal_names(&cpython, &copies[0], &users, &memory);
        }
        assert!(equal > 40, "{interpreter:?}: {equal}");
    }
}

/// Changes of one offset. Not among them: the two names of a function, which are the same for most,
/// and the characters of a `str` that is not ASCII, which a process need not have.
fn changes(offsets: &Offsets) -> Vec<(&'static str, Offsets)> {
    let changed = |name, change: fn(&mut Offsets)| {
        let mut offsets = offsets.clone();
        change(&mut offsets);
        (name, offsets)
    };
    let mut all = vec![
        changed("key", |o| o.key += 8),
        // Behind the pointer to the first interpreter is one to the main one, which it is.
        changed("first_interpreter", |o| o.first_interpreter += 16),
        // The same of thread states, in 3.13.
        changed("first_thread", |o| o.first_thread += 16),
        changed("next_thread", |o| o.next_thread += 8),
        changed("interpreter", |o| o.interpreter += 8),
        changed("thread_id", |o| o.thread_id += 8),
        changed("frame_previous", |o| o.frame_previous += 8),
        changed("frame_code", |o| o.frame_code += 8),
        changed("frame_position", |o| o.frame_position += 8),
        changed("code_filename", |o| o.code_filename -= 8),
        changed("code_lines", |o| o.code_lines += 8),
        changed("code_bytecode", |o| o.code_bytecode += 8),
        changed("object_type", |o| o.object_type += 8),
        changed("object_size", |o| o.object_size += 8),
        changed("str_length", |o| o.str_length += 8),
        changed("str_state", |o| o.str_state += 8),
        changed("str_ascii", |o| o.str_ascii += 8),
        changed("bytes_data", |o| o.bytes_data += 8),
        changed("code_first_line", |o| o.code_first_line += 8),
    ];
    if offsets.native_id.is_some() {
        all.push(changed("native_id", |o| o.native_id = o.native_id.map(|at| at + 8)));
    }
    if offsets.frame_owner.is_some() {
        all.push(changed("frame_owner", |o| o.frame_owner = o.frame_owner.map(|at| at + 8)));
    }
    if offsets.frame_entry.is_some() {
        all.push(changed("frame_entry", |o| o.frame_entry = o.frame_entry.map(|at| at + 8)));
    }
    if offsets.c_frames.is_some() {
        all.push(changed("c_frames.previous", |o| o.c_frames.as_mut().unwrap().previous += 8));
        all.push(changed("c_frames.first", |o| o.c_frames.as_mut().unwrap().first += 8));
    }
    all
}

#[test]
fn an_offset_that_is_changed_is_noticed() {
    for interpreter in supported() {
        let program = known(&interpreter);
        let found = program.detect::<Found>().unwrap().expect("CPython");
        let memory = program.memory();
        let threads = sys::procfs::threads(program.pid()).unwrap();
        let mut missed = Vec::new();
        for (name, offsets) in changes(&found.offsets) {
            let Cpython { symbols, threads: layout, .. } = found.clone();
            let changed = Cpython::new(offsets, symbols, layout, &memory);
            let result = changed.and_then(|cpython| check(&cpython, &threads, &memory, 4));
            if result.is_ok() {
                missed.push(name);
            }
        }
        assert!(missed.is_empty(), "{interpreter:?}: {missed:?}");
    }
}

/// Calls functions all the time: frames change while they are read.
const BUSY: &str = "
def a(n):
    return a(n - 1) + sum(map(len, ['x'] * n)) if n else 0
def b(n):
    return sorted([b(n - 1), 1], key=lambda x: -x)[0] if n else 0
print('ready', flush=True)
while True:
    a(20)
    b(10)
";

#[test]
fn a_process_that_runs_all_the_time_passes_the_check() {
    for interpreter in supported() {
        let program = start(Command::new(&interpreter).args(["-c", BUSY]));
        until(|| program.is_ready());
        for _ in 0..10 {
            let found = program.detect::<Found>();
            let found = found.unwrap_or_else(|error| panic!("{interpreter:?}: {error}"));
            let cpython = found.expect("CPython");
            assert_eq!(
                cpython.walks().len(),
                if (10..=11).contains(&cpython.offsets.minor) { 2 } else { 1 }
            );
        }
    }
}

#[test]
fn a_process_without_an_interpreter_has_none() {
    let program = start(Command::new("sleep").arg("1000"));
    until(|| MappedFiles::open(program.pid()).is_ok_and(|files| files.images().len() >= 2));
    assert!(matches!(program.detect::<Found>(), Ok(None)));
}

/// Versions of pyenv without a table.
#[test]
fn versions_without_a_table_are_refused_by_name() {
    for interpreter in interpreters().iter().filter(|path| !is_supported(path)) {
        let script =
            "import sys, time; sys.stdout.write('ready\\n'); sys.stdout.flush(); time.sleep(1000)";
        let program = start(Command::new(interpreter).args(["-c", script]));
        until(|| program.is_ready());
        match program.detect::<Found>() {
            Err(Refusal::Version(name)) => assert!(name.starts_with("CPython 3."), "{name}"),
            // 2.7 has other symbols.
            other => assert!(matches!(other, Ok(None)), "{interpreter:?}"),
        }
    }
}
