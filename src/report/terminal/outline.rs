//! A call tree as lines: those of expanded nodes.

use rustc_hash::FxHashSet;

use super::model::Graph;
use view::Tree;

/// Most lines that are shown at the same time.
const MAX_LINES: usize = 200_000;

/// Most levels by which a line is indented.
const MAX_INDENT: usize = 200;

/// A line of a call tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutlineLine {
    /// Its node.
    pub node: u32,
    /// Levels by which it is indented: an only child is not, so that deep stacks stay readable.
    pub indent: usize,
}

/// The lines of a call tree that are shown.
#[derive(Default)]
pub struct Outline {
    expanded: FxHashSet<u32>,
    lines: Vec<OutlineLine>,
}

impl Outline {
    /// The tree with the roots, and the largest ones expanded to where their paths fork.
    pub fn new(graph: &Graph) -> Outline {
        let mut outline = Outline::default();
        let roots = graph.ordered.children(Tree::ROOT);
        if roots.len() == 1 || graph.callers_end > 0 {
            roots.iter().for_each(|&root| outline.expand_path(graph, root));
        }
        outline.update(graph);
        outline
    }

    /// The lines.
    pub fn lines(&self) -> &[OutlineLine] {
        &self.lines
    }

    /// True if the children of a node are shown.
    pub fn is_expanded(&self, node: u32) -> bool {
        self.expanded.contains(&node)
    }

    /// Expands a node, and its only children.
    pub fn expand(&mut self, graph: &Graph, node: u32) {
        self.expand_path(graph, node);
        self.update(graph);
    }

    fn expand_path(&mut self, graph: &Graph, mut node: u32) {
        loop {
            let children = graph.ordered.children(node);
            if children.is_empty() || !self.expanded.insert(node) {
                return;
            }
            match children {
                [only] => node = *only,
                _ => return,
            }
        }
    }

    /// Collapses a node.
    pub fn collapse(&mut self, graph: &Graph, node: u32) {
        self.expanded.remove(&node);
        self.update(graph);
    }

    /// Collapses all nodes.
    pub fn collapse_all(&mut self, graph: &Graph) {
        self.expanded.clear();
        self.update(graph);
    }

    /// Expands these nodes, and no others.
    pub fn set_expanded(&mut self, graph: &Graph, nodes: impl Iterator<Item = u32>) {
        self.expanded = nodes.collect();
        self.update(graph);
    }

    /// Expands everything below a node, as far as it can be shown.
    pub fn expand_all(&mut self, graph: &Graph, node: u32) {
        let mut pending = vec![node];
        let mut left = MAX_LINES;
        while let Some(node) = pending.pop() {
            let children = graph.ordered.children(node);
            if children.is_empty() || left < children.len() {
                continue;
            }
            left -= children.len();
            self.expanded.insert(node);
            pending.extend(children);
        }
        self.update(graph);
    }

    /// Expands the callers of a node, so that it has a line; returns the number of that line.
    pub fn reveal(&mut self, graph: &Graph, node: u32) -> Option<usize> {
        let mut at = graph.tree.node(node).parent;
        while at != Tree::ROOT {
            self.expanded.insert(at);
            at = graph.tree.node(at).parent;
        }
        self.update(graph);
        self.line_of(node)
    }

    /// The number of a node's line.
    pub fn line_of(&self, node: u32) -> Option<usize> {
        self.lines.iter().position(|line| line.node == node)
    }

    fn update(&mut self, graph: &Graph) {
        self.lines.clear();
        let mut pending = Vec::new();
        let push = |pending: &mut Vec<OutlineLine>, node: u32, indent: usize| {
            let children = graph.ordered.children(node).iter().rev();
            pending.extend(children.map(|&node| OutlineLine { node, indent }));
        };
        push(&mut pending, Tree::ROOT, 0);
        while let Some(line) = pending.pop() {
            if self.lines.len() == MAX_LINES {
                return;
            }
            self.lines.push(line);
            if self.expanded.contains(&line.node) {
                let forks = graph.ordered.children(line.node).len() > 1;
                let indent = (line.indent + usize::from(forks)).min(MAX_INDENT);
                push(&mut pending, line.node, indent);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::model::{Context, Model, compute};
    use super::*;
    use view::Direction;
    use view::query::{Query, Shown};
    use view::testing::answers;

    fn graph() -> Graph {
        let shown = Shown::Tree(Direction::Callees);
        let query = Query::new(shown);
        match compute(&Context::new(&Arc::new(answers())), &query) {
            Ok(Model::Graph(graph)) => graph,
            _ => panic!("a tree"),
        }
    }

    fn drawn(graph: &Graph, outline: &Outline) -> Vec<String> {
        let name = |node: u32| graph.facts.name(graph.tree.node(node).frame).into_owned();
        let lines = outline.lines().iter();
        lines.map(|line| format!("{}{}", " ".repeat(line.indent), name(line.node))).collect()
    }

    #[test]
    fn nodes_are_expanded_and_collapsed() {
        let graph = graph();
        let mut outline = Outline::new(&graph);
        assert_eq!(drawn(&graph, &outline), ["main", " foo1", " foo2"]);
        let foo1 = outline.lines()[1].node;
        outline.expand(&graph, foo1);
        // An only child is not indented.
        assert_eq!(drawn(&graph, &outline), ["main", " foo1", " bar", " foo2"]);
        let bar = outline.lines()[2].node;
        outline.collapse_all(&graph);
        assert_eq!(drawn(&graph, &outline), ["main"]);
        assert_eq!(outline.reveal(&graph, bar), Some(2));
        outline.expand_all(&graph, Tree::ROOT);
        assert_eq!(outline.lines().len(), 5);
        let main = outline.lines()[0].node;
        outline.collapse(&graph, main);
        assert_eq!(drawn(&graph, &outline), ["main"]);
    }
}
