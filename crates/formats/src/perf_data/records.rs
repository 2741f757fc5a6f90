//! The records of a file or a stream, one after the other, unpacked.

use std::io::{ErrorKind, Read};

use zstd::stream::raw::{Decoder, InBuffer, Operation, OutBuffer};

use super::fields::Fields;
use super::header::invalid;
use super::record::{RawRecord, kind};
use crate::error::ReadError;
use crate::unpacked::check_part_ratio;

/// Bytes of a record's header.
const HEADER: usize = 8;

/// Bytes that are unpacked at once.
const CHUNK: usize = 256 << 10;

/// The records.
pub struct Records<'r> {
    input: Box<dyn Read + 'r>,
    /// Bytes that were read.
    read: u64,
    unpacker: Option<Unpacker>,
    /// Files that are unpacked at the same time.
    files: u64,
}

/// Unpacks `PERF_RECORD_COMPRESSED`: together, they are one stream.
struct Unpacker {
    decoder: Decoder<'static>,
    chunk: Box<[u8]>,
    /// Unpacked bytes, and how many of them were taken.
    bytes: Vec<u8>,
    taken: usize,
    total: u64,
}

impl<'r> Records<'r> {
    /// The records in `input`, until its end.
    pub fn new(input: impl Read + 'r) -> Records<'r> {
        Records { input: Box::new(input), read: 0, unpacker: None, files: 1 }
    }

    /// The same of one of several files that are unpacked at the same time: of the bytes that any
    /// file may unpack to, each has a part.
    pub fn beside(mut self, files: usize) -> Records<'r> {
        self.files = files.max(1) as u64;
        self
    }

    /// Bytes that were read so far.
    pub fn bytes_read(&self) -> u64 {
        self.read
    }

    /// The next record.
    ///
    /// # Errors
    ///
    /// It is cut off, or damaged.
    pub fn next(&mut self) -> Result<Option<RawRecord>, ReadError> {
        loop {
            if let Some(record) = self.unpacker.as_mut().map(Unpacker::next).transpose()?.flatten()
            {
                return Ok(Some(record));
            }
            let Some(record) = self.read_record()? else {
                let is_cut = self.unpacker.as_ref().is_some_and(|u| u.taken < u.bytes.len());
                return if is_cut { Err(cut()) } else { Ok(None) };
            };
            match record.kind {
                kind::COMPRESSED => self.unpack(&record.body)?,
                kind::COMPRESSED2 => {
                    let mut fields = Fields::new(&record.body);
                    let packed = fields.u64().and_then(|size| fields.bytes(size));
                    self.unpack(packed.ok_or_else(cut)?)?;
                }
                // The size of what follows it.
                kind::AUXTRACE => {
                    let size = Fields::new(&record.body).u64().unwrap_or(0);
                    self.skip(size)?;
                }
                kind::TRACING_DATA => {
                    let size = Fields::new(&record.body).u32().unwrap_or(0);
                    self.skip(u64::from(size).next_multiple_of(8))?;
                }
                _ => return Ok(Some(record)),
            }
        }
    }

    fn read_record(&mut self) -> Result<Option<RawRecord>, ReadError> {
        let mut header = [0; HEADER];
        if !self.fill(&mut header)? {
            return Ok(None);
        }
        let (mut record, size) = split(header)?;
        record.body = vec![0; size];
        if size > 0 && !self.fill(&mut record.body)? {
            return Err(cut());
        }
        Ok(Some(record))
    }

    /// Reads `bytes`. Returns false at the end.
    fn fill(&mut self, bytes: &mut [u8]) -> Result<bool, ReadError> {
        let mut filled = 0;
        while filled < bytes.len() {
            match self.input.read(&mut bytes[filled..]) {
                Ok(0) if filled == 0 => return Ok(false),
                Ok(0) => return Err(cut()),
                Ok(count) => filled += count,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
        self.read += filled as u64;
        Ok(true)
    }

    fn skip(&mut self, size: u64) -> Result<(), ReadError> {
        let skipped = std::io::copy(&mut (&mut self.input).take(size), &mut std::io::sink())?;
        self.read += skipped;
        if skipped < size { Err(cut()) } else { Ok(()) }
    }

    fn unpack(&mut self, packed: &[u8]) -> Result<(), ReadError> {
        if self.unpacker.is_none() {
            self.unpacker = Some(Unpacker::new()?);
        }
        let read = self.read;
        self.unpacker.as_mut().map_or(Ok(()), |unpacker| unpacker.unpack(packed, read, self.files))
    }
}

fn cut() -> ReadError {
    invalid("it is cut off inside a record")
}

/// A record without its body, and the size of that.
fn split(header: [u8; HEADER]) -> Result<(RawRecord, usize), ReadError> {
    let mut fields = Fields::new(&header);
    let (Some(kind), Some(misc), Some(size)) = (fields.u32(), fields.u16(), fields.u16()) else {
        return Err(cut());
    };
    match usize::from(size).checked_sub(HEADER) {
        Some(size) => Ok((RawRecord { kind, misc, body: Vec::new() }, size)),
        None => Err(invalid(format!("a record has {size} bytes"))),
    }
}

impl Unpacker {
    fn new() -> Result<Unpacker, ReadError> {
        // Its own limit is a window of 128 MiB.
        let decoder = Decoder::new()?;
        let chunk = vec![0; CHUNK].into_boxed_slice();
        Ok(Unpacker { decoder, chunk, bytes: Vec::new(), taken: 0, total: 0 })
    }

    /// Unpacks a part of the stream, of which `read` bytes were read so far, as one of `files`.
    fn unpack(&mut self, packed: &[u8], read: u64, files: u64) -> Result<(), ReadError> {
        self.bytes.drain(..self.taken);
        self.taken = 0;
        let mut input = InBuffer::around(packed);
        loop {
            let mut output = OutBuffer::around(&mut *self.chunk);
            let run = self.decoder.run(&mut input, &mut output);
            run.map_err(|error| invalid(format!("its compressed part is damaged: {error}")))?;
            let unpacked = output.pos();
            self.bytes.extend_from_slice(&self.chunk[..unpacked]);
            self.total += unpacked as u64;
            check_part_ratio(self.total, read, files).map_err(invalid)?;
            if unpacked < CHUNK && input.pos() == packed.len() {
                return Ok(());
            }
        }
    }

    /// The next whole record.
    fn next(&mut self) -> Result<Option<RawRecord>, ReadError> {
        let rest = &self.bytes[self.taken..];
        let Some((header, rest)) = rest.split_first_chunk::<HEADER>() else { return Ok(None) };
        let (mut record, size) = split(*header)?;
        let Some(body) = rest.get(..size) else { return Ok(None) };
        record.body = body.to_vec();
        self.taken += HEADER + size;
        Ok(Some(record))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(kind: u32, body: &[u8]) -> Vec<u8> {
        let size = (HEADER + body.len()) as u16;
        [&kind.to_le_bytes()[..], &[0, 0], &size.to_le_bytes(), body].concat()
    }

    fn kinds(input: &[u8]) -> Result<Vec<u32>, String> {
        let mut records = Records::new(input);
        let mut kinds = Vec::new();
        while let Some(record) = records.next().map_err(|error| error.to_string())? {
            kinds.push(record.kind);
        }
        Ok(kinds)
    }

    #[test]
    fn compressed_records_are_one_stream() {
        let inner = [record(9, &[1; 40]), record(3, b"name"), record(9, &[2; 400])].concat();
        let packed = zstd::bulk::compress(&inner, 3).unwrap();
        let (first, second) = packed.split_at(packed.len() / 2);
        let padded = [&(second.len() as u64).to_le_bytes()[..], second, &[0; 3]].concat();
        let file = [
            record(68, &[]),
            record(kind::COMPRESSED, first),
            record(kind::COMPRESSED2, &padded),
            record(4, &[]),
        ]
        .concat();
        assert_eq!(kinds(&file), Ok(vec![68, 9, 3, 9, 4]));
        let error = "not valid perf.data: it is cut off inside a record";
        assert_eq!(kinds(&file[..file.len() - 1]), Err(error.to_owned()));
        let cut = [record(kind::COMPRESSED, first)].concat();
        assert!(kinds(&cut).is_ok_and(|kinds| kinds.is_empty()) || kinds(&cut).is_err());
    }

    #[test]
    fn what_unpacks_to_too_much_is_refused() {
        let packed = zstd::bulk::compress(&vec![0; 200 << 20], 3).unwrap();
        let file: Vec<u8> =
            packed.chunks(60_000).flat_map(|part| record(kind::COMPRESSED, part)).collect();
        let error = kinds(&file).unwrap_err();
        assert!(error.contains("unpacks to") || error.contains("0 bytes"), "{error}");
        let noise = record(kind::COMPRESSED, &[7; 100]);
        assert!(kinds(&noise).unwrap_err().contains("compressed part is damaged"));
    }

    #[test]
    fn data_behind_a_record_is_skipped() {
        let trace = record(kind::AUXTRACE, &[&5u64.to_le_bytes()[..], &[0; 32]].concat());
        let file = [trace.clone(), vec![9; 5], record(9, &[])].concat();
        assert_eq!(kinds(&file), Ok(vec![9]));
        assert!(kinds(&trace).is_err());
    }

    #[test]
    fn short_records_are_refused() {
        let error = "not valid perf.data: a record has 7 bytes";
        assert_eq!(kinds(&[9, 0, 0, 0, 0, 0, 7, 0]), Err(error.to_owned()));
    }
}
