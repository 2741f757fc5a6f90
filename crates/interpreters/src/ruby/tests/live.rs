//! Running programs, of the Ruby that the machine has.

use std::process::{Command, Stdio};

use super::*;
use crate::Interpreter;
use crate::ruby::check::check;
use crate::ruby::{Found, Offsets};
use crate::tests::running::{Program, until};
use crate::{Budget, MappedFiles};

const RUBY: &str = "/usr/bin/ruby";

/// True if the machine has a Ruby with a table.
fn is_supported() -> bool {
    let script =
        "exit RUBY_ENGINE == 'ruby' && %w[3.0 3.1 3.2 3.3].include?(RUBY_VERSION[/^\\d+\\.\\d+/])";
    let ended = Command::new(RUBY).args(["-e", script]).status();
    let is_supported = ended.is_ok_and(|status| status.success());
    if !is_supported {
        sys::testing::skip("there is no Ruby from 3.0 to 3.3");
    }
    is_supported
}

/// What may be read of a program each time.
const BUDGET: Budget = Budget { bytes: 64 << 20, calls: 1 << 20 };

fn start(command: &mut Command) -> Program {
    Program::start(command, BUDGET)
}

/// `known.rb`, when all of its threads wait.
fn known(arguments: &[&str]) -> Program {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/scripts/known.rb");
    ready(Command::new(RUBY).args(arguments).arg(script))
}

/// A program that has written `ready`.
fn ready(command: &mut Command) -> Program {
    let program = start(command);
    until(|| program.is_ready());
    program
}

#[test]
fn stacks_of_waiting_threads_are_those_that_the_program_states() {
    if !is_supported() {
        return;
    }
    let compiles = Command::new(RUBY).args(["--yjit", "-e", ""]).stderr(Stdio::null()).status();
    let modes: &[&[&str]] = match compiles {
        Ok(status) if status.success() => &[&[], &["--yjit", "--yjit-call-threshold=1"]],
        _ => &[&[]],
    };
    for arguments in modes {
        let program = known(arguments);
        let ruby = program.detect::<Found>().unwrap().expect("Ruby");
        let memory = program.memory();
        for (pointer, shape, expected) in stacks(&program.text()) {
            let (end, frames) = frames(&ruby, &copies(&ruby, pointer, &memory));
            assert_eq!(end, ChainEnd::Complete, "{arguments:?} {shape}");
            assert_eq!(lines(&ruby, &frames, &memory), expected, "{arguments:?} {shape}");
        }
    }
}

/// Changes of one offset that the check has to notice.
fn changes(offsets: &Offsets) -> Vec<(&'static str, Offsets)> {
    let changed = |name, change: fn(&mut Offsets)| {
        let mut offsets = offsets.clone();
        change(&mut offsets);
        (name, offsets)
    };
    vec![
        changed("vm_main_thread", |o| o.vm_main_thread += 8),
        changed("thread_vm", |o| o.thread_vm += 8),
        changed("thread_context", |o| o.thread_context += 8),
        changed("thread_id", |o| o.thread_id += 8),
        changed("context_thread", |o| o.context_thread += 8),
        changed("context_stack", |o| o.context_stack += 8),
        changed("context_size", |o| o.context_size += 8),
        changed("context_frame", |o| o.context_frame += 8),
        changed("context_tag", |o| o.context_tag += 8),
        changed("tag_buffer", |o| o.tag_buffer += 8),
        changed("frame_size", |o| o.frame_size -= 8),
        changed("frame_position", |o| o.frame_position += 8),
        changed("frame_code", |o| o.frame_code += 8),
        changed("frame_environment", |o| o.frame_environment += 8),
        changed("code_body", |o| o.code_body += 8),
        changed("body_size", |o| o.body_size -= 4),
        changed("body_instructions", |o| o.body_instructions += 8),
        changed("body_path", |o| o.body_path -= 8),
        changed("body_base_label", |o| o.body_base_label += 16),
        changed("body_label", |o| o.body_label += 8),
        changed("body_first_line", |o| o.body_first_line -= 8),
        changed("body_lines", |o| o.body_lines += 8),
        changed("body_line_count", |o| o.body_line_count += 8),
        changed("body_line_index", |o| o.body_line_index += 8),
        changed("method_definition", |o| o.method_definition += 8),
        changed("definition_name", |o| o.definition_name += 8),
    ]
}

#[test]
fn an_offset_that_is_changed_is_noticed() {
    if !is_supported() {
        return;
    }
    let program = known(&[]);
    let found = program.detect::<Found>().unwrap().expect("Ruby");
    let memory = program.memory();
    let threads = sys::procfs::threads(program.pid()).unwrap();
    let is_noticed = |offsets: Offsets| {
        let changed = Ruby::new(offsets, found.symbols.clone(), &memory);
        changed.and_then(|ruby| check(&ruby, &threads, &memory, 4)).is_err()
    };
    assert!(!is_noticed(found.offsets.clone()));
    let changes = changes(&found.offsets).into_iter();
    let missed: Vec<_> = changes.filter(|(_, o)| !is_noticed(o.clone())).map(|c| c.0).collect();
    assert!(missed.is_empty(), "{missed:?}");
}

/// Calls methods all the time: frames change while they are read.
const BUSY: &str = "
def a(n) = n > 0 ? a(n - 1) + [1, n].map { |x| x + 1 }.sum : 0
def b(n) = n > 0 ? [b(n - 1), 1].sort_by { |x| -x }[0] : 0
puts 'ready'
$stdout.flush
def run
  loop do
    a(20)
    b(10)
    begin
      raise 'x'
    rescue
      nil
    end
  end
end
run
";

#[test]
fn a_process_that_runs_all_the_time_passes_the_check() {
    if !is_supported() {
        return;
    }
    let program = ready(Command::new(RUBY).args(["-e", BUSY]));
    for _ in 0..20 {
        let found = program.detect::<Found>().unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(found.expect("Ruby").walks().len(), 2);
    }
}

#[test]
fn a_process_without_an_interpreter_has_none() {
    let program = start(Command::new("sleep").arg("1000"));
    until(|| MappedFiles::open(program.pid()).is_ok_and(|files| files.images().len() >= 2));
    assert!(matches!(program.detect::<Found>(), Ok(None)));
}

#[test]
fn a_file_that_evaluates_ruby_is_recognized() {
    if !is_supported() {
        return;
    }
    let program = known(&[]);
    let files = MappedFiles::open(program.pid()).unwrap();
    let found =
        files.images().iter().filter(|image| Interpreter::of_file(image.file).is_some()).count();
    assert_eq!(found, 1);
}
