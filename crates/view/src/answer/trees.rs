//! Call trees, sandwiches, call graphs, direct callers and callees.

use serde::Serialize;

use super::{FrameAnswer, Head, List};
use crate::{Edge, Graph, GraphNode, Node, Peek, Peeked, SandwichModel, Tree, View};

/// A call tree.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TreeAnswer<'a> {
    /// The members of all answers.
    #[serde(flatten)]
    pub head: Head<'a>,
    /// Number of nodes on which one node replaces all others, beyond the limit of a tree.
    pub branches_left_out: usize,
    /// The nodes, each after its parent.
    pub nodes: List<'a, NodeAnswer<'a>>,
}

/// A node of a tree.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct NodeAnswer<'a> {
    /// Its frame; the root has none.
    #[serde(flatten)]
    pub frame: FrameAnswer<'a>,
    /// Its number; 0 is the root.
    pub id: usize,
    /// Number of its parent; `None` for the root.
    pub parent: Option<u32>,
    /// Value of the samples that end in it.
    #[serde(rename = "self")]
    pub self_value: i64,
    /// Value of the samples that pass through it.
    pub total: i64,
}

impl<'a> TreeAnswer<'a> {
    /// A tree of the samples of a view.
    pub fn new(view: &'a View<'a>, tree: &'a Tree) -> TreeAnswer<'a> {
        TreeAnswer {
            head: Head::new(view),
            branches_left_out: tree.beyond_limit,
            nodes: nodes(view, tree),
        }
    }
}

fn nodes<'a>(view: &'a View<'a>, tree: &'a Tree) -> List<'a, NodeAnswer<'a>> {
    let node = move |(id, node): (usize, &'a Node)| {
        let is_root = id == Tree::ROOT as usize;
        let frame =
            if is_root { FrameAnswer::default() } else { FrameAnswer::new(view, node.frame) };
        NodeAnswer {
            frame,
            id,
            parent: (!is_root).then_some(node.parent),
            self_value: view.shown(node.self_value),
            total: view.shown(node.total),
        }
    };
    List::new(move || tree.nodes.iter().enumerate().map(node))
}

/// The callers and the callees of functions, as two trees.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SandwichAnswer<'a> {
    /// The members of all answers.
    #[serde(flatten)]
    pub head: Head<'a>,
    /// Value of the samples whose innermost frame is one of the functions.
    pub function_self: i64,
    /// Value of the samples with one of the functions.
    pub function_total: i64,
    /// The functions.
    pub functions: List<'a, FrameAnswer<'a>>,
    /// The tree of the chains of callers.
    pub callers: List<'a, NodeAnswer<'a>>,
    /// The tree of what the functions call.
    pub callees: List<'a, NodeAnswer<'a>>,
}

/// Frames by their IDs.
pub(super) fn frames<'a>(view: &'a View<'a>, frames: &'a [u32]) -> List<'a, FrameAnswer<'a>> {
    List::new(move || frames.iter().map(|&frame| FrameAnswer::new(view, frame)))
}

impl<'a> SandwichAnswer<'a> {
    /// A sandwich of these frames.
    pub fn new(view: &'a View<'a>, model: &'a SandwichModel) -> SandwichAnswer<'a> {
        let SandwichModel { functions, sandwich } = model;
        SandwichAnswer {
            head: Head::new(view),
            function_self: view.shown(sandwich.self_value),
            function_total: view.shown(sandwich.total),
            functions: frames(view, functions),
            callers: nodes(view, &sandwich.callers),
            callees: nodes(view, &sandwich.callees),
        }
    }
}

/// Functions with their direct callers and callees.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PeekAnswer<'a> {
    /// The members of all answers.
    #[serde(flatten)]
    pub head: Head<'a>,
    /// The functions, largest self value first.
    pub rows: List<'a, PeekRow<'a>>,
}

/// A function with its direct callers and callees.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PeekRow<'a> {
    /// The function.
    #[serde(flatten)]
    pub frame: FrameAnswer<'a>,
    /// Its self value.
    #[serde(rename = "self")]
    pub self_value: i64,
    /// Its total.
    pub total: i64,
    /// Functions that call it, largest value first.
    pub callers: Vec<PeekedAnswer<'a>>,
    /// Functions that it calls, largest value first.
    pub callees: Vec<PeekedAnswer<'a>>,
}

/// A caller or a callee.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PeekedAnswer<'a> {
    /// The function.
    #[serde(flatten)]
    pub frame: FrameAnswer<'a>,
    /// Value of the samples with this call.
    pub value: i64,
    /// True if all of the calls were inlined.
    pub inlined: bool,
}

impl<'a> PeekAnswer<'a> {
    /// The functions of a peek.
    pub fn new(view: &'a View<'a>, peek: &'a Peek) -> PeekAnswer<'a> {
        let other = |node: u32, edge: &Edge| PeekedAnswer {
            frame: FrameAnswer { inlined: None, ..FrameAnswer::new(view, peek.node(node).frame) },
            value: view.shown(edge.value),
            inlined: edge.inlined,
        };
        let row = move |function: &'a Peeked| {
            let node = peek.node(function.node);
            PeekRow {
                frame: FrameAnswer::new(view, node.frame),
                self_value: view.shown(node.self_value),
                total: view.shown(node.total),
                callers: function.callers.iter().map(|edge| other(edge.caller, edge)).collect(),
                callees: function.callees.iter().map(|edge| other(edge.callee, edge)).collect(),
            }
        };
        PeekAnswer {
            head: Head::new(view),
            rows: List::new(move || peek.functions.iter().map(row)),
        }
    }
}

/// A call graph.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct GraphAnswer<'a> {
    /// The members of all answers.
    #[serde(flatten)]
    pub head: Head<'a>,
    /// Number of functions that are too small.
    pub small_nodes: usize,
    /// Number of functions beyond the limit.
    pub further_nodes: usize,
    /// Number of calls that are too small.
    pub small_edges: usize,
    /// The least value of a function.
    pub node_cutoff: i64,
    /// The least value of a call.
    pub edge_cutoff: i64,
    /// The functions, in the order of their importance.
    pub nodes: List<'a, GraphNodeAnswer<'a>>,
    /// The calls, largest value first.
    pub edges: List<'a, EdgeAnswer>,
}

/// A function of a call graph.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct GraphNodeAnswer<'a> {
    /// Its frame.
    #[serde(flatten)]
    pub frame: FrameAnswer<'a>,
    /// Its number.
    pub id: usize,
    /// Its self value.
    #[serde(rename = "self")]
    pub self_value: i64,
    /// Its total.
    pub total: i64,
}

/// Calls in a call graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct EdgeAnswer {
    /// Number of the caller.
    pub caller: u32,
    /// Number of the callee.
    pub callee: u32,
    /// Value of the samples with this call, each once.
    pub value: i64,
    /// True if some of the calls went through functions that are not in the graph.
    pub residual: bool,
    /// True if all of the calls were inlined.
    pub inlined: bool,
}

impl<'a> GraphAnswer<'a> {
    /// The call graph of a view.
    pub fn new(view: &'a View<'a>, graph: &'a Graph) -> GraphAnswer<'a> {
        let node = |(id, node): (usize, &'a GraphNode)| GraphNodeAnswer {
            frame: FrameAnswer::new(view, node.frame),
            id,
            self_value: view.shown(node.self_value),
            total: view.shown(node.total),
        };
        let edge = |&Edge { caller, callee, value, residual, inlined }: &Edge| EdgeAnswer {
            caller,
            callee,
            value: view.shown(value),
            residual,
            inlined,
        };
        GraphAnswer {
            head: Head::new(view),
            small_nodes: graph.small_nodes,
            further_nodes: graph.further_nodes,
            small_edges: graph.small_edges,
            node_cutoff: view.shown(graph.node_cutoff),
            edge_cutoff: view.shown(graph.edge_cutoff),
            nodes: List::new(move || graph.nodes.iter().enumerate().map(node)),
            edges: List::new(move || graph.edges.iter().map(edge)),
        }
    }
}
