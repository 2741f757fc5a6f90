//! Leaf frames that are no answer to the question of a sample type: each wait ends in the scheduler,
//! each allocation in an allocator. They are folded into their callers.

mod allocators;
mod arch;
mod folding;
mod functions;

use super::lock_functions::LockRole;
use profile::{Profile, label};

pub use folding::fold_leaf_frames;

/// The functions in which the stacks of a sample type end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LeafFrames {
    /// The kernel's scheduler: of the time that threads wait.
    Scheduler,
    /// Locks, and what they are made of: of the waits for them, or of their releases.
    Locks(LockRole),
    /// The kernel's block layer and the drivers below it: of requests.
    BlockLayer,
    /// Memory allocators, and containers of standard libraries: of allocated memory.
    Allocator,
}

impl LeafFrames {
    /// Those of a sample type of a profile, if it has any. Locks are those of profiles that say which
    /// they are: Go's profiles of contention end in the functions that they are about.
    pub fn for_type(profile: &Profile, type_index: usize) -> Option<LeafFrames> {
        let kind = profile.str(profile.sample_types.get(type_index)?.kind);
        let locks = |role| {
            let is_lock = |&key: &_| profile.str(key) == label::LOCK;
            profile.labels.keys().iter().any(is_lock).then_some(LeafFrames::Locks(role))
        };
        match kind {
            "wall" => Some(LeafFrames::Scheduler),
            "contentions" | "delay" => locks(LockRole::Waits),
            "holder_contentions" | "holder_delay" => locks(LockRole::Releases),
            "io_requests" | "io_delay" | "io_bytes" => Some(LeafFrames::BlockLayer),
            _ => {
                let what = kind.strip_suffix("_objects").or_else(|| kind.strip_suffix("_space"))?;
                let is_memory = ["alloc", "inuse", "peak", "temporary", "leaked"].contains(&what);
                is_memory.then_some(LeafFrames::Allocator)
            }
        }
    }

    /// Their name in an answer.
    pub fn name(self) -> &'static str {
        match self {
            LeafFrames::Scheduler => "scheduler",
            LeafFrames::Locks(_) => "locks",
            LeafFrames::BlockLayer => "block layer",
            LeafFrames::Allocator => "allocator",
        }
    }
}
