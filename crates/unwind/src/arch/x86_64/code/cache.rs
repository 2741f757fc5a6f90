//! Cached results of code analysis, for all images.

use rustc_hash::FxHashMap;

use super::between;
use super::call_before;
use super::flow::{Flow, FlowState};
use super::frame::{self, CodeFrame};
use super::graph::Graph;
use super::moved::Moved;
use crate::CodeAddress;
use crate::code::{Between, CallTarget, File, FunctionStart, Leads, Proof};
use sys::FileAddress;

/// Most instructions of a function that are analysed.
const MAX_INSTRUCTIONS: usize = 1 << 16;

/// Most instructions that are followed from a call's target.
const MAX_LED: usize = 1 << 12;

/// Most cached frames and calls; one takes 80 bytes.
const MAX_FRAMES: usize = 1 << 15;

/// Most instructions of all cached functions; one takes 80 bytes.
const MAX_HELD: usize = 1 << 18;

/// Instructions that may be analysed, at first and at most: some seconds' worth.
const BUDGET: i64 = 1 << 24;

/// Budget that each frame adds, so that hostile code costs no more than other code.
const REFILL: i64 = 256;

/// Longest call instruction, in bytes.
pub(super) const LONGEST: u64 = 8;

/// A function's instructions, and the state at each.
struct Analysed {
    graph: Graph,
    flow: Flow,
}

/// Cached results.
pub struct CodeCache {
    frames: FxHashMap<(u32, CodeAddress), Option<CodeFrame>>,
    leads: FxHashMap<(u32, u64, Option<u64>), Leads>,
    moved: FxHashMap<(u32, u64), Option<Moved>>,
    between: FxHashMap<(u32, Between), Option<u64>>,
    functions: FxHashMap<(u32, u64), Analysed>,
    /// Functions by address, true if they never return.
    last: FxHashMap<(u32, u64), bool>,
    held: usize,
    budget: i64,
}

impl Default for CodeCache {
    fn default() -> Self {
        let (frames, leads, moved, between) = Default::default();
        let (functions, last) = Default::default();
        CodeCache { frames, leads, moved, between, functions, last, held: 0, budget: BUDGET }
    }
}

impl CodeCache {
    /// A cache with another budget.
    #[cfg(test)]
    pub fn with_budget(budget: i64) -> CodeCache {
        CodeCache { budget, ..CodeCache::default() }
    }

    /// Remaining budget, in instructions.
    #[cfg(test)]
    pub fn budget(&self) -> i64 {
        self.budget
    }

    /// Cached result of [`CodeCache::frame`].
    pub fn known_frame(&self, image: u32, at: CodeAddress) -> Option<Option<CodeFrame>> {
        self.frames.get(&(image, at)).copied()
    }

    /// Cached result of [`CodeCache::moved`].
    pub fn known_moved(&self, image: u32, address: u64) -> Option<Option<Moved>> {
        self.moved.get(&(image, address)).copied()
    }

    /// Cached result of [`CodeCache::between`].
    pub fn known_between(&self, image: u32, between: Between) -> Option<Option<u64>> {
        self.between.get(&(image, between)).copied()
    }

    /// Cached result of [`CodeCache::leads`].
    pub fn known_leads(&self, image: u32, address: u64, to: Option<u64>) -> Option<Leads> {
        self.leads.get(&(image, address, to)).copied()
    }

    /// Frame of the code at an address, or of the call before it; `None` if its instructions leave
    /// it open.
    pub fn frame(&mut self, file: File<'_>, at: CodeAddress) -> Option<CodeFrame> {
        let key = (file.image, at);
        self.budget = (self.budget + REFILL).min(BUDGET);
        if let Some(cached) = self.frames.get(&key) {
            return *cached;
        }
        if self.budget < 0 {
            return None;
        }
        let frame = self.derive(file, at);
        if self.frames.len() >= MAX_FRAMES {
            self.frames.clear();
        }
        self.frames.insert(key, frame);
        frame
    }

    fn derive(&mut self, file: File<'_>, at: CodeAddress) -> Option<CodeFrame> {
        let start = file.functions.start(at.lookup().0);
        let (begin, is_known) = match start {
            Some(FunctionStart::Known(at)) => (Some(at), true),
            Some(FunctionStart::Likely(at)) => (Some(at), false),
            None => (None, false),
        };
        let mut function = begin.map(|at| self.analysed(file, at));
        let holds = |f: &Analysed| !f.flow.is_cut && (is_known || !f.flow.contradicts);
        let state = function
            .as_mut()
            .filter(|f| holds(f))
            .and_then(|f| frame::state_at(&f.graph, &mut f.flow, at));
        let frame = if state.is_some() && begin == Some(file.entry) && file.entry != 0 {
            Some(CodeFrame::Outermost)
        } else {
            {
                let function = function.as_ref().filter(|f| holds(f));
                self.both_ways(file, at, function, state.as_ref(), is_known)
            }
        };
        if let (Some(at), Some(function)) = (begin, function) {
            self.remember((file.image, at), function);
        }
        frame
    }

    /// Removes the function that begins at an address from the cache, or analyses it; it has to be
    /// stored again.
    fn analysed(&mut self, file: File<'_>, begin: u64) -> Analysed {
        if let Some(cached) = self.functions.remove(&(file.image, begin)) {
            self.held -= cached.graph.nodes.len();
            return cached;
        }
        let graph = self.graph(file, begin, MAX_INSTRUCTIONS, 0);
        let flow = match graph.at(begin) {
            Some(first) if !graph.is_cut => {
                Flow::new(&graph, first, &FlowState::new(false), Default::default())
            }
            _ => Flow::cut(),
        };
        self.spend(flow.steps / 4);
        Analysed { graph, flow }
    }

    fn remember(&mut self, key: (u32, u64), function: Analysed) {
        let size = function.graph.nodes.len();
        if self.held + size > MAX_HELD {
            self.functions.clear();
            self.held = 0;
        }
        self.held += size;
        self.functions.insert(key, function);
    }

    /// Graph of the instructions that are reachable from an address.
    fn graph(&mut self, file: File<'_>, from: u64, limit: usize, depth: usize) -> Graph {
        let is_last = &mut |target| self.is_last(file, target, depth);
        let graph = Graph::new(file.text, file.functions, from, limit, is_last);
        self.spend(graph.nodes.len());
        graph
    }

    /// True if the function at an address never returns: no reachable instruction does.
    fn is_last(&mut self, file: File<'_>, target: u64, depth: usize) -> bool {
        /// Most instructions of such a function, and deepest nesting of such calls.
        const SMALL: usize = 256;
        const DEEP: usize = 4;
        let key = (file.image, target);
        if let Some(&cached) = self.last.get(&key) {
            return cached;
        }
        if depth >= DEEP || self.budget < 0 {
            return false;
        }
        if self.last.len() >= MAX_FRAMES {
            self.last.clear();
        }
        // It may call itself.
        self.last.insert(key, false);
        let is_last = self.graph(file, target, SMALL, depth + 1).never_returns();
        self.last.insert(key, is_last);
        is_last
    }

    fn spend(&mut self, instructions: usize) {
        self.budget -= instructions as i64;
    }

    /// The frame by the paths from the function's beginning and to its returns: if both are known,
    /// they have to agree.
    fn both_ways(
        &mut self,
        file: File<'_>,
        at: CodeAddress,
        function: Option<&Analysed>,
        state: Option<&FlowState>,
        is_known: bool,
    ) -> Option<CodeFrame> {
        let FileAddress(address) = at.address;
        let down = state.and_then(frame::from_start);
        if let Some(CodeFrame::Inner { proof: Proof::Maker, .. }) = down {
            return down;
        }
        // No code follows a call that never returns.
        let ends = |f: &Analysed| {
            let call = f.graph.call_before(address);
            call.is_some_and(|call| f.flow.dead.contains(&call) || f.graph.is_end(call))
        };
        let is_end = at.kind.is_return()
            && (file.functions.is_border(address) || function.is_some_and(ends));
        let mut onward = (!is_end).then(|| self.onward(file, address, function)).flatten();
        let up = match &onward {
            Some(flow) => frame::to_return(flow).ok()?,
            None => None,
        };
        let is_open = onward
            .as_ref()
            .is_none_or(|flow| flow.is_open || flow.is_cut || !flow.returns.is_empty());
        match (down, up) {
            (Some(down), Some(up)) => {
                let words = &mut onward.as_mut()?.words;
                match frame::agree(state?, &up.frame, words) {
                    Some(true) => Some(frame::joined(down, &up.frame)),
                    Some(false) if is_known || !up.is_certain => None,
                    Some(false) => Some(up.frame),
                    None if is_known => Some(down),
                    None => Some(frame::by_call(down)),
                }
            }
            // Code that only jumps on need not be called.
            (Some(down), None) if !is_open || is_end => Some(down),
            (Some(down), None) if is_known && !file.functions.only_jump() => Some(down),
            (Some(down), None) => Some(frame::by_call(down)),
            (None, Some(up)) if is_known || up.is_certain => Some(up.frame),
            (None, Some(up)) => Some(frame::by_call(up.frame)),
            (None, None) => {
                let begins = at.kind.is_return() && state.is_some_and(|s| s.cloned);
                begins.then_some(CodeFrame::Outermost)
            }
        }
    }

    /// States on the paths from an address on.
    fn onward(
        &mut self,
        file: File<'_>,
        address: u64,
        function: Option<&Analysed>,
    ) -> Option<Flow> {
        let analysed = function.and_then(|f| Some((&f.graph, f.graph.at(address)?)));
        let other;
        let (graph, node) = match analysed {
            Some(analysed) => analysed,
            None => {
                other = self.graph(file, address, MAX_INSTRUCTIONS, 0);
                (&other, other.at(address)?)
            }
        };
        if graph.is_cut {
            return None;
        }
        let dead = analysed.and(function).map(|f| f.flow.dead.clone()).unwrap_or_default();
        let flow = Flow::new(graph, node, &FlowState::new(true), dead);
        self.spend(flow.steps / 4);
        Some(flow)
    }

    /// Location of the saved stack pointer of a function that begins at `start` and moves its stack
    /// pointer.
    pub fn moved(&mut self, file: File<'_>, start: u64, address: u64) -> Option<Moved> {
        let key = (file.image, address);
        self.budget = (self.budget + REFILL).min(BUDGET);
        if let Some(cached) = self.moved.get(&key) {
            return *cached;
        }
        if self.budget < 0 {
            return None;
        }
        let mut function = self.analysed(file, start);
        let Analysed { graph, flow } = &mut function;
        let state = graph.at(address).filter(|_| !flow.is_cut);
        let state = state.and_then(|node| flow.before(graph, node));
        let moved = state.and_then(|state| Moved::new(&state, flow));
        self.remember((file.image, start), function);
        if self.moved.len() >= MAX_FRAMES {
            self.moved.clear();
        }
        self.moved.insert(key, moved);
        moved
    }

    /// Return address of the call that frame pointers skip. `None` if there are several, or none.
    pub fn between(
        &mut self,
        file: File<'_>,
        between: Between,
        are_one: impl Fn(u64, u64) -> bool,
    ) -> Option<u64> {
        let key = (file.image, between);
        if let Some(&cached) = self.between.get(&key) {
            return cached;
        }
        if self.budget < 0 {
            return None;
        }
        let found = between::called(file, between.after).and_then(|begin| {
            let graph = self.graph(file, begin, MAX_LED, 0);
            self.spend(graph.nodes.len());
            let whole = (!graph.is_cut).then_some(&graph)?;
            between::find(file, whole, begin, between, are_one)
        });
        if self.between.len() >= MAX_FRAMES {
            self.between.clear();
        }
        self.between.insert(key, found);
        found
    }

    /// Result of following the call that returns to `address` of a file to the function that
    /// contains `to`; `to` is `None` if that is in another image. `are_one` returns true if two
    /// addresses are in one function.
    pub fn leads(
        &mut self,
        file: File<'_>,
        address: u64,
        to: Option<u64>,
        are_one: impl Fn(u64, u64) -> bool,
    ) -> Leads {
        let key = (file.image, address, to);
        if let Some(&cached) = self.leads.get(&key) {
            return cached;
        }
        let before = file.text.before(address, LONGEST);
        let found = match before.and_then(|bytes| call_before(bytes, address)) {
            None => Leads::Elsewhere,
            Some(CallTarget::Indirect) => Leads::Somewhere,
            Some(CallTarget::Direct(target)) => self.follow(file, target, to, are_one),
        };
        if self.budget >= 0 {
            if self.leads.len() >= MAX_FRAMES {
                self.leads.clear();
            }
            self.leads.insert(key, found);
        }
        found
    }

    fn follow(
        &mut self,
        file: File<'_>,
        target: u64,
        to: Option<u64>,
        are_one: impl Fn(u64, u64) -> bool,
    ) -> Leads {
        let one = |at: u64| {
            to.is_some_and(|to| at == to || are_one(at, to) || file.functions.are_one(at, to))
        };
        if one(target) {
            return Leads::There;
        }
        if self.budget < 0 {
            return Leads::Somewhere;
        }
        // By jumps: a tail call, or a separate part of a function.
        let graph = self.graph(file, target, MAX_LED, 0);
        let passes = |to: u64| graph.at(to).is_some() || graph.call_before(to).is_some();
        // No other function is known to begin between the target and that address, and not all
        // jumps of the one that does are known.
        let nearest = |to: u64| file.functions.start(to) == Some(FunctionStart::Likely(target));
        let is_open = graph.is_open || graph.is_cut;
        let is_there = to.is_some_and(passes) || graph.addresses().any(one);
        if is_there || is_open && to.is_some_and(nearest) {
            Leads::There
        } else if is_open {
            Leads::Somewhere
        } else {
            Leads::Elsewhere
        }
    }
}
