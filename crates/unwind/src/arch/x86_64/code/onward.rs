//! The caller's registers by the words and registers at an instruction: a dataflow analysis over the
//! graph of instructions, from a function's returns back to its beginning.
//!
//! One analysis serves all addresses of a function. A state has a fixed size, and each of its parts
//! changes twice at most; so each instruction is evaluated a few times.

use rustc_hash::FxHashMap;

use super::effect::{Effect, RegisterOp, Successor};
use super::flow::{Flow, Near};
use super::frame::KEPT;
use super::graph::{Graph, NONE};
use crate::arch::{BP, SP};

/// Most evaluations of each instruction of a graph, on average. In programs it is 1 to 2.
const ROUNDS: usize = 8;

/// Evaluated instructions of small graphs, in addition.
const FEW: usize = 256;

/// Several returns.
const MANY: u32 = NONE - 1;

/// Source of a register's value at a return.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    Unknown,
    /// A register plus a number.
    Register(u8, i32),
    /// The word at a register plus `at`, plus a number.
    Word {
        base: u8,
        at: i32,
        add: i32,
    },
    /// The word at the canonical frame address plus a number.
    Frame(i32),
}

impl Source {
    fn plus(self, n: i32) -> Source {
        let sum = match self {
            Source::Register(r, at) => at.checked_add(n).map(|at| Source::Register(r, at)),
            Source::Word { base, at, add } => {
                add.checked_add(n).map(|add| Source::Word { base, at, add })
            }
            _ => None,
        };
        sum.unwrap_or(Source::Unknown)
    }

    fn uses(self, registers: u16) -> bool {
        match self {
            Source::Register(r, _) | Source::Word { base: r, .. } => registers & 1 << r != 0,
            Source::Unknown | Source::Frame(_) => false,
        }
    }
}

/// All paths from an instruction to returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Onward {
    /// Stack pointer before the return, and [`KEPT`] registers.
    pub sp: Source,
    pub kept: [Source; KEPT.len()],
    /// The return, if it is the only one.
    leave: u32,
    /// Returns have different stack pointers.
    pub disagrees: bool,
    /// A path leads there without a call, which might never return.
    pub is_certain: bool,
    /// All paths pass a call that may be its function's last one.
    is_doubtful: bool,
    /// Some paths lead to unknown code.
    pub is_open: bool,
}

impl Onward {
    const NOWHERE: Onward = Onward {
        sp: Source::Unknown,
        kept: [Source::Unknown; KEPT.len()],
        leave: NONE,
        disagrees: false,
        is_certain: false,
        is_doubtful: false,
        is_open: false,
    };

    fn at_return(node: u32) -> Onward {
        Onward {
            sp: Source::Register(SP, 0),
            kept: KEPT.map(|register| Source::Register(register, 0)),
            leave: node,
            is_certain: true,
            ..Onward::NOWHERE
        }
    }

    /// True if a path leads to a return.
    pub fn returns(&self) -> bool {
        self.leave != NONE
    }

    /// Merges other paths into this one.
    fn join(&mut self, other: &Onward) {
        let is_open = self.is_open | other.is_open;
        // Code after a call that may never return may belong to another function.
        match (self.returns(), other.returns()) {
            (_, false) => {}
            (false, true) => *self = *other,
            _ if self.is_doubtful && !other.is_doubtful => *self = *other,
            _ if other.is_doubtful && !self.is_doubtful => {}
            _ => {
                self.disagrees |= other.disagrees;
                if self.sp != other.sp {
                    let both = ![self.sp, other.sp].contains(&Source::Unknown);
                    self.disagrees |= both && (self.leave != other.leave || self.leave == MANY);
                    self.sp = Source::Unknown;
                }
                for (kept, other) in self.kept.iter_mut().zip(other.kept) {
                    if *kept != other {
                        *kept = Source::Unknown;
                    }
                }
                if self.leave != other.leave {
                    self.leave = MANY;
                }
                self.is_certain |= other.is_certain;
            }
        }
        self.is_open = is_open;
    }

    /// The state before an instruction, given the state after it.
    fn before(mut self, Effect { lost, op }: Effect, near: Near) -> Onward {
        if !self.returns() {
            return self;
        }
        let written = match op {
            RegisterOp::Push(_) | RegisterOp::PushWord { .. } => 1 << SP,
            RegisterOp::Pop(to) => 1 << SP | 1 << to,
            RegisterOp::Copy { to, .. }
            | RegisterOp::Lea { to, .. }
            | RegisterOp::Load { to, .. }
            | RegisterOp::Add { to, .. }
            | RegisterOp::Set { to, .. }
            | RegisterOp::SetLow { to, .. }
            | RegisterOp::Align { to, .. } => 1 << to,
            RegisterOp::Leave => 1 << SP | 1 << BP,
            RegisterOp::Swap(a, b) => 1 << a | 1 << b,
            // rax, rcx and r11.
            RegisterOp::Syscall => 1 | 1 << 2 | 1 << 11,
            RegisterOp::Nothing | RegisterOp::Store { .. } => 0,
        };
        self.substitute(written, |register| value(op, register));
        let stored = match op {
            RegisterOp::Push(from) => Some((SP, -8, 8, from.map(|r| Source::Register(r, 0)))),
            RegisterOp::PushWord { base, at } => {
                Some((SP, -8, 8, Some(Source::Word { base, at, add: 0 })))
            }
            RegisterOp::Store { from, base, at, size } => {
                Some((base, at, size, from.map(|r| Source::Register(r, 0))))
            }
            _ => None,
        };
        if let Some((base, at, size, from)) = stored.filter(|s| lost & 1 << s.0 == 0) {
            let value = from.filter(|_| size == 8).unwrap_or(Source::Unknown);
            self.store(&Place { base, at, size, near }, value);
        }
        if lost != 0 {
            self.substitute(lost, |_| Source::Unknown);
        }
        // The same location has one name.
        if let Source::Register(base, end) = self.sp {
            for kept in &mut self.kept {
                if let Source::Frame(n) = *kept {
                    *kept = end.checked_add(8).map_or(Source::Unknown, |end| word(base, end, n, 0));
                }
            }
        }
        self
    }

    /// Replaces registers by their values.
    fn substitute(&mut self, written: u16, value: impl Fn(u8) -> Source) {
        let place = self.sp;
        if place.uses(written) {
            self.sp = match place {
                Source::Register(r, at) => value(r).plus(at),
                Source::Word { base, at, add } => match value(base) {
                    Source::Register(r, from) => word(r, from, at, add),
                    _ => Source::Unknown,
                },
                other => other,
            };
        }
        for kept in self.kept.iter_mut().filter(|kept| kept.uses(written)) {
            *kept = match *kept {
                Source::Register(r, at) => value(r).plus(at),
                Source::Word { base, at, add } => match (value(base), place) {
                    (Source::Register(r, from), _) => word(r, from, at, add),
                    (_, Source::Register(r, end)) if r == base && add == 0 => {
                        let from = end.checked_add(8).and_then(|end| at.checked_sub(end));
                        from.map_or(Source::Unknown, Source::Frame)
                    }
                    _ => Source::Unknown,
                },
                other => other,
            };
        }
    }

    /// A value is written to memory.
    fn store(&mut self, place: &Place, value: Source) {
        // A jump to an address that is pushed is no return.
        if let Source::Register(r, at) = self.sp
            && matches!(place.overlap(r, at), Overlap::Exact | Overlap::Partial)
        {
            *self = Onward { is_open: true, ..Onward::NOWHERE };
            return;
        }
        self.sp = place.stored(self.sp, value, None);
        for (kept, register) in self.kept.iter_mut().zip(KEPT) {
            *kept = place.stored(*kept, value, Some(register));
        }
    }
}

/// The word at a register plus two numbers, plus another.
fn word(base: u8, from: i32, at: i32, add: i32) -> Source {
    from.checked_add(at).map_or(Source::Unknown, |at| Source::Word { base, at, add })
}

/// Value of a register after an operation, by those before it.
fn value(op: RegisterOp, register: u8) -> Source {
    let same = |register| Source::Register(register, 0);
    match op {
        RegisterOp::Push(_) | RegisterOp::PushWord { .. } => Source::Register(SP, -8),
        RegisterOp::Pop(to) if register == to => Source::Word { base: SP, at: 0, add: 0 },
        RegisterOp::Pop(_) => Source::Register(SP, 8),
        RegisterOp::Copy { from, .. } => same(from),
        RegisterOp::Lea { base, add, .. } => Source::Register(base, add),
        RegisterOp::Load { base, at, .. } => Source::Word { base, at, add: 0 },
        RegisterOp::Add { to, add } => Source::Register(to, add),
        RegisterOp::Leave if register == SP => Source::Register(BP, 8),
        RegisterOp::Leave => Source::Word { base: BP, at: 0, add: 0 },
        RegisterOp::Swap(a, b) => same(if register == a { b } else { a }),
        _ => Source::Unknown,
    }
}

/// Bytes that an instruction writes.
struct Place {
    base: u8,
    at: i32,
    size: u16,
    near: Near,
}

/// Relation of a word to bytes that are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Overlap {
    None,
    /// They are the word.
    Exact,
    Partial,
    /// Relative to another register.
    Unknown,
}

impl Place {
    fn overlap(&self, base: u8, at: i32) -> Overlap {
        let distance = match base {
            _ if base == self.base => Some(0),
            SP => self.near.sp,
            BP => self.near.bp,
            _ => None,
        };
        let Some(distance) = distance else { return Overlap::Unknown };
        let first = i64::from(self.at) + i64::from(distance);
        let at = i64::from(at);
        if at == first && self.size == 8 {
            Overlap::Exact
        } else if at + 8 > first && at < first + i64::from(self.size) {
            Overlap::Partial
        } else {
            Overlap::None
        }
    }

    /// The source of a register, `own`, before the bytes are written.
    fn stored(&self, source: Source, value: Source, own: Option<u8>) -> Source {
        let Source::Word { base, at, add } = source else { return source };
        match self.overlap(base, at) {
            Overlap::None => source,
            Overlap::Exact => value.plus(add),
            Overlap::Partial => Source::Unknown,
            // This may be how it gets there. Other locations count as different.
            Overlap::Unknown
                if [SP, BP].contains(&self.base)
                    && own.is_some_and(|own| value == Source::Register(own, 0)) =>
            {
                Source::Unknown
            }
            Overlap::Unknown => source,
        }
    }
}

/// The paths from each instruction of a graph.
#[derive(Debug, Default)]
pub struct Paths {
    /// By block, at its first instruction.
    states: Vec<Onward>,
    /// At instructions within blocks that later blocks lead to.
    within: FxHashMap<u32, Onward>,
    /// Number of evaluated instructions.
    pub steps: usize,
}

impl Paths {
    /// Number of states.
    pub fn size(&self) -> usize {
        self.states.len() + self.within.len()
    }

    /// Follows all paths from the instructions that were added to the graph last. `false` if it
    /// took too long: then they have no paths.
    pub fn extend(&mut self, graph: &Graph, flow: &Flow) -> bool {
        let old = self.states.len() as u32;
        let size = graph.nodes.len() - graph.old() as usize;
        let limit = self.steps + size * ROUNDS + FEW;
        self.states.resize(graph.block_count() as usize, Onward::NOWHERE);
        let edges = Edges::new(graph, old);
        let mut is_due = vec![true; self.states.len() - old as usize];
        let mut any = true;
        while std::mem::take(&mut any) {
            for &block in &edges.order {
                if !std::mem::take(&mut is_due[(block - old) as usize]) {
                    continue;
                }
                if self.steps > limit {
                    self.states.truncate(old as usize);
                    return false;
                }
                let first = graph.block(block).start;
                let mut state = self.from(graph, flow, first);
                state.join(&self.states[block as usize]);
                if state != self.states[block as usize] {
                    self.states[block as usize] = state;
                    for &before in edges.before(block) {
                        is_due[(before - old) as usize] = true;
                        any = true;
                    }
                }
            }
        }
        true
    }

    /// The paths from an instruction, by those from the ends of its block.
    pub fn from(&mut self, graph: &Graph, flow: &Flow, node: u32) -> Onward {
        let end = graph.block(graph.nodes[node as usize].block).end;
        let mut state = Onward::NOWHERE;
        for at in (node..end).rev() {
            self.steps += 1;
            let this = &graph.nodes[at as usize];
            match this.kind {
                Successor::Return | Successor::Tail => {
                    state = Onward::at_return(at);
                    continue;
                }
                Successor::Open => {
                    state = Onward { is_open: true, ..Onward::NOWHERE };
                    continue;
                }
                _ if this.effect.op == RegisterOp::Syscall && flow.is_exit(at) => {
                    state = Onward::NOWHERE;
                    continue;
                }
                _ => {}
            }
            if flow.dead.contains(&at) || this.next == NONE {
                state = Onward::NOWHERE;
            } else if at + 1 == end || this.next != at + 1 {
                state = self.at(graph, flow, this.next);
            }
            if this.jump != NONE {
                let jump = self.at(graph, flow, this.jump);
                state.join(&jump);
            }
            state = state.before(this.effect, flow.near(at));
            state.is_certain &= this.kind != Successor::Call;
            state.is_doubtful |= this.may_be_last && state.returns();
        }
        state
    }

    /// The paths from the target of a jump, or from the next block.
    fn at(&mut self, graph: &Graph, flow: &Flow, node: u32) -> Onward {
        let block = graph.nodes[node as usize].block;
        if graph.leader(node) == node {
            return self.states[block as usize];
        }
        if let Some(&known) = self.within.get(&node) {
            return known;
        }
        let state = self.from(graph, flow, node);
        self.within.insert(node, state);
        state
    }
}

/// Edges between blocks.
struct Edges {
    /// First block.
    old: u32,
    /// The blocks, in an order in which most follow those that they lead to.
    order: Vec<u32>,
    /// The blocks that lead to each block, and where they begin in the list.
    before: Vec<u32>,
    starts: Vec<u32>,
}

impl Edges {
    /// Edges of the blocks from one on.
    fn new(graph: &Graph, old: u32) -> Edges {
        let count = (graph.block_count() - old) as usize;
        let mut starts = vec![0; count + 1];
        let edges =
            || (old..graph.block_count()).flat_map(|b| after(graph, b).map(move |to| (b, to)));
        let new = |&(_, to): &(u32, u32)| to >= old;
        for (_, to) in edges().filter(new) {
            starts[(to - old) as usize + 1] += 1;
        }
        for i in 0..count {
            starts[i + 1] += starts[i];
        }
        let mut ends = starts.clone();
        let mut before = vec![0; starts[count] as usize];
        for (from, to) in edges().filter(new) {
            let end = &mut ends[(to - old) as usize];
            before[*end as usize] = from;
            *end += 1;
        }
        let mut edges = Edges { old, order: Vec::new(), before, starts };
        edges.sort(graph, count);
        edges
    }

    /// Depth first.
    fn sort(&mut self, graph: &Graph, count: usize) {
        let old = self.old;
        let mut seen = vec![false; count];
        let mut todo = Vec::new();
        for first in old..old + count as u32 {
            if std::mem::replace(&mut seen[(first - old) as usize], true) {
                continue;
            }
            todo.push((first, after(graph, first)));
            while let Some((block, next)) = todo.last_mut() {
                let Some(to) = next.next() else {
                    self.order.push(*block);
                    todo.pop();
                    continue;
                };
                if to >= old && !std::mem::replace(&mut seen[(to - old) as usize], true) {
                    todo.push((to, after(graph, to)));
                }
            }
        }
    }

    /// The blocks that lead to a block.
    fn before(&self, block: u32) -> &[u32] {
        let i = (block - self.old) as usize;
        &self.before[self.starts[i] as usize..self.starts[i + 1] as usize]
    }
}

/// The blocks that a block leads to.
fn after(graph: &Graph, block: u32) -> impl Iterator<Item = u32> + use<'_> {
    let nodes = graph.block(block);
    let end = nodes.end;
    nodes.flat_map(move |at| {
        let this = &graph.nodes[at as usize];
        let next = (at + 1 == end).then_some(this.next).filter(|&n| n != NONE);
        let jump = Some(this.jump).filter(|&n| n != NONE);
        [next, jump].into_iter().flatten().map(|n| graph.nodes[n as usize].block)
    })
}
