//! Events: what is recorded instead of what was requested, and what is left out.

macro_rules! events {
    ($next:ident $($more:ident)*; $($before:tt)*) => { $next! { $($more)*; $($before)*

/// A requested event cannot be recorded.
EventLeftOut "event-left-out" Missing {
    event: String = "its name", why: String = "the reason",
    message: Option<Box<Message>> = "the reason as a message, if it is one",
} ("'{event}' is left out: {why}");

/// A requested profile type cannot be recorded.
TypeLeftOut "type-left-out" Missing {
    noun: String = "its name", plural: bool = "the name is a plural", why: String = "the reason",
    message: Option<Box<Message>> = "the reason as a message, if it is one",
} ("{noun} {} left out: {why}", if *plural { "are" } else { "is" });

/// The kernel does not allow the requested rate.
RateLimited "rate-limited" Figures {
    requested: u64 = "the requested rate in Hz", limit: u64 = "the kernel's limit in Hz",
} ("{requested} Hz is beyond the kernel's limit; sampling at {limit} Hz (sysctl \
    kernel.perf_event_max_sample_rate)");

/// The highest rate was requested.
HighestRate "highest-rate" Detail { limit: u64 = "the rate in Hz" }
    ("-F max: {} a second and CPU (sysctl kernel.perf_event_max_sample_rate)",
    words::counted(*limit, "sample"));

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

/// The filter is invalid for the tracepoint.
FilterRejected "filter-rejected" Missing {
    filter: String = "the filter",
    event: String = "the tracepoint",
    fields: Vec<String> = "its fields",
} ("the kernel rejects the filter '{filter}' of {event}; its {} {}",
   words::by_number(fields.len() as u64, "field is", "fields are"), fields.join(", "));

/// The instruction or function cannot be probed.
ProbeRejected "probe-rejected" Missing {
    event: String = "its name", error: String = "the system's error",
} ("event '{event}': the kernel cannot put a probe there ({error}); not every instruction, and not \
    every kernel function, can be probed");

/// The machine lacks the event.
EventMissing "event-missing" Missing {
    event: String = "its name",
    hardware: bool = "it is a hardware event",
    nearest: String = "the nearest event that works",
} ("event '{event}' does not exist on this machine{}",
   if *hardware { " (no hardware counters, or not this one)" } else { "" })
    ["; ", "nearest that works: {nearest}"];

/// The PMU counts the event, but does not sample it.
EventNotSampled "event-not-sampled" Missing {
    event: String = "its name", nearest: String = "the nearest event that works",
} ("event '{event}' cannot be sampled (its PMU counts without interrupts, or has no such event); it \
    may be possible to count it with another: -e {}",
   words::shell_quoted(&format!("{{cpu-clock,{event}}}")))
    ["; ", "nearest that works: {nearest}"];

/// The CPU has counters, but none for the event.
EventNotCounted "event-not-counted" Missing ("this CPU does not count it");

/// The machine has no counters for a hardware event.
NoHardwareCounters "no-hardware-counters" Missing
    ("no hardware counters, as in most virtual machines");

/// The event's PMU counts without interrupts.
NoInterrupts "pmu-without-interrupts" Missing ("its PMU counts without interrupts");

/// The file has no USDT markers.
NoMarkers "no-markers" Missing ("no section .note.stapsdt");

/// The kernel was built without the PMU of probes.
PmuNotBuilt "pmu-not-built" Missing { pmu: String = "its name in sysfs" }
    ("the kernel was built without CONFIG_{}_EVENTS", pmu.to_uppercase());

/// The name is none of an event here.
NotAnEvent "not-an-event" Missing { error: String = "the parser's message" } ("{error}");

    } };
}
