//! What this user is not permitted to record on this machine: [`refusal`] finds the obstacle of an
//! error, and the command that removes it. They are enums, which `explain.rs` words.

mod explain;
mod facts;
mod obstacle;
pub mod probe;

pub use facts::{Facts, debug_package, process_of_another, tracefs_is_mounted, tracepoint_id};
pub use obstacle::{
    Capabilities, Change, FileLimit, Obstacle, Reason, Refusal, Unlock, Wanted, deep_stacks,
    hidden_mappings, is_denied, refusal,
};
use probe::TriedEvent;

/// True if this user may sample whole CPUs.
pub fn may_sample_cpus() -> bool {
    TriedEvent::whole_machine().open().is_ok()
}
