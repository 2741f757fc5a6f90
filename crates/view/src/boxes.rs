//! A flame graph as laid-out boxes, in the unit of the values.

use super::layout::{Layout, Lowest, Place, Stacked, least_width};
use super::{Ordered, Tree, View};

/// Order of the boxes on one box, from left to right.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Siblings {
    /// By name.
    #[default]
    Name,
    /// Widest first, then by name.
    LeftHeavy,
}

/// Options of [`Boxes`].
#[derive(Clone, Copy, Debug, Default)]
pub struct BoxOptions {
    /// Order of siblings.
    pub order: Siblings,
    /// Boxes narrower than this percentage of the whole are omitted (their value stays in the box
    /// below).
    pub min_width: f64,
    /// The node that is the whole; its ancestors have its width. [`Tree::ROOT`] for all.
    pub zoom: u32,
}

/// One box. The box of a node's parent has a depth that is smaller by one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlameBox {
    /// The node of the tree.
    pub node: u32,
    /// Number of boxes below it.
    pub depth: u32,
    /// Left end.
    pub left: i64,
    /// Width: the node's total, or that of the boxes on it if gains and losses make it larger.
    pub width: i64,
    /// The part of the width without a box on it, at its left end.
    pub rest: i64,
}

/// The boxes of a tree, each before those on it, from left to right; the tree's root has none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Boxes {
    /// The boxes.
    pub boxes: Vec<FlameBox>,
    /// Width of the whole.
    pub width: i64,
    /// Number of boxes above each other.
    pub levels: u32,
}

/// A tree that is laid out as boxes. Its root, [`Tree::ROOT`], has no box.
pub trait BoxTree {
    /// The node below.
    fn parent(&self, node: u32) -> u32;
    /// The width of a node; of the root, that of the whole.
    fn width(&self, node: u32) -> i64;
    /// The nodes on a node, from left to right.
    fn children(&self, node: u32) -> &[u32];
}

impl Boxes {
    /// The boxes of `tree` that are wide enough.
    pub fn new(view: &View, tree: &Tree, options: &BoxOptions) -> Boxes {
        let View { frames, profile, cancel, .. } = view;
        let ordered = Ordered::cancelable(tree, frames, profile, options.order, cancel);
        let least = least_width(tree.node(options.zoom).total, options.min_width);
        Boxes::at_least(&OrderedTree { tree, ordered: &ordered }, options.zoom, least)
    }

    /// The boxes of `tree` that are at least `least` wide, and the ones below the node `zoom`, which
    /// is the whole. Nodes on others that are narrower are not visited.
    pub fn at_least(tree: &dyn BoxTree, zoom: u32, least: f64) -> Boxes {
        let mut path = Vec::new();
        let mut at = zoom;
        while at != Tree::ROOT {
            path.push(at);
            at = tree.parent(at);
        }
        path.reverse();
        let on_path = tree.children(zoom).iter().copied();
        let lowest = Lowest { path, on_path, whole: tree.width(zoom), least };
        let Layout { places, width, levels } = Layout::new(&Nodes(tree), lowest);
        let boxes = places.into_iter().map(|place| {
            let Place { id: node, depth, left, width, rest, .. } = place;
            FlameBox { node, depth, left, width, rest }
        });
        Boxes { boxes: boxes.collect(), width, levels }
    }
}

/// A tree, and the order of its nodes.
struct OrderedTree<'a> {
    tree: &'a Tree,
    ordered: &'a Ordered,
}

impl BoxTree for OrderedTree<'_> {
    fn parent(&self, node: u32) -> u32 {
        self.tree.node(node).parent
    }

    fn width(&self, node: u32) -> i64 {
        self.tree.node(node).total
    }

    fn children(&self, node: u32) -> &[u32] {
        self.ordered.children(node)
    }
}

/// The nodes of a tree, which lie on each other.
struct Nodes<'a>(&'a dyn BoxTree);

impl Stacked for Nodes<'_> {
    type Id = u32;

    fn width(&self, node: u32) -> i64 {
        self.0.width(node)
    }

    fn on(&self, node: u32) -> impl Iterator<Item = u32> {
        self.0.children(node).iter().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{answers, functions};
    use crate::{Cut, Direction, Granularity};
    use profile::{Column, LabelSetId, Profile};

    /// The boxes as `name depth left width`.
    fn laid_out(p: &Profile, options: &BoxOptions) -> Vec<String> {
        let mut view = View::new(p, 0, Granularity::FUNCTION);
        let tree = Tree::new(&mut view, Direction::Callees, &[], Cut::Nothing);
        let boxes = Boxes::new(&view, &tree, options);
        let text = |b: &FlameBox| {
            let name = view.frames.get(tree.node(b.node).frame).display(p);
            format!("{name} {} {} {}", b.depth, b.left, b.width)
        };
        boxes.boxes.iter().map(text).collect()
    }

    #[test]
    fn boxes_lie_on_their_callers_after_their_own_part() {
        let p = answers();
        let expected = ["main 0 0 18", "foo1 1 4 8", "bar 2 7 5", "foo2 1 12 6", "bar 2 13 5"];
        assert_eq!(laid_out(&p, &BoxOptions::default()), expected);
        let narrow = BoxOptions { min_width: 40.0, ..BoxOptions::default() };
        assert_eq!(laid_out(&p, &narrow), ["main 0 0 18", "foo1 1 10 8"]);
    }

    #[test]
    fn the_largest_is_first_if_left_heavy() {
        let mut b = profile::Builder::new(&[("samples", "count")]);
        let small = functions(&mut b, None, 1, &[("a", "", 0)]);
        let large = functions(&mut b, None, 2, &[("z", "", 0)]);
        b.add(&[small], LabelSetId::EMPTY, 1, &[]);
        b.add(&[large], LabelSetId::EMPTY, 3, &[]);
        let p = b.finish(None);
        let heavy = BoxOptions { order: Siblings::LeftHeavy, ..BoxOptions::default() };
        assert_eq!(laid_out(&p, &heavy), ["z 0 0 3", "a 0 3 1"]);
        assert_eq!(laid_out(&p, &BoxOptions::default()), ["a 0 0 1", "z 0 1 3"]);
    }

    #[test]
    fn ancestors_of_the_zoomed_box_have_its_width() {
        let p = answers();
        // The nodes are in the order of the samples: main, foo1, its bar, foo2, its bar.
        let zoom = BoxOptions { zoom: 2, ..BoxOptions::default() };
        assert_eq!(laid_out(&p, &zoom), ["main 0 0 8", "foo1 1 0 8", "bar 2 3 5"]);
    }

    #[test]
    fn no_box_is_wider_than_the_one_below_with_gains_and_losses() {
        let mut b = profile::Builder::new(&[("space", "bytes")]);
        let [main, kept, freed] = [1, 2, 3].map(|i| {
            functions(&mut b, None, i, &[(["main", "kept", "freed"][i as usize - 1], "", 0)])
        });
        b.add(&[kept, main], LabelSetId::EMPTY, 0, &[(Column(0), 5)]);
        b.add(&[freed, main], LabelSetId::EMPTY, 0, &[(Column(0), -3)]);
        let p = b.finish(None);
        assert_eq!(laid_out(&p, &BoxOptions::default()), ["main 0 0 5", "kept 1 0 5"]);
    }
}
