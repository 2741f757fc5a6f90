//! The library on its way into the program: a folder of its own, and the environment.

use std::ffi::OsString;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use super::Ring;
use super::layout::VARIABLE;
use crate::process::procfs;
use crate::sampler::Error;

/// The library, see `src/preload/`.
pub const BYTES: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/libprof_heap.so"));

const NAME: &str = "libprof_heap.so";

/// The dynamic linker takes these between the names of libraries to preload.
const SEPARATORS: [char; 2] = [':', ' '];

/// The unpacked library and the memory that it shares with prof.
pub struct Library {
    folder: Option<tempfile::TempDir>,
    path: PathBuf,
    /// What it writes.
    pub ring: Ring,
}

impl Library {
    /// Unpacks the library, for samples of this mean distance in bytes, of anonymous `mappings`,
    /// too.
    ///
    /// Errors: one line that says what is in the way.
    pub fn unpack(interval: u64, mappings: bool) -> Result<Library, Error> {
        let parent = std::env::temp_dir();
        let failed = |e: io::Error| {
            Error::other(format!(
                "the library that samples allocations cannot be unpacked in {}: {e}; TMPDIR says \
                 where else",
                parent.display()
            ))
        };
        if parent.to_string_lossy().contains(SEPARATORS) {
            let cannot = "its name has a colon or a space, which LD_PRELOAD cannot have";
            return Err(failed(io::Error::other(cannot)));
        }
        let folder = tempfile::Builder::new().prefix("prof-").tempdir().map_err(failed)?;
        let path = folder.path().join(NAME);
        std::fs::write(&path, BYTES).map_err(failed)?;
        // Also for children that give up their rights, but not for anybody to change.
        for (path, mode) in [(folder.path(), 0o711), (path.as_path(), 0o755)] {
            let permissions = std::fs::Permissions::from_mode(mode);
            std::fs::set_permissions(path, permissions).map_err(failed)?;
        }
        let ring = Ring::create(interval, mappings, folder.path()).map_err(|e| {
            Error::other(format!("there is no memory to share with the command: {e}"))
        })?;
        Ok(Library { folder: Some(folder), path, ring })
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
        let ring = self.ring.path().as_os_str().to_owned();
        vec![("LD_PRELOAD".into(), preload), (VARIABLE.into(), ring)]
    }

    /// Removes the library, unless somebody still has it: what that starts would complain about
    /// a library that is gone. Returns where it stays then.
    pub fn remove(mut self) -> Option<PathBuf> {
        let own = std::process::id() as i32;
        let others = procfs::processes().into_iter().filter(|&pid| pid != own);
        let used = others.into_iter().any(|pid| has_mapped(pid, &self.path));
        let folder = self.folder.take()?;
        used.then(|| folder.keep())
    }
}

fn has_mapped(pid: i32, path: &Path) -> bool {
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
    maps.contains(path.to_string_lossy().as_ref())
}
