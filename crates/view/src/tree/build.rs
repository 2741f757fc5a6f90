//! Builds a tree from the root, as far as its cut keeps nodes.
//!
//! The samples of a node are partitioned by their next frame into its children; of an omitted child
//! only the value is computed. So the cost of a view is proportional to the nodes shown, not to all
//! contexts.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::{ByState, Cut, Direction, Node, States, Tree, View};
use profile::{LabelSetId, LocationId, StrId};

/// See [`Tree::new`], [`Tree::with_states`].
pub(crate) fn build(
    view: &mut View,
    direction: Direction,
    roots: &[StrId],
    cut: Cut,
    states: Option<States>,
) -> Tree {
    let root_frames = label_frames(view, roots);
    let view = &*view;
    let mut items: Vec<PathSample> = Vec::with_capacity(view.samples().count());
    items.extend(view.samples().map(|s| PathSample::new(s.stack, s.labels, s.value)));
    let rooted = Rooted { frames: root_frames, depth: roots.len() };
    grow(view, items, TreeShape { direction, cut, states }, rooted)
}

/// The labels at the root of a tree.
#[derive(Default)]
pub(crate) struct Rooted {
    /// The frames of each label set.
    frames: FxHashMap<LabelSetId, Vec<u32>>,
    /// Their number.
    depth: usize,
}

/// The properties of a tree apart from its samples.
pub(crate) struct TreeShape {
    pub direction: Direction,
    pub cut: Cut,
    pub states: Option<States>,
}

/// The tree of these samples.
pub(crate) fn grow<'v>(
    view: &'v View,
    mut items: Vec<PathSample<'v>>,
    shape: TreeShape,
    rooted: Rooted,
) -> Tree {
    let TreeShape { direction, cut, states } = shape;
    let total = items.iter().fold(0i64, |sum, i| sum.saturating_add(i.value));
    let root = Node { parent: 0, frame: 0, self_value: 0, total };
    let all = PendingNode { node: Tree::ROOT, depth: 0, start: 0, end: items.len() };
    let root_states = states.as_ref().map(|states| states.values(view));
    let mut grower = TreeBuilder {
        view,
        states,
        direction,
        rooted,
        cut,
        tree: Tree {
            nodes: vec![root],
            left_out: 0,
            beyond_limit: 0,
            direction,
            states: root_states.into_iter().collect(),
        },
        group_of_frame: vec![NO_GROUP; view.frames.len()],
        groups: Vec::new(),
        places: Vec::new(),
    };
    let most = view.frames.expansion.nodes(matches!(cut, Cut::Width(_)));
    let mut pending = vec![all];
    while let Some(next) = pending.pop().filter(|_| !view.cancel.is_canceled()) {
        if grower.tree.nodes.len() + pending.len() < most {
            grower.expand(next, &mut items, &mut pending);
        } else {
            grower.end(next, &items);
        }
    }
    grower.tree
}

/// Frames of the root labels, for every label set in use.
pub(super) fn label_frames(view: &mut View, roots: &[StrId]) -> FxHashMap<LabelSetId, Vec<u32>> {
    let mut out = FxHashMap::default();
    if roots.is_empty() {
        return out;
    }
    let profile = view.profile;
    // A copy only if an answer has them.
    let frames = Arc::make_mut(&mut view.frames);
    for sample in &profile.samples {
        out.entry(sample.labels).or_insert_with(|| {
            let labels = &profile.labels;
            roots.iter().map(|&k| frames.label(k, labels.value(sample.labels, k))).collect()
        });
    }
    out
}

/// A sample during the build: the rest of its stack.
#[derive(Clone, Copy)]
pub(crate) struct PathSample<'a> {
    stack: &'a [LocationId],
    /// Number of processed frames of the location at the near end of `stack`.
    passed: u32,
    labels: LabelSetId,
    value: i64,
}

impl<'a> PathSample<'a> {
    fn new(stack: &'a [LocationId], labels: LabelSetId, value: i64) -> PathSample<'a> {
        PathSample { stack, passed: 0, labels, value }
    }

    /// The sample without the first `passed` frames of the location at the near end of `stack`.
    pub(crate) fn from_within(stack: &'a [LocationId], passed: usize, value: i64) -> Self {
        PathSample { passed: passed as u32, ..PathSample::new(stack, LabelSetId::EMPTY, value) }
    }

    /// Advances to the next frame of the stack, if there is one.
    fn advance(&mut self, view: &View, direction: Direction) -> Option<u32> {
        loop {
            let (location, rest) = match direction {
                Direction::Callees => self.stack.split_last()?,
                Direction::Callers => self.stack.split_first()?,
            };
            let frames = view.frames.at(*location);
            let passed = self.passed as usize;
            if passed + 1 < frames.len() {
                self.passed += 1;
            } else {
                (self.stack, self.passed) = (rest, 0);
            }
            if passed < frames.len() {
                return Some(match direction {
                    Direction::Callees => frames[frames.len() - 1 - passed],
                    Direction::Callers => frames[passed],
                });
            }
            // All frames of this location are hidden.
        }
    }
}

/// A node whose children are not built yet, and its samples.
struct PendingNode {
    node: u32,
    depth: usize,
    start: usize,
    end: usize,
}

/// The samples of a node that have the same next frame.
struct FrameGroup {
    frame: u32,
    total: i64,
    by_state: ByState,
    count: usize,
    /// Place of its next sample; `None` if it is omitted.
    at: Option<u32>,
}

const NO_GROUP: u32 = u32::MAX;

struct TreeBuilder<'v, 'a> {
    view: &'v View<'a>,
    states: Option<States>,
    direction: Direction,
    rooted: Rooted,
    cut: Cut,
    tree: Tree,
    /// Index in `groups` of a frame, while a node is expanded; `NO_GROUP` otherwise.
    group_of_frame: Vec<u32>,
    groups: Vec<FrameGroup>,
    /// Group of each sample of a node, then its place in the order of the groups.
    places: Vec<u32>,
}

impl<'v> TreeBuilder<'v, '_> {
    /// Adds the children of a node; its samples are put in the order of the children.
    fn expand(
        &mut self,
        at: PendingNode,
        items: &mut [PathSample<'v>],
        pending: &mut Vec<PendingNode>,
    ) {
        let PendingNode { node, depth, start, end } = at;
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
            let FrameGroup { frame, total, .. } = *group;
            self.tree.nodes.push(Node { parent: node, frame, self_value: 0, total });
            self.tree.states.extend(self.states.is_some().then_some(group.by_state));
            group.at = Some(next as u32);
            let from = start + next;
            next += group.count;
            pending.push(PendingNode {
                node: child,
                depth: depth + 1,
                start: from,
                end: start + next,
            });
        }
        // The first child is next.
        pending[children..].reverse();
        if next > 0 && self.groups.len() > 1 {
            self.partition(&mut items[..going], next);
        }
        self.groups.clear();
    }

    /// Ends the stacks of a node, because of the limit of a tree, in one further node.
    fn end(&mut self, at: PendingNode, items: &[PathSample<'v>]) {
        let PendingNode { node, depth, start, end } = at;
        let (mut own, mut total) = (0i64, 0i64);
        let mut by_state = ByState::default();
        for mut item in items[start..end].iter().copied() {
            if self.advance_to_other(&mut item, node, depth).is_none() {
                own = own.saturating_add(item.value);
                continue;
            }
            total = total.saturating_add(item.value);
            if let Some(states) = &self.states {
                let sum = &mut by_state[states.get(item.labels)];
                *sum = sum.saturating_add(item.value);
            }
        }
        self.tree.nodes[node as usize].self_value = own;
        if total == 0 {
            return;
        }
        let frame = self.view.frames.beyond_limit;
        self.tree.beyond_limit += 1;
        self.tree.nodes.push(Node { parent: node, frame, self_value: total, total });
        self.tree.states.extend(self.states.is_some().then_some(by_state));
    }

    /// Advances the samples of a node by one frame and finds their groups. Samples that end here
    /// count as the node's self value; the others are moved before them, and their number is
    /// returned.
    fn group(&mut self, node: u32, depth: usize, items: &mut [PathSample<'v>]) -> usize {
        let mut own = 0i64;
        self.places.clear();
        for i in 0..items.len() {
            let mut item = items[i];
            let Some(frame) = self.advance_to_other(&mut item, node, depth) else {
                own = own.saturating_add(item.value);
                continue;
            };
            let slot = &mut self.group_of_frame[frame as usize];
            if *slot == NO_GROUP {
                *slot = self.groups.len() as u32;
                self.groups.push(FrameGroup {
                    frame,
                    total: 0,
                    by_state: ByState::default(),
                    count: 0,
                    at: None,
                });
            }
            let group = &mut self.groups[*slot as usize];
            group.total = group.total.saturating_add(item.value);
            if let Some(states) = &self.states {
                let sum = &mut group.by_state[states.get(item.labels)];
                *sum = sum.saturating_add(item.value);
            }
            group.count += 1;
            items[self.places.len()] = item;
            self.places.push(*slot);
        }
        self.tree.nodes[node as usize].self_value = own;
        self.places.len()
    }

    /// Advances to the next frame; if recursion is collapsed, to one that differs from the node's.
    fn advance_to_other(&self, item: &mut PathSample<'v>, node: u32, depth: usize) -> Option<u32> {
        let collapses = self.view.collapse_recursion && depth > self.rooted.depth;
        loop {
            let frame = self.advance(item, depth)?;
            if !collapses || frame != self.tree.nodes[node as usize].frame {
                return Some(frame);
            }
        }
    }

    fn advance(&self, item: &mut PathSample<'v>, depth: usize) -> Option<u32> {
        if depth < self.rooted.depth {
            return Some(self.rooted.frames[&item.labels][depth]);
        }
        if depth == self.rooted.depth && item.stack.is_empty() {
            return Some(self.view.frames.no_stack);
        }
        item.advance(self.view, self.direction)
    }

    /// Puts the samples into the order of their groups; those of omitted groups are last, behind
    /// `kept` others.
    fn partition(&mut self, items: &mut [PathSample<'v>], kept: usize) {
        let mut omitted = kept as u32;
        for place in &mut self.places {
            let next = self.groups[*place as usize].at.as_mut().unwrap_or(&mut omitted);
            *place = *next;
            *next += 1;
        }
        // Each exchange brings one sample to its place.
        for from in 0..items.len() {
            while self.places[from] as usize != from {
                let to = self.places[from] as usize;
                items.swap(from, to);
                self.places.swap(from, to);
            }
        }
    }
}
