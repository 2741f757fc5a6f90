//! Perf maps: a JIT compiler's list of its code, one `START SIZE NAME` a line, in
//! `/tmp/perf-PID.map` (`tools/perf/Documentation/jit-interface.txt` of the kernel).

use std::hash::Hasher;
use std::io::{self, BufRead, Read};

use rustc_hash::FxHasher;

/// Longest line that is parsed; the rest of a longer one is skipped.
const MAX_LINE: u64 = 16 << 10;

/// Most bytes of one function: calls reach no further than 2 GiB, so no compiler's code area is
/// larger.
const MAX_SIZE: u64 = 2 << 30;

/// A function of a perf map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MapEntry {
    /// First address.
    pub start: u64,
    /// First address after it.
    pub end: u64,
    /// Position of its name.
    pub name: NameAt,
}

/// Position of a name in a file, so that the name itself need not be kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NameAt {
    /// Offset of its first byte.
    pub offset: u64,
    /// Length in bytes.
    pub length: u32,
    /// Hash of its bytes, equal for equal names.
    pub hash: u64,
}

impl NameAt {
    /// The position of the name `bytes` at `offset`.
    pub fn new(offset: u64, bytes: &[u8]) -> NameAt {
        let mut hasher = FxHasher::default();
        hasher.write(bytes);
        NameAt { offset, length: bytes.len() as u32, hash: hasher.finish() }
    }
}

/// Progress of reading a map.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MapProgress {
    /// Offset after the last complete line.
    pub offset: u64,
    /// Number of malformed lines.
    pub bad_lines: usize,
    /// An incomplete line follows `offset`.
    pub unfinished: bool,
}

/// Reads a map from `offset`, the start of a line, until `input` ends or `take` returns false.
///
/// # Errors
///
/// Only those of `input`; malformed lines are counted.
pub fn read(
    input: &mut impl BufRead,
    offset: u64,
    take: &mut dyn FnMut(MapEntry) -> bool,
) -> io::Result<MapProgress> {
    let mut progress = MapProgress { offset, ..MapProgress::default() };
    let mut line = Vec::new();
    loop {
        line.clear();
        let mut length = input.by_ref().take(MAX_LINE).read_until(b'\n', &mut line)? as u64;
        if length == 0 {
            return Ok(progress);
        }
        let mut whole = line.last() == Some(&b'\n');
        if !whole && length == MAX_LINE {
            (length, whole) = skip_line(input, length)?;
        }
        if !whole {
            progress.unfinished = true;
            return Ok(progress);
        }
        let found = parse_line(&line).map(|(start, end, name)| {
            let inside = name.as_ptr() as usize - line.as_ptr() as usize;
            MapEntry { start, end, name: NameAt::new(progress.offset + inside as u64, name) }
        });
        progress.offset += length;
        match found {
            Some(entry) if !take(entry) => return Ok(progress),
            Some(_) => {}
            None => progress.bad_lines += usize::from(!line.trim_ascii().is_empty()),
        }
    }
}

/// Skips the rest of a line of which `length` bytes were read. Returns its bytes, and true if it
/// ended.
fn skip_line(input: &mut impl BufRead, mut length: u64) -> io::Result<(u64, bool)> {
    loop {
        let buffer = input.fill_buf()?;
        let (used, end) = match buffer.iter().position(|&b| b == b'\n') {
            Some(at) => (at + 1, true),
            None => (buffer.len(), buffer.is_empty()),
        };
        let ended = end && used > 0;
        input.consume(used);
        length += used as u64;
        if end {
            return Ok((length, ended));
        }
    }
}

/// First address, first address after it, name.
fn parse_line(line: &[u8]) -> Option<(u64, u64, &[u8])> {
    let word = |text: &[u8]| text.iter().position(u8::is_ascii_whitespace);
    let line = line.trim_ascii();
    let (start, rest) = line.split_at(word(line)?);
    let rest = rest.trim_ascii_start();
    let (size, name) = rest.split_at(word(rest)?);
    let start = number(start)?;
    let size = number(size)?;
    let name = name.trim_ascii();
    // Some compilers write size 0 for stubs: those have at least one byte.
    let end = start.checked_add(size.max(1)).filter(|_| size <= MAX_SIZE)?;
    (!name.is_empty()).then_some((start, end, name))
}

fn number(digits: &[u8]) -> Option<u64> {
    let digits = digits.strip_prefix(b"0x").or(digits.strip_prefix(b"0X")).unwrap_or(digits);
    if digits.is_empty() || digits.len() > 16 {
        return None;
    }
    digits.iter().try_fold(0, |n, &digit| Some(n << 4 | u64::from((digit as char).to_digit(16)?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entries(text: &[u8]) -> (Vec<(u64, u64, String)>, MapProgress) {
        let mut found = Vec::new();
        let progress = read(&mut &text[..], 0, &mut |e| {
            let name = &text[e.name.offset as usize..][..e.name.length as usize];
            assert_eq!(NameAt::new(e.name.offset, name), e.name);
            found.push((e.start, e.end, String::from_utf8_lossy(name).into_owned()));
            true
        });
        (found, progress.unwrap())
    }

    #[test]
    fn lines_of_all_compilers_are_understood() {
        let (found, progress) = entries(
            b"1000 10 LazyCompile:~foo /a b.js:1:2\n\
              0x2000 0x20 java.lang.String::hashCode\n\
              \n3000  8\tpy::f:/x.py\r\n\
              not a line\nzzzz 10 x\n4000 10\n+5000 10 sign\n6000 0 stub\n",
        );
        let expected = [
            (0x1000, 0x1010, "LazyCompile:~foo /a b.js:1:2"),
            (0x2000, 0x2020, "java.lang.String::hashCode"),
            (0x3000, 0x3008, "py::f:/x.py"),
            (0x6000, 0x6001, "stub"),
        ];
        assert_eq!(found, expected.map(|(s, e, n)| (s, e, n.to_owned())));
        assert_eq!((progress.bad_lines, progress.unfinished), (4, false));
    }

    #[test]
    fn extreme_numbers_and_lines_are_handled() {
        let long = "x".repeat(100_000);
        let text = format!(
            "ffffffffffffffff ffffffffffffffff top\n1000 ffffffffff wide\n10 10 {long}\n\
             99999999999999999 1 big\n20 10 next\n"
        );
        let (found, progress) = entries(text.as_bytes());
        assert!(found[0].2.len() < 20_000);
        assert_eq!(found[1..], [(0x20, 0x30, "next".into())]);
        assert_eq!((progress.bad_lines, progress.offset), (3, text.len() as u64));
        assert_eq!(entries(b"1000 10 \xff\xfe\n").0.len(), 1);
    }

    #[test]
    fn a_line_that_is_being_written_waits() {
        let (found, progress) = entries(b"1000 10 foo\n2000 10 ba");
        assert_eq!(found.len(), 1);
        assert_eq!((progress.offset, progress.unfinished), (12, true));
        let endless = vec![b'x'; 1 << 20];
        let (_, progress) = entries(&endless);
        assert_eq!((progress.offset, progress.unfinished), (0, true));
    }
}
