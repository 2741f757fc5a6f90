//! A file that is complete before it has its name.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, SystemTime};

use rustix::fs::{self as unix, AtFlags, CWD, FlockOperation, Mode, OFlags};
use rustix::io::Errno;

use super::place::descriptor_path;
use sys::os;

/// Temporary names of a file before it is renamed.
const PREFIX: &str = ".prof-";
const SUFFIX: &str = ".tmp";

/// Files that a killed prof left are removed when they are older than this. Until a new one is
/// locked, its age protects it.
const STALE: Duration = Duration::from_secs(60);

/// Limit of directory entries that are searched for such files.
const MOST_ENTRIES: usize = 4096;

/// A temporary file. Without a name, where the file system has such files (`O_TMPFILE`): then
/// nothing is left of it, however prof ends. Elsewhere it has a name, and is locked as long as
/// prof runs.
#[derive(Debug)]
pub struct Temporary {
    file: File,
    named: Option<TemporaryName>,
}

/// A name that is removed when dropped.
#[derive(Debug)]
struct TemporaryName {
    directory: OwnedFd,
    name: String,
}

impl Drop for TemporaryName {
    fn drop(&mut self) {
        // It may have been renamed.
        let _ = unix::unlinkat(&self.directory, self.name.as_str(), AtFlags::empty());
    }
}

impl Temporary {
    /// A new file in this directory.
    pub fn create(directory: &OwnedFd, mode: u32) -> io::Result<Temporary> {
        let mode = Mode::from_raw_mode(mode);
        let flags = OFlags::RDWR | OFlags::CLOEXEC;
        match unix::openat(directory, ".", flags | OFlags::TMPFILE, mode) {
            Ok(file) => Ok(Temporary { file: file.into(), named: None }),
            // The file system, or the kernel, has no such files.
            Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::NOENT | Errno::INVAL) => {
                Temporary::with_name(directory, mode)
            }
            Err(e) => Err(e.into()),
        }
    }

    /// A new file that has a temporary name.
    pub fn with_name(directory: &OwnedFd, mode: Mode) -> io::Result<Temporary> {
        remove_stale(directory);
        let flags =
            OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let (file, name) = with_free_name(|name| unix::openat(directory, name, flags, mode))?;
        // Without locks, its age alone protects it.
        let _ = unix::flock(&file, FlockOperation::NonBlockingLockExclusive);
        let named = TemporaryName { directory: directory.try_clone()?, name };
        Ok(Temporary { file: file.into(), named: Some(named) })
    }

    /// The file.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// The file, to write to.
    pub fn file_mut(&mut self) -> &mut File {
        &mut self.file
    }

    /// Its name in the directory, if it has one.
    pub fn name(&self) -> Option<&str> {
        self.named.as_ref().map(|named| named.name.as_str())
    }

    /// Gives it this name; replaces an existing file.
    pub fn put(mut self, directory: &OwnedFd, name: &OsStr) -> io::Result<()> {
        let named = match self.named.take() {
            Some(named) => named,
            None => {
                let link = |to: &OsStr| {
                    let from = descriptor_path(&self.file);
                    unix::linkat(CWD, from, directory, to, AtFlags::SYMLINK_FOLLOW)
                };
                match link(name) {
                    Ok(()) => return Ok(()),
                    Err(Errno::EXIST) => {}
                    Err(e) => return Err(e.into()),
                }
                remove_stale(directory);
                // For the moment until it is renamed.
                let _ = unix::flock(&self.file, FlockOperation::NonBlockingLockExclusive);
                let ((), name) = with_free_name(|name| link(OsStr::new(name)))?;
                TemporaryName { directory: directory.try_clone()?, name }
            }
        };
        Ok(unix::renameat(&named.directory, named.name.as_str(), directory, name)?)
    }
}

/// Creates something under an unused name.
pub fn with_free_name<T>(make: impl Fn(&str) -> Result<T, Errno>) -> Result<(T, String), Errno> {
    let mut left = 100;
    loop {
        // Keys of hash tables are random.
        let random = RandomState::new().build_hasher().finish();
        let name = format!("{PREFIX}{random:016x}{SUFFIX}");
        match make(&name) {
            Err(Errno::EXIST) if left > 0 => left -= 1,
            made => return made.map(|made| (made, name)),
        }
    }
}

/// Removes the files that killed processes of prof of this user left in this directory.
pub fn remove_stale(directory: &OwnedFd) {
    let Ok(entries) = fs::read_dir(descriptor_path(directory)) else { return };
    for entry in entries.take(MOST_ENTRIES).flatten() {
        let name = entry.file_name();
        let bytes = name.as_bytes();
        if bytes.starts_with(PREFIX.as_bytes()) && bytes.ends_with(SUFFIX.as_bytes()) {
            // Another prof may have removed it.
            let _ = remove_if_stale(directory, &name);
        }
    }
}

fn remove_if_stale(directory: &OwnedFd, name: &OsStr) -> io::Result<()> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = File::from(unix::openat(directory, name, flags, Mode::empty())?);
    let about = file.metadata()?;
    let age = SystemTime::now().duration_since(about.modified()?).unwrap_or_default();
    if about.is_file() && about.uid() == os::uid() && age > STALE {
        unix::flock(file.as_fd(), FlockOperation::NonBlockingLockExclusive)?;
        unix::unlinkat(directory, name, AtFlags::empty())?;
    }
    Ok(())
}
