//! Contents of registers and stack at an instruction, relative to their contents at the start of
//! the analysis: a dataflow analysis over the graph of instructions.

use std::collections::VecDeque;

use rustc_hash::{FxHashMap, FxHashSet};

use super::effect::{AX, Effect, RegisterOp, SCRATCH, Successor};
use super::graph::{Graph, NONE};
use crate::arch::{BP, SP};

/// Most evaluations of each instruction of a graph, on average: a state changes a few times until
/// all paths agree.
const ROUNDS: usize = 32;

/// Most tracked words of the stack.
const MAX_WORDS: usize = 512;

/// Most words read whose values are distinguished.
const MAX_READ: usize = 64;

/// Most words in all states of an analysis; one takes 24 bytes.
const MAX_HELD: usize = 1 << 20;

/// `clone` and `clone3`.
const CLONE: [i32; 2] = [56, 435];

/// `exit` and `exit_group`.
const EXIT: [i32; 2] = [60, 231];

/// Base of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Base {
    /// None: the value is a number.
    Zero,
    /// The initial value of a register.
    Register(u8),
    /// The initial value of a word in memory: an index into [`Words`].
    Word(u16),
    /// The stack pointer after its alignment by this instruction.
    Aligned(u32),
    /// The result of a system call that created a thread or a process: 0 in the new one.
    Made,
}

/// Symbolic value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SymbolicValue {
    Unknown,
    Of(Base, i32),
}

impl SymbolicValue {
    fn plus(self, add: i32) -> SymbolicValue {
        match self {
            SymbolicValue::Of(base, at) => {
                at.checked_add(add).map_or(SymbolicValue::Unknown, |at| SymbolicValue::Of(base, at))
            }
            SymbolicValue::Unknown => SymbolicValue::Unknown,
        }
    }
}

/// Words that were read: a base and an offset.
#[derive(Debug, Default)]
pub struct Words(Vec<(Base, i32)>);

impl Words {
    fn at(&mut self, base: Base, at: i32) -> SymbolicValue {
        let found = self.0.iter().position(|&w| w == (base, at));
        let index = found.or_else(|| {
            self.0.push((base, at));
            (self.0.len() <= MAX_READ).then_some(self.0.len() - 1)
        });
        index.map_or(SymbolicValue::Unknown, |i| SymbolicValue::Of(Base::Word(i as u16), 0))
    }

    /// Location that a word was read from.
    pub fn place(&self, word: u16) -> (Base, i32) {
        self.0[usize::from(word)]
    }
}

/// State at one instruction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlowState {
    /// By DWARF's numbers.
    pub registers: [SymbolicValue; 16],
    /// Written words, by location; sorted.
    pub memory: Vec<((Base, i32), SymbolicValue)>,
    /// A call precedes it on each path: there may be no path.
    pub after_call: bool,
    /// On a path to here a thread was created, which has another stack.
    pub cloned: bool,
    /// The latest call on a path to here, if there is one on each.
    through: u32,
    /// All paths to here pass a call that may be its function's last one.
    is_doubtful: bool,
    /// Words that were not written have their initial values.
    keeps_memory: bool,
    /// More was written than is tracked.
    is_lost: bool,
}

impl FlowState {
    /// Initial state; `keeps_memory`: words of the stack from before may be read.
    pub fn new(keeps_memory: bool) -> FlowState {
        FlowState {
            registers: std::array::from_fn(|r| SymbolicValue::Of(Base::Register(r as u8), 0)),
            memory: Vec::new(),
            after_call: false,
            cloned: false,
            through: NONE,
            is_doubtful: false,
            keeps_memory,
            is_lost: false,
        }
    }

    fn get(&self, register: u8) -> SymbolicValue {
        self.registers[usize::from(register)]
    }

    fn set(&mut self, register: u8, value: SymbolicValue) {
        self.registers[usize::from(register)] = value;
    }

    /// The word at a location.
    pub fn word(&self, place: (Base, i32), words: &mut Words) -> SymbolicValue {
        match self.memory.binary_search_by_key(&place, |w| w.0) {
            Ok(i) => self.memory[i].1,
            Err(_) if self.keeps_memory && !self.is_lost => words.at(place.0, place.1),
            Err(_) => SymbolicValue::Unknown,
        }
    }

    fn load(&self, base: u8, at: i32, words: &mut Words) -> SymbolicValue {
        match self.get(base).plus(at) {
            SymbolicValue::Of(base, at) if base != Base::Zero => self.word((base, at), words),
            _ => SymbolicValue::Unknown,
        }
    }

    fn store(&mut self, base: u8, at: i32, size: u16, value: SymbolicValue) {
        let SymbolicValue::Of(base, at) = self.get(base).plus(at) else { return };
        // Partly overwritten words are lost.
        let first = at.saturating_sub(7);
        let end = at.saturating_add(i32::from(size));
        self.memory.retain(|&((b, a), _)| b != base || a < first || a >= end);
        for at in (at..end).step_by(8) {
            let followed = self.keeps_memory || value != SymbolicValue::Unknown;
            if !followed {
                continue;
            }
            if self.memory.len() >= MAX_WORDS {
                self.is_lost = true;
                return;
            }
            let place = self.memory.partition_point(|w| w.0 < (base, at));
            self.memory.insert(place, ((base, at), value));
        }
    }

    fn push(&mut self, value: SymbolicValue) {
        self.set(SP, self.get(SP).plus(-8));
        self.store(SP, 0, 8, value);
    }

    fn pop(&mut self, words: &mut Words) -> SymbolicValue {
        let value = self.load(SP, 0, words);
        self.set(SP, self.get(SP).plus(8));
        value
    }

    /// Executes an instruction.
    fn apply(&mut self, node: u32, Effect { lost, op }: Effect, words: &mut Words) {
        (0..16).filter(|r| lost & 1 << r != 0).for_each(|r| self.set(r, SymbolicValue::Unknown));
        match op {
            RegisterOp::Nothing => {}
            RegisterOp::Push(from) => {
                self.push(from.map_or(SymbolicValue::Unknown, |r| self.get(r)));
            }
            RegisterOp::PushWord { base, at } => {
                let word = self.load(base, at, words);
                self.push(word);
            }
            RegisterOp::Pop(to) => {
                let word = self.pop(words);
                self.set(to, word);
            }
            RegisterOp::Copy { to, from } => self.set(to, self.get(from)),
            RegisterOp::Lea { to, base, add } => self.set(to, self.get(base).plus(add)),
            RegisterOp::Load { to, base, at } => {
                let word = self.load(base, at, words);
                self.set(to, word);
            }
            RegisterOp::Store { from, base, at, size } => {
                self.store(base, at, size, from.map_or(SymbolicValue::Unknown, |r| self.get(r)));
            }
            RegisterOp::Add { to, add } => self.set(to, self.get(to).plus(add)),
            RegisterOp::Set { to, value } => {
                let value = i32::try_from(value).map(|v| SymbolicValue::Of(Base::Zero, v));
                self.set(to, value.unwrap_or(SymbolicValue::Unknown));
            }
            RegisterOp::SetLow { to, value } => match self.get(to) {
                SymbolicValue::Of(Base::Zero, v) => {
                    self.set(to, SymbolicValue::Of(Base::Zero, v & !0xff | i32::from(value)));
                }
                _ => self.set(to, SymbolicValue::Unknown),
            },
            RegisterOp::Align { to, .. } => {
                let aligned = matches!(self.get(to), SymbolicValue::Of(Base::Aligned(_), _));
                let value = if aligned {
                    SymbolicValue::Unknown
                } else {
                    SymbolicValue::Of(Base::Aligned(node), 0)
                };
                self.set(to, value);
            }
            RegisterOp::Leave => {
                self.set(SP, self.get(BP));
                let word = self.pop(words);
                self.set(BP, word);
            }
            RegisterOp::Swap(a, b) => self.registers.swap(a.into(), b.into()),
            RegisterOp::Syscall => {
                let makes =
                    matches!(self.get(AX), SymbolicValue::Of(Base::Zero, n) if CLONE.contains(&n));
                self.cloned |= makes;
                // The kernel returns its result in rax, and uses rcx and r11.
                [2, 11].into_iter().for_each(|r| self.set(r, SymbolicValue::Unknown));
                self.set(
                    AX,
                    if makes { SymbolicValue::Of(Base::Made, 0) } else { SymbolicValue::Unknown },
                );
            }
        }
    }

    /// Merges the state of another path into this one. True if information was lost.
    fn join(&mut self, other: &FlowState) -> bool {
        let before = self.clone();
        for (value, other) in self.registers.iter_mut().zip(other.registers) {
            if *value != other {
                *value = SymbolicValue::Unknown;
            }
        }
        let of = |state: &FlowState, place| {
            let found = state.memory.binary_search_by_key(&place, |w| w.0);
            found.ok().map(|i| state.memory[i].1)
        };
        if self.keeps_memory {
            for &(place, value) in &other.memory {
                if of(self, place) != Some(value) {
                    let at = self.memory.partition_point(|w| w.0 < place);
                    match self.memory.get_mut(at).filter(|w| w.0 == place) {
                        Some(word) => word.1 = SymbolicValue::Unknown,
                        None => self.memory.insert(at, (place, SymbolicValue::Unknown)),
                    }
                }
            }
            for (place, value) in &mut self.memory {
                if of(other, *place) != Some(*value) {
                    *value = SymbolicValue::Unknown;
                }
            }
            self.is_lost |= self.memory.len() > MAX_WORDS;
        } else {
            self.memory.retain(|&(place, value)| of(other, place) == Some(value));
        }
        self.after_call &= other.after_call;
        self.cloned |= other.cloned;
        if other.through == NONE {
            self.through = NONE;
        }
        self.is_doubtful &= other.is_doubtful;
        self.is_lost |= other.is_lost;
        *self != before
    }
}

/// State at a return of a function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Return {
    /// By DWARF's numbers.
    pub registers: [SymbolicValue; 16],
    /// A call precedes it on each path.
    pub after_call: bool,
    /// It may belong to another function, after a call that never returns.
    pub is_doubtful: bool,
}

/// Result of the analysis from one instruction on.
#[derive(Debug, Default)]
pub struct Flow {
    /// States at the instructions where paths meet.
    states: FxHashMap<u32, FlowState>,
    /// State at each return of the function.
    pub returns: Vec<Return>,
    pub words: Words,
    /// Value that was aligned by an instruction, and the mask.
    pub aligned: FxHashMap<u32, (SymbolicValue, i32)>,
    /// Some paths lead to unknown code.
    pub is_open: bool,
    /// The analysis took too long: it has no result.
    pub is_cut: bool,
    /// More is popped than was pushed: no function begins here.
    pub contradicts: bool,
    /// Number of evaluated instructions.
    pub steps: usize,
    /// Calls that never return: the code after them is reached by other paths only, with another
    /// frame.
    pub dead: FxHashSet<u32>,
    /// Number of words in all states so far.
    held: usize,
}

impl Flow {
    /// Result for a graph that is not analysed.
    pub fn cut() -> Flow {
        Flow { is_cut: true, ..Flow::default() }
    }

    /// Follows all paths from an instruction; calls in `dead` do not return.
    pub fn new(graph: &Graph, from: u32, state: &FlowState, dead: FxHashSet<u32>) -> Flow {
        let mut flow = Flow { dead, ..Flow::default() };
        loop {
            let more = flow.follow(graph, from, state);
            if more.is_empty() {
                return flow;
            }
            let steps = flow.steps;
            let mut dead = std::mem::take(&mut flow.dead);
            dead.extend(more);
            flow = Flow { steps, dead, ..Flow::default() };
        }
    }

    /// The same; returns calls that turn out not to return, for a new analysis.
    fn follow(&mut self, graph: &Graph, from: u32, state: &FlowState) -> Vec<u32> {
        let limit = graph.nodes.len().saturating_mul(ROUNDS);
        let mut dead = Vec::new();
        // Depth first would evaluate instructions far too often.
        let mut todo = VecDeque::from([(from, state.clone())]);
        while let Some((node, state)) = todo.pop_front() {
            self.held += state.memory.len();
            if self.steps > limit || self.held > MAX_HELD {
                self.is_cut = true;
                return Vec::new();
            }
            let state = match self.states.get_mut(&node) {
                Some(joined) => {
                    // Each instruction has one frame on all paths.
                    let call = graph.call_falling_into(node).filter(|c| !self.dead.contains(c));
                    if joined.get(SP) != state.get(SP)
                        && let Some(call) = call.filter(|_| node != from)
                    {
                        dead.push(call);
                        continue;
                    }
                    if !joined.join(&state) {
                        continue;
                    }
                    joined.clone()
                }
                None => {
                    self.states.insert(node, state.clone());
                    state
                }
            };
            dead.extend(self.run(graph, node, state, &mut todo));
        }
        dead
    }

    /// Follows the instructions from one on to where paths meet or end. Returns a call that turns
    /// out not to return.
    fn run(
        &mut self,
        graph: &Graph,
        mut node: u32,
        mut state: FlowState,
        todo: &mut VecDeque<(u32, FlowState)>,
    ) -> Option<u32> {
        loop {
            let this = &graph.nodes[node as usize];
            self.steps += 1;
            match this.kind {
                Successor::Return | Successor::Tail => {
                    let pushed = match state.get(SP) {
                        SymbolicValue::Of(base, at) => {
                            let found = state.memory.binary_search_by_key(&(base, at), |w| w.0);
                            found.ok().map(|i| state.memory[i].1)
                        }
                        SymbolicValue::Unknown => None,
                    };
                    let is_saved =
                        |v: SymbolicValue| matches!(v, SymbolicValue::Of(Base::Register(_), _));
                    match state.get(SP) {
                        _ if state.keeps_memory => {}
                        // The frame still exists, and another function, after the last call, has
                        // returned from its own.
                        SymbolicValue::Of(Base::Register(SP), ..0)
                        | SymbolicValue::Of(Base::Aligned(_), _)
                            if state.through != NONE && pushed.is_none_or(is_saved) =>
                        {
                            return Some(state.through);
                        }
                        SymbolicValue::Unknown | SymbolicValue::Of(Base::Register(SP), 0) => {}
                        _ => self.contradicts |= pushed.is_none(),
                    }
                    if pushed.is_some() {
                        self.is_open = true;
                    } else {
                        let FlowState { registers, after_call, is_doubtful, .. } = state;
                        let here = Return { registers, after_call, is_doubtful };
                        if self.returns.last() != Some(&here) {
                            self.returns.push(here);
                        }
                    }
                    return None;
                }
                Successor::Open => {
                    self.is_open = true;
                    return None;
                }
                _ => {}
            }
            if let RegisterOp::Align { to, mask } = this.effect.op {
                let value = state.get(to);
                let aligned = self.aligned.entry(node).or_insert((value, mask));
                if aligned.0 != value {
                    aligned.0 = SymbolicValue::Unknown;
                }
            }
            let is_exit =
                matches!(state.get(AX), SymbolicValue::Of(Base::Zero, n) if EXIT.contains(&n));
            if this.effect.op == RegisterOp::Syscall && is_exit {
                return None;
            }
            state.apply(node, this.effect, &mut self.words);
            state.after_call |= this.kind == Successor::Call;
            if this.kind == Successor::Call {
                state.through = node;
            }
            state.is_doubtful |= this.may_be_last;
            if this.jump != NONE {
                todo.push_back((this.jump, state.clone()));
            }
            if this.next == NONE || self.dead.contains(&node) {
                return None;
            }
            node = this.next;
            if graph.nodes[node as usize].is_leader {
                todo.push_back((node, state));
                return None;
            }
        }
    }

    /// State before an instruction; `None` if no path leads there.
    pub fn before(&mut self, graph: &Graph, node: u32) -> Option<FlowState> {
        // A path may begin in the middle of a run.
        let mut at = graph.leader(node);
        let mut state = self.states.get(&at)?.clone();
        while at != node {
            let this = &graph.nodes[at as usize];
            state.apply(at, this.effect, &mut self.words);
            state.after_call |= this.kind == Successor::Call;
            at = this.next;
            if at == NONE {
                return None;
            }
        }
        Some(state)
    }
}

/// State after a call, given the state before it.
pub fn returned(mut state: FlowState) -> FlowState {
    for register in (0..16).filter(|r| SCRATCH & 1 << r != 0) {
        state.set(register, SymbolicValue::Unknown);
    }
    state
}
