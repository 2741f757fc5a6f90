//! Directories that only the user who runs prof can change, for caches.
//!
//! Under `sudo -E` or `su -m`, HOME is another user's. Links could redirect what root writes there,
//! and any user could have written what root reads. So a directory is used only if no other user
//! can rename a part of its path, and its files are accessed through a descriptor without following
//! links.

use std::fs::{self, DirBuilder, File, Metadata, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use sys::foreign;
use sys::os;

const NO_LINKS: i32 = libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_NOCTTY;

/// A directory of the user's own, open.
#[derive(Debug)]
pub struct PrivateDir(File);

impl PrivateDir {
    /// The directory with this path; links in it are followed.
    ///
    /// # Errors
    ///
    /// It does not exist, or others can change it or its path.
    pub fn open(path: &Path) -> io::Result<PrivateDir> {
        PrivateDir::at(&path.canonicalize()?)
    }

    /// The same, unless the path leads to a link.
    ///
    /// # Errors
    ///
    /// Those of [`PrivateDir::open`], and that it is a link.
    pub fn open_itself(path: &Path) -> io::Result<PrivateDir> {
        let Some((parent, name)) = path.parent().zip(path.file_name()) else {
            return PrivateDir::open(path);
        };
        PrivateDir::at(&parent.canonicalize()?.join(name))
    }

    /// The directory with this path, without links up to its last part.
    fn at(whole: &Path) -> io::Result<PrivateDir> {
        whole.ancestors().skip(1).try_for_each(safe_parent)?;
        PrivateDir::ours(whole)
    }

    /// As [`PrivateDir::open`]; it is created if needed, with its parent, in a directory that only
    /// the user can write to.
    ///
    /// # Errors
    ///
    /// Those of [`PrivateDir::open`], and that it cannot be created.
    pub fn make(path: &Path) -> io::Result<PrivateDir> {
        PrivateDir::make_in(path, PrivateDir::open, PrivateDir::open)
    }

    /// As [`PrivateDir::open_itself`]; it is created if needed, with its parent, in a directory of
    /// the user's own: others may write to it as well, but not rename this one.
    ///
    /// # Errors
    ///
    /// Those of [`PrivateDir::open_itself`], and that it cannot be created.
    pub fn make_itself(path: &Path) -> io::Result<PrivateDir> {
        PrivateDir::make_in(path, PrivateDir::open_itself, PrivateDir::parent)
    }

    fn make_in(path: &Path, open: Open, open_parent: Open) -> io::Result<PrivateDir> {
        let Some((parent, name)) = path.parent().zip(path.file_name()) else { return open(path) };
        if path.exists() {
            return open(path);
        }
        let parent = match parent.parent().zip(parent.file_name()) {
            Some((above, name)) if !parent.exists() => open_parent(above)?.sub(Path::new(name))?,
            _ => open_parent(parent)?,
        };
        parent.sub(Path::new(name))
    }

    /// The directory with this path, for creating another one in it.
    fn parent(path: &Path) -> io::Result<PrivateDir> {
        let whole = path.canonicalize()?;
        let directory = open_directory(&whole)?;
        if directory.metadata()?.uid() != os::uid() {
            return Err(io::Error::other("its parent directory belongs to another user"));
        }
        whole.ancestors().try_for_each(safe_parent)?;
        Ok(PrivateDir(directory))
    }

    /// A subdirectory, which is created if needed.
    ///
    /// # Errors
    ///
    /// It cannot be created, or is not the user's own.
    pub fn sub(&self, name: &Path) -> io::Result<PrivateDir> {
        let path = self.path(name);
        match DirBuilder::new().mode(0o700).create(&path) {
            Err(e) if e.kind() != io::ErrorKind::AlreadyExists => Err(e),
            _ => PrivateDir::ours(&path),
        }
    }

    /// An existing subdirectory.
    ///
    /// # Errors
    ///
    /// It does not exist, or is not the user's own.
    pub fn existing(&self, name: &Path) -> io::Result<PrivateDir> {
        PrivateDir::ours(&self.path(name))
    }

    fn ours(path: &Path) -> io::Result<PrivateDir> {
        let directory = open_directory(path)?;
        if is_ours(&directory.metadata()?) { Ok(PrivateDir(directory)) } else { Err(not_ours()) }
    }

    /// A path to the entry with this name, independent of the directory's own path.
    pub fn path(&self, name: &Path) -> PathBuf {
        foreign::path_of(&self.0).join(name)
    }

    /// Opens a regular file of the user's own in it.
    ///
    /// # Errors
    ///
    /// There is none with this name.
    pub fn file(&self, name: &Path) -> io::Result<(File, Metadata)> {
        let file = OpenOptions::new().read(true).custom_flags(NO_LINKS).open(self.path(name))?;
        let metadata = file.metadata()?;
        if metadata.is_file() && metadata.uid() == os::uid() && metadata.mode() & 0o022 == 0 {
            Ok((file, metadata))
        } else {
            Err(io::Error::other("not a file of this user"))
        }
    }

    /// A path to the directory, independent of its own path.
    pub fn entries(&self) -> PathBuf {
        self.path(Path::new("."))
    }

    /// Links a file of [`tempfile::tempfile_in`] under a name, replacing an existing one.
    ///
    /// # Errors
    ///
    /// Those of `linkat(2)`.
    pub fn name(&self, file: &File, name: &Path) -> io::Result<()> {
        self.remove(name)?;
        os::link(&foreign::path_of(file), &self.path(name))
    }

    /// Creates an empty file under a name, replacing an existing one.
    ///
    /// # Errors
    ///
    /// It cannot be created.
    pub fn leave_empty(&self, name: &Path) -> io::Result<()> {
        self.remove(name)?;
        let mut options = OpenOptions::new();
        options.write(true).create_new(true).mode(0o600).custom_flags(NO_LINKS);
        options.open(self.path(name)).map(drop)
    }

    /// Removes a file, if it exists.
    ///
    /// # Errors
    ///
    /// It cannot be removed.
    pub fn remove(&self, name: &Path) -> io::Result<()> {
        match fs::remove_file(self.path(name)) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
            _ => Ok(()),
        }
    }
}

type Open = fn(&Path) -> io::Result<PrivateDir>;

fn open_directory(path: &Path) -> io::Result<File> {
    let flags = libc::O_DIRECTORY | libc::O_NOFOLLOW;
    OpenOptions::new().read(true).custom_flags(flags).open(path)
}

fn not_ours() -> io::Error {
    io::Error::other("not a directory that only the user who runs prof can write to")
}

fn is_ours(meta: &Metadata) -> bool {
    meta.uid() == os::uid() && meta.mode() & 0o022 == 0
}

/// Fails if users other than root and this one can rename entries.
fn safe_parent(path: &Path) -> io::Result<()> {
    const STICKY: u32 = 0o1000;
    let meta = fs::symlink_metadata(path)?;
    let others = meta.mode() & 0o002 != 0 && meta.mode() & STICKY == 0;
    if [0, os::uid()].contains(&meta.uid()) && !others {
        Ok(())
    } else {
        Err(io::Error::other(format!("{} belongs to others", path.display())))
    }
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    #[test]
    fn only_directories_of_the_user_alone_are_used() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        let directory = PrivateDir::make(&path("cache/prof")).unwrap();
        assert_eq!(fs::metadata(path("cache/prof")).unwrap().mode() & 0o777, 0o700);
        directory.leave_empty(Path::new("miss")).unwrap();
        assert_eq!(directory.file(Path::new("miss")).unwrap().1.len(), 0);
        assert!(PrivateDir::make(&path("none/of/these")).is_err());
        fs::set_permissions(path("cache/prof"), Permissions::from_mode(0o777)).unwrap();
        assert!(PrivateDir::make(&path("cache/prof")).is_err());
        fs::set_permissions(path("cache/prof"), Permissions::from_mode(0o700)).unwrap();
        fs::set_permissions(path("cache"), Permissions::from_mode(0o777)).unwrap();
        assert!(PrivateDir::open(&path("cache/prof")).is_err());
    }

    #[test]
    fn links_in_a_directory_are_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        let directory = PrivateDir::open(dir.path()).unwrap();
        let path = |name: &str| dir.path().join(name);
        fs::create_dir(path("away")).unwrap();
        fs::write(path("away/file"), "secret").unwrap();
        symlink("away/file", path("link")).unwrap();
        symlink("away/new", path("dangling")).unwrap();
        symlink("away", path("directory")).unwrap();
        assert!(directory.file(Path::new("link")).is_err());
        assert!(directory.existing(Path::new("directory")).is_err());
        assert!(directory.sub(Path::new("directory")).is_err());
        directory.leave_empty(Path::new("dangling")).unwrap();
        assert!(!path("away/new").exists());
        let file = tempfile::tempfile_in(directory.entries()).unwrap();
        directory.name(&file, Path::new("link")).unwrap();
        assert_eq!(fs::read(path("away/file")).unwrap(), b"secret");
        assert_eq!(directory.file(Path::new("link")).unwrap().1.len(), 0);
    }
}
