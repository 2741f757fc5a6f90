//! Contents of registers and stack at an instruction, relative to their contents at the start of
//! the analysis: a dataflow analysis over the graph of instructions, in the order of execution.
//!
//! Its cost is proportional to the number of instructions: each is evaluated a few times, a state
//! has a few words, and all states together have a few for each instruction. Where that is not
//! enough, there is no result.

mod state;

use std::collections::VecDeque;

use rustc_hash::{FxHashMap, FxHashSet};

use super::effect::{AX, RegisterOp, Successor};
use super::graph::{Graph, NONE};
use crate::arch::{BP, SP};
pub use state::{Base, FlowState, SymbolicValue, returned};

/// Most evaluations of each instruction of a graph, on average: a state changes a few times until
/// all paths agree, and again each time a call turns out not to return. In programs it is 2 to 4.
const ROUNDS: usize = 16;

/// Most words in all states, for each instruction. In programs it is 1.
const WORDS: usize = 4;

/// Evaluated instructions and words of small graphs, in addition.
const FEW: usize = 256;

/// `exit` and `exit_group`.
const EXIT: [i32; 2] = [60, 231];

/// Distances of the place that an instruction writes to from the stack pointer and the frame
/// pointer before it; `None`: unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Near {
    pub sp: Option<i32>,
    pub bp: Option<i32>,
}

/// Result of the analysis from one instruction on.
#[derive(Debug, Default)]
pub struct Flow {
    /// States at the first instructions of blocks.
    states: FxHashMap<u32, FlowState>,
    /// By instruction, for those that write to memory.
    near: FxHashMap<u32, Near>,
    /// Value that was aligned by an instruction, and the mask.
    pub aligned: FxHashMap<u32, (SymbolicValue, i32)>,
    /// System calls that end the thread.
    exits: FxHashSet<u32>,
    /// The analysis took too long: it has no result.
    pub is_cut: bool,
    /// More is popped than was pushed: no function begins here.
    pub contradicts: bool,
    /// Number of evaluated instructions and words.
    pub steps: usize,
    /// Calls that never return: the code after them is reached by other paths only, with another
    /// frame.
    pub dead: FxHashSet<u32>,
    /// Number of words that were added to states.
    held: usize,
}

/// Beginning of an analysis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum From {
    /// A function's beginning.
    Start,
    /// An address in a function. Only the new instructions of the graph are followed.
    Within,
}

/// An analysis.
struct Run<'a> {
    graph: &'a Graph,
    /// Its first instruction.
    first: u32,
    from: From,
    /// First instruction that is followed.
    lowest: u32,
    todo: VecDeque<u32>,
    /// True for blocks in `todo`; without those that are not followed.
    is_due: Vec<bool>,
    /// Calls that turned out not to return.
    dead: Vec<u32>,
}

impl<'a> Run<'a> {
    fn new(graph: &'a Graph, first: u32, from: From) -> Run<'a> {
        let lowest = if from == From::Within { graph.old() } else { 0 };
        let mut run = Run {
            graph,
            first,
            from,
            lowest,
            todo: VecDeque::new(),
            is_due: Vec::new(),
            dead: Vec::new(),
        };
        run.is_due = vec![false; graph.block_count() as usize - run.skipped()];
        run
    }

    /// Number of instructions that are followed.
    fn size(&self) -> usize {
        self.graph.nodes.len() - self.lowest as usize
    }

    /// Number of blocks that are not followed.
    fn skipped(&self) -> usize {
        self.graph.nodes[self.lowest as usize].block as usize
    }

    /// The state at a block's first instruction has changed.
    fn queue(&mut self, node: u32) {
        let block = self.graph.nodes[node as usize].block as usize - self.skipped();
        if !std::mem::replace(&mut self.is_due[block], true) {
            self.todo.push_back(node);
        }
    }

    fn next(&mut self) -> Option<u32> {
        let node = self.todo.pop_front()?;
        let block = self.graph.nodes[node as usize].block as usize - self.skipped();
        self.is_due[block] = false;
        Some(node)
    }
}

impl Flow {
    /// Result for a graph that is not analysed.
    pub fn cut() -> Flow {
        Flow { is_cut: true, ..Flow::default() }
    }

    /// Follows all paths from an instruction.
    pub fn new(graph: &Graph, first: u32) -> Flow {
        let mut flow = Flow::default();
        flow.repeat(graph, first, From::Start);
        flow
    }

    /// Follows all paths from an instruction through those that were added to the graph last. Adds
    /// no states; `false` if it took too long.
    pub fn extend(&mut self, graph: &Graph, first: u32) -> bool {
        let mut more = Flow::default();
        more.repeat(graph, first, From::Within);
        self.steps += more.steps;
        if more.is_cut {
            return false;
        }
        self.near.extend(more.near);
        self.exits.extend(more.exits);
        self.dead.extend(more.dead);
        true
    }

    /// Follows all paths, again after some calls turned out not to return.
    fn repeat(&mut self, graph: &Graph, first: u32, from: From) {
        let size = Run::new(graph, first, from).size();
        loop {
            let mut run = Run::new(graph, first, from);
            let is_whole = self.follow(&mut run, size * ROUNDS + FEW, size * WORDS + FEW);
            if !is_whole || run.dead.is_empty() {
                self.is_cut = !is_whole;
                return;
            }
            let steps = self.steps;
            let mut dead = std::mem::take(&mut self.dead);
            dead.extend(run.dead);
            *self = Flow { steps, dead, ..Flow::default() };
        }
    }

    fn follow(&mut self, run: &mut Run<'_>, limit: usize, words: usize) -> bool {
        self.arrive(run, run.first, &FlowState::first(run.from));
        // Depth first would evaluate instructions far too often.
        while let Some(node) = run.next() {
            if self.steps > limit || self.held > words {
                return false;
            }
            let Some(state) = self.states.get(&node) else { continue };
            let state = state.clone();
            self.run(run, node, state);
        }
        true
    }

    /// A path leads to the first instruction of a block.
    fn arrive(&mut self, run: &mut Run<'_>, node: u32, state: &FlowState) {
        if node < run.lowest {
            return;
        }
        self.steps += 1 + state.memory.len() / 4;
        let Some(joined) = self.states.get_mut(&node) else {
            self.held += state.memory.len();
            self.states.insert(node, state.clone());
            run.queue(node);
            return;
        };
        // Each instruction has one frame on all paths.
        let call = run.graph.call_falling_into(node).filter(|c| !self.dead.contains(c));
        if joined.get(SP) != state.get(SP)
            && let Some(call) = call.filter(|_| node != run.first)
        {
            run.dead.push(call);
        } else if joined.join(state) {
            run.queue(node);
        }
    }

    /// Follows the instructions of a block.
    fn run(&mut self, run: &mut Run<'_>, mut node: u32, mut state: FlowState) {
        let graph = run.graph;
        loop {
            let this = &graph.nodes[node as usize];
            self.steps += 1;
            match this.kind {
                Successor::Return | Successor::Tail if run.from == From::Start => {
                    run.dead.extend(self.leave(&state));
                    return;
                }
                Successor::Return | Successor::Tail | Successor::Open => return,
                _ => {}
            }
            match this.effect.op {
                RegisterOp::Align { to, mask } => {
                    let value = state.get(to);
                    let aligned = self.aligned.entry(node).or_insert((value, mask));
                    if aligned.0 != value {
                        aligned.0 = SymbolicValue::Unknown;
                    }
                }
                RegisterOp::Syscall => {
                    let ax = state.get(AX);
                    if matches!(ax, SymbolicValue::Offset(Base::Zero, n) if EXIT.contains(&n)) {
                        self.exits.insert(node);
                        return;
                    }
                    // By another path.
                    self.exits.remove(&node);
                }
                RegisterOp::Push(_) | RegisterOp::PushWord { .. } => self.note(node, &state, SP),
                RegisterOp::Store { base, .. } if this.effect.lost & 1 << base == 0 => {
                    self.note(node, &state, base);
                }
                _ => {}
            }
            state.apply(node, this.effect);
            if this.kind == Successor::Call {
                state.through = node;
            }
            if this.jump != NONE {
                self.arrive(run, this.jump, &state);
            }
            if this.next == NONE || self.dead.contains(&node) {
                return;
            }
            node = this.next;
            if node < run.lowest || graph.nodes[node as usize].is_leader {
                self.arrive(run, node, &state);
                return;
            }
        }
    }

    /// Records the distances of a register that an instruction writes to.
    fn note(&mut self, node: u32, state: &FlowState, base: u8) {
        let from = |register| state.get(base).from(state.get(register));
        let near = Near { sp: from(SP), bp: from(BP) };
        // The last evaluation is of all paths.
        if near == Near::default() {
            self.near.remove(&node);
        } else {
            self.near.insert(node, near);
        }
    }

    /// A function returns. Returns the call before it if that turns out not to return.
    fn leave(&mut self, state: &FlowState) -> Option<u32> {
        let SymbolicValue::Offset(base, at) = state.get(SP) else { return None };
        let pushed = state.find((base, at));
        let is_saved = |v: SymbolicValue| matches!(v, SymbolicValue::Offset(Base::Register(_), _));
        match (base, at) {
            (Base::Register(SP), 0) => None,
            // The frame still exists, and another function, after the last call, has returned from
            // its own.
            (Base::Register(SP), ..0) | (Base::Aligned(_), _)
                if state.through != NONE && pushed.is_none_or(is_saved) =>
            {
                Some(state.through)
            }
            _ => {
                self.contradicts |= pushed.is_none();
                None
            }
        }
    }

    /// Distances of the place that an instruction writes to.
    pub fn near(&self, node: u32) -> Near {
        self.near.get(&node).copied().unwrap_or_default()
    }

    /// True if an instruction ends the thread.
    pub fn is_exit(&self, node: u32) -> bool {
        self.exits.contains(&node)
    }

    /// Number of states and of words in them.
    pub fn size(&self) -> (usize, usize) {
        (self.states.len(), self.states.values().map(|s| s.memory.len()).sum())
    }

    /// State before an instruction; `None` if no path leads there.
    pub fn before(&self, graph: &Graph, node: u32) -> Option<FlowState> {
        // A path may begin in the middle of a run.
        let mut at = graph.leader(node);
        let mut state = self.states.get(&at)?.clone();
        while at != node {
            let this = &graph.nodes[at as usize];
            state.apply(at, this.effect);
            at = this.next;
            if at == NONE {
                return None;
            }
        }
        Some(state)
    }
}
