//! Leaf frames that are no answer to the question of a sample type: each wait ends in the scheduler,
//! each allocation in an allocator. They are folded into their callers.

mod folding;
mod functions;

pub use folding::fold_leaf_frames;

/// The functions in which the stacks of a sample type end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LeafFrames {
    /// The kernel's scheduler: of the time that threads wait.
    Scheduler,
    /// Locks, and what they are made of: of the waits for them.
    Locks,
    /// The kernel's block layer and the drivers below it: of requests.
    BlockLayer,
    /// Memory allocators: of allocated memory.
    Allocator,
}

impl LeafFrames {
    /// Those of a sample type of this kind, if it has any.
    pub fn for_kind(kind: &str) -> Option<LeafFrames> {
        Some(match kind {
            "wall" => LeafFrames::Scheduler,
            "contentions" | "delay" | "holder_contentions" | "holder_delay" => LeafFrames::Locks,
            "io_requests" | "io_delay" | "io_bytes" => LeafFrames::BlockLayer,
            _ => {
                let what = kind.strip_suffix("_objects").or_else(|| kind.strip_suffix("_space"))?;
                let is_memory = ["alloc", "inuse", "peak", "temporary", "leaked"].contains(&what);
                return is_memory.then_some(LeafFrames::Allocator);
            }
        })
    }

    /// Their name in a sentence, and in an answer.
    pub fn name(self) -> &'static str {
        match self {
            LeafFrames::Scheduler => "scheduler",
            LeafFrames::Locks => "locks",
            LeafFrames::BlockLayer => "block layer",
            LeafFrames::Allocator => "allocator",
        }
    }
}
