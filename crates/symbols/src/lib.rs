//! From addresses of a profile to functions, source files and lines, and the functions inlined
//! there; and from a function's name to its offset in a file.
//!
//! It never takes a name from a file of another build, prints nothing, and does not depend on how
//! the profile was recorded.
//!
//! Each distinct address is resolved once, after the recording (or later, or on another machine).
//! Sources: ELF files and their DWARF (`elf`), found and verified by build ID (`source`),
//! `/proc/kallsyms` (`kernel`), the vDSO (`vdso`) and the perf maps and jitdump files of code made
//! at run time (`run_time`). Results from ELF files are kept for the next recording (`cache`).

mod address_frames;
mod aliases;
mod arch;
mod batch;
mod binary;
mod bounds;
mod cache;
pub mod debuginfod;
mod demangle;
mod diagnose_dwarf;
mod elf;
mod embedded;
mod encoded_frames;
mod frame_writer;
pub mod functions;
mod go;
mod headers;
mod kernel;
mod mini_debug_info;
mod names_at;
mod opener;
mod outcome;
mod partition;
mod plt;
mod private;
mod run_time;
mod skeleton;
mod source;
mod split;
#[cfg(test)]
mod tests;
mod vdso;
mod worker;

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

pub use binary::Binary;
pub use cache::Cache;
pub use demangle::{demangle, full as demangle_full, refused};
#[cfg(fuzzing)]
pub use encoded_frames::fuzz_encoded_frames;
pub use names_at::NameAt;
pub use outcome::{BinaryOutcome, Outcome, counted, run_time_code, unsymbolized};
pub use worker::run_if_started as run_if_worker;

use profile::Profile;
use sys::foreign::Root;
use sys::jit::Epoch;

/// SymbolOptions of symbolization.
#[derive(Clone, Debug)]
pub struct SymbolOptions {
    /// Most threads.
    pub jobs: usize,
    /// Resolve inlined functions.
    pub inlines: bool,
    /// Demangle names (`system_name` keeps the mangled one).
    pub demangle: bool,
    /// Resolve locations again that have lines already.
    pub force: bool,
    /// Paths to open instead of a mapping's own, by index of the mapping: `/proc/self/fd/7` for a
    /// deleted file, a path under `/proc/PID/root` for one in a container.
    pub files: HashMap<u32, PathBuf>,
    /// Root directories of the processes that mapped the files, which may have debug files of their
    /// own, by index of the mapping; only those that are not prof's own.
    pub roots: HashMap<u32, Arc<Root>>,
    /// Recorded data about code made at run time, by index of the mapping.
    pub run_time: HashMap<u32, Arc<Epoch>>,
    /// Mappings whose files have changed since, and have no build ID.
    pub changed: HashSet<u32>,
    /// Directories of separate debug files, as `/usr/lib/debug`.
    pub debug_dirs: Vec<PathBuf>,
    /// The user's directories of binaries and debug files.
    pub symbol_path: Vec<PathBuf>,
    /// Client that fetches missing debug files.
    pub debuginfod: Option<Arc<debuginfod::Debuginfod>>,
    /// Cache of results between recordings.
    pub cache: Option<Arc<Cache>>,
    /// If this becomes true, the remaining addresses stay without names.
    pub stop: Arc<AtomicBool>,
    /// Parse files in separate processes, with limits (see [`worker`]). This program has to call
    /// [`run_if_worker`] first of all.
    pub separate_process: bool,
}

impl Default for SymbolOptions {
    fn default() -> SymbolOptions {
        SymbolOptions {
            jobs: std::thread::available_parallelism().map_or(1, usize::from),
            inlines: true,
            demangle: true,
            force: false,
            files: HashMap::new(),
            roots: HashMap::new(),
            run_time: HashMap::new(),
            changed: HashSet::new(),
            debug_dirs: vec!["/usr/lib/debug".into()],
            symbol_path: Vec::new(),
            debuginfod: None,
            cache: None,
            stop: Arc::default(),
            separate_process: false,
        }
    }
}

/// Symbolizes the locations of `profile` that have no lines.
///
/// A binary whose build ID differs from the recorded one yields no names. `progress` is called with
/// addresses done and addresses to do, from several threads.
pub fn symbolize(
    profile: &mut Profile,
    options: &SymbolOptions,
    progress: &(dyn Fn(usize, usize) + Sync),
) -> Outcome {
    batch::symbolize(profile, options, progress)
}
