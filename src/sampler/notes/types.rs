//! Notes about the samples of profile types: wall time, what begins and ends, threads.

use std::fmt;

use super::{Importance, Note};
use crate::sampler::bpf::Losses;
use sys::Error;

/// A note about the samples of a profile type.
#[derive(Clone, Debug)]
pub enum TypeNote {
    /// Programs in the kernel sampled a part of the short events.
    ShortEventsSampled {
        /// The profile type.
        noun: &'static str,
        /// The events.
        what: &'static str,
        /// The exact figures to which they are scaled.
        known: &'static str,
        /// Nanoseconds: all longer events were recorded.
        interval: u64,
    },
    /// Programs in the kernel had no room for some threads.
    TooManyThreads {
        /// The profile type.
        noun: &'static str,
        /// The number of missing threads.
        threads: u64,
    },
    /// Only one in N context switches was sampled.
    SwitchesThinned {
        /// N.
        every: u64,
        /// Waits for a CPU after a wake-up count as part of the wait.
        without_wakeups: bool,
    },
    /// Operations with a beginning and an end that are incomplete.
    Pairs {
        /// The profile type.
        noun: &'static str,
        /// Their number.
        count: u64,
        /// Their fault.
        fault: PairFault,
    },
    /// The creation of threads is not recorded; the reason.
    NoCreation(Error),
    /// Number of created threads that are not counted.
    CreatedThreadsMissing(u64),
    /// The recording ended before the first snapshot of threads.
    NoSnapshot,
    /// Number of snapshots of threads of which the average is recorded.
    Snapshots(usize),
    /// Number of threads that ended before a snapshot could read them.
    ThreadsEnded(usize),
    /// Threads whose stack may not be read.
    ThreadsRefused {
        /// Their number.
        threads: usize,
        /// Root may read them.
        root_may: bool,
    },
    /// Running threads could not be sampled; the reason.
    ThreadsNotSampled(Error),
}

/// A fault of operations with a beginning and an end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PairFault {
    /// Left out because records were lost.
    RecordsLost,
    /// Left out because too many lasted at the same time.
    TooMany,
    /// Without the address of the lock, of which there are too many.
    NoAddress,
}

/// Notes about what programs in the kernel could not handle: `noun` is the profile type, `what` is
/// sampled, and `known` is exact nevertheless.
pub fn notes_of_program(
    noun: &'static str,
    Losses { threads, largest_interval: interval }: Losses,
    what: &'static str,
    known: &'static str,
) -> Vec<Note> {
    let short = TypeNote::ShortEventsSampled { noun, what, known, interval };
    let short = (interval > 0).then_some(short);
    let threads = (threads > 0).then_some(TypeNote::TooManyThreads { noun, threads });
    short.into_iter().chain(threads).map(Note::from).collect()
}

impl TypeNote {
    pub(super) fn importance(&self) -> Importance {
        match self {
            TypeNote::TooManyThreads { .. }
            | TypeNote::Pairs { fault: PairFault::TooMany, .. }
            | TypeNote::NoCreation(_)
            | TypeNote::CreatedThreadsMissing(_)
            | TypeNote::NoSnapshot
            | TypeNote::ThreadsEnded(_)
            | TypeNote::ThreadsRefused { .. }
            | TypeNote::ThreadsNotSampled(_) => Importance::Missing,
            TypeNote::SwitchesThinned { without_wakeups: true, .. } => Importance::Figures,
            TypeNote::ShortEventsSampled { .. }
            | TypeNote::SwitchesThinned { without_wakeups: false, .. }
            | TypeNote::Pairs { .. }
            | TypeNote::Snapshots(_) => Importance::Detail,
        }
    }
}

impl fmt::Display for TypeNote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TypeNote::ShortEventsSampled { noun, what, known, interval } => write!(
                f,
                "{noun}: only some of the {what} shorter than {} us were sampled, because there \
                 were too many; they are scaled to {known}",
                interval.div_ceil(1000)
            ),
            TypeNote::TooManyThreads { noun, threads } => write!(
                f,
                "{noun}: {threads} threads are missing: there were too many at once; record fewer \
                 processes"
            ),
            TypeNote::SwitchesThinned { every, without_wakeups } => write!(
                f,
                "threads stopped running so often that only every {every}th time was sampled from \
                 then on; the samples are scaled to the time of each thread in each state{}",
                if *without_wakeups {
                    ", and waiting for a CPU after a wake-up counts as part of the wait"
                } else {
                    ""
                }
            ),
            TypeNote::Pairs { noun, count, fault } => write!(f, "{noun}: {count} {fault}"),
            TypeNote::NoCreation(why) => write!(f, "thread creation is left out: {why}"),
            TypeNote::CreatedThreadsMissing(threads) => write!(
                f,
                "{threads} new threads are missing in the sample type threads_grown: too many \
                 existed at the same time"
            ),
            TypeNote::NoSnapshot => f.write_str(
                "no snapshot of threads: the recording ended before it was due; lower -d, or use \
                 prof threads",
            ),
            TypeNote::Snapshots(n) => write!(
                f,
                "{n} snapshots of threads were taken: sample type threads is their average"
            ),
            TypeNote::ThreadsEnded(1) => f.write_str("1 thread ended before it could be read"),
            TypeNote::ThreadsEnded(n) => write!(f, "{n} threads ended before they could be read"),
            TypeNote::ThreadsRefused { threads, root_may } => write!(
                f,
                "this user may not read the stack of {threads} {}{}",
                if *threads == 1 { "thread" } else { "threads" },
                if *root_may { "; run as root" } else { "" }
            ),
            TypeNote::ThreadsNotSampled(why) => why.fmt(f),
        }
    }
}

impl fmt::Display for PairFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            PairFault::RecordsLost => {
                "are left out: records were lost while they lasted, or their end was"
            }
            PairFault::TooMany => "are left out: too many lasted at the same time",
            PairFault::NoAddress => "have no address in their label 'lock': there were too many",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::assert_notes;
    use super::Importance::{Detail, Figures, Missing};
    use super::*;

    #[test]
    fn extrapolation_is_a_detail_and_missing_threads_are_not() {
        let thinned = "threads stopped running so often that only every 8th time was sampled from \
                       then on; the samples are scaled to the time of each thread in each state";
        let noun = "wall time";
        let what = "waits";
        let known = "the time of each thread";
        assert_notes(vec![
            (
                TypeNote::ShortEventsSampled { noun, what, known, interval: 2001 },
                Detail,
                "wall time: only some of the waits shorter than 3 us were sampled, because there \
                 were too many; they are scaled to the time of each thread",
            ),
            (
                TypeNote::TooManyThreads { noun, threads: 4 },
                Missing,
                "wall time: 4 threads are missing: there were too many at once; record fewer \
                 processes",
            ),
            (TypeNote::SwitchesThinned { every: 8, without_wakeups: false }, Detail, thinned),
            (
                TypeNote::SwitchesThinned { every: 8, without_wakeups: true },
                Figures,
                &format!(
                    "{thinned}, and waiting for a CPU after a wake-up counts as part of the wait"
                ),
            ),
        ]);
    }

    #[test]
    fn incomplete_pairs_are_counted() {
        let of = |fault| TypeNote::Pairs { noun: "lock contention", count: 3, fault };
        assert_notes(vec![
            (
                of(PairFault::RecordsLost),
                Detail,
                "lock contention: 3 are left out: records were lost while they lasted, or their \
                 end was",
            ),
            (
                of(PairFault::TooMany),
                Missing,
                "lock contention: 3 are left out: too many lasted at the same time",
            ),
            (
                of(PairFault::NoAddress),
                Detail,
                "lock contention: 3 have no address in their label 'lock': there were too many",
            ),
        ]);
    }

    #[test]
    fn threads_that_are_missing_are_reported_as_such() {
        let why = || Error::failed("no tracefs");
        assert_notes(vec![
            (TypeNote::NoCreation(why()), Missing, "thread creation is left out: no tracefs"),
            (
                TypeNote::CreatedThreadsMissing(2),
                Missing,
                "2 new threads are missing in the sample type threads_grown: too many existed at \
                 the same time",
            ),
            (
                TypeNote::NoSnapshot,
                Missing,
                "no snapshot of threads: the recording ended before it was due; lower -d, or use \
                 prof threads",
            ),
            (
                TypeNote::Snapshots(3),
                Detail,
                "3 snapshots of threads were taken: sample type threads is their average",
            ),
            (TypeNote::ThreadsEnded(1), Missing, "1 thread ended before it could be read"),
            (TypeNote::ThreadsEnded(2), Missing, "2 threads ended before they could be read"),
            (
                TypeNote::ThreadsRefused { threads: 1, root_may: true },
                Missing,
                "this user may not read the stack of 1 thread; run as root",
            ),
            (
                TypeNote::ThreadsRefused { threads: 2, root_may: false },
                Missing,
                "this user may not read the stack of 2 threads",
            ),
            (TypeNote::ThreadsNotSampled(why()), Missing, "no tracefs"),
        ]);
    }
}
