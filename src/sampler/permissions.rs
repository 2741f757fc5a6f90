//! What this user is not permitted to record on this machine: [`refusal`] finds the reason of an
//! error.

mod facts;
mod obstacle;
pub mod probe;

pub use facts::{Facts, package_manager, process_of_another, tracefs_is_mounted, tracepoint_id};
pub use messages::Wanted;
pub use obstacle::{deep_stacks, hidden_mappings, is_denied, open_files, refusal, refused};
pub(super) use obstacle::{no_deep_stacks, obstacle, ring_memory};
use probe::TriedEvent;

/// True if this user may sample whole CPUs.
pub fn may_sample_cpus() -> bool {
    TriedEvent::whole_machine().open().is_ok()
}

#[cfg(test)]
mod tests;
