//! What a COMMAND allocates: a library that is preloaded into it samples that and writes records
//! into memory that it shares with prof. See `src/preload/` for the library.

mod exits;
#[path = "../../preload/layout.rs"]
pub mod layout;
mod library;
mod program;
#[cfg(test)]
#[allow(dead_code, reason = "the library alone looks for the shared memory")]
#[path = "../../preload/queue.rs"]
mod queue;
#[cfg(test)]
#[path = "../../preload/random.rs"]
mod random;
mod ring;
#[path = "../../preload/table.rs"]
pub mod table;

pub use exits::{Asked, Exits};
pub use library::{BYTES, Library, remove_leftovers};
pub use program::{privileged, why_not_preloaded};
pub use ring::{Allocation, HeapStats, Record, Ring, Shared, Writer};
