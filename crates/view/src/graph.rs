//! The call graph: functions, and the calls between them, trimmed as by `go tool pprof`.
//!
//! A node is a frame of the view, whatever its callers; an edge has the value of the samples in
//! which its caller calls its callee, once for each sample even in a recursion. Calls of a function
//! by itself have no edge. If trimming removes the functions between two others, a *residual* edge
//! connects these.

mod build;

use std::cmp::Ordering;

use rustc_hash::{FxHashMap, FxHashSet};

use super::View;
use build::Unsorted;

/// Order of the nodes, and the one in which they are kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NodeOrder {
    /// pprof's order for drawings: by value, and by the number of callers and callees among which
    /// it is divided. Redundant residual edges are removed.
    #[default]
    Drawing,
    /// Largest self value first.
    SelfValue,
}

/// Limits of a graph. Nodes and edges below them are removed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Trim {
    /// Most nodes; 0: all.
    pub nodes: usize,
    /// Smallest total of a node, as a fraction of the sum of all self values.
    pub node_fraction: f64,
    /// Smallest value of an edge, as a fraction of the same sum.
    pub edge_fraction: f64,
}

impl Trim {
    /// All nodes and edges.
    pub const NOTHING: Trim = Trim { nodes: 0, node_fraction: 0.0, edge_fraction: 0.0 };
}

impl Default for Trim {
    /// pprof's limits.
    fn default() -> Trim {
        Trim { nodes: 80, node_fraction: 0.005, edge_fraction: 0.001 }
    }
}

/// A function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GraphNode {
    /// Id of its frame.
    pub frame: u32,
    /// Sum of the samples whose leaf it is.
    pub self_value: i64,
    /// Sum of the samples that contain it.
    pub total: i64,
}

/// Calls of one function by another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Edge {
    /// Index of the caller in [`Graph::nodes`].
    pub caller: u32,
    /// Index of the callee in [`Graph::nodes`].
    pub callee: u32,
    /// Sum of the samples with such a call.
    pub value: i64,
    /// Some of the calls went through functions that are not in the graph.
    pub residual: bool,
    /// All of the calls were inlined.
    pub inlined: bool,
}

/// A call graph.
#[derive(Clone, Debug, Default)]
pub struct Graph {
    /// The functions, in the requested order.
    pub nodes: Vec<GraphNode>,
    /// The calls, largest first.
    pub edges: Vec<Edge>,
    /// Number of functions below `node_fraction`.
    pub small_nodes: usize,
    /// Number of functions left out because of the limit of nodes.
    pub further_nodes: usize,
    /// Number of edges below `edge_fraction`.
    pub small_edges: usize,
    /// The value that corresponds to `node_fraction`.
    pub node_cutoff: i64,
    /// The value that corresponds to `edge_fraction`.
    pub edge_cutoff: i64,
}

impl Graph {
    /// The graph of `view`.
    pub fn new(view: &View, order: NodeOrder, trim: Trim) -> Graph {
        let mut graph = build::connect(view, None);
        let whole = graph.nodes.iter().fold(0i64, |sum, n| sum.saturating_add(n.self_value));
        let cutoff = |fraction: f64| ((whole as f64 * fraction) as i64).saturating_abs();
        let (node_cutoff, edge_cutoff) = (cutoff(trim.node_fraction), cutoff(trim.edge_fraction));
        let all = graph.nodes.len();
        let large = |n: &GraphNode| n.total.saturating_abs() >= node_cutoff;
        let kept: FxHashSet<u32> =
            graph.nodes.iter().filter(|n| large(n)).map(|n| n.frame).collect();
        if kept.len() < all {
            graph = build::connect(view, Some(&kept));
        }
        let small_nodes = all - graph.nodes.len();
        let mut order_of = sorted(view, &graph, order);
        let further_nodes = match trim.nodes {
            0 => 0,
            most => order_of.len().saturating_sub(most),
        };
        if further_nodes > 0 {
            let top = order_of[..trim.nodes].iter();
            let kept = top.map(|&n| graph.nodes[n as usize].frame).collect();
            graph = build::connect(view, Some(&kept));
            order_of = sorted(view, &graph, order);
        }
        let mut result = arrange(view, &graph, &order_of);
        let before = result.edges.len();
        result.edges.retain(|e| e.value.saturating_abs() >= edge_cutoff);
        result.small_edges = before - result.edges.len();
        if order == NodeOrder::Drawing {
            remove_redundant(&mut result);
        }
        Graph { small_nodes, further_nodes, node_cutoff, edge_cutoff, ..result }
    }
}

/// The nodes and edges in their order.
fn arrange(view: &View, graph: &Unsorted, order: &[u32]) -> Graph {
    let nodes: Vec<GraphNode> = order.iter().map(|&n| graph.nodes[n as usize]).collect();
    let mut place = vec![0u32; graph.nodes.len()];
    order.iter().enumerate().for_each(|(at, &n)| place[n as usize] = at as u32);
    let at = |n: u32| place[n as usize];
    let mut edges: Vec<Edge> = graph
        .edges
        .iter()
        .map(|e| Edge { caller: at(e.caller), callee: at(e.callee), ..*e })
        .collect();
    let frame = |n: u32| view.frames.get(nodes[n as usize].frame);
    let by_name = |a: u32, b: u32| frame(a).cmp_name(frame(b), view.profile);
    edges.sort_by(|a, b| {
        by_size(a.value, b.value)
            .then_with(|| by_name(a.caller, b.caller))
            .then_with(|| by_name(a.callee, b.callee))
    });
    Graph { nodes, edges, ..Graph::default() }
}

fn by_size(a: i64, b: i64) -> Ordering {
    b.unsigned_abs().cmp(&a.unsigned_abs())
}

/// Indices of the nodes in this order.
fn sorted(view: &View, graph: &Unsorted, order: NodeOrder) -> Vec<u32> {
    let scores = match order {
        NodeOrder::Drawing => scores(graph),
        NodeOrder::SelfValue => graph.nodes.iter().map(|n| n.self_value).collect(),
    };
    let mut ids: Vec<u32> = (0..graph.nodes.len() as u32).collect();
    let node = |n: u32| &graph.nodes[n as usize];
    let frame = |n: u32| view.frames.get(node(n).frame);
    ids.sort_by(|&a, &b| {
        by_size(scores[a as usize], scores[b as usize])
            .then_with(|| frame(a).cmp_name(frame(b), view.profile))
            .then_with(|| by_size(node(a).self_value, node(b).self_value))
            .then_with(|| a.cmp(&b))
    });
    ids
}

/// The entropy of the values of a node's edges in one direction, added up.
#[derive(Clone, Copy, Default)]
struct Entropy {
    edges: usize,
    whole: f64,
    sum: f64,
}

impl Entropy {
    fn add(&mut self, value: i64) {
        if value != 0 && self.whole > 0.0 {
            let fraction = value.unsigned_abs() as f64 / self.whole;
            self.sum -= fraction * fraction.log2();
        }
    }

    /// 1 for nodes at an end of the graph, which are important.
    fn score(&self) -> f64 {
        if self.edges == 0 { 1.0 } else { self.sum }
    }
}

/// pprof's scores of nodes: low for a node that only passes values on.
fn scores(graph: &Unsorted) -> Vec<i64> {
    let mut callers = vec![Entropy::default(); graph.nodes.len()];
    let mut callees = callers.clone();
    for (node, entropy) in graph.nodes.iter().zip(&mut callees) {
        entropy.whole = node.self_value as f64;
    }
    for edge in &graph.edges {
        let sides = [&mut callees[edge.caller as usize], &mut callers[edge.callee as usize]];
        for side in sides {
            side.edges += 1;
            side.whole += edge.value.max(0) as f64;
        }
    }
    for edge in &graph.edges {
        callees[edge.caller as usize].add(edge.value);
        callers[edge.callee as usize].add(edge.value);
    }
    let score = |(i, node): (usize, &GraphNode)| {
        callees[i].add(node.self_value.max(0));
        let score = callers[i].score() + callees[i].score();
        ((score * node.total as f64) as i64).saturating_add(node.self_value)
    };
    graph.nodes.iter().enumerate().map(score).collect()
}

/// Steps after which redundant edges remain: a graph that can be drawn takes far fewer.
const MOST_STEPS: usize = 20_000_000;

/// Removes residual edges whose callee can be reached from their caller on another way, the
/// smallest first, but none that is larger than a direct call of the same function.
fn remove_redundant(graph: &mut Graph) {
    let mut incoming: Vec<Vec<u32>> = vec![Vec::new(); graph.nodes.len()];
    for (i, edge) in graph.edges.iter().enumerate() {
        incoming[edge.callee as usize].push(i as u32);
    }
    let mut removed = vec![false; graph.edges.len()];
    let mut search = Search { steps: 0, seen: vec![0; graph.nodes.len()], round: 0 };
    'nodes: for node in (0..graph.nodes.len()).rev() {
        // Largest first, as the edges are.
        for edge in incoming[node].clone().into_iter().rev() {
            if !graph.edges[edge as usize].residual {
                break;
            }
            if search.steps > MOST_STEPS {
                break 'nodes;
            }
            if search.is_redundant(graph, &incoming, edge) {
                removed[edge as usize] = true;
                incoming[node].retain(|&e| e != edge);
            }
        }
    }
    let mut removed = removed.into_iter();
    graph.edges.retain(|_| removed.next() != Some(true));
}

/// A search for ways through a graph.
struct Search {
    steps: usize,
    /// The last search that reached each node.
    seen: Vec<u32>,
    round: u32,
}

impl Search {
    /// True if the caller of `edge` reaches its callee without it.
    fn is_redundant(&mut self, graph: &Graph, incoming: &[Vec<u32>], edge: u32) -> bool {
        let from = graph.edges[edge as usize].caller;
        let to = graph.edges[edge as usize].callee;
        self.round += 1;
        self.seen[to as usize] = self.round;
        let mut queue = vec![to];
        while let Some(node) = queue.pop() {
            for &way in &incoming[node as usize] {
                self.steps += 1;
                let caller = graph.edges[way as usize].caller;
                if way == edge || self.seen[caller as usize] == self.round {
                    continue;
                }
                if caller == from {
                    return true;
                }
                self.seen[caller as usize] = self.round;
                queue.push(caller);
            }
        }
        false
    }
}

/// Edges by caller and callee.
type EdgeIndex = FxHashMap<(u32, u32), u32>;

#[cfg(test)]
mod tests;
