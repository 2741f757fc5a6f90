//! perf's recordings, `perf.data`: files and streams (`perf record -o -`), compressed or not.
//!
//! Events are sample types as in the text of `perf script`; stacks, labels, mappings and diagnostics
//! are those that prof's own recorder would have written. User stacks that were copied
//! (`--call-graph dwarf`) are unwound here. The names of functions are not in the file: see
//! [`Format::unnamed_frames`].

mod attribute;
mod counts;
mod events;
mod fields;
mod header;
mod kernel;
mod machine;
mod queue;
mod reader;
mod record;
mod records;
mod sources;
mod spaces;
mod stacks;
#[cfg(test)]
mod tests;

use std::fs::File;
use std::io::{BufReader, Cursor, Read, Seek, SeekFrom};
use std::time::UNIX_EPOCH;

use profile::Profile;

use crate::error::ReadError;
use crate::source::GZIP;
use crate::unpacked::Unpacked;
use crate::{Format, ReadOptions, UnnamedFrames};
use header::{Container, Header, MAGIC, invalid};
use reader::Reader;
use records::Records;
use sources::Sources;

/// The format of [`mod@self`].
#[derive(Debug)]
pub struct PerfData;

/// Its title.
const TITLE: &str = "perf.data";

/// Bytes of which [`Container::parse`] makes out how a recording is written.
const START: usize = 16;

/// Bytes that are read at once.
const PIECE: usize = 256 << 10;

impl Format for PerfData {
    fn name(&self) -> &'static str {
        "perf-data"
    }

    fn title(&self) -> &'static str {
        TITLE
    }

    fn extensions(&self) -> &'static [&'static str] {
        &["perf.data"]
    }

    fn detect(&self, head: &[u8]) -> bool {
        head.starts_with(MAGIC) || head.starts_with(b"2ELIFREP")
    }

    fn read(&self, input: &mut dyn Read) -> Result<Profile, ReadError> {
        self.read_with(input, &ReadOptions::default())
    }

    fn read_with(&self, input: &mut dyn Read, options: &ReadOptions) -> Result<Profile, ReadError> {
        let mut input = Unpacked::new(input)?;
        let (start, container) = container(&mut input)?;
        match container {
            Container::Stream => read_stream(BufReader::with_capacity(PIECE, input), options),
            Container::File => {
                // Its header refers to what comes later.
                let mut file = tempfile::tempfile()?;
                std::io::copy(&mut Cursor::new(start).chain(input), &mut file)?;
                read_sections(&mut file, Vec::new(), None, options)
            }
        }
    }

    fn read_file(&self, file: &mut File, options: &ReadOptions) -> Result<Profile, ReadError> {
        let mut start = Vec::new();
        file.by_ref().take(START as u64).read_to_end(&mut start)?;
        file.rewind()?;
        if start.len() < START || start.starts_with(&GZIP) {
            return self.read_with(file, options);
        }
        read_files(file, Vec::new(), options)
    }

    fn unnamed_frames(&self) -> UnnamedFrames {
        UnnamedFrames::Addresses
    }
}

fn cut(error: std::io::Error) -> ReadError {
    match error.kind() {
        std::io::ErrorKind::UnexpectedEof => invalid("it is cut off inside its header"),
        _ => error.into(),
    }
}

/// The first bytes of a recording, and how it is written.
fn container(input: &mut impl Read) -> Result<([u8; START], Container), ReadError> {
    let mut start = [0; START];
    input.read_exact(&mut start).map_err(cut)?;
    Ok((start, Container::parse(&start)?))
}

fn read_stream(input: impl Read, options: &ReadOptions) -> Result<Profile, ReadError> {
    Reader::new(Header::default(), None, options).read(Sources::new([Records::new(input)]))
}

/// When a file was written, in nanoseconds since the Unix epoch.
fn written(file: &File) -> Option<i64> {
    let written = file.metadata().ok().and_then(|m| m.modified().ok());
    let since = written.and_then(|time| time.duration_since(UNIX_EPOCH).ok());
    since.and_then(|time| i64::try_from(time.as_nanos()).ok())
}

/// Reads a recording in files: the one with the header, and those with the records of each thread of
/// perf (`perf record --threads`), if there are such.
pub(crate) fn read_files(
    file: &mut File,
    threads: Vec<File>,
    options: &ReadOptions,
) -> Result<Profile, ReadError> {
    match container(file)?.1 {
        Container::Stream if threads.is_empty() => {
            read_stream(BufReader::with_capacity(PIECE, file), options)
        }
        Container::Stream => Err(invalid("its file `data` is a stream")),
        Container::File => {
            let written = written(file);
            read_sections(file, threads, written, options)
        }
    }
}

/// Reads a file, which was `written` at this time (nanoseconds since the Unix epoch), and the
/// records in others.
fn read_sections(
    file: &mut File,
    others: Vec<File>,
    written: Option<i64>,
    options: &ReadOptions,
) -> Result<Profile, ReadError> {
    let (header, data) = Header::read(file)?;
    if header.events.is_empty() {
        return Err(invalid("it has no events"));
    }
    file.seek(SeekFrom::Start(data.offset))?;
    let records = BufReader::with_capacity(PIECE, file).take(data.size);
    let others = others.into_iter().map(|file| Records::new(BufReader::with_capacity(PIECE, file)));
    let all = std::iter::once(Records::new(records)).chain(others);
    Reader::new(header, written, options).read(Sources::new(all))
}
