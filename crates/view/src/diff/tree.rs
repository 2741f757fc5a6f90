//! The union of the calling-context trees of both sides.

use rustc_hash::FxHashMap;

use super::names::{DiffFrame, NameTable};
use crate::{Cut, Direction, Tree, View};

/// A calling context with its values on both sides.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiffNode {
    /// Index of its parent (towards the root).
    pub parent: u32,
    /// Index in [`DiffTree::frames`]; undefined for the root.
    pub frame: u32,
    /// Sum of the samples whose stack passes through here: before and after, as recorded.
    pub totals: [i64; 2],
    /// Sum of the samples whose stack ends here: before and after, as recorded.
    pub own: [i64; 2],
}

/// The calling contexts of both sides. Node 0 is the root; a parent precedes its children.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DiffTree {
    /// All nodes.
    pub nodes: Vec<DiffNode>,
    /// Frames of the nodes.
    pub frames: Vec<DiffFrame>,
}

impl DiffTree {
    /// The union of the trees of these recordings, which have the same granularity, with the values
    /// of the labels `roots` as the lowest frames.
    pub fn new<'p>(
        before: &mut [View<'p>],
        after: &mut [View<'p>],
        direction: Direction,
        roots: &[String],
    ) -> DiffTree {
        let mut names = NameTable::default();
        let mut nodes = vec![DiffNode::default()];
        let mut index = FxHashMap::default();
        for (side, views) in [before, after].into_iter().enumerate() {
            for view in views {
                let keys: Vec<_> =
                    roots.iter().filter_map(|key| view.profile.strings.find(key)).collect();
                let tree = Tree::new(view, direction, &keys, Cut::Nothing);
                let ids = names.add(view);
                if view.cancel.is_canceled() {
                    return DiffTree::default();
                }
                let mut there = vec![0u32; tree.nodes.len()];
                for (at, node) in tree.nodes.iter().enumerate() {
                    if at > 0 {
                        let parent = there[node.parent as usize];
                        let frame = ids[node.frame as usize];
                        there[at] = *index.entry((parent, frame)).or_insert_with(|| {
                            nodes.push(DiffNode { parent, frame, ..DiffNode::default() });
                            nodes.len() as u32 - 1
                        });
                    }
                    let into = &mut nodes[there[at] as usize];
                    into.totals[side] = into.totals[side].saturating_add(node.total);
                    into.own[side] = into.own[side].saturating_add(node.self_value);
                }
            }
        }
        DiffTree { nodes, frames: names.frames }
    }
}
