//! jitdump files: a JIT compiler's records about its code, each with a time
//! (`tools/perf/Documentation/jitdump-specification.txt` of the kernel). The program maps its
//! `jit-PID.dump` as executable, which is how profilers find it.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use super::perf_map::NameAt;

/// `JiTD`, in the byte order of the program.
const MAGIC: u32 = 0x4a69_5444;

/// Time stamps are those of the CPU's counter (`JITDUMP_FLAGS_ARCH_TIMESTAMP`).
const ARCH_TIMESTAMP: u64 = 1;

/// Bytes of a record's prefix: kind, size, time.
const PREFIX: u64 = 16;

/// Fixed bytes of a `JIT_CODE_LOAD` or `JIT_CODE_MOVE` after the prefix.
const LOAD: usize = 40;
const MOVE: usize = 48;

/// Longest name that is read.
const MAX_NAME: u64 = 16 << 10;

/// The header of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DumpHeader {
    /// Offset of the first record.
    pub size: u64,
    /// ELF's number of the CPU architecture.
    pub machine: u32,
    /// Process, in its own namespace.
    pub pid: u32,
    /// Time stamps are of `CLOCK_MONOTONIC`, as prof's.
    pub monotonic: bool,
}

/// A record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JitRecord {
    /// Code exists from this time on.
    Load {
        /// First address.
        address: u64,
        /// Size in bytes.
        size: u64,
        /// Its name.
        name: NameAt,
        /// Offset of its bytes, if the record has them all.
        code: Option<u64>,
    },
    /// Code has moved.
    Move {
        /// Old address.
        from: u64,
        /// New address.
        to: u64,
        /// Size in bytes.
        size: u64,
    },
    /// Source lines of the code that the next record loads.
    Lines {
        /// First address of that code.
        address: u64,
        /// The entries.
        lines: LinesAt,
    },
    /// No record follows.
    Close,
    /// Not used by prof.
    Other,
}

/// Position of a table of source lines in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinesAt {
    /// Offset of the first entry.
    pub start: u64,
    /// Limit of the entries' offsets.
    pub end: u64,
    /// Number of entries.
    pub count: u64,
}

impl LinesAt {
    /// Bytes of the table that are read: no function has more than 1 MiB.
    pub fn size(&self) -> u64 {
        self.end.saturating_sub(self.start).min(1 << 20)
    }
}

/// Progress of reading a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DumpProgress {
    /// Offset after the last complete record.
    pub offset: u64,
    /// An incomplete record begins there.
    pub unfinished: bool,
    /// No valid record begins there.
    pub damaged: bool,
}

/// Reads a file's header.
///
/// # Errors
///
/// It cannot be read, or is not a jitdump of this machine's byte order (`InvalidData`).
pub fn header(file: &File) -> io::Result<DumpHeader> {
    let mut bytes = [0; 40];
    file.read_exact_at(&mut bytes, 0)?;
    let size = u64::from(u32_at(&bytes, 8));
    if u32_at(&bytes, 0) != MAGIC || u32_at(&bytes, 4) == 0 || size < bytes.len() as u64 {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "not a jitdump file"));
    }
    let monotonic = u64_at(&bytes, 32) & ARCH_TIMESTAMP == 0;
    Ok(DumpHeader { size, machine: u32_at(&bytes, 12), pid: u32_at(&bytes, 20), monotonic })
}

/// Reads the records in `range`, which begins at a record, until `take` returns false; `take`
/// receives their times in nanoseconds.
///
/// # Errors
///
/// Those of the operating system.
pub fn read(
    file: &File,
    range: Range<u64>,
    take: &mut dyn FnMut(u64, JitRecord) -> bool,
) -> io::Result<DumpProgress> {
    let mut progress = DumpProgress { offset: range.start, ..DumpProgress::default() };
    let mut buffer = vec![0; 4096];
    while progress.offset < range.end {
        let at = progress.offset;
        let got = read_some(file, &mut buffer, at)?;
        let bytes = &buffer[..got];
        if (bytes.len() as u64) < PREFIX || range.end - at < PREFIX {
            progress.unfinished = true;
            return Ok(progress);
        }
        let size = u64::from(u32_at(bytes, 4));
        if size < PREFIX {
            progress.damaged = true;
            return Ok(progress);
        }
        if size > range.end - at {
            progress.unfinished = true;
            return Ok(progress);
        }
        let bytes = &bytes[..bytes.len().min(size as usize)];
        let Some(record) = record(file, bytes, at, size)? else {
            progress.damaged = true;
            return Ok(progress);
        };
        progress.offset += size;
        if !take(u64_at(bytes, 8), record) || record == JitRecord::Close {
            return Ok(progress);
        }
    }
    Ok(progress)
}

/// The record of `size` bytes at offset `at`, which begins with `bytes`. `None` if it is
/// inconsistent.
fn record(file: &File, bytes: &[u8], at: u64, size: u64) -> io::Result<Option<JitRecord>> {
    let body = &bytes[PREFIX as usize..];
    Ok(match u32_at(bytes, 0) {
        0 if body.len() >= LOAD => {
            let name = PREFIX + LOAD as u64;
            let name = name_in(file, &body[LOAD..], at + name, size - name)?;
            let end = at + size;
            let address = u64_at(body, 16);
            let size = u64_at(body, 24);
            name.map(|name| {
                let code = name.offset + u64::from(name.length) + 1;
                let code = end.checked_sub(code).filter(|&left| size <= left).map(|_| code);
                JitRecord::Load { address, size, name, code }
            })
        }
        1 if body.len() >= MOVE => Some(JitRecord::Move {
            from: u64_at(body, 16),
            to: u64_at(body, 24),
            size: u64_at(body, 32),
        }),
        2 if body.len() >= 16 => {
            let start = at + PREFIX + 16;
            let end = at + size;
            let lines = LinesAt { start, end, count: u64_at(body, 8) };
            Some(JitRecord::Lines { address: u64_at(body, 0), lines })
        }
        0..=2 => None,
        3 => Some(JitRecord::Close),
        _ => Some(JitRecord::Other),
    })
}

/// The NUL-terminated name at `offset`, which begins with `start`; at most `size` bytes belong to
/// the record.
fn name_in(file: &File, start: &[u8], offset: u64, size: u64) -> io::Result<Option<NameAt>> {
    let end = |bytes: &[u8]| bytes.iter().position(|&b| b == 0);
    if let Some(end) = end(start) {
        return Ok(Some(NameAt::new(offset, &start[..end])));
    }
    let mut more = vec![0; size.min(MAX_NAME) as usize];
    let got = read_some(file, &mut more, offset)?;
    Ok(end(&more[..got]).map(|end| NameAt::new(offset, &more[..end])))
}

fn read_some(file: &File, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
    let mut got = 0;
    while got < buffer.len() {
        match file.read_at(&mut buffer[got..], offset + got as u64) {
            Ok(0) => break,
            Ok(n) => got += n,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(got)
}

/// An entry of a table of source lines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LineEntry {
    /// First address of the line.
    pub address: u64,
    /// Line in the file.
    pub line: u32,
    /// File. Entries that repeat a name share it: a table of 1 MiB may repeat a long one 30,000
    /// times.
    pub file: Arc<[u8]>,
}

/// Reads a table of source lines.
///
/// # Errors
///
/// Those of the operating system. A table that is truncated or inconsistent ends early.
pub fn line_entries(file: &File, lines: LinesAt) -> io::Result<Vec<LineEntry>> {
    let mut bytes = vec![0; lines.size() as usize];
    let got = read_some(file, &mut bytes, lines.start)?;
    let mut rest = &bytes[..got];
    let mut entries: Vec<LineEntry> = Vec::new();
    while rest.len() > 16 && (entries.len() as u64) < lines.count {
        let address = u64_at(rest, 0);
        let line = u32_at(rest, 8);
        let Some(end) = rest[16..].iter().position(|&b| b == 0) else { break };
        let name = &rest[16..16 + end];
        // 0xff repeats the name of the previous entry.
        let file = match (name, entries.last()) {
            ([0xff], Some(last)) => last.file.clone(),
            _ => name.into(),
        };
        entries.push(LineEntry { address, line, file });
        rest = &rest[16 + end + 1..];
    }
    Ok(entries)
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_ne_bytes(*bytes[at..].first_chunk().expect("the length was checked"))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_ne_bytes(*bytes[at..].first_chunk().expect("the length was checked"))
}

/// Writes jitdump files, for tests.
#[cfg(any(test, feature = "testing"))]
pub mod writer {
    use super::*;

    /// A header.
    pub fn header(flags: u64) -> Vec<u8> {
        let mut out = Vec::new();
        for word in [MAGIC, 1, 40, 62, 0, 77] {
            out.extend(word.to_ne_bytes());
        }
        out.extend(5u64.to_ne_bytes());
        out.extend(flags.to_ne_bytes());
        out
    }

    /// A record.
    pub fn record(kind: u32, time: u64, body: &[u8]) -> Vec<u8> {
        let mut out = kind.to_ne_bytes().to_vec();
        out.extend((PREFIX as u32 + body.len() as u32).to_ne_bytes());
        out.extend(time.to_ne_bytes());
        out.extend(body);
        out
    }

    fn words(words: &[u64]) -> Vec<u8> {
        words.iter().flat_map(|w| w.to_ne_bytes()).collect()
    }

    /// `JIT_CODE_LOAD`.
    pub fn load(time: u64, address: u64, size: u64, name: &str) -> Vec<u8> {
        let mut body = words(&[77, address, address, size, 1]);
        body.extend(name.as_bytes());
        body.push(0);
        body.extend(vec![0x90; size as usize]);
        record(0, time, &body)
    }

    /// `JIT_CODE_MOVE`.
    pub fn moved(time: u64, from: u64, to: u64, size: u64) -> Vec<u8> {
        record(1, time, &words(&[77, to, from, to, size, 1]))
    }

    /// `JIT_CODE_DEBUG_INFO`.
    pub fn lines(time: u64, address: u64, entries: &[(u64, u32, &[u8])]) -> Vec<u8> {
        let mut body = words(&[address, entries.len() as u64]);
        for (address, line, file) in entries {
            body.extend(address.to_ne_bytes());
            body.extend(line.to_ne_bytes());
            body.extend(0u32.to_ne_bytes());
            body.extend(*file);
            body.push(0);
        }
        // V8 pads with arbitrary bytes.
        body.extend([0x77; 19]);
        record(2, time, &body)
    }

    /// A file of these bytes.
    pub fn file(parts: &[Vec<u8>]) -> File {
        let file = tempfile::tempfile().unwrap();
        file.write_all_at(&parts.concat(), 0).unwrap();
        file
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn all(file: &File) -> (Vec<(u64, JitRecord)>, DumpProgress) {
        let end = file.metadata().unwrap().len();
        let mut found = Vec::new();
        let progress = read(file, 40..end, &mut |time, record| {
            found.push((time, record));
            true
        });
        (found, progress.unwrap())
    }

    fn example() -> Vec<Vec<u8>> {
        let entries: &[(u64, u32, &[u8])] = &[(0x1000, 3, b"/a.js"), (0x1008, 4, b"\xff")];
        vec![
            writer::header(0),
            writer::lines(5, 0x1000, entries),
            writer::load(6, 0x1000, 0x10, "foo"),
            writer::record(4, 6, &[0; 24]),
            writer::load(7, 0x2000, 0x10, &"long".repeat(2000)),
            writer::moved(8, 0x1000, 0x3000, 0x10),
            writer::record(3, 9, &[]),
            writer::load(10, 0x5000, 0x10, "after the end"),
        ]
    }

    #[test]
    fn records_are_read() {
        let file = writer::file(&example());
        let read = header(&file).unwrap();
        assert_eq!(read, DumpHeader { size: 40, machine: 62, pid: 77, monotonic: true });
        assert!(!header(&writer::file(&[writer::header(1)])).unwrap().monotonic);
        let (found, progress) = all(&file);
        assert_eq!(found.iter().map(|r| r.0).collect::<Vec<_>>(), [5, 6, 6, 7, 8, 9]);
        let JitRecord::Lines { address: 0x1000, lines } = found[0].1 else { panic!("{found:?}") };
        let line = |address, line| LineEntry { address, line, file: b"/a.js"[..].into() };
        assert_eq!(line_entries(&file, lines).unwrap(), [line(0x1000, 3), line(0x1008, 4)]);
        let JitRecord::Load { address: 0x1000, size: 0x10, name, code } = found[1].1 else {
            panic!()
        };
        assert_eq!(code, Some(name.offset + 4));
        assert_eq!(name, NameAt::new(name.offset, b"foo"));
        let JitRecord::Load { name, .. } = found[3].1 else { panic!() };
        assert_eq!(name.length, 8000);
        assert_eq!(found[4].1, JitRecord::Move { from: 0x1000, to: 0x3000, size: 0x10 });
        assert!(!progress.unfinished && !progress.damaged);
    }

    #[test]
    fn entries_that_repeat_a_name_share_it() {
        let name = vec![b'a'; 1 << 19];
        let mut entries: Vec<(u64, u32, &[u8])> = vec![(0, 1, &name)];
        entries.extend((1..20_000).map(|i| (i, 1, &b"\xff"[..])));
        let file = writer::file(&[writer::header(0), writer::lines(5, 0, &entries)]);
        let (found, _) = all(&file);
        let JitRecord::Lines { lines, .. } = found[0].1 else { panic!("{found:?}") };
        let read = line_entries(&file, lines).unwrap();
        assert_eq!(read.len(), entries.len());
        assert!(read.iter().all(|entry| Arc::ptr_eq(&entry.file, &read[0].file)));
    }

    #[test]
    fn truncated_or_damaged_files_end_early() {
        let whole = example().concat();
        for cut in [41, 55, 56, 80, 130, 230] {
            let file = writer::file(&[whole[..cut].to_vec()]);
            let (_, progress) = all(&file);
            assert!(progress.unfinished && progress.offset <= cut as u64, "{cut}: {progress:?}");
        }
        assert!(header(&writer::file(&[b"no jitdump".repeat(9)])).is_err());
        assert!(header(&writer::file(&[b"JiTD".to_vec()])).is_err());
        let no_size = [writer::header(0), vec![0; 64]];
        assert!(all(&writer::file(&no_size)).1.damaged);
        let short_load = [writer::header(0), writer::record(0, 1, &[0; 30])];
        assert!(all(&writer::file(&short_load)).1.damaged);
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]
        #[test]
        fn damaged_files_are_read_without_panic(
            at in proptest::collection::vec((40usize..400, any::<u8>()), 1..20), cut in 40usize..9000,
        ) {
            let mut bytes = example().concat();
            for (at, to) in at { bytes[at] = to; }
            bytes.truncate(cut);
            let file = writer::file(&[bytes]);
            let (found, _) = all(&file);
            for (_, record) in found {
                if let JitRecord::Lines { lines, .. } = record {
                    let _ = line_entries(&file, lines).unwrap();
                }
            }
        }
    }
}
