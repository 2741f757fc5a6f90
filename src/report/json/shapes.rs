//! Sandwiches, direct callers and callees, call graphs and boxes of flame graphs.

use std::io::{self, Write};

use serde_json::{Map, Value};

use super::{direction_name, frame, head, nodes, write_head, write_list, write_member};
use view::{Boxes, Edge, Granularity, Graph, Peek, Sandwich, SandwichBoxes, Tree, View};

/// Writes a sandwich of the frames `functions`.
pub fn write_sandwich(
    out: &mut dyn Write,
    view: &View,
    sandwich: &Sandwich,
    functions: &[u32],
    granularity: Granularity,
) -> io::Result<()> {
    let mut head = head(view);
    head.insert("function_self".into(), sandwich.self_value.into());
    head.insert("function_total".into(), sandwich.total.into());
    write_head(out, head)?;
    let functions = functions.iter().map(|&f| frame(view, view.frames.get(f), granularity));
    write_member(out, "functions", functions)?;
    write_member(out, "callers", nodes(view, &sandwich.callers, granularity))?;
    write_member(out, "callees", nodes(view, &sandwich.callees, granularity))?;
    writeln!(out, "}}")
}

/// Writes functions with their direct callers and callees.
pub fn write_peek(
    out: &mut dyn Write,
    view: &View,
    peek: &Peek,
    granularity: Granularity,
) -> io::Result<()> {
    let node_frame = |id: u32| frame(view, view.frames.get(peek.node(id).frame), granularity);
    let list = |edges: &[Edge], other: fn(&Edge) -> u32| -> Value {
        let object = |edge| with_edge(node_frame(other(edge)), edge);
        edges.iter().map(object).collect()
    };
    let rows = peek.functions.iter().map(|function| {
        let mut object = node_frame(function.node);
        let node = peek.node(function.node);
        object.insert("self".into(), node.self_value.into());
        object.insert("total".into(), node.total.into());
        object.insert("callers".into(), list(&function.callers, |edge| edge.caller));
        object.insert("callees".into(), list(&function.callees, |edge| edge.callee));
        object
    });
    write_list(out, head(view), "rows", rows)
}

fn with_edge(mut object: Map<String, Value>, edge: &Edge) -> Map<String, Value> {
    object.insert("value".into(), edge.value.into());
    object.insert("inlined".into(), edge.inlined.into());
    object
}

/// Writes a call graph.
pub fn write_graph(
    out: &mut dyn Write,
    view: &View,
    graph: &Graph,
    granularity: Granularity,
) -> io::Result<()> {
    let mut head = head(view);
    head.insert("small_nodes".into(), graph.small_nodes.into());
    head.insert("further_nodes".into(), graph.further_nodes.into());
    head.insert("small_edges".into(), graph.small_edges.into());
    head.insert("node_cutoff".into(), graph.node_cutoff.into());
    head.insert("edge_cutoff".into(), graph.edge_cutoff.into());
    write_head(out, head)?;
    let nodes = graph.nodes.iter().enumerate().map(|(id, node)| {
        let mut object = frame(view, view.frames.get(node.frame), granularity);
        object.insert("id".into(), id.into());
        object.insert("self".into(), node.self_value.into());
        object.insert("total".into(), node.total.into());
        object
    });
    write_member(out, "nodes", nodes)?;
    let edges = graph.edges.iter().map(|edge| {
        let mut object = with_edge(Map::new(), edge);
        object.insert("caller".into(), edge.caller.into());
        object.insert("callee".into(), edge.callee.into());
        object.insert("residual".into(), edge.residual.into());
        object
    });
    write_member(out, "edges", edges)?;
    writeln!(out, "}}")
}

/// Writes the boxes of a flame graph of `tree`.
pub fn write_boxes(
    out: &mut dyn Write,
    view: &View,
    tree: &Tree,
    boxes: &Boxes,
    granularity: Granularity,
) -> io::Result<()> {
    let mut head = head(view);
    head.insert("direction".into(), direction_name(tree.direction).into());
    head.insert("width".into(), boxes.width.into());
    head.insert("levels".into(), boxes.levels.into());
    write_list(out, head, "boxes", listed(view, tree, boxes, granularity))
}

fn listed(
    view: &View,
    tree: &Tree,
    boxes: &Boxes,
    granularity: Granularity,
) -> impl Iterator<Item = Map<String, Value>> {
    boxes.boxes.iter().map(move |b| {
        let node = tree.node(b.node);
        let mut object = frame(view, view.frames.get(node.frame), granularity);
        let parent = Some(node.parent).filter(|&parent| parent != Tree::ROOT);
        object.insert("id".into(), b.node.into());
        object.insert("parent".into(), parent.into());
        object.insert("depth".into(), b.depth.into());
        object.insert("left".into(), b.left.into());
        object.insert("width".into(), b.width.into());
        object.insert("self".into(), node.self_value.into());
        object.insert("total".into(), node.total.into());
        object
    })
}

/// Writes the boxes of a sandwich of the frames `functions`.
pub fn write_sandwich_boxes(
    out: &mut dyn Write,
    view: &View,
    sandwich: &Sandwich,
    boxes: &SandwichBoxes,
    functions: &[u32],
    granularity: Granularity,
) -> io::Result<()> {
    let SandwichBoxes { callers, callees } = boxes;
    let mut head = head(view);
    head.insert("function_self".into(), sandwich.self_value.into());
    head.insert("function_total".into(), sandwich.total.into());
    head.insert("width".into(), callees.width.into());
    head.insert("caller_levels".into(), callers.levels.into());
    head.insert("callee_levels".into(), callees.levels.into());
    write_head(out, head)?;
    let functions = functions.iter().map(|&f| frame(view, view.frames.get(f), granularity));
    write_member(out, "functions", functions)?;
    write_member(out, "callers", listed(view, &sandwich.callers, callers, granularity))?;
    write_member(out, "callees", listed(view, &sandwich.callees, callees, granularity))?;
    writeln!(out, "}}")
}
