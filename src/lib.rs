//! prof: a profiler for Linux.
//!
//! The pipeline, room by room:
//!
//! 1. [`sampler`] opens kernel events on a target and yields events in time order.
//! 2. [`process`] keeps what those events say about processes: threads, mappings, build ids.
//! 3. [`unwind`] turns registers and stack bytes (or a frame-pointer chain) into addresses.
//! 4. [`profile`] aggregates weighted stacks; it is pprof's model and knows nobody.
//!    [`recorder`] drives 1 to 4 for the length of a recording.
//! 5. [`symbolize`] gives addresses their functions, files and lines.
//! 6. [`mod@format`] reads and writes files; [`report`] shows them.
//!    [`printed`] is the way of all text to a terminal or a document.
//! 7. [`cli`] is one file a subcommand, and knows all of the above.

mod caught;
pub mod cli;
pub mod format;
pub mod inject;
pub mod leaks;
mod near;
pub mod os;
pub mod printed;
pub mod process;
pub mod recorder;
pub mod report;
pub mod sampler;
pub mod symbolize;
pub mod unwind;
