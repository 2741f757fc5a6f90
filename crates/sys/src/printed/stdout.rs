//! Results as text.

use std::io::{self, BufWriter, ErrorKind, IsTerminal, StdoutLock, Write};

use super::{Charset, Clean};

/// Standard output for text.
pub type Stdout = BufWriter<Clean<Named<StdoutLock<'static>>>>;

/// Standard output for text, buffered; to be flushed. Its errors name standard output.
pub fn stdout() -> Stdout {
    let out = Clean::with_charset(Named(io::stdout().lock()), Charset::for_stdout());
    BufWriter::with_capacity(1 << 16, out)
}

/// Prints prof's help, which contains no foreign text: styled on a terminal, else plain.
///
/// # Errors
///
/// Standard output cannot be written to.
pub fn help(styled: &str, plain: &str) -> io::Result<()> {
    let mut out = Named(io::stdout().lock());
    let styles = io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    let text = if styles { styled } else { plain };
    out.write_all(Charset::for_stdout().text(text).as_bytes())?;
    out.flush()
}

/// Turns write errors into complete messages.
#[derive(Debug)]
pub struct Named<W>(W);

impl<W> Named<W> {
    pub(super) fn new(inner: W) -> Named<W> {
        Named(inner)
    }
}

fn named(e: io::Error) -> io::Error {
    match e.kind() {
        // Ends prof without a message, or is retried.
        ErrorKind::BrokenPipe | ErrorKind::Interrupted => e,
        ErrorKind::StorageFull => io::Error::new(
            e.kind(),
            "cannot write standard output: no space left on the device; free some, or redirect it \
             elsewhere",
        ),
        ErrorKind::FileTooLarge => io::Error::new(
            e.kind(),
            "cannot write standard output: it would exceed the limit of file sizes; raise that \
             with ulimit -f",
        ),
        kind => {
            let what = crate::os::describe(&e);
            io::Error::new(kind, format!("cannot write standard output: {what}"))
        }
    }
}

/// The error of writing to a standard output that was closed when prof was started.
///
/// # Errors
///
/// It was.
pub fn check_stdout() -> io::Result<()> {
    if crate::os::stdout_was_closed() {
        return Err(io::Error::other("cannot write standard output: it is closed"));
    }
    Ok(())
}

impl<W: Write> Write for Named<W> {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        check_stdout()?;
        self.0.write(buf).map_err(named)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush().map_err(named)
    }
}
