//! Functions, their own costs, and their calls.

use std::collections::HashMap;

use rustc_hash::FxHashMap;

use profile::{MappingId, StrId};

/// Number of a function in [`CallGraph::functions`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct FunctionIndex(pub u32);

/// A function of a binary.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct GraphFunction {
    pub binary: Option<MappingId>,
    pub file: StrId,
    pub name: StrId,
}

/// A place in the code of a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct CodePlace {
    pub function: FunctionIndex,
    /// The file of the line: that of code which was inlined can be another than the function's.
    pub file: StrId,
    pub line: u64,
    /// 0: unknown.
    pub address: u64,
}

/// A call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Call {
    pub from: CodePlace,
    pub to: FunctionIndex,
}

/// Costs of places or calls, one of each event.
pub(super) struct Costs<K> {
    pub keys: Vec<K>,
    /// Those of each key, one after the other.
    pub values: Vec<i64>,
    // The standard hasher, because lines and addresses come from the file.
    index: HashMap<K, u32>,
}

impl<K> Default for Costs<K> {
    fn default() -> Self {
        Costs { keys: Vec::new(), values: Vec::new(), index: HashMap::new() }
    }
}

impl<K: Copy + Eq + std::hash::Hash> Costs<K> {
    /// Adds costs.
    pub(super) fn add(&mut self, key: K, costs: &[i64]) {
        let number = *self.index.entry(key).or_insert_with(|| {
            self.keys.push(key);
            self.values.resize(self.keys.len() * costs.len(), 0);
            self.keys.len() as u32 - 1
        });
        let first = number as usize * costs.len();
        for (sum, cost) in self.values[first..].iter_mut().zip(costs) {
            *sum = sum.saturating_add(*cost);
        }
    }

    /// The cost of key number `number` of event number `event`, of which there are `events`.
    pub(super) fn cost(&self, number: usize, event: usize, events: usize) -> i64 {
        self.values[number * events + event]
    }

    fn bytes(&self) -> u64 {
        (self.keys.len() * (2 * size_of::<K>() + 16) + self.values.len() * 8) as u64
    }
}

/// The content of a file.
#[derive(Default)]
pub(super) struct CallGraph {
    pub functions: Vec<GraphFunction>,
    index: FxHashMap<GraphFunction, FunctionIndex>,
    pub own: Costs<CodePlace>,
    pub calls: Costs<Call>,
}

impl CallGraph {
    /// Number of a function.
    pub(super) fn function(&mut self, function: GraphFunction) -> FunctionIndex {
        *self.index.entry(function).or_insert_with(|| {
            self.functions.push(function);
            FunctionIndex(self.functions.len() as u32 - 1)
        })
    }

    /// Its memory, estimated in bytes.
    pub(super) fn bytes(&self) -> u64 {
        self.own.bytes() + self.calls.bytes() + 64 * self.functions.len() as u64
    }
}
