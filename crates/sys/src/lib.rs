//! The machine below prof: the kernel's records and `/proc`, processes with their threads, mappings
//! and binaries, the files of JIT compilers, system calls that the standard library lacks, and all
//! text output to a terminal.
//!
//! Its input is foreign and may be hostile: files are opened through [`foreign`] only, sizes are
//! bounded, and text is cleaned by [`printed`]. It never opens a perf event, names a function or
//! depends on a profile, and uses no other crate of prof's.

mod address;
pub mod arch;
pub mod binaries;
pub mod born;
mod catch_panic;
pub mod container;
pub mod cpu_allowance;
pub mod elf;
mod error;
pub mod foreign;
pub mod go_table;
pub mod image;
mod image_limits;
pub mod jit;
mod loader;
pub mod maps;
pub mod mmap;
pub mod os;
pub mod own_memory;
pub mod printed;
pub mod process_names;
pub mod processes;
pub mod procfs;
pub mod record;
pub mod suggest;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
mod thread_id;
pub mod usdt;
pub mod users;

pub use address::{FileAddress, FileOffset, LoadBias, ProcessAddress};
pub use catch_panic::{catch_panic, panics_are_caught};
pub use error::{Error, ErrorKind};
pub use thread_id::ThreadId;
