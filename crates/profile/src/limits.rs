//! Size limits of a profile while it is recorded.

/// Size limits of a [`super::Builder`]. Data beyond them is folded into existing data, and counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Nodes of the calling-context tree (14 bytes each with their index).
    pub nodes: usize,
    /// Distinct stacks with labels (31 bytes each with two sample types).
    pub rows: usize,
    /// Distinct addresses (40 bytes each).
    pub locations: usize,
    /// Distinct sets of labels (about 160 bytes each).
    pub label_sets: usize,
    /// Nodes above which the data moves to a file, if there is one.
    pub part_nodes: usize,
    /// Rows above which the data moves to a file, if there is one.
    pub part_rows: usize,
    /// Most rows in the file: they return into memory at the end.
    pub spilled_rows: usize,
    /// Number of sets below which each thread has its own.
    pub thread_sets: usize,
}

impl Default for Limits {
    /// About 45 MiB in all, so that prof stays below 64 MiB in addition to its ring buffers.
    /// Indices double when seven eighths of a power of two are full: these limits are just below
    /// that.
    fn default() -> Self {
        Limits {
            nodes: 7 << 17,
            rows: 400_000,
            locations: 7 << 15,
            label_sets: 7 << 13,
            part_nodes: 7 << 13,
            part_rows: 7 << 12,
            spilled_rows: 2_000_000,
            thread_sets: 7 << 9,
        }
    }
}

/// Granularity of the labels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Detail {
    /// Each thread.
    Thread,
    /// Each process, and its threads by their names.
    Process,
    /// Programs by their names, which repeat themselves.
    Names,
}
