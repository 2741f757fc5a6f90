//! Notes about the samples of the heap.

mod text;

use std::path::PathBuf;

use super::{Importance, matters};

/// A note about the samples of the heap.
#[derive(Clone, Debug, PartialEq)]
pub enum HeapNote {
    /// Page faults are recorded, because nothing may be injected into the process.
    PageFaultsInstead,
    /// There are no samples.
    NothingSampled(NothingSampled),
    /// Programs that the command started ran without prof's library.
    ProgramsWithout {
        /// Their number.
        without: u64,
        /// The number of all programs.
        programs: u64,
    },
    /// The memory that is shared with the program was damaged; how.
    Damaged(&'static str),
    /// Samples were taken at a longer interval than requested.
    Paced {
        /// Their number.
        paced: u64,
        /// The number of all samples.
        sampled: u64,
        /// The longest interval in bytes.
        longest: u64,
        /// Every allocation was to be recorded.
        every: bool,
    },
    /// Sampled allocations for which there was no space.
    SamplesLost {
        /// Their number.
        lost: u64,
        /// The number of samples.
        sampled: u64,
        /// Their size in bytes.
        bytes: u64,
    },
    /// Allocations that count as in use, because their end was lost.
    FreesLost {
        /// Their number.
        lost: u64,
        /// The number of samples.
        sampled: u64,
    },
    /// Allocations that do not count as in use.
    Untracked {
        /// Their number.
        untracked: u64,
        /// The number of samples.
        sampled: u64,
    },
    /// Number of samples of processes that the kernel did not report.
    UnknownProcesses(u64),
    /// Number of allocations without a stack.
    WithoutStack(u64),
    /// The path at which the library stays.
    LibraryStays(PathBuf),
    /// Nothing in this process could be redirected to the library.
    NothingRedirected(i32),
    /// Binaries that were loaded last were not sampled.
    BinariesMissed,
    /// The library was injected into a process.
    Injected {
        /// The process.
        pid: i32,
        /// The longest stop of one of its threads, in milliseconds.
        stopped_ms: f64,
        /// The process still runs.
        lives: bool,
    },
    /// The library could not be removed from a process.
    StillCalled {
        /// The process.
        pid: i32,
        /// The reason.
        why: String,
    },
    /// Memory that was never freed, but to which pointers led on exit.
    Reachable(Amount),
    /// Leaks to which pointers lead from memory that may not be in use.
    PossiblyLost(Amount),
    /// Memory of processes that were not checked for leaks.
    Unchecked {
        /// The reason.
        why: UncheckedLeaks,
        /// The number of processes.
        processes: u64,
        /// The memory.
        amount: Amount,
    },
}

/// The reason why no allocation was sampled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NothingSampled {
    /// No dynamic linker preloaded the library.
    NotPreloaded,
    /// The command ended before its children allocated.
    CommandEnded,
    /// The number of programs in which the library is not.
    NotLoaded(u64),
    /// The program allocated less than this interval in bytes.
    BelowInterval(u64),
}

/// The reason why a process was not checked for leaks.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum UncheckedLeaks {
    /// It still ran when the recording ended.
    Running,
    /// It ended without running its exit handlers.
    Ended,
    /// The check failed; the reason.
    Failed(String),
}

/// An amount of memory.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Amount {
    /// Number of objects.
    pub objects: f64,
    /// Their size in bytes.
    pub bytes: f64,
}

impl HeapNote {
    pub(super) fn importance(&self) -> Importance {
        match self {
            HeapNote::PageFaultsInstead
            | HeapNote::NothingSampled(_)
            | HeapNote::ProgramsWithout { .. }
            | HeapNote::Damaged(_)
            | HeapNote::NothingRedirected(_)
            | HeapNote::BinariesMissed => Importance::Missing,
            HeapNote::SamplesLost { lost: part, sampled, .. }
            | HeapNote::FreesLost { lost: part, sampled }
            | HeapNote::Untracked { untracked: part, sampled } => {
                if matters(*part, part.saturating_add(*sampled)) {
                    Importance::Figures
                } else {
                    Importance::Detail
                }
            }
            HeapNote::PossiblyLost(_) | HeapNote::Unchecked { .. } => Importance::Figures,
            HeapNote::Paced { .. }
            | HeapNote::UnknownProcesses(_)
            | HeapNote::WithoutStack(_)
            | HeapNote::LibraryStays(_)
            | HeapNote::Injected { .. }
            | HeapNote::StillCalled { .. }
            | HeapNote::Reachable(_) => Importance::Detail,
        }
    }
}
