//! Contents of registers and of the stack at one instruction, as far as frames depend on them.

use super::super::effect::{AX, Effect, RegisterOp, SCRATCH};
use super::super::frame::KEPT;
use super::super::graph::NONE;
use super::From;
use crate::arch::{BP, SP};

/// Most tracked words of the stack in a state; one takes 24 bytes.
const MAX_WORDS: usize = 32;

/// `clone` and `clone3`.
const CLONE: [i32; 2] = [56, 435];

/// Base of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Base {
    /// None: the value is a number.
    Zero,
    /// The initial value of a register.
    Register(u8),
    /// The stack pointer after its alignment by this instruction.
    Aligned(u32),
    /// The result of a system call that created a thread or a process: 0 in the new one.
    Made,
    /// The return address.
    Return,
}

/// The place of the return address at the beginning of a function.
const RETURN_AT: (Base, i32) = (Base::Register(SP), 0);

/// Symbolic value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SymbolicValue {
    Unknown,
    Offset(Base, i32),
}

impl SymbolicValue {
    const RETURN: SymbolicValue = SymbolicValue::Offset(Base::Return, 0);

    fn plus(self, add: i32) -> SymbolicValue {
        match self {
            SymbolicValue::Offset(base, at) => at
                .checked_add(add)
                .map_or(SymbolicValue::Unknown, |at| SymbolicValue::Offset(base, at)),
            SymbolicValue::Unknown => SymbolicValue::Unknown,
        }
    }

    /// True if frames depend on words with this value: stack pointers, the return address, and what
    /// the caller had in registers that are restored.
    fn counts(self) -> bool {
        match self {
            SymbolicValue::RETURN => true,
            SymbolicValue::Offset(Base::Register(SP) | Base::Aligned(_), _) => true,
            SymbolicValue::Offset(Base::Register(r), 0) => KEPT.contains(&r),
            _ => false,
        }
    }

    /// Distance from another address, if it is known.
    pub fn from(self, other: SymbolicValue) -> Option<i32> {
        match (self, other) {
            (SymbolicValue::Offset(a, at), SymbolicValue::Offset(b, from))
                if a == b && a != Base::Zero =>
            {
                at.checked_sub(from)
            }
            _ => None,
        }
    }
}

/// A word of memory: its location and value.
type Word = ((Base, i32), SymbolicValue);

/// State at one instruction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlowState {
    /// By DWARF's numbers.
    pub registers: [SymbolicValue; 16],
    /// Written words that count, by location; sorted.
    pub memory: Vec<Word>,
    /// The last written word, if it does not count.
    last: Option<Word>,
    /// On a path to here a thread was created, which has another stack.
    pub cloned: bool,
    /// The latest call on a path to here, if there is one on each.
    pub(super) through: u32,
    /// On a path to here the return address is not, or no more, in [`RETURN_AT`].
    is_overwritten: bool,
}

impl FlowState {
    /// The state at the beginning of an analysis.
    pub(super) fn first(from: From) -> FlowState {
        FlowState {
            registers: std::array::from_fn(|r| SymbolicValue::Offset(Base::Register(r as u8), 0)),
            memory: Vec::new(),
            last: None,
            cloned: false,
            through: NONE,
            is_overwritten: from == From::Within,
        }
    }

    pub(super) fn get(&self, register: u8) -> SymbolicValue {
        self.registers[usize::from(register)]
    }

    fn set(&mut self, register: u8, value: SymbolicValue) {
        self.registers[usize::from(register)] = value;
    }

    pub(super) fn find(&self, place: (Base, i32)) -> Option<SymbolicValue> {
        if let Some((_, value)) = self.last.filter(|(at, _)| *at == place) {
            return Some(value);
        }
        if place == RETURN_AT && !self.is_overwritten {
            return Some(SymbolicValue::RETURN);
        }
        let found = self.memory.binary_search_by_key(&place, |w| w.0);
        found.ok().map(|i| self.memory[i].1)
    }

    /// Distance of the return address from the initial stack pointer, if the code has moved it.
    pub fn moved_return(&self) -> Option<i32> {
        let is_live = |at: i32| match self.get(SP) {
            SymbolicValue::Offset(Base::Register(SP), sp) => at >= sp,
            _ => true,
        };
        let mut found = self.memory.iter().filter_map(|&((base, at), value)| {
            let is_one = base == Base::Register(SP) && value == SymbolicValue::RETURN;
            (is_one && is_live(at)).then_some(at)
        });
        let is_moved = |at: &i32| self.is_overwritten && *at != RETURN_AT.1;
        let at = found.next().filter(is_moved)?;
        found.next().is_none().then_some(at)
    }

    /// The word at a location.
    pub fn word(&self, place: (Base, i32)) -> SymbolicValue {
        self.find(place).unwrap_or(SymbolicValue::Unknown)
    }

    fn load(&self, base: u8, at: i32) -> SymbolicValue {
        match self.get(base).plus(at) {
            SymbolicValue::Offset(base, at) if base != Base::Zero => self.word((base, at)),
            _ => SymbolicValue::Unknown,
        }
    }

    fn store(&mut self, base: u8, at: i32, size: u16, value: SymbolicValue) {
        let SymbolicValue::Offset(base, at) = self.get(base).plus(at) else { return };
        // Partly overwritten words are lost.
        let first = at.saturating_sub(7);
        let end = at.saturating_add(i32::from(size));
        let stays = |&((b, a), _): &Word| b != base || a < first || a >= end;
        self.memory.retain(stays);
        self.last = self.last.filter(stays);
        self.is_overwritten |= !stays(&(RETURN_AT, SymbolicValue::RETURN));
        if size != 8 || value == SymbolicValue::Unknown {
            return;
        }
        if !value.counts() {
            self.last = Some(((base, at), value));
        } else if self.memory.len() < MAX_WORDS {
            let place = self.memory.partition_point(|w| w.0 < (base, at));
            self.memory.insert(place, ((base, at), value));
        }
    }

    fn push(&mut self, value: SymbolicValue) {
        self.set(SP, self.get(SP).plus(-8));
        self.store(SP, 0, 8, value);
    }

    fn pop(&mut self) -> SymbolicValue {
        let value = self.load(SP, 0);
        self.set(SP, self.get(SP).plus(8));
        value
    }

    /// Executes an instruction.
    pub(super) fn apply(&mut self, node: u32, Effect { lost, op }: Effect) {
        (0..16).filter(|r| lost & 1 << r != 0).for_each(|r| self.set(r, SymbolicValue::Unknown));
        match op {
            RegisterOp::Nothing => {}
            RegisterOp::Push(from) => {
                self.push(from.map_or(SymbolicValue::Unknown, |r| self.get(r)));
            }
            RegisterOp::PushWord { base, at } => {
                let word = self.load(base, at);
                self.push(word);
            }
            RegisterOp::Pop(to) => {
                let word = self.pop();
                self.set(to, word);
            }
            RegisterOp::Copy { to, from } => self.set(to, self.get(from)),
            RegisterOp::Lea { to, base, add } => self.set(to, self.get(base).plus(add)),
            RegisterOp::Load { to, base, at } => {
                let word = self.load(base, at);
                self.set(to, word);
            }
            RegisterOp::Store { from, base, at, size } => {
                self.store(base, at, size, from.map_or(SymbolicValue::Unknown, |r| self.get(r)));
            }
            RegisterOp::Add { to, add } => self.set(to, self.get(to).plus(add)),
            RegisterOp::Set { to, value } => {
                let value = i32::try_from(value).map(|v| SymbolicValue::Offset(Base::Zero, v));
                self.set(to, value.unwrap_or(SymbolicValue::Unknown));
            }
            RegisterOp::SetLow { to, value } => match self.get(to) {
                SymbolicValue::Offset(Base::Zero, v) => {
                    self.set(to, SymbolicValue::Offset(Base::Zero, v & !0xff | i32::from(value)));
                }
                _ => self.set(to, SymbolicValue::Unknown),
            },
            RegisterOp::Align { to, .. } => {
                let aligned = matches!(self.get(to), SymbolicValue::Offset(Base::Aligned(_), _));
                let value = if aligned {
                    SymbolicValue::Unknown
                } else {
                    SymbolicValue::Offset(Base::Aligned(node), 0)
                };
                self.set(to, value);
            }
            RegisterOp::Leave => {
                self.set(SP, self.get(BP));
                let word = self.pop();
                self.set(BP, word);
            }
            RegisterOp::Swap(a, b) => self.registers.swap(a.into(), b.into()),
            RegisterOp::Syscall => {
                let makes = matches!(self.get(AX), SymbolicValue::Offset(Base::Zero, n) if CLONE.contains(&n));
                self.cloned |= makes;
                // The kernel returns its result in rax, and uses rcx and r11.
                [2, 11].into_iter().for_each(|r| self.set(r, SymbolicValue::Unknown));
                self.set(
                    AX,
                    if makes {
                        SymbolicValue::Offset(Base::Made, 0)
                    } else {
                        SymbolicValue::Unknown
                    },
                );
            }
        }
    }

    /// Merges the state of another path into this one. True if information was lost.
    pub(super) fn join(&mut self, other: &FlowState) -> bool {
        let mut changed = false;
        for (value, other) in self.registers.iter_mut().zip(other.registers) {
            if *value != other && *value != SymbolicValue::Unknown {
                *value = SymbolicValue::Unknown;
                changed = true;
            }
        }
        let before = self.memory.len();
        let mut others = other.memory.iter().peekable();
        self.memory.retain(|word| {
            while others.next_if(|o| o.0 < word.0).is_some() {}
            others.peek() == Some(&word)
        });
        changed |= self.memory.len() != before;
        if self.last.is_some() && self.last != other.last {
            self.last = None;
            changed = true;
        }
        changed |= other.cloned && !self.cloned;
        self.cloned |= other.cloned;
        changed |= other.is_overwritten && !self.is_overwritten;
        self.is_overwritten |= other.is_overwritten;
        if other.through == NONE && self.through != NONE {
            self.through = NONE;
            changed = true;
        }
        changed
    }
}

/// State after a call, given the state before it.
pub fn returned(mut state: FlowState) -> FlowState {
    for register in (0..16).filter(|r| SCRATCH & 1 << r != 0) {
        state.set(register, SymbolicValue::Unknown);
    }
    state
}
