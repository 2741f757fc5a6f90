//! Where a profile is written to: checked before a recording, replaced at its end.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, BufWriter, ErrorKind, IsTerminal, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::{anyhow, bail};
use tempfile::NamedTempFile;

use crate::profile::Profile;

use super::{plain, pprof};

/// A place for a profile, known to be writable.
///
/// A regular file is written beside its place and renamed, so that what was there before stays
/// whole until the new one is complete, whatever happens. Dropping an unused `Output` leaves no
/// trace.
#[derive(Debug)]
pub struct Output {
    /// The path as the user named it.
    shown: PathBuf,
    sink: Sink,
}

#[derive(Debug)]
enum Sink {
    Stdout,
    /// A device or a FIFO: what is written goes through.
    Direct(File),
    /// The temporary file, and what it is to become.
    Replace(NamedTempFile, PathBuf),
}

/// Most symbolic links that are followed, as the kernel does.
const MAX_LINKS: usize = 40;

impl Output {
    /// Finds out whether a profile can be written to `path`, and prepares to. `-` is standard
    /// output. Opening a FIFO waits for its reader, as a shell's redirection does.
    ///
    /// # Errors
    ///
    /// When `path` is a directory, its folder is missing or may not be written to, an existing
    /// file may not be written to, or standard output is a terminal.
    pub fn create(path: &Path) -> anyhow::Result<Output> {
        if path == Path::new("-") && io::stdout().is_terminal() {
            bail!("a profile is binary and not for the terminal; redirect it, or use -o FILE");
        }
        Output::create_any(path)
    }

    /// The same for what may go to a terminal.
    ///
    /// # Errors
    ///
    /// As [`Output::create`], apart from the terminal.
    pub fn create_any(path: &Path) -> anyhow::Result<Output> {
        let shown = path.to_path_buf();
        if path == Path::new("-") {
            return Ok(Output { shown, sink: Sink::Stdout });
        }
        let sink = Sink::create(path).map_err(|e| cannot_write(path, &e))?;
        Ok(Output { shown, sink })
    }

    /// It is standard output.
    pub fn is_stdout(&self) -> bool {
        matches!(self.sink, Sink::Stdout)
    }

    /// The path as it was named.
    pub fn path(&self) -> &Path {
        &self.shown
    }

    /// The temporary file, if there is one: what has to be removed if the program gives up
    /// without dropping this.
    pub fn temporary(&self) -> Option<PathBuf> {
        match &self.sink {
            Sink::Replace(file, _) => Some(file.path().to_path_buf()),
            Sink::Stdout | Sink::Direct(_) => None,
        }
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

    /// Puts what `write` writes in its place. The number of bytes written.
    ///
    /// # Errors
    ///
    /// As [`Output::write`].
    pub fn write_with(
        self,
        write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
    ) -> anyhow::Result<u64> {
        let Output { shown, sink } = self;
        sink.write(write).map_err(|e| match e.kind() {
            // A closed pipe is for the caller to judge.
            ErrorKind::BrokenPipe => anyhow::Error::new(e).context("cannot write"),
            ErrorKind::StorageFull => anyhow!(
                "cannot write {}: no space left on the device; free some, or name another with -o",
                name(&shown)
            ),
            _ => cannot_write(&shown, &e),
        })
    }
}

fn name(path: &Path) -> String {
    match path == Path::new("-") {
        true => "standard output".into(),
        false => path.display().to_string(),
    }
}

impl Sink {
    fn create(path: &Path) -> io::Result<Sink> {
        let target = follow_links(path)?;
        let existing = match fs::metadata(&target) {
            Ok(m) => Some(m),
            Err(e) if e.kind() == ErrorKind::NotFound => None,
            Err(e) => return Err(e),
        };
        let ends_in_slash = path.as_os_str().as_encoded_bytes().ends_with(b"/");
        if existing.as_ref().is_some_and(|m| m.is_dir()) || ends_in_slash {
            return Err(ErrorKind::IsADirectory.into());
        }
        let mode = match existing {
            Some(m) => {
                // Also says whether an existing file may be written to.
                let file = OpenOptions::new().write(true).open(&target)?;
                if !m.is_file() {
                    return Ok(Sink::Direct(file));
                }
                Some(m.permissions())
            }
            None => None,
        };
        let file = tempfile::Builder::new()
            .prefix(".prof-")
            .suffix(".tmp")
            .permissions(Permissions::from_mode(0o666))
            .tempfile_in(folder_of(&target))?;
        if let Some(mode) = mode {
            file.as_file().set_permissions(mode)?;
        }
        Ok(Sink::Replace(file, target))
    }

    fn write(self, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<u64> {
        match self {
            Sink::Stdout => write_to(io::stdout().lock(), write),
            Sink::Direct(file) => write_to(file, write),
            Sink::Replace(mut file, target) => {
                let bytes = write_to(file.as_file_mut(), write)?;
                file.persist(&target).map_err(|e| e.error)?;
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

/// What a path stands for when its last part is a symbolic link, be it to a missing file.
fn follow_links(path: &Path) -> io::Result<PathBuf> {
    let mut path = path.to_path_buf();
    for _ in 0..MAX_LINKS {
        match fs::read_link(&path) {
            Ok(target) => {
                let folder = path.parent().unwrap_or(Path::new(""));
                path = folder.join(target);
            }
            // Not a link (EINVAL), or not there.
            Err(_) => return Ok(path),
        }
    }
    Err(io::Error::other("too many levels of symbolic links"))
}

fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|p| *p != Path::new("")).unwrap_or(Path::new("."))
}

fn cannot_write(path: &Path, e: &io::Error) -> anyhow::Error {
    let shown = name(path);
    let target = follow_links(path).unwrap_or_else(|_| path.to_path_buf());
    let folder = folder_of(&target);
    match e.kind() {
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
            anyhow!("cannot write {shown}: {}; name a file in a folder of yours with -o", plain(e))
        }
        _ => anyhow!("cannot write {shown}: {}", plain(e)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::Builder;

    fn profile() -> Profile {
        Builder::new(&[("cpu", "nanoseconds")]).finish(None)
    }

    fn entries(dir: &Path) -> Vec<String> {
        let mut names: Vec<_> = fs::read_dir(dir)
            .unwrap()
            .map(|e| e.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    fn error(path: &Path) -> String {
        format!("{:#}", Output::create(path).unwrap_err())
    }

    #[test]
    fn the_old_file_stays_until_the_new_one_is_whole() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("p.pb.gz");
        fs::write(&path, "old").unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o640)).unwrap();
        let output = Output::create(&path).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"old");
        let bytes = output.write(&profile()).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().len(), bytes);
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o640);
        assert_eq!(entries(dir.path()), ["p.pb.gz"]);
    }

    #[test]
    fn an_unused_output_leaves_no_trace() {
        let dir = tempfile::tempdir().unwrap();
        let output = Output::create(&dir.path().join("p.pb.gz")).unwrap();
        assert_eq!(entries(dir.path()).len(), 1);
        drop(output);
        assert!(entries(dir.path()).is_empty());
    }

    #[test]
    fn a_new_file_has_the_permissions_of_any_new_file() {
        let dir = tempfile::tempdir().unwrap();
        let (ours, other) = (dir.path().join("p.pb.gz"), dir.path().join("other"));
        Output::create(&ours).unwrap().write(&profile()).unwrap();
        fs::write(&other, "").unwrap();
        let mode = |p: &Path| fs::metadata(p).unwrap().permissions().mode();
        assert_eq!(mode(&ours), mode(&other));
    }

    #[test]
    fn a_link_stays_and_its_target_is_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("folder");
        fs::create_dir(&folder).unwrap();
        for there_before in [false, true] {
            let link = dir.path().join(format!("link-{there_before}"));
            std::os::unix::fs::symlink("folder/target", &link).unwrap();
            Output::create(&link).unwrap().write(&profile()).unwrap();
            assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
            assert_eq!(entries(&folder), ["target"]);
        }
        let ring = dir.path().join("ring");
        std::os::unix::fs::symlink("ring", &ring).unwrap();
        assert!(error(&ring).contains("symbolic links"), "{}", error(&ring));
    }

    #[test]
    fn what_cannot_be_written_is_said_before() {
        let dir = tempfile::tempdir().unwrap();
        assert!(error(dir.path()).contains("it is a directory"));
        let missing = dir.path().join("missing");
        let text = error(&missing.join("p.pb.gz"));
        assert!(text.contains(&format!("there is no folder {}", missing.display())), "{text}");
        let text = error(Path::new("/proc/x.pb.gz"));
        assert!(text.contains("/proc takes no new files"), "{text}");
        let link = dir.path().join("link");
        std::os::unix::fs::symlink("gone/x.pb.gz", &link).unwrap();
        let gone = format!("there is no folder {}", dir.path().join("gone").display());
        assert!(error(&link).contains(&gone), "{}", error(&link));
        assert!(error(&dir.path().join("new/")).contains("it is a directory"));
        let file = dir.path().join("file");
        fs::write(&file, "").unwrap();
        assert!(error(&file.join("p")).ends_with("not a directory"), "{}", error(&file.join("p")));
    }

    #[test]
    fn devices_are_written_through() {
        assert!(Output::create(Path::new("/dev/null")).unwrap().write(&profile()).unwrap() > 0);
        let full = Output::create(Path::new("/dev/full")).unwrap();
        let text = format!("{:#}", full.write(&profile()).unwrap_err());
        assert!(text.contains("cannot write /dev/full: no space left"), "{text}");
    }

    #[test]
    fn a_failed_write_leaves_the_old_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("p.pb.gz");
        fs::write(&path, "old").unwrap();
        let mut output = Output::create(&path).unwrap();
        // The same temporary file, opened for reading only: every write fails.
        let Sink::Replace(temporary, _) = &mut output.sink else { panic!("a regular file") };
        *temporary.as_file_mut() = File::open(temporary.path()).unwrap();
        assert!(output.write(&profile()).is_err());
        assert_eq!(fs::read(&path).unwrap(), b"old");
        assert_eq!(entries(dir.path()), ["p.pb.gz"]);
    }
}
