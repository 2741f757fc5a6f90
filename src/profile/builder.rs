//! Aggregation while recording: samples in, a [`Profile`] out.
//!
//! Stacks are kept as a calling-context tree, so that what a new stack costs is only its frames
//! that differ from all stacks before it, and a stack seen before allocates nothing.

use std::hash::Hasher;

use hashbrown::HashTable;
use rustc_hash::{FxHashMap, FxHasher};

use super::{
    Function, FunctionId, LabelSetId, Line, Location, LocationId, Mapping, MappingId, Profile,
    Sample, StackTable, StrId, ValueType,
};

/// Index of a value in a sample: which of the profile's sample types it belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Column(pub usize);

/// Most nodes of the calling-context tree (16 bytes each with its index entry).
const MAX_NODES: usize = 2 << 20;

const NO_NODE: u32 = u32::MAX;

#[derive(Clone, Copy)]
struct Node {
    parent: u32,
    location: LocationId,
}

#[derive(Clone, Copy)]
struct Row {
    node: u32,
    labels: LabelSetId,
}

/// Collects weighted stacks into a [`Profile`].
///
/// `profile` can be used directly for strings, labels and the fields of the header.
pub struct Builder {
    /// What becomes the profile: strings, labels, mappings and locations are already in it.
    pub profile: Profile,
    nodes: Vec<Node>,
    node_index: HashTable<u32>,
    rows: Vec<Row>,
    row_index: HashTable<u32>,
    values: Vec<i64>,
    location_index: FxHashMap<(u32, u64), LocationId>,
    synthetic_index: FxHashMap<StrId, LocationId>,
    truncations: Vec<(&'static str, LocationId)>,
    max_nodes: usize,
    folded: u64,
}

fn hash2(a: u32, b: u32) -> u64 {
    let mut h = FxHasher::default();
    h.write_u64((u64::from(a) << 32) | u64::from(b));
    h.finish()
}

impl Builder {
    /// A builder of profiles with these sample types, as (kind, unit).
    pub fn new(sample_types: &[(&str, &str)]) -> Builder {
        let mut profile = Profile::default();
        for (kind, unit) in sample_types {
            let value_type = ValueType {
                kind: profile.strings.intern(kind),
                unit: profile.strings.intern(unit),
            };
            profile.sample_types.push(value_type);
        }
        Builder {
            profile,
            nodes: Vec::new(),
            node_index: HashTable::new(),
            rows: Vec::new(),
            row_index: HashTable::new(),
            values: Vec::new(),
            location_index: FxHashMap::default(),
            synthetic_index: FxHashMap::default(),
            truncations: Vec::new(),
            max_nodes: MAX_NODES,
            folded: 0,
        }
    }

    /// The same with another bound on the tree, for tests.
    pub fn with_max_nodes(mut self, max_nodes: usize) -> Builder {
        self.max_nodes = max_nodes;
        self
    }

    /// Adds a mapping; does not look whether it is there already.
    pub fn add_mapping(&mut self, mapping: Mapping) -> MappingId {
        self.profile.mappings.push(mapping);
        MappingId(self.profile.mappings.len() as u32 - 1)
    }

    /// Id of the location at `address` of `mapping` (`None`: of no known binary).
    pub fn location(&mut self, mapping: Option<MappingId>, address: u64) -> LocationId {
        let key = (mapping.map_or(u32::MAX, |m| m.0), address);
        let locations = &mut self.profile.locations;
        *self.location_index.entry(key).or_insert_with(|| {
            locations.push(Location { mapping, address, ..Location::default() });
            LocationId(locations.len() as u32 - 1)
        })
    }

    /// Id of a location that is only a name, such as `[truncated: dump too small]`.
    pub fn named_location(&mut self, name: &str) -> LocationId {
        let name = self.profile.strings.intern(name);
        if let Some(&id) = self.synthetic_index.get(&name) {
            return id;
        }
        let profile = &mut self.profile;
        let function = FunctionId(profile.functions.len() as u32);
        profile.functions.push(Function { name, system_name: name, ..Function::default() });
        let id = LocationId(profile.locations.len() as u32);
        profile.locations.push(Location::default());
        profile.set_lines(id, &[Line { function, line: 0, column: 0 }]);
        self.synthetic_index.insert(name, id);
        id
    }

    /// Id of the location that stands where a stack ends early, for one of a few fixed reasons;
    /// allocates nothing when it is there already.
    pub fn truncation(&mut self, reason: &'static str) -> LocationId {
        match self.truncations.iter().find(|(r, _)| *r == reason) {
            Some(&(_, id)) => id,
            None => {
                let id = self.named_location(&format!("[truncated: {reason}]"));
                self.truncations.push((reason, id));
                id
            }
        }
    }

    /// Adds one sample: `stack` leaf first, 1 to the first column and `weight` to `column`.
    ///
    /// When the tree is full, a new stack is cut to the callers that are known; its value is
    /// kept, and [`Builder::folded`] counts it.
    pub fn add(&mut self, stack: &[LocationId], labels: LabelSetId, column: Column, weight: i64) {
        let node = self.node_of(stack);
        let width = self.profile.sample_types.len();
        let h = hash2(node, labels.0);
        let Builder { rows, row_index, values, .. } = self;
        let same = |&r: &u32| rows[r as usize].node == node && rows[r as usize].labels == labels;
        let row = match row_index.find(h, same) {
            Some(&row) => row as usize,
            None => {
                let row = rows.len();
                rows.push(Row { node, labels });
                values.resize(values.len() + width, 0);
                row_index.insert_unique(h, row as u32, |&r| {
                    hash2(rows[r as usize].node, rows[r as usize].labels.0)
                });
                row
            }
        };
        let cell = &mut values[row * width..(row + 1) * width];
        if column.0 != 0 {
            cell[0] += 1;
        }
        cell[column.0] += weight;
    }

    fn node_of(&mut self, stack: &[LocationId]) -> u32 {
        let mut parent = NO_NODE;
        for &location in stack.iter().rev() {
            let h = hash2(parent, location.0);
            let Builder { nodes, node_index, .. } = self;
            let same = |&n: &u32| {
                let node = nodes[n as usize];
                node.parent == parent && node.location == location
            };
            parent = match node_index.find(h, same) {
                Some(&n) => n,
                None if nodes.len() >= self.max_nodes => {
                    self.folded += 1;
                    break;
                }
                None => {
                    let n = nodes.len() as u32;
                    nodes.push(Node { parent, location });
                    node_index.insert_unique(h, n, |&n| {
                        hash2(nodes[n as usize].parent, nodes[n as usize].location.0)
                    });
                    n
                }
            };
        }
        parent
    }

    /// Number of distinct stacks (with their labels) so far.
    pub fn distinct(&self) -> usize {
        self.rows.len()
    }

    /// Number of samples whose stack was cut because the tree was full.
    pub fn folded(&self) -> u64 {
        self.folded
    }

    /// The profile. `main` becomes its first mapping, as pprof wants the main binary first.
    pub fn finish(self, main: Option<MappingId>) -> Profile {
        let Builder { mut profile, nodes, rows, values, .. } = self;
        let mut stack_of_node: FxHashMap<u32, super::StackId> = FxHashMap::default();
        let mut stacks = StackTable::default();
        for row in &rows {
            let stack = *stack_of_node
                .entry(row.node)
                .or_insert_with(|| stacks.push_iter(frames(&nodes, row.node)));
            profile.samples.push(Sample { stack, labels: row.labels });
        }
        profile.stacks = stacks;
        profile.values = values;
        if let Some(main) = main {
            swap_mappings(&mut profile, MappingId(0), main);
        }
        profile
    }
}

fn frames(nodes: &[Node], leaf: u32) -> impl Iterator<Item = LocationId> + '_ {
    let mut at = leaf;
    std::iter::from_fn(move || {
        let node = nodes.get(at as usize)?;
        at = node.parent;
        Some(node.location)
    })
}

fn swap_mappings(profile: &mut Profile, a: MappingId, b: MappingId) {
    profile.mappings.swap(a.0 as usize, b.0 as usize);
    for location in &mut profile.locations {
        location.mapping = match location.mapping {
            Some(m) if m == a => Some(b),
            Some(m) if m == b => Some(a),
            other => other,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn builder() -> Builder {
        Builder::new(&[("samples", "count"), ("cpu", "nanoseconds")])
    }

    #[test]
    fn equal_stacks_add_up() {
        let mut b = builder();
        let main = b.location(None, 0x10);
        let leaf = b.location(None, 0x20);
        for _ in 0..3 {
            b.add(&[leaf, main], LabelSetId::EMPTY, Column(1), 10);
        }
        b.add(&[main], LabelSetId::EMPTY, Column(1), 10);
        let p = b.finish(None);
        assert_eq!(p.samples.len(), 2);
        assert_eq!(p.stacks.get(p.samples[0].stack), [leaf, main]);
        assert_eq!(p.values_of(0), [3, 30]);
        assert_eq!(p.values_of(1), [1, 10]);
        assert_eq!(p.total(1), 40);
    }

    #[test]
    fn a_full_tree_keeps_values() {
        let mut b = builder().with_max_nodes(2);
        let ids: Vec<_> = (0..5).map(|i| b.location(None, i)).collect();
        b.add(&[ids[1], ids[0]], LabelSetId::EMPTY, Column(1), 1);
        b.add(&[ids[2], ids[0]], LabelSetId::EMPTY, Column(1), 1);
        b.add(&[ids[3]], LabelSetId::EMPTY, Column(1), 1);
        assert_eq!(b.folded(), 2);
        let p = b.finish(None);
        assert_eq!(p.total(0), 3);
        assert_eq!(p.stacks.get(p.samples[1].stack), [ids[0]]);
        assert_eq!(p.stacks.get(p.samples[2].stack), []);
    }

    #[test]
    fn main_binary_comes_first() {
        let mut b = builder();
        let libc = b.add_mapping(Mapping { start: 1, ..Mapping::default() });
        let exe = b.add_mapping(Mapping { start: 2, ..Mapping::default() });
        let in_libc = b.location(Some(libc), 1);
        let in_exe = b.location(Some(exe), 2);
        let p = b.finish(Some(exe));
        assert_eq!(p.mappings[0].start, 2);
        let start_of =
            |l: LocationId| p.mappings[p.locations[l.0 as usize].mapping.unwrap().0 as usize].start;
        assert_eq!((start_of(in_exe), start_of(in_libc)), (2, 1));
    }

    #[test]
    fn named_locations_are_interned() {
        let mut b = builder();
        let a = b.named_location("[truncated]");
        assert_eq!(b.named_location("[truncated]"), a);
        let p = &b.profile;
        assert_eq!(p.str(p.functions[p.lines_of(a)[0].function.0 as usize].name), "[truncated]");
    }
}
