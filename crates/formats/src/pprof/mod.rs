//! pprof: `profile.proto`, with gzip around it or without.
//!
//! [`read`] accepts the output of any writer: ids are arbitrary numbers, repeated fields are packed
//! or not, fields come in any order, old profiles have no functions or mappings. All input is
//! untrusted: every index is checked, and memory is bounded by a multiple of the bytes in the file.
//! [`write()`] writes files that `go tool pprof` and `protoc` read.
//!
//! The stream is decoded piece by piece while it is unpacked (a large file by another thread) and
//! never held as a whole, straight into the flat tables of a [`Profile`](profile::Profile).

mod decode;
mod ids;
mod input;
mod others;
#[cfg(test)]
mod properties;
mod read;
mod strings;
mod times;
mod wire;
mod write;

use std::fs::File;
use std::io::Read;

use profile::Profile;

pub use read::{read, read_file};
pub use write::write;

use super::{Format, ReadError, ReadOptions, Writer};

/// Name of the format in options.
pub const NAME: &str = "pprof";

/// The format of [`mod@self`].
#[derive(Debug)]
pub struct Pprof;

impl Format for Pprof {
    fn name(&self) -> &'static str {
        NAME
    }

    fn title(&self) -> &'static str {
        "pprof files"
    }

    fn extensions(&self) -> &'static [&'static str] {
        &["pb.gz", "pb", "pprof", "prof"]
    }

    fn detect(&self, head: &[u8]) -> bool {
        wire::begins_with_fields(head)
    }

    fn read(&self, input: &mut dyn Read) -> Result<Profile, ReadError> {
        read(input)
    }

    fn read_file(&self, file: &mut File, _: &ReadOptions) -> Result<Profile, ReadError> {
        read_file(file)
    }

    fn is_text(&self) -> bool {
        false
    }

    fn writer(&self) -> Option<Writer> {
        Some(|profile, _, out| write(profile, out))
    }
}
