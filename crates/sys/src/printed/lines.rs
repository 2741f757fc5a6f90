//! Lines of a report on standard output, of which some are less important.

use std::io::{self, BufWriter, IsTerminal, StdoutLock, Write};

use super::stdout::Named;
use super::{Charset, line};

/// Importance of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Emphasis {
    /// As all text.
    Normal,
    /// Grey on a terminal with colours.
    Faint,
}

/// Standard output for lines, buffered; to be flushed.
#[derive(Debug)]
pub struct Lines {
    out: BufWriter<Named<StdoutLock<'static>>>,
    charset: Charset,
    styled: bool,
}

impl Lines {
    /// Standard output, with styles on a terminal unless `NO_COLOR` is set.
    pub fn stdout() -> Lines {
        let dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb");
        let plain = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        let styled = io::stdout().is_terminal() && !plain && !dumb;
        let out = BufWriter::with_capacity(1 << 16, Named::new(io::stdout().lock()));
        Lines { out, charset: Charset::for_stdout(), styled }
    }

    /// Writes a line without hidden characters.
    ///
    /// # Errors
    ///
    /// Standard output cannot be written to.
    pub fn line(&mut self, text: &str, emphasis: Emphasis) -> io::Result<()> {
        let text = line(text);
        let text = self.charset.text(&text);
        match emphasis {
            Emphasis::Faint if self.styled => writeln!(self.out, "\x1b[2m{text}\x1b[0m"),
            _ => writeln!(self.out, "{text}"),
        }
    }

    /// Writes what is buffered.
    ///
    /// # Errors
    ///
    /// Standard output cannot be written to.
    pub fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}
