//! The stacks of events, as a tree: each of its nodes is a call, with the id of its stack.

use std::collections::HashMap;

use profile::StackId;

/// A node of a [`CallTree`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Node {
    /// The number of the frame in the file.
    pub frame: u32,
    number: u32,
}

/// A call from a node; `None`: from none.
#[derive(PartialEq, Eq, Hash)]
struct Call {
    caller: Option<u32>,
    frame: u32,
}

/// Calls by their callers.
#[derive(Default)]
pub(super) struct CallTree {
    // The standard hasher, because the keys come from the file.
    numbers: HashMap<Call, u32>,
    /// The stack of each node, if a sample has it.
    stacks: Vec<Option<StackId>>,
}

impl CallTree {
    /// The node of a call.
    pub(super) fn callee(&mut self, caller: Option<Node>, frame: u32) -> Node {
        let call = Call { caller: caller.map(|node| node.number), frame };
        let number = *self.numbers.entry(call).or_insert_with(|| {
            self.stacks.push(None);
            self.stacks.len() as u32 - 1
        });
        Node { frame, number }
    }

    /// The id of the stack of which a node is the leaf.
    pub(super) fn stack(&self, leaf: Node) -> Option<StackId> {
        self.stacks[leaf.number as usize]
    }

    /// Sets the id of the stack of which a node is the leaf.
    pub(super) fn set_stack(&mut self, leaf: Node, stack: StackId) {
        self.stacks[leaf.number as usize] = Some(stack);
    }

    /// Its memory, estimated in bytes.
    pub(super) fn bytes(&self) -> u64 {
        48 * self.stacks.len() as u64
    }
}
