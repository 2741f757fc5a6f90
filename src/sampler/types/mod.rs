//! Profile types: the values of `-T`. Each is one file behind one trait, and one line in [`ALL`].
//!
//! A recording calls its types in this order: first for their requirements
//! ([`ProfileType::prepare`], [`ProfileType::load_program`], [`ProfileType::events`]); then for
//! each of their samples and each record about processes, to add values to the profile; and at the
//! end for the remaining values. It does not depend on any type by name.

mod collection;
mod cpu;
mod heap;
mod io;
mod lock;
mod options;
mod paired;
mod syscall_names;
mod syscalls;
mod threads;
mod wall;

use std::ffi::OsString;
use std::sync::Arc;
use std::time::Duration;

use super::attach::EventTrial;
use super::bpf::btf::Btf;
use super::bpf::{KernelProgram, ThreadScope};
use super::recording::Interrupts;
use super::stack_maker::StackMaker;
use super::{EventSpec, Note, Target, TypeName};
pub use collection::{EventOwner, ProfileTypes};
pub use options::{GivenOption, OptionGroup, Selection, TypeOptions};
use profile::{Column, Profile};
use sys::Error;
use sys::record::{Record, Sample};
pub use syscall_names::NamedCalls;
pub use threads::snapshot;

/// All profile types, in the order of their sample types in a file.
pub static ALL: [Registered; 8] = [
    cpu::REGISTERED,
    lock::REGISTERED,
    io::REGISTERED,
    syscalls::REGISTERED,
    wall::REGISTERED,
    heap::REGISTERED,
    heap::ALLOCATIONS,
    threads::REGISTERED,
];

/// Removes the leftovers of killed recordings.
pub fn remove_leftovers() {
    heap::remove_leftovers();
}

/// A profile type that can be selected.
pub struct Registered {
    /// The value of `-T`.
    pub name: &'static str,
    /// A short description for `--help`.
    pub help: &'static str,
    /// The time at which its values are known.
    pub values: ValuesKnown,
    /// Its options.
    pub options: Option<OptionGroup>,
    /// The type with its options, or `None` if it is not selected.
    pub new: fn(&Selection) -> Option<Box<dyn ProfileType>>,
}

/// The time at which the values of a profile type are known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValuesKnown {
    /// While recording: `prof top` shows them.
    WhileRecording,
    /// At the end of a recording only.
    AtTheEnd {
        /// What prof top does not do: `shows no allocations`.
        lack: &'static str,
        /// The command that records it.
        instead: &'static str,
    },
}

/// A sample type of pprof.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SampleType {
    /// For example `alloc_space`.
    pub kind: &'static str,
    /// `count`, `bytes` or `nanoseconds`.
    pub unit: &'static str,
}

impl SampleType {
    /// A number of events or objects.
    pub const fn count(kind: &'static str) -> SampleType {
        SampleType { kind, unit: "count" }
    }

    /// Time.
    pub const fn nanoseconds(kind: &'static str) -> SampleType {
        SampleType { kind, unit: "nanoseconds" }
    }

    /// An amount of memory or data.
    pub const fn bytes(kind: &'static str) -> SampleType {
        SampleType { kind, unit: "bytes" }
    }
}

/// The clock that a profile type needs as the first event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum NeededClock {
    /// None.
    #[default]
    None,
    /// The best event to sample CPU time: `cycles`, or `cpu-clock` without a PMU.
    CpuTime,
    /// `cpu-clock`, whose samples [`ProfileType::sample`] gets as event 0, before the events of the
    /// type.
    Nanoseconds,
}

/// The result of a profile type's preparation.
pub enum Preparation {
    /// It is ready.
    Ready,
    /// These events are recorded instead, with a note for the user.
    Replaced {
        /// The events.
        by: Box<EventSpec>,
        /// The note.
        note: Note,
    },
}

/// The arguments of [`ProfileType::prepare`].
pub struct Setup<'a> {
    /// The recorded target.
    pub target: &'a Target,
    /// Length of the recording; `None`: until the target ends.
    pub duration: Option<Duration>,
    /// Removes files when a second signal ends prof at once.
    pub interrupts: &'a Interrupts,
}

/// An event of a profile type.
pub struct TypeEvent {
    /// The event.
    pub spec: EventSpec,
    /// Its sampling period: one sample every N events.
    pub period: u64,
}

impl TypeEvent {
    /// An event that is sampled at each occurrence.
    pub fn each_time(spec: EventSpec) -> TypeEvent {
        TypeEvent { spec, period: 1 }
    }
}

/// The arguments of [`ProfileType::start`].
pub struct TypeStart<'a> {
    /// The first of its sample types.
    pub first: Column,
    /// The column of CPU time with the weight of a sample of the clock, if CPU time is recorded.
    pub cpu_time: Option<(Column, i64)>,
    /// The recorded target.
    pub target: &'a Target,
    /// The processes found at the start.
    pub pids: &'a [i32],
}

/// The arguments of [`ProfileType::poll`].
pub struct Poll<'a> {
    /// Time since sampling started.
    pub elapsed: Duration,
    /// The processes found at the start.
    pub pids: &'a [i32],
    /// True if events were thinned: see [`Overload`](super::events::Overload).
    pub thinned: bool,
}

/// The arguments of [`ProfileType::end`].
pub struct End {
    /// `CLOCK_MONOTONIC`, nanoseconds.
    pub time: u64,
    /// True if events were thinned: see [`Overload`](super::events::Overload).
    pub thinned: bool,
    /// True if processes that the COMMAND started still run after it.
    pub outlived: bool,
}

/// Numbers of samples that do not belong to an event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OwnSamples {
    /// Taken.
    pub taken: u64,
    /// Lost.
    pub lost: u64,
}

/// A profile type of a recording.
pub trait ProfileType: Send {
    /// Its name in messages: `block I/O`.
    fn name(&self) -> TypeName;

    /// Its sample types. Before [`ProfileType::events`], those without any failure.
    fn sample_types(&self) -> Vec<SampleType>;

    /// The required clock.
    fn clock(&self) -> NeededClock {
        NeededClock::None
    }

    /// True if its stacks count in the sample type `samples`, too. `alone`: nothing else is
    /// recorded.
    fn counts_samples(&self, _alone: bool) -> bool {
        false
    }

    /// True if it needs records about the target's processes even if no event is sampled.
    fn needs_processes(&self) -> bool {
        false
    }

    /// True if it records every event, regardless of `-F`.
    fn counts_every_event(&self) -> bool {
        false
    }

    /// The arguments of `prof record` that record it of a running process.
    fn arguments_for_process(&self) -> &'static str {
        ""
    }

    /// Prepares the type before a COMMAND starts.
    ///
    /// # Errors
    ///
    /// One line that states the obstacle: the type is left out, if others are recorded.
    fn prepare(&mut self, _setup: &Setup<'_>) -> Result<Preparation, Error> {
        Ok(Preparation::Ready)
    }

    /// Environment variables for a COMMAND.
    fn environment(&self) -> Vec<(OsString, OsString)> {
        Vec::new()
    }

    /// Loads its BPF programs, for the threads of `scope`; `None`: it has none, or this kernel or
    /// user does not allow them.
    fn load_program(
        &mut self,
        _kernel: &Btf,
        _scope: ThreadScope,
    ) -> Option<Arc<dyn KernelProgram>> {
        None
    }

    /// After [`ProfileType::load_program`]: true if it needs events on the target's own threads,
    /// because they are too frequent on whole CPUs.
    fn needs_thread_events(&self) -> bool {
        false
    }

    /// After [`ProfileType::load_program`]: true if it needs records of context switches.
    fn needs_switch_records(&self) -> bool {
        false
    }

    /// Its events; it may be called more than once, and the last result counts.
    ///
    /// # Errors
    ///
    /// One line that states the obstacle: the type is left out, if others are recorded.
    fn events(&mut self, _trial: &mut EventTrial<'_>) -> Result<Vec<TypeEvent>, Error> {
        Ok(Vec::new())
    }

    /// Called just before sampling starts.
    ///
    /// # Errors
    ///
    /// One line that states the obstacle: the type is left out, if others are recorded.
    fn begin(&mut self) -> Result<(), Error> {
        Ok(())
    }

    /// Adds its description to the profile; `_first`: its sample types are the first ones.
    fn describe(&self, _profile: &mut Profile, _first: bool) {}

    /// Called after sampling has started, when its sample types have columns.
    fn start(&mut self, maker: &mut StackMaker, start: &TypeStart<'_>);

    /// Handles a sample of its event number `event`; `weight`: the value in units of the event.
    fn sample(
        &mut self,
        _maker: &mut StackMaker,
        _event: usize,
        _sample: &Sample<'_>,
        _weight: u64,
    ) {
    }

    /// True if a record about processes is for this type only.
    fn claims(&mut self, _record: &Record<'_>) -> bool {
        false
    }

    /// Handles a record about processes, after `maker`.
    fn record(&mut self, _maker: &mut StackMaker, _record: &Record<'_>) {}

    /// True if it has samples that do not belong to an event, for [`ProfileType::take_in`].
    fn has_own_samples(&self) -> bool {
        false
    }

    /// Adds its own samples from before `until` (`CLOCK_MONOTONIC`, nanoseconds); `over`: these are
    /// the last.
    fn take_in(&mut self, _maker: &mut StackMaker, _until: u64, _over: bool) {}

    /// Milliseconds until [`ProfileType::poll`] is due; called before each wait.
    fn idle_ms(&mut self, _elapsed: Duration) -> i64 {
        i64::MAX
    }

    /// True if the window must not close yet.
    fn is_busy(&self, _elapsed: Duration) -> bool {
        false
    }

    /// True if [`ProfileType::poll`] has something to do; `_thinned`: see [`Poll::thinned`].
    fn is_due(&self, _thinned: bool) -> bool {
        false
    }

    /// Does periodic work.
    fn poll(&mut self, _maker: &mut StackMaker, _now: &Poll<'_>) {}

    /// The window closes: stops its own samples.
    fn stop(&mut self) {}

    /// All events are stopped: releases the target.
    fn release(&mut self) {}

    /// Counts of [`ProfileType::take_in`] and [`ProfileType::poll`] so far.
    fn own_samples(&self) -> OwnSamples {
        OwnSamples::default()
    }

    /// Adds the remaining values after the last event. Returns notes for the user.
    fn end(&mut self, maker: &mut StackMaker, end: &End) -> Vec<Note>;
}

#[cfg(test)]
mod tests;
