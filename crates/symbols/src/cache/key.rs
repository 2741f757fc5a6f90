//! Keys of cached symbols.

use std::hash::Hasher;

use rustc_hash::FxHasher;

/// Everything that a binary's symbols depend on: its build, the files that provide them, the
/// options, and the build of prof. Any difference changes the key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CacheKey {
    build_id: String,
    text: String,
}

impl CacheKey {
    /// The key of a build and of what else the text states; `None` without a build ID that fits
    /// into a file name.
    pub fn new(build_id: &str, text: String) -> Option<CacheKey> {
        let build_id = build_id.to_owned();
        (8..=128).contains(&build_id.len()).then_some(CacheKey { build_id, text })
    }

    /// A key that belongs to no file.
    #[cfg(test)]
    pub fn for_test(build_id: &str) -> CacheKey {
        CacheKey { build_id: build_id.to_owned(), text: format!("test {build_id}\n") }
    }

    /// The key as text, which a cache file begins with.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Different keys may share a file name, though rarely.
    pub fn file_name(&self) -> String {
        let mut hasher = FxHasher::default();
        hasher.write(self.text.as_bytes());
        format!("{}-{:016x}", self.build_id, hasher.finish())
    }
}
