//! Cached results about calls: where they lead to, and which of them frame pointers skip.

use super::{CodeCache, MAX_LED};
use crate::arch::x86_64::code::graph::Extent;
use crate::arch::x86_64::code::{LONGEST_CALL, between, call_before};
use crate::code::{Between, CallTarget, File, FunctionStart, Leads};

impl CodeCache {
    /// Return address of the call that frame pointers skip. `None` if there are several, or none.
    pub fn between(
        &mut self,
        file: File<'_>,
        between: Between,
        are_one: impl Fn(u64, u64) -> bool,
    ) -> Option<u64> {
        let key = (file.image, between);
        if let Some(cached) = self.between.copied(&key) {
            return cached;
        }
        if !self.may_analyse(file) {
            return None;
        }
        let found = between::called(file, between.after).and_then(|begin| {
            let graph = self.graph(file, begin, MAX_LED, Extent::All, 0);
            self.spend(file, 2 * graph.nodes.len());
            let whole = (!graph.is_cut).then_some(&graph)?;
            between::find(file, whole, begin, between, are_one)
        });
        self.between.insert(key, found, 1);
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
        if let Some(cached) = self.leads.copied(&key) {
            return cached;
        }
        let before = file.text.before(address, LONGEST_CALL);
        let found = match before.and_then(|bytes| call_before(bytes, address)) {
            None => Leads::Elsewhere,
            Some(CallTarget::Indirect) => Leads::Somewhere,
            Some(CallTarget::Direct(target)) => self.follow(file, target, to, are_one),
        };
        if !self.budget.is_spent(file.image) {
            self.leads.insert(key, found, 1);
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
        let is_there = |at: u64| {
            to.is_some_and(|to| at == to || are_one(at, to) || file.functions.are_one(at, to))
        };
        if is_there(target) {
            return Leads::There;
        }
        if !self.may_analyse(file) {
            return Leads::Somewhere;
        }
        // By jumps: a tail call, or a separate part of a function.
        let key = (file.image, target);
        let cached = self.led.take(&key);
        let graph = cached.unwrap_or_else(|| self.graph(file, target, MAX_LED, Extent::All, 0));
        let passes = |to: u64| graph.at(to).is_some() || graph.call_before(to).is_some();
        // No other function is known to begin between the target and that address, and not all
        // jumps of the one that does are known.
        let nearest = |to: u64| file.functions.start(to) == Some(FunctionStart::Likely(target));
        let is_open = graph.is_open || graph.is_cut;
        let found = if to.is_some_and(|to| passes(to) || is_open && nearest(to)) {
            Leads::There
        } else {
            self.spend(file, graph.nodes.len());
            match to.is_some() && graph.addresses().any(is_there) {
                true => Leads::There,
                false if is_open => Leads::Somewhere,
                false => Leads::Elsewhere,
            }
        };
        let size = graph.nodes.len() + 1;
        self.led.insert(key, graph, size);
        found
    }
}
