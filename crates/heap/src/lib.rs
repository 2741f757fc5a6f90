//! Heap profiles, as far as they happen in the target: the library that samples what a program
//! allocates (`preload/`, compiled by `build.rs` and carried along), the memory that it shares with
//! prof ([`Ring`]), the way into a program that runs ([`inject`]), and the search for what no pointer
//! leads to when it exits ([`leaks`]).
//!
//! It trusts nothing that the target writes, changes no code of the target, and does not open perf
//! events itself (see [`inject::StopEvents`]), know a profile or print.

// The unit tests of the preloaded library's own files.
#![cfg_attr(test, allow(unsafe_code))]

mod exits;
pub mod inject;
#[path = "../preload/layout.rs"]
pub mod layout;
pub mod leaks;
mod library;
mod program;
#[cfg(test)]
#[allow(dead_code, reason = "the library alone looks for the shared memory")]
#[path = "../preload/queue.rs"]
mod queue;
#[cfg(test)]
#[path = "../preload/random.rs"]
mod random;
mod ring;
#[path = "../preload/table.rs"]
pub mod table;

pub use exits::{Asked, Exits};
pub use library::{BYTES, Library, remove_leftovers};
pub use program::{privileged, why_not_preloaded};
pub use ring::{Allocation, HeapStats, Record, Ring, Shared, Writer};

/// How many allocations of `size` bytes one stands for that was sampled with this interval, in bytes.
pub fn weight(size: u64, interval: u64) -> f64 {
    match interval {
        0 | 1 => 1.0,
        _ => -1.0 / (-(size.max(1) as f64) / interval as f64).exp_m1(),
    }
}
