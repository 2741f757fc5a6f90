//! Cached results of code analysis, for all images.

mod calls;

use super::budget::Budget;
use super::flow::{Flow, FlowState};
use super::frame::{self, CodeFrame};
use super::graph::{Extent, Graph};
use super::moved::Moved;
use super::onward::{Onward, Paths};
use super::recent::Recent;
use super::values::Executor;
use crate::CodeAddress;
use crate::code::{AtReturn, Between, File, FunctionStart, Leads, Proof};
use sys::FileAddress;
use sys::arch::DWARF_ORDER;

/// Most instructions of a function that are analysed.
const MAX_INSTRUCTIONS: usize = 1 << 16;

/// Most instructions that only addresses within a function lead to, by a jump table for example.
const MAX_WITHIN: usize = 1 << 15;

/// Most of them that one such address leads to.
const MAX_FROM: usize = 1 << 14;

/// Most analyses of a function from addresses within it that may take too long.
const MAX_FAILURES: u8 = 4;

/// Most instructions that are followed from a call's target.
const MAX_LED: usize = 1 << 12;

/// Most cached frames and calls; one takes 80 bytes.
const MAX_FRAMES: usize = 1 << 15;

/// Largest size of all cached functions, in bytes.
const MAX_HELD: usize = 12 << 20;

/// Size of a cached function without instructions, in bytes.
const LEAST_SIZE: usize = 512;

/// Size of an instruction that only addresses within a function lead to, with its states.
const WITHIN_SIZE: usize = 144;

/// Most instructions that cached calls lead to; one takes 80 bytes.
const MAX_LED_HELD: usize = 1 << 16;

/// A function's instructions, the state at each, and the paths from each to its returns.
#[derive(Default)]
struct Analysed {
    graph: Graph,
    flow: Flow,
    paths: Paths,
    /// Number of instructions that its beginning leads to.
    main: u32,
    /// Number of analyses that took too long.
    failures: u8,
    /// Nothing can be added.
    is_full: bool,
    /// Its size in bytes, roughly.
    size: usize,
}

impl Analysed {
    /// Determines its size.
    fn measure(&mut self) {
        let (states, words) = self.flow.size();
        self.size = LEAST_SIZE
            + self.graph.nodes.len() * 104
            + states * 288
            + words * 24
            + self.paths.size() * 112;
    }

    /// Number of steps that its analysis took so far.
    fn steps(&self) -> usize {
        self.graph.nodes.len() + (self.flow.steps + self.paths.steps) / 4
    }

    /// The call that returns to an address, on a path from the beginning.
    fn call_before(&self, address: u64) -> Option<u32> {
        self.graph.call_before(address).filter(|&call| call < self.main)
    }
}

/// An address whose frame is derived.
struct Asked {
    at: CodeAddress,
    /// Beginning of its function, if there is one, from a symbol if it `is_known`.
    begin: Option<u64>,
    is_known: bool,
}

/// Key of an analysed function.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Key {
    image: u32,
    begin: Option<u64>,
    /// Only from addresses within it.
    is_within: bool,
}

/// Cached results.
pub struct CodeCache {
    frames: Recent<(u32, CodeAddress), Option<CodeFrame>>,
    leads: Recent<(u32, u64, Option<u64>), Leads>,
    moved: Recent<(u32, u64), Option<Moved>>,
    pointers: Recent<(u32, CodeAddress), Option<u32>>,
    between: Recent<(u32, Between), Option<u64>>,
    functions: Recent<Key, Analysed>,
    /// Instructions that calls lead to.
    led: Recent<(u32, u64), Graph>,
    /// Functions by address, true if they never return.
    last: Recent<(u32, u64), bool>,
    /// Number of times that [`CodeCache::leave`] found nothing.
    failures: Recent<(u32, u64), u8>,
    budget: Budget,
}

impl Default for CodeCache {
    fn default() -> Self {
        CodeCache {
            frames: Recent::new(MAX_FRAMES),
            leads: Recent::new(MAX_FRAMES),
            moved: Recent::new(MAX_FRAMES),
            pointers: Recent::new(MAX_FRAMES),
            between: Recent::new(MAX_FRAMES),
            functions: Recent::new(MAX_HELD),
            led: Recent::new(MAX_LED_HELD),
            last: Recent::new(MAX_FRAMES),
            failures: Recent::new(MAX_FRAMES),
            budget: Budget::default(),
        }
    }
}

impl CodeCache {
    /// A cache with another budget for each image.
    #[cfg(test)]
    pub fn with_budget(budget: i64) -> CodeCache {
        CodeCache { budget: Budget::new(budget, i64::MAX / 2), ..CodeCache::default() }
    }

    /// Number of steps that all analyses took.
    #[cfg(test)]
    pub fn spent(&self) -> u64 {
        self.budget.spent
    }

    /// A cache without a budget.
    #[cfg(feature = "testing")]
    pub fn unlimited() -> CodeCache {
        CodeCache { budget: Budget::new(i64::MAX / 2, i64::MAX / 2), ..CodeCache::default() }
    }

    /// Number of steps that all analyses took, and size of all cached functions in bytes.
    #[cfg(feature = "testing")]
    pub fn cost(&self) -> (u64, usize) {
        (self.budget.spent, self.functions.held())
    }

    /// Drops all results. The budget stays.
    pub fn clear(&mut self) {
        let budget = std::mem::take(&mut self.budget);
        *self = CodeCache { budget, ..CodeCache::default() };
    }

    /// Images whose analysis was refused because it took too long.
    pub fn over_budget(&self) -> impl Iterator<Item = u32> {
        self.budget.over()
    }

    /// True if an image with code of this size may be read and analysed; otherwise that took too
    /// long.
    pub fn allows(&mut self, image: u32, size: u64) -> bool {
        self.budget.refill(image, size);
        self.budget.allows(image, size)
    }

    /// True if code of a file may be analysed: its functions fit, and its budget is not spent.
    fn may_analyse(&mut self, file: File<'_>) -> bool {
        !file.functions.are_too_many() && self.budget.allows(file.image, file.size())
    }

    /// Counts the search for the functions of a file.
    pub fn count_functions(&mut self, file: File<'_>) {
        self.spend(file, file.functions.steps());
    }

    /// The result of [`CodeCache::frame`], if it is cached or refused.
    pub fn known_frame(&mut self, image: u32, at: CodeAddress) -> Option<Option<CodeFrame>> {
        self.budget.refill_known(image);
        let cached = self.frames.copied(&(image, at));
        cached.or_else(|| self.refusal(image, None))
    }

    /// The result of [`CodeCache::moved`], if it is cached or refused.
    pub fn known_moved(&mut self, image: u32, address: u64) -> Option<Option<Moved>> {
        let cached = self.moved.copied(&(image, address));
        cached.or_else(|| self.refusal(image, None))
    }

    /// The result of [`CodeCache::pointer`], if it is cached or refused.
    pub fn known_pointer(&mut self, image: u32, at: CodeAddress) -> Option<Option<u32>> {
        let cached = self.pointers.copied(&(image, at));
        cached.or_else(|| self.refusal(image, None))
    }

    /// The result of [`CodeCache::between`], if it is cached or refused.
    pub fn known_between(&mut self, image: u32, between: Between) -> Option<Option<u64>> {
        let cached = self.between.copied(&(image, between));
        cached.or_else(|| self.refusal(image, None))
    }

    /// The cached result of [`CodeCache::leads`].
    pub fn known_leads(&mut self, image: u32, address: u64, to: Option<u64>) -> Option<Leads> {
        self.leads.copied(&(image, address, to))
    }

    /// The result where nothing is left of an image's budget; `None` if something is.
    fn refusal<T>(&mut self, image: u32, result: T) -> Option<T> {
        self.budget.refuses(image).then_some(result)
    }

    /// Frame of the code at an address, or of the call before it; `None` if its instructions leave
    /// it open.
    pub fn frame(&mut self, file: File<'_>, at: CodeAddress) -> Option<CodeFrame> {
        let key = (file.image, at);
        self.budget.refill(file.image, file.size());
        if let Some(cached) = self.frames.copied(&key) {
            return cached;
        }
        if !self.may_analyse(file) {
            return None;
        }
        let frame = self.derive(file, at);
        self.frames.insert(key, frame, 1);
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
        let holds = |f: &&mut Analysed| !f.flow.is_cut && (is_known || !f.flow.contradicts);
        let holding = function.as_mut().filter(holds);
        let state = holding.as_ref().and_then(|f| frame::state_at(&f.graph, &f.flow, at));
        let frame = if state.is_some() && begin == Some(file.entry) && file.entry != 0 {
            Some(CodeFrame::Outermost)
        } else {
            let at = Asked { at, begin, is_known };
            self.both_ways(file, at, holding, state.as_ref())
        };
        if let Some(function) = function {
            let key = Key { image: file.image, begin, is_within: false };
            self.remember(key, function);
        }
        frame
    }

    /// Removes the function that begins at an address from the cache, or analyses it; it has to be
    /// stored again.
    fn analysed(&mut self, file: File<'_>, begin: u64) -> Analysed {
        let key = Key { image: file.image, begin: Some(begin), is_within: false };
        if let Some(cached) = self.functions.take(&key) {
            return cached;
        }
        let graph = self.graph(file, begin, MAX_INSTRUCTIONS, Extent::All, 0);
        let Some(first) = graph.at(begin).filter(|_| !graph.is_cut) else {
            let flow = Flow::cut();
            return Analysed { flow, is_full: true, ..Analysed::default() };
        };
        let flow = Flow::new(&graph, first);
        let main = graph.nodes.len() as u32;
        let mut analysed = Analysed { graph, flow, main, ..Analysed::default() };
        let Analysed { graph, flow, paths, .. } = &mut analysed;
        if !flow.is_cut && !paths.extend(graph, flow) {
            flow.is_cut = true;
        }
        self.spend(file, (flow.steps + paths.steps) / 4);
        if flow.is_cut {
            let flow = Flow::cut();
            return Analysed { flow, is_full: true, ..Analysed::default() };
        }
        analysed.measure();
        analysed
    }

    fn remember(&mut self, key: Key, function: Analysed) {
        let size = function.size.max(LEAST_SIZE);
        self.functions.insert(key, function, size);
    }

    /// Graph of the instructions that are reachable from an address.
    fn graph(
        &mut self,
        file: File<'_>,
        from: u64,
        limit: usize,
        extent: Extent,
        depth: usize,
    ) -> Graph {
        let is_last = &mut |target| self.is_last(file, target, depth);
        let graph = Graph::new(file, from, limit, extent, is_last);
        self.spend(file, graph.nodes.len());
        graph
    }

    /// True if the function at an address never returns: no reachable instruction does.
    fn is_last(&mut self, file: File<'_>, target: u64, depth: usize) -> bool {
        /// Most instructions of such a function, and deepest nesting of such calls.
        const SMALL: usize = 256;
        const DEEP: usize = 4;
        let key = (file.image, target);
        if let Some(cached) = self.last.copied(&key) {
            return cached;
        }
        if depth >= DEEP || self.budget.is_spent(file.image) {
            return false;
        }
        // It may call itself.
        self.last.insert(key, false, 1);
        let graph = self.graph(file, target, SMALL, Extent::ToReturn, depth + 1);
        let is_last = graph.never_returns();
        self.last.insert(key, is_last, 1);
        is_last
    }

    fn spend(&mut self, file: File<'_>, steps: usize) {
        self.budget.spend(file.image, file.size(), steps);
    }

    /// The frame by the paths from the function's beginning and to its returns: if both are known,
    /// they have to agree.
    fn both_ways(
        &mut self,
        file: File<'_>,
        Asked { at, begin, is_known }: Asked,
        function: Option<&mut Analysed>,
        state: Option<&FlowState>,
    ) -> Option<CodeFrame> {
        let FileAddress(address) = at.address;
        let down = state.and_then(frame::from_start);
        match down.as_ref().and_then(CodeFrame::proof) {
            Some(Proof::Maker) => return down,
            // The paths to its return do not show how far.
            Some(Proof::Moved) => return down.filter(|_| is_known),
            _ => {}
        }
        // No code follows a call that never returns.
        let ends = |f: &Analysed| {
            let call = f.call_before(address);
            call.is_some_and(|call| f.flow.dead.contains(&call) || f.graph.is_end(call))
        };
        let is_end = at.kind.is_return()
            && (file.functions.is_border(address) || function.as_deref().is_some_and(ends));
        let onward = if is_end { None } else { self.onward(file, address, begin, function) };
        let up = match onward.as_ref().map(frame::to_return) {
            Some(Ok(up)) => up,
            // Functions that remove their arguments return in several ways, after they have restored
            // the frame pointer.
            Some(Err(())) if is_known && down.is_some_and(|down| down.has_pointer()) => None,
            Some(Err(())) => return None,
            None => None,
        };
        let is_open = onward.is_none_or(|paths| paths.is_open || paths.returns());
        match (down, up) {
            (Some(down), Some(up)) => match frame::agree(state?, &up.frame) {
                Some(true) => Some(frame::joined(down, &up.frame)),
                Some(false) if is_known || !up.is_certain => None,
                Some(false) => Some(up.frame),
                None if is_known => Some(down),
                None => Some(frame::by_call(down)),
            },
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

    /// Paths from an address to its function's returns; `None` if that takes too long.
    fn onward(
        &mut self,
        file: File<'_>,
        address: u64,
        begin: Option<u64>,
        function: Option<&mut Analysed>,
    ) -> Option<Onward> {
        if let Some(function) = function
            && let Some(paths) = self.within(file, address, function)
        {
            return Some(paths);
        }
        // The beginning may be another function's.
        let key = Key { image: file.image, begin, is_within: true };
        let first = || Analysed { is_full: true, ..Analysed::default() };
        let mut others = self.functions.take(&key).unwrap_or_else(first);
        let mut paths = self.within(file, address, &mut others);
        if paths.is_none() && others.is_full && others.failures < MAX_FAILURES {
            let failures = others.failures;
            others = Analysed { failures, ..Analysed::default() };
            paths = self.within(file, address, &mut others);
            if others.is_full {
                let failures = failures + 1;
                others = Analysed { failures, is_full: true, ..Analysed::default() };
            }
        }
        self.remember(key, others);
        paths
    }

    /// The same in a function, to which the instructions from that address on are added.
    fn within(&mut self, file: File<'_>, address: u64, function: &mut Analysed) -> Option<Onward> {
        let before = function.steps();
        if function.graph.at(address).is_none() && !function.is_full {
            let limit =
                (function.main as usize + MAX_WITHIN).min(function.graph.nodes.len() + MAX_FROM);
            let is_last = &mut |target| self.is_last(file, target, 0);
            let Analysed { graph, flow, paths, is_full, size, .. } = function;
            graph.extend(file, address, limit, Extent::All, is_last);
            let first = graph.at(address);
            let is_whole = !graph.is_cut
                && first.is_none_or(|f| flow.extend(graph, f) && paths.extend(graph, flow));
            let added = graph.nodes.len() - graph.old() as usize;
            *size += added * WITHIN_SIZE;
            if !is_whole {
                self.spend(file, added);
                graph.shrink();
                *is_full = true;
            }
        }
        let Analysed { graph, flow, paths, .. } = &mut *function;
        let node = graph.at(address);
        let found = node.map(|node| paths.from(graph, flow, node));
        self.spend(file, function.steps() - before);
        found
    }

    /// Where the code of a named function leaves it, executed from an address on with these registers.
    pub fn leave(
        &mut self,
        file: File<'_>,
        address: u64,
        registers: [u64; DWARF_ORDER.len()],
        read: &dyn Fn(u64) -> Result<u64, ()>,
    ) -> Option<AtReturn> {
        self.budget.refill(file.image, file.size());
        if !self.may_analyse(file) {
            return None;
        }
        let key = (file.image, address);
        let mut left = None;
        if let Some(bounds) = file.functions.bounds(address)
            && let Some(code) = file.text.from(bounds.start)
        {
            let steps;
            (left, steps) = Executor { code, bounds, read }.leave(address, registers);
            self.spend(file, steps);
        }
        if left.is_none() {
            let failures = self.failures.copied(&key).unwrap_or(0);
            self.failures.insert(key, failures.saturating_add(1), 1);
        }
        left
    }

    /// True if [`CodeCache::leave`] found nothing at this address several times.
    pub fn never_leaves(&mut self, image: u32, address: u64) -> bool {
        self.failures.copied(&(image, address)).is_some_and(|n| n >= MAX_FAILURES)
    }

    /// Location of the saved stack pointer of a function that begins at `start` and moves its stack
    /// pointer.
    pub fn moved(&mut self, file: File<'_>, start: u64, address: u64) -> Option<Moved> {
        let key = (file.image, address);
        self.budget.refill(file.image, file.size());
        if let Some(cached) = self.moved.copied(&key) {
            return cached;
        }
        if !self.may_analyse(file) {
            return None;
        }
        let moved = self.in_function(file, start, |graph, flow| {
            Moved::new(&flow.before(graph, graph.at(address)?)?, flow)
        });
        self.moved.insert(key, moved, 1);
        moved
    }

    /// Distance in bytes from the stack pointer up to the frame pointer, in a function that begins at
    /// `start`; `None` if its instructions leave it open, as after `alloca`.
    pub fn pointer(&mut self, file: File<'_>, start: u64, at: CodeAddress) -> Option<u32> {
        let key = (file.image, at);
        self.budget.refill(file.image, file.size());
        if let Some(cached) = self.pointers.copied(&key) {
            return cached;
        }
        if !self.may_analyse(file) {
            return None;
        }
        let pointer = self.in_function(file, start, |graph, flow| {
            frame::pointer(&frame::state_at(graph, flow, at)?)
        });
        self.pointers.insert(key, pointer, 1);
        pointer
    }

    /// What the instructions of a function that begins at `start` show; `None` if not all of them were
    /// analysed.
    fn in_function<T>(
        &mut self,
        file: File<'_>,
        start: u64,
        find: impl FnOnce(&Graph, &Flow) -> Option<T>,
    ) -> Option<T> {
        let function = self.analysed(file, start);
        let Analysed { graph, flow, .. } = &function;
        let found = if flow.is_cut { None } else { find(graph, flow) };
        self.remember(Key { image: file.image, begin: Some(start), is_within: false }, function);
        found
    }
}
