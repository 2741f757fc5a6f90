//! How much a profile may hold while it is recorded.

/// How much a [`super::Builder`] may hold. What is beyond is folded into what is there, and counted.
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
    /// Nodes or rows beyond which what there is goes to a file, where there is one.
    pub part_nodes: usize,
    /// See [`Limits::part_nodes`].
    pub part_rows: usize,
    /// Rows in the file at most: they come back into memory at the end.
    pub spilled_rows: usize,
    /// As long as there are fewer sets than this, each thread has its own.
    pub thread_sets: usize,
}

impl Default for Limits {
    /// About 45 MiB in all, so that prof stays below 64 MiB beyond its ring buffers. Indices
    /// double when seven eighths of a power of two are full: these stay just below that.
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

/// How finely labels may tell samples apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Detail {
    /// Each thread.
    Thread,
    /// Each process, and its threads by their names.
    Process,
    /// Programs by their names, which repeat themselves.
    Names,
}
