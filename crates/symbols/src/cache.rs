//! Answers kept from one recording to the next, one file for each build of a binary.
//!
//! A file is named by its key: everything that the answers depend on (`key`). What is in it is
//! checked before it is believed (`stored`); one that is damaged is as good as none. The least
//! recently used files are removed when all together are too large.

mod key;
mod stored;

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{Duration, SystemTime};

pub use key::Key;
#[cfg(fuzzing)]
pub use stored::fuzz_kept_names;
pub use stored::{Merged, Stored};

use sys::os::uid;

/// Bytes that all files of a cache may have together, unless `PROF_CACHE_SIZE` says otherwise.
pub const DEFAULT_SIZE: u64 = 512 << 20;

/// Ending of the files' names.
const ENDING: &str = ".names";

/// Beginning of the names of files that are being written.
const UNFINISHED: &str = ".unfinished-";

/// A file that is still being written after that long never will be.
const STALE: Duration = Duration::from_secs(3600);

/// A folder with answers.
#[derive(Debug)]
pub struct Cache {
    dir: PathBuf,
    max_size: u64,
    /// The user asked for it, and wants to hear when it does not work.
    asked_for: bool,
    troubles: Mutex<Vec<String>>,
}

impl Cache {
    /// The user's cache: `prof` in the folder that `XDG_CACHE_HOME` names, or in `~/.cache`;
    /// `None` when there is no home, or when `PROF_CACHE_SIZE` is 0.
    ///
    /// # Errors
    ///
    /// `PROF_CACHE_SIZE` is no size.
    pub fn of_user() -> Result<Option<Cache>, String> {
        let var = |name: &str| std::env::var_os(name).filter(|v| !v.is_empty());
        let size = match var("PROF_CACHE_SIZE") {
            Some(text) => Some(text.to_str().and_then(bytes).ok_or_else(|| {
                format!("PROF_CACHE_SIZE: {text:?} is no size; for example 512M, or 0 for no cache")
            })?),
            None => None,
        };
        // As the XDG base directory specification says, relative paths are no paths.
        let path = |name| var(name).map(PathBuf::from).filter(|p| p.is_absolute());
        let dir = path("XDG_CACHE_HOME").or_else(|| path("HOME").map(|home| home.join(".cache")));
        let cache = dir.filter(|_| size != Some(0)).map(|dir| {
            let max_size = size.unwrap_or(DEFAULT_SIZE);
            Cache { asked_for: size.is_some(), ..Cache::at(dir.join("prof"), max_size) }
        });
        Ok(cache)
    }

    /// A cache of at most `max_size` bytes in the folder `dir`, which is made when it is needed.
    pub fn at(dir: PathBuf, max_size: u64) -> Cache {
        Cache { dir, max_size, asked_for: false, troubles: Mutex::default() }
    }

    /// What was wrong with it, one sentence each.
    pub fn troubles(&self) -> Vec<String> {
        self.troubles.lock().unwrap_or_else(|e| e.into_inner()).clone()
    }

    fn trouble(&self, what: String) {
        self.troubles.lock().unwrap_or_else(|e| e.into_inner()).push(what);
    }

    /// The answers that are kept under `key`.
    pub fn load(&self, key: &Key) -> Option<Stored> {
        owned_folder(&self.dir).ok()?;
        let path = self.path(key);
        let (file, size) = open_owned(&path).ok()?;
        if size > self.max_size {
            return None;
        }
        let mut bytes = Vec::with_capacity(size as usize);
        file.take(size).read_to_end(&mut bytes).ok()?;
        match Stored::parse(bytes, key) {
            Ok(stored) => {
                touch(&path);
                stored
            }
            Err(damage) => {
                self.trouble(format!("{} is damaged ({damage}) and not used", path.display()));
                None
            }
        }
    }

    /// Keeps `answers` under `key`, instead of what is there, and removes old files until all are
    /// small enough. Whoever reads the file at the same time sees the old one or the new one.
    pub fn store(&self, key: &Key, answers: &Merged) {
        if answers.size(key) > self.max_size.min(u32::MAX.into()) {
            return;
        }
        let bytes = answers.encode(key);
        let result = self.write(&self.path(key), &bytes).and_then(|()| self.shrink());
        if let Err(error) = result
            && (self.asked_for || is_blocked(&self.dir))
        {
            let mut troubles = self.troubles.lock().unwrap_or_else(|e| e.into_inner());
            let what = format!("names cannot be kept in {}: {error}", self.dir.display());
            if !troubles.contains(&what) {
                troubles.push(what);
            }
        }
    }

    fn path(&self, key: &Key) -> PathBuf {
        self.dir.join(key.file_name() + ENDING)
    }

    fn write(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        make_folder(&self.dir)?;
        // Only its owner can read it (mode 0600).
        let mut file = tempfile::Builder::new().prefix(UNFINISHED).tempfile_in(&self.dir)?;
        file.write_all(bytes)?;
        file.persist(path)?;
        Ok(())
    }

    /// Removes files, the least recently used first, until the others are small enough.
    fn shrink(&self) -> io::Result<()> {
        let mut files = Vec::new();
        let now = SystemTime::now();
        for entry in fs::read_dir(&self.dir)?.flatten() {
            let name = entry.file_name();
            let name = name.to_string_lossy();
            // Another process may have removed it by now.
            let Ok(meta) = entry.metadata() else { continue };
            let Ok(used) = meta.modified() else { continue };
            if name.starts_with(UNFINISHED) {
                if now.duration_since(used).is_ok_and(|age| age > STALE) {
                    fs::remove_file(entry.path()).ok();
                }
            } else if name.ends_with(ENDING) {
                files.push((used, meta.len(), entry.path()));
            }
        }
        let mut size: u64 = files.iter().map(|f| f.1).sum();
        files.sort();
        for (_, length, path) in files {
            if size <= self.max_size {
                break;
            }
            if fs::remove_file(path).is_ok() {
                size -= length;
            }
        }
        Ok(())
    }
}

/// A number of bytes, such as `1000000`, `512M` or `2G`.
fn bytes(text: &str) -> Option<u64> {
    let (number, shift) = match text.trim_end_matches(['B', 'b']) {
        text if text.ends_with(['K', 'k']) => (&text[..text.len() - 1], 10),
        text if text.ends_with(['M', 'm']) => (&text[..text.len() - 1], 20),
        text if text.ends_with(['G', 'g']) => (&text[..text.len() - 1], 30),
        text => (text, 0),
    };
    number.parse::<u64>().ok()?.checked_mul(1 << shift)
}

/// Fails unless `dir` is a folder of ours that nobody else can write to: names from the files of
/// others are not to be trusted.
fn owned_folder(dir: &Path) -> io::Result<()> {
    let meta = fs::symlink_metadata(dir)?;
    if meta.is_dir() && is_ours(&meta) {
        return Ok(());
    }
    Err(io::Error::other("it is not a folder that only its owner, who runs prof, can write to"))
}

fn is_ours(meta: &fs::Metadata) -> bool {
    meta.uid() == uid() && meta.mode() & 0o022 == 0
}

/// Something that is no folder stands where `dir`, or a folder that it is in, should be: unlike a
/// home that is not there, or is another user's, that is nobody's intention.
fn is_blocked(dir: &Path) -> bool {
    dir.ancestors().any(|path| fs::metadata(path).is_ok_and(|m| !m.is_dir()))
}

/// Makes `dir` and the folder that it is in, if need be, but not in a folder of someone else's:
/// what root left there its owner could neither use nor remove.
fn make_folder(dir: &Path) -> io::Result<()> {
    let make = |dir: &Path| match DirBuilder::new().mode(0o700).create(dir) {
        Err(e) if e.kind() != io::ErrorKind::AlreadyExists => Err(e),
        _ => Ok(()),
    };
    if let Some(parent) = dir.parent().filter(|_| !dir.exists()) {
        let there = if parent.exists() { Some(parent) } else { parent.parent() };
        match there.map(fs::metadata).transpose()? {
            Some(meta) if meta.uid() == uid() => {}
            _ => return Err(io::Error::other("the folder that it is in belongs to someone else")),
        }
        make(parent)?;
        make(dir)?;
    }
    owned_folder(dir)
}

/// Opens a file of ours, not one that a link leads to, and returns its size in bytes.
fn open_owned(path: &Path) -> io::Result<(File, u64)> {
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    let meta = file.metadata()?;
    if meta.is_file() && is_ours(&meta) {
        return Ok((file, meta.len()));
    }
    Err(io::Error::other("it is not a file of the user's"))
}

/// Tells [`Cache::shrink`] that the file was used.
fn touch(path: &Path) {
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
    let file = OpenOptions::new().append(true).custom_flags(flags).open(path);
    // Without it, only the order of removal is worse.
    file.and_then(|f| f.set_modified(SystemTime::now())).ok();
}

#[cfg(test)]
mod tests;
