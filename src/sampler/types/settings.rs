//! The settings of profile types from the command line.

use std::time::Duration;

/// The profile types to record, and their options.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// The names of the types, see [`super::Registered::name`].
    pub names: Vec<String>,
    /// Wall time: leave out the state running.
    pub off_cpu_only: bool,
    /// Wall time: shorter waits have no stack.
    pub min_block: Duration,
    /// Locks: also attribute waits to the code that released the lock.
    pub holders: bool,
    /// Threads: the number of snapshots.
    pub snapshots: u32,
    /// Allocations.
    pub heap: HeapSettings,
}

impl Settings {
    /// True if the type of this name is selected.
    pub fn has(&self, name: &str) -> bool {
        self.names.iter().any(|known| known == name)
    }
}

/// The options for allocations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HeapSettings {
    /// Mean distance between samples in bytes; 1: each allocation.
    pub interval: u64,
    /// Also the memory in use at its peak.
    pub peak: bool,
    /// Also allocations that were freed before their thread allocated anything else.
    pub temporary: bool,
    /// Also memory that was never freed and cannot be reached when its process exits.
    pub leaks: bool,
    /// Anonymous mappings count as allocations.
    pub mappings: bool,
    /// True if the library may be injected into a running process.
    pub inject: bool,
}
