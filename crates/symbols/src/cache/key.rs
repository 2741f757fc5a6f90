//! What answers depend on.

use std::fs::File;
use std::hash::Hasher;
use std::os::unix::fs::MetadataExt;

use rustc_hash::FxHasher;

use crate::Options;
use crate::source::{Found, Layer};

/// Changes with the format of the files.
const VERSION: &str = "prof names 2";

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
        let prof = identity(&File::open("/proc/self/exe").ok()?)?;
        let mut text = format!(
            "{VERSION} by {prof}\nbuild {build_id}\ninlines {} demangle {}\n",
            options.inlines, options.demangle,
        );
        for layer in &found.layers {
            text += &source(layer)?;
        }
        Some(Key { build_id: build_id.clone(), text })
    }

    /// A key of no file.
    #[cfg(any(test, fuzzing))]
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
fn source(layer: &Layer) -> Option<String> {
    let debug_info = if layer.debug_info { "debug info" } else { "symbols" };
    if layer.unpacked {
        // It came out of the binary.
        return Some(format!("{debug_info} packed\n"));
    }
    let mut text = format!("{debug_info} {}\n", identity(&layer.file)?);
    if let Some(shared) = &layer.shared {
        text += &format!("shared {}\n", identity(shared)?);
    } else if layer.split {
        // What was put aside may be in many files, or come later.
        return None;
    }
    Some(text)
}

/// A file with these times is the same one, however it is reached: paths under `/proc` differ
/// from one recording to the next.
fn identity(file: &File) -> Option<String> {
    let m = file.metadata().ok()?;
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
