//! The instructions that can be reached from an address, and how they lead to each other.

use iced_x86::{Decoder, DecoderOptions, Instruction, InstructionInfoFactory, Mnemonic};
use rustc_hash::FxHashMap;

use super::effect::{self, Effect, Next, Op};
use super::functions::Functions;
use sys::elf::Segment;

/// The machine code of a file.
#[derive(Clone, Copy)]
pub struct Text<'a> {
    pub segments: &'a [Segment],
    pub bytes: &'a [u8],
}

impl<'a> Text<'a> {
    /// The bytes from an address to the end of its segment.
    pub fn from(&self, address: u64) -> Option<&'a [u8]> {
        let at = |s: &Segment| address.checked_sub(s.address).filter(|&at| at < s.size);
        let (segment, at) = self.segments.iter().find_map(|s| Some((s, at(s)?)))?;
        let offset = |at: u64| usize::try_from(segment.offset.checked_add(at)?).ok();
        let end = offset(segment.size)?.min(self.bytes.len());
        self.bytes.get(offset(at)?..end)
    }

    /// At most so many bytes before an address.
    pub fn before(&self, address: u64, most: u64) -> Option<&'a [u8]> {
        let at = |s: &Segment| address.checked_sub(s.address).filter(|&at| at <= s.size);
        let most = most.min(self.segments.iter().find_map(at)?);
        self.from(address - most)?.get(..usize::try_from(most).ok()?)
    }
}

/// No instruction.
pub const NONE: u32 = u32::MAX;

/// An instruction.
#[derive(Clone, Copy, Debug)]
pub struct Node {
    pub effect: Effect,
    /// Which one comes next, and which one is jumped to.
    pub next: u32,
    pub jump: u32,
    pub kind: Next,
    /// Several lead here, or none does.
    pub is_leader: bool,
    /// A call that may be its function's last one, and never return.
    pub may_be_last: bool,
}

/// The instructions that can be reached.
#[derive(Debug, Default)]
pub struct Graph {
    pub nodes: Vec<Node>,
    at: FxHashMap<u64, u32>,
    /// Calls, by the address to which they return.
    calls: FxHashMap<u64, u32>,
    /// Some paths lead to where nobody knows.
    pub is_open: bool,
    /// There are more instructions than were looked at.
    pub is_cut: bool,
}

/// The multiple of 16 that nothing but padding leads to: the next function may begin there, or a
/// loop.
fn behind_padding(text: Text<'_>, from: u64) -> Option<u64> {
    let end = from.checked_next_multiple_of(16)?;
    let bytes = text.from(from)?.get(..(end - from) as usize)?;
    let mut decoder = Decoder::with_ip(64, bytes, from, DecoderOptions::NONE);
    let fills = |i: Instruction| matches!(i.mnemonic(), Mnemonic::Nop | Mnemonic::Int3);
    decoder.iter().all(fills).then_some(end)
}

/// What stands behind a call.
enum Behind {
    /// The rest of the function.
    More,
    /// The rest of the function, or another one.
    Perhaps,
    /// Nothing of this function: the call never returns.
    Nothing,
}

impl Graph {
    /// Nothing in it leads back to what has called it.
    pub fn never_returns(&self) -> bool {
        let returns = |n: &Node| matches!(n.kind, Next::Return | Next::Tail | Next::Open);
        !self.is_cut && !self.is_open && !self.nodes.iter().any(returns)
    }

    /// The instruction at an address.
    pub fn at(&self, address: u64) -> Option<u32> {
        self.at.get(&address).copied()
    }

    /// The addresses to which calls return.
    pub fn returns(&self) -> impl Iterator<Item = u64> {
        self.calls.keys().copied()
    }

    /// The call that returns to an address.
    pub fn call_before(&self, address: u64) -> Option<u32> {
        self.calls.get(&address).copied()
    }

    /// Nothing comes after this call: it never returns.
    pub fn is_end(&self, call: u32) -> bool {
        self.nodes[call as usize].next == NONE
    }

    /// The call that goes on at an instruction when it returns.
    pub fn call_falling_into(&self, node: u32) -> Option<u32> {
        let before = node.checked_sub(1)?;
        let Node { kind, next, .. } = self.nodes[before as usize];
        (kind == Next::Call && next == node).then_some(before)
    }

    /// The addresses of all instructions.
    pub fn addresses(&self) -> impl Iterator<Item = u64> {
        self.at.keys().copied()
    }

    /// The instruction with which the run of instructions begins that leads to this one.
    pub fn leader(&self, mut node: u32) -> u32 {
        while !self.nodes[node as usize].is_leader {
            node -= 1;
        }
        node
    }

    /// Decodes what can be reached from an address, at most `limit` instructions. `is_last` says
    /// of a function that it never returns.
    pub fn new(
        text: Text<'_>,
        functions: &Functions,
        from: u64,
        limit: usize,
        is_last: &mut dyn FnMut(u64) -> bool,
    ) -> Graph {
        let mut graph = Graph::default();
        let mut factory = InstructionInfoFactory::new();
        let (mut todo, mut jumps) = (vec![from], Vec::new());
        while let Some(start) = todo.pop() {
            let behind = &mut |call: &Instruction| {
                let next = call.next_ip();
                let aligned = behind_padding(text, next);
                let is_border = |at: u64| functions.is_border(at);
                let never = call.is_call_near() && is_last(call.near_branch_target());
                match never || is_border(next) || aligned.is_some_and(is_border) {
                    true => Behind::Nothing,
                    false if aligned.is_some() => Behind::Perhaps,
                    false => Behind::More,
                }
            };
            graph.run((text, start, limit), (&mut todo, &mut jumps), &mut factory, behind);
        }
        for (from, target) in jumps {
            if let Some(&to) = graph.at.get(&target) {
                graph.nodes[from as usize].jump = to;
                graph.nodes[to as usize].is_leader = true;
            }
        }
        graph
    }

    /// Decodes instructions until one that is known, or that nothing follows.
    fn run(
        &mut self,
        (text, start, limit): (Text<'_>, u64, usize),
        (todo, jumps): (&mut Vec<u64>, &mut Vec<(u32, u64)>),
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
            if let Some(&known) = self.at.get(&ip) {
                self.nodes[known as usize].is_leader = true;
                self.nodes[before as usize].next = known;
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
                Next::Call
                    if instruction.is_call_near()
                        && instruction.near_branch_target() == next_ip =>
                {
                    (kind, effect) = (Next::Fall, Effect { lost: 0, op: Op::Push(None) });
                }
                Next::Call => {
                    effect = Effect { lost: effect::SCRATCH, op: Op::Nothing };
                    self.calls.insert(next_ip, this);
                }
                Next::Jump(target) | Next::Branch(target) => {
                    jumps.push((this, target));
                    todo.push(target);
                }
                Next::Open | Next::Tail => self.is_open = true,
                _ => {}
            }
            let is_leader = before == NONE;
            let behind = match kind {
                Next::Fall | Next::Branch(_) => Behind::More,
                Next::Call => behind(&instruction),
                _ => Behind::Nothing,
            };
            let may_be_last = matches!(behind, Behind::Perhaps);
            let (next, jump) = (NONE, NONE);
            self.nodes.push(Node { effect, next, jump, kind, is_leader, may_be_last });
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
