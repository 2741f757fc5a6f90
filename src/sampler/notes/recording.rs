//! Notes about the target, and about the samples of a recording as a whole.

mod text;

use std::time::Duration;

use super::{Importance, matters};
use crate::sampler::CpuCoverage;
use messages::Message;
use sys::image::NotOpened;

/// A note about a recording as a whole.
#[derive(Clone, Debug, PartialEq)]
pub enum RecordingNote {
    /// The target used hardly any CPU, but its children did, which were not recorded.
    IdleParent {
        /// The target's first process.
        pid: i32,
        /// CPU time of its children.
        children: Duration,
    },
    /// There are no samples.
    NoSamples {
        /// Length of the recording.
        lasted: Duration,
        /// The target.
        scope: Scope,
        /// The reason.
        why: EmptyCause,
    },
    /// The samples do not cover all CPU time of the target.
    Uncovered(UncoveredTime),
    /// The command has other privileges than its user.
    PrivilegedCommand {
        /// The program, with its privileges.
        program: String,
        /// The user is root.
        root: bool,
    },
    /// Processes that the command started outlived it.
    Outlived {
        /// One of them.
        pid: i32,
        /// The name of that process, unless it has ended.
        name: Option<String>,
        /// Their number.
        processes: usize,
        /// The arguments of `prof record` for the recorded profile types.
        arguments: String,
    },
    /// The mappings of other users' processes cannot be read.
    HiddenMappings(Message),
    /// Number of threads without a label of their own.
    UnlabelledThreads(u64),
    /// Number of mappings that were not distinguished.
    IndistinctMappings(u64),
    /// Binaries whose unwind information or code was not read completely, because that exceeded a
    /// limit of time or memory.
    AnalysisLimits(Vec<String>),
    /// Binaries could not be opened, for a reason that the user can mend.
    NotOpened {
        /// The reason.
        why: NotOpened,
        /// Their paths.
        binaries: Vec<String>,
    },
    /// A binary was truncated while it was read.
    BinaryTruncated,
    /// Deep stacks are not copied completely; the reason.
    NoDeepStacks(Message),
    /// Number of deep stacks that were not copied in time.
    DeepStacksLate(u64),
    /// Number of deep stacks of which two copies differ.
    DeepStacksDiffered(u64),
    /// The kernel dropped samples.
    Lost {
        /// Their number.
        lost: u64,
        /// The number of other samples.
        taken: u64,
        /// The processes that they may belong to.
        scope: LossScope,
        /// The CPU time that the other samples cover, if known.
        covered: Option<CpuCoverage>,
        /// The remedies, the best first.
        remedies: Vec<LossRemedy>,
    },
    /// The values of these events include those of lost samples.
    ScaledForLosses(Vec<String>),
    /// Number of lost records about mappings and names.
    LostRecords(u64),
    /// Number of samples beyond the limit of those whose time is kept.
    WithoutTime(u64),
    /// Samples were moved to a file that cannot be read; the reason.
    SpillUnreadable(String),
}

/// The target of a recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Everything that runs.
    Machine,
    /// Processes, threads, a cgroup or a command.
    Target,
}

/// The reason why there are no samples.
#[derive(Clone, Debug, PartialEq)]
pub enum EmptyCause {
    /// The user ended the recording, and the target still runs.
    Interrupted,
    /// These events did not occur.
    NoEvents(Vec<String>),
    /// The target used less CPU time than there is between two samples.
    TooShort {
        /// CPU time in seconds.
        used: f64,
        /// Nanoseconds between two samples.
        period: u64,
    },
    /// The target ended before.
    Ended(SampledPlace),
    /// The target used no CPU.
    Idle(SampledPlace),
}

/// The restriction of samples to a part of the target's CPU time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SampledPlace {
    /// None.
    Everywhere,
    /// To some CPUs.
    SomeCpus,
    /// To kernel code.
    Kernel,
    /// To user code.
    User,
}

/// CPU time that the samples do not cover.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UncoveredTime {
    /// The sampled part.
    pub covered: CpuCoverage,
    /// Nanoseconds between two samples.
    pub period: u64,
    /// The target.
    pub scope: Scope,
    /// The cause.
    pub cause: MissedCause,
}

impl UncoveredTime {
    /// True if the difference is more than chance: four times the standard deviation.
    fn is_certain(&self) -> bool {
        let CpuCoverage { sampled, used } = self.covered;
        let due = (used / self.period.max(1)) as f64;
        let missing = (used.saturating_sub(sampled) / self.period.max(1)) as f64;
        missing > 4.0 * due.sqrt()
    }
}

/// The cause of CPU time without samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MissedCause {
    /// The machine is too slow for the rate.
    TooFrequent,
    /// The kernel skips samples whose timer is late.
    LateTimers,
    /// In addition, the kernel drops samples that interrupt BPF programs.
    LateTimersAndPrograms {
        /// `-g fp` records without the programs.
        frame_pointers_help: bool,
    },
    /// Threads end before their first sample is due; the remedy.
    ShortThreads(ShortThreadRemedy),
}

/// The remedy for threads that end before their first sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShortThreadRemedy {
    /// A rate at which whole CPUs are sampled.
    WholeCpus,
    /// A higher rate, or the whole machine.
    HigherRate,
}

/// The processes that lost samples may belong to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LossScope {
    /// The target's.
    Target,
    /// All.
    AllProcesses,
}

/// A remedy against the loss of samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LossRemedy {
    /// To record fewer processes, as each event is recorded.
    FewerProcesses,
    /// A longer period.
    LongerPeriod,
    /// A period, where each event is recorded.
    AnyPeriod,
    /// A lower rate.
    LowerRate,
    /// A lower rate or a longer period.
    LowerRateOrLongerPeriod,
    /// Smaller copies of stacks, or none.
    SmallerCopies,
    /// To run prof as root.
    Root,
    /// A longer interval between allocations.
    LongerHeapInterval,
}

/// The first names of a list, and the number of the others.
fn first_of(names: &[String]) -> String {
    const SHOWN: usize = 3;
    let more = names.len().saturating_sub(SHOWN);
    let shown = names[..names.len() - more].join(", ");
    if more > 0 { format!("{shown} and {more} more") } else { shown }
}

impl RecordingNote {
    pub(super) fn importance(&self) -> Importance {
        let if_certain = |certain| if certain { Importance::Figures } else { Importance::Detail };
        match self {
            RecordingNote::IdleParent { .. }
            | RecordingNote::NoSamples { .. }
            | RecordingNote::PrivilegedCommand { .. }
            | RecordingNote::Outlived { .. }
            | RecordingNote::SpillUnreadable(_) => Importance::Missing,
            RecordingNote::HiddenMappings(_)
            | RecordingNote::WithoutTime(_)
            | RecordingNote::NotOpened { .. }
            | RecordingNote::AnalysisLimits(_) => Importance::Figures,
            RecordingNote::Uncovered(time) => match time.cause {
                MissedCause::LateTimers | MissedCause::LateTimersAndPrograms { .. } => {
                    Importance::Figures
                }
                MissedCause::TooFrequent | MissedCause::ShortThreads(_) => {
                    if_certain(time.is_certain())
                }
            },
            RecordingNote::Lost { lost, taken, .. } => {
                if_certain(matters(*lost, lost.saturating_add(*taken)))
            }
            // Their shares are among the figures.
            RecordingNote::BinaryTruncated
            | RecordingNote::NoDeepStacks(_)
            | RecordingNote::DeepStacksLate(_)
            | RecordingNote::DeepStacksDiffered(_)
            | RecordingNote::UnlabelledThreads(_)
            | RecordingNote::IndistinctMappings(_)
            | RecordingNote::ScaledForLosses(_)
            | RecordingNote::LostRecords(_) => Importance::Detail,
        }
    }
}
