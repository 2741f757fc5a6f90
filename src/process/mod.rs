//! What events say about processes: threads and their names, mappings, containers.

pub mod binaries;
pub mod container;
pub mod elf;
pub mod foreign;
pub mod image;
pub mod jit;
pub mod mapped;
pub mod maps;
pub mod markers;
pub mod procfs;
mod room;
mod table;

pub use table::{KINDS, Process, ProcessTable, Thread};
