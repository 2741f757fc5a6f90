//! A differential flame graph as laid-out boxes.
//!
//! Boxes are as wide as after, in recorded units of the side after. Stacks that only the side
//! before has are on a box of their own, as wide as they were.

use super::{Diff, DiffFrame, DiffTree};

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
}

impl DiffBoxes {
    /// The boxes of `tree` that are at least `min_width` percent of the whole wide; `diff` has the
    /// unit of comparison.
    pub fn new(diff: &Diff, tree: DiffTree, min_width: f64) -> DiffBoxes {
        let mut layout = Layout::new(diff, &tree);
        layout.place(min_width);
        let [before, after] = layout.values(Source::Node(0));
        let mut boxes = layout.finish();
        (boxes.before, boxes.after) = (before, after);
        boxes.frames = tree.frames;
        boxes
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

struct Layout<'a> {
    tree: &'a DiffTree,
    /// Value before in recorded units of after.
    factor: f64,
    /// What disappeared in and above each node.
    gone: Vec<i64>,
    /// The nodes without the root, by parent; children of one parent by name, the last first.
    by_parent: Vec<u32>,
    /// The beginning of the children of each node in `by_parent`.
    starts: Vec<u32>,
    boxes: Vec<DiffBox>,
    whole: i64,
}

impl<'a> Layout<'a> {
    fn new(diff: &Diff, tree: &'a DiffTree) -> Layout<'a> {
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
            (node.parent, u32::MAX - ranks[node.frame as usize], id)
        });
        Layout { tree, factor, gone, by_parent, starts, boxes: Vec::new(), whole: 0 }
    }

    fn width(&self, source: Source) -> i64 {
        match source {
            Source::Node(id) => self.tree.nodes[id as usize].totals[1].max(0),
            Source::Disappeared => self.gone[0].max(0),
            Source::Gone(id) => self.gone[id as usize].max(0),
        }
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

    /// The children of a node, the last first.
    fn children(&self, node: u32) -> &[u32] {
        let node = node as usize;
        &self.by_parent[self.starts[node] as usize..self.starts[node + 1] as usize]
    }

    /// The boxes on a box, the last first.
    fn on(&self, source: Source) -> impl Iterator<Item = Source> {
        let (node, make): (u32, fn(u32) -> Source) = match source {
            Source::Node(id) => (id, Source::Node),
            Source::Disappeared => (0, Source::Gone),
            Source::Gone(id) => (id, Source::Gone),
        };
        self.children(node).iter().map(move |&id| make(id))
    }

    fn place(&mut self, min_width: f64) {
        self.whole = self.width(Source::Node(0)).saturating_add(self.width(Source::Disappeared));
        let least = (self.whole as f64 * min_width / 100.0).max(1.0);
        let roots = std::iter::once(Source::Disappeared).chain(self.on(Source::Node(0)));
        let is_wide = |layout: &Layout, source: Source| layout.width(source) as f64 >= least;
        // The last of these is the next.
        let mut pending: Vec<(Source, Option<u32>)> =
            roots.filter(|&source| is_wide(self, source)).map(|source| (source, None)).collect();
        while let Some((source, below)) = pending.pop() {
            let id = self.boxes.len() as u32;
            self.add(source, below);
            let on_it = self.on(source).filter(|&source| is_wide(self, source));
            pending.extend(on_it.map(|source| (source, Some(id))));
        }
    }

    fn add(&mut self, source: Source, below: Option<u32>) {
        let (content, node) = match source {
            Source::Node(id) => (DiffContent::Context, Some(id)),
            Source::Disappeared => (DiffContent::Disappeared, None),
            Source::Gone(id) => (DiffContent::Gone, Some(id)),
        };
        let frame = node.map(|id| self.tree.nodes[id as usize].frame);
        let depth = below.map_or(0, |b| self.boxes[b as usize].depth + 1);
        let width = self.width(source);
        let [before, after] = self.values(source);
        let (left, rest) = (0, 0);
        self.boxes.push(DiffBox { content, frame, below, depth, left, width, rest, before, after });
    }

    /// Widths from the top down, then left ends from the bottom up.
    fn finish(self) -> DiffBoxes {
        let Layout { mut boxes, whole, .. } = self;
        let mut on_it = vec![0i64; boxes.len()];
        let mut on_root = 0i64;
        for (i, b) in boxes.iter_mut().enumerate().rev() {
            b.width = b.width.max(on_it[i]);
            b.rest = b.width.saturating_sub(on_it[i]);
            let sum = b.below.map_or(&mut on_root, |below| &mut on_it[below as usize]);
            *sum = sum.saturating_add(b.width);
        }
        let width = whole.max(on_root);
        // Left end of the next box on each box.
        let mut next = vec![0i64; boxes.len()];
        let mut next_on_root = width.saturating_sub(on_root);
        let mut levels = 0;
        let mut largest = 0.0f64;
        for (i, b) in boxes.iter_mut().enumerate() {
            let left = b.below.map_or(&mut next_on_root, |below| &mut next[below as usize]);
            b.left = *left;
            *left = left.saturating_add(b.width);
            next[i] = b.left.saturating_add(b.rest);
            levels = levels.max(b.depth + 1);
            largest = largest.max(b.change().abs());
        }
        DiffBoxes { boxes, width, levels, largest, ..DiffBoxes::default() }
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
            builder.add(&frames, LabelSetId::EMPTY, Column(0), *value);
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
        DiffBoxes::new(&diff, tree, min_width)
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
