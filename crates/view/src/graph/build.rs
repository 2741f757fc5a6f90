//! Adds up nodes and edges.

use rustc_hash::FxHashSet;

use super::{Edge, EdgeIndex, GraphNode};
use crate::View;

/// Nodes and edges, whose numbers are indices of `nodes`, in no particular order.
pub(super) struct Unsorted {
    pub nodes: Vec<GraphNode>,
    pub edges: Vec<Edge>,
}

const NO_NODE: u32 = u32::MAX;

struct Connecting<'a> {
    nodes: Vec<GraphNode>,
    edges: Vec<Edge>,
    /// Number of the last sample that each node, and each edge, was counted in.
    node_seen: Vec<usize>,
    edge_seen: Vec<usize>,
    index: EdgeIndex,
    /// The node of each frame.
    node_of: Vec<u32>,
    kept: Option<&'a FxHashSet<u32>>,
}

/// The nodes of the frames in `kept`, or of all frames, and their edges.
pub(super) fn connect(view: &View, kept: Option<&FxHashSet<u32>>) -> Unsorted {
    let mut graph = Connecting {
        nodes: Vec::new(),
        edges: Vec::new(),
        node_seen: Vec::new(),
        edge_seen: Vec::new(),
        index: EdgeIndex::default(),
        node_of: vec![NO_NODE; view.frames.len()],
        kept,
    };
    for (number, sample) in view.samples().enumerate() {
        let mut way = Way { number, value: sample.value, caller: None, residual: false };
        for &location in sample.stack.iter().rev() {
            let frames = view.frames.at(location);
            for (depth, &frame) in frames.iter().rev().enumerate() {
                graph.step(&mut way, frame, depth > 0);
            }
        }
        if sample.stack.is_empty() {
            graph.step(&mut way, view.frames.no_stack, false);
        }
        if let Some(leaf) = way.caller.filter(|_| !way.residual) {
            let node = &mut graph.nodes[leaf as usize];
            node.self_value = node.self_value.saturating_add(way.value);
        }
    }
    graph.finish()
}

/// The way from the root of a sample to its leaf.
struct Way {
    number: usize,
    value: i64,
    /// The last node.
    caller: Option<u32>,
    /// Frames without a node follow it.
    residual: bool,
}

impl Connecting<'_> {
    fn step(&mut self, way: &mut Way, frame: u32, inlined: bool) {
        let Some(node) = self.node(frame) else {
            way.residual = true;
            return;
        };
        if self.node_seen[node as usize] != way.number + 1 {
            self.node_seen[node as usize] = way.number + 1;
            let total = &mut self.nodes[node as usize].total;
            *total = total.saturating_add(way.value);
        }
        if let Some(caller) = way.caller.filter(|&caller| caller != node) {
            self.call(way, caller, node, inlined);
        }
        way.caller = Some(node);
        way.residual = false;
    }

    fn call(&mut self, way: &Way, caller: u32, callee: u32, inlined: bool) {
        let edge = *self.index.entry((caller, callee)).or_insert_with(|| {
            let new = Edge { caller, callee, value: 0, residual: false, inlined: true };
            self.edges.push(new);
            self.edge_seen.push(0);
            self.edges.len() as u32 - 1
        });
        if self.edge_seen[edge as usize] == way.number + 1 {
            return;
        }
        self.edge_seen[edge as usize] = way.number + 1;
        let edge = &mut self.edges[edge as usize];
        edge.value = edge.value.saturating_add(way.value);
        edge.residual |= way.residual;
        edge.inlined &= inlined;
    }

    fn node(&mut self, frame: u32) -> Option<u32> {
        let node = &mut self.node_of[frame as usize];
        if *node == NO_NODE {
            if self.kept.is_some_and(|kept| !kept.contains(&frame)) {
                return None;
            }
            *node = self.nodes.len() as u32;
            self.nodes.push(GraphNode { frame, self_value: 0, total: 0 });
            self.node_seen.push(0);
        }
        Some(*node)
    }

    /// Without nodes whose gains and losses are equal, and their edges.
    fn finish(self) -> Unsorted {
        let there = |n: &GraphNode| n.self_value != 0 || n.total != 0;
        let mut place = vec![NO_NODE; self.nodes.len()];
        let mut nodes = Vec::with_capacity(self.nodes.len());
        for (i, node) in self.nodes.into_iter().enumerate().filter(|(_, n)| there(n)) {
            place[i] = nodes.len() as u32;
            nodes.push(node);
        }
        let mut edges = self.edges;
        edges.retain_mut(|edge| {
            edge.caller = place[edge.caller as usize];
            edge.callee = place[edge.callee as usize];
            edge.caller != NO_NODE && edge.callee != NO_NODE
        });
        Unsorted { nodes, edges }
    }
}
