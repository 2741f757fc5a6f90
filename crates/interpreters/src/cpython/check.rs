//! Checks a table of offsets against the process before it is used: a build may differ from the
//! releases of its version.
//!
//! Each thread state on the lists has to lead back to its interpreter. One of them has to be that of
//! a thread of the process, by the path that walks take, with frames up to the outermost one, whose
//! code has names and lines. The process may run during the check, so a check that fails
//! has to be repeated.

use std::collections::HashSet;

use super::runs::{ends_in_thread_state, is_consistent};
use super::{Cpython, frames, names};
use crate::memory::{Memory, ReadError};
use crate::walk::{self, Thread, WalkCopy};
use crate::{ChainEnd, Code, Lines, Name, Refusal, UserFrame};

/// Most thread states that are read.
const MAX_STATES: usize = 256;

/// Most frames of a thread whose code is checked.
const MAX_CODE: usize = 32;

/// A module that does not begin with its first line, as the compiler states from 3.11 on. No other
/// check has to do with first lines, so one such module is enough.
const FIRST_LINE: Refusal = Refusal::Layout("a module does not begin with its first line");

/// What a thread state shows.
enum Found {
    /// Frames that are right.
    Frames,
    /// A thread without frames.
    Nothing,
}

/// Checks the offsets of a process, with at most `tries`.
#[cfg(any(test, feature = "testing"))]
pub(super) fn check(
    cpython: &Cpython,
    threads: &[i32],
    memory: &dyn Memory,
    tries: usize,
) -> Result<(), Refusal> {
    let mut right = HashSet::new();
    crate::tries::repeated(tries, || try_once(cpython, threads, memory, &mut right))
}

/// Checks the offsets of a process once. `right`: thread states with frames that were right in one of
/// the tries. More threads have to be right than not: code may be changed in ways of which no check
/// knows.
///
/// # Errors
///
/// What is not as expected; no thread has a frame.
pub(super) fn try_once(
    cpython: &Cpython,
    threads: &[i32],
    memory: &dyn Memory,
    right: &mut HashSet<u64>,
) -> Result<(), Refusal> {
    let mut failures = Vec::new();
    let states = states(cpython, memory)?;
    right.retain(|state| states.contains(state));
    let open = states.iter().copied().filter(|state| !right.contains(state));
    for state in open.collect::<Vec<u64>>() {
        match thread(cpython, state, threads, memory) {
            Ok(Found::Frames) => {
                right.insert(state);
            }
            Err(FIRST_LINE) => return Err(FIRST_LINE),
            Err(error) => failures.push(error),
            Ok(Found::Nothing) => {}
        }
    }
    match failures.pop() {
        Some(error) if failures.len() >= right.len() => Err(error),
        None if right.is_empty() => Err(Refusal::NotRunning),
        _ => Ok(()),
    }
}

/// The thread states of all interpreters.
fn states(cpython: &Cpython, memory: &dyn Memory) -> Result<Vec<u64>, Refusal> {
    let offsets = &cpython.offsets;
    let word = |address: u64, offset: u32| memory.word(address.wrapping_add(offset.into()));
    let mut states = Vec::new();
    let mut interpreter = word(cpython.symbols.runtime, offsets.first_interpreter)?;
    let mut interpreters = 0;
    while interpreter != 0 {
        let mut state = word(interpreter, offsets.first_thread)?;
        while state != 0 {
            if word(state, offsets.interpreter)? != interpreter {
                return Err(Refusal::Layout("a thread state is not of its interpreter"));
            }
            states.push(state);
            if states.len() == MAX_STATES {
                return Ok(states);
            }
            state = word(state, offsets.next_thread)?;
        }
        interpreters += 1;
        if interpreters == MAX_STATES {
            return Ok(states);
        }
        interpreter = word(interpreter, offsets.next_interpreter)?;
    }
    Ok(states)
}

fn thread(
    cpython: &Cpython,
    state: u64,
    threads: &[i32],
    memory: &dyn Memory,
) -> Result<Found, Refusal> {
    let offsets = &cpython.offsets;
    let pointer = memory.word(state.wrapping_add(offsets.thread_id.into()))?;
    if !is_thread(cpython, state, pointer, threads, memory)? {
        return Err(Refusal::Layout("a thread state is of no thread of the process"));
    }
    let thread = Thread { pointer, frame: 0, is_first: false };
    let copies: Vec<WalkCopy> =
        cpython.walks.iter().map(|walk| walk::run(walk, thread, memory)).collect();
    if copies[0].object != state {
        // A thread may have several states, one for each interpreter, of which one is its key's.
        let is_a_state = copies[0].object != 0
            && memory.word(copies[0].object.wrapping_add(offsets.thread_id.into()))? == pointer;
        let other = Refusal::Layout("the way from a thread to its state is another one");
        return if is_a_state { Ok(Found::Nothing) } else { Err(other) };
    }
    let result = all_frames(cpython, &copies, memory);
    let Err(Refusal::Layout(_)) = result else { return result };
    let again = walk::run(&cpython.walks[0], thread, memory);
    if again == copies[0] { result } else { outermost_frames(cpython, &copies, memory) }
}

/// Checks all frames of a thread that does not run.
fn all_frames(
    cpython: &Cpython,
    copies: &[WalkCopy],
    memory: &dyn Memory,
) -> Result<Found, Refusal> {
    let mut user = Vec::new();
    match frames::decode(cpython, copies, &mut user).end {
        ChainEnd::Nothing => return Ok(Found::Nothing),
        ChainEnd::Complete | ChainEnd::TooMany => {}
        ChainEnd::Fault | ChainEnd::Damaged => {
            return Err(Refusal::Layout("the list of a thread's frames is another one"));
        }
    }
    if !is_consistent(cpython, copies) {
        return Err(Refusal::Layout("evaluations do not end where frames state it"));
    }
    // Before a call, there are instructions that load what is called.
    if user.iter().skip(1).any(|frame| frame.code.position == 0) {
        return Err(Refusal::Layout("a caller is at its first instruction"));
    }
    for frame in user.iter().rev().take(MAX_CODE) {
        code(cpython, frame, memory)?;
    }
    Ok(if user.is_empty() { Found::Nothing } else { Found::Frames })
}

/// Checks the outermost frames of a thread that runs, which it does not leave.
fn outermost_frames(
    cpython: &Cpython,
    copies: &[WalkCopy],
    memory: &dyn Memory,
) -> Result<Found, Refusal> {
    /// Frames of a running thread that it rarely leaves: of a module and its main function.
    const OUTERMOST: usize = 2;
    let user = frames::outermost(cpython, &copies[0], OUTERMOST);
    let user =
        user.ok_or(Refusal::Layout("the list of a running thread's frames is another one"))?;
    if !ends_in_thread_state(cpython, copies) {
        return Err(Refusal::Layout("the list of evaluations does not end in the thread state"));
    }
    for frame in &user {
        code(cpython, frame, memory)?;
    }
    Ok(if user.is_empty() { Found::Nothing } else { Found::Frames })
}

/// True if a thread state is that of a thread of the process.
fn is_thread(
    cpython: &Cpython,
    state: u64,
    pointer: u64,
    threads: &[i32],
    memory: &dyn Memory,
) -> Result<bool, ReadError> {
    let is_own = |number: u32| threads.contains(&(number as i32));
    if let Some(native) = cpython.offsets.native_id
        && !is_own(memory.half(state.wrapping_add(native.into()))?)
    {
        return Ok(false);
    }
    match cpython.threads {
        Some(layout) => Ok(is_own(memory.half(pointer.wrapping_add(layout.tid.into()))?)),
        // The first word at a thread pointer is its own address (x86-64 psABI, variant II of TLS).
        None => Ok(memory.word(pointer)? == pointer),
    }
}

/// Checks the code object of a frame.
fn code(cpython: &Cpython, frame: &UserFrame, memory: &dyn Memory) -> Result<(), Refusal> {
    let code = match names::name(cpython, &frame.code, memory) {
        Name::Found(code) => code,
        Name::Gone => return Err(Refusal::Layout("a frame has no code object")),
        Name::Unreadable(error) => return Err(error.into()),
    };
    if code.function.is_empty() || code.file.chars().any(char::is_control) {
        return Err(Refusal::Layout("a code object has no name"));
    }
    if !names::has_one_name(cpython, &frame.code, &code.function, memory) {
        return Err(Refusal::Layout("a code object has two names"));
    }
    let Some(size) = names::bytecode_size(cpython, &frame.code, memory)? else {
        return Err(Refusal::Layout("a code object has no bytecode"));
    };
    let position = frame.code.position;
    if position != crate::CodeKey::NOT_BEGUN && u64::from(position) >= size {
        return Err(Refusal::Layout("a frame's position is outside of its code"));
    }
    // One line has no pairs.
    let has_lines_of_all = matches!(code.lines, Lines::Pairs(_)) || !code.lines.is_empty();
    if !has_lines_of_all || code.lines.code_size().is_some_and(|covered| covered != size) {
        return Err(Refusal::Layout("a line table is not that of its code"));
    }
    if code.function == "<module>" && code.first_line != 1 && cpython.offsets.minor >= 11 {
        return Err(FIRST_LINE);
    }
    if !has_lines(&code, position) {
        return Err(Refusal::Layout("a frame has no line"));
    }
    Ok(())
}

/// True if the first line of a code object and the line of a position in it can be right.
fn has_lines(code: &Code, position: u32) -> bool {
    let is_line = |line| (1..10_000_000).contains(&line);
    // Code of 3.8 and 3.9 has a line at each position.
    let has_all = matches!(code.lines, Lines::Pairs(_));
    is_line(code.first_line) && code.line(position).map_or(!has_all, is_line)
}
