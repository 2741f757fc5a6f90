//! What a COMMAND allocates: a library that is preloaded into it samples that and writes records
//! into memory that it shares with prof. See `src/preload/` for the library.

mod exits;
#[path = "../../preload/layout.rs"]
pub mod layout;
mod library;
mod program;
#[cfg(test)]
#[path = "../../preload/random.rs"]
mod random;
mod ring;
#[path = "../../preload/table.rs"]
pub mod table;

pub use exits::{Asked, Exits};
pub use library::{BYTES, Library};
pub use program::{privileged, why_not_preloaded};
pub use ring::{Allocation, HeapStats, Record, Ring};
