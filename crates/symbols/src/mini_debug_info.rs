//! MiniDebugInfo: the symbol table of a stripped binary, as a separate ELF file in its section
//! `.gnu_debugdata`, compressed by xz (see "MiniDebugInfo" in gdb's manual).

use std::fs::File;
use std::io::{self, Read};

use liblzma::read::XzDecoder;
use liblzma::stream::Stream;

use super::headers::{Headers, read_headers};
use sys::jit::FileReader;

/// The unpacked symbols of a binary.
pub struct Unpacked {
    pub file: File,
    pub headers: Headers,
}

/// The symbols of a binary with these headers, if they are intact and belong to it.
pub fn unpack(binary: &File, headers: &Headers) -> Option<Unpacked> {
    let (offset, size) = headers.packed_symbols?;
    let packed = io::BufReader::new(FileReader { file: binary, offset }.take(size));
    let stream = Stream::new_stream_decoder(MAX_MEMORY, 0).ok()?;
    let mut symbols = XzDecoder::new_stream(packed, stream).take(MAX_UNPACKED + 1);
    let mut file = tempfile::tempfile().ok()?;
    let length = io::copy(&mut symbols, &mut file).ok()?;
    if length > MAX_UNPACKED {
        return None;
    }
    let found = read_headers(&file).ok().filter(|h| h.has_symtab)?;
    // It may have a build ID; then it must be the binary's.
    let same = found.build_id.is_empty() || found.build_id == headers.build_id;
    same.then_some(Unpacked { file, headers: found })
}

/// Limits of unpacking, in bytes: unpacked size, and memory needed.
const MAX_UNPACKED: u64 = 256 << 20;
const MAX_MEMORY: u64 = 128 << 20;
