//! Stacks from calls: the own costs of each function are divided among the paths that lead to it.

use profile::{LabelSetId, Line, LocationId, Profile};

use super::ESTIMATED;
use super::graph::{Call, CallGraph, CodePlace, FunctionIndex};
use crate::assembly::{AddedSample, Assembly, ColumnValue};

/// Parts into which the costs of an event are divided at most; smaller ones belong to the path with
/// the largest.
const PARTS: i64 = 20_000;

/// Most callers of a path.
const DEEPEST: usize = 1000;

/// A way from a function to one without a caller.
struct Path {
    /// Numbers of calls, the innermost first.
    calls: Vec<u32>,
    amount: i64,
}

/// Calls with a cost of one event.
struct EventCalls<'g> {
    graph: &'g CallGraph,
    event: usize,
    events: usize,
    /// Numbers of the calls of each function, one function after the other.
    calls: Vec<u32>,
    /// End of each function's part of `calls`.
    ends: Vec<usize>,
    /// Smallest amount that is divided.
    least: i64,
    /// The functions of the current path.
    on_path: Vec<bool>,
}

/// The profile of a call graph. The error is a sentence.
pub(super) fn profile(
    mut all: Assembly,
    graph: CallGraph,
    memory_allowed: u64,
) -> Result<Profile, String> {
    let events = all.profile.sample_types.len();
    let mut by_function: Vec<u32> = (0..graph.own.keys.len() as u32).collect();
    by_function.sort_by_key(|&own| graph.own.keys[own as usize].function.0);
    let excess = |all: &Assembly| all.excess(memory_allowed.saturating_sub(graph.bytes()));
    for event in 0..events {
        let mut calls = EventCalls::new(&graph, event, events);
        let is_same = |a: &u32, b: &u32| {
            graph.own.keys[*a as usize].function == graph.own.keys[*b as usize].function
        };
        for own in by_function.chunk_by(is_same) {
            add_function(&mut all, &mut calls, own);
            if let Some(excess) = excess(&all) {
                return Err(excess);
            }
        }
    }
    if !graph.calls.keys.is_empty() {
        all.comment(ESTIMATED);
    }
    Ok(all.finish())
}

/// Adds the own costs of a function, whose places have the numbers `own`.
fn add_function(all: &mut Assembly, calls: &mut EventCalls<'_>, own: &[u32]) {
    let cost = |calls: &EventCalls<'_>, number: u32| {
        calls.graph.own.cost(number as usize, calls.event, calls.events)
    };
    let total = own.iter().fold(0i64, |sum, &number| sum.saturating_add(cost(calls, number)));
    if own.iter().all(|&number| cost(calls, number) == 0) {
        return;
    }
    let function = calls.graph.own.keys[own[0] as usize].function;
    let paths = calls.paths(function, total);
    let amounts: Vec<i64> = paths.iter().map(|path| path.amount).collect();
    let locations: Vec<Vec<LocationId>> = paths
        .iter()
        .map(|path| {
            let from = |&call: &u32| calls.graph.calls.keys[call as usize].from;
            path.calls.iter().map(|call| location(all, calls.graph, from(call))).collect()
        })
        .collect();
    let mut stack = Vec::new();
    for &number in own {
        let leaf = location(all, calls.graph, calls.graph.own.keys[number as usize]);
        let shares = divide(cost(calls, number), &amounts, calls.least);
        for (callers, value) in locations.iter().zip(shares).filter(|(_, value)| *value != 0) {
            stack.clear();
            stack.push(leaf);
            stack.extend_from_slice(callers);
            let values = &[ColumnValue { column: calls.event, value }];
            let labels = LabelSetId::EMPTY;
            all.add(AddedSample { stack: &stack, labels, values, time: None });
        }
    }
}

fn location(all: &mut Assembly, graph: &CallGraph, place: CodePlace) -> LocationId {
    let function = graph.functions[place.function.0 as usize];
    let text = |all: &Assembly, id| match all.profile.str(id) {
        "???" => String::new(),
        text => text.to_owned(),
    };
    let name = all.profile.str(function.name).to_owned();
    let file = text(all, place.file);
    // A number in the place of a name that is not known.
    let lines = (!name.is_empty() && !name.starts_with("0x")).then(|| Line {
        function: all.function(&name, &file, 0),
        line: i64::try_from(place.line).unwrap_or(0),
        column: 0,
    });
    let number = name.strip_prefix("0x").and_then(|digits| u64::from_str_radix(digits, 16).ok());
    let address = if lines.is_some() { place.address } else { number.unwrap_or(place.address) };
    all.location(function.binary, address, lines.as_slice())
}

/// Divides an amount in proportion to weights. Parts below `least` go to the largest weight.
fn divide(amount: i64, weights: &[i64], least: i64) -> Vec<i64> {
    let sum: i128 = weights.iter().map(|&weight| i128::from(weight.max(0))).sum();
    let mut parts = vec![0; weights.len()];
    let Some(largest) = (0..weights.len()).max_by_key(|&i| (weights[i], usize::MAX - i)) else {
        return parts;
    };
    let mut rest = amount;
    if amount >= least && sum > 0 {
        for (part, &weight) in parts.iter_mut().zip(weights) {
            let share = (i128::from(amount) * i128::from(weight.max(0)) / sum) as i64;
            if share >= least {
                *part = share;
                rest -= share;
            }
        }
    }
    parts[largest] += rest;
    parts
}

impl<'g> EventCalls<'g> {
    fn new(graph: &'g CallGraph, event: usize, events: usize) -> EventCalls<'g> {
        let mut calls: Vec<u32> = (0..graph.calls.keys.len() as u32)
            .filter(|&call| graph.calls.cost(call as usize, event, events) > 0)
            .collect();
        calls.sort_by_key(|&call| graph.calls.keys[call as usize].to.0);
        let mut ends = Vec::with_capacity(graph.functions.len());
        for function in 0..graph.functions.len() as u32 {
            let to = |&call: &u32| graph.calls.keys[call as usize].to.0 <= function;
            ends.push(calls.partition_point(to));
        }
        let own = (0..graph.own.keys.len()).map(|own| graph.own.cost(own, event, events));
        let total = own.fold(0i64, |sum, cost| sum.saturating_add(cost));
        let least = (total / PARTS).max(1);
        let on_path = vec![false; graph.functions.len()];
        EventCalls { graph, event, events, calls, ends, least, on_path }
    }

    /// The calls of a function that a path does not contain yet.
    fn callers(&self, function: FunctionIndex) -> Vec<u32> {
        let at = function.0 as usize;
        let begin = if at == 0 { 0 } else { self.ends[at - 1] };
        let calls = self.calls[begin..self.ends[at]].iter().copied();
        let from = |call: u32| -> Call { self.graph.calls.keys[call as usize] };
        calls.filter(|&call| !self.on_path[from(call).from.function.0 as usize]).collect()
    }

    /// The paths to a function, with the parts of an amount.
    fn paths(&mut self, function: FunctionIndex, amount: i64) -> Vec<Path> {
        let mut paths = Vec::new();
        let mut calls = Vec::new();
        self.extend(function, amount, &mut calls, &mut paths);
        paths
    }

    fn extend(
        &mut self,
        function: FunctionIndex,
        amount: i64,
        path: &mut Vec<u32>,
        paths: &mut Vec<Path>,
    ) {
        self.on_path[function.0 as usize] = true;
        let callers = if path.len() < DEEPEST { self.callers(function) } else { Vec::new() };
        if callers.is_empty() {
            paths.push(Path { calls: path.clone(), amount });
        }
        let cost = |&call: &u32| self.graph.calls.cost(call as usize, self.event, self.events);
        let weights: Vec<i64> = callers.iter().map(cost).collect();
        let parts = divide(amount, &weights, self.least);
        for (call, part) in callers.into_iter().zip(parts).filter(|(_, part)| *part != 0) {
            path.push(call);
            let caller = self.graph.calls.keys[call as usize].from.function;
            self.extend(caller, part, path, paths);
            path.pop();
        }
        self.on_path[function.0 as usize] = false;
    }
}

#[cfg(test)]
mod tests {
    use super::divide;

    #[test]
    fn parts_add_up_and_small_ones_go_to_the_largest() {
        assert_eq!(divide(10, &[1, 2, 1], 1), [2, 6, 2]);
        assert_eq!(divide(10, &[1, 8, 1], 3), [0, 10, 0]);
        assert_eq!(divide(2, &[1, 1], 5), [2, 0]);
        assert_eq!(divide(7, &[0, 0], 1), [7, 0]);
        assert_eq!(divide(7, &[], 1), [0; 0]);
        assert_eq!(divide(i64::MAX, &[i64::MAX, i64::MAX], 1).iter().sum::<i64>(), i64::MAX);
    }
}
