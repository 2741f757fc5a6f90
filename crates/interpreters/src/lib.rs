//! The user's own functions of interpreted programs: which interpreter a process has, which of its
//! structures are to be copied at a sample, and what these bytes mean: functions, files and lines.
//!
//! An interpreter is recognized by the files that its process has mapped ([`Process`]); a table of
//! offsets is checked against the process before it is used. The copy is made by a program at the
//! sample, which a [`WalkDescriptor`](walk::WalkDescriptor) describes as data; decoding it reads no
//! memory. Names are read later ([`Memory`]), and only of code that is still what it was at the
//! sample.
//!
//! It opens no event, contains no program of the kernel, prints nothing, and neither guesses a frame
//! nor a name. All that it reads of a process may be hostile: lengths are bounded by tables of its
//! own.

mod candidate;
pub mod cpython;
#[cfg(feature = "testing")]
pub mod glibc;
#[cfg(not(feature = "testing"))]
mod glibc;
pub mod hotspot;
mod images;
mod interpreter;
mod lines;
mod memory;
pub mod merge;
pub mod php;
pub mod ruby;
#[cfg(test)]
mod tests;
#[cfg(any(test, feature = "testing"))]
mod tries;
pub mod v8;
pub mod walk;

use std::fmt;
use std::ops::Range;

pub use candidate::Candidate;
pub use images::{LoadedImage, MappedFiles, Process};
pub use interpreter::Interpreter;
pub use lines::{IndexedLines, Lines};
pub use memory::{Budget, Memory, ProcessMemory, ReadError};
#[cfg(any(test, feature = "testing"))]
pub use memory::{Recorded, Recorder};
use merge::{Merge, NativeStack};
use sys::record::AllRegs;
use walk::{WalkCopy, WalkDescriptor};

/// An interpreter in a process.
pub trait Runtime: Send + Sync {
    /// Its name and version, as in `CPython 3.11`.
    fn version(&self) -> String;

    /// What is to be copied of a thread at a sample: one copy for each walk, in this order.
    fn walks(&self) -> &[WalkDescriptor];

    /// The user's frames of a sample, the innermost first, and how their chain ends.
    fn frames(&self, copied: Copied<'_>, out: &mut Vec<UserFrame>) -> ChainEnd;

    /// Where the user's frames belong among the native ones of the same sample. They are added to
    /// `frames`, as by [`Runtime::frames`], with the positions that native frames have.
    fn merge(&self, copied: Copied<'_>, native: &NativeStack, frames: &mut Vec<UserFrame>)
    -> Merge;

    /// The function that executes the user's functions, in all of its parts, of which the first one has
    /// its beginning: which of its many instructions is executing does not distinguish stacks. Empty if
    /// it has none of that kind.
    fn evaluation(&self) -> &[Range<u64>] {
        &[]
    }

    /// True for addresses of [`Runtime::evaluation`].
    fn evaluates(&self, address: u64) -> bool {
        self.evaluation().iter().any(|part| part.contains(&address))
    }

    /// The frames of the user's that a frame of machine code executes.
    fn executed(&self, code: &CodeKey, memory: &dyn Memory) -> Executed {
        let _ = (code, memory);
        Executed::Itself
    }

    /// Names a code object that was copied at a sample, if it is still the same.
    fn name(&self, code: &CodeKey, memory: &dyn Memory) -> Name;

    /// How its compiled code is called; `None`: it has none, or it is left like other code.
    fn compiled_code(&self) -> Option<CompiledCode> {
        None
    }

    /// HotSpot, whose frames are native ones, and need no walk.
    fn hotspot(&self) -> Option<&hotspot::HotSpot> {
        None
    }
}

/// How the evaluation function calls code that the interpreter has compiled. That code keeps no frame
/// pointers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CompiledCode {
    /// It jumps there, and the code has its frame. The code is in shared memory.
    Jumped {
        /// An address of it, in the middle of its code.
        from: u64,
    },
    /// A function in this range calls it. The code pushes a few registers.
    Called {
        /// Addresses.
        from: Range<u64>,
    },
}

/// What was copied at a sample.
#[derive(Clone, Copy, Debug)]
pub struct Copied<'a> {
    /// One copy for each walk.
    pub walks: &'a [WalkCopy],
    /// Registers of the thread in user mode.
    pub registers: AllRegs<'a>,
}

/// A code object at the time of a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CodeKey {
    /// Its address.
    pub object: u64,
    /// Words of it that were read at the sample, or mixes of them; those that the interpreter does not
    /// need are 0. Another object at the same address has others.
    pub identity: [u64; 4],
    /// A word of the frame that distinguishes code which was at the same address with the same words at
    /// different times; 0: there is none.
    pub context: u64,
    /// Position of the instruction that was executing, as [`Lines`] of the code have it: in bytes from
    /// the first one, [`CodeKey::NOT_BEGUN`] before it; in Ruby, the low half of its address.
    pub position: u32,
}

impl CodeKey {
    /// The position in code of which no instruction has been executed yet.
    pub const NOT_BEGUN: u32 = u32::MAX;
    /// An unknown position: that of machine code, which has no line then.
    pub const UNKNOWN: u32 = u32::MAX - 1;
}

/// A frame of the user's program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UserFrame {
    /// Its address in the process.
    pub address: u64,
    /// Its code.
    pub code: CodeKey,
    /// It is the outermost of those that one native frame of the interpreter executes.
    pub is_entry: bool,
}

/// The user's frames that a frame executes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Executed {
    /// The frame itself: its position is one of the interpreter's.
    Itself,
    /// Positions of the interpreter's, the innermost first: those of functions that a compiler has
    /// inlined into the frame's, then its own. There is at least that one.
    Frames(Vec<CodeKey>),
    /// The same, for samples of this time: machine code with another meaning may have the same key later.
    Momentary(Vec<CodeKey>),
    /// Memory of the process cannot be read now: the frame's function at an unknown position.
    Unreadable(CodeKey),
}

/// How a chain of the user's frames ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChainEnd {
    /// With the outermost frame.
    Complete,
    /// There are more frames than are copied.
    TooMany,
    /// Memory of the next frame could not be read.
    Fault,
    /// The copied bytes are no frames of this interpreter; no frame was decoded.
    Damaged,
    /// The thread executes no code of the interpreter.
    Nothing,
}

/// What a code object is, or why that is unknown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Name {
    /// Its names and lines.
    Found(Code),
    /// Another object is at its address now, or none.
    Gone,
    /// Its memory cannot be read now.
    Unreadable(ReadError),
}

/// Names and lines of a code object. A line is found without memory of the process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Code {
    /// The function, with classes and functions around it where the interpreter has them.
    pub function: String,
    /// Its file as the interpreter has it; empty if its name is too long.
    pub file: String,
    /// The line at which it begins.
    pub first_line: u32,
    /// Its line table.
    pub lines: Lines,
}

impl Code {
    /// The line of a position ([`CodeKey::position`]); `None` for instructions without a line.
    pub fn line(&self, position: u32) -> Option<u32> {
        match position {
            CodeKey::NOT_BEGUN => Some(self.first_line),
            CodeKey::UNKNOWN => None,
            _ => self.lines.line(self.first_line, position),
        }
    }
}

/// Why the user's functions of an interpreter are not shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// There is no table of offsets for this version: its name.
    Version(String),
    /// A build in which threads run without a global lock: its name.
    FreeThreaded(String),
    /// It runs no code yet, or does not any more: try again later.
    NotRunning,
    /// Its structures are not what the table of offsets states: what was found instead.
    Layout(&'static str),
    /// Memory of the process could not be read.
    Memory(ReadError),
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::Version(name) => write!(f, "{name} is not supported"),
            Refusal::FreeThreaded(name) => {
                write!(f, "{name} without a global lock (free-threaded) is not supported")
            }
            Refusal::NotRunning => f.write_str("the interpreter runs no code at this time"),
            Refusal::Layout(found) => {
                write!(f, "the interpreter's structures are not as in its releases: {found}")
            }
            Refusal::Memory(error) => error.fmt(f),
        }
    }
}

impl From<ReadError> for Refusal {
    fn from(error: ReadError) -> Refusal {
        Refusal::Memory(error)
    }
}
