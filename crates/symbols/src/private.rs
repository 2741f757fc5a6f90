//! Folders that nobody but the user who runs prof can change: what caches lie in.
//!
//! Under `sudo -E` or `su -m`, HOME is another user's. What root wrote there could be led anywhere by
//! links, and what it read there could be anyone's. So a folder is used only if no other user can
//! rename a part of its path, and what is in it is reached through a descriptor and not by links.

use std::fs::{self, DirBuilder, File, Metadata, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use sys::foreign;
use sys::os;

const NO_LINKS: i32 = libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_NOCTTY;

/// A folder of the user's own, open.
#[derive(Debug)]
pub struct Folder(File);

impl Folder {
    /// The folder with this path.
    ///
    /// # Errors
    ///
    /// It does not exist, or others can change it or what its path means.
    pub fn open(path: &Path) -> io::Result<Folder> {
        let whole = path.canonicalize()?;
        whole.ancestors().skip(1).try_for_each(safe_parent)?;
        Folder::ours(&whole)
    }

    /// The same; it is made if need be, with the folder that it is in.
    ///
    /// # Errors
    ///
    /// Those of [`Folder::open`], and that it cannot be made.
    pub fn make(path: &Path) -> io::Result<Folder> {
        let Some((parent, name)) = path.parent().zip(path.file_name()) else {
            return Folder::open(path);
        };
        if path.exists() {
            return Folder::open(path);
        }
        let parent = match parent.parent().zip(parent.file_name()) {
            Some((above, name)) if !parent.exists() => Folder::open(above)?.sub(Path::new(name))?,
            _ => Folder::open(parent)?,
        };
        parent.sub(Path::new(name))
    }

    /// A folder in it, which is made if need be.
    ///
    /// # Errors
    ///
    /// It cannot be made, or is not the user's own.
    pub fn sub(&self, name: &Path) -> io::Result<Folder> {
        let path = self.path(name);
        match DirBuilder::new().mode(0o700).create(&path) {
            Err(e) if e.kind() != io::ErrorKind::AlreadyExists => Err(e),
            _ => Folder::ours(&path),
        }
    }

    /// A folder in it that exists.
    ///
    /// # Errors
    ///
    /// It does not, or is not the user's own.
    pub fn existing(&self, name: &Path) -> io::Result<Folder> {
        Folder::ours(&self.path(name))
    }

    fn ours(path: &Path) -> io::Result<Folder> {
        let flags = libc::O_DIRECTORY | libc::O_NOFOLLOW;
        let folder = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
        match is_ours(&folder.metadata()?) {
            true => Ok(Folder(folder)),
            false => Err(not_ours()),
        }
    }

    /// A path to what has this name in it, whatever its own path means by now.
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
        match metadata.is_file() && metadata.uid() == os::uid() && metadata.mode() & 0o022 == 0 {
            true => Ok((file, metadata)),
            false => Err(io::Error::other("it is not a file of the user's")),
        }
    }

    /// Puts a file of [`tempfile::tempfile_in`] under a name, in the place of what is there.
    ///
    /// # Errors
    ///
    /// Those of `linkat(2)`.
    pub fn name(&self, file: &File, name: &Path) -> io::Result<()> {
        self.remove(name)?;
        os::link(&foreign::path_of(file), &self.path(name))
    }

    /// Leaves an empty file under a name, in the place of what is there.
    ///
    /// # Errors
    ///
    /// It cannot be made.
    pub fn leave_empty(&self, name: &Path) -> io::Result<()> {
        self.remove(name)?;
        let mut options = OpenOptions::new();
        options.write(true).create_new(true).mode(0o600).custom_flags(NO_LINKS);
        options.open(self.path(name)).map(drop)
    }

    /// Removes a file, if it is there.
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

fn not_ours() -> io::Error {
    io::Error::other("it is not a folder that only its owner, who runs prof, can write to")
}

fn is_ours(meta: &Metadata) -> bool {
    meta.uid() == os::uid() && meta.mode() & 0o022 == 0
}

/// Nobody but root and this user can rename what is in it.
fn safe_parent(path: &Path) -> io::Result<()> {
    const STICKY: u32 = 0o1000;
    let meta = fs::symlink_metadata(path)?;
    let others = meta.mode() & 0o002 != 0 && meta.mode() & STICKY == 0;
    match [0, os::uid()].contains(&meta.uid()) && !others {
        true => Ok(()),
        false => Err(io::Error::other(format!("{} belongs to others", path.display()))),
    }
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    #[test]
    fn only_folders_of_the_user_alone_are_used() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        let folder = Folder::make(&path("cache/prof")).unwrap();
        assert_eq!(fs::metadata(path("cache/prof")).unwrap().mode() & 0o777, 0o700);
        folder.leave_empty(Path::new("miss")).unwrap();
        assert_eq!(folder.file(Path::new("miss")).unwrap().1.len(), 0);
        assert!(Folder::make(&path("none/of/these")).is_err());
        fs::set_permissions(path("cache/prof"), Permissions::from_mode(0o777)).unwrap();
        assert!(Folder::make(&path("cache/prof")).is_err());
        fs::set_permissions(path("cache/prof"), Permissions::from_mode(0o700)).unwrap();
        fs::set_permissions(path("cache"), Permissions::from_mode(0o777)).unwrap();
        assert!(Folder::open(&path("cache/prof")).is_err());
    }

    #[test]
    fn links_in_a_folder_are_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        let folder = Folder::open(dir.path()).unwrap();
        let path = |name: &str| dir.path().join(name);
        fs::create_dir(path("away")).unwrap();
        fs::write(path("away/file"), "secret").unwrap();
        symlink("away/file", path("link")).unwrap();
        symlink("away/new", path("dangling")).unwrap();
        symlink("away", path("folder")).unwrap();
        assert!(folder.file(Path::new("link")).is_err());
        assert!(folder.existing(Path::new("folder")).is_err());
        assert!(folder.sub(Path::new("folder")).is_err());
        folder.leave_empty(Path::new("dangling")).unwrap();
        assert!(!path("away/new").exists());
        let file = tempfile::tempfile_in(folder.path(Path::new("."))).unwrap();
        folder.name(&file, Path::new("link")).unwrap();
        assert_eq!(fs::read(path("away/file")).unwrap(), b"secret");
        assert_eq!(folder.file(Path::new("link")).unwrap().1.len(), 0);
    }
}
