//! Frames of code whose function is unknown, but which leads straight to its return.

use iced_x86::{Decoder, DecoderOptions, InstructionInfoFactory};

use super::effect::{Effect, RegisterOp, Successor, effect, next};
use crate::AddressKind;
use crate::arch::x86_64::ReturnAddress;
use crate::arch::{BP, SP};
use crate::cfi::{Rule, Saved};

/// Most instructions up to the return.
const MOST: usize = 16;

/// The rule of the code at an instruction or return address, if it goes straight to a return and
/// finds its return address by the stack pointer alone; `code` begins at the address.
///
/// Calls are expected to leave the stack as it was. None may follow on a return address: the call
/// before that may never return, and what follows it may be another function.
pub fn straight_rule(code: &[u8], kind: AddressKind) -> Option<Rule> {
    let mut decoder = Decoder::new(64, code, DecoderOptions::NONE);
    let mut factory = InstructionInfoFactory::new();
    // The stack pointer, and the place where the frame pointer was popped, relative to the beginning.
    let mut sp = 0_i32;
    let mut popped = None;
    let mut is_called = kind.is_return();
    for _ in 0..MOST {
        let instruction = decoder.can_decode().then(|| decoder.decode())?;
        match next(&instruction) {
            Successor::Return if instruction.op_count() == 0 => {
                let cfa = sp.checked_add(8)?;
                let bp = popped.map_or(Some(Saved::Same), |at: i32| {
                    Some(Saved::FromCfa(at.checked_sub(cfa)?))
                });
                return Some(Rule::Offset { register: SP, cfa, bp: bp?, ra: ReturnAddress });
            }
            Successor::Call if !is_called => {
                is_called = true;
                continue;
            }
            Successor::Fall => {}
            _ => return None,
        }
        let Effect { lost, op } = effect(&instruction, &mut factory);
        let before = sp;
        match op {
            RegisterOp::Pop(BP) if popped.is_none() => {
                popped = Some(sp);
                sp = sp.checked_add(8)?;
            }
            RegisterOp::Pop(SP | BP) => return None,
            RegisterOp::Pop(_) => sp = sp.checked_add(8)?,
            RegisterOp::Push(_) | RegisterOp::PushWord { .. } => sp = sp.checked_sub(8)?,
            RegisterOp::Add { to: SP, add } | RegisterOp::Lea { to: SP, base: SP, add } => {
                sp = sp.checked_add(add)?;
            }
            RegisterOp::Copy { to, .. }
            | RegisterOp::Lea { to, .. }
            | RegisterOp::Load { to, .. }
            | RegisterOp::Add { to, .. }
            | RegisterOp::Set { to, .. }
                if ![SP, BP].contains(&to) => {}
            RegisterOp::Nothing => {}
            _ => return None,
        }
        // What was pushed may be popped again, but a return address is never below what was there.
        let is_lower = sp < before;
        if lost & (1 << SP | 1 << BP) != 0
            || (is_called && is_lower)
            || (is_lower && popped.is_some())
        {
            return None;
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(cfa: i32, bp: Saved) -> Option<Rule> {
        Some(Rule::Offset { register: SP, cfa, bp, ra: ReturnAddress })
    }

    /// `sub $8, %rsp; call *%rcx; add $8, %rsp; ret`.
    const TRAMPOLINE: [u8; 11] = [0x48, 0x83, 0xec, 8, 0xff, 0xd1, 0x48, 0x83, 0xc4, 8, 0xc3];

    #[test]
    fn a_trampoline_has_a_frame_at_each_of_its_instructions() {
        let at = |offset: usize| straight_rule(&TRAMPOLINE[offset..], AddressKind::Instruction);
        assert_eq!(at(0), rule(8, Saved::Same));
        assert_eq!(at(4), rule(16, Saved::Same));
        assert_eq!(at(6), rule(16, Saved::Same));
        assert_eq!(at(10), rule(8, Saved::Same));
        let after_call = straight_rule(&TRAMPOLINE[6..], AddressKind::Return);
        assert_eq!(after_call, rule(16, Saved::Same));
    }

    #[test]
    fn popped_registers_are_part_of_a_frame() {
        // push %rbp; mov %rsp,%rbp; call *%rcx; pop %rbp; ret
        let with_pointer = [0x55, 0x48, 0x89, 0xe5, 0xff, 0xd1, 0x5d, 0xc3];
        let found = straight_rule(&with_pointer[6..], AddressKind::Return);
        assert_eq!(found, rule(16, Saved::FromCfa(-16)));
        // Its frame pointer is set before the call.
        assert_eq!(straight_rule(&with_pointer[1..], AddressKind::Instruction), None);
        // add $24,%rsp; pop %rbx; pop %rbp; pop %r12; ret
        let pops = [0x48, 0x83, 0xc4, 24, 0x5b, 0x5d, 0x41, 0x5c, 0xc3];
        assert_eq!(straight_rule(&pops, AddressKind::Return), rule(56, Saved::FromCfa(-24)));
    }

    #[test]
    fn code_that_leads_elsewhere_has_no_frame() {
        for code in [
            // A jump, a branch, an exception, and no return in reach.
            &[0xeb, 0, 0xc3][..],
            &[0x74, 0, 0xc3],
            &[0xcc, 0xc3],
            &[0x90; 64],
            &[],
            // A second call, and the beginning of another function.
            &[0xff, 0xd1, 0xc3],
            &TRAMPOLINE,
            // By the frame pointer, by another register, and with words of the caller's.
            &[0xc9, 0xc3],
            &[0x48, 0x89, 0xdc, 0xc3],
            &[0x48, 0x29, 0xc4, 0xc3],
            &[0xc2, 8, 0],
        ] {
            assert_eq!(straight_rule(code, AddressKind::Return), None, "{code:x?}");
        }
    }
}
