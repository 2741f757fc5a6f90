//! MiniDebugInfo: what a stripped binary keeps of its symbol table, an ELF file of its own, packed
//! by xz into the section `.gnu_debugdata` (see "MiniDebugInfo" in gdb's manual).

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use liblzma::read::XzDecoder;
use liblzma::stream::Stream;

use super::source::{Headers, Layer, read_headers};

/// The symbols of the binary at `path`, if it has some that are intact and its own.
pub fn unpack(path: &Path, headers: &Headers) -> Option<Layer> {
    let (offset, size) = headers.packed_symbols?;
    let mut file = File::open(path).ok()?;
    file.seek(SeekFrom::Start(offset)).ok()?;
    let packed = io::BufReader::new(file.take(size));
    let stream = Stream::new_stream_decoder(MAX_MEMORY, 0).ok()?;
    let mut symbols = XzDecoder::new_stream(packed, stream).take(MAX_UNPACKED + 1);
    let mut unpacked = tempfile::tempfile().ok()?;
    let length = io::copy(&mut symbols, &mut unpacked).ok()?;
    if length > MAX_UNPACKED {
        return None;
    }
    let path = PathBuf::from(format!("/proc/self/fd/{}", unpacked.as_raw_fd()));
    let found = read_headers(&path).ok().filter(|h| h.has_symtab)?;
    // It may have a build id; then it must be the binary's.
    let same = found.build_id.is_empty() || found.build_id == headers.build_id;
    let layer = Layer { _unpacked: Some(Arc::new(unpacked)), ..Layer::of(&path, &found) };
    same.then_some(layer)
}

/// Symbols that are larger than this are not unpacked, nor those that need so much memory for it;
/// in bytes.
const MAX_UNPACKED: u64 = 256 << 20;
const MAX_MEMORY: u64 = 128 << 20;
