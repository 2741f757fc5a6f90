//! Profile formats older than `profile.proto`, and those of allocators: of gperftools, tcmalloc,
//! jemalloc, Go (`debug=1`) and Java. They are read only.
//!
//! Frames are addresses in mappings, of which the file has the addresses and paths, so that names
//! can be found later; only Java and Go write names. Values, stacks, mappings and labels are those
//! that pprof reads from the same file.

mod address_samples;
mod contention;
mod counts;
mod cpu;
mod go_comments;
mod heap;
mod java;
mod java_names;
mod jemalloc;
mod mapping_text;
mod mappings;
mod scan;
mod threads;
mod uninteresting;
mod unsampled;

pub use contention::Contention;
pub use counts::GoCounts;
pub use cpu::Cpu;
pub use heap::Heap;
pub use java::Java;
pub use jemalloc::Jemalloc;
pub use threads::Threads;

/// Whether a line is empty or a comment.
fn is_comment(line: &str) -> bool {
    let line = line.trim();
    line.is_empty() || line.starts_with('#')
}

/// Whether the lines after this one are mappings.
fn begins_mappings(line: &str) -> bool {
    ["--- Memory map: ---", "MAPPED_LIBRARIES:"].iter().any(|begin| line.contains(begin))
}

#[cfg(test)]
mod tests;
