//! A differential flame graph, and what of it is selected.

use std::borrow::Cow;

use super::boxes::NamedTree;
use crate::report::diff::frame_name;
use crate::report::flame_diff::{DISAPPEARED, LEAST_CHANGE, details};
use view::query::AddedFilter;
use view::{BoxTree, Diff, DiffBox, DiffBoxes, DiffFrame, DiffName, Tree};

/// The direction of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trend {
    /// More than before.
    More,
    /// Less.
    Less,
    /// As much.
    Same,
}

/// A differential flame graph. Its node 0 is the root, node `n` is box `n - 1`.
pub struct DiffFlame {
    /// The boxes; all contexts.
    pub boxes: DiffBoxes,
    /// The difference, without rows.
    pub diff: Diff,
    /// The filters that nothing in the profiles meets.
    pub unmatched: Vec<AddedFilter>,
    /// Names of the frames.
    names: Vec<String>,
    /// The nodes without the root, by the node below.
    by_parent: Vec<u32>,
    /// The beginning of the nodes on each node in `by_parent`.
    starts: Vec<u32>,
}

impl DiffFlame {
    /// The flame graph of these boxes.
    pub fn new(diff: Diff, boxes: DiffBoxes) -> DiffFlame {
        let parent = |b: &DiffBox| b.below.map_or(Tree::ROOT, |below| below + 1);
        let mut starts = vec![0u32; boxes.boxes.len() + 2];
        for b in &boxes.boxes {
            starts[parent(b) as usize + 1] += 1;
        }
        for i in 1..starts.len() {
            starts[i] += starts[i - 1];
        }
        let mut next = starts.clone();
        let mut by_parent = vec![0u32; boxes.boxes.len()];
        for (node, b) in (1..).zip(&boxes.boxes) {
            let at = &mut next[parent(b) as usize];
            by_parent[*at as usize] = node;
            *at += 1;
        }
        let names = boxes.frames.iter().map(frame_name).collect();
        DiffFlame { boxes, diff, unmatched: Vec::new(), names, by_parent, starts }
    }

    /// The box of a node; the root has none.
    pub fn node(&self, node: u32) -> Option<&DiffBox> {
        self.boxes.boxes.get((node as usize).checked_sub(1)?)
    }

    /// The frame of a node, if it is a function.
    pub fn function(&self, node: u32) -> Option<&DiffFrame> {
        let frame = &self.boxes.frames[self.node(node)?.frame? as usize];
        (frame.kind == DiffName::Function).then_some(frame)
    }

    /// The direction of a node's change, and its size: 1 for the largest one.
    pub fn trend(&self, node: u32) -> (Trend, f64) {
        let change = self.node(node).map_or(0.0, DiffBox::change);
        let size = (change / self.boxes.largest).abs();
        match change {
            _ if size.is_nan() || size < LEAST_CHANGE => (Trend::Same, 0.0),
            change if change > 0.0 => (Trend::More, size.min(1.0)),
            _ => (Trend::Less, size.min(1.0)),
        }
    }

    /// The values of a node.
    pub fn details(&self, node: u32) -> String {
        let values = match self.node(node) {
            Some(b) => [b.before, b.after],
            None => {
                let total = self.diff.total();
                [total.before, total.after]
            }
        };
        details(&self.diff, values, "")
    }
}

impl BoxTree for DiffFlame {
    fn parent(&self, node: u32) -> u32 {
        self.node(node).and_then(|b| b.below).map_or(Tree::ROOT, |below| below + 1)
    }

    fn width(&self, node: u32) -> i64 {
        self.node(node).map_or(self.boxes.width, |b| b.width)
    }

    fn children(&self, node: u32) -> &[u32] {
        let node = node as usize;
        &self.by_parent[self.starts[node] as usize..self.starts[node + 1] as usize]
    }
}

impl NamedTree for DiffFlame {
    fn count(&self) -> usize {
        self.boxes.boxes.len() + 1
    }

    fn node_at(&self, position: usize) -> u32 {
        position as u32
    }

    fn position(&self, node: u32) -> usize {
        node as usize
    }

    fn box_name(&self, node: u32) -> Cow<'_, str> {
        match self.node(node) {
            None => "".into(),
            Some(DiffBox { frame: None, .. }) => DISAPPEARED.into(),
            Some(DiffBox { frame: Some(frame), .. }) => (&*self.names[*frame as usize]).into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::boxes::{CellBox, CellRows, Zoomed};
    use super::super::difference::Base;
    use super::super::model::{Context, Model, compute};
    use super::*;
    use profile::{Builder, Column, LabelSetId, Profile};
    use view::query::{Query, Shown};

    fn profile(stacks: &[(&str, i64)]) -> Arc<Profile> {
        let mut builder = Builder::new(&[("cpu", "nanoseconds")]);
        for (stack, value) in stacks {
            let frames: Vec<_> =
                stack.split(';').rev().map(|name| builder.named_location(name)).collect();
            builder.add(&frames, LabelSetId::EMPTY, 0, &[(Column(0), *value)]);
        }
        Arc::new(builder.finish(None))
    }

    #[test]
    fn boxes_are_those_of_the_model_with_their_trends() {
        let before = profile(&[("main;kept", 6), ("main;grown", 1), ("main;gone", 2)]);
        let after = profile(&[("main;kept", 6), ("main;grown", 4)]);
        let base = Base { before: vec![before], ..Base::default() };
        let context = Context { base: Some(Arc::new(base)), ..Context::new(&after) };
        let query = Query::new(Shown::diff_flame());
        let Ok(Model::DiffFlame(flame)) = compute(&context, &query) else { panic!("boxes") };
        let text = |depth: usize, b: &CellBox| {
            let (trend, size) = flame.trend(b.node);
            let name = flame.box_name(b.node);
            format!("{name} {depth} {}+{} {trend:?} {size:.1}", b.left, b.width)
        };
        let boxes = |zoom: u32, width: u16| -> Vec<String> {
            let rows = CellRows::new(&Zoomed::new(&flame, zoom, width));
            let row = |depth: usize| rows.row(depth).iter().map(move |b| text(depth, b));
            (1..4).flat_map(row).collect()
        };
        let expected = [
            "main 1 0+10 More 0.3",
            "[disappeared] 1 10+2 Less 0.7",
            "grown 2 0+4 More 1.0",
            "kept 2 4+6 Same 0.0",
            "main 2 10+2 Less 0.7",
            "gone 3 10+2 Less 0.7",
        ];
        assert_eq!(boxes(Tree::ROOT, 12), expected);
        assert_eq!(boxes(2, 8), ["main 1 0+8 More 0.3", "grown 2 0+8 More 1.0"]);
        assert_eq!(flame.parent(2), 1);
        assert_eq!(flame.details(2), "cpu 4 ns, before 1 ns, change +3 ns, ×4.00");
        assert_eq!(flame.function(2).map(|frame| &*frame.name), Some("grown"));
        assert!(flame.function(4).is_none(), "[disappeared] is no function");
    }
}
