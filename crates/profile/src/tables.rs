//! The calling-context tree and the values of its stacks.

use std::hash::Hasher;

use hashbrown::HashTable;
use rustc_hash::FxHasher;

use super::recent::Recent;
use super::{LabelSetId, LocationId};

/// The parent of outermost frames.
pub const NO_NODE: u32 = u32::MAX;

/// Number of threads whose last path is remembered.
pub const PATHS: usize = 16;

/// A frame and its callers.
#[derive(Clone, Copy)]
pub struct StackNode {
    /// Node of the caller, or [`NO_NODE`].
    pub parent: u32,
    /// The frame.
    pub location: LocationId,
}

/// A stack and its labels.
#[derive(Clone, Copy)]
pub struct StackRow {
    /// Node of the innermost frame; [`NO_NODE`]: an empty stack.
    pub node: u32,
    /// The labels.
    pub labels: LabelSetId,
}

/// A stack by its callers and the address of its innermost frame.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct Leaf {
    /// Address of the innermost frame.
    pub address: u64,
    /// Its mapping, [`NO_NODE`] for none.
    pub mapping: u32,
    /// Node of its caller.
    pub parent: u32,
    /// The labels.
    pub labels: u32,
}

/// A leaf that no stack has.
const NEVER: Leaf = Leaf { address: 0, mapping: NO_NODE - 1, parent: 0, labels: 0 };

/// Nodes, rows and values, with their indices.
pub struct StackTables {
    /// A parent precedes its children.
    pub nodes: Vec<StackNode>,
    node_index: HashTable<u32>,
    /// All are distinct.
    pub rows: Vec<StackRow>,
    row_index: HashTable<u32>,
    /// One for each row and sample type.
    pub values: Vec<i64>,
    recent_leaves: Recent<Leaf, usize>,
    /// The last stacks, root first, with their nodes: most stacks of a thread begin alike.
    pub paths: [Vec<(LocationId, u32)>; PATHS],
}

impl Default for StackTables {
    fn default() -> StackTables {
        StackTables {
            nodes: Vec::new(),
            node_index: HashTable::new(),
            rows: Vec::new(),
            row_index: HashTable::new(),
            values: Vec::new(),
            recent_leaves: Recent::new(NEVER, 0),
            paths: Default::default(),
        }
    }
}

/// Hash of two numbers; the first may be small.
#[inline]
pub fn hash2(a: u32, b: u64) -> u64 {
    let mut h = FxHasher::default();
    h.write_u64(b);
    h.write_u32(a);
    h.finish()
}

fn node_hash(node: StackNode) -> u64 {
    hash2(node.parent, node.location.0.into())
}

fn row_hash(row: StackRow) -> u64 {
    hash2(row.node, row.labels.0.into())
}

impl StackTables {
    /// Forgets recent stacks: few are added from now on.
    pub fn drop_caches(&mut self) {
        self.recent_leaves = Recent::without_slots();
        self.paths = Default::default();
    }

    /// Replaces the labels of all rows by others, which distinguish the same rows.
    pub fn relabel(&mut self, mut other: impl FnMut(LabelSetId) -> LabelSetId) {
        let StackTables { rows, row_index, recent_leaves, .. } = self;
        rows.iter_mut().for_each(|row| row.labels = other(row.labels));
        row_index.clear();
        for (i, &row) in (0..).zip(rows.iter()) {
            row_index.insert_unique(row_hash(row), i, |&r: &u32| row_hash(rows[r as usize]));
        }
        *recent_leaves = Recent::without_slots();
    }

    /// Remembers recent stacks.
    pub fn keep_recent(&mut self) {
        self.recent_leaves = Recent::new(NEVER, 0);
    }

    /// Size in memory, apart from what is recent.
    pub fn bytes(&self) -> usize {
        let rows = self.rows.len() * (size_of::<StackRow>() + 5);
        let nodes = self.nodes.len() * (size_of::<StackNode>() + 5);
        rows + nodes + self.values.len() * size_of::<i64>()
    }

    /// Index of the row of a recent stack.
    pub fn recent_row(&self, leaf: Leaf) -> Option<usize> {
        self.recent_leaves.get(hash2(leaf.parent, leaf.address), leaf)
    }

    /// Remembers the row of a stack.
    pub fn set_recent_row(&mut self, leaf: Leaf, row: usize) {
        self.recent_leaves.set(hash2(leaf.parent, leaf.address), leaf, row);
    }

    /// Index of a row.
    pub fn find_row(&self, row: StackRow) -> Option<usize> {
        let rows = &self.rows;
        let same =
            |&r: &u32| rows[r as usize].node == row.node && rows[r as usize].labels == row.labels;
        self.row_index.find(row_hash(row), same).map(|&i| i as usize)
    }

    /// Adds a new row, with `width` values of 0.
    pub fn push_row(&mut self, row: StackRow, width: usize) -> usize {
        let StackTables { rows, row_index, values, .. } = self;
        let i = rows.len();
        rows.push(row);
        values.resize(values.len() + width, 0);
        row_index.insert_unique(row_hash(row), i as u32, |&r| row_hash(rows[r as usize]));
        i
    }

    /// Index of a node.
    pub fn find_node(&self, node: StackNode) -> Option<u32> {
        let nodes = &self.nodes;
        let same = |&n: &u32| {
            let n = nodes[n as usize];
            n.parent == node.parent && n.location == node.location
        };
        self.node_index.find(node_hash(node), same).copied()
    }

    /// Adds a new node.
    pub fn push_node(&mut self, node: StackNode) -> u32 {
        let StackTables { nodes, node_index, .. } = self;
        let n = nodes.len() as u32;
        nodes.push(node);
        node_index.insert_unique(node_hash(node), n, |&n| node_hash(nodes[n as usize]));
        n
    }

    /// Adds the stacks and values of `other`, which need no indices. Returns the row of each of its
    /// rows.
    pub fn add_all(&mut self, other: &StackTables, width: usize) -> Vec<u32> {
        let mut here: Vec<u32> = Vec::with_capacity(other.nodes.len());
        let place = |here: &[u32], n: u32| here.get(n as usize).copied().unwrap_or(NO_NODE);
        for &StackNode { parent, location } in &other.nodes {
            let node = StackNode { parent: place(&here, parent), location };
            here.push(self.find_node(node).unwrap_or_else(|| self.push_node(node)));
        }
        let mut rows = Vec::with_capacity(other.rows.len());
        for (&StackRow { node, labels }, values) in
            other.rows.iter().zip(other.values.chunks(width))
        {
            let row = StackRow { node: place(&here, node), labels };
            let i = self.find_row(row).unwrap_or_else(|| self.push_row(row, width));
            rows.push(i as u32);
            for (sum, value) in self.values[i * width..].iter_mut().zip(values) {
                *sum = sum.saturating_add(*value);
            }
        }
        rows
    }
}
