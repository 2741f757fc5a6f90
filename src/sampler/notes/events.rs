//! Notes about events: what is recorded instead of what was requested.

use std::fmt;
use std::path::PathBuf;

use super::Importance;
use crate::sampler::attr::SHORTEST_CLOCK;
use messages::Message;

/// A note about the events of a recording.
#[derive(Clone, Debug, PartialEq)]
pub enum EventNote {
    /// The kernel does not allow the requested rate.
    RateLimited {
        /// The requested rate in Hz.
        requested: u64,
        /// The kernel's limit in Hz.
        limit: u64,
    },
    /// The highest rate was requested, which is this one in Hz.
    HighestRate(u64),
    /// Groups of events are not inherited by later threads.
    GroupsOfExistingThreads,
    /// The machine has no `cycles`, so that `cpu-clock` is sampled.
    ClockInsteadOfCycles {
        /// Precise sampling was requested, which the clock does not have.
        precise: bool,
    },
    /// Kernel code is not sampled; the reason.
    NoKernelFrames(Message),
    /// The requested period in nanoseconds is too short for the kernel's clocks.
    PeriodTooShort(u64),
    /// An event other than a hardware event was to be sampled precisely; its name.
    NeverPrecise(String),
    /// The event of this name cannot be sampled precisely.
    NotPrecise(String),
    /// An event is sampled less precisely than the best machines allow.
    LessPrecise {
        /// The event, by its name.
        event: String,
        /// Its precision.
        precision: u8,
        /// The highest precision.
        highest: u8,
    },
    /// A probe in a file that the target has not loaded.
    NotLoaded {
        /// The event's name.
        event: String,
        /// The file.
        file: PathBuf,
    },
    /// A probe that costs the target more than others; the event's name.
    Stepped(String),
}

impl EventNote {
    pub(super) fn importance(&self) -> Importance {
        match self {
            EventNote::NoKernelFrames(_)
            | EventNote::GroupsOfExistingThreads
            | EventNote::NotLoaded { .. } => Importance::Missing,
            EventNote::RateLimited { .. }
            | EventNote::PeriodTooShort(_)
            | EventNote::ClockInsteadOfCycles { precise: true }
            | EventNote::NeverPrecise(_)
            | EventNote::NotPrecise(_)
            | EventNote::LessPrecise { .. }
            | EventNote::Stepped(_) => Importance::Figures,
            EventNote::HighestRate(_) | EventNote::ClockInsteadOfCycles { precise: false } => {
                Importance::Detail
            }
        }
    }
}

impl fmt::Display for EventNote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            EventNote::RateLimited { requested, limit } => write!(
                f,
                "{requested} Hz is beyond the kernel's limit; sampling at {limit} Hz (sysctl \
                 kernel.perf_event_max_sample_rate)"
            ),
            EventNote::HighestRate(limit) => write!(
                f,
                "-F max: {limit} samples a second and CPU (sysctl \
                 kernel.perf_event_max_sample_rate)"
            ),
            EventNote::GroupsOfExistingThreads => f.write_str(
                "this kernel reads groups of events only of threads that exist when prof starts: \
                 later ones are left out",
            ),
            EventNote::ClockInsteadOfCycles { precise } => write!(
                f,
                "no hardware counters on this machine: sampling cpu-clock instead of cycles{}",
                if *precise { ", which has no precision" } else { "" }
            ),
            EventNote::NoKernelFrames(why) => write!(f, "kernel frames are left out: {why}"),
            EventNote::PeriodTooShort(period) => write!(
                f,
                "the kernel's clocks have no period of {period} ns; sampling each \
                 {SHORTEST_CLOCK} ns, the shortest"
            ),
            EventNote::NeverPrecise(event) => {
                write!(f, "{event} is no hardware event and has no precision")
            }
            EventNote::NotPrecise(event) => write!(
                f,
                "{event} cannot be sampled precisely on this machine: samples may lie some \
                 instructions behind their cause"
            ),
            EventNote::LessPrecise { event, precision, highest } => write!(
                f,
                "{event} is sampled with precision {precision} of {highest}, the highest that \
                 this machine has for it"
            ),
            EventNote::NotLoaded { event, file } => write!(
                f,
                "event '{event}': the target has not loaded {}; it counts from then on",
                file.display()
            ),
            EventNote::Stepped(event) => write!(
                f,
                "event '{event}' costs the target some 12 µs each time instead of 2: the kernel \
                 has to let the processor step over the instruction there"
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::assert_notes;
    use super::Importance::{Detail, Figures, Missing};
    use super::*;

    #[test]
    fn events_are_recorded_with_what_the_machine_has() {
        let event = || "cycles:P".to_owned();
        assert_notes(vec![
            (
                EventNote::RateLimited { requested: 9, limit: 5 },
                Figures,
                "9 Hz is beyond the kernel's limit; sampling at 5 Hz (sysctl \
                 kernel.perf_event_max_sample_rate)",
            ),
            (
                EventNote::HighestRate(5),
                Detail,
                "-F max: 5 samples a second and CPU (sysctl kernel.perf_event_max_sample_rate)",
            ),
            (
                EventNote::GroupsOfExistingThreads,
                Missing,
                "this kernel reads groups of events only of threads that exist when prof starts: \
                 later ones are left out",
            ),
            (
                EventNote::PeriodTooShort(7),
                Figures,
                "the kernel's clocks have no period of 7 ns; sampling each 10000 ns, the shortest",
            ),
            (
                EventNote::NeverPrecise(event()),
                Figures,
                "cycles:P is no hardware event and has no precision",
            ),
            (
                EventNote::NotPrecise(event()),
                Figures,
                "cycles:P cannot be sampled precisely on this machine: samples may lie some \
                 instructions behind their cause",
            ),
            (
                EventNote::LessPrecise { event: event(), precision: 2, highest: 3 },
                Figures,
                "cycles:P is sampled with precision 2 of 3, the highest that this machine has for \
                 it",
            ),
        ]);
    }

    /// The clock that takes the samples of CPU time does not change the figures.
    #[test]
    fn another_clock_matters_only_to_precision() {
        let instead = "no hardware counters on this machine: sampling cpu-clock instead of cycles";
        assert_notes(vec![
            (EventNote::ClockInsteadOfCycles { precise: false }, Detail, instead),
            (
                EventNote::ClockInsteadOfCycles { precise: true },
                Figures,
                &format!("{instead}, which has no precision"),
            ),
        ]);
    }

    #[test]
    fn probes_that_do_not_count_at_once_or_cost_more_are_reported() {
        let event = || "probe:f".to_owned();
        assert_notes(vec![
            (
                EventNote::NotLoaded { event: event(), file: "/lib/x.so".into() },
                Missing,
                "event 'probe:f': the target has not loaded /lib/x.so; it counts from then on",
            ),
            (
                EventNote::Stepped(event()),
                Figures,
                "event 'probe:f' costs the target some 12 µs each time instead of 2: the kernel \
                 has to let the processor step over the instruction there",
            ),
        ]);
    }
}
