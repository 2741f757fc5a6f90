//! The part of heap profiling inside the target: the library that samples a program's allocations
//! (`preload/`, compiled by `build.rs` and embedded), the memory that it shares with prof
//! ([`AllocationRing`]), injection into a running program ([`inject`]), and the search for
//! unreachable allocations when it exits ([`leaks`]).
//!
//! It does not trust data from the target, changes no code of the target, opens no perf events
//! itself (see [`inject::StopEvents`]), does not depend on a profile, and prints nothing.

// The unit tests of the preloaded library's own files.
#![cfg_attr(test, allow(unsafe_code))]

mod arch;
mod exits;
pub mod inject;
#[path = "../preload/layout.rs"]
pub mod layout;
pub mod leaks;
mod library;
mod program;
#[cfg(test)]
#[allow(dead_code, reason = "only the library maps the shared memory")]
#[path = "../preload/queue.rs"]
mod queue;
#[cfg(test)]
#[path = "../preload/random.rs"]
mod random;
mod ring;
#[path = "../preload/table.rs"]
pub mod table;

pub use exits::{ExitRequest, Exits};
pub use library::{BYTES, Library, remove_leftovers};
pub use program::{privileged, why_not_preloaded};
pub use ring::{Allocation, AllocationRecord, AllocationRing, HeapStats, Shared, Writer};

/// Number of allocations of `size` bytes that one represents, sampled with this interval in bytes.
pub fn weight(size: u64, interval: u64) -> f64 {
    match interval {
        0 | 1 => 1.0,
        _ => -1.0 / (-(size.max(1) as f64) / interval as f64).exp_m1(),
    }
}
