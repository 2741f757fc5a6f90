//! Keys of cached symbols.

use std::fs::File;
use std::hash::Hasher;
use std::os::unix::fs::MetadataExt;

use rustc_hash::FxHasher;

use crate::SymbolOptions;
use crate::kernel;
use crate::source::{Layer, SymbolFiles};

/// Version of the file format.
const VERSION: &str = "prof names 2";

/// Everything that a binary's symbols depend on: its build, the files that provide them, the
/// options, and the build of prof. Any difference changes the key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CacheKey {
    build_id: String,
    text: String,
}

impl CacheKey {
    /// The key of a binary; `None` if its symbols cannot be cached: it has no build ID, or they may
    /// depend on more than the key contains.
    pub fn of(found: &SymbolFiles, options: &SymbolOptions) -> Option<CacheKey> {
        let build_id = &found.headers.build_id;
        // It has to fit into a file name.
        if !(8..=128).contains(&build_id.len()) {
            return None;
        }
        // Another build of prof may name the same function differently.
        let prof = identity(&File::open("/proc/self/exe").ok()?)?;
        let mut text = format!(
            "{VERSION} by {prof}\nbuild {build_id}\ninlines {} demangle {}\n",
            options.inlines, options.demangle,
        );
        for layer in &found.layers {
            text += &source(layer)?;
        }
        Some(CacheKey { build_id: build_id.clone(), text })
    }

    /// The key of the running kernel's own functions, without its modules: their addresses change
    /// with each boot only. `None` if one of the parts is unknown.
    pub fn of_kernel() -> Option<CacheKey> {
        let build_id = kernel::running_build_id("[kernel.kallsyms]");
        if !(8..=128).contains(&build_id.len()) {
            return None;
        }
        let prof = identity(&File::open("/proc/self/exe").ok()?)?;
        let boot = kernel::boot_id()?;
        let text = format!("{VERSION} by {prof}\nbuild {build_id}\nkernel since boot {boot}\n");
        Some(CacheKey { build_id, text })
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

/// One symbol file, and the files that it refers to.
fn source(layer: &Layer) -> Option<String> {
    let debug_info = if layer.debug_info { "debug info" } else { "symbols" };
    if layer.unpacked {
        // It was unpacked from the binary.
        return Some(format!("{debug_info} packed\n"));
    }
    let mut text = format!("{debug_info} {}\n", identity(&layer.file)?);
    if let Some(shared) = &layer.shared {
        text += &format!("shared {}\n", identity(shared)?);
    } else if layer.split {
        // Split debug information may be in many files, or appear later.
        return None;
    }
    Some(text)
}

/// Identity of a file's version. Paths are not compared: those under `/proc` differ from one
/// recording to the next.
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
