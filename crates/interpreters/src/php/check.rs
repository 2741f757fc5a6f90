//! Checks a table of offsets against the process before it is used: a build may differ from the
//! releases of its version.
//!
//! The frames of the process have to lead to the code that it began with; each has to have a function
//! with names, whose instructions are executed by the evaluation function, with the one that a frame
//! has stored among them. The process may run during the check, so a check that fails has to be
//! repeated.

use super::Php;
use super::frames::{Decoded, Kind, decode};
use super::names;
use crate::memory::Memory;
use crate::walk::{self, Status, Thread, WalkCopy};
use crate::{ChainEnd, Copied, Name, Refusal};
use sys::record::AllRegs;

/// Most frames whose functions are checked.
const MAX_FRAMES: usize = 32;

/// Frames of a running process that it rarely leaves.
const OUTERMOST: usize = 2;

/// Kinds of the last instruction of a function: JMP, RETURN, EXIT, THROW, RETURN_BY_REF,
/// HANDLE_EXCEPTION, GENERATOR_RETURN, FAST_RET, VERIFY_NEVER_TYPE (`zend_vm_opcodes.h`).
const LAST: [u8; 9] = [42, 62, 79, 108, 111, 149, 161, 163, 201];

/// Checks the offsets of a process, with at most `tries`.
#[cfg(any(test, feature = "testing"))]
pub(super) fn check(php: &Php, memory: &dyn Memory, tries: usize) -> Result<(), Refusal> {
    crate::tries::repeated(tries, || try_once(php, memory))
}

/// Checks the offsets of a process once.
///
/// # Errors
///
/// What is not as expected; there is no frame.
pub(super) fn try_once(php: &Php, memory: &dyn Memory) -> Result<(), Refusal> {
    let copy = walk(php, memory);
    let frames = frames(php, &copy)?;
    // Frames that a running process has left in the meantime say nothing.
    let result = functions(php, frames.iter().rev().take(MAX_FRAMES), memory);
    if result.is_ok() || walk(php, memory) == copy {
        return result;
    }
    functions(php, frames.iter().rev().take(OUTERMOST), memory)
}

fn walk(php: &Php, memory: &dyn Memory) -> WalkCopy {
    walk::run(&php.walks[0], Thread { pointer: 0, frame: 0, is_first: true }, memory)
}

/// The frames of a copy that ends as chains do.
fn frames(php: &Php, copy: &WalkCopy) -> Result<Vec<Decoded>, Refusal> {
    let copies = [copy.clone()];
    let chain = decode(php, Copied { walks: &copies, registers: AllRegs::default() });
    match (chain.end, copy.status) {
        (ChainEnd::Nothing, _) => return Err(Refusal::NotRunning),
        (ChainEnd::Complete | ChainEnd::TooMany, _) => {}
        (_, Status::Fault) => {
            return Err(Refusal::Layout("a pointer of a frame leads to memory that is not mapped"));
        }
        _ => return Err(Refusal::Layout("a frame has no function")),
    }
    let Some(last) = chain.frames.last() else { return Err(Refusal::NotRunning) };
    // Only functions in C are called from outside without an evaluation.
    let begins = last.user.is_entry || last.function.kind == Kind::Internal;
    if chain.end == ChainEnd::Complete && !begins {
        return Err(Refusal::Layout("the outermost frame does not begin an evaluation"));
    }
    if chain.frames.iter().all(|frame| frame.function.kind == Kind::Internal) {
        return Err(Refusal::NotRunning);
    }
    Ok(chain.frames)
}

/// Checks the functions of frames.
fn functions<'a>(
    php: &Php,
    frames: impl Iterator<Item = &'a Decoded>,
    memory: &dyn Memory,
) -> Result<(), Refusal> {
    for frame in frames {
        function(php, frame, memory)?;
    }
    Ok(())
}

fn function(php: &Php, frame: &Decoded, memory: &dyn Memory) -> Result<(), Refusal> {
    let code = match names::name(php, &frame.user.code, memory) {
        Name::Found(code) => code,
        Name::Gone => return Err(Refusal::Layout("a function has no name")),
        Name::Unreadable(error) => return Err(error.into()),
    };
    if frame.function.kind == Kind::Internal {
        return Ok(());
    }
    let is_text = |text: &str| !text.is_empty() && !text.chars().any(char::is_control);
    if !is_text(&code.file) || !is_text(&code.function) {
        return Err(Refusal::Layout("a file has no name"));
    }
    if !frame.is_innermost && code.line(frame.user.code.position).is_none() {
        return Err(Refusal::Layout("a frame's instruction is outside of its function"));
    }
    if !LAST.contains(&names::last_kind(php, &frame.function, memory)?) {
        return Err(Refusal::Layout("a function has no last instruction"));
    }
    // Whether they are interpreted says nothing: a compiler of machine code may have replaced all.
    let instructions = names::instructions(php, &frame.function, memory)?;
    let lines = frame.function.line..=frame.function.end;
    let inside =
        instructions.iter().filter(|instruction| lines.contains(&instruction.line)).count();
    if inside * 2 < instructions.len() {
        return Err(Refusal::Layout("a function has no instructions"));
    }
    Ok(())
}
