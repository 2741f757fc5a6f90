//! prof: a profiler for Linux.
//!
//! The way of a sample, room by room. What more than one room needs is a crate below `crates/`.
//!
//! 1. [`sampler`] opens kernel events on a target and takes in samples in the order of time.
//! 2. [`sys::processes`] keeps what the kernel's records say about processes: threads, mappings,
//!    build IDs.
//! 3. [`unwind`] turns registers and stack bytes (or a frame-pointer chain) into addresses.
//! 4. [`sampler::types`] are the profile types: what the samples count. [`mod@profile`] adds up
//!    weighted stacks.
//! 5. [`symbols`] gives addresses their functions, files and lines.
//! 6. [`formats`] reads and writes files; [`report`] shows them.
//! 7. [`cli`] is one file a subcommand, and uses all of the above.

pub mod cli;
pub mod report;
pub mod sampler;
