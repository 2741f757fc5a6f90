//! Frames of code without unwind information, from its instructions.

use super::effect::AX;
use super::flow::{Base, Flow, FlowState, SymbolicValue, returned};
use super::graph::Graph;
use super::onward::{Onward, Source};
use crate::arch::{BP, SP};
use crate::cfi::KnownRegisters;
use crate::code::Proof;
use crate::module::Step;
use crate::{AddressKind, CodeAddress};
use sys::FileAddress;

/// Callee-saved registers: rbx, rbp, r12 to r15.
pub const KEPT: [u8; 6] = [3, BP, 12, 13, 14, 15];

/// Location of a caller's register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SavedAt {
    /// Unchanged.
    Same,
    /// In memory, at the canonical frame address (CFA) plus an offset.
    Cfa(i32),
    /// In memory, at a register plus an offset.
    Register(u8, i32),
    /// Nowhere.
    Lost,
}

/// Rule for finding the caller's frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CodeFrame {
    /// The frame has no caller.
    Outermost,
    /// The CFA is a register (or the word at an offset from it) plus a number.
    Inner { base: u8, at: Option<i32>, add: i32, kept: [SavedAt; KEPT.len()], proof: Proof },
}

impl CodeFrame {
    /// Its certainty; `None` if it has no caller.
    pub fn proof(&self) -> Option<Proof> {
        match *self {
            CodeFrame::Outermost => None,
            CodeFrame::Inner { proof, .. } => Some(proof),
        }
    }

    /// True if the function keeps a frame pointer, and has set it up.
    pub fn has_pointer(&self) -> bool {
        let rbp = KEPT.iter().position(|&r| r == BP).expect("it is kept");
        matches!(self, CodeFrame::Inner { base: BP, at: None, add: 16, kept, .. }
            if kept[rbp] == SavedAt::Cfa(-16))
    }

    /// True if its caller is found by the frame pointer.
    pub fn needs_pointer(&self) -> bool {
        matches!(self, CodeFrame::Inner { base: BP, .. })
    }

    /// One step up. `registers` become the caller's as far as those can be determined; those in
    /// memory only if they are `wanted`.
    pub fn step(
        &self,
        registers: &mut KnownRegisters,
        wanted: impl Fn(u8) -> bool,
        read: &mut dyn FnMut(u64) -> Result<u64, ()>,
    ) -> Step {
        let &CodeFrame::Inner { base, at, add, kept, .. } = self else { return Step::End };
        let Some(start) = registers.get(base) else { return Step::NeedsRegisters };
        let start = match at.map(|at| start.wrapping_add_signed(at.into())) {
            None => start,
            Some(slot) => match read(slot) {
                Ok(word) => word,
                Err(()) => return Step::Unreadable(slot),
            },
        };
        let cfa = start.wrapping_add_signed(add.into());
        if registers.get(SP).is_none_or(|sp| cfa <= sp) {
            return Step::Failed;
        }
        let slot = cfa.wrapping_sub(8);
        let ip = match read(slot) {
            Err(()) => return Step::Unreadable(slot),
            Ok(0) => return Step::NoCaller,
            Ok(ip) => ip,
        };
        let mut caller = KnownRegisters::NONE;
        for (register, at) in KEPT.into_iter().zip(kept) {
            let slot = match at {
                SavedAt::Lost => continue,
                SavedAt::Cfa(_) | SavedAt::Register(..) if !wanted(register) => continue,
                SavedAt::Same => {
                    if let Some(value) = registers.get(register) {
                        caller.set(register, value);
                    }
                    continue;
                }
                SavedAt::Cfa(at) => Some(cfa.wrapping_add_signed(at.into())),
                SavedAt::Register(base, at) => {
                    registers.get(base).map(|value| value.wrapping_add_signed(at.into()))
                }
            };
            if let Some(Ok(value)) = slot.map(&mut *read) {
                caller.set(register, value);
            }
        }
        caller.set(SP, cfa);
        caller.set_ip(ip);
        *registers = caller;
        Step::Caller(ip)
    }
}

/// Distance of the CFA, which is just above the return address, from the initial stack pointer.
#[derive(Clone, Copy)]
struct CfaAt(i32);

impl CfaAt {
    /// Where a function's caller has put the return address.
    const USUAL: CfaAt = CfaAt(8);

    /// Offset of a value from the CFA.
    fn of(self, value: SymbolicValue) -> Option<i32> {
        match value {
            SymbolicValue::Offset(Base::Register(SP), at) => at.checked_sub(self.0),
            _ => None,
        }
    }
}

/// The frame by the state at an instruction, on a path from the function's beginning.
pub fn from_start(state: &FlowState) -> Option<CodeFrame> {
    if let Some(moved) = by_moved_return(state) {
        return Some(moved);
    }
    let proof = match state.cloned {
        false => Proof::Code,
        true if state.registers[usize::from(AX)] == SymbolicValue::Offset(Base::Made, 0) => {
            Proof::Maker
        }
        true => return None,
    };
    frame_at(state, CfaAt::USUAL, proof)
}

/// Distance in bytes from the stack pointer up to the frame pointer, if the code has set one up.
pub fn pointer(state: &FlowState) -> Option<u32> {
    let [sp, bp] = [SP, BP].map(|register| state.registers[usize::from(register)]);
    u32::try_from(bp.from(sp)?).ok()
}

/// The frame of code that has moved its return address, if its frame pointer leads there.
fn by_moved_return(state: &FlowState) -> Option<CodeFrame> {
    let cfa = CfaAt(state.moved_return()?.checked_add(8)?);
    let frame = frame_at(state, cfa, Proof::Moved)?;
    (!state.cloned && frame.has_pointer()).then_some(frame)
}

fn frame_at(state: &FlowState, cfa: CfaAt, proof: Proof) -> Option<CodeFrame> {
    let (base, at, add) = cfa_in(state, cfa)?;
    let kept = KEPT.map(|register| kept_in(state, cfa, register));
    Some(CodeFrame::Inner { base, at, add, kept, proof })
}

fn cfa_in(state: &FlowState, cfa: CfaAt) -> Option<(u8, Option<i32>, i32)> {
    let order = [BP, SP].into_iter().chain((0..16).filter(|r| ![BP, SP].contains(r)));
    let value_of = |r: u8| state.registers[usize::from(r)];
    for register in order {
        if let Some(at) = cfa.of(value_of(register)) {
            return Some((register, None, at.checked_neg()?));
        }
    }
    // After an alignment, a word of the stack contains the previous stack pointer.
    state.memory.iter().find_map(|&((base, at), value)| {
        let add = cfa.of(value)?.checked_neg()?;
        let (register, at) = near(state, base, at)?;
        Some((register, Some(at), add))
    })
}

/// Registers of the frame from which a location can be reached.
fn near(state: &FlowState, base: Base, at: i32) -> Option<(u8, i32)> {
    [SP, BP].into_iter().find_map(|register| match state.registers[usize::from(register)] {
        SymbolicValue::Offset(b, here) if b == base => Some((register, at.checked_sub(here)?)),
        _ => None,
    })
}

fn kept_in(state: &FlowState, cfa: CfaAt, register: u8) -> SavedAt {
    let original = SymbolicValue::Offset(Base::Register(register), 0);
    if state.registers[usize::from(register)] == original {
        return SavedAt::Same;
    }
    let saved = state.memory.iter().filter(|(_, value)| *value == original);
    let mut found = saved.filter_map(|&((base, at), _)| match base {
        Base::Register(SP) => at.checked_sub(cfa.0).map(SavedAt::Cfa),
        _ => near(state, base, at).map(|(register, at)| SavedAt::Register(register, at)),
    });
    found.next().unwrap_or(SavedAt::Lost)
}

/// The frame by all paths to a return.
#[derive(Clone, Copy, Debug)]
pub struct ToReturn {
    pub frame: CodeFrame,
    /// A path leads there without a call, which might never return.
    pub is_certain: bool,
}

/// The frame by the paths from an instruction to its function's returns; `None` if no path leads
/// there, or the stack pointer is unknown on some. `Err` if they disagree.
pub fn to_return(paths: &Onward) -> Result<Option<ToReturn>, ()> {
    if paths.disagrees {
        return Err(());
    }
    let (base, at, add) = match paths.sp {
        Source::Register(register, add) => (register, None, add),
        Source::Word { base, at, add } => (base, Some(at), add),
        Source::Unknown | Source::Frame(_) => return Ok(None),
    };
    let Some(add) = add.checked_add(8) else { return Ok(None) };
    let mut kept = [SavedAt::Lost; KEPT.len()];
    for (i, register) in KEPT.into_iter().enumerate() {
        kept[i] = kept_at_return(paths, register, paths.kept[i]);
    }
    let frame = CodeFrame::Inner { base, at, add, kept, proof: Proof::Code };
    Ok(Some(ToReturn { frame, is_certain: paths.is_certain }))
}

fn kept_at_return(paths: &Onward, register: u8, source: Source) -> SavedAt {
    match source {
        Source::Register(r, 0) if r == register => SavedAt::Same,
        // The code has not written the word yet.
        Source::Word { base: SP, at: ..0, .. } => SavedAt::Lost,
        Source::Word { base, at, add: 0 } => match paths.sp {
            Source::Register(r, end) if r == base => end
                .checked_add(8)
                .and_then(|end| at.checked_sub(end))
                .map_or(SavedAt::Lost, SavedAt::Cfa),
            _ => SavedAt::Register(base, at),
        },
        Source::Frame(at) => SavedAt::Cfa(at),
        _ => SavedAt::Lost,
    }
}

/// True if both derivations of a frame agree; `None` if that is undecidable.
pub fn agree(state: &FlowState, other: &CodeFrame) -> Option<bool> {
    let &CodeFrame::Inner { base, at, add, .. } = other else { return None };
    let start = state.registers[usize::from(base)];
    let start = match (at, start) {
        (None, value) => value,
        (Some(offset), SymbolicValue::Offset(base, from)) => {
            state.word((base, from.checked_add(offset)?))
        }
        (Some(_), SymbolicValue::Unknown) => SymbolicValue::Unknown,
    };
    match start {
        SymbolicValue::Unknown => None,
        value => Some(CfaAt::USUAL.of(value).and_then(|at| at.checked_add(add)) == Some(0)),
    }
}

/// The frame by a path from its function's beginning, completed with the registers of the other
/// derivation.
pub fn joined(frame: CodeFrame, other: &CodeFrame) -> CodeFrame {
    match (frame, other) {
        (
            CodeFrame::Inner { base, at, add, mut kept, proof },
            CodeFrame::Inner { kept: more, .. },
        ) => {
            let lost = kept.iter_mut().zip(more).filter(|(k, _)| **k == SavedAt::Lost);
            lost.for_each(|(k, more)| *k = *more);
            CodeFrame::Inner { base, at, add, kept, proof }
        }
        _ => frame,
    }
}

/// The same frame, but a call has to prove it.
pub fn by_call(frame: CodeFrame) -> CodeFrame {
    match frame {
        CodeFrame::Inner { base, at, add, kept, .. } => {
            CodeFrame::Inner { base, at, add, kept, proof: Proof::Call }
        }
        CodeFrame::Outermost => CodeFrame::Outermost,
    }
}

/// State at an address of a graph, before the instruction there, or after the call before it.
pub fn state_at(
    graph: &Graph,
    flow: &Flow,
    CodeAddress { address: FileAddress(address), kind }: CodeAddress,
) -> Option<FlowState> {
    match kind {
        AddressKind::Instruction => flow.before(graph, graph.at(address)?),
        AddressKind::Return => flow.before(graph, graph.call_before(address)?).map(returned),
    }
}
