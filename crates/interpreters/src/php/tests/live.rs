//! Running programs, of the PHP that the machine has.

use std::process::Command;

use super::*;
use crate::Interpreter;
use crate::php::check::check;
use crate::php::{Found, Offsets, detect};
use crate::tests::copied::assert_equal_names;
use crate::tests::running::{Program, until};
use crate::{Budget, MappedFiles, Process, ProcessMemory, Refusal};

const PHP: &str = "/usr/bin/php";

/// Options of the interpreter: without its compiler, and with it.
const OPTIONS: [&[&str]; 4] = [
    &[],
    &["-dopcache.enable_cli=1", "-dopcache.jit_buffer_size=0"],
    &["-dopcache.enable_cli=1", "-dopcache.jit=tracing", "-dopcache.jit_buffer_size=32M"],
    &["-dopcache.enable_cli=1", "-dopcache.jit=function", "-dopcache.jit_buffer_size=32M"],
];

/// True if there is PHP 8.2.
fn has_php() -> bool {
    let version = Command::new(PHP).args(["-r", "echo PHP_VERSION_ID;"]).output();
    let has = version.is_ok_and(|output| output.stdout.starts_with(b"802"));
    if !has {
        sys::testing::skip("there is no PHP 8.2");
    }
    has
}

/// What may be read of a program each time.
const BUDGET: Budget = Budget { bytes: 64 << 20, calls: 1 << 20 };

/// A program that has written `ready`.
fn start(arguments: &[&str]) -> Program {
    let program = Program::start(Command::new(PHP).args(arguments), BUDGET);
    until(|| program.is_ready());
    program
}

/// `known.php`, when it waits in a shape.
fn known(options: &[&str], shape: &str) -> Program {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/scripts/known.php");
    start(&[options, &[script, shape]].concat())
}

#[test]
fn the_stack_of_a_waiting_program_is_the_one_that_it_states() {
    if !has_php() {
        return;
    }
    for file in [PHP, "/usr/sbin/php-fpm8.2", "/usr/lib/libphp8.2.so"] {
        let found = std::fs::read(file).map(|file| Interpreter::of_file(&file));
        assert!(found.map_or(true, |found| found == Some(Interpreter::Php)), "{file}");
    }
    for options in OPTIONS {
        for image in &IMAGES {
            let program = known(options, image.shape);
            let found = program.detect::<Found>();
            let php = found.unwrap_or_else(|error| panic!("{options:?} {}: {error}", image.shape));
            let php = php.expect("PHP");
            assert!(php.symbols.has_registers);
            let memory = program.memory();
            let (end, frames) = frames(&php, &copies(&php, &memory));
            assert_eq!(end, ChainEnd::Complete, "{options:?} {}", image.shape);
            let expected = expected(&program.text());
            let found = lines(&php, &frames, &memory);
            assert_eq!(found, expected, "{options:?} {}", image.shape);
            let copies = copies(&php, &memory);
            let equal = assert_equal_names(&php, &copies[0], &frames, &memory);
            assert!(equal > 1, "{options:?} {}", image.shape);
        }
    }
}

/// Changes of one offset. Not among them: the place of a result and the number of variables, with
/// which names are not read, and the class, which most functions do not have.
fn changes(offsets: &Offsets) -> Vec<(&'static str, Offsets)> {
    let changed = |name, change: fn(&mut Offsets)| {
        let mut offsets = offsets.clone();
        change(&mut offsets);
        (name, offsets)
    };
    vec![
        changed("current_frame", |o| o.current_frame += 8),
        changed("frame_instruction", |o| o.frame_instruction += 8),
        changed("frame_function", |o| o.frame_function += 8),
        changed("frame_call", |o| o.frame_call += 8),
        changed("frame_previous", |o| o.frame_previous += 8),
        changed("function_kind", |o| o.function_kind += 8),
        changed("function_name", |o| o.function_name += 8),
        changed("function_size", |o| o.function_size += 8),
        changed("function_code", |o| o.function_code += 8),
        changed("function_file", |o| o.function_file += 8),
        changed("function_line", |o| o.function_line += 8),
        changed("function_end", |o| o.function_end += 8),
        changed("class_kind", |o| o.class_kind += 8),
        changed("class_name", |o| o.class_name += 8),
        changed("string_info", |o| o.string_info += 4),
        changed("string_length", |o| o.string_length += 8),
        changed("string_data", |o| o.string_data += 8),
        changed("instruction_line", |o| o.instruction_line -= 8),
        changed("instruction_kind", |o| o.instruction_kind -= 4),
    ]
}

#[test]
fn an_offset_that_is_changed_is_noticed() {
    if !has_php() {
        return;
    }
    let program = known(&[], "calls");
    let found = program.detect::<Found>().unwrap().expect("PHP");
    let memory = program.memory();
    let mut missed = Vec::new();
    for (name, offsets) in changes(&found.offsets) {
        let php = Php::new(offsets, found.symbols.clone());
        if check(&php, &memory, 4).is_ok() {
            missed.push(name);
        }
    }
    assert!(missed.is_empty(), "{missed:?}");
}

/// Calls functions all the time: frames change while they are read.
const BUSY: &str = "
function a($n) { return $n ? a($n - 1) + strlen(str_repeat('x', $n)) : 0; }
function b($n) {
    $list = [3, 1, 2];
    usort($list, fn ($x, $y) => $x <=> $y);
    foreach ((function () { yield 1; yield 2; })() as $i) { $n += $i; }
    return $n > 20 ? $n : b($n);
}
function main() { echo \"ready\\n\"; while (true) { a(20); b(1); eval('$x = 1;'); } }
main();
";

#[test]
fn a_process_that_runs_all_the_time_passes_the_check() {
    if !has_php() {
        return;
    }
    for options in OPTIONS {
        let program = start(&[options, &["-r", BUSY]].concat());
        for _ in 0..10 {
            let mut found = Err(Refusal::NotRunning);
            // A process that waits for a CPU may be between two functions for some milliseconds.
            until(|| {
                found = program.detect::<Found>();
                !matches!(found, Err(Refusal::NotRunning))
            });
            let found = found.unwrap_or_else(|error| panic!("{options:?}: {error}"));
            assert_eq!(found.expect("PHP").version(), "PHP 8.2");
        }
    }
}

#[test]
fn a_process_without_an_interpreter_has_none() {
    let mut child = Command::new("sleep").arg("1000").spawn().unwrap();
    let pid = child.id() as i32;
    until(|| MappedFiles::open(pid).is_ok_and(|files| files.images().len() >= 2));
    let files = MappedFiles::open(pid).unwrap();
    let memory = ProcessMemory::new(pid, Budget { bytes: 1 << 20, calls: 1000 });
    let found = detect(&Process { images: &files.images(), threads: &[pid], memory: &memory });
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(matches!(found, Ok(None)));
}
