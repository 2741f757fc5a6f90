//! What registers and the stack hold at an instruction, in terms of what they held where the
//! analysis begins: a dataflow analysis over the graph of instructions.

use std::collections::VecDeque;

use rustc_hash::{FxHashMap, FxHashSet};

use super::effect::{AX, Effect, Next, Op, SCRATCH};
use super::graph::{Graph, NONE};
use crate::cfi::{BP, SP};

/// Instructions whose effects are computed, for each one of a graph: a state changes a few times
/// until all paths agree.
const ROUNDS: usize = 32;

/// Most words of the stack that are followed at once.
const MAX_WORDS: usize = 512;

/// Most words read whose values are told apart.
const MAX_READ: usize = 64;

/// Most words in all states of an analysis; one takes 24 bytes.
const MAX_HELD: usize = 1 << 20;

/// `clone` and `clone3`.
const CLONE: [i32; 2] = [56, 435];

/// `exit` and `exit_group`.
const EXIT: [i32; 2] = [60, 231];

/// What a value is relative to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Base {
    /// Nothing: it is a number.
    Zero,
    /// What a register held at the beginning.
    Register(u8),
    /// A word in memory as it was at the beginning: an index into [`Words`].
    Word(u16),
    /// The stack pointer after it was aligned by this instruction.
    Aligned(u32),
    /// The answer of a system call that made a thread or a process: 0 in the new one.
    Made,
}

/// What is known of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Value {
    Unknown,
    Of(Base, i32),
}

impl Value {
    fn plus(self, add: i32) -> Value {
        match self {
            Value::Of(base, at) => {
                at.checked_add(add).map_or(Value::Unknown, |at| Value::Of(base, at))
            }
            Value::Unknown => Value::Unknown,
        }
    }
}

/// Where words were read from: a base and an offset.
#[derive(Debug, Default)]
pub struct Words(Vec<(Base, i32)>);

impl Words {
    fn at(&mut self, base: Base, at: i32) -> Value {
        let known = self.0.iter().position(|&w| w == (base, at));
        let index = known.or_else(|| {
            self.0.push((base, at));
            (self.0.len() <= MAX_READ).then_some(self.0.len() - 1)
        });
        index.map_or(Value::Unknown, |i| Value::Of(Base::Word(i as u16), 0))
    }

    /// Where a word was read from.
    pub fn place(&self, word: u16) -> (Base, i32) {
        self.0[usize::from(word)]
    }
}

/// What is known at one instruction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct State {
    /// By DWARF's numbers.
    pub registers: [Value; 16],
    /// What was written, by place; sorted.
    pub memory: Vec<((Base, i32), Value)>,
    /// A call lies on each path to here: there may be no path.
    pub after_call: bool,
    /// On a path to here a thread was made, whose stack is another.
    pub cloned: bool,
    /// The latest call on a path to here, if one is on each.
    through: u32,
    /// All paths to here go on behind a call that may be its function's last one.
    is_doubtful: bool,
    /// Words that were not written are those of the beginning.
    keeps_memory: bool,
    /// More was written than is followed.
    is_lost: bool,
}

impl State {
    /// At the beginning; `keeps_memory`: words of the stack may be read that were there before.
    pub fn new(keeps_memory: bool) -> State {
        State {
            registers: std::array::from_fn(|r| Value::Of(Base::Register(r as u8), 0)),
            memory: Vec::new(),
            after_call: false,
            cloned: false,
            through: NONE,
            is_doubtful: false,
            keeps_memory,
            is_lost: false,
        }
    }

    fn get(&self, register: u8) -> Value {
        self.registers[usize::from(register)]
    }

    fn set(&mut self, register: u8, value: Value) {
        self.registers[usize::from(register)] = value;
    }

    /// The word at a place.
    pub fn word(&self, place: (Base, i32), words: &mut Words) -> Value {
        match self.memory.binary_search_by_key(&place, |w| w.0) {
            Ok(i) => self.memory[i].1,
            Err(_) if self.keeps_memory && !self.is_lost => words.at(place.0, place.1),
            Err(_) => Value::Unknown,
        }
    }

    fn load(&self, base: u8, at: i32, words: &mut Words) -> Value {
        match self.get(base).plus(at) {
            Value::Of(base, at) if base != Base::Zero => self.word((base, at), words),
            _ => Value::Unknown,
        }
    }

    fn store(&mut self, base: u8, at: i32, size: u16, value: Value) {
        let Value::Of(base, at) = self.get(base).plus(at) else { return };
        // What is partly overwritten is gone.
        let (first, end) = (at.saturating_sub(7), at.saturating_add(i32::from(size)));
        self.memory.retain(|&((b, a), _)| b != base || a < first || a >= end);
        for at in (at..end).step_by(8) {
            let followed = self.keeps_memory || value != Value::Unknown;
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

    fn push(&mut self, value: Value) {
        self.set(SP, self.get(SP).plus(-8));
        self.store(SP, 0, 8, value);
    }

    fn pop(&mut self, words: &mut Words) -> Value {
        let value = self.load(SP, 0, words);
        self.set(SP, self.get(SP).plus(8));
        value
    }

    /// An instruction is executed.
    fn apply(&mut self, node: u32, Effect { lost, op }: Effect, words: &mut Words) {
        (0..16).filter(|r| lost & 1 << r != 0).for_each(|r| self.set(r, Value::Unknown));
        match op {
            Op::Nothing => {}
            Op::Push(from) => self.push(from.map_or(Value::Unknown, |r| self.get(r))),
            Op::PushWord { base, at } => {
                let word = self.load(base, at, words);
                self.push(word);
            }
            Op::Pop(to) => {
                let word = self.pop(words);
                self.set(to, word);
            }
            Op::Copy { to, from } => self.set(to, self.get(from)),
            Op::Lea { to, base, add } => self.set(to, self.get(base).plus(add)),
            Op::Load { to, base, at } => {
                let word = self.load(base, at, words);
                self.set(to, word);
            }
            Op::Store { from, base, at, size } => {
                self.store(base, at, size, from.map_or(Value::Unknown, |r| self.get(r)));
            }
            Op::Add { to, add } => self.set(to, self.get(to).plus(add)),
            Op::Set { to, value } => {
                let value = i32::try_from(value).map(|v| Value::Of(Base::Zero, v));
                self.set(to, value.unwrap_or(Value::Unknown));
            }
            Op::SetLow { to, value } => match self.get(to) {
                Value::Of(Base::Zero, v) => {
                    self.set(to, Value::Of(Base::Zero, v & !0xff | i32::from(value)));
                }
                _ => self.set(to, Value::Unknown),
            },
            Op::Align { to, .. } => {
                let aligned = matches!(self.get(to), Value::Of(Base::Aligned(_), _));
                let value =
                    if aligned { Value::Unknown } else { Value::Of(Base::Aligned(node), 0) };
                self.set(to, value);
            }
            Op::Leave => {
                self.set(SP, self.get(BP));
                let word = self.pop(words);
                self.set(BP, word);
            }
            Op::Swap(a, b) => self.registers.swap(a.into(), b.into()),
            Op::Syscall => {
                let makes = matches!(self.get(AX), Value::Of(Base::Zero, n) if CLONE.contains(&n));
                self.cloned |= makes;
                // The kernel gives its answer in rax, and uses rcx and r11.
                [2, 11].into_iter().for_each(|r| self.set(r, Value::Unknown));
                self.set(AX, if makes { Value::Of(Base::Made, 0) } else { Value::Unknown });
            }
        }
    }

    /// What holds on this path and on another one. True when something was lost.
    fn join(&mut self, other: &State) -> bool {
        let before = self.clone();
        for (value, other) in self.registers.iter_mut().zip(other.registers) {
            if *value != other {
                *value = Value::Unknown;
            }
        }
        let of = |state: &State, place| {
            let found = state.memory.binary_search_by_key(&place, |w| w.0);
            found.ok().map(|i| state.memory[i].1)
        };
        if self.keeps_memory {
            for &(place, value) in &other.memory {
                if of(self, place) != Some(value) {
                    let at = self.memory.partition_point(|w| w.0 < place);
                    match self.memory.get_mut(at).filter(|w| w.0 == place) {
                        Some(word) => word.1 = Value::Unknown,
                        None => self.memory.insert(at, (place, Value::Unknown)),
                    }
                }
            }
            for (place, value) in &mut self.memory {
                if of(other, *place) != Some(*value) {
                    *value = Value::Unknown;
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

/// What holds where a function returns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Return {
    /// By DWARF's numbers.
    pub registers: [Value; 16],
    /// A call lies on each path to here.
    pub after_call: bool,
    /// This may be another function's, which stands behind a call that never returns.
    pub is_doubtful: bool,
}

/// What was found from one instruction on.
#[derive(Debug, Default)]
pub struct Flow {
    /// By the instructions where paths meet.
    states: FxHashMap<u32, State>,
    /// What holds where a function returns.
    pub returns: Vec<Return>,
    pub words: Words,
    /// What was aligned by an instruction, and the mask.
    pub aligned: FxHashMap<u32, (Value, i32)>,
    /// Some paths lead to where nobody knows.
    pub is_open: bool,
    /// The analysis took too long: nothing holds.
    pub is_cut: bool,
    /// More is taken from the stack than was put there: no function begins at the beginning.
    pub contradicts: bool,
    /// Instructions that were looked at.
    pub steps: usize,
    /// Calls that never return: what stands behind them is reached by other paths only, with
    /// another frame.
    pub dead: FxHashSet<u32>,
    /// Words in all states so far.
    held: usize,
}

impl Flow {
    /// Of a graph that is not looked at.
    pub fn cut() -> Flow {
        Flow { is_cut: true, ..Flow::default() }
    }

    /// Follows all paths from an instruction; some calls are known not to return.
    pub fn new(graph: &Graph, from: u32, state: &State, dead: FxHashSet<u32>) -> Flow {
        let mut flow = Flow { dead, ..Flow::default() };
        loop {
            let more = flow.follow(graph, from, state);
            if more.is_empty() {
                return flow;
            }
            let (steps, mut dead) = (flow.steps, std::mem::take(&mut flow.dead));
            dead.extend(more);
            flow = Flow { steps, dead, ..Flow::default() };
        }
    }

    /// The same; gives back calls that turn out not to return, then begin again.
    fn follow(&mut self, graph: &Graph, from: u32, state: &State) -> Vec<u32> {
        let limit = graph.nodes.len().saturating_mul(ROUNDS);
        let mut dead = Vec::new();
        // One path after the other would look at much too often.
        let mut todo = VecDeque::from([(from, state.clone())]);
        while let Some((node, state)) = todo.pop_front() {
            self.held += state.memory.len();
            if self.steps > limit || self.held > MAX_HELD {
                self.is_cut = true;
                return Vec::new();
            }
            let state = match self.states.get_mut(&node) {
                Some(known) => {
                    // Each instruction has one frame, whatever path leads there.
                    let call = graph.call_falling_into(node).filter(|c| !self.dead.contains(c));
                    if known.get(SP) != state.get(SP)
                        && let Some(call) = call.filter(|_| node != from)
                    {
                        dead.push(call);
                        continue;
                    }
                    if !known.join(&state) {
                        continue;
                    }
                    known.clone()
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

    /// Follows the instructions from one on to where paths meet or end. Gives back a call that turns
    /// out not to return.
    fn run(
        &mut self,
        graph: &Graph,
        mut node: u32,
        mut state: State,
        todo: &mut VecDeque<(u32, State)>,
    ) -> Option<u32> {
        loop {
            let this = &graph.nodes[node as usize];
            self.steps += 1;
            match this.kind {
                Next::Return | Next::Tail => {
                    let pushed = match state.get(SP) {
                        Value::Of(base, at) => {
                            let found = state.memory.binary_search_by_key(&(base, at), |w| w.0);
                            found.ok().map(|i| state.memory[i].1)
                        }
                        Value::Unknown => None,
                    };
                    let is_saved = |v: Value| matches!(v, Value::Of(Base::Register(_), _));
                    match state.get(SP) {
                        _ if state.keeps_memory => {}
                        // A frame is still there, and another function, behind the last call, has
                        // returned from its own.
                        Value::Of(Base::Register(SP), ..0) | Value::Of(Base::Aligned(_), _)
                            if state.through != NONE && pushed.is_none_or(is_saved) =>
                        {
                            return Some(state.through);
                        }
                        Value::Unknown | Value::Of(Base::Register(SP), 0) => {}
                        _ => self.contradicts |= pushed.is_none(),
                    }
                    match pushed.is_some() {
                        // What was pushed for a return to jump to is no caller.
                        true => self.is_open = true,
                        false => {
                            let State { registers, after_call, is_doubtful, .. } = state;
                            let here = Return { registers, after_call, is_doubtful };
                            if self.returns.last() != Some(&here) {
                                self.returns.push(here);
                            }
                        }
                    }
                    return None;
                }
                Next::Open => {
                    self.is_open = true;
                    return None;
                }
                _ => {}
            }
            if let Op::Align { to, mask } = this.effect.op {
                let value = state.get(to);
                let known = self.aligned.entry(node).or_insert((value, mask));
                if known.0 != value {
                    known.0 = Value::Unknown;
                }
            }
            let is_exit = matches!(state.get(AX), Value::Of(Base::Zero, n) if EXIT.contains(&n));
            if this.effect.op == Op::Syscall && is_exit {
                return None;
            }
            state.apply(node, this.effect, &mut self.words);
            state.after_call |= this.kind == Next::Call;
            if this.kind == Next::Call {
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

    /// What holds before an instruction; `None`: no path leads there.
    pub fn before(&mut self, graph: &Graph, node: u32) -> Option<State> {
        // A path may begin in the middle of a run.
        let mut at = graph.leader(node);
        let mut state = self.states.get(&at)?.clone();
        while at != node {
            let this = &graph.nodes[at as usize];
            state.apply(at, this.effect, &mut self.words);
            state.after_call |= this.kind == Next::Call;
            at = this.next;
            if at == NONE {
                return None;
            }
        }
        Some(state)
    }
}

/// What holds after a call, in terms of what held before it.
pub fn returned(mut state: State) -> State {
    for register in (0..16).filter(|r| SCRATCH & 1 << r != 0) {
        state.set(register, Value::Unknown);
    }
    state
}
