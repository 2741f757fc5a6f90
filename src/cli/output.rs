//! The file that a profile is written to: checked before a recording, replaced at its end.

mod place;
pub mod replaced;
mod temporary;

use std::fs::File;
use std::io::{self, BufWriter, ErrorKind, IsTerminal, Write};
use std::path::{Path, PathBuf};

use anyhow::{anyhow, bail};

use profile::Profile;
use sys::os;
use sys::printed::{self, Charset, Clean, Stderr};
use sys::procfs;

use formats::pprof;
use place::{Found, OutputPlace, Refused};
use temporary::Temporary;

/// A destination for a profile that was checked to be writable.
///
/// A regular file is written without a name and gets its name when it is complete, so that an
/// existing file stays intact until then, even after a crash. Dropping an unused `Output` leaves no
/// trace.
#[derive(Debug)]
pub struct Output {
    /// The path in the arguments.
    shown: PathBuf,
    sink: Sink,
    content: Content,
    previous: Previous,
}

/// What happens to a file that is replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Previous {
    /// It is gone.
    Dropped,
    /// It gets another name when it is replaced.
    Kept(WithoutSamples),
}

/// What a recording without samples is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WithoutSamples {
    /// A result: nothing of what is recorded happened.
    IsAResult,
    /// A failed attempt, which replaces no file with values.
    ReplacesNothing,
}

/// The kind of data that is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Content {
    Profile,
    Text,
}

#[derive(Debug)]
enum Sink {
    Stdout,
    /// A device or a FIFO, written to directly.
    Direct(File),
    /// The new file, and its place.
    Replace(Temporary, OutputPlace),
}

impl Output {
    /// Checks that a profile can be written to `path`, and prepares to. `-` is standard
    /// output. Opening a FIFO waits for its reader, as a shell's redirection does. A new file can
    /// be read by its owner only, as those of perf.
    ///
    /// # Errors
    ///
    /// `path` is a directory, its parent is missing or may not be written to, an existing
    /// file may not be written to, or standard output is a terminal.
    pub fn create(path: &Path) -> anyhow::Result<Output> {
        if path == Path::new("-") && io::stdout().is_terminal() {
            bail!("will not write a binary profile to the terminal; redirect it, or use -o FILE");
        }
        Output::open(path, Content::Profile)
    }

    /// The same for a recording: a file with values that is replaced stays, under a name with `.old`
    /// in it.
    ///
    /// # Errors
    ///
    /// As [`Output::create`].
    pub fn create_recording(
        path: &Path,
        without_samples: WithoutSamples,
    ) -> anyhow::Result<Output> {
        let previous = Previous::Kept(without_samples);
        Ok(Output { previous, ..Output::create(path)? })
    }

    /// Whether a recording without samples is not written: a file with values is there, which it
    /// would replace.
    pub fn refuses_empty(&self) -> bool {
        let refuses = self.previous == Previous::Kept(WithoutSamples::ReplacesNothing);
        refuses && matches!(&self.sink, Sink::Replace(_, place) if place.has_values())
    }

    /// The same for text, which may go to a terminal. A new file has the permissions that the umask
    /// leaves, but one of root can be read by root only.
    ///
    /// # Errors
    ///
    /// As [`Output::create`], apart from the terminal.
    pub fn create_any(path: &Path) -> anyhow::Result<Output> {
        Output::open(path, Content::Text)
    }

    fn open(path: &Path, content: Content) -> anyhow::Result<Output> {
        let mode = match content {
            Content::Profile => place::PRIVATE,
            Content::Text => place::USUAL,
        };
        let shown = path.to_path_buf();
        if path == Path::new("-") {
            printed::check_stdout()?;
            let sink = Sink::Stdout;
            return Ok(Output { shown, sink, content, previous: Previous::Dropped });
        }
        let sink = Sink::open(path, mode).map_err(|refused| cannot_create(path, &refused))?;
        Ok(Output { shown, sink, content, previous: Previous::Dropped })
    }

    /// Whether it is standard output.
    pub fn is_stdout(&self) -> bool {
        matches!(self.sink, Sink::Stdout)
    }

    /// Whether it is a regular file, which can be read later.
    pub fn stays(&self) -> bool {
        matches!(self.sink, Sink::Replace(..))
    }

    /// The path in the arguments.
    pub fn path(&self) -> &Path {
        &self.shown
    }

    /// The temporary file, if it has a name: to be removed if the program exits without dropping
    /// this.
    pub fn temporary(&self) -> Option<PathBuf> {
        match &self.sink {
            Sink::Replace(file, place) => Some(place.directory().join(file.name()?)),
            Sink::Stdout | Sink::Direct(_) => None,
        }
    }

    /// Writes the bytes of a profile if this is a profile in a regular file; later writes replace
    /// them. Returns whether it is.
    ///
    /// # Errors
    ///
    /// As [`Output::write`].
    pub fn keep(&mut self, bytes: &[u8]) -> anyhow::Result<bool> {
        let Sink::Replace(file, place) = &mut self.sink else { return Ok(false) };
        if self.content != Content::Profile {
            return Ok(false);
        }
        let previous = std::mem::replace(&mut self.previous, Previous::Dropped);
        let mut keep = || {
            file.file_mut().write_all(bytes)?;
            let next = place.temporary()?;
            previous.apply(place);
            place.put(std::mem::replace(file, next))
        };
        keep().map_err(|e| cannot_write(&self.shown, e))?;
        Ok(true)
    }

    /// Writes the profile and puts it in its place. Returns the number of bytes written.
    ///
    /// # Errors
    ///
    /// A write fails, for example because the disk is full. A file that was
    /// there before is untouched then, and the temporary file is gone.
    pub fn write(self, profile: &Profile) -> anyhow::Result<u64> {
        self.write_with(|out| pprof::write(profile, out))
    }

    /// Puts the text that `write` writes in its place. Returns the number of bytes written.
    ///
    /// # Errors
    ///
    /// As [`Output::write`].
    pub fn write_text(
        self,
        write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
    ) -> anyhow::Result<u64> {
        let charset = if self.is_stdout() { Charset::for_stdout() } else { Charset::Unicode };
        self.write_with(|out| {
            let mut out = BufWriter::with_capacity(1 << 16, Clean::with_charset(out, charset));
            write(&mut out)?;
            out.flush()
        })
    }

    /// Puts the bytes that `write` writes in its place. Returns the number of bytes written.
    ///
    /// # Errors
    ///
    /// As [`Output::write`].
    pub fn write_bytes(
        self,
        write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
    ) -> anyhow::Result<u64> {
        self.write_with(|out| {
            let mut out = BufWriter::with_capacity(1 << 16, out);
            write(&mut out)?;
            out.flush()
        })
    }

    fn write_with(
        self,
        write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
    ) -> anyhow::Result<u64> {
        let previous = self.previous;
        let Output { shown, sink, .. } = self;
        sink.write(write, previous).map_err(|e| cannot_write(&shown, e))
    }
}

fn name(path: &Path) -> String {
    if path == Path::new("-") { "standard output".into() } else { path.display().to_string() }
}

impl Previous {
    /// Keeps the file in `place`, or says why it is not kept.
    fn apply(self, place: &OutputPlace) {
        if self == Previous::Dropped || !place.has_values() {
            return;
        }
        if let Err(error) = place.keep_old() {
            let name = place.old_name();
            let (name, why) = (name.to_string_lossy(), os::describe(&error));
            Stderr::line(&format!("prof: the profile before is not kept as {name}: {why}"));
        }
    }
}

impl Sink {
    fn open(path: &Path, mode: u32) -> Result<Sink, Refused> {
        match OutputPlace::find(path, mode)? {
            Found::Device(file) => Ok(Sink::Direct(file)),
            Found::Place(place) => match place.temporary() {
                Ok(file) => Ok(Sink::Replace(file, place)),
                Err(error) => Err(Refused { directory: place.directory().to_owned(), error }),
            },
        }
    }

    fn write(
        self,
        write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
        previous: Previous,
    ) -> io::Result<u64> {
        match self {
            Sink::Stdout => write_to(io::stdout().lock(), write),
            Sink::Direct(file) => write_to(file, write),
            Sink::Replace(mut file, place) => {
                let bytes = write_to(file.file_mut(), write)?;
                previous.apply(&place);
                place.put(file)?;
                Ok(bytes)
            }
        }
    }
}

/// Counts the bytes written.
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

/// The message for an error while writing.
fn cannot_write(path: &Path, e: io::Error) -> anyhow::Error {
    let shown = name(path);
    match e.kind() {
        // The caller handles a closed pipe.
        ErrorKind::BrokenPipe => anyhow::Error::new(e).context("cannot write"),
        ErrorKind::StorageFull => anyhow!(
            "cannot write {shown}: no space left on the device; free some, or choose another file \
             with -o"
        ),
        ErrorKind::FileTooLarge => anyhow!(
            "cannot write {shown}: it would exceed the limit of file sizes; raise that with \
             ulimit -f"
        ),
        // A file without a name gets its name through /proc.
        ErrorKind::NotFound if !procfs::is_mounted() => {
            anyhow!("cannot write {shown}: {}", procfs::NOT_MOUNTED)
        }
        _ => anyhow!("cannot write {shown}: {}", os::describe(&e)),
    }
}

/// The message for an error before anything is written.
fn cannot_create(path: &Path, Refused { directory, error }: &Refused) -> anyhow::Error {
    let shown = name(path);
    match error.kind() {
        ErrorKind::IsADirectory => {
            anyhow!("cannot write {shown}: it is a directory; choose a file with -o")
        }
        ErrorKind::NotFound if !procfs::is_mounted() => {
            anyhow!("cannot write {shown}: {}", procfs::NOT_MOUNTED)
        }
        ErrorKind::NotFound if directory.is_dir() => anyhow!(
            "cannot write {shown}: no file can be created in {}; choose another directory with -o",
            directory.display()
        ),
        ErrorKind::NotFound => anyhow!(
            "cannot write {shown}: there is no directory {}; create it, or choose another with -o",
            directory.display()
        ),
        ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => {
            anyhow!(
                "cannot write {shown}: {}; choose a directory of your own with -o",
                os::describe(error)
            )
        }
        _ => anyhow!("cannot write {shown}: {}", os::describe(error)),
    }
}

#[cfg(test)]
mod tests;
