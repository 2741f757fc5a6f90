//! The union of the calling-context trees of both sides.

use rustc_hash::FxHashMap;

use super::names::{DiffFrame, NameTable};
use crate::{Cut, Direction, Tree, View};
use profile::StrId;

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
    /// Number of the samples that the views leave out.
    pub left_out: usize,
}

impl DiffTree {
    /// The union of the trees of these recordings, which have the same granularity, with the values
    /// of the labels `roots` as the lowest frames: `[no KEY]` without a value, also in recordings
    /// that have no such label.
    pub fn new<'p>(
        before: &mut [View<'p>],
        after: &mut [View<'p>],
        direction: Direction,
        roots: &[String],
    ) -> DiffTree {
        let left_out = before.iter().chain(&*after).map(|view| view.left_out).sum();
        // Before the trees, since a function may have another binary in a later recording.
        let mut union = Union::new(NameTable::new(before, after).0);
        for (side, views) in [before, after].into_iter().enumerate() {
            for view in views {
                let keys: Vec<_> = roots.iter().map(|key| view.profile.strings.find(key)).collect();
                let known: Vec<StrId> = keys.iter().copied().flatten().collect();
                let tree = Tree::new(view, direction, &known, Cut::Nothing);
                let frames = union.names.add(view);
                if view.cancel.is_canceled() {
                    return DiffTree::default();
                }
                let missing = roots.iter().zip(&keys).map(|(root, key)| match key {
                    Some(_) => None,
                    None => Some(union.names.no_value(root)),
                });
                let levels = Levels::new(missing.collect());
                union.add(&tree, side, &frames, &levels);
            }
        }
        DiffTree { nodes: union.nodes, frames: union.names.frames, left_out }
    }
}

/// The levels of labels in the tree of a recording that has only some of them.
struct Levels {
    /// The frames to insert on the nodes of each level, the root's first.
    inserted: Vec<Vec<u32>>,
}

impl Levels {
    /// `missing`: for each level, the frame of a label that the recording does not have.
    fn new(missing: Vec<Option<u32>>) -> Levels {
        let mut inserted = vec![Vec::new()];
        for level in missing {
            match (level, inserted.last_mut()) {
                (Some(frame), Some(last)) => last.push(frame),
                _ => inserted.push(Vec::new()),
            }
        }
        Levels { inserted }
    }

    /// The frames to insert on the nodes of a level.
    fn on(&self, level: u32) -> &[u32] {
        self.inserted.get(level as usize).map_or(&[], |frames| frames)
    }
}

/// The union of the trees so far.
struct Union {
    names: NameTable,
    nodes: Vec<DiffNode>,
    index: FxHashMap<(u32, u32), u32>,
}

impl Union {
    fn new(names: NameTable) -> Union {
        let nodes = vec![DiffNode::default()];
        Union { names, nodes, index: FxHashMap::default() }
    }

    /// Adds the values of a tree of one side.
    fn add(&mut self, tree: &Tree, side: usize, frames: &[u32], levels: &Levels) {
        // Of each node, its place in the union, and its level: that of a root is 1.
        let mut there = vec![(0u32, 0u32); tree.nodes.len()];
        for (at, node) in tree.nodes.iter().enumerate() {
            let (mut place, mut level) = (0, 0);
            if at > 0 {
                let (parent, below) = there[node.parent as usize];
                place = self.child(parent, frames[node.frame as usize]);
                level = below + 1;
            }
            self.add_total(place, side, node.total);
            for &frame in levels.on(level) {
                place = self.child(place, frame);
                self.add_total(place, side, node.total);
            }
            let own = &mut self.nodes[place as usize].own[side];
            *own = own.saturating_add(node.self_value);
            there[at] = (place, level);
        }
    }

    /// The node with this frame on a node.
    fn child(&mut self, parent: u32, frame: u32) -> u32 {
        let nodes = &mut self.nodes;
        *self.index.entry((parent, frame)).or_insert_with(|| {
            nodes.push(DiffNode { parent, frame, ..DiffNode::default() });
            nodes.len() as u32 - 1
        })
    }

    fn add_total(&mut self, node: u32, side: usize, total: i64) {
        let into = &mut self.nodes[node as usize].totals[side];
        *into = into.saturating_add(total);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Granularity;
    use profile::{Builder, Label, LabelSetId, LabelValue, Profile};

    /// One sample of `main` with these labels.
    fn profile(labels: &[(&str, &str)]) -> Profile {
        let mut b = Builder::new(&[("samples", "count")]);
        let main = b.named_location("main");
        let strings = &mut b.profile.strings;
        let labels = labels.iter().map(|(key, value)| {
            let [key, value] = [key, value].map(|text| strings.intern(text));
            Label { key, value: LabelValue::Str(value) }
        });
        let labels: Vec<Label> = labels.collect();
        let set = match labels.as_slice() {
            [] => LabelSetId::EMPTY,
            labels => b.profile.labels.intern(labels),
        };
        b.add(&[main], set, 3, &[]);
        b.finish(None)
    }

    /// The contexts as `path before>after`.
    fn contexts(before: &Profile, after: &Profile, roots: &[&str]) -> Vec<String> {
        let view = |p| View::new(p, 0, Granularity::FUNCTION);
        let roots: Vec<String> = roots.iter().map(|&key| key.to_owned()).collect();
        let (mut before, mut after) = ([view(before)], [view(after)]);
        let tree = DiffTree::new(&mut before, &mut after, Direction::Callees, &roots);
        let mut paths = vec![String::new()];
        for node in &tree.nodes[1..] {
            let name = &tree.frames[node.frame as usize].name;
            paths.push(format!("{}/{name}", paths[node.parent as usize]));
        }
        let text = |(path, node): (&String, &DiffNode)| {
            format!("{path} {}>{}", node.totals[0], node.totals[1])
        };
        paths.iter().zip(&tree.nodes).skip(1).map(text).collect()
    }

    #[test]
    fn a_recording_without_a_label_has_no_value_of_it() {
        let (none, web) = (profile(&[]), profile(&[("process", "web")]));
        let expected = ["/[no process] 3>0", "/[no process]/main 3>0", "/web 0>3", "/web/main 0>3"];
        assert_eq!(contexts(&none, &web, &["process"]), expected);
        // The same code is the same, whichever recordings know the label.
        let other = profile(&[("thread", "t")]);
        assert_eq!(
            contexts(&none, &other, &["process"]),
            ["/[no process] 3>3", "/[no process]/main 3>3"]
        );
        let expected = ["/[no a] 3>3", "/[no a]/[no b] 3>3", "/[no a]/[no b]/main 3>3"];
        assert_eq!(contexts(&none, &none, &["a", "b"]), expected);
    }

    #[test]
    fn missing_labels_are_at_their_levels() {
        let [all, second] = [&[("a", "1"), ("b", "2"), ("c", "3")][..], &[("b", "2")]].map(profile);
        let found = contexts(&all, &second, &["a", "b", "c"]);
        let expected = [
            "/1 3>0",
            "/1/2 3>0",
            "/1/2/3 3>0",
            "/1/2/3/main 3>0",
            "/[no a] 0>3",
            "/[no a]/2 0>3",
            "/[no a]/2/[no c] 0>3",
            "/[no a]/2/[no c]/main 0>3",
        ];
        assert_eq!(found, expected);
    }
}
