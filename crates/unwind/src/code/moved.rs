//! Functions that align their stack pointer and go on moving it: how far it is from the frame,
//! depends on how often a loop went round (OpenSSL's hashes for AVX2). What the stack pointer was
//! at the beginning lies at a fixed distance from where it was aligned.

use crate::cfi::SP;

use super::flow::{Base, Flow, State, Value};

/// The smallest alignment that says where to look.
const LEAST: u32 = 256;

/// Where a function has put what its stack pointer was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moved {
    /// What was added to the stack pointer of the beginning before it was aligned.
    before: i32,
    /// The bits that were kept.
    mask: i32,
    /// Where the word is, from there on.
    slot: i32,
    /// What was added to the stack pointer of the beginning before it was put there.
    value: i32,
}

impl Moved {
    /// What the state at an instruction says.
    pub fn new(state: &State, flow: &Flow) -> Option<Moved> {
        state.memory.iter().find_map(|&((base, slot), value)| {
            let Base::Aligned(by) = base else { return None };
            let Value::Of(Base::Register(SP), value) = value else { return None };
            let (Value::Of(Base::Register(SP), before), mask) = *flow.aligned.get(&by)? else {
                return None;
            };
            let size = mask.unsigned_abs();
            let is_mask = mask < 0 && size.is_power_of_two() && size >= LEAST;
            is_mask.then_some(Moved { before, mask, slot, value })
        })
    }

    /// Address and value of the word. There is one place from the stack pointer on within the
    /// alignment; and the word says where the function would have put it, which has to be there.
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
