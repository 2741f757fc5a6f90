//! The content of a stream in any format but pprof: unpacked, if it is compressed with gzip.

use std::borrow::Cow;
use std::io::{self, ErrorKind, Read};

use flate2::read::MultiGzDecoder;

use crate::HEAD;
use crate::error::ReadError;
use crate::source::{GZIP, InputSource};

/// Most bytes of a content.
const LARGEST: u64 = 4 << 30;

/// Bytes of the content for each byte of the file, beyond [`FREE`]. Repetitive texts compress
/// 100:1; a bomb 1000:1.
const RATIO: u64 = 256;

/// Bytes of the content to which [`RATIO`] does not apply.
const FREE: u64 = 64 << 20;

/// Memory for each byte of the file, beyond [`FREE_MEMORY`].
const MEMORY_RATIO: u64 = 64;

/// Memory to which [`MEMORY_RATIO`] does not apply.
const FREE_MEMORY: u64 = 512 << 20;

/// The beginning of a stream's content, of which `bytes` are the first.
pub(crate) fn head(bytes: &[u8]) -> Cow<'_, [u8]> {
    if !bytes.starts_with(&GZIP) {
        return bytes.into();
    }
    let mut content = Vec::new();
    // The end is missing: what was unpacked until then counts.
    let _ = MultiGzDecoder::new(bytes).take(HEAD as u64).read_to_end(&mut content);
    content.into()
}

/// The content of a stream.
pub(crate) struct Unpacked<'r> {
    source: InputSource<'r>,
    bytes: u64,
}

impl<'r> Unpacked<'r> {
    /// The content of the stream `input`, which is not read ahead of its use by more than a piece.
    ///
    /// # Errors
    ///
    /// The stream is empty or cannot be read.
    pub(crate) fn new(input: &'r mut dyn Read) -> Result<Unpacked<'r>, ReadError> {
        let mut magic = Vec::new();
        (&mut *input).take(GZIP.len() as u64).read_to_end(&mut magic)?;
        if magic.is_empty() {
            return Err(ReadError::empty());
        }
        Ok(Unpacked { source: InputSource::new(magic, input), bytes: 0 })
    }

    /// Memory that a profile made of what was read so far may take, in bytes.
    pub(crate) fn memory_allowed(&self) -> u64 {
        memory_allowed(self.source.file_bytes())
    }

    fn check_size(&self) -> io::Result<()> {
        if self.bytes > LARGEST {
            return Err(refused(format!("it is larger than {} MiB uncompressed", LARGEST >> 20)));
        }
        check_ratio(self.bytes, self.source.file_bytes()).map_err(refused)
    }
}

/// Memory that a profile made of `file_bytes` bytes of a file may take, in bytes.
pub(crate) fn memory_allowed(file_bytes: u64) -> u64 {
    FREE_MEMORY.saturating_add(file_bytes.saturating_mul(MEMORY_RATIO))
}

/// The sentence about a content of `bytes` bytes, if that is too much for `file_bytes` bytes of a
/// file.
pub(crate) fn check_ratio(bytes: u64, file_bytes: u64) -> Result<(), String> {
    check_part_ratio(bytes, file_bytes, 1)
}

/// The same of a file that is one of `files`, which are unpacked at the same time.
pub(crate) fn check_part_ratio(bytes: u64, file_bytes: u64, files: u64) -> Result<(), String> {
    if bytes > (FREE / files).saturating_add(file_bytes.saturating_mul(RATIO)) {
        let times = bytes / file_bytes.max(1);
        return Err(format!("it unpacks to {times} times its size, which no profile does"));
    }
    Ok(())
}

fn refused(what: String) -> io::Error {
    io::Error::new(ErrorKind::FileTooLarge, what)
}

impl Read for Unpacked<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let read = self.source.read(out).map_err(|e| match e.kind() {
            _ if !self.source.is_gzip() => e,
            ErrorKind::UnexpectedEof => io::Error::new(e.kind(), "its gzip stream is cut off"),
            ErrorKind::InvalidInput | ErrorKind::InvalidData => {
                io::Error::new(e.kind(), format!("its gzip stream is damaged: {e}"))
            }
            _ => e,
        })?;
        self.bytes += read as u64;
        self.check_size()?;
        Ok(read)
    }
}

/// A stream's content as text: the head of it that is valid UTF-8, without a byte order mark. `None`:
/// it contains control characters, so it is no text.
pub(crate) fn text(head: &[u8]) -> Option<&str> {
    let control = |b: &u8| matches!(b, 0..=8 | 14..=26 | 28..=31 | 127);
    if head.iter().any(control) {
        return None;
    }
    let valid = match str::from_utf8(head) {
        Ok(text) => text,
        Err(e) => str::from_utf8(&head[..e.valid_up_to()]).unwrap_or_default(),
    };
    Some(valid.trim_start_matches('\u{feff}'))
}

/// The whole lines of a text that may be cut off, without empty ones; all of a text of one line.
pub(crate) fn whole_lines(text: &str) -> impl Iterator<Item = &str> + Clone {
    let whole = text.rfind('\n').map_or(text, |end| &text[..end]);
    whole.lines().filter(|line| !line.trim().is_empty())
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::Compression;
    use flate2::write::GzEncoder;

    use super::*;

    fn gzip(content: &[u8]) -> Vec<u8> {
        let mut gzip = GzEncoder::new(Vec::new(), Compression::best());
        gzip.write_all(content).unwrap();
        gzip.finish().unwrap()
    }

    fn content(bytes: &[u8]) -> io::Result<Vec<u8>> {
        let mut content = Vec::new();
        Unpacked::new(&mut &*bytes).unwrap().read_to_end(&mut content).map(|_| content)
    }

    #[test]
    fn gzip_is_unpacked_and_others_are_as_they_are() {
        for text in [&b"main;work 1\n"[..], b"x"] {
            assert_eq!(content(text).unwrap(), text);
            assert_eq!(content(&gzip(text)).unwrap(), text);
            assert_eq!(*head(&gzip(text)), *text);
        }
        let long = vec![b'x'; 3 * HEAD];
        assert_eq!(head(&gzip(&long)).len(), HEAD);
        let packed = gzip(b"main;work 1\n");
        assert_eq!(*head(&packed[..packed.len() - 9]), *b"main;work 1\n");
    }

    #[test]
    fn damaged_and_exploding_streams_are_refused() {
        let packed = gzip(b"main;work 1\n");
        let cut = content(&packed[..packed.len() - 3]).unwrap_err();
        assert_eq!(cut.to_string(), "its gzip stream is cut off");
        let mut packed = GzEncoder::new(Vec::new(), Compression::best());
        io::copy(&mut io::repeat(b'x').take(120 << 20), &mut packed).unwrap();
        let packed = packed.finish().unwrap();
        let mut input = &*packed;
        let bomb = io::copy(&mut Unpacked::new(&mut input).unwrap(), &mut io::sink());
        assert!(bomb.unwrap_err().to_string().contains("times its size"));
    }
}
