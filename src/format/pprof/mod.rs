//! pprof: `profile.proto`, with gzip around it or without.
//!
//! [`read`] takes what any writer made of the format: ids are arbitrary numbers, repeated fields
//! are packed or not, fields come in any order, old profiles have no functions or mappings. It
//! trusts nothing: every index is checked, and memory stays within a multiple of what was really
//! in the file. [`write()`] writes what `go tool pprof` and `protoc` read.
//!
//! The stream is decoded piece by piece while it is unpacked and never held as a whole, straight
//! into the flat tables of a [`Profile`](profile::Profile).

mod decode;
mod error;
mod ids;
mod input;
mod legacy;
#[cfg(test)]
mod properties;
mod read;
mod strings;
mod wire;
mod write;

pub use error::ReadError;
pub use read::read;
pub use write::write;
