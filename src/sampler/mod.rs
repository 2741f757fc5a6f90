//! The recording side: opens kernel events on a target, reads their records in order of time,
//! builds stacks and adds them to a profile, until the window closes ([`record`]).
//!
//! The only module that opens perf events. Facts about the kernel are from `perf_event_open(2)`
//! and, where a comment names it, from the kernel's `kernel/events/`.

mod aggregator;
mod analysis;
mod arch;
mod attach;
mod attr;
pub mod bpf;
pub mod catalogue;
mod cgroup;
mod command;
pub mod doctor;
mod duration;
pub mod events;
mod filter;
mod interpreters;
mod left_out;
mod modifiers;
pub mod notes;
mod open_error;
pub mod permissions;
mod probe_definitions;
pub mod probes;
mod recording;
pub mod ring;
mod ring_resize;
pub mod rings;
mod session;
mod stack_maker;
pub mod stops;
mod target;
mod thinning;
pub mod thread_state;
pub mod tracefs;
mod tracepoint;
pub mod types;

use std::sync::Arc;

use sys::cpu_allowance::CpuAllowance;

pub use command::{CommandOutput, StoppedCommand};
pub use duration::parse_duration;
pub use events::EventSpec;
pub use left_out::{LeftOut, TypeName};
pub use notes::Notes;
pub use probe_definitions::remove_leftovers as remove_leftover_probes;
pub use recording::{
    Ender, Interrupts, Live, LivePart, Observer, Recording, Tick, Window, record, record_live,
};
pub use session::{CPU_WIDE_PERIOD, Session, Stats};
pub use stack_maker::Aggregated;
pub use target::{
    Living, Target, cgroup_directory, cgroup_processes, check_process, living_processes,
    living_threads,
};

/// The sampling rate of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rate {
    /// N samples per second.
    Frequency(u64),
    /// The highest rate that `kernel.perf_event_max_sample_rate` allows.
    Max,
    /// One sample every N events.
    Period(u64),
}

/// The method to record stacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StackMethod {
    /// Stack copies unwound with DWARF, or by frame pointers where those reach further.
    Auto {
        /// Bytes of stack that are copied with each sample.
        dump: u32,
    },
    /// Stack copies unwound with DWARF only.
    Dwarf {
        /// Bytes of stack that are copied with each sample.
        dump: u32,
    },
    /// The kernel's walk along frame pointers.
    FramePointer,
    /// No stack, only the sampled address.
    None,
}

impl StackMethod {
    /// True if a part of the stack is copied with each sample.
    pub fn has_copies(self) -> bool {
        matches!(self, StackMethod::Auto { .. } | StackMethod::Dwarf { .. })
    }
}

/// The target, the events and the method of a recording.
#[derive(Clone, Debug)]
pub struct Options {
    /// The sampled target.
    pub target: Target,
    /// Only these CPUs; `None`: all that are online.
    pub cpus: Option<Vec<u32>>,
    /// The events that were named. Those of profile types follow them, except for the clock.
    pub events: Vec<EventSpec>,
    /// Requested events that are not available, with the reason.
    pub refused: Vec<LeftOut>,
    /// Hardware events are sampled as precisely as the machine allows.
    pub precise: bool,
    /// The sampling rate.
    pub rate: Rate,
    /// The method to record stacks.
    pub stacks: StackMethod,
    /// Maximum number of bytes that are copied of a deep stack; `None`: as many as the rate allows.
    pub deepest: Option<u32>,
    /// Threads and children created later are sampled too.
    pub inherit: bool,
    /// Times of samples are kept, of at most this many; `None`: of none.
    pub times: Option<u64>,
    /// A COMMAND's standard output is redirected to prof's standard error.
    pub stdout_to_stderr: bool,
    /// A COMMAND reads from and writes to /dev/null, because prof draws on the terminal.
    pub silent_command: bool,
    /// Code is analysed within this CPU time; `None`: whenever samples need it.
    pub allowance: Option<Arc<CpuAllowance>>,
    /// With an allowance: where samples are expensive, one represents several.
    pub thins_samples: bool,
}

impl Options {
    /// Options without events, for a target and everything that it starts.
    pub fn new(target: Target, rate: Rate, stacks: StackMethod) -> Options {
        Options {
            target,
            cpus: None,
            events: Vec::new(),
            refused: Vec::new(),
            precise: false,
            rate,
            stacks,
            deepest: None,
            inherit: true,
            times: None,
            stdout_to_stderr: false,
            silent_command: false,
            allowance: None,
            thins_samples: false,
        }
    }
}

/// Result of delivering an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delivery {
    /// It was taken.
    Taken,
    /// It was taken, and waits for analysis: those behind it may stay in their rings while these
    /// hold little.
    Kept,
    /// There is no memory for it, and it is lost.
    NoRoom,
    /// Another sample represents it.
    Represented,
}

/// A record or sample, delivered by [`Session::drain`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event<'a> {
    /// A sample of event number `event` of [`Session::events`].
    Sample {
        /// Index of the event.
        event: usize,
        /// Its weight in units of the event, with that of the samples that it represents.
        weight: u64,
        /// Number of samples that it represents, with itself.
        represents: u32,
        /// The sample.
        sample: sys::record::Sample<'a>,
    },
    /// Any other record.
    Other(sys::record::Record<'a>),
}
