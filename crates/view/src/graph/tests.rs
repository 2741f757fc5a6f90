//! Known graphs.

use super::*;
use crate::testing::{answers, functions, processes};
use crate::{Granularity, Top, TopOptions};
use profile::{Builder, Column, LabelSetId, Profile};

fn view(p: &Profile) -> View<'_> {
    View::new(p, 0, Granularity::SYMBOL)
}

/// The edges as `caller callee value`, `..` in front of residual ones, `i` after inlined ones.
fn edges(p: &Profile, order: NodeOrder, trim: Trim) -> Vec<String> {
    let view = view(p);
    let graph = Graph::new(&view, order, trim);
    let name = |n: u32| view.frames.get(graph.nodes[n as usize].frame).display(p);
    let text = |e: &Edge| {
        let residual = if e.residual { ".." } else { "" };
        let inlined = if e.inlined { " i" } else { "" };
        format!("{residual}{} {} {}{inlined}", name(e.caller), name(e.callee), e.value)
    };
    graph.edges.iter().map(text).collect()
}

/// Stacks of functions, outermost first, each of the value 1 apart from a factor.
fn profile(stacks: &[(&str, i64)]) -> Profile {
    let mut b = Builder::new(&[("samples", "count")]);
    for (stack, value) in stacks {
        let ids: Vec<_> = stack
            .split(' ')
            .rev()
            .map(|name| {
                let address = name.bytes().fold(0u64, |a, b| a * 256 + u64::from(b));
                functions(&mut b, None, address, &[(name, "", 0)])
            })
            .collect();
        b.add(&ids, LabelSetId::EMPTY, 0, &[(Column(0), *value)]);
    }
    b.finish(None)
}

#[test]
fn edges_have_the_values_of_their_calls() {
    let expected = ["main foo1 8", "main foo2 6", "foo1 bar 5", "foo2 bar 5"];
    assert_eq!(edges(&answers(), NodeOrder::Drawing, Trim::default()), expected);
}

#[test]
fn nodes_are_the_rows_of_the_table() {
    for p in [answers(), processes()] {
        let view = view(&p);
        let graph = Graph::new(&view, NodeOrder::SelfValue, Trim::NOTHING);
        let mut got: Vec<_> =
            graph.nodes.iter().map(|n| (n.frame, n.self_value, n.total)).collect();
        let top = Top::new(&view, &TopOptions::default());
        let mut rows: Vec<_> = top.rows.iter().map(|r| (r.frame, r.self_value, r.total)).collect();
        got.sort_unstable();
        rows.sort_unstable();
        assert_eq!(got, rows);
    }
}

#[test]
fn a_recursion_counts_once_and_has_no_edge_to_itself() {
    let p = profile(&[("a f g f f g", 2), ("a f", 1)]);
    let expected = ["a f 3", "f g 2", "g f 2"];
    assert_eq!(edges(&p, NodeOrder::Drawing, Trim::NOTHING), expected);
}

#[test]
fn functions_that_are_removed_leave_residual_edges() {
    let p = profile(&[("a b c", 90), ("a x c", 10), ("a s d", 1), ("a t d", 1)]);
    let trim = Trim { nodes: 0, node_fraction: 0.02, edge_fraction: 0.0 };
    // s and t are below 2 % of 102, d is not.
    let expected = ["a b 90", "b c 90", "a x 10", "x c 10", "..a d 2"];
    assert_eq!(edges(&p, NodeOrder::Drawing, trim), expected);
    let view = view(&p);
    let graph = Graph::new(&view, NodeOrder::Drawing, trim);
    assert_eq!((graph.small_nodes, graph.further_nodes, graph.node_cutoff), (2, 0, 2));
}

#[test]
fn a_residual_edge_is_redundant_if_another_way_exists() {
    // x is removed; a reaches c through b, too.
    let p = profile(&[("a b c", 500), ("a x c", 1)]);
    let trim = Trim { nodes: 0, node_fraction: 0.005, edge_fraction: 0.0 };
    assert_eq!(edges(&p, NodeOrder::Drawing, trim), ["a b 500", "b c 500"]);
    let all = ["a b 500", "b c 500", "..a c 1"];
    assert_eq!(edges(&p, NodeOrder::SelfValue, trim), all);
}

#[test]
fn inlined_calls_are_marked_if_all_are() {
    let with_calls = |calls: bool| {
        let mut b = Builder::new(&[("samples", "count")]);
        let inlined = functions(&mut b, None, 1, &[("f", "", 0), ("g", "", 0)]);
        let f = functions(&mut b, None, 2, &[("f", "", 0)]);
        let g = functions(&mut b, None, 3, &[("g", "", 0)]);
        b.add(&[inlined], LabelSetId::EMPTY, 2, &[]);
        if calls {
            b.add(&[f, g], LabelSetId::EMPTY, 1, &[]);
        }
        edges(&b.finish(None), NodeOrder::Drawing, Trim::NOTHING)
    };
    assert_eq!(with_calls(true), ["g f 3"]);
    assert_eq!(with_calls(false), ["g f 2 i"]);
}

#[test]
fn gains_and_losses_that_are_equal_have_no_node() {
    let p = profile(&[("a b", 5), ("a b", -5), ("a c", 1)]);
    assert_eq!(edges(&p, NodeOrder::Drawing, Trim::NOTHING), ["a c 1"]);
}

#[test]
fn a_stack_of_10000_frames_is_one_way() {
    let names: Vec<String> = (0..10_000).map(|i| format!("f{i}")).collect();
    let p = profile(&[(&names.join(" "), 1)]);
    let view = view(&p);
    let graph = Graph::new(&view, NodeOrder::Drawing, Trim::NOTHING);
    assert_eq!((graph.nodes.len(), graph.edges.len()), (10_000, 9_999));
    let graph = Graph::new(&view, NodeOrder::Drawing, Trim::default());
    assert_eq!(graph.nodes.len(), 80);
}
