//! One step up a stack, by a rule, by the frame pointer, or out of a signal frame.

use crate::AddressKind;
use crate::arch::{self, BP, SP};
use crate::cfi::{KnownRegisters, Rule, Saved};
use sys::record::Regs;

/// Result of one step up a stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// The return address; the registers are the caller's.
    Caller(u64),
    /// A signal frame: the code at this address was interrupted.
    Interrupted(u64),
    /// This frame is the thread's entry: its unwind information marks it as outermost.
    End,
    /// The return address is zero, or on another stack: this stack was made by a program and begins
    /// here.
    NoCaller,
    /// Memory at this address is needed but not available.
    Unreadable(u64),
    /// The rule leads nowhere.
    Failed,
    /// The code has no unwind information.
    Uncovered,
    /// The same as a caller, but its frame pointer is unknown, and is 0.
    CallerOnly(u64),
    /// The registers that lead to the caller may have been replaced by those of an exception's
    /// handler.
    Delivering,
    /// The step needs a register that is unknown here.
    NeedsRegisters,
    /// The step needs the frame pointer, which is unknown (0): the thread's registers were read from
    /// outside.
    NeedsPointer,
}

/// One step up by a rule.
pub fn by_rule(
    rule: Rule,
    kind: AddressKind,
    regs: &mut Regs,
    read: &mut impl FnMut(u64) -> Result<u64, ()>,
) -> Step {
    let base = |register: u8| match register {
        SP => Ok(regs.sp),
        BP if regs.bp == 0 => Err(Step::NeedsPointer),
        BP => Ok(regs.bp),
        _ => Err(Step::NeedsRegisters),
    };
    let (cfa, bp, ra) = match rule {
        Rule::Offset { register, cfa, bp, ra } => match base(register) {
            Ok(base) => (base.wrapping_add_signed(cfa.into()), bp, ra),
            Err(step) => return step,
        },
        Rule::Deref { register, at, cfa, bp, ra } => {
            let slot = match base(register) {
                Ok(base) => base.wrapping_add_signed(at.into()),
                Err(step) => return step,
            };
            let Ok(word) = read(slot) else { return Step::Unreadable(slot) };
            (word.wrapping_add_signed(cfa.into()), bp, ra)
        }
        Rule::Outermost => return Step::End,
        Rule::Switched => return Step::NoCaller,
        Rule::Delivering(contexts) => {
            return contexts.map_or(Step::Delivering, |c| c.step(regs, read));
        }
        Rule::Uncovered => return Step::Uncovered,
        Rule::Evaluate => return Step::NeedsRegisters,
    };
    let Some(ra) = ra.slot(cfa) else { return Step::NeedsRegisters };
    if cfa <= regs.sp {
        return Step::Failed;
    }
    let slot = match bp {
        Saved::Same => None,
        Saved::FromCfa(at) => Some(cfa.wrapping_add_signed(at.into())),
        Saved::FromBp(_) if regs.bp == 0 => return Step::NeedsPointer,
        Saved::FromBp(at) => Some(regs.bp.wrapping_add_signed(at.into())),
    };
    let caller_bp = match slot.map(|slot| (slot, read(slot))) {
        None => regs.bp,
        Some((_, Ok(word))) => word,
        // In epilogues, unwind information may still refer to the slots of popped registers, and
        // memory below the stack pointer is not preserved.
        Some((slot, Err(()))) if !kind.is_return() && slot < regs.sp => regs.bp,
        Some((slot, Err(()))) => return Step::Unreadable(slot),
    };
    match read(ra).map(arch::code_address) {
        Err(()) => Step::Unreadable(ra),
        Ok(0) => Step::NoCaller,
        Ok(ip) => {
            *regs = Regs { ip, sp: cfa, bp: caller_bp };
            Step::Caller(ip)
        }
    }
}

/// The same where not all registers are known; only the stack and frame pointers are afterwards.
pub fn by_rule_in(
    rule: Rule,
    kind: AddressKind,
    registers: &mut KnownRegisters,
    read: &mut impl FnMut(u64) -> Result<u64, ()>,
) -> Step {
    let Some(sp) = registers.get(SP) else { return Step::Failed };
    let bp = registers.get(BP);
    let mut regs = Regs { ip: 0, sp, bp: bp.unwrap_or(0) };
    let Rule::Offset { register: SP, bp: saved, .. } = rule else { return Step::Failed };
    if let Saved::FromBp(_) = saved {
        return Step::Failed;
    }
    let step = by_rule(rule, kind, &mut regs, read);
    if let Step::Caller(_) = step {
        *registers = KnownRegisters::NONE;
        registers.set(SP, regs.sp);
        let bp = if saved == Saved::Same { bp } else { Some(regs.bp) };
        bp.into_iter().for_each(|bp| registers.set(BP, bp));
    }
    step
}

/// One step out of a signal frame. Its unwind information takes many reads, and not all C libraries
/// have it.
pub(super) fn interrupted(regs: &mut Regs, read: &mut impl FnMut(u64) -> Result<u64, ()>) -> Step {
    let mut at = |offset: u64| read(regs.sp.wrapping_add(offset));
    match (at(arch::SIGNAL_IP), at(arch::SIGNAL_SP), at(arch::SIGNAL_BP)) {
        (Ok(ip), Ok(sp), Ok(bp)) => {
            *regs = Regs { ip, sp, bp };
            Step::Interrupted(ip)
        }
        _ => Step::Unreadable(regs.sp.wrapping_add(arch::SIGNAL_IP)),
    }
}

/// The same with all registers.
pub(super) fn restored(
    registers: &mut KnownRegisters,
    read: &mut impl FnMut(u64) -> Result<u64, ()>,
) -> Step {
    let Some(sp) = registers.get(SP) else { return Step::Failed };
    *registers = KnownRegisters::NONE;
    let mut ip = 0;
    for (i, number) in arch::SIGNAL_REGISTERS.into_iter().enumerate() {
        let slot = sp.wrapping_add(arch::SIGNAL_FIRST + i as u64 * 8);
        let Ok(word) = read(slot) else { return Step::Unreadable(slot) };
        registers.set(number, word);
        ip = word;
    }
    Step::Interrupted(ip)
}

/// One step along frame pointers, for code without unwind information.
pub fn frame_pointer_step(regs: &mut Regs, read: &mut impl FnMut(u64) -> Result<u64, ()>) -> Step {
    let bp = regs.bp;
    let Some(sp) = arch::caller_sp(bp).filter(|&sp| sp > regs.sp) else { return Step::Failed };
    let (Ok(caller_bp), Ok(ip)) = (read(bp), read(bp + 8)) else {
        return Step::Unreadable(bp + 8);
    };
    let ip = arch::code_address(ip);
    if ip == 0 {
        return Step::NoCaller;
    }
    *regs = Regs { ip, sp, bp: caller_bp };
    Step::Caller(ip)
}

#[cfg(test)]
mod tests;
