//! Words to the user.

use std::fmt;
use std::io::{self, Write};

use super::{Clean, line};

/// Standard error, a line at a time. That it cannot be written is no reason to stop: prof's data
/// goes elsewhere.
#[derive(Clone, Copy, Debug, Default)]
pub struct Stderr;

impl Stderr {
    /// Prints a line.
    pub fn line(text: &str) {
        let mut whole = line(text).into_owned();
        whole.push('\n');
        // In one call, so that others' lines do not come between.
        let _ = io::stderr().lock().write_all(whole.as_bytes());
    }

    /// Prints several lines of prof's own.
    pub fn lines(text: &str) {
        text.lines().for_each(Stderr::line);
    }

    /// Goes to the beginning of a line, where the terminal has echoed a `^C`.
    pub fn start_line() {
        let _ = io::stderr().lock().write_all(b"\n");
    }
}

impl Write for Stderr {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        let _ = Clean::new(io::stderr().lock()).write_all(buf);
        Ok(buf.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }

    /// `writeln!` prints one line, whatever is in the names that it prints.
    fn write_fmt(&mut self, text: fmt::Arguments<'_>) -> io::Result<()> {
        let text = text.to_string();
        Stderr::line(text.strip_suffix('\n').unwrap_or(&text));
        Ok(())
    }
}
