//! MiniDebugInfo: the symbol table of a stripped binary, as a separate ELF file in its section
//! `.gnu_debugdata`, compressed by xz (see "MiniDebugInfo" in gdb's manual).

use std::io::{self, Read};
use std::sync::Arc;

use liblzma::read::XzDecoder;
use liblzma::stream::Stream;

use super::headers::read_headers;
use super::source::{Candidate, Layer};
use sys::jit::FileReader;

/// The symbols of a binary, if they are intact and belong to it.
pub fn unpack(binary: &Candidate) -> Option<Layer> {
    let headers = &binary.headers;
    let (offset, size) = headers.packed_symbols?;
    let packed = io::BufReader::new(FileReader { file: &binary.file, offset }.take(size));
    let stream = Stream::new_stream_decoder(MAX_MEMORY, 0).ok()?;
    let mut symbols = XzDecoder::new_stream(packed, stream).take(MAX_UNPACKED + 1);
    let mut unpacked = tempfile::tempfile().ok()?;
    let length = io::copy(&mut symbols, &mut unpacked).ok()?;
    if length > MAX_UNPACKED {
        return None;
    }
    let found = read_headers(&unpacked).ok().filter(|h| h.has_symtab)?;
    // It may have a build ID; then it must be the binary's.
    let same = found.build_id.is_empty() || found.build_id == headers.build_id;
    same.then(|| Layer {
        path: binary.path.clone(),
        file: Arc::new(unpacked),
        debug_info: found.has_debug_info,
        split: found.is_split,
        shared: None,
        unpacked: true,
    })
}

/// Limits of unpacking, in bytes: unpacked size, and memory needed.
const MAX_UNPACKED: u64 = 256 << 20;
const MAX_MEMORY: u64 = 128 << 20;
