//! The calling-context tree, from callers to callees or the other way round.

use std::hash::Hasher;

use hashbrown::HashTable;
use rustc_hash::{FxHashMap, FxHasher};

use super::View;
use crate::profile::{LabelSetId, StrId};

/// Which end of the stacks the tree grows from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Direction {
    /// From the entry of the program: the children of a node are what it calls.
    #[default]
    Callees,
    /// From the leaves: the children of a node are what calls it.
    Callers,
}

/// A node: one frame in one calling context.
#[derive(Clone, Copy, Debug)]
pub struct Node {
    /// Index of the node below it (towards the root).
    pub parent: u32,
    /// Id of its frame, see [`super::Frames::get`]; meaningless in the root.
    pub frame: u32,
    /// Sum of the samples whose stack ends here.
    pub self_value: i64,
    /// Sum of the samples whose stack goes through here.
    pub total: i64,
}

/// A calling-context tree. Node 0 is the root; a parent stands before its children.
pub struct Tree {
    /// All nodes.
    pub nodes: Vec<Node>,
}

impl Tree {
    /// The root.
    pub const ROOT: u32 = 0;

    /// The tree of all samples of `view`, with the values of the labels `roots` as the lowest
    /// frames of each stack.
    pub fn new(view: &mut View, direction: Direction, roots: &[StrId]) -> Tree {
        let root_frames = label_frames(view, roots);
        let mut builder = Builder::default();
        let mut path = Vec::new();
        for sample in view.samples() {
            path.clear();
            if let Some(frames) = root_frames.get(&sample.labels) {
                path.extend_from_slice(frames);
            }
            let from = path.len();
            for &location in sample.stack {
                path.extend_from_slice(view.frames.of(location));
            }
            if sample.stack.is_empty() {
                path.push(view.frames.no_stack);
            }
            if direction == Direction::Callees {
                path[from..].reverse();
            }
            builder.add(&path, sample.value);
        }
        builder.finish()
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
    pub fn of(&self, node: u32) -> &[u32] {
        let i = node as usize;
        &self.ids[self.starts[i] as usize..self.starts[i + 1] as usize]
    }
}

/// The frames of the root labels, for every label set in use.
fn label_frames(view: &mut View, roots: &[StrId]) -> FxHashMap<LabelSetId, Vec<u32>> {
    let mut out = FxHashMap::default();
    if roots.is_empty() {
        return out;
    }
    let profile = view.profile;
    for sample in &profile.samples {
        out.entry(sample.labels).or_insert_with(|| {
            let labels = &profile.labels;
            roots.iter().map(|&k| view.frames.label(k, labels.value(sample.labels, k))).collect()
        });
    }
    out
}

#[derive(Default)]
struct Builder {
    nodes: Vec<Node>,
    index: HashTable<u32>,
    /// Nodes of the stack added last: its neighbour often shares most of them.
    last: Vec<u32>,
}

fn hash(parent: u32, frame: u32) -> u64 {
    let mut h = FxHasher::default();
    h.write_u64((u64::from(parent) << 32) | u64::from(frame));
    h.finish()
}

impl Builder {
    fn add(&mut self, path: &[u32], value: i64) {
        if self.nodes.is_empty() {
            self.nodes.push(Node { parent: 0, frame: 0, self_value: 0, total: 0 });
        }
        let shared =
            path.iter().zip(&self.last).take_while(|(f, n)| self.nodes[**n as usize].frame == **f);
        let shared = shared.count();
        self.last.truncate(shared);
        for &frame in &path[shared..] {
            let parent = self.last.last().copied().unwrap_or(Tree::ROOT);
            let node = self.child(parent, frame);
            self.last.push(node);
        }
        let end = self.last.last().copied().unwrap_or(Tree::ROOT);
        let node = &mut self.nodes[end as usize];
        node.self_value = node.self_value.saturating_add(value);
    }

    fn child(&mut self, parent: u32, frame: u32) -> u32 {
        let Builder { nodes, index, .. } = self;
        let h = hash(parent, frame);
        let same = |&n: &u32| {
            let node = &nodes[n as usize];
            node.parent == parent && node.frame == frame
        };
        if let Some(&n) = index.find(h, same) {
            return n;
        }
        let n = nodes.len() as u32;
        nodes.push(Node { parent, frame, self_value: 0, total: 0 });
        index.insert_unique(h, n, |&n| {
            let node = &nodes[n as usize];
            hash(node.parent, node.frame)
        });
        n
    }

    fn finish(mut self) -> Tree {
        if self.nodes.is_empty() {
            self.nodes.push(Node { parent: 0, frame: 0, self_value: 0, total: 0 });
        }
        for i in (0..self.nodes.len()).rev() {
            let Node { parent, self_value, total, .. } = self.nodes[i];
            let sum = total.saturating_add(self_value);
            self.nodes[i].total = sum;
            if i > 0 {
                let parent = &mut self.nodes[parent as usize];
                parent.total = parent.total.saturating_add(sum);
            }
        }
        Tree { nodes: self.nodes }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::Profile;
    use crate::report::model::{Filter, Granularity, Sort, Top, TopOptions};
    use crate::report::testing::{answers, frames_profile, processes};

    /// The tree as `name total self`, one line a node, indented.
    fn drawn(p: &Profile, direction: Direction, roots: &[&str]) -> Vec<String> {
        let mut view = View::new(p, 0, Granularity::FUNCTION, &Filter::default());
        let roots: Vec<_> = roots.iter().map(|r| p.strings.find(r).unwrap()).collect();
        let tree = Tree::new(&mut view, direction, &roots);
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
            stack.extend(children.of(n).iter().rev());
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
    fn the_other_way_round() {
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
            let mut view = View::new(&p, 0, Granularity::FUNCTION, &Filter::default());
            let top = Top::new(&view, &TopOptions { sort: Sort::Name, ..TopOptions::default() });
            let tree = Tree::new(&mut view, Direction::Callees, &[]);
            assert_eq!(tree.nodes[0].total, view.total);
            for row in &top.rows {
                let of_row = |n: &&Node| n.frame == row.frame;
                let nodes = tree.nodes.iter().skip(1);
                let self_value: i64 = nodes.clone().filter(of_row).map(|n| n.self_value).sum();
                assert_eq!(self_value, row.self_value);
                // Only the outermost of a recursion counts.
                let outermost = |n: &&Node| {
                    let mut at = n.parent;
                    while at != Tree::ROOT && tree.node(at).frame != row.frame {
                        at = tree.node(at).parent;
                    }
                    at == Tree::ROOT
                };
                let total: i64 = nodes.filter(of_row).filter(outermost).map(|n| n.total).sum();
                assert_eq!(total, row.total);
            }
        }
    }
}
