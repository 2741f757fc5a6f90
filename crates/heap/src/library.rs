//! Unpacks the library for a program: its directory, and the environment.
//!
//! prof holds a lock on the file while it runs, so that another prof can distinguish a directory in
//! use from one that was left behind.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};

use super::layout::VARIABLE;
use super::{AllocationRing, arch};
use sys::Error;
use sys::os;
use sys::procfs;

/// The library, see `preload/`.
pub const BYTES: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/libprof_heap.so"));

const NAME: &str = "libprof_heap.so";

/// Name of the ring in the directory, if it is there, and prefix of directory names.
const RING: &str = "ring";
const PREFIX: &str = "prof-";

/// Age below which a directory may still be incomplete.
const YOUNG: Duration = Duration::from_secs(10);

/// Characters that separate the names of libraries to preload.
const SEPARATORS: [char; 2] = [':', ' '];

/// The unpacked library and the memory that it shares with prof.
pub struct Library {
    directory: Option<tempfile::TempDir>,
    path: PathBuf,
    /// Locked until this is dropped, or prof ends in any way.
    _file: File,
    /// The ring that it writes to.
    pub ring: AllocationRing,
    /// The ring's file for programs that cannot access its path, because of another root or
    /// `/proc`; until the command has inherited it.
    inherited: Option<OwnedFd>,
}

impl Library {
    /// Unpacks the library, for this mean sampling interval in bytes, with anonymous `mappings` or
    /// without.
    ///
    /// # Errors
    ///
    /// One line that states the obstacle.
    pub fn unpack(interval: u64, mappings: bool) -> Result<Library, Error> {
        arch::check_support()?;
        let parent = std::env::temp_dir();
        let failed = |e: io::Error| {
            Error::failed(format!(
                "the library that samples allocations cannot be unpacked in {}: {e}; set TMPDIR \
                 to another directory",
                parent.display()
            ))
        };
        if parent.to_string_lossy().contains(SEPARATORS) {
            let cannot = "its name has a colon or a space, which LD_PRELOAD cannot have";
            return Err(failed(io::Error::other(cannot)));
        }
        let directory = tempfile::Builder::new().prefix(PREFIX).tempdir().map_err(failed)?;
        let path = directory.path().join(NAME);
        let mut file = File::create_new(&path).map_err(failed)?;
        // Without a lock, the directory is recognized by its age.
        flock(&file, FlockOperation::NonBlockingLockExclusive).ok();
        file.write_all(BYTES).map_err(failed)?;
        // Also for children that drop privileges, but without write access.
        for (path, mode) in [(directory.path(), 0o711), (path.as_path(), 0o755)] {
            let permissions = fs::Permissions::from_mode(mode);
            fs::set_permissions(path, permissions).map_err(failed)?;
        }
        let ring = AllocationRing::create(interval, mappings).map_err(|e| {
            Error::failed(format!("there is no memory to share with the command: {e}"))
        })?;
        let inherited = ring.inherited();
        Ok(Library { directory: Some(directory), path, _file: file, ring, inherited })
    }

    /// Files to remove if prof aborts.
    pub fn files(&self) -> impl Iterator<Item = PathBuf> + '_ {
        let directory = self.directory.as_ref().map(|f| f.path().to_path_buf());
        std::iter::once(self.path.clone()).chain(directory)
    }

    /// Variables of the command's environment that differ from prof's.
    pub fn environment(&self) -> Vec<(OsString, OsString)> {
        let mut preload = self.path.clone().into_os_string();
        // Before other preloaded allocators.
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

    /// The command has been started: no other process inherits the ring.
    pub fn started(&mut self) {
        self.inherited = None;
    }

    /// Removes the library, unless a process still uses it: its children would print errors about a
    /// missing library. Returns the path if it stays.
    pub fn remove(mut self) -> Option<PathBuf> {
        let used = is_mapped(&self.path);
        let directory = self.directory.take()?;
        used.then(|| directory.keep())
    }
}

/// Removes directories of this user's killed profs, unless a program still uses the library.
pub fn remove_leftovers() {
    let directories = fs::read_dir(std::env::temp_dir()).into_iter().flatten().flatten();
    let named = |name: &std::ffi::OsStr| name.as_encoded_bytes().starts_with(PREFIX.as_bytes());
    for directory in directories.filter(|entry| named(&entry.file_name())).map(|entry| entry.path())
    {
        if is_left_behind(&directory) {
            for name in [NAME, RING] {
                fs::remove_file(directory.join(name)).ok();
            }
            // A directory with other files stays.
            fs::remove_dir(&directory).ok();
        }
    }
}

/// True if it is this user's, contains the library, and the prof that made it has ended.
fn is_left_behind(directory: &Path) -> bool {
    let own = |file: &Path| fs::symlink_metadata(file).ok().filter(|f| f.uid() == os::uid());
    let old = |file: &fs::Metadata| {
        file.modified().ok().and_then(|at| at.elapsed().ok()).is_some_and(|age| age > YOUNG)
    };
    let library = directory.join(NAME);
    own(directory).is_some_and(|directory| directory.is_dir())
        && own(&library).is_some_and(|file| file.is_file() && old(&file))
        && is_unlocked(&library)
        && !is_mapped(&library)
}

fn is_unlocked(file: &Path) -> bool {
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
    let file = File::options().read(true).custom_flags(flags).open(file);
    file.is_ok_and(|file| flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok())
}

/// True if another process has mapped it.
fn is_mapped(path: &Path) -> bool {
    let own = std::process::id() as i32;
    let path = path.to_string_lossy();
    let has = |pid: i32| {
        let maps = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
        maps.contains(path.as_ref())
    };
    procfs::processes().into_iter().any(|pid| pid != own && has(pid))
}
