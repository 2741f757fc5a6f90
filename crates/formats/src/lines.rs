//! Lines of a text.

use std::cell::Cell;
use std::io::{BufRead, BufReader, Read};

use crate::assembly::MOST_FRAMES;
use crate::error::ReadError;
use crate::unpacked::Unpacked;

/// Longest line in bytes: 65,536 frames of 256 bytes.
const LONGEST: usize = 16 << 20;

/// Bytes of lines after which the memory of what is made of them is to be checked.
const CHECKED: usize = 64 << 10;

/// A text, line by line.
pub(crate) struct Lines<'r> {
    input: BufReader<Unpacked<'r>>,
    /// Description of the format, for errors.
    format: &'static str,
    number: u64,
    /// Bytes read since the last check of memory.
    unchecked: Cell<usize>,
    bytes: Vec<u8>,
    line: String,
    /// The last line that was read ends with the file, not with a line end.
    is_open: bool,
}

/// How it is known that a text was cut off.
const NO_LINE_END: &str = "its last line has no line end";

impl<'r> Lines<'r> {
    /// The lines of a stream, which may be compressed with gzip.
    ///
    /// # Errors
    ///
    /// The stream is empty or cannot be read.
    pub(crate) fn new(
        format: &'static str,
        input: &'r mut dyn Read,
    ) -> Result<Lines<'r>, ReadError> {
        Ok(Lines::rest(format, BufReader::with_capacity(64 << 10, Unpacked::new(input)?)))
    }

    /// The lines of the rest of a stream, whose beginning is no text.
    pub(crate) fn rest(format: &'static str, input: BufReader<Unpacked<'r>>) -> Lines<'r> {
        Lines {
            input,
            format,
            number: 0,
            unchecked: Cell::new(0),
            bytes: Vec::new(),
            line: String::new(),
            is_open: false,
        }
    }

    /// The next line without its end; invalid UTF-8 is replaced. `None`: there is no other.
    ///
    /// # Errors
    ///
    /// The stream cannot be read, or a line is too long.
    pub(crate) fn next(&mut self) -> Result<Option<&str>, ReadError> {
        self.bytes.clear();
        let read = (&mut self.input).take(LONGEST as u64).read_until(b'\n', &mut self.bytes)?;
        if read == 0 {
            return Ok(None);
        }
        self.number += 1;
        *self.unchecked.get_mut() += read;
        if read == LONGEST {
            return Err(self.error(format!("it is longer than {} MiB", LONGEST >> 20)));
        }
        let mut line = self.bytes.as_slice();
        self.is_open = !line.ends_with(b"\n");
        line = line.strip_suffix(b"\n").unwrap_or(line);
        line = line.strip_suffix(b"\r").unwrap_or(line);
        if self.number == 1 {
            line = line.strip_prefix("\u{feff}".as_bytes()).unwrap_or(line);
        }
        self.line.clear();
        match str::from_utf8(line) {
            Ok(text) => self.line.push_str(text),
            Err(_) => self.line.push_str(&String::from_utf8_lossy(line)),
        }
        Ok(Some(&self.line))
    }

    /// An error in the current line.
    #[cold]
    pub(crate) fn error(&self, what: impl Into<String>) -> ReadError {
        ReadError::in_line(self.format, self.number, what)
    }

    /// Fails with an error in the current line. A last line without a line end, after others, was cut
    /// off: it is left out.
    ///
    /// # Errors
    ///
    /// That one, of any other line.
    pub(crate) fn unless_cut(&self, what: String) -> Result<(), ReadError> {
        if self.is_open && self.number > 1 { Ok(()) } else { Err(self.error(what)) }
    }

    /// How it is known that the text was cut off, if it is; after the last line.
    pub(crate) fn cut(&self) -> Option<&'static str> {
        self.is_open.then_some(NO_LINE_END)
    }

    /// True once for each 64 KiB of lines or a longer line, when the memory of what is made of them is
    /// to be checked.
    pub(crate) fn is_check_due(&self) -> bool {
        let is_due = self.unchecked.get() >= CHECKED;
        if is_due {
            self.unchecked.set(0);
        }
        is_due
    }

    /// Memory that a profile made of the lines so far may take, in bytes.
    pub(crate) fn memory_allowed(&self) -> u64 {
        self.input.get_ref().memory_allowed()
    }
}

/// The frames of a stack, root first and separated by semicolons. Of the outermost frames of one that
/// is too long, only one is left, for which [`Assembly::add`](crate::assembly::Assembly::add) cuts it.
pub(crate) fn frames(stack: &str) -> impl Iterator<Item = &str> {
    let cut = stack.rmatch_indices(';').nth(MOST_FRAMES);
    stack[cut.map_or(0, |(at, _)| at + 1)..].split(';')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &[u8]) -> Vec<String> {
        let mut input = text;
        let mut lines = Lines::new("text", &mut input).unwrap();
        let mut all = Vec::new();
        while let Some(line) = lines.next().unwrap() {
            all.push(line.to_owned());
        }
        all
    }

    #[test]
    fn ends_of_lines_are_removed() {
        assert_eq!(lines(b"\xef\xbb\xbfa\r\n\nb\n"), ["a", "", "b"]);
        assert_eq!(lines(b"a\nb\xff"), ["a", "b\u{fffd}"]);
    }

    #[test]
    fn memory_is_checked_by_bytes_of_lines() {
        let text = format!("{0}\n{1}\n{1}\nx\n", "x".repeat(CHECKED), "x".repeat(CHECKED / 2));
        let mut input = text.as_bytes();
        let mut lines = Lines::new("text", &mut input).unwrap();
        let mut due = Vec::new();
        while lines.next().unwrap().is_some() {
            due.push(lines.is_check_due());
        }
        assert_eq!(due, [true, false, true, false]);
    }

    #[test]
    fn frames_of_a_line_are_bounded() {
        assert_eq!(frames("a;b;;c").collect::<Vec<_>>(), ["a", "b", "", "c"]);
        let stack = format!("{}leaf", "a;".repeat(3 * MOST_FRAMES));
        assert_eq!(frames(&stack).count(), MOST_FRAMES + 1);
        assert_eq!(frames(&stack).last(), Some("leaf"));
    }

    #[test]
    fn long_lines_are_refused() {
        let mut input: &[u8] = &vec![b'x'; LONGEST + 1];
        let mut lines = Lines::new("text", &mut input).unwrap();
        let error = lines.next().unwrap_err().to_string();
        assert_eq!(error, "not valid text: line 1: it is longer than 16 MiB");
    }
}
