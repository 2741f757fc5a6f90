//! Where a profile is written to: checked before a recording, replaced at its end.

mod place;
mod temporary;

use std::fs::File;
use std::io::{self, BufWriter, ErrorKind, IsTerminal, Write};
use std::path::{Path, PathBuf};

use anyhow::{anyhow, bail};

use profile::Profile;
use sys::os;
use sys::printed::Clean;

use formats::pprof;
use place::{Found, Place, Refused};
use temporary::Temporary;

/// A place for a profile, known to be writable.
///
/// A regular file is written without a name and put in its place when it is complete, so that what
/// was there before stays whole until then, whatever happens. Dropping an unused `Output` leaves no
/// trace.
#[derive(Debug)]
pub struct Output {
    /// The path as the user named it.
    shown: PathBuf,
    sink: Sink,
    /// What is written there is a profile.
    profile: bool,
}

#[derive(Debug)]
enum Sink {
    Stdout,
    /// A device or a FIFO: what is written goes through.
    Direct(File),
    /// The next file, and the place that it gets.
    Replace(Temporary, Place),
}

impl Output {
    /// Finds out whether a profile can be written to `path`, and prepares to. `-` is standard
    /// output. Opening a FIFO waits for its reader, as a shell's redirection does. A new file can
    /// be read by the user alone, as perf's.
    ///
    /// # Errors
    ///
    /// When `path` is a directory, its folder is missing or may not be written to, an existing
    /// file may not be written to, or standard output is a terminal.
    pub fn create(path: &Path) -> anyhow::Result<Output> {
        if path == Path::new("-") && io::stdout().is_terminal() {
            bail!("a profile is binary and not for the terminal; redirect it, or use -o FILE");
        }
        Output::open(path, true)
    }

    /// The same for what may go to a terminal. A new file has the permissions that the umask
    /// leaves, but root's can be read by root alone.
    ///
    /// # Errors
    ///
    /// As [`Output::create`], apart from the terminal.
    pub fn create_any(path: &Path) -> anyhow::Result<Output> {
        Output::open(path, false)
    }

    fn open(path: &Path, profile: bool) -> anyhow::Result<Output> {
        let mode = if profile { place::PRIVATE } else { place::USUAL };
        let shown = path.to_path_buf();
        if path == Path::new("-") {
            return Ok(Output { shown, sink: Sink::Stdout, profile });
        }
        let sink = Sink::open(path, mode).map_err(|refused| cannot_create(path, &refused))?;
        Ok(Output { shown, sink, profile })
    }

    /// It is standard output.
    pub fn is_stdout(&self) -> bool {
        matches!(self.sink, Sink::Stdout)
    }

    /// It is a file that can be read again later.
    pub fn stays(&self) -> bool {
        matches!(self.sink, Sink::Replace(..))
    }

    /// The path as it was named.
    pub fn path(&self) -> &Path {
        &self.shown
    }

    /// The temporary file, if it has a name: what has to be removed if the program gives up
    /// without dropping this.
    pub fn temporary(&self) -> Option<PathBuf> {
        match &self.sink {
            Sink::Replace(file, place) => Some(place.folder().join(file.name()?)),
            Sink::Stdout | Sink::Direct(_) => None,
        }
    }

    /// Puts the bytes of a profile in its place if it is a profile's file that stays; what is written
    /// afterwards takes their place. Whether it is.
    ///
    /// # Errors
    ///
    /// As [`Output::write`].
    pub fn keep(&mut self, bytes: &[u8]) -> anyhow::Result<bool> {
        let Sink::Replace(file, place) = &mut self.sink else { return Ok(false) };
        if !self.profile {
            return Ok(false);
        }
        let mut keep = || {
            file.file_mut().write_all(bytes)?;
            let next = place.temporary()?;
            place.put(std::mem::replace(file, next))
        };
        keep().map_err(|e| cannot_write(&self.shown, e))?;
        Ok(true)
    }

    /// Writes the profile and puts it in its place. The number of bytes written.
    ///
    /// # Errors
    ///
    /// When something cannot be written, for example because the disk is full. A file that was
    /// there before is untouched then, and the temporary file is gone.
    pub fn write(self, profile: &Profile) -> anyhow::Result<u64> {
        self.write_with(|out| pprof::write(profile, out))
    }

    /// Puts the text that `write` writes in its place. The number of bytes written.
    ///
    /// # Errors
    ///
    /// As [`Output::write`].
    pub fn write_text(
        self,
        write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
    ) -> anyhow::Result<u64> {
        self.write_with(|out| {
            let mut out = BufWriter::with_capacity(1 << 16, Clean::new(out));
            write(&mut out)?;
            out.flush()
        })
    }

    fn write_with(
        self,
        write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
    ) -> anyhow::Result<u64> {
        let Output { shown, sink, .. } = self;
        sink.write(write).map_err(|e| cannot_write(&shown, e))
    }
}

fn name(path: &Path) -> String {
    match path == Path::new("-") {
        true => "standard output".into(),
        false => path.display().to_string(),
    }
}

impl Sink {
    fn open(path: &Path, mode: u32) -> Result<Sink, Refused> {
        match Place::find(path, mode)? {
            Found::Device(file) => Ok(Sink::Direct(file)),
            Found::Place(place) => match place.temporary() {
                Ok(file) => Ok(Sink::Replace(file, place)),
                Err(error) => Err(Refused { folder: place.folder().to_owned(), error }),
            },
        }
    }

    fn write(self, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<u64> {
        match self {
            Sink::Stdout => write_to(io::stdout().lock(), write),
            Sink::Direct(file) => write_to(file, write),
            Sink::Replace(mut file, place) => {
                let bytes = write_to(file.file_mut(), write)?;
                place.put(file)?;
                Ok(bytes)
            }
        }
    }
}

/// Counts what goes through.
struct Counted<W> {
    inner: W,
    bytes: u64,
}

impl<W: Write> Write for Counted<W> {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        let n = self.inner.write(buf)?;
        self.bytes += n as u64;
        Ok(n)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

fn write_to<W: Write>(
    out: W,
    write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> io::Result<u64> {
    let mut out = BufWriter::with_capacity(1 << 16, Counted { inner: out, bytes: 0 });
    write(&mut out)?;
    out.flush()?;
    Ok(out.get_ref().bytes)
}

/// The sentence about what went wrong when it was written.
fn cannot_write(path: &Path, e: io::Error) -> anyhow::Error {
    let shown = name(path);
    match e.kind() {
        // A closed pipe is for the caller to judge.
        ErrorKind::BrokenPipe => anyhow::Error::new(e).context("cannot write"),
        ErrorKind::StorageFull => anyhow!(
            "cannot write {shown}: no space left on the device; free some, or name another with -o"
        ),
        _ => anyhow!("cannot write {shown}: {}", os::describe(&e)),
    }
}

/// The sentence about what is in the way before anything is written.
fn cannot_create(path: &Path, Refused { folder, error }: &Refused) -> anyhow::Error {
    let shown = name(path);
    match error.kind() {
        ErrorKind::IsADirectory => {
            anyhow!("cannot write {shown}: it is a directory; name a file with -o")
        }
        ErrorKind::NotFound if folder.is_dir() => anyhow!(
            "cannot write {shown}: {} takes no new files; name another folder with -o",
            folder.display()
        ),
        ErrorKind::NotFound => anyhow!(
            "cannot write {shown}: there is no folder {}; create it, or name another with -o",
            folder.display()
        ),
        ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => {
            anyhow!(
                "cannot write {shown}: {}; name a file in a folder of yours with -o",
                os::describe(error)
            )
        }
        _ => anyhow!("cannot write {shown}: {}", os::describe(error)),
    }
}

#[cfg(test)]
mod tests;
