//! The calling-context tree, from callers to callees or inverted.

pub(crate) mod build;
mod order;

pub use order::Ordered;

use super::layout::least_width;
use super::{ByState, States, View};
use profile::StrId;
use serde::Serialize;

/// End of the stacks at which the tree is rooted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Direction {
    /// The entry of the program: the children of a node are its callees.
    #[default]
    Callees,
    /// The leaves: the children of a node are its callers.
    Callers,
}

/// A node: one frame in one calling context.
#[derive(Clone, Copy, Debug)]
pub struct Node {
    /// Index of its parent node (towards the root).
    pub parent: u32,
    /// Id of its frame, see [`super::Frames::get`]; undefined for the root.
    pub frame: u32,
    /// Sum of the samples whose stack ends here.
    pub self_value: i64,
    /// Sum of the samples whose stack passes through here.
    pub total: i64,
}

/// Selection of a tree's nodes. Omitted nodes still count in their parent.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Cut {
    /// All.
    Nothing,
    /// Nodes of at least this percentage of the view's total, gains and losses alike.
    Percent(f64),
    /// Nodes with a positive value of at least this percentage of the tree's total.
    Width(f64),
}

impl Cut {
    /// True if a node with the value `total` is in a tree of `tree_total`.
    pub fn keeps(self, view: &View, tree_total: i64, total: i64) -> bool {
        match self {
            Cut::Nothing => true,
            Cut::Percent(least) => view.percent(total).abs() >= least,
            Cut::Width(least) => total as f64 >= least_width(tree_total, least),
        }
    }
}

/// A calling-context tree. Node 0 is the root; a parent precedes its children.
pub struct Tree {
    /// All nodes.
    pub nodes: Vec<Node>,
    /// Number of omitted children, each counted once with its subtree.
    pub left_out: usize,
    /// Number of nodes whose children are beyond the limit of a tree, and are one node
    /// [`Name::BeyondLimit`](super::Name::BeyondLimit).
    pub beyond_limit: usize,
    /// Its direction. In a tree of callers, a node's total is the self value of the chain's first
    /// function in this context.
    pub direction: Direction,
    /// The total of each node by thread state, if available and requested; else empty.
    pub states: Vec<ByState>,
}

impl Tree {
    /// The root.
    pub const ROOT: u32 = 0;

    /// The tree of the samples of `view`, with the values of the labels `roots` as the lowest
    /// frames of each stack, cut by `cut`.
    pub fn new(view: &mut View, direction: Direction, roots: &[StrId], cut: Cut) -> Tree {
        build::build(view, direction, roots, cut, None)
    }

    /// The same, with the total of each node by state.
    pub fn with_states(
        view: &mut View,
        direction: Direction,
        roots: &[StrId],
        cut: Cut,
        states: States,
    ) -> Tree {
        build::build(view, direction, roots, cut, Some(states))
    }

    /// Children of every node, in the order of the nodes.
    pub fn children(&self) -> Children {
        let mut starts = vec![0u32; self.nodes.len() + 1];
        for node in self.nodes.iter().skip(1) {
            starts[node.parent as usize + 1] += 1;
        }
        for i in 1..starts.len() {
            starts[i] += starts[i - 1];
        }
        let mut next = starts.clone();
        let mut ids = vec![0u32; self.nodes.len().saturating_sub(1)];
        for (i, node) in self.nodes.iter().enumerate().skip(1) {
            let at = &mut next[node.parent as usize];
            ids[*at as usize] = i as u32;
            *at += 1;
        }
        Children { starts, ids }
    }

    /// A node.
    pub fn node(&self, id: u32) -> &Node {
        &self.nodes[id as usize]
    }
}

/// The children of all nodes of a tree.
pub struct Children {
    starts: Vec<u32>,
    ids: Vec<u32>,
}

impl Children {
    /// Children of a node.
    pub fn get(&self, node: u32) -> &[u32] {
        let i = node as usize;
        &self.ids[self.starts[i] as usize..self.starts[i + 1] as usize]
    }

    /// The same, to be reordered.
    fn get_mut(&mut self, node: u32) -> &mut [u32] {
        let i = node as usize;
        &mut self.ids[self.starts[i] as usize..self.starts[i + 1] as usize]
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::testing::{answers, frames_profile, functions, processes};
    use crate::{Filter, Granularity, Sort, Top, TopOptions};
    use profile::{Column, Label, LabelSetId, LabelValue, Profile};

    /// The tree as `name total self`, one line a node, indented.
    fn drawn(p: &Profile, direction: Direction, roots: &[&str]) -> Vec<String> {
        let mut view = View::new(p, 0, Granularity::FUNCTION);
        let roots: Vec<_> = roots.iter().map(|r| p.strings.find(r).unwrap()).collect();
        let tree = Tree::new(&mut view, direction, &roots, Cut::Nothing);
        let depth = |mut n: u32| {
            let mut d = 0;
            while n != Tree::ROOT {
                n = tree.node(n).parent;
                d += 1;
            }
            d
        };
        let mut out = Vec::new();
        let children = tree.children();
        let mut stack = vec![Tree::ROOT];
        while let Some(n) = stack.pop() {
            let node = tree.node(n);
            let name = match n {
                Tree::ROOT => "all".into(),
                _ => view.frames.get(node.frame).display(p),
            };
            let indent = " ".repeat(depth(n));
            out.push(format!("{indent}{name} {} {}", node.total, node.self_value));
            stack.extend(children.get(n).iter().rev());
        }
        out
    }

    #[test]
    fn from_callers_to_callees() {
        let expected =
            ["all 18 0", " main 18 4", "  foo1 8 3", "   bar 5 5", "  foo2 6 1", "   bar 5 5"];
        assert_eq!(drawn(&answers(), Direction::Callees, &[]), expected);
    }

    #[test]
    fn from_callees_to_callers() {
        let expected = [
            "all 18 0",
            " main 4 4",
            " foo1 3 0",
            "  main 3 3",
            " foo2 1 0",
            "  main 1 1",
            " bar 10 0",
            "  foo1 5 0",
            "   main 5 5",
            "  foo2 5 0",
            "   main 5 5",
        ];
        assert_eq!(drawn(&answers(), Direction::Callers, &[]), expected);
    }

    #[test]
    fn labels_are_the_lowest_frames() {
        let expected = [
            "all 4 0",
            " web;1 3 0",
            "  serve 3 3",
            " db 1 0",
            "  serve 1 0",
            "   query 1 0",
            "    query 1 1",
        ];
        assert_eq!(drawn(&processes(), Direction::Callees, &["process"]), expected);
    }

    #[test]
    fn the_tree_agrees_with_the_table() {
        for p in [answers(), frames_profile(), processes()] {
            let mut view = View::new(&p, 0, Granularity::FUNCTION);
            let top = Top::new(&view, &TopOptions { sort: Sort::Name, ..TopOptions::default() });
            let tree = Tree::new(&mut view, Direction::Callees, &[], Cut::Nothing);
            assert_eq!(tree.nodes[0].total, view.total);
            for row in &top.rows {
                let is_row = |n: &&Node| n.frame == row.frame;
                let nodes = tree.nodes.iter().skip(1);
                let self_value: i64 = nodes.clone().filter(is_row).map(|n| n.self_value).sum();
                assert_eq!(self_value, row.self_value);
                // Only the outermost frame of a recursion counts.
                let outermost = |n: &&Node| {
                    let mut at = n.parent;
                    while at != Tree::ROOT && tree.node(at).frame != row.frame {
                        at = tree.node(at).parent;
                    }
                    at == Tree::ROOT
                };
                let total: i64 = nodes.filter(is_row).filter(outermost).map(|n| n.total).sum();
                assert_eq!(total, row.total);
            }
        }
    }

    /// Locations with no, one or several functions, three processes, gains and losses.
    fn random_profile(seed: u64) -> Profile {
        let mut state = seed;
        let mut random = |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) % below
        };
        let mut b = profile::Builder::new(&[("samples", "count")]);
        let names = ["a", "b", "c", "d", "hidden"];
        let locations: Vec<_> = (0..8)
            .map(|i| {
                let lines: Vec<_> =
                    (0..random(4)).map(|_| (names[random(5) as usize], "", 0)).collect();
                functions(&mut b, None, i, &lines)
            })
            .collect();
        let key = b.profile.strings.intern("process");
        for _ in 0..60 {
            let labels = match random(3) {
                0 => LabelSetId::EMPTY,
                n => {
                    let value = LabelValue::Num { value: n as i64, unit: StrId::EMPTY };
                    b.profile.labels.intern(&[Label { key, value }])
                }
            };
            let stack: Vec<_> = (0..random(7)).map(|_| locations[random(8) as usize]).collect();
            b.add(&stack, labels, 0, &[(Column(0), random(9) as i64 - 2)]);
        }
        b.finish(None)
    }

    type ContextValues = BTreeMap<Vec<u32>, (i64, i64)>;

    /// Total and self value of every context, computed separately.
    fn contexts(view: &mut View, direction: Direction, roots: &[StrId]) -> ContextValues {
        let labels = build::label_frames(view, roots);
        let mut out = ContextValues::new();
        for sample in view.samples() {
            let mut path = labels.get(&sample.labels).cloned().unwrap_or_default();
            let frames = sample.stack.iter().flat_map(|&l| view.frames.at(l));
            match direction {
                _ if sample.stack.is_empty() => path.push(view.frames.no_stack),
                Direction::Callers => path.extend(frames),
                Direction::Callees => {
                    path.extend(frames.copied().collect::<Vec<_>>().into_iter().rev());
                }
            }
            for end in 0..=path.len() {
                let entry = out.entry(path[..end].to_vec()).or_default();
                entry.0 += sample.value;
                entry.1 += if end == path.len() { sample.value } else { 0 };
            }
        }
        out
    }

    #[test]
    fn a_tree_has_the_contexts_that_its_cut_keeps() {
        let mut left_out = 0;
        for seed in 0..60 {
            let p = random_profile(seed);
            let hide = (seed % 2 == 1).then(|| "hidden".parse().unwrap());
            let filter = Filter { hide, ..Filter::default() };
            let p = filter.apply(p).profile;
            let mut view = View::new(&p, 0, Granularity::FUNCTION);
            let key = p.strings.find("process").unwrap();
            let roots = if seed % 3 == 0 { vec![key] } else { Vec::new() };
            let direction = if seed % 5 < 2 { Direction::Callers } else { Direction::Callees };
            let mut expected = contexts(&mut view, direction, &roots);
            let whole = expected[&vec![]].0;
            for cut in [Cut::Nothing, Cut::Percent(4.0), Cut::Width(4.0)] {
                let tree = Tree::new(&mut view, direction, &roots, cut);
                let whole_tree = expected.clone();
                expected.retain(|path, _| {
                    let kept = |end| cut.keeps(&view, whole, whole_tree[&path[..end]].0);
                    (1..=path.len()).all(kept)
                });
                let mut paths: Vec<Vec<u32>> = vec![Vec::new()];
                let mut got = ContextValues::new();
                for (i, node) in tree.nodes.iter().enumerate() {
                    if i > 0 {
                        let mut path = paths[node.parent as usize].clone();
                        path.push(node.frame);
                        paths.push(path);
                    }
                    got.insert(paths[i].clone(), (node.total, node.self_value));
                }
                assert_eq!(got.len(), tree.nodes.len(), "no context twice");
                assert_eq!(got, expected, "seed {seed}, {cut:?}");
                let omitted = whole_tree.keys().filter(|k| {
                    !k.is_empty() && !got.contains_key(*k) && got.contains_key(&k[..k.len() - 1])
                });
                assert_eq!(tree.left_out, omitted.count(), "seed {seed}, {cut:?}");
                left_out += tree.left_out;
                expected = whole_tree;
            }
        }
        assert!(left_out > 100, "{left_out}");
    }
}
