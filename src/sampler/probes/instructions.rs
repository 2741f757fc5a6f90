//! Boundaries of instructions, and the instructions that the kernel emulates at a probe.

use std::os::unix::fs::FileExt;
use std::path::Path;

use crate::sampler::arch;
use sys::foreign;

/// Longest part of a function that is decoded.
const MAX_BYTES: u64 = 1 << 20;

/// The instruction at a location in code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum At {
    /// The kernel emulates the instruction: a probe here is cheap.
    Emulated,
    /// The kernel single-steps a copy of the instruction.
    Stepped,
    /// The middle of an instruction: a breakpoint there would corrupt the program.
    Middle,
    /// An instruction that cannot be decoded.
    Unknown,
}

/// Offset from the start of a function (at `offset`) of the cheapest probe with the same view:
/// behind [`arch::ENTRY_MARK`].
pub fn entry(path: &Path, offset: u64) -> u64 {
    const LENGTH: usize = arch::ENTRY_MARK.len();
    let mut code = [0; LENGTH];
    let read = foreign::open(path).and_then(|file| file.read_exact_at(&mut code, offset));
    let marked = read.is_ok() && LENGTH > 0 && code == *arch::ENTRY_MARK;
    let behind = LENGTH as u64;
    if marked && at(path, offset, behind) == At::Emulated { behind } else { 0 }
}

/// The instruction `into` bytes behind the start of a function at `offset` of a file.
pub fn at(path: &Path, offset: u64, into: u64) -> At {
    if into > MAX_BYTES {
        return At::Unknown;
    }
    let mut code = vec![0; (into + arch::LONGEST_INSTRUCTION) as usize];
    let Ok(read) = foreign::open(path).and_then(|file| file.read_at(&mut code, offset)) else {
        return At::Unknown;
    };
    arch::instruction_at(&code[..read], into)
}
