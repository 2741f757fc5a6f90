//! How a tree grows: from the root, as far as its cut keeps it.
//!
//! The samples that go through a node are parted by their next frame, which makes its children;
//! nothing is known of a child that is left out but its value. So the cost of a view is that of
//! what it shows, not of all contexts there are.

use rustc_hash::FxHashMap;

use super::{ByState, Cut, Direction, Node, States, Tree, View};
use profile::{LabelSetId, LocationId, StrId};

/// See [`Tree::new`], [`Tree::with_states`].
pub(super) fn grow(
    view: &mut View,
    direction: Direction,
    roots: &[StrId],
    cut: Cut,
    states: Option<States>,
) -> Tree {
    let root_frames = label_frames(view, roots);
    let view = &*view;
    let mut items: Vec<Item> = Vec::with_capacity(view.samples().count());
    items.extend(view.samples().map(|s| Item::new(s.stack, s.labels, s.value)));
    let total = items.iter().fold(0i64, |sum, i| sum.saturating_add(i.value));
    let root = Node { parent: 0, frame: 0, self_value: 0, total };
    let all = Pending { node: Tree::ROOT, depth: 0, start: 0, end: items.len() };
    let of_root = states.as_ref().map(|states| states.values(view));
    let mut grower = Grower {
        view,
        states,
        direction,
        root_frames,
        root_depth: roots.len(),
        cut,
        tree: Tree {
            nodes: vec![root],
            left_out: 0,
            direction,
            states: of_root.into_iter().collect(),
        },
        group_of_frame: vec![NO_GROUP; view.frames.len()],
        groups: Vec::new(),
        parted: Vec::new(),
    };
    let mut pending = vec![all];
    while let Some(next) = pending.pop() {
        grower.expand(next, &mut items, &mut pending);
    }
    grower.tree
}

/// The frames of the root labels, for every label set in use.
pub(super) fn label_frames(view: &mut View, roots: &[StrId]) -> FxHashMap<LabelSetId, Vec<u32>> {
    let mut out = FxHashMap::default();
    if roots.is_empty() {
        return out;
    }
    let profile = view.profile;
    for sample in &profile.samples {
        out.entry(sample.labels).or_insert_with(|| {
            let labels = &profile.labels;
            roots.iter().map(|&k| view.frames.label(k, labels.value(sample.labels, k))).collect()
        });
    }
    out
}

/// A sample on its way from the root: what is left of its stack.
#[derive(Clone, Copy)]
struct Item<'a> {
    stack: &'a [LocationId],
    /// Frames of the location at the near end of `stack` that are behind it already.
    passed: u32,
    labels: LabelSetId,
    value: i64,
    /// The frame that it came to last.
    frame: u32,
}

impl<'a> Item<'a> {
    fn new(stack: &'a [LocationId], labels: LabelSetId, value: i64) -> Item<'a> {
        Item { stack, passed: 0, labels, value, frame: 0 }
    }

    /// Goes on to the next frame of the stack; false when there is none.
    fn advance(&mut self, view: &View, direction: Direction) -> bool {
        loop {
            let (location, rest) = match direction {
                Direction::Callees => match self.stack.split_last() {
                    Some((location, rest)) => (location, rest),
                    None => return false,
                },
                Direction::Callers => match self.stack.split_first() {
                    Some((location, rest)) => (location, rest),
                    None => return false,
                },
            };
            let frames = view.frames.of(*location);
            let passed = self.passed as usize;
            if passed + 1 < frames.len() {
                self.passed += 1;
            } else {
                (self.stack, self.passed) = (rest, 0);
            }
            if passed < frames.len() {
                self.frame = match direction {
                    Direction::Callees => frames[frames.len() - 1 - passed],
                    Direction::Callers => frames[passed],
                };
                return true;
            }
            // All frames of this location are hidden.
        }
    }
}

/// A node whose children are not known yet, and the items that go through it.
struct Pending {
    node: u32,
    depth: usize,
    start: usize,
    end: usize,
}

/// The items of a node that have the same next frame.
struct Group {
    frame: u32,
    total: i64,
    by_state: ByState,
    count: usize,
    /// Where its next item goes; `None`: it is left out.
    at: Option<usize>,
}

const NO_GROUP: u32 = u32::MAX;

struct Grower<'v, 'a> {
    view: &'v View<'a>,
    states: Option<States>,
    direction: Direction,
    root_frames: FxHashMap<LabelSetId, Vec<u32>>,
    root_depth: usize,
    cut: Cut,
    tree: Tree,
    /// Index in `groups` of a frame, while a node is expanded; `NO_GROUP` otherwise.
    group_of_frame: Vec<u32>,
    groups: Vec<Group>,
    /// Items in the order of their groups, before they go back.
    parted: Vec<Item<'v>>,
}

impl<'v> Grower<'v, '_> {
    /// Adds the children of a node; its items come to stand in the order of the children.
    fn expand(&mut self, at: Pending, items: &mut [Item<'v>], pending: &mut Vec<Pending>) {
        let Pending { node, depth, start, end } = at;
        let items = &mut items[start..end];
        let going = self.group(node, depth, items);
        let children = pending.len();
        let mut next = 0;
        for group in &mut self.groups {
            self.group_of_frame[group.frame as usize] = NO_GROUP;
            if !self.cut.keeps(self.view, self.tree.nodes[0].total, group.total) {
                self.tree.left_out += 1;
                continue;
            }
            let child = self.tree.nodes.len() as u32;
            let Group { frame, total, .. } = *group;
            self.tree.nodes.push(Node { parent: node, frame, self_value: 0, total });
            self.tree.states.extend(self.states.is_some().then_some(group.by_state));
            group.at = Some(next);
            let from = start + next;
            next += group.count;
            pending.push(Pending { node: child, depth: depth + 1, start: from, end: start + next });
        }
        // The first child is next.
        pending[children..].reverse();
        if next > 0 && self.groups.len() > 1 {
            self.part(&mut items[..going], next);
        }
        self.groups.clear();
    }

    /// Moves the items of a node on by a frame and finds their groups. Those that end here count
    /// as the node's own; the others, so many as it returns, come to stand before them.
    fn group(&mut self, node: u32, depth: usize, items: &mut [Item<'v>]) -> usize {
        let mut own = 0i64;
        let mut going = 0;
        for i in 0..items.len() {
            let mut item = items[i];
            if !self.advance(&mut item, depth) {
                own = own.saturating_add(item.value);
                continue;
            }
            let slot = &mut self.group_of_frame[item.frame as usize];
            if *slot == NO_GROUP {
                *slot = self.groups.len() as u32;
                let (frame, by_state) = (item.frame, ByState::default());
                self.groups.push(Group { frame, total: 0, by_state, count: 0, at: None });
            }
            let group = &mut self.groups[*slot as usize];
            group.total = group.total.saturating_add(item.value);
            if let Some(states) = &self.states {
                let of_state = &mut group.by_state[states.get(item.labels)];
                *of_state = of_state.saturating_add(item.value);
            }
            group.count += 1;
            // From here on the number of the group; the frame is known by it.
            item.frame = *slot;
            items[going] = item;
            going += 1;
        }
        self.tree.nodes[node as usize].self_value = own;
        going
    }

    fn advance(&self, item: &mut Item<'v>, depth: usize) -> bool {
        if depth < self.root_depth {
            item.frame = self.root_frames[&item.labels][depth];
            return true;
        }
        if depth == self.root_depth && item.stack.is_empty() {
            item.frame = self.view.frames.no_stack;
            return true;
        }
        item.advance(self.view, self.direction)
    }

    /// Brings the items into the order of their groups, without those of groups left out;
    /// `kept` is their number.
    fn part(&mut self, items: &mut [Item<'v>], kept: usize) {
        if self.parted.len() < kept {
            self.parted.resize(kept, Item::new(&[], LabelSetId::EMPTY, 0));
        }
        for item in items.iter() {
            if let Some(at) = &mut self.groups[item.frame as usize].at {
                self.parted[*at] = *item;
                *at += 1;
            }
        }
        items[..kept].copy_from_slice(&self.parted[..kept]);
    }
}
