//! The sentences of [`RecordingNote`].

use std::fmt;

use sys::image::NotOpened;

use super::{
    EmptyCause, LossRemedy, LossScope, MissedCause, RecordingNote, SampledPlace, Scope,
    ShortThreadRemedy, UncoveredTime,
};

impl fmt::Display for RecordingNote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RecordingNote::IdleParent { pid, children } => write!(
                f,
                "process {pid} was idle while its children used {:.1} s of CPU; --tree records \
                 them too",
                children.as_secs_f64()
            ),
            RecordingNote::NoSamples { lasted, scope, why } => write!(
                f,
                "no samples in {:.1} s: the {} {why}",
                lasted.as_secs_f64(),
                match scope {
                    Scope::Machine => "machine",
                    Scope::Target => "target",
                }
            ),
            RecordingNote::Uncovered(time) => write!(f, "{time}: {}", time.explanation()),
            RecordingNote::PrivilegedCommand { program, root: true } => write!(
                f,
                "{program}: when it starts, the kernel ends the recording of its threads; record \
                 it with -a, or with -p when it runs"
            ),
            RecordingNote::PrivilegedCommand { program, root: false } => write!(
                f,
                "{program}: when it starts, the kernel hides it from this user; run prof as root"
            ),
            RecordingNote::Outlived { pid, name, processes, arguments } => {
                let name = name.as_ref().map_or(String::new(), |name| format!(" ({name})"));
                f.write_str("the recording ended with the command, but ")?;
                match processes {
                    1 => write!(f, "process {pid}{name}, which it started, still runs")?,
                    n => write!(f, "{n} processes that it started still run (one is {pid}{name})")?,
                }
                write!(
                    f,
                    ": start it in the foreground, or record it with prof record{arguments} -p \
                     {pid}"
                )
            }
            RecordingNote::HiddenMappings(why) => {
                write!(f, "stacks of other users' processes end at once: {why}")
            }
            RecordingNote::UnlabelledThreads(threads) => write!(
                f,
                "{threads} threads are labelled by name and process only (no label tid): there \
                 were too many"
            ),
            RecordingNote::IndistinctMappings(mappings) => write!(
                f,
                "{mappings} mappings of files were not distinguished, because there were too \
                 many: samples in them have no names"
            ),
            RecordingNote::AnalysisLimits(binaries) => write!(
                f,
                "stacks through {} may be truncated: the limit of time and memory for unwind \
                 information and code was reached",
                super::first_of(binaries)
            ),
            RecordingNote::NotOpened { why, binaries } => {
                let binaries = super::first_of(binaries);
                write!(
                    f,
                    "stacks through {binaries} may be truncated, and names in them missing: "
                )?;
                match why {
                    NotOpened::NoDescriptor => f.write_str(
                        "too many open files; as root: prlimit --pid $$ --nofile=1048576",
                    ),
                    NotOpened::Forbidden => f.write_str("this user may not open them"),
                    NotOpened::Gone => f.write_str("their processes had ended"),
                    NotOpened::Replaced => f.write_str("other files are in their place"),
                    NotOpened::TooMany => f.write_str("there were too many"),
                    NotOpened::Failed(error) => {
                        write!(f, "{}", std::io::Error::from_raw_os_error(*error))
                    }
                }
            }
            RecordingNote::BinaryTruncated => f.write_str(
                "a program's or library's file was truncated while it was read: stacks through it \
                 may be truncated, names in it missing",
            ),
            RecordingNote::NoDeepStacks(why) => {
                write!(f, "deep stacks end where the kernel's copy of them does: {why}")
            }
            RecordingNote::DeepStacksLate(stacks) => write!(
                f,
                "{stacks} deep stacks are truncated because prof could not copy them in time: {}",
                LossRemedy::LowerRate
            ),
            RecordingNote::DeepStacksDiffered(stacks) => write!(
                f,
                "{stacks} deep stacks are truncated because two copies of the same moment differ"
            ),
            RecordingNote::Lost { lost, scope, covered, remedies, .. } => {
                let whose = match scope {
                    LossScope::Target => "",
                    LossScope::AllProcesses => " of all processes",
                };
                write!(
                    f,
                    "{lost} samples{whose} were lost because prof could not read them in time"
                )?;
                if let Some(covered) = covered {
                    write!(
                        f,
                        "; the others cover {:.0} % of the {:.1} s of CPU time that the target \
                         used",
                        covered.percent(),
                        covered.used as f64 / 1e9
                    )?;
                }
                for (i, remedy) in remedies.iter().enumerate() {
                    write!(f, "{}{remedy}", if i == 0 { "; " } else { ", or " })?;
                }
                Ok(())
            }
            RecordingNote::ScaledForLosses(events) => write!(
                f,
                "the values of {} are scaled to what the kernel counted, lost ones included",
                events.join(", ")
            ),
            RecordingNote::LostRecords(records) => write!(
                f,
                "{records} records about mappings and names were lost, because there were more \
                 than prof could read in time; processes that still ran were read from /proc again"
            ),
            RecordingNote::WithoutTime(samples) => write!(
                f,
                "{samples} samples have no time, because there were more than --max-samples; their \
                 values are in the profile"
            ),
            RecordingNote::SpillUnreadable(why) => {
                write!(f, "samples are missing: the spill file cannot be read: {why}")
            }
        }
    }
}

impl fmt::Display for EmptyCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            EmptyCause::Interrupted => {
                f.write_str("was interrupted too early, or used no CPU until then")
            }
            EmptyCause::NoEvents(names) => write!(f, "had no {} in that time", names.join(", ")),
            EmptyCause::TooShort { used, period } => write!(
                f,
                "used {:.1} ms of CPU, and a sample is due every {:.1} ms; raise -F",
                used * 1e3,
                *period as f64 / 1e6
            ),
            EmptyCause::Ended(place) => write!(f, "ended before a sample was due{place}; raise -F"),
            EmptyCause::Idle(place) => {
                write!(f, "used no CPU{place} in that time (it slept or waited)")
            }
        }
    }
}

impl fmt::Display for SampledPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            SampledPlace::Everywhere => "",
            SampledPlace::SomeCpus => " on these CPUs",
            SampledPlace::Kernel => " in the kernel",
            SampledPlace::User => " outside the kernel",
        })
    }
}

/// Without its cause.
impl fmt::Display for UncoveredTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "the samples cover {:.0} % of the {:.1} s of CPU time that {} used",
            self.covered.percent(),
            self.covered.used as f64 / 1e9,
            match self.scope {
                Scope::Machine => "the CPUs",
                Scope::Target => "the target",
            }
        )
    }
}

impl UncoveredTime {
    /// The cause, with the remedy if there is one.
    pub fn explanation(&self) -> String {
        let late = "the kernel skips samples whose timer is late";
        let short = format!(
            "threads that use less than {:.1} ms each are missed",
            self.period as f64 / 1e6
        );
        match self.cause {
            MissedCause::TooFrequent => format!(
                "the machine cannot take samples that often; {}",
                LossRemedy::LowerRateOrLongerPeriod
            ),
            MissedCause::LateTimers => late.to_owned(),
            MissedCause::LateTimersAndPrograms { frame_pointers_help } => format!(
                "{late}, and those that come while BPF programs or calls of bpf(2) run{}",
                if frame_pointers_help { "; -g fp takes the latter" } else { "" }
            ),
            MissedCause::ShortThreads(ShortThreadRemedy::WholeCpus) => {
                format!("{short}; -F 999 samples them")
            }
            MissedCause::ShortThreads(ShortThreadRemedy::HigherRate) => {
                format!("{short}; raise -F, or record the whole machine with -a")
            }
        }
    }
}

impl fmt::Display for LossRemedy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            LossRemedy::FewerProcesses => "each event is recorded: record fewer processes",
            LossRemedy::LongerPeriod => "raise -c",
            LossRemedy::AnyPeriod => "sample every Nth event only with -c N",
            LossRemedy::LowerRate => "lower -F",
            LossRemedy::LowerRateOrLongerPeriod => "lower -F or raise -c",
            LossRemedy::SmallerCopies => "use -g fp or a smaller -g dwarf,BYTES",
            LossRemedy::Root => "run prof as root, which gives it priority over other processes",
            LossRemedy::LongerHeapInterval => "raise --heap-interval",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sampler::CpuCoverage;
    use crate::sampler::notes::Importance::{Detail, Figures, Missing};
    use crate::sampler::notes::assert_notes;
    use std::time::Duration;

    #[test]
    fn a_recording_without_samples_says_why() {
        let empty = |why| RecordingNote::NoSamples {
            lasted: Duration::from_millis(300),
            scope: Scope::Target,
            why,
        };
        assert_notes(vec![
            (
                RecordingNote::IdleParent { pid: 7, children: Duration::from_millis(1500) },
                Missing,
                "process 7 was idle while its children used 1.5 s of CPU; --tree records them too",
            ),
            (
                empty(EmptyCause::Interrupted),
                Missing,
                "no samples in 0.3 s: the target was interrupted too early, or used no CPU until \
                 then",
            ),
            (
                empty(EmptyCause::NoEvents(vec!["faults".to_owned(), "calls".to_owned()])),
                Missing,
                "no samples in 0.3 s: the target had no faults, calls in that time",
            ),
            (
                empty(EmptyCause::TooShort { used: 0.002, period: 10_000_000 }),
                Missing,
                "no samples in 0.3 s: the target used 2.0 ms of CPU, and a sample is due every \
                 10.0 ms; raise -F",
            ),
            (
                empty(EmptyCause::Ended(SampledPlace::Kernel)),
                Missing,
                "no samples in 0.3 s: the target ended before a sample was due in the kernel; \
                 raise -F",
            ),
            (
                empty(EmptyCause::Idle(SampledPlace::Everywhere)),
                Missing,
                "no samples in 0.3 s: the target used no CPU in that time (it slept or waited)",
            ),
        ]);
    }

    #[test]
    fn processes_that_cannot_be_recorded_are_missing() {
        let privileged =
            |root| RecordingNote::PrivilegedCommand { program: "/bin/su is setuid".into(), root };
        let outlived = |processes, name| RecordingNote::Outlived {
            pid: 9,
            name,
            processes,
            arguments: " -T wall".to_owned(),
        };
        assert_notes(vec![
            (
                privileged(true),
                Missing,
                "/bin/su is setuid: when it starts, the kernel ends the recording of its threads; \
                 record it with -a, or with -p when it runs",
            ),
            (
                privileged(false),
                Missing,
                "/bin/su is setuid: when it starts, the kernel hides it from this user; run prof \
                 as root",
            ),
            (
                outlived(1, Some("daemon".to_owned())),
                Missing,
                "the recording ended with the command, but process 9 (daemon), which it started, \
                 still runs: start it in the foreground, or record it with prof record -T wall -p \
                 9",
            ),
            (
                outlived(2, None),
                Missing,
                "the recording ended with the command, but 2 processes that it started still run \
                 (one is 9): start it in the foreground, or record it with prof record -T wall -p \
                 9",
            ),
        ]);
    }

    #[test]
    fn lost_samples_come_with_what_helps() {
        let lost = |lost, scope, covered, remedies| RecordingNote::Lost {
            lost,
            taken: 900,
            scope,
            covered,
            remedies,
        };
        let half = CpuCoverage { sampled: 1_000_000_000, used: 2_000_000_000 };
        let remedies = vec![LossRemedy::LowerRate, LossRemedy::Root];
        assert_notes(vec![
            (
                lost(3, LossScope::Target, None, Vec::new()),
                Detail,
                "3 samples were lost because prof could not read them in time",
            ),
            (
                lost(100, LossScope::AllProcesses, Some(half), remedies),
                Figures,
                "100 samples of all processes were lost because prof could not read them in time; \
                 the others cover 50 % of the 2.0 s of CPU time that the target used; lower -F, \
                 or run prof as root, which gives it priority over other processes",
            ),
            (
                RecordingNote::ScaledForLosses(vec!["a".to_owned(), "b".to_owned()]),
                Detail,
                "the values of a, b are scaled to what the kernel counted, lost ones included",
            ),
            (
                RecordingNote::AnalysisLimits(vec!["/bin/a".to_owned()]),
                Figures,
                "stacks through /bin/a may be truncated: the limit of time and memory for unwind \
                 information and code was reached",
            ),
            (
                RecordingNote::AnalysisLimits((1..=5).map(|i| format!("/bin/{i}")).collect()),
                Figures,
                "stacks through /bin/1, /bin/2, /bin/3 and 2 more may be truncated: the limit of \
                 time and memory for unwind information and code was reached",
            ),
            (
                RecordingNote::NotOpened {
                    why: NotOpened::NoDescriptor,
                    binaries: vec!["/bin/a".to_owned()],
                },
                Figures,
                "stacks through /bin/a may be truncated, and names in them missing: too many open \
                 files; as root: prlimit --pid $$ --nofile=1048576",
            ),
            (
                RecordingNote::LostRecords(4),
                Detail,
                "4 records about mappings and names were lost, because there were more than prof \
                 could read in time; processes that still ran were read from /proc again",
            ),
        ]);
    }

    #[test]
    fn time_without_samples_has_its_cause() {
        let uncovered = |sampled, cause| {
            let covered = CpuCoverage { sampled, used: 1_000_000_000 };
            let scope = Scope::Target;
            RecordingNote::Uncovered(UncoveredTime { covered, period: 10_000_000, scope, cause })
        };
        let all = |percent, why| {
            format!(
                "the samples cover {percent} % of the 1.0 s of CPU time that the target used: {why}"
            )
        };
        let late = "the kernel skips samples whose timer is late";
        let short = "threads that use less than 10.0 ms each are missed; -F 999 samples them";
        assert_notes(vec![
            (uncovered(900_000_000, MissedCause::LateTimers), Figures, &all(90, late)),
            // Forty of a hundred samples may be missing by chance.
            (
                uncovered(700_000_000, MissedCause::ShortThreads(ShortThreadRemedy::WholeCpus)),
                Detail,
                &all(70, short),
            ),
            (
                uncovered(500_000_000, MissedCause::ShortThreads(ShortThreadRemedy::WholeCpus)),
                Figures,
                &all(50, short),
            ),
            (
                uncovered(500_000_000, MissedCause::TooFrequent),
                Figures,
                &all(50, "the machine cannot take samples that often; lower -F or raise -c"),
            ),
            (
                uncovered(
                    500_000_000,
                    MissedCause::LateTimersAndPrograms { frame_pointers_help: true },
                ),
                Figures,
                &all(
                    50,
                    "the kernel skips samples whose timer is late, and those that come while BPF \
                     programs or calls of bpf(2) run; -g fp takes the latter",
                ),
            ),
        ]);
    }
}
