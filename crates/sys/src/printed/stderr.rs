//! Messages to the user.

use std::fmt;
use std::io::{self, Write};

use super::{Charset, Clean, line};

/// Standard error, one line at a time. A failure to write is ignored: prof's data goes elsewhere.
#[derive(Clone, Copy, Debug, Default)]
pub struct Stderr;

impl Stderr {
    /// Prints a line.
    pub fn line(text: &str) {
        let mut whole = Charset::for_stderr().text(&line(text)).into_owned();
        whole.push('\n');
        // In one call, so that lines of other processes do not come between.
        let _ = io::stderr().lock().write_all(whole.as_bytes());
    }

    /// Prints several lines of prof's own text.
    pub fn lines(text: &str) {
        text.lines().for_each(Stderr::line);
    }

    /// Returns to the start of the line, where the terminal has echoed a `^C`.
    pub fn start_line() {
        let _ = io::stderr().lock().write_all(b"\n");
    }
}

impl Write for Stderr {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        let _ = Clean::with_charset(io::stderr().lock(), Charset::for_stderr()).write_all(buf);
        Ok(buf.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }

    /// `writeln!` prints one line, even if a printed name contains line ends.
    fn write_fmt(&mut self, text: fmt::Arguments<'_>) -> io::Result<()> {
        let text = text.to_string();
        Stderr::line(text.strip_suffix('\n').unwrap_or(&text));
        Ok(())
    }
}
