//! prof: a profiler for Linux.
//!
//! The way of a sample, room by room. What more than one room needs is a crate below `crates/`.
//!
//! 1. [`sampler`] opens kernel events on a target and yields events in time order.
//! 2. [`sys::processes`] keeps what those events say about processes: threads, mappings, build ids.
//! 3. [`unwind`] turns registers and stack bytes (or a frame-pointer chain) into addresses.
//! 4. [`mod@profile`] aggregates weighted stacks; [`recorder`] drives 1 to 4 for the length of a
//!    recording.
//! 5. [`symbols`] gives addresses their functions, files and lines.
//! 6. [`formats`] reads and writes files; [`report`] shows them.
//! 7. [`cli`] is one file a subcommand, and knows all of the above.

pub mod cli;
pub mod recorder;
pub mod report;
pub mod sampler;
