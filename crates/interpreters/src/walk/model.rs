//! The model of the program that walks at a sample. It serves the tests of that program, and reads
//! frames of threads that do not run.

use super::{
    Behind, END_OF_ADDRESSES, Frame, MAX_LIST, MAX_UNREADABLE, Next, Start, Status, WalkCopy,
    WalkDescriptor,
};
use crate::memory::{Memory, ReadError};

/// Registers of a thread that a walk begins from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Thread {
    /// Its thread pointer (fsbase).
    pub pointer: u64,
    /// Its frame pointer.
    pub frame: u64,
    /// It is the first one of its process.
    pub is_first: bool,
}

/// Walks the frames of a thread. Only a thread that does not run has the frames that this finds:
/// its memory is read bit by bit.
pub fn run(walk: &WalkDescriptor, thread: Thread, memory: &dyn Memory) -> WalkCopy {
    let mut copy = WalkCopy::nothing();
    copy.status = frames(walk, thread, memory, &mut copy).unwrap_or(Status::Fault);
    copy
}

fn frames(
    walk: &WalkDescriptor,
    thread: Thread,
    memory: &dyn Memory,
    copy: &mut WalkCopy,
) -> Result<Status, ReadError> {
    for start in &walk.starts {
        copy.object = object(start, thread, memory)?;
        if copy.object != 0 {
            break;
        }
    }
    let mut p = follow(copy.object, &walk.path, memory)?;
    if p == 0 {
        return Ok(Status::Nothing);
    }
    copy.first = p;
    let end = match walk.next {
        Next::Pointer { .. } | Next::Marked { .. } => 0,
        Next::Array { base, count, unit, .. } => {
            let items = memory.word(at(copy.object, count))?;
            memory.word(at(copy.object, base))?.wrapping_add(items.wrapping_mul(unit.into()))
        }
    };
    let mut unreadable = 0;
    for _ in 0..walk.most {
        let frame = frame(walk, p, memory, &mut unreadable)?;
        copy.bytes.extend_from_slice(&frame);
        p = walk.next.of(&Frame { address: p, bytes: &frame });
        if p == end {
            return Ok(Status::Complete);
        }
    }
    Ok(Status::TooMany)
}

/// The object that a start finds, or 0.
fn object(start: &Start, thread: Thread, memory: &dyn Memory) -> Result<u64, ReadError> {
    match start {
        Start::FramePointer => Ok(thread.frame),
        Start::FirstThread { object } => Ok(if thread.is_first { *object } else { 0 }),
        Start::ThreadPointer { path } => follow(thread.pointer, path, memory),
        Start::Shared { pointer, key } => {
            let object = memory.word(*pointer)?;
            let is_own = object != 0 && memory.word(at(object, *key))? == thread.pointer;
            Ok(if is_own { object } else { 0 })
        }
        Start::List { pointer, next, key } => {
            let mut object = memory.word(*pointer)?;
            for left in (0..MAX_LIST).rev() {
                if object == 0 || memory.word(at(object, *key))? == thread.pointer {
                    return Ok(object);
                }
                if left > 0 {
                    object = memory.word(at(object, *next))?;
                }
            }
            Ok(0)
        }
    }
}

/// The end of a path of pointers; 0 if one of them is.
fn follow(from: u64, path: &[i32], memory: &dyn Memory) -> Result<u64, ReadError> {
    let mut p = from;
    for offset in path {
        if p == 0 {
            break;
        }
        p = memory.word(at(p, *offset))?;
    }
    Ok(p)
}

/// The blocks of a frame; counts those that cannot be read.
fn frame(
    walk: &WalkDescriptor,
    p: u64,
    memory: &dyn Memory,
    unreadable: &mut u32,
) -> Result<Vec<u8>, ReadError> {
    let mut frame = vec![0; walk.frame_size()];
    let mut copied = usize::from(walk.block.size);
    memory.read(at(p, walk.block.lo), &mut frame[..copied])?;
    for Behind { pointer, block } in &walk.behind {
        let from = word_in(&frame, *pointer);
        let bytes = &mut frame[copied..copied + usize::from(block.size)];
        copied += bytes.len();
        if from == 0 || from >= END_OF_ADDRESSES {
            continue;
        }
        if let Err(error) = memory.read(at(from, block.lo), bytes) {
            bytes.fill(0);
            *unreadable += 1;
            if *unreadable > MAX_UNREADABLE {
                return Err(error);
            }
        }
    }
    Ok(frame)
}

fn word_in(bytes: &[u8], place: u8) -> u64 {
    Frame { address: 0, bytes }.word(place.into())
}

fn at(address: u64, offset: i32) -> u64 {
    address.wrapping_add_signed(offset.into())
}

#[cfg(test)]
mod tests;
