//! What a symbolization is asked to do.

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use sys::cpu_allowance::CpuAllowance;
use sys::foreign::Root;
use sys::jit::Epoch;

use super::cache::Cache;
use super::debuginfod::Debuginfod;
use super::kernel::KeptSymbols;

/// Options of symbolization.
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
    /// Code made at run time may have been sampled at any time, though the profile has a single
    /// mapping of it: an address that several pieces of code had has no name.
    pub at_any_time: bool,
    /// Mappings whose files have changed since, and have no build ID.
    pub changed: HashSet<u32>,
    /// Directories of separate debug files, as `/usr/lib/debug`.
    pub debug_dirs: Vec<PathBuf>,
    /// The user's directories of binaries and debug files.
    pub symbol_path: Vec<PathBuf>,
    /// Client that fetches missing debug files.
    pub debuginfod: Option<Arc<Debuginfod>>,
    /// Cache of results between recordings.
    pub cache: Option<Arc<Cache>>,
    /// If this becomes true, the remaining addresses stay without names.
    pub stop: Arc<AtomicBool>,
    /// Parse files in separate processes, with limits (see [`Worker`](crate::worker::Worker)). This
    /// program has to call [`run_if_worker`](crate::run_if_worker) first of all.
    pub separate_process: bool,
    /// The lookup pauses while prof has used the CPU time that it allows itself.
    pub allowance: Option<Arc<CpuAllowance>>,
    /// Keeps the kernel's list of symbols for further lookups.
    pub kernel: Option<Arc<KeptSymbols>>,
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
            at_any_time: false,
            changed: HashSet::new(),
            debug_dirs: vec!["/usr/lib/debug".into()],
            symbol_path: Vec::new(),
            debuginfod: None,
            cache: None,
            stop: Arc::default(),
            separate_process: false,
            allowance: None,
            kernel: None,
        }
    }
}
