//! The sentences of [`HeapNote`].

use std::fmt;

use super::{Amount, HeapNote, NothingSampled, UncheckedLeaks};
use profile::label::LEAK;

/// The reason why the library is not in a program.
const NOT_LOADED: &str = "prof's library was not loaded into them (linked statically, setuid, \
                          started without the command's environment, or in a root directory of \
                          their own)";

/// The remedy against losses.
const REMEDY: &str = "raise --heap-interval";

impl fmt::Display for HeapNote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            HeapNote::PageFaultsInstead => f.write_str(
                "recording page faults instead: they show where the process's memory grows; to \
                 record its allocations, add --inject (which injects prof's library), or start it \
                 with prof record -T heap -- COMMAND",
            ),
            HeapNote::NothingSampled(why) => write!(f, "no allocation was sampled: {why}"),
            HeapNote::ProgramsWithout { without, programs } => write!(
                f,
                "{without} of {programs} programs that the command started are not in the heap's \
                 profile: {NOT_LOADED}"
            ),
            HeapNote::Damaged(how) => write!(
                f,
                "the heap's profile ends early: the memory that the program shares with prof was \
                 damaged ({how})"
            ),
            HeapNote::Paced { paced, sampled, longest, every } => write!(
                f,
                "{}the program allocated faster than prof could follow, so {paced} of {sampled} \
                 samples were taken at a longer interval (up to {longest} bytes); each is scaled \
                 by its own",
                if *every { "not every allocation was recorded: " } else { "" }
            ),
            HeapNote::SamplesLost { lost, sampled, bytes } => write!(
                f,
                "{lost} of {} sampled allocations ({:.1} MiB) are missing because prof could not \
                 keep up: {REMEDY}",
                lost + sampled,
                *bytes as f64 / f64::from(1 << 20)
            ),
            HeapNote::FreesLost { lost, .. } => write!(
                f,
                "{lost} sampled allocations count as in use because their end was lost: {REMEDY}"
            ),
            HeapNote::Untracked { untracked, .. } => write!(
                f,
                "{untracked} sampled allocations are not counted as in use, as there were too \
                 many: {REMEDY}"
            ),
            HeapNote::UnknownProcesses(n) => write!(
                f,
                "{n} sampled allocations are of processes that the kernel did not name: they have \
                 no stacks"
            ),
            HeapNote::WithoutStack(n) => {
                write!(f, "{n} allocations have no stack: too many distinct ones")
            }
            HeapNote::LibraryStays(path) => write!(
                f,
                "the library for allocations stays in {} because a program still uses it",
                path.display()
            ),
            HeapNote::NothingRedirected(pid) => {
                write!(f, "nothing in process {pid} calls malloc in a way that could be redirected")
            }
            HeapNote::BinariesMissed => f.write_str(
                "the binaries that the process loaded last were not sampled: no thread came to a \
                 point where they could be hooked",
            ),
            HeapNote::Injected { pid, stopped_ms, lives } => {
                let (stays, others) = if *lives {
                    (", which stays there without effect", ", the others not at all")
                } else {
                    ("", "")
                };
                write!(
                    f,
                    "allocations of process {pid} were recorded since the injection of prof's \
                     library{stays}; one thread was stopped for {stopped_ms:.1} ms at most, not \
                     counting waits for a CPU{others}"
                )
            }
            HeapNote::StillCalled { pid, why } => write!(
                f,
                "prof's library is still called by process {pid}, without recording anything, \
                 because it could not be removed: {why}; the next prof record --inject tries again"
            ),
            HeapNote::Reachable(amount) => write!(
                f,
                "not counted as leaks, because pointers still led there on exit: {amount}"
            ),
            HeapNote::PossiblyLost(amount) => write!(
                f,
                "of the leaks, {amount} (label {LEAK}: perhaps) may not be lost: pointers lead \
                 there from memory of another allocator than glibc's, which may not be in use"
            ),
            HeapNote::Unchecked { why, processes, amount } => {
                let who = match processes {
                    1 => "a process that".to_owned(),
                    n => format!("{n} processes that"),
                };
                write!(
                    f,
                    "the leaks include all that was in use by {who} {why}: {amount} (label {LEAK}: \
                     unchecked)"
                )
            }
        }
    }
}

impl fmt::Display for NothingSampled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NothingSampled::NotPreloaded => {
                f.write_str("no dynamic linker preloaded prof's library into the command")
            }
            NothingSampled::CommandEnded => f.write_str("the command ended before"),
            NothingSampled::NotLoaded(1) => {
                write!(f, "the command started a program, but {NOT_LOADED}")
            }
            NothingSampled::NotLoaded(n) => {
                write!(f, "the command started {n} programs, but {NOT_LOADED}")
            }
            NothingSampled::BelowInterval(interval) => write!(
                f,
                "malloc and similar functions allocated less than the interval of {interval} \
                 bytes; lower --heap-interval"
            ),
        }
    }
}

impl fmt::Display for UncheckedLeaks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            UncheckedLeaks::Running => f.write_str("still ran at the end"),
            UncheckedLeaks::Ended => {
                f.write_str("ended without exit handlers (killed, _exit, exec) or before its check")
            }
            UncheckedLeaks::Failed(why) => write!(f, "could not be checked on exit, as {why}"),
        }
    }
}

impl fmt::Display for Amount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Amount { objects, bytes } = *self;
        let objects = objects.round();
        let noun = if objects == 1.0 { "object" } else { "objects" };
        match bytes / f64::from(1 << 20) {
            mib if mib < 0.1 => write!(f, "{bytes:.0} bytes in {objects} {noun}"),
            mib => write!(f, "{mib:.1} MiB in {objects} {noun}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sampler::notes::Importance::{Detail, Figures, Missing};
    use crate::sampler::notes::assert_notes;

    #[test]
    fn a_heap_without_samples_says_why() {
        assert_notes(vec![
            (
                HeapNote::NothingSampled(NothingSampled::NotPreloaded),
                Missing,
                "no allocation was sampled: no dynamic linker preloaded prof's library into the \
                 command",
            ),
            (
                HeapNote::NothingSampled(NothingSampled::CommandEnded),
                Missing,
                "no allocation was sampled: the command ended before",
            ),
            (
                HeapNote::NothingSampled(NothingSampled::NotLoaded(1)),
                Missing,
                &format!(
                    "no allocation was sampled: the command started a program, but {NOT_LOADED}"
                ),
            ),
            (
                HeapNote::NothingSampled(NothingSampled::BelowInterval(512)),
                Missing,
                "no allocation was sampled: malloc and similar functions allocated less than the \
                 interval of 512 bytes; lower --heap-interval",
            ),
            (
                HeapNote::ProgramsWithout { without: 1, programs: 2 },
                Missing,
                &format!(
                    "1 of 2 programs that the command started are not in the heap's profile: \
                     {NOT_LOADED}"
                ),
            ),
        ]);
    }

    #[test]
    fn losses_of_the_heap_matter_from_one_percent_on() {
        let lost = |lost| HeapNote::SamplesLost { lost, sampled: 990, bytes: 1 << 20 };
        assert_notes(vec![
            (
                lost(10),
                Detail,
                "10 of 1000 sampled allocations (1.0 MiB) are missing because prof could not keep \
                 up: raise --heap-interval",
            ),
            (
                lost(990),
                Figures,
                "990 of 1980 sampled allocations (1.0 MiB) are missing because prof could not \
                 keep up: raise --heap-interval",
            ),
            (
                HeapNote::FreesLost { lost: 9, sampled: 9 },
                Figures,
                "9 sampled allocations count as in use because their end was lost: raise \
                 --heap-interval",
            ),
            (
                HeapNote::Untracked { untracked: 9, sampled: 9 },
                Figures,
                "9 sampled allocations are not counted as in use, as there were too many: raise \
                 --heap-interval",
            ),
            (
                HeapNote::Paced { paced: 1, sampled: 2, longest: 64, every: true },
                Detail,
                "not every allocation was recorded: the program allocated faster than prof could \
                 follow, so 1 of 2 samples were taken at a longer interval (up to 64 bytes); each \
                 is scaled by its own",
            ),
        ]);
    }

    #[test]
    fn an_injected_library_is_reported_with_its_stops() {
        let of = |lives| HeapNote::Injected { pid: 7, stopped_ms: 1.25, lives };
        assert_notes(vec![
            (
                of(true),
                Detail,
                "allocations of process 7 were recorded since the injection of prof's library, \
                 which stays there without effect; one thread was stopped for 1.2 ms at most, not \
                 counting waits for a CPU, the others not at all",
            ),
            (
                of(false),
                Detail,
                "allocations of process 7 were recorded since the injection of prof's library; \
                 one thread was stopped for 1.2 ms at most, not counting waits for a CPU",
            ),
            (
                HeapNote::NothingRedirected(7),
                Missing,
                "nothing in process 7 calls malloc in a way that could be redirected",
            ),
            (
                HeapNote::StillCalled { pid: 7, why: "it is gone".to_owned() },
                Detail,
                "prof's library is still called by process 7, without recording anything, because \
                 it could not be removed: it is gone; the next prof record --inject tries again",
            ),
        ]);
    }

    #[test]
    fn leaks_that_may_be_none_are_reported() {
        let amount = Amount { objects: 1.0, bytes: 64.0 };
        let unchecked = |why, processes| HeapNote::Unchecked { why, processes, amount };
        assert_notes(vec![
            (
                HeapNote::Reachable(Amount { objects: 2.0, bytes: 1048576.0 }),
                Detail,
                "not counted as leaks, because pointers still led there on exit: 1.0 MiB in 2 \
                 objects",
            ),
            (
                unchecked(UncheckedLeaks::Running, 1),
                Figures,
                "the leaks include all that was in use by a process that still ran at the end: 64 \
                 bytes in 1 object (label leak: unchecked)",
            ),
            (
                unchecked(UncheckedLeaks::Failed("it hung".to_owned()), 2),
                Figures,
                "the leaks include all that was in use by 2 processes that could not be checked \
                 on exit, as it hung: 64 bytes in 1 object (label leak: unchecked)",
            ),
        ]);
    }
}
