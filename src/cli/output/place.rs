//! The place of a file that is replaced as a whole. Its directory is opened once, and everything else
//! happens through that descriptor, so that the directory cannot be swapped for another or a link.

use std::ffi::{OsStr, OsString};
use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{self as unix, AtFlags, CWD, FileType, Gid, Mode, OFlags, Stat, Uid};

use super::temporary::{self, Temporary};
use formats::pprof;
use rustix::io::Errno;
use sys::os;

/// Most symbolic links that are followed, as the kernel does.
const MAX_LINKS: usize = 40;

/// Permissions of a file that only its owner may read: recordings hold addresses of the kernel and
/// of other processes, and perf's files have these permissions, too.
pub const PRIVATE: u32 = 0o600;

/// Permissions that the user's umask reduces.
pub const USUAL: u32 = 0o666;

/// The target of a path.
#[derive(Debug)]
pub enum Found {
    /// A device or a FIFO, open for writing.
    Device(File),
    /// A regular file that exists or can be created.
    Place(OutputPlace),
}

/// The reason for which a path cannot be written to.
#[derive(Debug)]
pub struct Refused {
    /// The directory that the path leads to.
    pub directory: PathBuf,
    /// The error.
    pub error: io::Error,
}

/// The place of a regular file.
#[derive(Debug)]
pub struct OutputPlace {
    directory: OwnedFd,
    name: OsString,
    shown: PathBuf,
    /// A file is there, and is not empty.
    is_taken: bool,
    mode: u32,
    /// Permissions are those of the existing file, whatever the umask is.
    exact: bool,
    owner: Option<(Uid, Gid)>,
}

impl OutputPlace {
    /// Resolves `path`. A link that is the last part of it is followed as the kernel does
    /// with `fs.protected_symlinks`: not in a directory that all may write to, unless the link is
    /// the user's own or the directory's owner's. A new file has these permissions.
    pub fn find(path: &Path, mode: u32) -> Result<Found, Refused> {
        let mut at = Walk { base: None, path: path.to_path_buf() };
        for _ in 0..MAX_LINKS {
            let refused = |error: io::Error| Refused { directory: at.shown(), error };
            match at.step(mode).map_err(refused)? {
                Step::Found(found) => return Ok(found),
                Step::Through(file) => return Ok(Found::Device(file)),
                Step::Link(next) => at = next,
            }
        }
        let error = io::Error::other("too many levels of symbolic links");
        Err(Refused { directory: at.shown(), error })
    }

    /// A file without a name, for [`OutputPlace::put`].
    pub fn temporary(&self) -> io::Result<Temporary> {
        let file = Temporary::create(&self.directory, self.mode)?;
        if let Some((user, group)) = self.owner {
            unix::fchown(file.file(), Some(user), Some(group))?;
        }
        if self.exact {
            unix::fchmod(file.file(), Mode::from_raw_mode(self.mode))?;
        }
        Ok(file)
    }

    /// Gives a temporary file this place; replaces an existing file.
    pub fn put(&self, file: Temporary) -> io::Result<()> {
        file.put(&self.directory, &self.name)
    }

    /// Whether the file that is there has more than a profile without values.
    pub fn has_values(&self) -> bool {
        /// Bytes that a profile without samples does not have.
        const MANY: u64 = 1 << 16;
        let read = || {
            let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
            let file = unix::openat(&self.directory, &self.name, flags, Mode::empty())?;
            let mut bytes = Vec::new();
            File::from(file).take(MANY).read_to_end(&mut bytes)?;
            io::Result::Ok(bytes)
        };
        let is_empty = |bytes: Vec<u8>| {
            let profile = pprof::read(bytes.as_slice());
            profile.is_ok_and(|profile| profile.has_no_values())
        };
        self.is_taken && !read().is_ok_and(is_empty)
    }

    /// Gives the file that is there a second name, [`OutputPlace::old_name`], in place of another
    /// file.
    pub fn keep_old(&self) -> io::Result<()> {
        let OutputPlace { directory, name, .. } = self;
        let link = |to: &str| unix::linkat(directory, name, directory, to, AtFlags::empty());
        match temporary::with_free_name(link) {
            Ok(((), linked)) => {
                let renamed =
                    unix::renameat(directory, linked.as_str(), directory, self.old_name());
                // Nothing is left of it if both were one file already, or if that failed.
                let _ = unix::unlinkat(directory, linked.as_str(), AtFlags::empty());
                Ok(renamed?)
            }
            Err(Errno::NOENT) => Ok(()),
            // No links on this file system, or none to files of others.
            Err(_) => Ok(unix::renameat(directory, name, directory, self.old_name())?),
        }
    }

    /// The name of the file that was there before: `profile.old.pb.gz`.
    pub fn old_name(&self) -> OsString {
        old_name(&self.name)
    }

    /// The directory, as a path.
    pub fn directory(&self) -> &Path {
        &self.shown
    }
}

/// A path whose links are being followed.
struct Walk {
    /// The directory that a relative path begins in, and its own path; `None`: the current one.
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
    /// The directory and the last part, which is empty where the path can only be a directory.
    fn split(&self) -> (PathBuf, OsString) {
        let bytes = self.path.as_os_str().as_bytes();
        let at = bytes.iter().rposition(|&b| b == b'/').map_or(0, |at| at + 1);
        let (directory, name) = bytes.split_at(at);
        let name = if matches!(name, b"." | b"..") { b"" } else { name };
        let directory = match directory {
            b"" => b".",
            b"/" => directory,
            longer => &longer[..longer.len() - 1],
        };
        (OsStr::from_bytes(directory).into(), OsStr::from_bytes(name).into())
    }

    /// The directory, for messages.
    fn shown(&self) -> PathBuf {
        let (directory, _) = self.split();
        match &self.base {
            Some((_, base)) => base.join(directory),
            None => directory,
        }
    }

    fn step(&self, mode: u32) -> io::Result<Step> {
        let (path, name) = self.split();
        let name = name.as_os_str();
        let shown = &self.shown();
        if name.is_empty() {
            return Err(ErrorKind::IsADirectory.into());
        }
        let base = self.base.as_ref().map_or(CWD, |(base, _)| base.as_fd());
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        let directory = unix::openat(base, &path, flags | OFlags::DIRECTORY, Mode::empty())?;
        let directory_stat = unix::fstat(&directory)?;
        let existing = match unix::openat(&directory, name, flags | OFlags::NOFOLLOW, Mode::empty())
        {
            Ok(file) => Some(file),
            Err(rustix::io::Errno::NOENT) => None,
            Err(e) => return Err(e.into()),
        };
        let Some(existing) = existing else {
            return Ok(Step::Found(place(directory, &directory_stat, name, shown, None, mode)));
        };
        let stat = unix::fstat(&existing)?;
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory => Err(ErrorKind::IsADirectory.into()),
            FileType::Symlink => {
                if !may_use(&directory_stat, &stat) {
                    return Err(foreign_error("a symbolic link"));
                }
                // Its links lead to open files and not to names.
                if unix::fstatfs(&existing)?.f_type == unix::PROC_SUPER_MAGIC {
                    let through = PathBuf::from(descriptor_path(&directory)).join(name);
                    return OpenOptions::new().write(true).open(through).map(Step::Through);
                }
                let target = unix::readlinkat(&existing, c"", Vec::new())?;
                let path = PathBuf::from(OsStr::from_bytes(target.as_bytes()));
                Ok(Step::Link(Walk { base: Some((directory, shown.clone())), path }))
            }
            kind @ (FileType::RegularFile | FileType::Fifo) if !may_use(&directory_stat, &stat) => {
                Err(foreign_error(if kind == FileType::Fifo { "a FIFO" } else { "a file" }))
            }
            FileType::RegularFile => {
                // Fails if the existing file may not be written to.
                let flags = OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
                unix::openat(&directory, name, flags, Mode::empty())?;
                let found = place(directory, &directory_stat, name, shown, Some(&stat), mode);
                Ok(Step::Found(found))
            }
            // The same file that was checked.
            _ => {
                let file = OpenOptions::new().write(true).open(descriptor_path(&existing))?;
                Ok(Step::Found(Found::Device(file)))
            }
        }
    }
}

/// `.old` before the extensions of a profile, or before the last one of another file.
fn old_name(name: &OsStr) -> OsString {
    const EXTENSIONS: [&[u8]; 3] = [b".pb.gz", b".pprof.gz", b".prof.gz"];
    let bytes = name.as_bytes();
    let known = EXTENSIONS.iter().find(|&&known| bytes.ends_with(known));
    let last = || bytes.iter().rposition(|&b| b == b'.').filter(|&at| at > 0);
    let at = known.map(|known| bytes.len() - known.len()).or_else(last).unwrap_or(bytes.len());
    let (stem, extension) = bytes.split_at(at);
    OsStr::from_bytes(&[stem, b".old", extension].concat()).to_owned()
}

fn place(
    directory: OwnedFd,
    directory_stat: &Stat,
    name: &OsStr,
    shown: &Path,
    existing: Option<&Stat>,
    mode: u32,
) -> Found {
    let root = os::uid() == 0;
    let owner = user_of_sudo().filter(|(user, _)| root && directory_stat.st_uid == user.as_raw());
    let ours = |stat: &Stat| {
        !root || stat.st_uid == 0 || owner.is_some_and(|(user, _)| user.as_raw() == stat.st_uid)
    };
    // A file of root does not take the permissions that another user gave to a file.
    let kept = existing.filter(|stat| ours(stat)).map(|stat| stat.st_mode & 0o777);
    Found::Place(OutputPlace {
        directory,
        name: name.to_owned(),
        shown: shown.to_owned(),
        is_taken: existing.is_some_and(|stat| stat.st_size > 0),
        mode: kept.unwrap_or(if root { PRIVATE } else { mode }),
        exact: kept.is_some(),
        owner,
    })
}

/// The user who called `sudo`.
fn user_of_sudo() -> Option<(Uid, Gid)> {
    let number = |name: &str| std::env::var(name).ok()?.parse::<u32>().ok();
    let user = number("SUDO_UID")?;
    let group = number("SUDO_GID")?;
    (user != 0 && user != u32::MAX && group != u32::MAX)
        .then(|| (Uid::from_raw(user), Gid::from_raw(group)))
}

/// Whether an entry of a directory may be used. In a directory that all may write to, but where
/// only owners may remove (as `/tmp`), it has to be the user's or the directory's owner's.
fn may_use(directory: &Stat, there: &Stat) -> bool {
    let shared = directory.st_mode & 0o1002 == 0o1002;
    !shared || there.st_uid == os::uid() || there.st_uid == directory.st_uid
}

fn foreign_error(what: &str) -> io::Error {
    let why = format!("it is {what} of another user, in a directory that all users can write to");
    io::Error::new(ErrorKind::PermissionDenied, why)
}

/// A path that opens the file of a descriptor.
pub fn descriptor_path(fd: &impl std::os::fd::AsRawFd) -> String {
    format!("/proc/self/fd/{}", fd.as_raw_fd())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_names_have_the_extensions_of_the_new_ones() {
        for (name, old) in [
            ("profile.pb.gz", "profile.old.pb.gz"),
            ("my.run.pb.gz", "my.run.old.pb.gz"),
            ("out.pprof", "out.old.pprof"),
            ("a.tar.gz", "a.tar.old.gz"),
            ("out", "out.old"),
            (".hidden", ".hidden.old"),
            (".pb.gz", ".old.pb.gz"),
        ] {
            assert_eq!(old_name(OsStr::new(name)), *old);
        }
    }
}
