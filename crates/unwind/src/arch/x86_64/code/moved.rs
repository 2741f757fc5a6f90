//! Functions that align their stack pointer and then move it further: its distance from the frame
//! depends on the iterations of a loop (OpenSSL's hashes for AVX2). The original stack pointer is
//! saved at a fixed distance from the aligned one.

use crate::arch::SP;

use super::flow::{Base, Flow, FlowState, SymbolicValue};

/// Smallest alignment that makes the location unambiguous.
const LEAST: u32 = 256;

/// Location of a saved stack pointer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moved {
    /// Offset that was added to the original stack pointer before its alignment.
    before: i32,
    /// Mask of the alignment.
    mask: i32,
    /// Offset of the word from the aligned stack pointer.
    slot: i32,
    /// Offset of the saved value from the original stack pointer.
    value: i32,
}

impl Moved {
    /// From the state at an instruction.
    pub(super) fn new(state: &FlowState, flow: &Flow) -> Option<Moved> {
        state.memory.iter().find_map(|&((base, slot), value)| {
            let Base::Aligned(by) = base else { return None };
            let SymbolicValue::Offset(Base::Register(SP), value) = value else { return None };
            let (SymbolicValue::Offset(Base::Register(SP), before), mask) =
                *flow.aligned.get(&by)?
            else {
                return None;
            };
            let size = mask.unsigned_abs();
            let is_mask = mask < 0 && size.is_power_of_two() && size >= LEAST;
            is_mask.then_some(Moved { before, mask, slot, value })
        })
    }

    /// Address and value of the word. Within the alignment, there is one location above the stack
    /// pointer; and the word implies where the function saved it, which has to be that location.
    pub fn word(&self, sp: u64, read: impl FnOnce(u64) -> Result<u64, ()>) -> Option<(u64, u64)> {
        let offset = |n: i32| i64::from(n);
        let within = u64::from(self.mask.unsigned_abs()) - 1;
        let slot = offset(self.slot);
        let ahead = 0u64.wrapping_add_signed(slot).wrapping_sub(sp) & within;
        let at = sp.checked_add(ahead)?;
        let word = read(at).ok()?;
        let began = word.wrapping_add_signed(-offset(self.value));
        let aligned = began.wrapping_add_signed(offset(self.before)) & offset(self.mask) as u64;
        let is_there = aligned.wrapping_add_signed(slot) == at && began > at;
        is_there.then_some((at, word))
    }
}
