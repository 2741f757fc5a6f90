//! Checks a table of offsets against the process before it is used: a build may differ from the
//! releases of its version.
//!
//! The main thread has to be that of the VM, with the execution context to which the path of the walks
//! leads. Its frames lie in its stack, end at a root, and have names and lines. Each evaluation has a
//! tag. The process may run during the check, so a check that fails has to be
//! repeated.

use super::{Ruby, frames, names, runs};
use crate::memory::Memory;
use crate::walk::{self, Status, Thread, WalkCopy};
use crate::{ChainEnd, Name, Refusal, UserFrame};

/// Most frames whose code is checked.
const MAX_CODE: usize = 32;

/// Frames of a running thread that it rarely leaves.
const OUTERMOST: usize = 2;

/// Checks the offsets of a process, with at most `tries`.
#[cfg(any(test, feature = "testing"))]
pub(super) fn check(
    ruby: &Ruby,
    threads: &[i32],
    memory: &dyn Memory,
    tries: usize,
) -> Result<(), Refusal> {
    crate::tries::repeated(tries, || try_once(ruby, threads, memory))
}

/// The main thread: its thread pointer and its execution context.
fn main_thread(ruby: &Ruby, threads: &[i32], memory: &dyn Memory) -> Result<(u64, u64), Refusal> {
    let offsets = &ruby.offsets;
    let word = |address: u64, offset: u32| memory.word(address.wrapping_add(offset.into()));
    let vm = memory.word(ruby.symbols.vm)?;
    let thread = word(vm, offsets.vm_main_thread)?;
    if thread == 0 {
        return Err(Refusal::NotRunning);
    }
    if word(thread, offsets.thread_vm)? != vm {
        return Err(Refusal::Layout("the main thread is not one of the VM"));
    }
    let context = word(thread, offsets.thread_context)?;
    if context == 0 {
        return Err(Refusal::NotRunning);
    }
    if word(context, offsets.context_thread)? != thread {
        return Err(Refusal::Layout("an execution context is not that of its thread"));
    }
    let native = match offsets.thread_native {
        Some(native) => word(thread, native)?,
        None => thread,
    };
    let pointer = word(native, offsets.thread_id)?;
    let is_thread = match ruby.symbols.thread_number {
        Some(number) => {
            let number = memory.half(pointer.wrapping_add(number.into()))?;
            threads.contains(&(number as i32))
        }
        // The first word at a thread pointer is its own address (x86-64 psABI, variant II of TLS).
        None => memory.word(pointer)? == pointer,
    };
    if !is_thread {
        return Err(Refusal::Layout("the main thread is no thread of the process"));
    }
    Ok((pointer, context))
}

/// Checks the offsets of a process once.
///
/// # Errors
///
/// What is not as expected; the main thread has no frame.
pub(super) fn try_once(ruby: &Ruby, threads: &[i32], memory: &dyn Memory) -> Result<(), Refusal> {
    let (pointer, context) = main_thread(ruby, threads, memory)?;
    let thread = Thread { pointer, frame: 0, is_first: false };
    let run = || -> Vec<WalkCopy> {
        ruby.walks.iter().map(|walk| walk::run(walk, thread, memory)).collect()
    };
    let copies = run();
    if copies[0].object != context {
        return Err(Refusal::Layout("the way from a thread to its context is another one"));
    }
    let result = all_frames(ruby, &copies, memory);
    match result {
        Err(Refusal::Layout(_)) if run() != copies => running(ruby, &copies, memory),
        result => result,
    }
}

/// Checks all frames of a thread that does not run.
fn all_frames(ruby: &Ruby, copies: &[WalkCopy], memory: &dyn Memory) -> Result<(), Refusal> {
    check_stack(ruby, &copies[0], memory)?;
    let user = decoded(ruby, copies)?;
    if copies[1].status == Status::Fault || !runs::is_consistent(ruby, copies) {
        return Err(Refusal::Layout("evaluations do not end where frames state it"));
    }
    outermost(ruby, &user, MAX_CODE, memory)
}

/// Checks the outermost frames of a thread that runs.
fn running(ruby: &Ruby, copies: &[WalkCopy], memory: &dyn Memory) -> Result<(), Refusal> {
    check_stack(ruby, &copies[0], memory)?;
    let user = decoded(ruby, copies)?;
    if copies[1].status == Status::Fault {
        return Err(Refusal::Layout("the list of tags is another one"));
    }
    outermost(ruby, &user, OUTERMOST, memory)
}

/// Checks that frames lie in the stack.
fn check_stack(ruby: &Ruby, copy: &WalkCopy, memory: &dyn Memory) -> Result<(), Refusal> {
    let offsets = &ruby.offsets;
    let word = |offset: u32| memory.word(copy.object.wrapping_add(offset.into()));
    let (stack, size) = (word(offsets.context_stack)?, word(offsets.context_size)?);
    /// More words than a stack has (`RUBY_THREAD_VM_STACK_SIZE` is 1 MiB).
    const MOST: u64 = 1 << 28;
    let into = copy.first.wrapping_sub(stack);
    let frame = u64::from(offsets.frame_size);
    if size > MOST || into >= size * 8 || (size * 8 - into) % frame != 0 {
        return Err(Refusal::Layout("the frames of a thread are outside of its stack"));
    }
    Ok(())
}

fn decoded(ruby: &Ruby, copies: &[WalkCopy]) -> Result<Vec<UserFrame>, Refusal> {
    let mut user = Vec::new();
    match frames::decode(ruby, copies, None, &mut user).end {
        ChainEnd::Complete | ChainEnd::TooMany => {}
        ChainEnd::Nothing => return Err(Refusal::NotRunning),
        ChainEnd::Fault | ChainEnd::Damaged => {
            return Err(Refusal::Layout("the frames of a thread are others"));
        }
    }
    let has_code = user.iter().any(|frame| frame.code.identity[0] != 0);
    if has_code { Ok(user) } else { Err(Refusal::NotRunning) }
}

fn outermost(
    ruby: &Ruby,
    user: &[UserFrame],
    most: usize,
    memory: &dyn Memory,
) -> Result<(), Refusal> {
    let mut has_lines = false;
    for frame in user.iter().rev().take(most) {
        has_lines |= code(ruby, frame, memory)?;
    }
    // Only code that Ruby made itself has none.
    if has_lines { Ok(()) } else { Err(Refusal::Layout("no frame has a line")) }
}

/// Checks the code of a frame. True if it has a line.
fn code(ruby: &Ruby, frame: &UserFrame, memory: &dyn Memory) -> Result<bool, Refusal> {
    let code = match names::name(ruby, &frame.code, memory) {
        Name::Found(code) => code,
        Name::Gone => return Err(Refusal::Layout("a frame has no code")),
        Name::Unreadable(error) => return Err(error.into()),
    };
    if code.function.chars().chain(code.file.chars()).any(char::is_control) {
        return Err(Refusal::Layout("code has no name"));
    }
    if frame.code.identity[0] == 0 {
        return Ok(false);
    }
    let is_line = |line: u32| line < 10_000_000;
    let line = code.line(frame.code.position);
    if code.file.is_empty() || !is_line(code.first_line) || !line.is_none_or(is_line) {
        return Err(Refusal::Layout("a frame has no line"));
    }
    // Code begins with its first line, or a later one.
    if line.is_some_and(|line| line < code.first_line) {
        return Err(Refusal::Layout("a line is before the first line of its code"));
    }
    Ok(line.is_some())
}
