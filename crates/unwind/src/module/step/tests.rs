//! Steps by rules, by frame pointers and out of signals.

use super::*;
use crate::arch::ReturnAddress;

fn reader(start: u64, words: &[u64]) -> impl FnMut(u64) -> Result<u64, ()> {
    move |a| words.get((a.wrapping_sub(start) / 8) as usize).copied().ok_or(())
}

#[test]
fn a_signal_frame_leads_to_what_was_interrupted() {
    let mut stack = [0u64; 32];
    stack[15..=21].copy_from_slice(&[7, 3, 0, 0, 0, 0x9000, 0x1234]);
    let mut read = reader(0x100, &stack);
    let mut regs = Regs { ip: 1, sp: 0x100, bp: 1 };
    assert_eq!(interrupted(&mut regs, &mut read), Step::Interrupted(0x1234));
    assert_eq!(regs, Regs { ip: 0x1234, sp: 0x9000, bp: 7 });
    let mut all = KnownRegisters::NONE;
    all.set(SP, 0x100);
    assert_eq!(restored(&mut all, &mut read), Step::Interrupted(0x1234));
    assert_eq!((all.get(SP), all.get(BP), all.get(3)), (Some(0x9000), Some(7), Some(3)));
}

#[test]
fn frame_pointers_are_followed_upwards_only() {
    let mut read = reader(0x100, &[0x120u64, 0x1111, 0, 0, 0x130, 0x2222, 0, 0]);
    let mut regs = Regs { ip: 0, sp: 0x100, bp: 0x100 };
    assert_eq!(frame_pointer_step(&mut regs, &mut read), Step::Caller(0x1111));
    assert_eq!((regs.sp, regs.bp), (0x110, 0x120));
    assert_eq!(frame_pointer_step(&mut regs, &mut read), Step::Caller(0x2222));
    assert_eq!(frame_pointer_step(&mut regs, &mut read), Step::NoCaller);
    for (bp, step) in [(0x100, Step::Failed), (0, Step::Failed), (0x900, Step::Unreadable(0x908))] {
        let mut regs = Regs { ip: 0, sp: 0x200, bp };
        assert_eq!(frame_pointer_step(&mut regs, &mut read), step);
    }
}

/// gcc keeps the caller's stack pointer of an aligned frame below its frame pointer.
#[test]
fn a_rule_may_read_where_the_frame_begins() {
    let mut read = reader(0x100, &[0, 0x138, 0x77, 0, 0, 0, 0x4444, 0]);
    let bp = Saved::FromBp(0);
    let at = -8;
    let rule = Rule::Deref { register: BP, at, cfa: 0, bp, ra: ReturnAddress };
    let mut regs = Regs { ip: 0, sp: 0x100, bp: 0x110 };
    assert_eq!(by_rule(rule, AddressKind::Return, &mut regs, &mut read), Step::Caller(0x4444));
    assert_eq!(regs, Regs { ip: 0x4444, sp: 0x138, bp: 0x77 });
}

#[test]
fn rules_lead_up_or_nowhere() {
    let mut read = reader(0x100, &[0x1111, 0, 0x3333]);
    let offset = |register, cfa| Rule::Offset { register, cfa, bp: Saved::Same, ra: ReturnAddress };
    for (rule, step) in [
        (offset(SP, 8), Step::Caller(0x1111)),
        (offset(SP, 16), Step::NoCaller),
        (offset(SP, 0), Step::Failed),
        (offset(SP, -8), Step::Failed),
        (offset(SP, 64), Step::Unreadable(0x138)),
        (offset(10, 8), Step::NeedsRegisters),
        (Rule::Outermost, Step::End),
        (Rule::Switched, Step::NoCaller),
    ] {
        let mut regs = Regs { ip: 0, sp: 0x100, bp: 0 };
        assert_eq!(by_rule(rule, AddressKind::Instruction, &mut regs, &mut read), step, "{rule:?}");
    }
}
