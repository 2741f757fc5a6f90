//! What answers depend on.

use std::fs::{self, File};
use std::hash::Hasher;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use object::Object;
use object::read::ReadCache;
use rustc_hash::FxHasher;

use crate::symbolize::Options;
use crate::symbolize::source::{Found, Layer};

/// Changes with the format of the files.
const VERSION: &str = "prof names 1";

/// Everything that the answers for a binary depend on: its build, the files that are asked, how
/// they are asked, and which prof does it. When any of it differs, so does the key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Key {
    build_id: String,
    text: String,
}

impl Key {
    /// The key of a binary; `None` when its answers cannot be kept: it has no build id, or they
    /// may depend on more than is known here.
    pub fn of(found: &Found, options: &Options) -> Option<Key> {
        let build_id = &found.headers.build_id;
        // A file's name must have room for it.
        if !(8..=128).contains(&build_id.len()) {
            return None;
        }
        // Another prof may name the same function in another way.
        let prof = identity(Path::new("/proc/self/exe"))?;
        let mut text = format!(
            "{VERSION} by {prof}\nbuild {build_id}\ninlines {} demangle {}\n",
            options.inlines, options.demangle,
        );
        for layer in &found.layers {
            text += &source(layer, options)?;
        }
        Some(Key { build_id: build_id.clone(), text })
    }

    #[cfg(test)]
    pub fn for_test(build_id: &str) -> Key {
        Key { build_id: build_id.to_owned(), text: format!("test {build_id}\n") }
    }

    /// The key in words, which a file of the cache begins with.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Different keys may (hardly ever) share a name.
    pub fn file_name(&self) -> String {
        let mut hasher = FxHasher::default();
        hasher.write(self.text.as_bytes());
        format!("{}-{:016x}", self.build_id, hasher.finish())
    }
}

/// One file that is asked, and what it leads to.
fn source(layer: &Layer, options: &Options) -> Option<String> {
    let debug_info = if layer.debug_info { "debug info" } else { "symbols" };
    if layer.is_unpacked() {
        // It came out of the binary.
        return Some(format!("{debug_info} packed\n"));
    }
    // What was put aside may be in many files.
    if layer.split {
        return None;
    }
    let mut text = format!("{debug_info} {}\n", identity(&layer.path)?);
    if layer.debug_info {
        let mut package = layer.path.clone();
        package.as_mut_os_string().push(".dwp");
        if let Some(package) = identity(&package) {
            text += &format!("package {package}\n");
        }
        if let Some(shared) = shared(&layer.path, options)? {
            text += &format!("shared {shared}\n");
        }
    }
    Some(text)
}

/// A file with these times is the same one, however it is reached: paths under `/proc` differ
/// from one recording to the next.
fn identity(path: &Path) -> Option<String> {
    let m = fs::metadata(path).ok()?;
    Some(format!(
        "{}:{} {} bytes, modified {}.{:09}, changed {}.{:09}",
        m.dev(),
        m.ino(),
        m.len(),
        m.mtime(),
        m.mtime_nsec(),
        m.ctime(),
        m.ctime_nsec()
    ))
}

/// The file with what the debug information of several files has in common (`dwz -m`), if the
/// one at `path` has such; the outer `None`: what will be asked is not known.
fn shared(path: &Path, options: &Options) -> Option<Option<String>> {
    let cache = ReadCache::new(File::open(path).ok()?);
    let object = object::File::parse(&cache).ok()?;
    if object.section_by_name(".debug_sup").is_some()
        || object.section_by_name(".gnu_debuglink").is_some()
    {
        return None;
    }
    let Some((name, build_id)) = object.gnu_debugaltlink().ok()? else { return Some(None) };
    let name = PathBuf::from(std::str::from_utf8(name).ok()?);
    let id = crate::process::elf::hex(build_id);
    // In this order the symbolizer looks; without any, it may come later.
    let (start, rest) = id.split_at_checked(2)?;
    let by_id = format!(".build-id/{start}/{rest}.debug");
    let dirs = || options.debug_dirs.iter();
    let beside = path.canonicalize().ok()?.with_file_name(&name);
    let mut places = dirs().map(|d| d.join(&by_id)).chain(dirs().map(|d| d.join(&name)));
    places.find_map(|p| identity(&p)).or_else(|| identity(&beside)).map(Some)
}
