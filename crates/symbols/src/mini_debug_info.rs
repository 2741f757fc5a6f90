//! MiniDebugInfo: the symbol table of a stripped binary, as a separate ELF file in its section
//! `.gnu_debugdata`, compressed by xz (see "MiniDebugInfo" in gdb's manual).

use std::fs::File;
use std::io::{self, Read, Write};

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
    let mut symbols = XzDecoder::new_stream(packed, stream);
    let mut file = tempfile::tempfile().ok()?;
    let mut buffer = vec![0; 64 << 10];
    loop {
        let length = symbols.read(&mut buffer).ok()?;
        if length == 0 {
            break;
        }
        // The section may be much larger than what is packed in it.
        let believable = symbols.total_in().saturating_mul(MAX_RATIO).saturating_add(SMALL);
        if symbols.total_out() > believable.min(MAX_UNPACKED) {
            return None;
        }
        file.write_all(&buffer[..length]).ok()?;
    }
    let found = read_headers(&file).ok().filter(|h| h.has_symtab)?;
    // It may have a build ID; then it must be the binary's.
    let same = found.build_id.is_empty() || found.build_id == headers.build_id;
    same.then_some(Unpacked { file, headers: found })
}

/// Limits of unpacking, in bytes: unpacked size, and memory needed.
const MAX_UNPACKED: u64 = 256 << 20;
const MAX_MEMORY: u64 = 128 << 20;

/// Largest credible compression ratio (symbols shrink to between a third and a tenth) above the size
/// `SMALL`, in bytes. Zeros shrink to a 7,000th.
const MAX_RATIO: u64 = 64;
const SMALL: u64 = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::Lab;

    #[test]
    fn symbols_that_shrink_beyond_belief_are_not_unpacked() {
        let lab = Lab::new();
        let program =
            std::fs::read(lab.compile("prog", "int main(void) { return 0; }", &[])).unwrap();
        let unpacked = |zeros: usize| {
            let mut packed = liblzma::write::XzEncoder::new(Vec::new(), 1);
            packed.write_all(&program).unwrap();
            packed.write_all(&vec![0; zeros]).unwrap();
            let packed = packed.finish().unwrap();
            let mut file = tempfile::tempfile().unwrap();
            file.write_all(&packed).unwrap();
            // What the section has after the packed bytes does not count.
            let size = packed.len() as u64 + (64 << 20);
            file.set_len(size).unwrap();
            let mut headers =
                read_headers(&std::fs::File::open(lab.path("prog")).unwrap()).unwrap();
            headers.packed_symbols = Some((0, size));
            unpack(&file, &headers).is_some()
        };
        assert!(unpacked(0) && unpacked(100_000));
        assert!(!unpacked(32 << 20));
    }
}
