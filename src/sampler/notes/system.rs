//! Notes about limits of the system: files, ring buffers, counters and CPUs.

use std::fmt;

use super::Importance;

/// A note about a limit of the system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SystemNote {
    /// The limit of open files was raised.
    OpenFilesRaised {
        /// The limit before.
        from: u64,
        /// The limit now.
        to: u64,
        /// The number of threads that need it.
        threads: usize,
    },
    /// The rings are smaller than they should be.
    SmallRings {
        /// Their size in bytes.
        size: usize,
        /// The intended size in bytes.
        wanted: usize,
        /// The `kernel.perf_event_mlock_kb` that allows it.
        mlock_kb: usize,
    },
    /// CPUs went offline.
    CpusLeft {
        /// The CPUs.
        cpus: Vec<u32>,
        /// They are sampled again when they come back.
        returns: bool,
    },
    /// These CPUs came online and were not sampled.
    CpusCame(Vec<u32>),
    /// An event shared the machine's counters with others.
    TookTurns {
        /// The event's name.
        event: String,
        /// The share of the time in which it was counted.
        percent: u64,
    },
}

impl SystemNote {
    pub(super) fn importance(&self) -> Importance {
        match self {
            SystemNote::CpusLeft { .. } | SystemNote::CpusCame(_) => Importance::Figures,
            SystemNote::OpenFilesRaised { .. }
            | SystemNote::SmallRings { .. }
            | SystemNote::TookTurns { .. } => Importance::Detail,
        }
    }
}

impl fmt::Display for SystemNote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SystemNote::OpenFilesRaised { from, to, threads } => write!(
                f,
                "raised the limit of open files from {from} to {to} for {threads} threads"
            ),
            SystemNote::SmallRings { size, wanted, mlock_kb } => write!(
                f,
                "ring buffers are {} KiB a CPU instead of {} KiB, so samples may be lost at high \
                 rates: the locked-memory limit; as root: sysctl \
                 kernel.perf_event_mlock_kb={mlock_kb}",
                size >> 10,
                wanted >> 10
            ),
            SystemNote::CpusLeft { cpus, returns } => write!(
                f,
                "CPU {} went offline during the recording: it {}",
                list(cpus),
                if *returns {
                    "was sampled again within about 0.2 s after it came back, if it did"
                } else {
                    "was not sampled after that"
                }
            ),
            SystemNote::CpusCame(cpus) => {
                write!(f, "CPU {} came online during the recording and was not sampled", list(cpus))
            }
            SystemNote::TookTurns { event, percent } => write!(
                f,
                "{event} was counted {percent} % of the time, since there are more events than \
                 counters: its values are scaled"
            ),
        }
    }
}

fn list(cpus: &[u32]) -> String {
    cpus.iter().map(u32::to_string).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::super::assert_notes;
    use super::Importance::{Detail, Figures};
    use super::*;

    #[test]
    fn limits_are_details_and_missing_cpus_are_not() {
        assert_notes(vec![
            (
                SystemNote::OpenFilesRaised { from: 1024, to: 4096, threads: 9 },
                Detail,
                "raised the limit of open files from 1024 to 4096 for 9 threads",
            ),
            (
                SystemNote::SmallRings { size: 64 << 10, wanted: 1 << 20, mlock_kb: 1100 },
                Detail,
                "ring buffers are 64 KiB a CPU instead of 1024 KiB, so samples may be lost at \
                 high rates: the locked-memory limit; as root: sysctl \
                 kernel.perf_event_mlock_kb=1100",
            ),
            (
                SystemNote::CpusLeft { cpus: vec![1, 2], returns: true },
                Figures,
                "CPU 1, 2 went offline during the recording: it was sampled again within about \
                 0.2 s after it came back, if it did",
            ),
            (
                SystemNote::CpusLeft { cpus: vec![1], returns: false },
                Figures,
                "CPU 1 went offline during the recording: it was not sampled after that",
            ),
            (
                SystemNote::CpusCame(vec![5]),
                Figures,
                "CPU 5 came online during the recording and was not sampled",
            ),
            (
                SystemNote::TookTurns { event: "cycles".to_owned(), percent: 50 },
                Detail,
                "cycles was counted 50 % of the time, since there are more events than counters: \
                 its values are scaled",
            ),
        ]);
    }
}
