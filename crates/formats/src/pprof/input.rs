//! The byte stream of a profile: gzip or not, read piece by piece, with limits.

use std::io::{self, Read};

use super::wire::{MAX_VARINT, Varint, decode_varint, overlong};
use crate::error::ReadError;
use crate::source::{Ahead, InputSource, PIECE};

/// Bytes of a file that identify its format.
const HEAD: usize = 512;

/// Limits of a profile's size.
#[derive(Clone, Copy, Debug)]
pub(super) struct InputLimits {
    /// Most bytes of the uncompressed stream.
    pub stream: u64,
    /// Bytes of the uncompressed stream for each byte of the file, beyond `free_stream`.
    ///
    /// Profiles compress 3:1 to 60:1, deep recursion about 100:1; a bomb 1000:1.
    pub ratio: u64,
    /// Bytes of the uncompressed stream to which `ratio` does not apply.
    pub free_stream: u64,
    /// Memory for each byte of the file, beyond `free_memory`.
    pub memory_ratio: u64,
    /// Memory to which `memory_ratio` does not apply.
    pub free_memory: u64,
}

impl InputLimits {
    pub(super) const DEFAULT: InputLimits = InputLimits {
        stream: 4 << 30,
        ratio: 256,
        free_stream: 64 << 20,
        memory_ratio: 64,
        free_memory: 512 << 20,
    };
}

/// The uncompressed stream, of which a window is in memory.
pub(super) struct Input<'r> {
    source: InputSource<'r>,
    limits: InputLimits,
    buf: Vec<u8>,
    pos: usize,
    end: usize,
    /// Offset in the stream of `buf[0]`.
    base: u64,
    eof: bool,
    /// First bytes of the stream, for identifying a file that is not a profile.
    head: [u8; HEAD],
    head_len: usize,
}

impl<'r> Input<'r> {
    /// Reads the first bytes and sets up decompression.
    pub(super) fn new(
        reader: &'r mut dyn Read,
        limits: InputLimits,
    ) -> Result<Input<'r>, ReadError> {
        let mut magic = Vec::with_capacity(8);
        (&mut *reader).take(8).read_to_end(&mut magic).map_err(ReadError::io)?;
        if magic.is_empty() {
            return Err(ReadError::empty());
        }
        if let Some(what) = other_container(&magic) {
            return Err(ReadError::other_format(what));
        }
        Ok(Input::with_source(InputSource::new(magic, reader), limits))
    }

    /// The stream of a file that another thread unpacks.
    pub(super) fn ahead(source: Ahead, limits: InputLimits) -> Input<'static> {
        Input::with_source(InputSource::Ahead(source), limits)
    }

    fn with_source(source: InputSource<'_>, limits: InputLimits) -> Input<'_> {
        Input {
            source,
            limits,
            buf: vec![0; PIECE],
            pos: 0,
            end: 0,
            base: 0,
            eof: false,
            head: [0; HEAD],
            head_len: 0,
        }
    }

    /// Offset in the stream of the next byte.
    pub(super) fn at(&self) -> u64 {
        self.base + self.pos as u64
    }

    /// Memory that decoded tables may take, given the bytes of the file read so far.
    pub(super) fn memory_allowed(&self) -> u64 {
        let file = self.source.file_bytes();
        self.limits.free_memory.saturating_add(file.saturating_mul(self.limits.memory_ratio))
    }

    /// Number of the window; it changes with each read.
    pub(super) fn window(&self) -> u64 {
        self.base
    }

    /// First bytes of the stream.
    pub(super) fn head(&self) -> &[u8] {
        &self.head[..self.head_len]
    }

    /// True if at least one byte is left.
    pub(super) fn more(&mut self) -> Result<bool, ReadError> {
        self.fill(1)
    }

    /// The next varint.
    #[inline]
    pub(super) fn varint(&mut self) -> Result<u64, ReadError> {
        if self.end - self.pos < MAX_VARINT {
            self.fill(MAX_VARINT)?;
        }
        match decode_varint(&self.buf[self.pos..self.end]) {
            Varint::Done(value, len) => {
                self.pos += len;
                Ok(value)
            }
            Varint::Short => Err(ReadError::truncated(self.base + self.end as u64, "a number")),
            Varint::TooLong => Err(overlong(self.at())),
        }
    }

    /// The next `len` bytes, and the offset of their first.
    #[inline]
    pub(super) fn take(&mut self, len: u64) -> Result<(&[u8], u64), ReadError> {
        if ((self.end - self.pos) as u64) < len {
            self.fill_message(len)?;
        }
        let at = self.at();
        let start = self.pos;
        self.pos += len as usize;
        Ok((&self.buf[start..self.pos], at))
    }

    /// Skips `len` bytes without keeping them.
    pub(super) fn skip(&mut self, mut len: u64) -> Result<(), ReadError> {
        loop {
            let n = len.min((self.end - self.pos) as u64);
            self.pos += n as usize;
            len -= n;
            if len == 0 {
                return Ok(());
            }
            if !self.fill(1)? {
                return Err(ReadError::truncated(self.at(), "a field"));
            }
        }
    }

    #[cold]
    fn fill_message(&mut self, len: u64) -> Result<(), ReadError> {
        let at = self.at();
        if len > self.memory_allowed().max(self.limits.free_memory) {
            let what = format!("a message of {len} bytes, which no profile of this size holds");
            return Err(ReadError::too_large(at, what));
        }
        if !self.fill(len as usize)? {
            let end = self.base + self.end as u64;
            return Err(ReadError::truncated(end, "a message"));
        }
        Ok(())
    }

    /// Reads until `need` bytes are in the window; false if the stream ends before.
    ///
    /// The window grows with the bytes that arrive, not with `need`.
    fn fill(&mut self, need: usize) -> Result<bool, ReadError> {
        if self.end - self.pos >= need {
            return Ok(true);
        }
        self.buf.copy_within(self.pos..self.end, 0);
        self.base += self.pos as u64;
        self.end -= self.pos;
        self.pos = 0;
        while self.end < need && !self.eof {
            if self.end == self.buf.len() {
                let len = need.min(self.buf.len() * 2);
                self.buf.resize(len, 0);
            }
            self.read_some()?;
        }
        Ok(self.end >= need)
    }

    fn read_some(&mut self) -> Result<(), ReadError> {
        let total = self.base + self.end as u64;
        let n = match self.source.read(&mut self.buf[self.end..]) {
            Ok(n) => n,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => return Ok(()),
            Err(e) => return Err(self.source_error(total, e)),
        };
        if self.base == 0 && self.head_len < self.head.len() {
            let first = (self.end + n).min(self.head.len());
            self.head[..first].copy_from_slice(&self.buf[..first]);
            self.head_len = first;
        }
        self.eof = n == 0;
        self.end += n;
        self.check_size(total + n as u64)
    }

    fn source_error(&self, at: u64, e: io::Error) -> ReadError {
        match e.kind() {
            _ if !self.source.is_gzip() => ReadError::io(e),
            io::ErrorKind::UnexpectedEof => ReadError::truncated(at, "its gzip stream"),
            io::ErrorKind::InvalidInput | io::ErrorKind::InvalidData => ReadError::gzip(at, e),
            _ => ReadError::io(e),
        }
    }

    fn check_size(&self, total: u64) -> Result<(), ReadError> {
        let InputLimits { stream, ratio, free_stream, .. } = self.limits;
        if total > stream {
            let what = format!("it is larger than {} MiB uncompressed", stream >> 20);
            return Err(ReadError::too_large(total, what));
        }
        let file = self.source.file_bytes();
        if total > free_stream.saturating_add(file.saturating_mul(ratio)) {
            let times = total / file.max(1);
            let what = format!("it unpacks to {times} times its size, which no profile does");
            return Err(ReadError::too_large(total, what));
        }
        Ok(())
    }
}

/// Description of a file that begins like another known format.
fn other_container(magic: &[u8]) -> Option<&'static str> {
    Some(match magic {
        [0x28, 0xb5, 0x2f, 0xfd, ..] => "it is compressed with zstd; unpack it with zstd -d",
        [0xfd, b'7', b'z', b'X', b'Z', ..] => "it is compressed with xz; unpack it with xz -d",
        [b'B', b'Z', b'h', ..] => "it is compressed with bzip2; unpack it with bzip2 -d",
        [0x7f, b'E', b'L', b'F', ..] => "it is an ELF binary, not a recording of one",
        _ => return None,
    })
}
