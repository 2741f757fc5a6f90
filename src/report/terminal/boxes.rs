//! A flame graph in the cells of a terminal.

use std::borrow::Cow;

use super::model::Graph;
use view::Tree;

/// A box of a flame graph, in cells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CellBox {
    /// Its node.
    pub node: u32,
    /// Its row; 0: that of the roots.
    pub depth: usize,
    /// Its first column.
    pub left: u16,
    /// Its width, at least 1.
    pub width: u16,
}

/// A tree that is drawn as boxes; its root has no box.
pub trait BoxTree {
    /// The number of nodes.
    fn count(&self) -> usize;
    /// The node at a position, when each node is followed by its subtree; at 0 is the root.
    fn node_at(&self, position: usize) -> u32;
    /// The position of a node.
    fn position(&self, node: u32) -> usize;
    /// The node below.
    fn parent(&self, node: u32) -> u32;
    /// The width of a node.
    fn width(&self, node: u32) -> i64;
    /// The nodes on a node, from left to right.
    fn children(&self, node: u32) -> &[u32];
    /// The name of a node; empty for the root.
    fn box_name(&self, node: u32) -> Cow<'_, str>;
}

impl BoxTree for Graph {
    fn count(&self) -> usize {
        self.ordered.nodes().len()
    }

    fn node_at(&self, position: usize) -> u32 {
        self.ordered.nodes()[position]
    }

    fn position(&self, node: u32) -> usize {
        self.ordered.position(node)
    }

    fn parent(&self, node: u32) -> u32 {
        self.tree.node(node).parent
    }

    fn width(&self, node: u32) -> i64 {
        self.tree.node(node).total
    }

    fn children(&self, node: u32) -> &[u32] {
        self.ordered.children(node)
    }

    fn box_name(&self, node: u32) -> Cow<'_, str> {
        match node {
            Tree::ROOT => "".into(),
            node => self.facts.name(self.tree.node(node).frame),
        }
    }
}

/// The boxes of a flame graph that are at least one cell wide, in `width` columns: the path from the
/// root to `zoom`, each as wide as the screen, and everything above `zoom`.
pub fn cell_boxes(tree: &dyn BoxTree, zoom: u32, width: u16) -> Vec<CellBox> {
    let mut out = Vec::new();
    let mut path = Vec::new();
    let mut at = zoom;
    while at != Tree::ROOT {
        path.push(at);
        at = tree.parent(at);
    }
    for (depth, &node) in path.iter().rev().enumerate() {
        out.push(CellBox { node, depth, left: 0, width });
    }
    let whole = tree.width(zoom);
    if whole <= 0 || width == 0 {
        return out;
    }
    /// Boxes on one box, from a value on.
    struct Pending {
        node: u32,
        depth: usize,
        from: i64,
    }
    // Rounded down, so that no two boxes share a cell, and gaps are narrower than a cell.
    let column = |value: i64| (value as f64 * f64::from(width) / whole as f64) as u16;
    let mut pending = vec![Pending { node: zoom, depth: path.len(), from: 0 }];
    while let Some(Pending { node, depth, from }) = pending.pop() {
        let mut from = from;
        for &child in tree.children(node) {
            let total = tree.width(child).max(0);
            let left = column(from);
            let right = column(from.saturating_add(total)).min(width);
            if right > left {
                out.push(CellBox { node: child, depth, left, width: right - left });
                pending.push(Pending { node: child, depth: depth + 1, from });
            }
            from = from.saturating_add(total);
        }
    }
    out.sort_unstable_by_key(|b| (b.depth, b.left));
    out
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::model::{Context, Model, compute};
    use super::super::query::{Query, Shown};
    use super::*;
    use view::Direction;
    use view::testing::answers;

    #[test]
    fn boxes_are_as_wide_as_their_values() {
        let shown = Shown::Flame(Direction::Callees);
        let query = Query { type_index: 0, filters: Vec::new(), shown };
        let Ok(Model::Graph(graph)) = compute(&Context::new(&Arc::new(answers())), &query) else {
            panic!("a graph");
        };
        let name = |node: u32| graph.facts.name(graph.tree.node(node).frame).into_owned();
        let boxes = |zoom: u32, width: u16| {
            let boxes = cell_boxes(&graph, zoom, width);
            let text = |b: &CellBox| format!("{} {}+{}", name(b.node), b.left, b.width);
            boxes.iter().map(text).collect::<Vec<_>>()
        };
        // main 18: foo1 8 (bar 5), foo2 6 (bar 5).
        let expected = ["main 0+18", "foo1 0+8", "foo2 8+6", "bar 0+5", "bar 8+5"];
        assert_eq!(boxes(Tree::ROOT, 18), expected);
        let foo2 = cell_boxes(&graph, Tree::ROOT, 18)[2].node;
        assert_eq!(boxes(foo2, 12), ["main 0+12", "foo2 0+12", "bar 0+10"]);
        // Of one cell, only the widest are left.
        assert_eq!(boxes(Tree::ROOT, 1), ["main 0+1"]);
        assert_eq!(boxes(Tree::ROOT, 0), Vec::<String>::new());
    }
}
