//! Common parts of the end-to-end tests: runs of the built binary, builds of targets, readers of
//! the results.

pub mod browser;
pub mod conditions;
pub mod edges;
pub mod go;
pub mod injected;
pub mod interpreted;
pub mod json;
pub mod llvm;
pub mod machine;
pub mod pprof;
pub mod python;
pub mod recorded;
pub mod recorders;
pub mod run;
pub mod statistics;
pub mod stepped;
pub mod system;
pub mod targets;
pub mod tracee;
pub mod unnamed;
pub mod unprivileged;
pub mod views;
pub mod waits;
pub mod whole;

pub use conditions::{holds, until, until_file_times_advance};
pub use pprof::Pprof;
pub use recorders::{PerfRecording, ProfRecording, Waiting, figures};
pub use run::{Output, Prof, Running};
pub use statistics::{
    ChiSquared, Counts, Random, Verdict, decide, distance_of_equals, draw_until_decided, manhattan,
    most_by_chance, one_of_three,
};
pub use system::{needs, skip};
pub use targets::{Build, copy_program, target, write_program};
pub use unnamed::{unnamed, write};

use std::path::Path;

/// A fresh directory for one test, removed when dropped.
pub fn temp_dir() -> tempfile::TempDir {
    machine::share();
    tempfile::Builder::new().prefix("prof-test-").tempdir().expect("a temporary directory")
}

/// Reads a recording with the tests' own decoder.
pub fn read(path: impl AsRef<Path>) -> Pprof {
    let path = path.as_ref();
    let bytes = std::fs::read(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    Pprof::decode(&bytes)
}

/// Fails unless `got` lies within `tolerance` of `want`; all in percent.
#[track_caller]
pub fn assert_share(what: &str, got: f64, want: f64, tolerance: f64) {
    assert!(
        (got - want).abs() <= tolerance,
        "{what}: {got:.2} %, but {want:.2} % is right (within {tolerance})"
    );
}
