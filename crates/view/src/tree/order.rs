//! The nodes of a tree in the order in which they are shown.

use super::{Children, Node, Tree};
use crate::cancel::{Cancel, STEPS};
use crate::{Frames, Siblings};
use profile::Profile;

/// The children of each node in an order, and the position of each node when parents are followed
/// by their children.
pub struct Ordered {
    children: Children,
    nodes: Vec<u32>,
    positions: Vec<u32>,
}

impl Ordered {
    /// Orders the nodes of `tree`, whose frames are `frames` of `profile`.
    pub fn new(tree: &Tree, frames: &Frames, profile: &Profile, siblings: Siblings) -> Ordered {
        Ordered::cancelable(tree, frames, profile, siblings, &Cancel::default())
    }

    /// The same. After `cancel`, siblings are in no order.
    pub fn cancelable(
        tree: &Tree,
        frames: &Frames,
        profile: &Profile,
        siblings: Siblings,
        cancel: &Cancel,
    ) -> Ordered {
        let mut children = tree.children();
        let by_name = |a: &Node, b: &Node| {
            frames.get(a.frame).cmp_name(frames.get(b.frame), profile).then(a.frame.cmp(&b.frame))
        };
        for node in 0..tree.nodes.len() as u32 {
            if (node as usize).is_multiple_of(STEPS) && cancel.is_canceled() {
                break;
            }
            children.get_mut(node).sort_unstable_by(|&first, &second| {
                let a = tree.node(first);
                let b = tree.node(second);
                let order = match siblings {
                    Siblings::LeftHeavy => {
                        let by_size = b.total.unsigned_abs().cmp(&a.total.unsigned_abs());
                        by_size.then_with(|| by_name(a, b))
                    }
                    Siblings::Name => by_name(a, b),
                };
                // Two trees of one function may be joined: siblings of one name.
                order.then(first.cmp(&second))
            });
        }
        let mut nodes = Vec::with_capacity(tree.nodes.len());
        let mut positions = vec![0; tree.nodes.len()];
        let mut pending = vec![Tree::ROOT];
        while let Some(node) = pending.pop() {
            positions[node as usize] = nodes.len() as u32;
            nodes.push(node);
            pending.extend(children.get(node).iter().rev());
        }
        Ordered { children, nodes, positions }
    }

    /// Children of a node, the first first.
    pub fn children(&self, node: u32) -> &[u32] {
        self.children.get(node)
    }

    /// All nodes, each followed by its subtree; the first is the root.
    pub fn nodes(&self) -> &[u32] {
        &self.nodes
    }

    /// Index of a node in [`Ordered::nodes`].
    pub fn position(&self, node: u32) -> usize {
        self.positions[node as usize] as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::answers;
    use crate::{Cut, Direction, Granularity, View};

    fn names(siblings: Siblings) -> Vec<String> {
        let profile = answers();
        let mut view = View::new(&profile, 0, Granularity::FUNCTION);
        let tree = Tree::new(&mut view, Direction::Callers, &[], Cut::Nothing);
        let ordered = Ordered::new(&tree, &view.frames, &profile, siblings);
        for (position, &node) in ordered.nodes().iter().enumerate() {
            assert_eq!(ordered.position(node), position);
        }
        let name = |&n: &u32| view.frames.get(tree.node(n).frame).display(&profile).into_owned();
        ordered.nodes()[1..].iter().map(name).collect()
    }

    #[test]
    fn each_node_is_followed_by_its_subtree() {
        let by_size = ["bar", "foo1", "main", "foo2", "main", "main", "foo1", "main"];
        let by_size = by_size.into_iter().chain(["foo2", "main"]).collect::<Vec<_>>();
        assert_eq!(names(Siblings::LeftHeavy), by_size);
        let by_name = ["bar", "foo1", "main", "foo2", "main", "foo1", "main", "foo2", "main"];
        let by_name = by_name.into_iter().chain(["main"]).collect::<Vec<_>>();
        assert_eq!(names(Siblings::Name), by_name);
    }
}
