//! The graph of the instructions that are reachable from an address.

use iced_x86::{Decoder, DecoderOptions, Instruction, InstructionInfoFactory, Mnemonic};
use rustc_hash::FxHashMap;

use super::effect::{self, Effect, RegisterOp, Successor};
use crate::code::{Functions, Text};

/// No instruction.
pub const NONE: u32 = u32::MAX;

/// An instruction.
#[derive(Clone, Copy, Debug)]
pub struct GraphNode {
    pub effect: Effect,
    /// The next instruction, and the target of a jump.
    pub next: u32,
    pub jump: u32,
    pub kind: Successor,
    /// Several instructions lead here, or none does.
    pub is_leader: bool,
    /// A call that may be its function's last one, and never return.
    pub may_be_last: bool,
}

/// Reachable instructions.
#[derive(Debug, Default)]
pub struct Graph {
    pub nodes: Vec<GraphNode>,
    at: FxHashMap<u64, u32>,
    /// Calls, by return address.
    calls: FxHashMap<u64, u32>,
    /// Some paths lead to unknown code.
    pub is_open: bool,
    /// The limit of instructions was reached.
    pub is_cut: bool,
}

/// A multiple of 16 that only padding precedes: the start of the next function or of a loop.
fn behind_padding(text: Text<'_>, from: u64) -> Option<u64> {
    let end = from.checked_next_multiple_of(16)?;
    let bytes = text.from(from)?.get(..(end - from) as usize)?;
    let mut decoder = Decoder::with_ip(64, bytes, from, DecoderOptions::NONE);
    let fills = |i: Instruction| matches!(i.mnemonic(), Mnemonic::Nop | Mnemonic::Int3);
    decoder.iter().all(fills).then_some(end)
}

/// Code after a call.
enum Behind {
    /// The rest of the function.
    More,
    /// The rest of the function, or another one.
    Possible,
    /// Nothing of this function: the call never returns.
    Nothing,
}

/// Code that decoded instructions lead to.
struct FoundCode<'a> {
    /// Addresses to decode from.
    todo: &'a mut Vec<u64>,
    /// Jumps: the instruction, and the address of its target.
    jumps: &'a mut Vec<(u32, u64)>,
}

impl Graph {
    /// True if no instruction leads back to the caller.
    pub fn never_returns(&self) -> bool {
        let returns =
            |n: &GraphNode| matches!(n.kind, Successor::Return | Successor::Tail | Successor::Open);
        !self.is_cut && !self.is_open && !self.nodes.iter().any(returns)
    }

    /// The instruction at an address.
    pub fn at(&self, address: u64) -> Option<u32> {
        self.at.get(&address).copied()
    }

    /// Return addresses of all calls.
    pub fn returns(&self) -> impl Iterator<Item = u64> {
        self.calls.keys().copied()
    }

    /// The call that returns to an address.
    pub fn call_before(&self, address: u64) -> Option<u32> {
        self.calls.get(&address).copied()
    }

    /// True if no code follows this call: it never returns.
    pub fn is_end(&self, call: u32) -> bool {
        self.nodes[call as usize].next == NONE
    }

    /// The call that returns to an instruction.
    pub fn call_falling_into(&self, node: u32) -> Option<u32> {
        let before = node.checked_sub(1)?;
        let GraphNode { kind, next, .. } = self.nodes[before as usize];
        (kind == Successor::Call && next == node).then_some(before)
    }

    /// The addresses of all instructions.
    pub fn addresses(&self) -> impl Iterator<Item = u64> {
        self.at.keys().copied()
    }

    /// The first instruction of the run that leads to this one.
    pub fn leader(&self, mut node: u32) -> u32 {
        while !self.nodes[node as usize].is_leader {
            node -= 1;
        }
        node
    }

    /// Decodes the instructions that are reachable from an address, at most `limit`. `is_last`
    /// returns true for functions that never return.
    pub fn new(
        text: Text<'_>,
        functions: &Functions,
        from: u64,
        limit: usize,
        is_last: &mut dyn FnMut(u64) -> bool,
    ) -> Graph {
        let mut graph = Graph::default();
        let mut factory = InstructionInfoFactory::new();
        let mut todo = vec![from];
        let mut jumps = Vec::new();
        while let Some(start) = todo.pop() {
            let behind = &mut |call: &Instruction| {
                let next = call.next_ip();
                let aligned = behind_padding(text, next);
                let is_border = |at: u64| functions.is_border(at);
                let never = call.is_call_near() && is_last(call.near_branch_target());
                if never || is_border(next) || aligned.is_some_and(is_border) {
                    Behind::Nothing
                } else if aligned.is_some() {
                    Behind::Possible
                } else {
                    Behind::More
                }
            };
            let mut found = FoundCode { todo: &mut todo, jumps: &mut jumps };
            graph.run(text, start, limit, &mut found, &mut factory, behind);
        }
        for (from, target) in jumps {
            if let Some(&to) = graph.at.get(&target) {
                graph.nodes[from as usize].jump = to;
                graph.nodes[to as usize].is_leader = true;
            }
        }
        graph
    }

    /// Decodes instructions until a decoded one, or one without a successor.
    fn run(
        &mut self,
        text: Text<'_>,
        start: u64,
        limit: usize,
        found: &mut FoundCode<'_>,
        factory: &mut InstructionInfoFactory,
        behind: &mut dyn FnMut(&Instruction) -> Behind,
    ) {
        if self.at.contains_key(&start) {
            return;
        }
        let Some(bytes) = text.from(start) else {
            self.is_open = true;
            return;
        };
        let mut decoder = Decoder::with_ip(64, bytes, start, DecoderOptions::NONE);
        let mut instruction = Instruction::default();
        let mut before = NONE;
        loop {
            let ip = decoder.ip();
            if let Some(&decoded) = self.at.get(&ip) {
                self.nodes[decoded as usize].is_leader = true;
                self.nodes[before as usize].next = decoded;
                return;
            }
            if self.nodes.len() >= limit {
                self.is_cut = true;
                return;
            }
            decoder.decode_out(&mut instruction);
            if instruction.is_invalid() {
                // No program gets here.
                return;
            }
            let this = self.nodes.len() as u32;
            let mut kind = effect::next(&instruction);
            let mut effect = effect::effect(&instruction, factory);
            let next_ip = instruction.next_ip();
            match kind {
                Successor::Call
                    if instruction.is_call_near()
                        && instruction.near_branch_target() == next_ip =>
                {
                    (kind, effect) =
                        (Successor::Fall, Effect { lost: 0, op: RegisterOp::Push(None) });
                }
                Successor::Call => {
                    effect = Effect { lost: effect::SCRATCH, op: RegisterOp::Nothing };
                    self.calls.insert(next_ip, this);
                }
                Successor::Jump(target) | Successor::Branch(target) => {
                    found.jumps.push((this, target));
                    found.todo.push(target);
                }
                Successor::Open | Successor::Tail => self.is_open = true,
                _ => {}
            }
            let is_leader = before == NONE;
            let behind = match kind {
                Successor::Fall | Successor::Branch(_) => Behind::More,
                Successor::Call => behind(&instruction),
                _ => Behind::Nothing,
            };
            let may_be_last = matches!(behind, Behind::Possible);
            let next = NONE;
            let jump = NONE;
            self.nodes.push(GraphNode { effect, next, jump, kind, is_leader, may_be_last });
            self.at.insert(ip, this);
            if before != NONE {
                self.nodes[before as usize].next = this;
            }
            before = this;
            if matches!(behind, Behind::Nothing) {
                return;
            }
        }
    }
}
