//! What YJIT's code states of the innermost control frame.
//!
//! The frame has the next instruction only if the code has put it there (`jit_save_pc`), before calls
//! that need it; else the word has what was there before. Of 3.1, a frame is the innermost one before
//! its members are written (`gen_send_iseq`, `gen_send_cfunc` of `yjit_codegen.c`, which makes code for
//! x86-64 only); later versions write them first.

use super::{Offsets, Ruby};
use crate::merge::{CodeBefore, NativeStack};
use crate::{CodeKey, Runtime};

/// Most bytes of the instructions that write the members of a frame.
const MOST_ENTERING: usize = 64;

/// The code that executes the innermost control frame, if it is compiled.
pub(super) fn innermost<'n>(ruby: &Ruby, native: &'n NativeStack) -> Option<&'n CodeBefore> {
    let inside = |code: &&CodeBefore| {
        let frames = native.frames.get(..code.frame).unwrap_or_default();
        !frames.iter().any(|frame| ruby.evaluates(frame.address))
    };
    native.code.as_ref().filter(inside)
}

/// True if the code has made a control frame the innermost one and has not written all of its members.
pub(super) fn is_entering(code: &CodeBefore, offsets: &Offsets) -> bool {
    let Some(bytes) = code.bytes.filter(|_| !code.is_return && offsets.minor == 1) else {
        return false;
    };
    let (size, innermost) = (offsets.frame_size as u8, offsets.context_frame as u8);
    // sub %r13, size; mov %r13, innermost(%r12)
    let ruby = [0x49, 0x83, 0xed, size, 0x4d, 0x89, 0x6c, 0x24, innermost];
    // subq size, innermost(%r12)
    let c = [0x49, 0x83, 0x6c, 0x24, innermost, size];
    let after = |push: &[u8]| {
        let last = bytes.windows(push.len()).rposition(|window| window == push)?;
        Some(last + push.len())
    };
    let Some(start) = after(&ruby).max(after(&c)) else { return false };
    let written = &bytes[start..];
    let members = [offsets.frame_code, offsets.frame_environment];
    written.len() <= MOST_ENTERING
        && !members
            .iter()
            .all(|member| written.windows(4).any(|bytes| is_store(bytes, *member as u8)))
}

/// True for the beginning of a store of a word at a distance behind a register.
fn is_store(bytes: &[u8], distance: u8) -> bool {
    /// `mov` of a register, and of a constant.
    const MOVES: [u8; 2] = [0x89, 0xc7];
    /// The register is one of a pair.
    const PAIR: u8 = 4;
    bytes[0] & 0xfe == 0x48
        && MOVES.contains(&bytes[1])
        && bytes[2] & 0xc0 == 0x40
        && bytes[2] & 7 != PAIR
        && bytes[3] == distance
}

/// The key of the innermost frame, whose next instruction is stated to be this one.
pub(super) fn key(code: &CodeBefore, key: CodeKey, instruction: u64, offsets: &Offsets) -> CodeKey {
    match code.bytes {
        // It may be a frame of the past.
        None if !code.is_return && offsets.minor == 1 => {
            CodeKey { object: 0, identity: [0; 4], context: 0, position: CodeKey::UNKNOWN }
        }
        Some(bytes) if code.is_return && has_saved(&bytes, instruction) => key,
        _ => CodeKey { position: CodeKey::UNKNOWN, ..key },
    }
}

/// True if the code has saved an instruction for the call with which it ends.
fn has_saved(code: &[u8], instruction: u64) -> bool {
    /// Bytes of the call.
    const CALL: usize = 5;
    /// A call of a function, and one of a register.
    const CALLS: [u8; 2] = [0xe8, 0xff];
    let constant = instruction.to_le_bytes();
    // mov constant, %register
    let is_load = |at: usize| code[at] & 0xfe == 0x48 && code[at + 1] & 0xf8 == 0xb8;
    let last = code.windows(constant.len()).rposition(|window| window == constant);
    let Some(at) = last.filter(|at| *at >= 2 && is_load(at - 2)) else { return false };
    let between = code.get(at + constant.len()..code.len() - CALL).unwrap_or_default();
    !between.iter().any(|byte| CALLS.contains(byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of a method: `sub $0x40,%r13`, then what its frame needs, by YJIT 3.1.
    const PUSH: &[u8] = b"\x49\x83\xed\x40\x4d\x89\x6c\x24\x10\x48\x8b\x0b\x49\x89\x4d\x18\x48\x89\xc3\x49\x89\x45\x08\x49\x89\x45\x30\x48\x83\xe8\x08\x49\x89\x45\x20\x48\xb8\x18\x82\x31\x15\xb8\x7f\x00\x00\x49\x89\x45\x10\x49\xc7\x45\x28\x00\x00\x00\x00";
    /// Of a function in C: `subq $0x40,0x10(%r12)`, and so on.
    const PUSH_C: &[u8] = b"\x49\x83\x6c\x24\x10\x40\x49\x8b\x4c\x24\x10\x48\xc7\x01\x00\x00\x00\x00\x48\x89\x41\x08\x48\xc7\x41\x10\x00\x00\x00\x00\x48\xc7\x41\x28\x00\x00\x00\x00\x48\x89\x41\x30\x48\x83\xe8\x08\x48\x89\x41\x20\x48\x8b\x03";
    /// A call for which 0x559a29b93300 is saved.
    const CALL: &[u8] = b"\x48\xb8\x00\x33\xb9\x29\x9a\x55\x00\x00\x49\x89\x45\x00\x48\x8d\x5b\x08\x49\x89\x5d\x08\xe8\xec\x55\xa7\x00";

    fn before(code: &[u8], is_return: bool) -> CodeBefore {
        let mut bytes = [0x90; CodeBefore::SIZE];
        bytes[CodeBefore::SIZE - code.len()..].copy_from_slice(code);
        CodeBefore { frame: 0, is_return, bytes: Some(bytes) }
    }

    #[test]
    fn a_frame_is_entered_once_its_members_are_written() {
        let offsets = Offsets::for_minor(1).unwrap();
        let entering = |code: &[u8]| {
            let ends = 0..=code.len();
            let is_entering = |end: &usize| is_entering(&before(&code[..*end], false), offsets);
            ends.filter(is_entering).collect::<Vec<_>>()
        };
        assert_eq!(entering(PUSH), (9..49).collect::<Vec<_>>());
        assert_eq!(entering(PUSH_C), (6..50).collect::<Vec<_>>());
        assert!(!is_entering(&before(&PUSH[..20], true), offsets));
        assert!(!is_entering(&before(&PUSH[..20], false), Offsets::for_minor(3).unwrap()));
        assert!(!is_entering(&before(&[&PUSH[..9], &[0x90; 70]].concat(), false), offsets));
    }

    #[test]
    fn the_line_of_a_frame_is_known_if_its_code_has_saved_it_for_the_call() {
        let offsets = Offsets::for_minor(1).unwrap();
        let known =
            CodeKey { object: 8, identity: [1, 2, 3, 4], context: 0, position: 0x29b9_3300 };
        let unknown = CodeKey { position: CodeKey::UNKNOWN, ..known };
        let key = |code: &CodeBefore, instruction| key(code, known, instruction, offsets);
        assert_eq!(key(&before(CALL, true), 0x559a_29b9_3300), known);
        assert_eq!(key(&before(CALL, true), 0x559a_29b9_3308), unknown);
        assert_eq!(key(&before(CALL, false), 0x559a_29b9_3300), unknown);
        let other = [CALL, &CALL[14..]].concat();
        assert_eq!(key(&before(&other, true), 0x559a_29b9_3300), unknown);
        let unreadable = |is_return| CodeBefore { frame: 0, is_return, bytes: None };
        assert_eq!(key(&unreadable(true), 0x559a_29b9_3300), unknown);
        assert_eq!(key(&unreadable(false), 0x559a_29b9_3300).object, 0);
    }
}
