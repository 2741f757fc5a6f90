//! Profile files.

use std::fmt;
use std::fs::File;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use profile::Profile;
use sys::{foreign, os};

use super::{FORMATS, Opened, ReadError, ReadOptions, format_of_file, perf_data, read_as};

/// Error of reading a file; its `Display` is one line with the file's name, the cause and, if there
/// is one, the remedy.
#[derive(Debug)]
pub enum FileError {
    /// It cannot be opened.
    Open(PathBuf, io::Error),
    /// It is a directory.
    Directory(PathBuf),
    /// It is a recording in a directory, without a file of this name.
    Part(PathBuf, String),
    /// It is a recording in a directory of too many files.
    Parts(PathBuf),
    /// Its contents cannot be read, or are not a profile. Without a path: standard input.
    Read(Option<PathBuf>, ReadError),
}

impl fmt::Display for FileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FileError::Open(path, error) => {
                write!(f, "cannot read {}: ", path.display())?;
                match error.kind() {
                    ErrorKind::NotFound => {
                        f.write_str("no such file; record one with `prof record`, or name another")
                    }
                    ErrorKind::PermissionDenied => {
                        f.write_str("permission denied; run as its owner, or obtain read access")
                    }
                    _ => f.write_str(&os::describe(error)),
                }
            }
            FileError::Directory(path) => {
                let path = path.display();
                write!(f, "cannot read {path}: it is a directory; name a profile")
            }
            FileError::Part(path, name) => {
                let path = path.display();
                write!(
                    f,
                    "cannot read {path}: {name} is missing, or no file; copy the whole directory"
                )
            }
            FileError::Parts(path) => {
                let path = path.display();
                write!(f, "cannot read {path}: it has more than {MOST_FILES} files data.N")
            }
            FileError::Read(None, error) => write!(f, "standard input: {error}"),
            FileError::Read(Some(path), error) if error.is_malformed() => {
                write!(f, "{}: {error}", path.display())
            }
            FileError::Read(Some(path), error) => {
                write!(f, "cannot read {}: {error}", path.display())
            }
        }
    }
}

impl std::error::Error for FileError {}

/// Reads a profile of any format; `-` is standard input.
///
/// # Errors
///
/// If the file cannot be opened or read, or is not a profile.
pub fn read_file(path: &Path) -> Result<Profile, FileError> {
    open_file(path, &ReadOptions::default()).map(|opened| opened.profile)
}

/// The same with options, and with the format that the file has.
///
/// # Errors
///
/// As [`read_file`].
pub fn open_file(path: &Path, options: &ReadOptions) -> Result<Opened, FileError> {
    if path == Path::new("-") {
        let opened = read_as(FORMATS, &mut io::stdin().lock(), options);
        return opened.map_err(|e| FileError::Read(None, e));
    }
    let named = || path.to_owned();
    // A FIFO is waited for, as by any program that reads one.
    let mut file = File::open(path).map_err(|e| FileError::Open(named(), e))?;
    let kind = file.metadata().map(|m| m.file_type()).ok();
    if kind.is_some_and(|kind| kind.is_dir()) {
        return open_directory(path, options);
    }
    if kind.is_some_and(|kind| kind.is_file()) {
        return open_regular(file, path, options);
    }
    read_as(FORMATS, &mut file, options).map_err(|e| FileError::Read(Some(named()), e))
}

fn open_regular(mut file: File, path: &Path, options: &ReadOptions) -> Result<Opened, FileError> {
    let opened = format_of_file(&mut file, path).and_then(|format| {
        let profile = format.read_file(&mut file, options)?;
        Ok(Opened { profile, format })
    });
    opened.map_err(|e| FileError::Read(Some(path.to_owned()), e))
}

/// Most files of a recording in a directory.
const MOST_FILES: usize = 512;

/// The number of files `data.0`, `data.1` and so on, by the last one.
fn thread_files(path: &Path) -> usize {
    let entries = std::fs::read_dir(path).into_iter().flatten().flatten();
    let numbers = entries.filter_map(|entry| {
        let name = entry.file_name();
        name.to_str()?.strip_prefix("data.")?.parse::<usize>().ok()
    });
    numbers.max().map_or(0, |last| last.saturating_add(1))
}

/// Reads a recording of perf in a directory: `data`, `data.0`, `data.1` and so on.
fn open_directory(path: &Path, options: &ReadOptions) -> Result<Opened, FileError> {
    let regular = |name: &str, missing: FileError| {
        let part = path.join(name);
        foreign::open_named(&part).map_err(|e| match e.kind() {
            ErrorKind::NotFound => missing,
            _ if foreign::is_refused(&e) => missing,
            _ => FileError::Open(part, e),
        })
    };
    let mut file = regular("data", FileError::Directory(path.to_owned()))?;
    let count = thread_files(path);
    if count > MOST_FILES {
        return Err(FileError::Parts(path.to_owned()));
    }
    let threads = (0..count).map(|number| {
        let name = format!("data.{number}");
        regular(&name, FileError::Part(path.to_owned(), name.clone()))
    });
    let threads = threads.collect::<Result<Vec<File>, _>>()?;
    let profile = perf_data::read_files(&mut file, threads, options)
        .map_err(|e| FileError::Read(Some(path.to_owned()), e))?;
    Ok(Opened { profile, format: &perf_data::PerfData })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(path: &Path) -> String {
        read_file(path).unwrap_err().to_string()
    }

    #[test]
    fn a_directory_without_one_of_its_files_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["data", "data.0", "data.2"] {
            std::fs::write(dir.path().join(name), "PERFILE2").unwrap();
        }
        assert!(error(dir.path()).contains(": data.1 is missing"), "{}", error(dir.path()));
        std::fs::write(dir.path().join("data.99999999999"), "").unwrap();
        assert!(error(dir.path()).contains("more than 512 files"));
    }

    #[test]
    fn a_fifo_in_place_of_a_file_is_not_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("data"), "PERFILE2").unwrap();
        let fifo = dir.path().join("data.0");
        assert!(std::process::Command::new("mkfifo").arg(&fifo).status().unwrap().success());
        assert!(error(dir.path()).contains(": data.0 is missing, or no file"));
    }

    #[test]
    fn unreadable_files_are_named() {
        let dir = tempfile::tempdir().unwrap();
        let missing = dir.path().join("missing.pb.gz");
        assert!(
            error(&missing).starts_with(&format!("cannot read {}: no such", missing.display()))
        );
        assert!(error(dir.path()).contains("it is a directory"));
        let text = dir.path().join("text");
        std::fs::write(&text, "some text\n").unwrap();
        assert_eq!(
            error(&text),
            format!("{}: not in a format that prof reads: it looks like text", text.display())
        );
        let below = text.join("below");
        assert!(error(&below).ends_with("not a directory"), "{}", error(&below));
    }

    #[test]
    fn a_written_file_is_read() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("p.pb.gz");
        let profile = profile::Builder::new(&[("cpu", "nanoseconds")]).finish(None);
        crate::pprof::write(&profile, File::create(&path).unwrap()).unwrap();
        let read = read_file(&path).unwrap();
        assert_eq!(read.str(read.sample_types[0].kind), "cpu");
    }
}
