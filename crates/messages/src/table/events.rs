//! Events: what is recorded instead of what was requested, and what is left out.

macro_rules! events {
    ($next:ident $($more:ident)*; $($before:tt)*) => { $next! { $($more)*; $($before)*

/// A requested event cannot be recorded.
EventLeftOut "event-left-out" Missing { event: String = "its name", why: String = "the reason" }
    ("'{event}' is left out: {why}");

/// A requested profile type cannot be recorded.
TypeLeftOut "type-left-out" Missing {
    noun: String = "its name", plural: bool = "the name is a plural", why: String = "the reason",
} ("{noun} {} left out: {why}", if *plural { "are" } else { "is" });

/// The kernel does not allow the requested rate.
RateLimited "rate-limited" Figures {
    requested: u64 = "the requested rate in Hz", limit: u64 = "the kernel's limit in Hz",
} ("{requested} Hz is beyond the kernel's limit; sampling at {limit} Hz (sysctl \
    kernel.perf_event_max_sample_rate)");

/// The highest rate was requested.
HighestRate "highest-rate" Detail { limit: u64 = "the rate in Hz" }
    ("-F max: {limit} samples a second and CPU (sysctl kernel.perf_event_max_sample_rate)");

/// Groups of events are not inherited by later threads.
GroupsOfExistingThreads "groups-of-existing-threads" Missing
    ("this kernel reads groups of events only of threads that exist when prof starts: later ones \
      are left out");

/// The machine has no `cycles`, so that `cpu-clock` is sampled.
ClockInsteadOfCycles "clock-instead-of-cycles" Figures if (*precise) {
    precise: bool = "precise sampling was requested, which the clock does not have",
} ("no hardware counters on this machine: sampling cpu-clock instead of cycles{}",
   if *precise { ", which has no precision" } else { "" });

/// Kernel code is not sampled.
NoKernelFrames "no-kernel-frames" Missing { why: Box<Message> = "the reason" }
    ("kernel frames are left out") [because why];

/// The requested period is too short for the kernel's clocks.
PeriodTooShort "period-too-short" Figures {
    period: u64 = "the period in ns", shortest: u64 = "the shortest period in ns",
} ("the kernel's clocks have no period of {period} ns; sampling each {shortest} ns, the shortest");

/// An event other than a hardware event was to be sampled precisely.
NeverPrecise "never-precise" Figures { event: String = "its name" }
    ("{event} is no hardware event and has no precision");

/// The event cannot be sampled precisely.
NotPrecise "not-precise" Figures { event: String = "its name" }
    ("{event} cannot be sampled precisely on this machine: samples may lie some instructions \
      behind their cause");

/// An event is sampled less precisely than the best machines allow.
LessPrecise "less-precise" Figures {
    event: String = "its name",
    precision: u8 = "its precision",
    highest: u8 = "the highest precision",
} ("{event} is sampled with precision {precision} of {highest}, the highest that this machine has \
    for it");

/// A probe in a file that the target has not loaded.
NotLoaded "file-not-loaded" Missing { event: String = "the event's name", file: String = "its path" }
    ("event '{event}': the target has not loaded {file}; it counts from then on");

/// A probe that costs the target more than others.
SteppedProbe "stepped-probe" Figures { event: String = "the event's name" }
    ("event '{event}' costs the target some 12 µs each time instead of 2: the kernel has to let \
      the processor step over the instruction there");

/// An event shared the machine's counters with others.
TookTurns "counters-shared" Detail {
    event: String = "its name", percent: u64 = "the share of the time in which it was counted",
} ("{event} was counted {percent} % of the time, since there are more events than counters: its \
    values are scaled");

    } };
}
