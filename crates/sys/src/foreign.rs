//! Opens files whose names are not prof's own: from a target, a profile, a binary, or a shared
//! directory such as `/tmp`.
//!
//! Another user can replace such a file at any moment: by a FIFO that would block, a device that
//! acts on being opened, or a link to a file that only root can read. So a name is resolved once,
//! below the root directory of the process that it belongs to and never through a magic link of
//! `/proc`, into a descriptor that opens nothing (`O_PATH`). The file of that descriptor is then
//! checked, and only a regular file of an ordinary file system is opened, through the descriptor
//! and without waiting.
//!
//! All other code opens foreign files through this module; a test below checks that.

use std::ffi::CString;
use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use crate::{os, procfs};

/// Largest file that is opened, in bytes; all files that prof reads are far smaller.
const MAX_SIZE: u64 = 64 << 30;

/// A rename or a mount elsewhere can interrupt the resolution of `..`; it is then repeated.
const MAX_TRIES: usize = 16;

/// A resolved name: refers to a file that is not opened yet.
pub struct Resolved {
    fd: OwnedFd,
    /// The file's metadata.
    pub metadata: Metadata,
}

impl Resolved {
    fn new(fd: OwnedFd) -> io::Result<Resolved> {
        let file = File::from(fd);
        let metadata = file.metadata()?;
        Ok(Resolved { fd: file.into(), metadata })
    }

    /// Opens it for reading.
    ///
    /// # Errors
    ///
    /// It is not a regular file, is on a virtual file system of the kernel, or is too large.
    pub fn open(&self) -> io::Result<File> {
        let refused = |why: &str| Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        if !self.metadata.is_file() {
            return refused("not a regular file");
        }
        if self.metadata.len() > MAX_SIZE {
            return refused("larger than 64 GiB");
        }
        if is_made_up(os::file_system(self.fd.as_fd())?) {
            return refused("on a virtual file system of the kernel");
        }
        let flags = libc::O_NONBLOCK | libc::O_NOCTTY;
        let path = format!("/proc/self/fd/{}", self.fd.as_raw_fd());
        OpenOptions::new().read(true).custom_flags(flags).open(path)
    }
}

/// True if a file exists but is not opened, rather than missing.
pub fn is_refused(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::InvalidInput
}

/// True for file systems on which reading has effects, blocks, or never ends (`statfs(2)` lists the
/// numbers).
fn is_made_up(file_system: i64) -> bool {
    const AUTOFS: i64 = 0x0187;
    const BINFMT: i64 = 0x4249_4e4d;
    const BPF: i64 = 0xcafe_4a11;
    const CGROUP: i64 = 0x0027_e0eb;
    const CGROUP2: i64 = 0x6367_7270;
    const CONFIG: i64 = 0x6265_6570;
    const DEBUG: i64 = 0x6462_6720;
    const EFIVAR: i64 = 0xde5e_81e4;
    const PROC: i64 = 0x9fa0;
    const PSTORE: i64 = 0x6165_676c;
    const SECURITY: i64 = 0x7363_6673;
    const SYS: i64 = 0x6265_6572;
    const TRACE: i64 = 0x7472_6163;
    let all = [
        AUTOFS, BINFMT, BPF, CGROUP, CGROUP2, CONFIG, DEBUG, EFIVAR, PROC, PSTORE, SECURITY, SYS,
        TRACE,
    ];
    all.contains(&file_system)
}

/// Treatment of a symbolic link as the last part of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Links {
    /// It is followed, within the root directory.
    Follow,
    /// It is refused: others can write to the directory.
    Refuse,
}

/// A directory below which names are resolved, including absolute names and those with `..`.
#[derive(Debug)]
pub struct Root {
    directory: OwnedFd,
    /// Keeps the mounts of another mount namespace in place when its last process ends.
    _namespace: Option<File>,
}

impl Root {
    /// The root directory of a process.
    ///
    /// # Errors
    ///
    /// The process has ended, or this user may not inspect it.
    pub fn for_process(pid: i32) -> io::Result<Root> {
        let root = |id: i32| Root::at(Path::new(&format!("/proc/{id}/root")));
        root(pid).or_else(|e| root(procfs::live_thread(pid).ok_or(e)?))
    }

    /// This directory, whose path is prof's own.
    ///
    /// # Errors
    ///
    /// It does not exist, or cannot be opened.
    pub fn at(path: &Path) -> io::Result<Root> {
        let flags = libc::O_PATH | libc::O_DIRECTORY;
        let directory = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
        Ok(Root { directory: directory.into(), _namespace: None })
    }

    /// Resolves a name without opening the file.
    ///
    /// # Errors
    ///
    /// Those of `openat2(2)`.
    pub fn resolve(&self, path: &Path, links: Links) -> io::Result<Resolved> {
        let name = CString::new(path.as_os_str().as_bytes())?;
        let flags = match links {
            Links::Follow => libc::O_PATH | libc::O_CLOEXEC,
            Links::Refuse => libc::O_PATH | libc::O_CLOEXEC | libc::O_NOFOLLOW,
        };
        let resolve = libc::RESOLVE_IN_ROOT | libc::RESOLVE_NO_MAGICLINKS;
        let mut tries = 0;
        loop {
            match os::openat2(self.directory.as_fd(), &name, flags, resolve) {
                Err(e) if e.kind() == io::ErrorKind::WouldBlock && tries < MAX_TRIES => tries += 1,
                found => return Resolved::new(found?),
            }
        }
    }

    /// Opens a regular file for reading.
    ///
    /// # Errors
    ///
    /// It does not exist, or is refused ([`is_refused`]).
    pub fn open(&self, path: &Path, links: Links) -> io::Result<File> {
        self.resolve(path, links)?.open()
    }

    /// Reads a file of at most `limit` bytes.
    ///
    /// # Errors
    ///
    /// It does not exist, is larger, or is refused.
    pub fn read(&self, path: &Path, limit: u64) -> io::Result<Vec<u8>> {
        contents(self.open(path, Links::Follow)?, limit)
    }
}

/// Resolves a name in prof's own mount namespace without opening the file.
///
/// # Errors
///
/// It does not exist.
pub fn resolve(path: &Path) -> io::Result<Resolved> {
    if path.as_os_str().is_empty() {
        return Err(io::ErrorKind::NotFound.into());
    }
    let whole = std::path::absolute(path)?;
    match process_link(&whole) {
        Some((pid, ProcessLink::Root(rest))) => {
            Root::for_process(pid)?.resolve(rest, Links::Follow)
        }
        Some((_, ProcessLink::Mapped)) => resolve_link(&whole),
        None => Root::at(Path::new("/"))?.resolve(&whole, Links::Follow),
    }
}

/// Meaning of a name below `/proc/PID`.
#[derive(Debug, PartialEq, Eq)]
enum ProcessLink<'a> {
    /// The file with this name in the process's root directory.
    Root(&'a Path),
    /// A file that it has mapped.
    Mapped,
}

/// Recognizes the magic links of `/proc` that occur in prof's own paths.
fn process_link(path: &Path) -> Option<(i32, ProcessLink<'_>)> {
    let mut parts = path.strip_prefix("/proc").ok()?.components();
    let pid = parts.next()?.as_os_str().to_str()?.parse().ok()?;
    match parts.next()?.as_os_str().as_bytes() {
        b"root" => Some((pid, ProcessLink::Root(parts.as_path()))),
        b"map_files" => Some((pid, ProcessLink::Mapped)),
        _ => None,
    }
}

/// Opens a regular file by its name in prof's own mount namespace.
///
/// # Errors
///
/// It does not exist, or is refused ([`is_refused`]).
pub fn open(path: &Path) -> io::Result<File> {
    resolve(path)?.open()
}

/// Reads a file of at most `limit` bytes by its name in prof's own mount namespace.
///
/// # Errors
///
/// It does not exist, is larger, or is refused.
pub fn read(path: &Path, limit: u64) -> io::Result<Vec<u8>> {
    contents(open(path)?, limit)
}

/// Resolves a link of the kernel, such as one in `/proc/PID/map_files`, without any name that a
/// process chose.
///
/// # Errors
///
/// The link no longer exists, or this user may not follow it.
pub fn resolve_link(link: &Path) -> io::Result<Resolved> {
    let file = OpenOptions::new().read(true).custom_flags(libc::O_PATH).open(link)?;
    Resolved::new(file.into())
}

/// Opens a regular file that the user has named, through links of any kind, and without waiting.
///
/// # Errors
///
/// It does not exist, or is refused ([`is_refused`]).
pub fn open_named(path: &Path) -> io::Result<File> {
    resolve_link(path)?.open()
}

/// A path to this file, valid while it is open here.
pub fn path_of(file: &File) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()))
}

fn contents(file: File, limit: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.take(limit + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 <= limit {
        Ok(bytes)
    } else {
        Err(io::Error::new(io::ErrorKind::InvalidInput, "too large"))
    }
}

mod roots;
#[cfg(test)]
mod tests;

pub use roots::Roots;
