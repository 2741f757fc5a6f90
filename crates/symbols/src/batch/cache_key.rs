//! What cached results depend on.

use std::fs::File;
use std::os::unix::fs::MetadataExt;

use crate::SymbolOptions;
use crate::cache::CacheKey;
use crate::kernel;
use crate::source::{Layer, SymbolFiles};

/// Version of the file format.
const VERSION: &str = "prof names 2";

/// The key of a binary; `None` if its symbols cannot be cached: it has no build ID, or they may
/// depend on more than the key contains.
pub fn for_files(found: &SymbolFiles, options: &SymbolOptions) -> Option<CacheKey> {
    let build_id = &found.headers.build_id;
    let mut text = beginning(build_id)?;
    text += &format!("inlines {} demangle {}\n", options.inlines, options.demangle);
    for layer in &found.layers {
        text += &source(layer)?;
    }
    CacheKey::new(build_id, text)
}

/// The key of the running kernel's own functions, without its modules: their addresses change with
/// each boot only. `None` if one of the parts is unknown.
pub fn for_kernel() -> Option<CacheKey> {
    let build_id = kernel::running_build_id("[kernel.kallsyms]");
    let text = beginning(&build_id)? + &format!("kernel since boot {}\n", kernel::boot_id()?);
    CacheKey::new(&build_id, text)
}

/// What all keys begin with.
fn beginning(build_id: &str) -> Option<String> {
    // Another build of prof may name the same function differently.
    let prof = identity(&File::open("/proc/self/exe").ok()?)?;
    Some(format!("{VERSION} by {prof}\nbuild {build_id}\n"))
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

#[cfg(test)]
mod tests;
