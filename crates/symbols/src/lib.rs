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
mod images;
#[cfg(feature = "testing")]
mod in_process;
mod kernel;
mod mini_debug_info;
mod names_at;
mod opener;
mod options;
mod outcome;
mod pace;
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

pub use binary::Binary;
pub use cache::Cache;
pub use demangle::{demangle, full as demangle_full, refused};
#[cfg(feature = "testing")]
pub use encoded_frames::fuzz_encoded_frames;
pub use images::place_in_files;
#[cfg(feature = "testing")]
pub use in_process::resolve_in_process;
pub use kernel::KeptSymbols;
pub use names_at::NameAt;
pub use options::SymbolOptions;
pub use outcome::{BinaryOutcome, Outcome, counted, run_time_code, unsymbolized};
pub use source::binary_paths;
pub use worker::run_if_started as run_if_worker;

use profile::Profile;

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
