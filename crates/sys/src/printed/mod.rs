//! Text output for people: to a terminal, a log, an SVG, JSON.
//!
//! Names of functions, files and processes come from programs and files that prof does not trust.
//! All of prof's output passes through here, so none of it moves the cursor, changes the terminal
//! or hides text next to it: [`stdout()`] and [`Clean`] replace such characters in a stream,
//! [`Stderr`] in whole lines, [`line`](fn@line) in a name. Nothing else in prof opens standard
//! output or standard error for text. On a terminal without UTF-8, they are ASCII ([`Charset`]).

mod charset;
mod lines;
mod stderr;
mod stdout;
#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::io::{self, IsTerminal, Write};

pub use charset::Charset;
pub use lines::{Emphasis, Lines};
pub use stderr::Stderr;
pub use stdout::{Stdout, check_stdout, help, stdout};

/// Replacement for a character that is not shown.
const REPLACEMENT: char = char::REPLACEMENT_CHARACTER;

/// Standard error is a terminal.
pub fn stderr_is_terminal() -> bool {
    io::stderr().is_terminal()
}

/// Standard output is a terminal.
pub fn stdout_is_terminal() -> bool {
    io::stdout().is_terminal()
}

/// The number of columns of the terminal on standard output; `None` without a terminal, or if it
/// does not report its size.
pub fn stdout_width() -> Option<usize> {
    let size = rustix::termios::tcgetwinsize(io::stdout()).ok()?;
    (size.ws_col > 0).then_some(usize::from(size.ws_col))
}

/// True for characters that do more than appear: control characters (the eight-bit ones, too),
/// those that change the direction of text, have no width, or are not allowed in XML.
fn is_hidden(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}'
            | '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{3164}' | '\u{feff}' | '\u{ffa0}'
            | '\u{fff0}'..='\u{fffb}' | '\u{fffe}' | '\u{ffff}' | '\u{1d173}'..='\u{1d17a}'
            | '\u{e0000}'..='\u{e0fff}')
}

/// True for visible ASCII, line feed and tab.
fn is_plain(byte: u8) -> bool {
    (b' '..=b'~').contains(&byte) || byte == b'\n' || byte == b'\t'
}

/// Visible replacement: a space for white space, `␛` for ESC, and so on; `�` for characters without
/// one.
fn picture(c: char) -> char {
    match c {
        '\n' | '\t' => ' ',
        '\0'..='\x1f' => char::from_u32(0x2400 + c as u32).unwrap_or(REPLACEMENT),
        '\x7f' => '␡',
        _ => REPLACEMENT,
    }
}

/// Text as a part of a line: without hidden characters and line ends.
pub fn line(text: &str) -> Cow<'_, str> {
    let plain = text.bytes().all(|b| (b' '..=b'~').contains(&b));
    if !plain && text.contains(is_hidden) {
        text.chars().map(|c| if is_hidden(c) { picture(c) } else { c }).collect()
    } else {
        text.into()
    }
}

/// Replaces hidden characters and bytes that are not UTF-8 in what is written through it; line ends
/// and tabs stay.
#[derive(Debug)]
pub struct Clean<W> {
    inner: W,
    charset: Charset,
    /// The beginning of an incomplete character.
    begun: Vec<u8>,
}

impl<W: Write> Clean<W> {
    /// Writes UTF-8 to `inner`.
    pub fn new(inner: W) -> Clean<W> {
        Clean::with_charset(inner, Charset::Unicode)
    }

    /// Writes these characters to `inner`.
    pub fn with_charset(inner: W, charset: Charset) -> Clean<W> {
        Clean { inner, charset, begun: Vec::new() }
    }

    /// The wrapped writer.
    pub fn inner(&self) -> &W {
        &self.inner
    }

    fn text(&mut self, text: &str) -> io::Result<()> {
        let bytes = text.as_bytes();
        let mut written = 0;
        let mut at = 0;
        while let Some(plain) = bytes[at..].iter().position(|&b| !is_plain(b)) {
            at += plain;
            let Some(c) = text[at..].chars().next() else { break };
            let next = at + c.len_utf8();
            let shown = self.charset.character(if is_hidden(c) { picture(c) } else { c });
            if shown != c {
                self.inner.write_all(&bytes[written..at])?;
                self.inner.write_all(shown.encode_utf8(&mut [0; 4]).as_bytes())?;
                written = next;
            }
            at = next;
        }
        self.inner.write_all(&bytes[written..])
    }
}

impl<W: Write> Write for Clean<W> {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        if self.begun.is_empty() && buf.iter().all(|&b| is_plain(b)) {
            self.inner.write_all(buf)?;
            return Ok(buf.len());
        }
        let joined = [std::mem::take(&mut self.begun).as_slice(), buf].concat();
        let mut rest = joined.as_slice();
        while !rest.is_empty() {
            let (good, length) = match str::from_utf8(rest) {
                Ok(text) => (text, text.len()),
                Err(e) => {
                    let (good, bad) = rest.split_at(e.valid_up_to());
                    let good = str::from_utf8(good).unwrap_or_default();
                    let Some(wrong) = e.error_len() else {
                        self.text(good)?;
                        self.begun = bad.to_vec();
                        break;
                    };
                    self.text(good)?;
                    ("\u{fffd}", good.len() + wrong)
                }
            };
            self.text(good)?;
            rest = &rest[length..];
        }
        Ok(buf.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}
