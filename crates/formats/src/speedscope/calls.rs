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

/// The calls that have begun and not ended, the outermost first.
#[derive(Default)]
pub(super) struct OpenCalls {
    calls: Vec<Node>,
    /// Number of open calls of each frame.
    counts: HashMap<u32, u32>,
    /// Number of calls of each frame that ended with their callers, and whose own end follows.
    ended: HashMap<u32, u32>,
    early_ends: u64,
}

impl OpenCalls {
    pub(super) fn calls(&self) -> &[Node] {
        &self.calls
    }

    /// Number of calls that ended with their callers.
    pub(super) fn early_ends(&self) -> u64 {
        self.early_ends
    }

    /// Begins a call.
    pub(super) fn begin(&mut self, tree: &mut CallTree, frame: u32) {
        self.calls.push(tree.callee(self.calls.last().copied(), frame));
        *self.counts.entry(frame).or_default() += 1;
    }

    /// Ends the innermost call of a frame, and those that it made.
    ///
    /// # Errors
    ///
    /// There is none.
    pub(super) fn end(&mut self, frame: u32) -> Result<(), ()> {
        if self.counts.get(&frame).is_none_or(|&count| count == 0) {
            let ended = self.ended.get_mut(&frame).filter(|count| **count > 0);
            return ended.map(|count| *count -= 1).ok_or(());
        }
        while let Some(call) = self.calls.pop() {
            if let Some(count) = self.counts.get_mut(&call.frame) {
                *count -= 1;
            }
            if call.frame == frame {
                break;
            }
            *self.ended.entry(call.frame).or_default() += 1;
            self.early_ends += 1;
        }
        Ok(())
    }
}
