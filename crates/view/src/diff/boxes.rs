//! A differential flame graph as laid-out boxes.
//!
//! Boxes are as wide as after, in recorded units of the side after. Stacks that only the side
//! before has are on a box of their own, as wide as they were.

use std::cmp::Reverse;

use super::{Diff, DiffFrame, DiffTree};
use crate::Siblings;
use crate::layout::{Layout, Lowest, Place, Stacked, least_width};

/// The meaning of a box.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiffContent {
    /// A calling context of the side after.
    Context,
    /// The box below everything that disappeared.
    Disappeared,
    /// The part of a calling context that only the side before has.
    Gone,
}

/// One box.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DiffBox {
    /// Its meaning.
    pub content: DiffContent,
    /// Index in [`DiffBoxes::frames`]; `None` for [`DiffContent::Disappeared`].
    pub frame: Option<u32>,
    /// Index of the box that it lies on.
    pub below: Option<u32>,
    /// Number of boxes below it.
    pub depth: u32,
    /// Left end.
    pub left: i64,
    /// Width.
    pub width: i64,
    /// The part of the width without a box on it, at its left end.
    pub rest: i64,
    /// Value before, in recorded units of the side after.
    pub before: f64,
    /// Value after.
    pub after: f64,
}

impl DiffBox {
    /// After minus before.
    pub fn change(&self) -> f64 {
        self.after - self.before
    }
}

/// The boxes, each before those on it, from left to right.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DiffBoxes {
    /// The boxes.
    pub boxes: Vec<DiffBox>,
    /// Their frames.
    pub frames: Vec<DiffFrame>,
    /// Width of the whole.
    pub width: i64,
    /// Number of boxes above each other.
    pub levels: u32,
    /// Total before, in recorded units of the side after.
    pub before: f64,
    /// Total after.
    pub after: f64,
    /// Size of the largest change of a box.
    pub largest: f64,
    /// Number of the samples that the views leave out.
    pub left_out: usize,
}

impl DiffBoxes {
    /// The boxes of `tree` that are at least `min_width` percent of the whole wide; `diff` has the
    /// unit of comparison.
    pub fn new(diff: &Diff, tree: DiffTree, order: Siblings, min_width: f64) -> DiffBoxes {
        let sources = Sources::new(diff, &tree, order);
        let whole = [Source::Node(0), Source::Disappeared].map(|source| sources.width(source));
        let whole = whole[0].saturating_add(whole[1]);
        let lowest = Lowest {
            path: Vec::new(),
            on_path: sources.on(Source::Node(0)).chain([Source::Disappeared]),
            whole,
            least: least_width(whole, min_width),
        };
        let Layout { places, width, levels } = Layout::new(&sources, lowest);
        let boxes: Vec<DiffBox> = places.into_iter().map(|place| sources.make(place)).collect();
        let largest = boxes.iter().fold(0.0f64, |largest, b| largest.max(b.change().abs()));
        let [before, after] = sources.values(Source::Node(0));
        let DiffTree { frames, left_out, .. } = tree;
        DiffBoxes { boxes, frames, width, levels, before, after, largest, left_out }
    }
}

/// The origin of a box.
#[derive(Clone, Copy)]
enum Source {
    /// A node.
    Node(u32),
    /// All that disappeared.
    Disappeared,
    /// The part of a node that disappeared.
    Gone(u32),
}

/// What boxes are made of.
struct Sources<'a> {
    tree: &'a DiffTree,
    order: Siblings,
    /// Value before in recorded units of after.
    factor: f64,
    /// What disappeared in and above each node.
    gone: Vec<i64>,
    /// The nodes without the root, by parent; children of one parent by name.
    by_parent: Vec<u32>,
    /// The beginning of the children of each node in `by_parent`.
    starts: Vec<u32>,
}

impl<'a> Sources<'a> {
    fn new(diff: &Diff, tree: &'a DiffTree, order: Siblings) -> Sources<'a> {
        let factor = diff.before.factor / diff.after.factor;
        let factor = if factor.is_finite() && factor > 0.0 { factor } else { 1.0 };
        let mut gone = vec![0i64; tree.nodes.len()];
        let mut starts = vec![0u32; tree.nodes.len() + 1];
        // A parent precedes its children.
        for (id, node) in tree.nodes.iter().enumerate().rev() {
            if node.totals[1] <= 0 {
                gone[id] = gone[id].saturating_add((node.own[0] as f64 * factor) as i64);
            }
            if id > 0 {
                let parent = node.parent as usize;
                gone[parent] = gone[parent].saturating_add(gone[id]);
                starts[parent + 1] += 1;
            }
        }
        for i in 1..starts.len() {
            starts[i] += starts[i - 1];
        }
        let mut ranks = vec![0u32; tree.frames.len()];
        let mut frames: Vec<u32> = (0..tree.frames.len() as u32).collect();
        frames.sort_by(|&a, &b| tree.frames[a as usize].cmp(&tree.frames[b as usize]));
        for (rank, &frame) in frames.iter().enumerate() {
            ranks[frame as usize] = rank as u32;
        }
        let mut by_parent: Vec<u32> = (1..tree.nodes.len() as u32).collect();
        by_parent.sort_unstable_by_key(|&id| {
            let node = &tree.nodes[id as usize];
            (node.parent, ranks[node.frame as usize], id)
        });
        Sources { tree, order, factor, gone, by_parent, starts }
    }

    /// Before and after.
    fn values(&self, source: Source) -> [f64; 2] {
        match source {
            Source::Node(id) => {
                let [before, after] = self.tree.nodes[id as usize].totals;
                [before as f64 * self.factor, after as f64]
            }
            Source::Disappeared | Source::Gone(_) => [self.width(source) as f64, 0.0],
        }
    }

    /// The children of a node.
    fn children(&self, node: u32) -> &[u32] {
        let node = node as usize;
        &self.by_parent[self.starts[node] as usize..self.starts[node + 1] as usize]
    }

    fn make(&self, place: Place<Source>) -> DiffBox {
        let Place { id: source, below, depth, left, width, rest } = place;
        let (content, node) = match source {
            Source::Node(id) => (DiffContent::Context, Some(id)),
            Source::Disappeared => (DiffContent::Disappeared, None),
            Source::Gone(id) => (DiffContent::Gone, Some(id)),
        };
        let frame = node.map(|id| self.tree.nodes[id as usize].frame);
        let [before, after] = self.values(source);
        DiffBox { content, frame, below, depth, left, width, rest, before, after }
    }
}

impl Stacked for Sources<'_> {
    type Id = Source;

    fn width(&self, source: Source) -> i64 {
        match source {
            Source::Node(id) => self.tree.nodes[id as usize].totals[1].max(0),
            Source::Disappeared => self.gone[0].max(0),
            Source::Gone(id) => self.gone[id as usize].max(0),
        }
    }

    fn on(&self, source: Source) -> impl Iterator<Item = Source> {
        let (node, make): (u32, fn(u32) -> Source) = match source {
            Source::Node(id) => (id, Source::Node),
            Source::Disappeared => (0, Source::Gone),
            Source::Gone(id) => (id, Source::Gone),
        };
        let mut on_it: Vec<Source> = self.children(node).iter().map(|&id| make(id)).collect();
        if self.order == Siblings::LeftHeavy {
            on_it.sort_by_key(|&source| Reverse(self.width(source)));
        }
        on_it.into_iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DiffOptions, Direction, Granularity, View};
    use profile::{Builder, Column, LabelSetId, Profile};

    /// A profile of stacks, outermost function first, with values.
    fn profile(stacks: &[(&str, i64)]) -> Profile {
        let mut builder = Builder::new(&[("cpu", "nanoseconds")]);
        for (stack, value) in stacks {
            let frames: Vec<_> =
                stack.split(';').rev().map(|name| builder.named_location(name)).collect();
            builder.add(&frames, LabelSetId::EMPTY, 0, &[(Column(0), *value)]);
        }
        builder.finish(None)
    }

    fn boxes(before: &Profile, after: &Profile, min_width: f64) -> DiffBoxes {
        let view = |p| View::new(p, 0, Granularity::FUNCTION);
        let (mut before, mut after) = ([view(before)], [view(after)]);
        for view in before.iter_mut().chain(&mut after) {
            view.leave_out_negative();
        }
        let diff = Diff::new(&before, &after, &DiffOptions::default());
        let tree = DiffTree::new(&mut before, &mut after, Direction::Callees, &[]);
        DiffBoxes::new(&diff, tree, Siblings::Name, min_width)
    }

    /// The boxes as `name depth left+width before>after`.
    fn drawn(found: &DiffBoxes) -> Vec<String> {
        let text = |b: &DiffBox| {
            let name = b.frame.map_or("-", |frame| &found.frames[frame as usize].name);
            format!("{name} {} {}+{} {}>{}", b.depth, b.left, b.width, b.before, b.after)
        };
        found.boxes.iter().map(text).collect()
    }

    #[test]
    fn what_disappeared_is_on_a_box_of_its_own() {
        let before = profile(&[("main;kept", 5), ("main;gone;leaf", 4), ("main;gone", 1)]);
        let after = profile(&[("main;kept", 7), ("main;new", 3), ("main", 2)]);
        let found = boxes(&before, &after, 0.0);
        let expected = [
            "main 0 0+12 10>12",
            "kept 1 2+7 5>7",
            "new 1 9+3 0>3",
            "- 0 12+5 5>0",
            "main 1 12+5 5>0",
            "gone 2 12+5 5>0",
            "leaf 3 13+4 4>0",
        ];
        assert_eq!(drawn(&found), expected);
        assert_eq!((found.width, found.levels, found.largest), (17, 4, 5.0));
        assert_eq!((found.before, found.after), (10.0, 12.0));
        // Each lies on the box of its parent.
        for b in &found.boxes {
            let Some(below) = b.below.map(|below| &found.boxes[below as usize]) else { continue };
            assert_eq!(below.depth + 1, b.depth);
            assert!(below.left <= b.left && b.left + b.width <= below.left + below.width);
        }
        assert_eq!(drawn(&boxes(&before, &after, 30.0)).len(), 2, "main and kept");
    }

    #[test]
    fn the_widest_are_first_if_left_heavy() {
        let before = profile(&[("b;small", 1), ("b;tall", 4), ("gone", 2), ("lost", 5)]);
        let after = profile(&[("b;small", 1), ("b;tall", 7), ("a", 2)]);
        let view = |p| View::new(p, 0, Granularity::FUNCTION);
        let (mut before, mut after) = ([view(&before)], [view(&after)]);
        let diff = Diff::new(&before, &after, &DiffOptions::default());
        let tree = DiffTree::new(&mut before, &mut after, Direction::Callees, &[]);
        let found = DiffBoxes::new(&diff, tree, Siblings::LeftHeavy, 0.0);
        let names: Vec<String> = drawn(&found);
        let names: Vec<&str> = names.iter().map(|text| text.split(' ').next().unwrap()).collect();
        // What disappeared is last, as it is on a box of its own.
        assert_eq!(names, ["b", "tall", "small", "a", "-", "lost", "gone"]);
    }

    #[test]
    fn hostile_profiles_have_boxes() {
        let deep = vec!["f"; 10_000].join(";");
        let hostile = profile(&[(&deep, i64::MAX), ("main", i64::MAX), ("main", -7), ("", 1)]);
        let empty = Profile::default();
        let alike = boxes(&hostile, &hostile, 0.0);
        assert!(alike.levels == 10_000 && alike.largest == 0.0, "{}", alike.levels);
        assert!(boxes(&hostile, &empty, 0.0).levels == 10_001, "all of it has disappeared");
        assert!(boxes(&empty, &hostile, 0.0).levels == 10_000);
        assert_eq!(boxes(&empty, &empty, 0.0).boxes.len(), 0);
    }
}
