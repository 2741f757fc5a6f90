//! Names of a binary without a worker process, for fuzz targets.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use super::SymbolOptions;
use super::elf;
use super::opener::{DirectOpener, Place};
use super::source::Layer;

/// Resolves sorted addresses of a file as a worker does, and returns how many of them have names.
/// The file names no other one that is read.
pub fn resolve_in_process(file: File, addresses: &[u64]) -> usize {
    let layer = Layer {
        place: Place::own(Path::new("/nonexistent")),
        file: Arc::new(file),
        debug_info: true,
        split: true,
        shared: None,
        unpacked: false,
    };
    let resolve = move || {
        let options = SymbolOptions { debug_dirs: Vec::new(), ..SymbolOptions::default() };
        let frames =
            elf::resolve(&[layer], addresses, &options, &DirectOpener::default(), &|_| {}).ok()?;
        Some((0..frames.len()).filter(|&i| !frames.get(i).is_empty()).count())
    };
    std::thread::scope(|scope| {
        let thread =
            std::thread::Builder::new().stack_size(elf::STACK).spawn_scoped(scope, resolve);
        thread.expect("another thread").join().expect("no panic").unwrap_or(0)
    })
}
