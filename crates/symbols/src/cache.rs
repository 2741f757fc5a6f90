//! Cache of symbols between recordings, one file for each build of a binary.
//!
//! A file is named by its key: everything that its contents depend on (`key`). Its contents are
//! validated before use ([`EncodedFrames`]); a damaged file counts as missing. The least recently used files
//! are removed when the total size exceeds the limit.

mod key;

use std::fs;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{Duration, SystemTime};

use super::encoded_frames::{EncodedFrames, FrameEncoder};
use super::private::PrivateDir;
pub use key::CacheKey;

/// Limit of the total size of a cache in bytes, unless `PROF_CACHE_SIZE` sets another.
pub const DEFAULT_SIZE: u64 = 512 << 20;

/// Extension of the file names.
const ENDING: &str = ".names";

/// Prefix of the names of unfinished files.
const UNFINISHED: &str = ".unfinished-";

/// Age after which an unfinished file counts as abandoned.
const STALE: Duration = Duration::from_secs(3600);

/// A directory of cached symbols.
#[derive(Debug)]
pub struct Cache {
    dir: PathBuf,
    max_size: u64,
    /// The user set its size, so failures are reported.
    is_explicit: bool,
    errors: Mutex<Vec<String>>,
}

impl Cache {
    /// The user's cache: `prof` in the directory that `XDG_CACHE_HOME` names, or in `~/.cache`;
    /// `None` if there is no home, or `PROF_CACHE_SIZE` is 0.
    ///
    /// # Errors
    ///
    /// `PROF_CACHE_SIZE` is not a valid size.
    pub fn for_user() -> Result<Option<Cache>, String> {
        let var = |name: &str| std::env::var_os(name).filter(|v| !v.is_empty());
        let size = match var("PROF_CACHE_SIZE") {
            Some(text) => Some(text.to_str().and_then(bytes).ok_or_else(|| {
                format!("PROF_CACHE_SIZE: {text:?} is not a size; use for example 512M, or 0 for no cache")
            })?),
            None => None,
        };
        // The XDG base directory specification ignores relative paths.
        let path = |name| var(name).map(PathBuf::from).filter(|p| p.is_absolute());
        let dir = path("XDG_CACHE_HOME").or_else(|| path("HOME").map(|home| home.join(".cache")));
        let cache = dir.filter(|_| size != Some(0)).map(|dir| {
            let max_size = size.unwrap_or(DEFAULT_SIZE);
            Cache { is_explicit: size.is_some(), ..Cache::at(dir.join("prof"), max_size) }
        });
        Ok(cache)
    }

    /// A cache of at most `max_size` bytes in the directory `dir`, which is created on first use.
    pub fn at(dir: PathBuf, max_size: u64) -> Cache {
        Cache { dir, max_size, is_explicit: false, errors: Mutex::default() }
    }

    /// Its errors so far, one sentence each.
    pub fn errors(&self) -> Vec<String> {
        self.errors.lock().unwrap_or_else(|e| e.into_inner()).clone()
    }

    fn add_error(&self, what: String) {
        self.errors.lock().unwrap_or_else(|e| e.into_inner()).push(what);
    }

    /// Loads the frames that are stored under `key`.
    pub fn load(&self, key: &CacheKey) -> Option<EncodedFrames> {
        let directory = PrivateDir::open_itself(&self.dir).ok()?;
        let name = file_name(key);
        let (file, metadata) = directory.file(Path::new(&name)).ok()?;
        let size = metadata.len();
        if size > self.max_size {
            return None;
        }
        let mut bytes = Vec::with_capacity(size as usize);
        (&file).take(size).read_to_end(&mut bytes).ok()?;
        match EncodedFrames::parse(bytes, key.text()) {
            Ok(stored) => {
                // Marks it as used; if this fails, only the order of removal is worse.
                file.set_modified(SystemTime::now()).ok();
                stored
            }
            Err(damage) => {
                let path = self.dir.join(name);
                self.add_error(format!("{} is damaged ({damage}) and not used", path.display()));
                None
            }
        }
    }

    /// Stores frames under `key`, in place of the old file, and removes old files until the total
    /// size is below the limit. A concurrent reader sees the old file or the new one.
    pub fn store(&self, key: &CacheKey, frames: &FrameEncoder) {
        let Some(bytes) = frames.encode(key.text(), self.max_size) else { return };
        let result = self.write(&file_name(key), &bytes);
        if let Err(error) = result
            && (self.is_explicit || is_blocked(&self.dir))
        {
            let mut errors = self.errors.lock().unwrap_or_else(|e| e.into_inner());
            let what = format!("cannot cache symbols in {}: {error}", self.dir.display());
            if !errors.contains(&what) {
                errors.push(what);
            }
        }
    }

    fn write(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        let directory = PrivateDir::make_itself(&self.dir)?;
        // Only its owner can read it (mode 0600).
        let mut file =
            tempfile::Builder::new().prefix(UNFINISHED).tempfile_in(directory.entries())?;
        file.write_all(bytes)?;
        file.persist(directory.path(Path::new(name)))?;
        self.shrink(&directory)
    }

    /// Removes files, the least recently used first, until the rest is below the limit.
    fn shrink(&self, directory: &PrivateDir) -> io::Result<()> {
        let mut files = Vec::new();
        let now = SystemTime::now();
        for entry in fs::read_dir(directory.entries())?.flatten() {
            let name = entry.file_name();
            let name = name.to_string_lossy();
            // Another process may have removed it.
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

/// Parses a number of bytes, such as `1000000`, `512M` or `2G`.
fn bytes(text: &str) -> Option<u64> {
    let (number, shift) = match text.trim_end_matches(['B', 'b']) {
        text if text.ends_with(['K', 'k']) => (&text[..text.len() - 1], 10),
        text if text.ends_with(['M', 'm']) => (&text[..text.len() - 1], 20),
        text if text.ends_with(['G', 'g']) => (&text[..text.len() - 1], 30),
        text => (text, 0),
    };
    number.parse::<u64>().ok()?.checked_mul(1 << shift)
}

fn file_name(key: &CacheKey) -> String {
    key.file_name() + ENDING
}

/// True if something other than a directory is in the place of `dir` or its parent: unlike a
/// missing home or that of another user, this is a mistake.
fn is_blocked(dir: &Path) -> bool {
    dir.ancestors().any(|path| path.exists() && !path.is_dir())
}

#[cfg(test)]
mod tests;
