//! From addresses of a profile to functions, source files and lines, and the functions inlined there;
//! and from a function's name to its place in a file.
//!
//! It never takes a name from a file of another build, shows nothing to a user, and does not know who
//! recorded the profile.
//!
//! Each distinct address is asked once, after the recording (or later, or on another machine).
//! Sources: ELF files and their DWARF (`elf`), found and checked by build id (`source`),
//! `/proc/kallsyms` (`kernel`), the vDSO (`vdso`) and the perf maps and jitdump files of code made
//! at run time (`run_time`). What ELF files say is kept for the next recording (`cache`).

mod answers;
mod cache;
pub mod debuginfod;
mod demangle;
mod elf;
pub mod functions;
mod go;
mod headers;
mod intact;
mod itanium;
mod kernel;
mod mini;
mod outcome;
mod plt;
mod private;
mod run_time;
mod shares;
mod source;
mod split;
#[cfg(test)]
mod tests;
mod vdso;
mod work;
mod worker;

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

pub use cache::Cache;
#[cfg(fuzzing)]
pub use cache::fuzz_kept_names;
pub use demangle::{demangle, full as demangle_full, refused};
pub use outcome::{Binary, Outcome, counted, run_time_code, unsymbolized};
pub use worker::run_if_started as run_if_worker;

use profile::Profile;
use sys::jit::Epoch;

/// How to symbolize.
#[derive(Clone, Debug)]
pub struct Options {
    /// Threads at most.
    pub jobs: usize,
    /// Look for inlined functions.
    pub inlines: bool,
    /// Make mangled names readable (`system_name` keeps the mangled one).
    pub demangle: bool,
    /// Ask for locations again that have lines already.
    pub force: bool,
    /// Paths to open instead of a mapping's own, by index of the mapping: `/proc/self/fd/7` for a
    /// deleted file, a path under `/proc/PID/root` for one in a container.
    pub files: HashMap<u32, PathBuf>,
    /// What a recording knows of code made at run time, by index of the mapping.
    pub run_time: HashMap<u32, Arc<Epoch>>,
    /// Mappings whose files have changed since, and have no build id to tell.
    pub changed: HashSet<u32>,
    /// Folders with separate debug files, as in `/usr/lib/debug`.
    pub debug_dirs: Vec<PathBuf>,
    /// Folders of the user's with binaries and debug files.
    pub symbol_path: Vec<PathBuf>,
    /// Where debug files that are nowhere else are fetched from.
    pub debuginfod: Option<Arc<debuginfod::Debuginfod>>,
    /// Where answers are kept from one recording to the next.
    pub cache: Option<Arc<Cache>>,
    /// When this becomes true, what has not been asked yet stays without names.
    pub stop: Arc<AtomicBool>,
    /// The files are parsed in processes of their own, with limits (see [`worker`]). This program
    /// has to call [`run_if_worker`] first of all.
    pub apart: bool,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            jobs: std::thread::available_parallelism().map_or(1, usize::from),
            inlines: true,
            demangle: true,
            force: false,
            files: HashMap::new(),
            run_time: HashMap::new(),
            changed: HashSet::new(),
            debug_dirs: vec!["/usr/lib/debug".into()],
            symbol_path: Vec::new(),
            debuginfod: None,
            cache: None,
            stop: Arc::default(),
            apart: false,
        }
    }
}

/// Gives the locations of `profile` that have no lines their names, as far as they can be found.
///
/// A binary whose build id differs from the recorded one gives no names. `progress` is called with
/// addresses done and addresses to do, from several threads.
pub fn symbolize(
    profile: &mut Profile,
    options: &Options,
    progress: &(dyn Fn(usize, usize) + Sync),
) -> Outcome {
    work::symbolize(profile, options, progress)
}
