//! Derives frames of code without unwind information from its machine code.
//!
//! The instructions of a function are analysed from its beginning to an address, and from there to
//! its returns. If both results exist, they have to agree; an uncertain result counts only if a
//! direct call leads to the function. A value on the stack is never taken for a return address
//! because it looks like one.

use iced_x86::{Decoder, DecoderOptions, Instruction, Mnemonic};

use crate::code::CallTarget;

mod between;
mod budget;
mod cache;
mod delivery;
mod effect;
mod flow;
mod frame;
mod graph;
mod managed;
mod moved;
mod onward;
mod recent;
mod straight;
mod values;

pub use cache::CodeCache;
pub use delivery::{DeliveryContexts, contexts, delivers};
pub use frame::CodeFrame;
pub use managed::{leave_adapter, managed_rule, sized_frame};
pub use moved::Moved;
pub use straight::straight_rule;

/// Passes on the targets of direct calls, and addresses that are taken, in code at an address, in
/// about the first `most` bytes; returns the number of bytes that it read.
pub fn each_reference(
    bytes: &[u8],
    address: u64,
    most: usize,
    mut found: impl FnMut(u64),
) -> usize {
    let mut instruction = Instruction::default();
    // Decodes one after the other: call-like bytes inside an instruction do not count.
    let mut decoder = Decoder::with_ip(64, bytes, address, DecoderOptions::NONE);
    while decoder.can_decode() && decoder.position() < most {
        decoder.decode_out(&mut instruction);
        let target = match instruction.mnemonic() {
            Mnemonic::Call if instruction.is_call_near() => instruction.near_branch_target(),
            Mnemonic::Lea if instruction.is_ip_rel_memory_operand() => {
                instruction.ip_rel_memory_address()
            }
            _ => continue,
        };
        if target != instruction.next_ip() {
            found(target);
        }
    }
    decoder.position()
}

/// Longest call instruction, in bytes.
pub const LONGEST_CALL: u64 = 8;

/// True if the bytes before an address may be a call instruction.
pub fn is_after_call(before: &[u8], _address: u64) -> bool {
    ends_with_call(before)
}

/// The call instruction just before a return address.
pub fn call_before(before: &[u8], address: u64) -> Option<CallTarget> {
    let back = |n: usize| before.len().checked_sub(n).map(|at| before[at]);
    // In `call *disp32(%rax,%rbp,8)`, that byte belongs to the operand.
    let within = back(7) == Some(0xff) && back(6) == Some(0x94);
    if back(5) == Some(0xe8) && !within {
        let relative = i32::from_le_bytes(*before.last_chunk()?);
        return Some(CallTarget::Direct(address.wrapping_add_signed(relative.into())));
    }
    ends_with_call(before).then_some(CallTarget::Indirect)
}

/// True if the bytes before a return address end with a call instruction.
pub fn ends_with_call(before: &[u8]) -> bool {
    let back = |n: usize| before.len().checked_sub(n).map(|at| before[at]);
    if back(5) == Some(0xe8) {
        return true;
    }
    // `ff /2`: an indirect call, whose length depends on its operand.
    (2..=7).any(|n| {
        let (Some(0xff), Some(modrm)) = (back(n), back(n - 1)) else { return false };
        let mode = modrm >> 6;
        let rm = modrm & 7;
        let sib = if n > 2 { back(n - 2) } else { None };
        let with_sib = usize::from(mode != 3 && rm == 4);
        let displacement = match mode {
            0 if rm == 5 || (rm == 4 && sib.is_some_and(|s| s & 7 == 5)) => 4,
            1 => 1,
            2 => 4,
            _ => 0,
        };
        (modrm >> 3) & 7 == 2 && n == 2 + with_sib + displacement
    })
}

#[cfg(test)]
mod tests;

#[cfg(test)]
mod call_tests {
    use super::*;

    #[test]
    fn call_instructions_are_recognized_by_their_bytes() {
        for call in [
            &[0xe8, 1, 2, 3, 4][..],
            &[0xff, 0xd0],
            &[0x41, 0xff, 0xd4],
            &[0xff, 0x10],
            &[0xff, 0x15, 1, 2, 3, 4],
            &[0xff, 0x50, 8],
            &[0xff, 0x54, 0x24, 8],
            &[0xff, 0x90, 1, 2, 3, 4],
            &[0xff, 0x94, 0xc1, 1, 2, 3, 4],
            &[0xff, 0x14, 0xc5, 1, 2, 3, 4],
            &[0xff, 0x14, 0xc1],
        ] {
            let bytes = [&[0x90; 4][..], call].concat();
            assert!(ends_with_call(&bytes), "{call:x?}");
        }
        for other in [&[][..], &[0xff], &[0xff, 0xe0], &[0x90; 8], &[0xff, 0x15, 1, 2, 3]] {
            assert!(!ends_with_call(other), "{other:x?}");
        }
    }
}
