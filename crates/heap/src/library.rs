//! The library on its way into the program: a folder of its own, and the environment.
//!
//! prof holds a lock on the file as long as it lives, so that another prof can tell a folder that is
//! in use from one that was left behind.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};

use super::Ring;
use super::layout::VARIABLE;
use sys::Error;
use sys::os;
use sys::procfs;

/// The library, see `preload/`.
pub const BYTES: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/libprof_heap.so"));

const NAME: &str = "libprof_heap.so";

/// What the ring is called in the folder, where it is there, and what names of folders begin with.
const RING: &str = "ring";
const FOLDER: &str = "prof-";

/// A folder may be in the making for so long.
const YOUNG: Duration = Duration::from_secs(10);

/// The dynamic linker takes these between the names of libraries to preload.
const SEPARATORS: [char; 2] = [':', ' '];

/// The unpacked library and the memory that it shares with prof.
pub struct Library {
    folder: Option<tempfile::TempDir>,
    path: PathBuf,
    /// Locked until this is dropped, or prof ends in any way.
    _file: File,
    /// What it writes.
    pub ring: Ring,
    /// The ring's file for programs that do not see its path, as they have a root or a `/proc` of
    /// their own; until the command has it.
    inherited: Option<OwnedFd>,
}

impl Library {
    /// Unpacks the library, for samples of this mean distance in bytes, of anonymous `mappings`,
    /// too.
    ///
    /// Errors: one line that says what is in the way.
    pub fn unpack(interval: u64, mappings: bool) -> Result<Library, Error> {
        let parent = std::env::temp_dir();
        let failed = |e: io::Error| {
            Error::failed(format!(
                "the library that samples allocations cannot be unpacked in {}: {e}; TMPDIR says \
                 where else",
                parent.display()
            ))
        };
        if parent.to_string_lossy().contains(SEPARATORS) {
            let cannot = "its name has a colon or a space, which LD_PRELOAD cannot have";
            return Err(failed(io::Error::other(cannot)));
        }
        let folder = tempfile::Builder::new().prefix(FOLDER).tempdir().map_err(failed)?;
        let path = folder.path().join(NAME);
        let mut file = File::create_new(&path).map_err(failed)?;
        // Where that is not possible, the folder is known by being young.
        flock(&file, FlockOperation::NonBlockingLockExclusive).ok();
        file.write_all(BYTES).map_err(failed)?;
        // Also for children that give up their rights, but not for anybody to change.
        for (path, mode) in [(folder.path(), 0o711), (path.as_path(), 0o755)] {
            let permissions = fs::Permissions::from_mode(mode);
            fs::set_permissions(path, permissions).map_err(failed)?;
        }
        let ring = Ring::create(interval, mappings).map_err(|e| {
            Error::failed(format!("there is no memory to share with the command: {e}"))
        })?;
        let inherited = ring.inherited();
        Ok(Library { folder: Some(folder), path, _file: file, ring, inherited })
    }

    /// What is to be removed if prof gives up.
    pub fn files(&self) -> impl Iterator<Item = PathBuf> + '_ {
        let folder = self.folder.as_ref().map(|f| f.path().to_path_buf());
        std::iter::once(self.path.clone()).chain(folder)
    }

    /// The command's environment, as far as it is not prof's.
    pub fn environment(&self) -> Vec<(OsString, OsString)> {
        let mut preload = self.path.clone().into_os_string();
        // Before any other allocator that is preloaded.
        if let Some(more) = std::env::var_os("LD_PRELOAD").filter(|more| !more.is_empty()) {
            preload.push(":");
            preload.push(more);
        }
        let mut ring = self.ring.path().as_os_str().to_owned();
        if let Some(fd) = &self.inherited {
            ring.push(format!(";{}", fd.as_raw_fd()));
        }
        vec![("LD_PRELOAD".into(), preload), (VARIABLE.into(), ring)]
    }

    /// The command has been started: nobody else inherits the ring.
    pub fn started(&mut self) {
        self.inherited = None;
    }

    /// Removes the library, unless somebody still has it: what that starts would complain about
    /// a library that is gone. Returns where it stays then.
    pub fn remove(mut self) -> Option<PathBuf> {
        let used = is_mapped(&self.path);
        let folder = self.folder.take()?;
        used.then(|| folder.keep())
    }
}

/// Removes what profs of this user have left behind that were killed, unless a program still has the
/// library.
pub fn remove_leftovers() {
    let folders = fs::read_dir(std::env::temp_dir()).into_iter().flatten().flatten();
    let named = |name: &std::ffi::OsStr| name.as_encoded_bytes().starts_with(FOLDER.as_bytes());
    for folder in folders.filter(|entry| named(&entry.file_name())).map(|entry| entry.path()) {
        if is_left_behind(&folder) {
            for name in [NAME, RING] {
                fs::remove_file(folder.join(name)).ok();
            }
            // What else is in it stays, and so does it.
            fs::remove_dir(&folder).ok();
        }
    }
}

/// It is this user's, holds the library, and no prof lives that has made it.
fn is_left_behind(folder: &Path) -> bool {
    let own = |file: &Path| fs::symlink_metadata(file).ok().filter(|f| f.uid() == os::uid());
    let old = |file: &fs::Metadata| {
        file.modified().ok().and_then(|at| at.elapsed().ok()).is_some_and(|age| age > YOUNG)
    };
    let library = folder.join(NAME);
    own(folder).is_some_and(|folder| folder.is_dir())
        && own(&library).is_some_and(|file| file.is_file() && old(&file))
        && is_unlocked(&library)
        && !is_mapped(&library)
}

fn is_unlocked(file: &Path) -> bool {
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
    let file = File::options().read(true).custom_flags(flags).open(file);
    file.is_ok_and(|file| flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok())
}

/// A process other than prof has it.
fn is_mapped(path: &Path) -> bool {
    let own = std::process::id() as i32;
    let path = path.to_string_lossy();
    let has = |pid: i32| {
        let maps = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
        maps.contains(path.as_ref())
    };
    procfs::processes().into_iter().any(|pid| pid != own && has(pid))
}
