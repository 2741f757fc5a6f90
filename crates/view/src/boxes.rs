//! A flame graph as laid-out boxes, in the unit of the values.

use super::{Cut, Tree, View};

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

impl Boxes {
    /// The boxes of `tree` that are wide enough.
    pub fn new(view: &View, tree: &Tree, options: &BoxOptions) -> Boxes {
        let mut layout = Layout {
            view,
            tree,
            cut: Cut::Width(options.min_width),
            order: options.order,
            whole: tree.node(options.zoom).total,
            placed: Vec::new(),
        };
        layout.ancestors(options.zoom);
        layout.descend(options.zoom);
        layout.finish()
    }
}

/// A box, and the one below it.
struct Placed {
    flame: FlameBox,
    below: Option<u32>,
}

struct Layout<'a> {
    view: &'a View<'a>,
    tree: &'a Tree,
    cut: Cut,
    order: Siblings,
    whole: i64,
    placed: Vec<Placed>,
}

impl Layout<'_> {
    fn place(&mut self, node: u32, width: i64, below: Option<u32>) -> u32 {
        let depth = below.map_or(0, |b| self.placed[b as usize].flame.depth + 1);
        self.placed
            .push(Placed { flame: FlameBox { node, depth, left: 0, width, rest: 0 }, below });
        self.placed.len() as u32 - 1
    }

    /// Places the ancestors of the zoomed node, and it; the root has no box.
    fn ancestors(&mut self, zoom: u32) {
        let mut path = Vec::new();
        let mut at = zoom;
        while at != Tree::ROOT {
            path.push(at);
            at = self.tree.node(at).parent;
        }
        let mut below = None;
        for node in path.into_iter().rev() {
            below = Some(self.place(node, self.whole, below));
        }
    }

    /// Places the boxes on the zoomed node.
    fn descend(&mut self, zoom: u32) {
        let children = self.tree.children();
        let below = self.placed.len().checked_sub(1).map(|i| i as u32);
        // The last of these is the next.
        let mut pending = self.pending(children.of(zoom), below);
        while let Some((node, below)) = pending.pop() {
            let placed = self.place(node, self.tree.node(node).total, below);
            pending.extend(self.pending(children.of(node), Some(placed)));
        }
    }

    /// The boxes of these children, the last first.
    fn pending(&self, children: &[u32], below: Option<u32>) -> Vec<(u32, Option<u32>)> {
        let shown = self.shown(children);
        shown.into_iter().rev().map(|child| (child, below)).collect()
    }

    /// The children that are wide enough, in their order.
    fn shown(&self, children: &[u32]) -> Vec<u32> {
        let total = |node: u32| self.tree.node(node).total;
        let wide = |node: &u32| self.cut.keeps(self.view, self.whole, total(*node));
        let mut ids: Vec<u32> = children.iter().copied().filter(wide).collect();
        let frame = |node: u32| self.view.frames.get(self.tree.node(node).frame);
        let by_name = |a: u32, b: u32| frame(a).cmp_name(frame(b), self.view.profile);
        match self.order {
            Siblings::Name => ids.sort_by(|&a, &b| by_name(a, b)),
            Siblings::LeftHeavy => {
                ids.sort_by(|&a, &b| total(b).cmp(&total(a)).then_with(|| by_name(a, b)));
            }
        }
        ids
    }

    /// Widths from the top down, then left ends from the bottom up.
    fn finish(mut self) -> Boxes {
        let mut on_it = vec![0i64; self.placed.len()];
        let mut on_root = 0i64;
        for i in (0..self.placed.len()).rev() {
            let Placed { flame, below } = &mut self.placed[i];
            flame.width = flame.width.max(on_it[i]);
            flame.rest = flame.width.saturating_sub(on_it[i]);
            let sum = below.map_or(&mut on_root, |b| &mut on_it[b as usize]);
            *sum = sum.saturating_add(flame.width);
        }
        let width = self.whole.max(on_root);
        // Left end of the next box on each box.
        let mut next = vec![0i64; self.placed.len()];
        let mut next_on_root = width.saturating_sub(on_root);
        let mut levels = 0;
        for i in 0..self.placed.len() {
            let Placed { flame, below } = &mut self.placed[i];
            let left = below.map_or(&mut next_on_root, |b| &mut next[b as usize]);
            flame.left = *left;
            *left = left.saturating_add(flame.width);
            next[i] = flame.left.saturating_add(flame.rest);
            levels = levels.max(flame.depth + 1);
        }
        Boxes { boxes: self.placed.into_iter().map(|p| p.flame).collect(), width, levels }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{answers, functions};
    use crate::{Direction, Granularity};
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
        b.add(&[small], LabelSetId::EMPTY, Column(0), 1);
        b.add(&[large], LabelSetId::EMPTY, Column(0), 3);
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
        b.add(&[kept, main], LabelSetId::EMPTY, Column(0), 5);
        b.add(&[freed, main], LabelSetId::EMPTY, Column(0), -3);
        let p = b.finish(None);
        assert_eq!(laid_out(&p, &BoxOptions::default()), ["main 0 0 5", "kept 1 0 5"]);
    }
}
