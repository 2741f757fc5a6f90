//! A call tree as lines: those of expanded nodes.

use rustc_hash::FxHashSet;

use super::model::Graph;
use view::Tree;

/// Most lines that are shown at the same time.
const MAX_LINES: usize = 200_000;

/// The lines of a call tree that are shown, as their nodes.
#[derive(Default)]
pub struct Outline {
    expanded: FxHashSet<u32>,
    lines: Vec<u32>,
}

/// The branches before the name of a node, as in text: `├─`, `└─`, and `│ ` for those that go on
/// and for an only child, which is not indented further, so that deep stacks stay readable. Of more
/// than `most` columns, the last ones, behind an ellipsis.
pub fn branches(graph: &Graph, node: u32, most: usize) -> String {
    let parent = |node: u32| graph.tree.node(node).parent;
    let siblings = |node: u32| graph.ordered.children(parent(node));
    let is_last = |node: u32| siblings(node).last() == Some(&node);
    if parent(node) == Tree::ROOT {
        return String::new();
    }
    let mut parts = vec![match siblings(node) {
        [_] => "│ ",
        _ if is_last(node) => "└─",
        _ => "├─",
    }];
    let mut at = parent(node);
    while parent(at) != Tree::ROOT {
        if siblings(at).len() > 1 {
            if (parts.len() + 1) * 2 > most {
                parts.push("… ");
                break;
            }
            parts.push(if is_last(at) { "  " } else { "│ " });
        }
        at = parent(at);
    }
    parts.into_iter().rev().collect()
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
    pub fn lines(&self) -> &[u32] {
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
        self.lines.iter().position(|&line| line == node)
    }

    fn update(&mut self, graph: &Graph) {
        self.lines.clear();
        let mut pending: Vec<u32> = Vec::new();
        pending.extend(graph.ordered.children(Tree::ROOT).iter().rev());
        while let Some(node) = pending.pop() {
            if self.lines.len() == MAX_LINES {
                return;
            }
            self.lines.push(node);
            if self.expanded.contains(&node) {
                pending.extend(graph.ordered.children(node).iter().rev());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::model::{Context, Model, compute};
    use super::*;
    use profile::{Builder, LabelSetId, Profile};
    use view::Direction;
    use view::query::{Query, Shown};
    use view::testing::answers;

    fn graph(profile: Profile) -> Graph {
        let shown = Shown::Tree(Direction::Callees);
        let query = Query::new(shown);
        match compute(&Context::new(&Arc::new(profile)), &query) {
            Ok(Model::Graph(graph)) => graph,
            _ => panic!("a tree"),
        }
    }

    fn drawn(graph: &Graph, outline: &Outline) -> Vec<String> {
        let line = |&node: &u32| {
            let name = graph.facts.name(graph.tree.node(node).frame);
            format!("{}{name}", branches(graph, node, 10))
        };
        outline.lines().iter().map(line).collect()
    }

    #[test]
    fn nodes_are_expanded_and_collapsed() {
        let graph = graph(answers());
        let mut outline = Outline::new(&graph);
        assert_eq!(drawn(&graph, &outline), ["main", "├─foo1", "└─foo2"]);
        let foo1 = outline.lines()[1];
        outline.expand(&graph, foo1);
        // An only child is not indented.
        assert_eq!(drawn(&graph, &outline), ["main", "├─foo1", "│ │ bar", "└─foo2"]);
        let bar = outline.lines()[2];
        outline.collapse_all(&graph);
        assert_eq!(drawn(&graph, &outline), ["main"]);
        assert_eq!(outline.reveal(&graph, bar), Some(2));
        outline.expand_all(&graph, Tree::ROOT);
        assert_eq!(outline.lines().len(), 5);
        let main = outline.lines()[0];
        outline.collapse(&graph, main);
        assert_eq!(drawn(&graph, &outline), ["main"]);
    }

    #[test]
    fn a_chain_of_only_children_differs_from_siblings() {
        let mut b = Builder::new(&[("samples", "count")]);
        for stack in ["main;a;b;c", "main;a;b;c", "main;sibling1", "main;sibling2"] {
            let stack: Vec<_> = stack.split(';').rev().map(|name| b.named_location(name)).collect();
            b.add(&stack, LabelSetId::EMPTY, 1, &[]);
        }
        let graph = graph(b.finish(None));
        let mut outline = Outline::new(&graph);
        outline.expand_all(&graph, Tree::ROOT);
        let expected = ["main", "├─a", "│ │ b", "│ │ c", "├─sibling1", "└─sibling2"];
        assert_eq!(drawn(&graph, &outline), expected);
    }

    #[test]
    fn branches_are_bounded() {
        let mut b = Builder::new(&[("samples", "count")]);
        let [more, leaf] = ["more", "leaf"].map(|name| b.named_location(name));
        for depth in 1..40 {
            let stack: Vec<_> = [leaf].into_iter().chain(vec![more; depth]).collect();
            b.add(&stack, LabelSetId::EMPTY, 1, &[]);
        }
        let graph = graph(b.finish(None));
        let mut outline = Outline::new(&graph);
        outline.expand_all(&graph, Tree::ROOT);
        let texts = drawn(&graph, &outline);
        let width = |text: &String| text.chars().count();
        assert_eq!(texts.iter().map(width).max(), Some(12 + "leaf".len()), "{texts:?}");
        assert!(texts.last().unwrap().starts_with("└─leaf"), "{texts:?}");
        assert!(texts.iter().any(|text| text.starts_with("… ")), "{texts:?}");
    }
}
