//! The place of a file that is replaced as a whole: its folder is opened once, and everything that
//! follows happens in that folder, so that nobody can put another one or a link there meanwhile.

use std::ffi::{OsStr, OsString};
use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{self as unix, CWD, FileType, Gid, Mode, OFlags, Stat, Uid};

use super::temporary::Temporary;
use sys::os;

/// Most symbolic links that are followed, as the kernel does.
const MAX_LINKS: usize = 40;

/// Permissions of a file that only its owner may read: recordings hold addresses of the kernel and
/// of other processes, and perf's files have these permissions, too.
pub const PRIVATE: u32 = 0o600;

/// Permissions that the user's umask decides on.
pub const USUAL: u32 = 0o666;

/// What a path stands for.
#[derive(Debug)]
pub enum Found {
    /// A device or a FIFO, open for writing.
    Device(File),
    /// A regular file that is there or can be made.
    Place(Place),
}

/// Why a path cannot be written to.
#[derive(Debug)]
pub struct Refused {
    /// The folder that the path leads to.
    pub folder: PathBuf,
    /// What is wrong.
    pub error: io::Error,
}

/// The place of a regular file.
#[derive(Debug)]
pub struct Place {
    folder: OwnedFd,
    name: OsString,
    shown: PathBuf,
    mode: u32,
    /// Permissions are those of the file that was there, whatever the umask says.
    exact: bool,
    owner: Option<(Uid, Gid)>,
}

impl Place {
    /// What `path` stands for. A link that is the last part of it is followed as the kernel does
    /// with `fs.protected_symlinks`: not in a folder that all may write to, unless the link is
    /// the user's own or the folder's owner's. A new file has these permissions.
    pub fn find(path: &Path, mode: u32) -> Result<Found, Refused> {
        let mut at = Walk { base: None, path: path.to_path_buf() };
        for _ in 0..MAX_LINKS {
            let refused = |error: io::Error| Refused { folder: at.shown(), error };
            match at.step(mode).map_err(refused)? {
                Step::Found(found) => return Ok(found),
                Step::Through(file) => return Ok(Found::Device(file)),
                Step::Link(next) => at = next,
            }
        }
        let error = io::Error::other("too many levels of symbolic links");
        Err(Refused { folder: at.shown(), error })
    }

    /// A file without a name, to be put here.
    pub fn temporary(&self) -> io::Result<Temporary> {
        let file = Temporary::create(&self.folder, self.mode)?;
        if let Some((user, group)) = self.owner {
            unix::fchown(file.file(), Some(user), Some(group))?;
        }
        if self.exact {
            unix::fchmod(file.file(), Mode::from_raw_mode(self.mode))?;
        }
        Ok(file)
    }

    /// Puts a temporary file here, in the place of what was here before.
    pub fn put(&self, file: Temporary) -> io::Result<()> {
        file.put(&self.folder, &self.name)
    }

    /// The folder, as a path.
    pub fn folder(&self) -> &Path {
        &self.shown
    }
}

/// A path on the way to what it stands for.
struct Walk {
    /// The folder that a relative path begins in, and its own path; `None`: the current one.
    base: Option<(OwnedFd, PathBuf)>,
    path: PathBuf,
}

enum Step {
    Found(Found),
    /// A link to an open file.
    Through(File),
    Link(Walk),
}

impl Walk {
    /// The folder and the last part, which is empty where the path can only be a directory.
    fn split(&self) -> (PathBuf, OsString) {
        let bytes = self.path.as_os_str().as_bytes();
        let at = bytes.iter().rposition(|&b| b == b'/').map_or(0, |at| at + 1);
        let (folder, name) = bytes.split_at(at);
        let name = if matches!(name, b"." | b"..") { b"" } else { name };
        let folder = match folder {
            b"" => b".",
            b"/" => folder,
            longer => &longer[..longer.len() - 1],
        };
        (OsStr::from_bytes(folder).into(), OsStr::from_bytes(name).into())
    }

    /// The folder, for messages.
    fn shown(&self) -> PathBuf {
        let (folder, _) = self.split();
        match &self.base {
            Some((_, base)) => base.join(folder),
            None => folder,
        }
    }

    fn step(&self, mode: u32) -> io::Result<Step> {
        let (path, name) = self.split();
        let (name, shown) = (name.as_os_str(), &self.shown());
        if name.is_empty() {
            return Err(ErrorKind::IsADirectory.into());
        }
        let base = self.base.as_ref().map_or(CWD, |(base, _)| base.as_fd());
        let how = OFlags::PATH | OFlags::CLOEXEC;
        let folder = unix::openat(base, &path, how | OFlags::DIRECTORY, Mode::empty())?;
        let about_folder = unix::fstat(&folder)?;
        let existing = match unix::openat(&folder, name, how | OFlags::NOFOLLOW, Mode::empty()) {
            Ok(file) => Some(file),
            Err(rustix::io::Errno::NOENT) => None,
            Err(e) => return Err(e.into()),
        };
        let Some(existing) = existing else {
            return Ok(Step::Found(place(folder, &about_folder, name, shown, None, mode)));
        };
        let about = unix::fstat(&existing)?;
        match FileType::from_raw_mode(about.st_mode) {
            FileType::Directory => Err(ErrorKind::IsADirectory.into()),
            FileType::Symlink => {
                if !may_use(&about_folder, &about) {
                    return Err(others("a symbolic link"));
                }
                // Its links lead to open files and not to names.
                if unix::fstatfs(&existing)?.f_type == unix::PROC_SUPER_MAGIC {
                    let through = PathBuf::from(of_descriptor(&folder)).join(name);
                    return OpenOptions::new().write(true).open(through).map(Step::Through);
                }
                let target = unix::readlinkat(&existing, c"", Vec::new())?;
                let path = PathBuf::from(OsStr::from_bytes(target.as_bytes()));
                Ok(Step::Link(Walk { base: Some((folder, shown.clone())), path }))
            }
            kind @ (FileType::RegularFile | FileType::Fifo) if !may_use(&about_folder, &about) => {
                Err(others(if kind == FileType::Fifo { "a FIFO" } else { "a file" }))
            }
            FileType::RegularFile => {
                // Says whether an existing file may be written to.
                let how = OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
                unix::openat(&folder, name, how, Mode::empty())?;
                let found = place(folder, &about_folder, name, shown, Some(&about), mode);
                Ok(Step::Found(found))
            }
            // Exactly what was looked at.
            _ => {
                let file = OpenOptions::new().write(true).open(of_descriptor(&existing))?;
                Ok(Step::Found(Found::Device(file)))
            }
        }
    }
}

fn place(
    folder: OwnedFd,
    about_folder: &Stat,
    name: &OsStr,
    shown: &Path,
    existing: Option<&Stat>,
    mode: u32,
) -> Found {
    let root = os::uid() == 0;
    let owner = user_of_sudo().filter(|(user, _)| root && about_folder.st_uid == user.as_raw());
    let ours = |about: &Stat| {
        !root || about.st_uid == 0 || owner.is_some_and(|(user, _)| user.as_raw() == about.st_uid)
    };
    // Root's file has not the permissions that another user gave to one of theirs.
    let kept = existing.filter(|about| ours(about)).map(|about| about.st_mode & 0o777);
    Found::Place(Place {
        folder,
        name: name.to_owned(),
        shown: shown.to_owned(),
        mode: kept.unwrap_or(if root { PRIVATE } else { mode }),
        exact: kept.is_some(),
        owner,
    })
}

/// The user who called `sudo`.
fn user_of_sudo() -> Option<(Uid, Gid)> {
    let number = |name: &str| std::env::var(name).ok()?.parse::<u32>().ok();
    let (user, group) = (number("SUDO_UID")?, number("SUDO_GID")?);
    (user != 0 && user != u32::MAX && group != u32::MAX)
        .then(|| (Uid::from_raw(user), Gid::from_raw(group)))
}

/// What lies in a folder that all may write to, but where only owners may remove (as `/tmp`), is
/// used only if it is the user's or the folder's owner's.
fn may_use(folder: &Stat, there: &Stat) -> bool {
    let shared = folder.st_mode & 0o1002 == 0o1002;
    !shared || there.st_uid == os::uid() || there.st_uid == folder.st_uid
}

fn others(what: &str) -> io::Error {
    let why = format!("it is {what} of another user, in a folder that all users write to");
    io::Error::new(ErrorKind::PermissionDenied, why)
}

/// A path that opens what a descriptor stands for.
pub fn of_descriptor(fd: &impl std::os::fd::AsRawFd) -> String {
    format!("/proc/self/fd/{}", fd.as_raw_fd())
}
