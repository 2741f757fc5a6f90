//! The settings of profile types, as the command line gives them.

use std::time::Duration;

/// What is recorded of which profile types.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// The names of the types, as [`super::Registered::name`] has them.
    pub names: Vec<String>,
    /// Of wall time: not the state running.
    pub off_cpu_only: bool,
    /// Of wall time: shorter waits have no stack.
    pub min_block: Duration,
    /// Of locks: also who released them.
    pub holders: bool,
    /// Of threads: the number of snapshots.
    pub snapshots: u32,
    /// Of allocations.
    pub heap: HeapSettings,
}

impl Settings {
    /// Whether the type of this name is asked for.
    pub fn has(&self, name: &str) -> bool {
        self.names.iter().any(|known| known == name)
    }
}

/// What is recorded of allocations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HeapSettings {
    /// Mean distance of samples in bytes; 1: each allocation.
    pub interval: u64,
    /// Also the memory in use at its peak.
    pub peak: bool,
    /// Also what was freed before its thread allocated anything else.
    pub temporary: bool,
    /// Also what was never freed and cannot be reached when its process exits.
    pub leaks: bool,
    /// Anonymous mappings count as allocations.
    pub mappings: bool,
    /// The library may be put into a running process.
    pub inject: bool,
}
