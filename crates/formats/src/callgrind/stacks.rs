//! Stacks from calls: the own costs of each function are divided among the paths that lead to it.

use profile::{LabelSetId, Line, LocationId, Profile, comment};

use super::graph::{CallGraph, CodePlace, FunctionIndex};
use crate::assembly::{AddedSample, Assembly, ColumnValue, excess};

/// Parts into which the costs of an event are divided at most; smaller ones belong to the path with
/// the largest.
const PARTS: u64 = 20_000;

/// Most divisions of a cost between two callers, of all events of a file.
const DIVISIONS: usize = 100_000;

/// Most calls that are compared to divide costs, of all events of a file.
const COMPARED: usize = 100_000_000;

/// Most callers of a path.
const DEEPEST: usize = 1000;

/// A way from a function to one without a caller.
struct Path {
    /// Numbers of calls, the innermost first.
    calls: Vec<u32>,
    amount: i64,
}

/// What is left of the work for a file.
struct WorkLeft {
    divisions: usize,
    compared: usize,
}

/// Calls with a cost of one event.
struct EventCalls<'g> {
    graph: &'g CallGraph,
    event: usize,
    events: usize,
    /// Numbers of the calls of each function, one function after the other, those of a function by
    /// their cost, the most expensive first.
    calls: Vec<u32>,
    /// End of each function's part of `calls`.
    ends: Vec<usize>,
    /// Smallest amount that is divided.
    least: i64,
    left: WorkLeft,
    /// The costs that were not divided because no work was left.
    undivided: i64,
    /// The functions of the current path.
    on_path: Vec<bool>,
    /// The current path.
    path: Vec<u32>,
    /// The paths of the current function.
    paths: Vec<Path>,
    /// Memory of `paths`, in bytes.
    path_bytes: u64,
    /// Memory that `paths` may take, in bytes.
    path_bytes_allowed: u64,
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
    let allowed = memory_allowed.saturating_sub(graph.bytes());
    let mut left = WorkLeft { divisions: DIVISIONS, compared: COMPARED };
    let mut notes = Vec::new();
    for event in 0..events {
        let rest = events - event;
        let part = WorkLeft { divisions: left.divisions / rest, compared: left.compared / rest };
        left.divisions -= part.divisions;
        left.compared -= part.compared;
        let mut calls = EventCalls::new(&graph, event, events, part);
        let is_same = |a: &u32, b: &u32| {
            graph.own.keys[*a as usize].function == graph.own.keys[*b as usize].function
        };
        for own in by_function.chunk_by(is_same) {
            add_function(&mut all, &mut calls, own, allowed)?;
        }
        left.divisions += calls.left.divisions;
        left.compared += calls.left.compared;
        if calls.undivided > 0 {
            let name = all.profile.str(all.profile.sample_types[event].kind);
            notes.push(format!(
                "note: {} of {name} has the most expensive callers only: too many paths lead to it",
                calls.undivided
            ));
        }
    }
    if !graph.calls.keys.is_empty() {
        all.comment(comment::ESTIMATED_STACKS);
    }
    notes.iter().for_each(|note| all.comment(note));
    Ok(all.finish())
}

/// Adds the own costs of a function, whose places have the numbers `own`. The error is a sentence.
fn add_function(
    all: &mut Assembly,
    calls: &mut EventCalls<'_>,
    own: &[u32],
    allowed: u64,
) -> Result<(), String> {
    let cost = |calls: &EventCalls<'_>, number: u32| {
        calls.graph.own.cost(number as usize, calls.event, calls.events)
    };
    let total = own.iter().fold(0i64, |sum, &number| sum.saturating_add(cost(calls, number)));
    if own.iter().all(|&number| cost(calls, number) == 0) {
        return Ok(());
    }
    let function = calls.graph.own.keys[own[0] as usize].function;
    calls.path_bytes_allowed = allowed.saturating_sub(all.bytes());
    let mut paths = calls.paths(function, total)?;
    paths.sort_by_key(|path| std::cmp::Reverse(path.amount));
    let amounts = Weights::new(paths.iter().map(|path| path.amount));
    let locations: Vec<Vec<LocationId>> = paths
        .into_iter()
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
            if let Some(excess) = all.excess(allowed.saturating_sub(calls.path_bytes)) {
                return Err(excess);
            }
        }
    }
    Ok(())
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

/// Weights, the largest first.
struct Weights {
    values: Vec<i64>,
    /// The sum of those above 0.
    sum: i128,
}

impl Weights {
    fn new(values: impl Iterator<Item = i64>) -> Weights {
        let values: Vec<i64> = values.collect();
        debug_assert!(values.is_sorted_by(|a, b| a >= b));
        let sum = values.iter().map(|&weight| i128::from(weight.max(0))).sum();
        Weights { values, sum }
    }
}

/// Divides an amount in proportion to weights. Parts below `least`, which are not in the result, go
/// to the first weight.
fn divide(amount: i64, weights: &Weights, least: i64) -> Vec<i64> {
    let Weights { values, sum } = weights;
    if values.is_empty() {
        return Vec::new();
    }
    if amount < least || *sum == 0 {
        return vec![amount];
    }
    let share = |&weight: &i64| (i128::from(amount) * i128::from(weight.max(0)) / sum) as i64;
    let mut parts: Vec<i64> =
        values.iter().map(share).take_while(|&share| share >= least).collect();
    let rest = amount - parts.iter().sum::<i64>();
    match parts.first_mut() {
        Some(first) => *first += rest,
        None => parts.push(rest),
    }
    parts
}

impl<'g> EventCalls<'g> {
    fn new(graph: &'g CallGraph, event: usize, events: usize, left: WorkLeft) -> EventCalls<'g> {
        let cost = |call: u32| graph.calls.cost(call as usize, event, events);
        let mut calls: Vec<u32> =
            (0..graph.calls.keys.len() as u32).filter(|&call| cost(call) > 0).collect();
        calls.sort_by_key(|&call| {
            (graph.calls.keys[call as usize].to.0, std::cmp::Reverse(cost(call)))
        });
        let mut ends = Vec::with_capacity(graph.functions.len());
        for function in 0..graph.functions.len() as u32 {
            let to = |&call: &u32| graph.calls.keys[call as usize].to.0 <= function;
            ends.push(calls.partition_point(to));
        }
        // Costs can be negative: their sum does not bound the number of parts.
        let own = (0..graph.own.keys.len()).map(|own| graph.own.cost(own, event, events));
        let total = own.fold(0u64, |sum, cost| sum.saturating_add(cost.unsigned_abs()));
        EventCalls {
            graph,
            event,
            events,
            calls,
            ends,
            least: (total / PARTS).max(1) as i64,
            left,
            undivided: 0,
            on_path: vec![false; graph.functions.len()],
            path: Vec::new(),
            paths: Vec::new(),
            path_bytes: 0,
            path_bytes_allowed: 0,
        }
    }

    fn caller(&self, call: u32) -> FunctionIndex {
        self.graph.calls.keys[call as usize].from.function
    }

    /// The calls of a function that the current path does not contain yet.
    fn callers(&self, function: FunctionIndex) -> impl Iterator<Item = u32> {
        let calls = self.calls[self.call_range(function)].iter().copied();
        calls.filter(|&call| !self.on_path[self.caller(call).0 as usize])
    }

    /// The place of a function's calls in `calls`.
    fn call_range(&self, function: FunctionIndex) -> std::ops::Range<usize> {
        let at = function.0 as usize;
        let begin = if at == 0 { 0 } else { self.ends[at - 1] };
        begin..self.ends[at]
    }

    /// The paths to a function, with the parts of an amount. The error is a sentence.
    fn paths(&mut self, function: FunctionIndex, amount: i64) -> Result<Vec<Path>, String> {
        self.path_bytes = 0;
        self.extend(function, amount)?;
        Ok(std::mem::take(&mut self.paths))
    }

    /// Extends the current path by a function and all of its callers.
    fn extend(&mut self, function: FunctionIndex, amount: i64) -> Result<(), String> {
        let candidates = self.call_range(function).len();
        if amount < self.least || self.path.len() == DEEPEST {
            return self.follow(function, amount);
        }
        if candidates > self.left.compared {
            self.undivided = self.undivided.saturating_add(amount);
            return self.follow(function, amount);
        }
        self.left.compared -= candidates;
        self.on_path[function.0 as usize] = true;
        let callers: Vec<u32> = self.callers(function).collect();
        self.on_path[function.0 as usize] = false;
        let cost = |&call: &u32| self.graph.calls.cost(call as usize, self.event, self.events);
        let weights = Weights::new(callers.iter().map(cost));
        let parts = divide(amount, &weights, self.least);
        if parts.is_empty() {
            return self.follow(function, amount);
        }
        if parts.len() - 1 > self.left.divisions {
            self.undivided = self.undivided.saturating_add(amount);
            return self.follow(function, amount);
        }
        self.left.divisions -= parts.len() - 1;
        self.on_path[function.0 as usize] = true;
        for (call, part) in callers.into_iter().zip(parts) {
            self.path.push(call);
            self.extend(self.caller(call), part)?;
            self.path.pop();
        }
        self.on_path[function.0 as usize] = false;
        Ok(())
    }

    /// Ends the current path with a function and the most expensive of its callers, of which each is
    /// called by the next.
    fn follow(&mut self, function: FunctionIndex, amount: i64) -> Result<(), String> {
        let before = self.path.len();
        let mut last = function;
        self.on_path[last.0 as usize] = true;
        while self.path.len() < DEEPEST {
            let Some(call) = self.callers(last).next() else { break };
            self.path.push(call);
            last = self.caller(call);
            self.on_path[last.0 as usize] = true;
        }
        self.on_path[function.0 as usize] = false;
        for &call in &self.path[before..] {
            let caller = self.graph.calls.keys[call as usize].from.function;
            self.on_path[caller.0 as usize] = false;
        }
        // Twice: their locations are kept, too.
        self.path_bytes += (size_of::<Path>() + 2 * self.path.len() * size_of::<u32>()) as u64;
        if let Some(excess) = excess(self.path_bytes, self.path_bytes_allowed) {
            return Err(excess);
        }
        self.paths.push(Path { calls: self.path.clone(), amount });
        self.path.truncate(before);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::{Weights, divide};

    #[test]
    fn parts_add_up_and_small_ones_go_to_the_largest() {
        let divide = |amount, weights: &[i64], least| {
            divide(amount, &Weights::new(weights.iter().copied()), least)
        };
        assert_eq!(divide(10, &[2, 1, 1], 1), [6, 2, 2]);
        assert_eq!(divide(10, &[8, 1, 1], 3), [10]);
        assert_eq!(divide(2, &[1, 1], 5), [2]);
        assert_eq!(divide(7, &[0, 0], 1), [7]);
        assert_eq!(divide(-7, &[1, 1], 1), [-7]);
        assert_eq!(divide(7, &[], 1), [0; 0]);
        assert_eq!(divide(i64::MAX, &[i64::MAX, i64::MAX], 1).iter().sum::<i64>(), i64::MAX);
    }
}
