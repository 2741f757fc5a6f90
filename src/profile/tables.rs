//! The calling-context tree and the values of its stacks.

use std::hash::Hasher;

use hashbrown::HashTable;
use rustc_hash::FxHasher;

use super::recent::Recent;
use super::{LabelSetId, LocationId};

/// The parent of outermost frames.
pub const NO_NODE: u32 = u32::MAX;

/// Threads whose last path is remembered.
pub const PATHS: usize = 16;

/// A frame and its callers.
#[derive(Clone, Copy)]
pub struct Node {
    /// Node of the caller, or [`NO_NODE`].
    pub parent: u32,
    /// The frame.
    pub location: LocationId,
}

/// A stack and its labels.
#[derive(Clone, Copy)]
pub struct Row {
    /// Node of the innermost frame; [`NO_NODE`]: an empty stack.
    pub node: u32,
    /// The labels.
    pub labels: LabelSetId,
}

/// Nodes, rows and values, with their indices.
pub struct Tables {
    /// A parent stands before its children.
    pub nodes: Vec<Node>,
    node_index: HashTable<u32>,
    /// All distinct.
    pub rows: Vec<Row>,
    row_index: HashTable<u32>,
    /// One for each row and sample type.
    pub values: Vec<i64>,
    recent_nodes: Recent<(u32, u32), u32>,
    recent_rows: Recent<(u32, u32), usize>,
    /// The last stacks, root first, with their nodes: most stacks of a thread begin alike.
    pub paths: [Vec<(LocationId, u32)>; PATHS],
}

impl Default for Tables {
    fn default() -> Tables {
        Tables {
            nodes: Vec::new(),
            node_index: HashTable::new(),
            rows: Vec::new(),
            row_index: HashTable::new(),
            values: Vec::new(),
            recent_nodes: Recent::new((0, NO_NODE), 0),
            recent_rows: Recent::new((NO_NODE, u32::MAX), 0),
            paths: Default::default(),
        }
    }
}

/// The hash of two numbers; the first may be small.
pub fn hash2(a: u32, b: u64) -> u64 {
    let mut h = FxHasher::default();
    h.write_u64(b);
    h.write_u32(a);
    h.finish()
}

fn node_hash(node: Node) -> u64 {
    hash2(node.parent, node.location.0.into())
}

fn row_hash(row: Row) -> u64 {
    hash2(row.node, row.labels.0.into())
}

impl Tables {
    /// Index of a row.
    pub fn find_row(&mut self, row: Row) -> Option<usize> {
        let (hash, key) = (row_hash(row), (row.node, row.labels.0));
        if let Some(i) = self.recent_rows.get(hash, key) {
            return Some(i);
        }
        let rows = &self.rows;
        let same =
            |&r: &u32| rows[r as usize].node == row.node && rows[r as usize].labels == row.labels;
        let i = *self.row_index.find(hash, same)? as usize;
        self.recent_rows.set(hash, key, i);
        Some(i)
    }

    /// Adds a row that is not there, with `width` values of 0.
    pub fn push_row(&mut self, row: Row, width: usize) -> usize {
        let Tables { rows, row_index, values, .. } = self;
        let i = rows.len();
        rows.push(row);
        values.resize(values.len() + width, 0);
        row_index.insert_unique(row_hash(row), i as u32, |&r| row_hash(rows[r as usize]));
        i
    }

    /// Index of a node.
    pub fn find_node(&mut self, node: Node) -> Option<u32> {
        let (hash, key) = (node_hash(node), (node.parent, node.location.0));
        if let Some(n) = self.recent_nodes.get(hash, key) {
            return Some(n);
        }
        let nodes = &self.nodes;
        let same = |&n: &u32| {
            let n = nodes[n as usize];
            n.parent == node.parent && n.location == node.location
        };
        let n = *self.node_index.find(hash, same)?;
        self.recent_nodes.set(hash, key, n);
        Some(n)
    }

    /// Adds a node that is not there.
    pub fn push_node(&mut self, node: Node) -> u32 {
        let Tables { nodes, node_index, .. } = self;
        let n = nodes.len() as u32;
        nodes.push(node);
        node_index.insert_unique(node_hash(node), n, |&n| node_hash(nodes[n as usize]));
        n
    }

    /// Adds the stacks and values of `other`, which need no indices.
    pub fn add_all(&mut self, other: &Tables, width: usize) {
        let mut here: Vec<u32> = Vec::with_capacity(other.nodes.len());
        let place = |here: &[u32], n: u32| here.get(n as usize).copied().unwrap_or(NO_NODE);
        for &Node { parent, location } in &other.nodes {
            let node = Node { parent: place(&here, parent), location };
            here.push(self.find_node(node).unwrap_or_else(|| self.push_node(node)));
        }
        for (&Row { node, labels }, values) in other.rows.iter().zip(other.values.chunks(width)) {
            let row = Row { node: place(&here, node), labels };
            let i = self.find_row(row).unwrap_or_else(|| self.push_row(row, width));
            for (sum, value) in self.values[i * width..].iter_mut().zip(values) {
                *sum = sum.saturating_add(*value);
            }
        }
    }
}
