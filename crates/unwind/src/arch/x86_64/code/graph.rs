//! The graph of the instructions that are reachable from an address.

use std::ops::Range;

use iced_x86::{Decoder, DecoderOptions, Instruction, InstructionInfoFactory, Mnemonic};
use rustc_hash::FxHashMap;

use super::effect::{self, Effect, RegisterOp, Successor};
use crate::code::{File, Text};

/// No instruction.
pub const NONE: u32 = u32::MAX;

/// Most instructions of a block: the state at an instruction is derived from that at the first one.
const LONG: usize = 32;

/// Most blocks of a graph; the states of one take 400 bytes.
const MAX_BLOCKS: usize = 1 << 14;

/// An instruction.
#[derive(Clone, Copy, Debug)]
pub struct GraphNode {
    pub effect: Effect,
    /// The next instruction, and the target of a jump.
    pub next: u32,
    pub jump: u32,
    pub kind: Successor,
    /// It is the first of a block: several instructions lead here, or none does, or the block
    /// before it is long.
    pub is_leader: bool,
    /// A call that may be its function's last one, and never return.
    pub may_be_last: bool,
    /// The block that contains it.
    pub block: u32,
}

/// Reachable instructions. All that follow one of them, by the order of execution, are in the graph.
#[derive(Debug, Default)]
pub struct Graph {
    pub nodes: Vec<GraphNode>,
    /// First instructions of the blocks. A block has all instructions up to the next one's first.
    blocks: Vec<u32>,
    at: FxHashMap<u64, u32>,
    /// Calls, by return address.
    calls: FxHashMap<u64, u32>,
    /// Some paths lead to unknown code.
    pub is_open: bool,
    /// The limit of instructions was reached.
    pub is_cut: bool,
    /// Number of instructions before the latest ones were added.
    old: u32,
}

/// Extent of a graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// All reachable instructions.
    All,
    /// Those up to the first one that leads back to the caller.
    ToReturn,
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
        !self.is_cut && !self.is_open && !self.nodes.iter().any(|n| n.kind.leaves())
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

    /// First instruction of the block that contains this one.
    pub fn leader(&self, node: u32) -> u32 {
        self.blocks[self.nodes[node as usize].block as usize]
    }

    /// Number of instructions before the latest ones were added.
    pub fn old(&self) -> u32 {
        self.old
    }

    /// Number of blocks.
    pub fn block_count(&self) -> u32 {
        self.blocks.len() as u32
    }

    /// Instructions of a block.
    pub fn block(&self, block: u32) -> Range<u32> {
        let end = self.blocks.get(block as usize + 1).copied();
        self.blocks[block as usize]..end.unwrap_or(self.nodes.len() as u32)
    }

    /// Decodes the instructions that are reachable from an address, at most `limit`. `is_last`
    /// returns true for functions that never return.
    pub fn new(
        file: File<'_>,
        from: u64,
        limit: usize,
        extent: Extent,
        is_last: &mut dyn FnMut(u64) -> bool,
    ) -> Graph {
        let mut graph = Graph::default();
        graph.extend(file, from, limit, extent, is_last);
        graph
    }

    /// Adds the instructions that are reachable from an address. Those that were there before, and
    /// their blocks, stay the same: none of them leads to a new one.
    pub fn extend(
        &mut self,
        File { text, functions, .. }: File<'_>,
        from: u64,
        limit: usize,
        extent: Extent,
        is_last: &mut dyn FnMut(u64) -> bool,
    ) {
        self.old = self.nodes.len() as u32;
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
            self.run(text, start, limit, &mut found, &mut factory, behind);
            let is_back = |n: &GraphNode| n.kind.leaves();
            if self.is_cut || extent == Extent::ToReturn && self.nodes.last().is_some_and(is_back) {
                break;
            }
        }
        for (from, target) in jumps {
            if let Some(&to) = self.at.get(&target) {
                self.nodes[from as usize].jump = to;
                self.lead_to(to);
            }
        }
        for node in self.old..self.nodes.len() as u32 {
            let this = &mut self.nodes[node as usize];
            if this.is_leader {
                self.blocks.push(node);
            }
            this.block = self.blocks.len() as u32 - 1;
        }
        self.is_cut |= self.blocks.len() > MAX_BLOCKS;
    }

    /// Removes the instructions that were added last.
    pub fn shrink(&mut self) {
        let old = self.old;
        self.nodes.truncate(old as usize);
        self.blocks.truncate(self.blocks.partition_point(|&first| first < old));
        self.at.retain(|_, node| *node < old);
        self.calls.retain(|_, call| *call < old);
        self.is_cut = false;
    }

    /// Several instructions lead to this one.
    fn lead_to(&mut self, node: u32) {
        self.nodes[node as usize].is_leader |= node >= self.old;
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
        let mut length = 0;
        loop {
            let ip = decoder.ip();
            if let Some(&decoded) = self.at.get(&ip) {
                self.lead_to(decoded);
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
                    self.calls.entry(next_ip).or_insert(this);
                }
                Successor::Jump(target) | Successor::Branch(target) => {
                    found.jumps.push((this, target));
                    found.todo.push(target);
                }
                Successor::Open | Successor::Tail => self.is_open = true,
                _ => {}
            }
            let is_leader = length % LONG == 0;
            length += 1;
            let behind = match kind {
                Successor::Fall | Successor::Branch(_) => Behind::More,
                Successor::Call => behind(&instruction),
                _ => Behind::Nothing,
            };
            let may_be_last = matches!(behind, Behind::Possible);
            let next = NONE;
            let jump = NONE;
            let block = 0;
            self.nodes.push(GraphNode { effect, next, jump, kind, is_leader, may_be_last, block });
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
