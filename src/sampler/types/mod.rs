//! Profile types: the values of `-T`. Each is one file behind one trait, and one line in [`ALL`].
//!
//! A recording calls its types in this order: first for their requirements ([`Needs`],
//! [`ProfileType::prepare`], [`ProfileType::load_program`], [`ProfileType::events`]); then for each
//! of their samples and each record about processes, to add values to the profile; and at the end
//! for the remaining values. It does not depend on any type by name. What few types have is a trait
//! of its own: [`Periodic`] work, and a [`SampleSource`].

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
use super::bpf::walk::WalkMaps;
use super::bpf::{KernelProgram, ThreadScope};
use super::recording::Interrupts;
use super::stack_maker::StackMaker;
use super::{EventSpec, Target, TypeName};
pub use collection::{EventOwner, ProfileTypes};
use messages::Message;
pub use options::{GivenOption, OptionGroup, Selection, TypeOptions};
use profile::{Column, Profile, StrId};
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
    ALL.iter().filter_map(|known| known.clean_up).for_each(|clean_up| clean_up());
}

/// Makes the first sample type of the requested profile types that has values the default of a
/// profile. Without any, and without a request, the default stays as it is; so does that of a single
/// profile type, if it has values.
pub fn show_requested(profile: &mut Profile, requested: &[String]) {
    let known = |name: &String| ALL.iter().find(|known| known.name == name);
    let kinds = requested.iter().filter_map(known).flat_map(|known| known.shown_first);
    let kinds: Vec<StrId> = kinds.filter_map(|kind| profile.strings.find(kind)).collect();
    let has_values = |&kind: &StrId| {
        let index = profile.sample_types.iter().position(|shown| shown.kind == kind);
        index.is_some_and(|index| profile.total(index) != 0)
    };
    let is_default_shown = profile.total(profile.default_type_index()) != 0;
    if requested.len() == 1 && is_default_shown {
        return;
    }
    if let Some(first) = kinds.into_iter().find(has_values) {
        profile.default_sample_type = first;
    }
}

/// The profile type of this name, if its values are known at the end of a recording only.
pub fn known_at_the_end(name: &str) -> Option<&'static Registered> {
    let known = ALL.iter().find(|known| known.name == name)?;
    matches!(known.values, ValuesKnown::AtTheEnd { .. }).then_some(known)
}

/// A profile type that can be selected.
pub struct Registered {
    /// The value of `-T`.
    pub name: &'static str,
    /// A short description for `--help`.
    pub help: &'static str,
    /// The kinds of its sample types of which the first one with values is shown first.
    pub shown_first: &'static [&'static str],
    /// The time at which its values are known.
    pub values: ValuesKnown,
    /// Its options.
    pub options: Option<OptionGroup>,
    /// Removes what killed recordings of it have left.
    pub clean_up: Option<fn()>,
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
        note: Message,
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

/// The arguments of [`ProfileType::load_program`].
#[derive(Clone, Copy)]
pub struct ProgramLoad<'a> {
    /// The running kernel.
    pub kernel: &'a Btf,
    /// The recorded threads.
    pub scope: ThreadScope,
    /// Walks over frames of interpreters, for programs that write samples with stacks.
    pub walks: Option<&'a Arc<WalkMaps>>,
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

/// The arguments of [`Periodic::poll`].
pub struct Poll<'a> {
    /// Time since sampling started.
    pub elapsed: Duration,
    /// The processes found at the start.
    pub pids: &'a [i32],
    /// True if events were thinned: see [`Overload`](super::events::Overload).
    pub thinned: bool,
}

/// The arguments of [`ProfileType::end`].
#[derive(Clone, Copy, Debug, Default)]
pub struct End {
    /// `CLOCK_MONOTONIC`, nanoseconds.
    pub time: u64,
    /// True if events were thinned: see [`Overload`](super::events::Overload).
    pub thinned: bool,
    /// True if processes that the COMMAND started still run after it.
    pub outlived: bool,
    /// True if only the last part of the recording is kept: sums since its start do not apply.
    pub is_last_part: bool,
}

/// Numbers of samples that do not belong to an event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OwnSamples {
    /// Taken.
    pub taken: u64,
    /// Lost.
    pub lost: u64,
}

/// The requirements of a profile type, which are known before anything is opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Needs {
    /// The required clock.
    pub clock: NeededClock,
    /// Whether its stacks are samples.
    pub samples: SampleCounting,
    /// Records about the target's processes, even if no event is sampled.
    pub processes: bool,
    /// Every event, regardless of `-F`.
    pub every_event: bool,
}

/// Whether the stacks of a profile type count in the sample type `samples`, too.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SampleCounting {
    /// They do not.
    #[default]
    Never,
    /// They do if anything else is recorded.
    WithOthers,
    /// They do.
    Always,
}

/// The requirements of a profile type that depend on whether it has BPF programs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProgramNeeds {
    /// Events on the target's own threads, because they are too frequent on whole CPUs.
    pub thread_events: bool,
    /// Records of context switches.
    pub switch_records: bool,
}

/// A profile type of a recording. The methods are in the order of their calls.
///
/// Most types have events: they implement [`events`](ProfileType::events),
/// [`start`](ProfileType::start) to keep their columns, and [`sample`](ProfileType::sample), in
/// addition to the first two. `types/tests.rs` is such a type.
pub trait ProfileType: Send {
    /// Its name in messages: `block I/O`.
    fn name(&self) -> TypeName;

    /// Its sample types. Before [`ProfileType::events`], those without any failure.
    fn sample_types(&self) -> Vec<SampleType>;

    /// Its requirements.
    fn needs(&self) -> Needs {
        Needs::default()
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

    /// Loads its BPF programs; `None`: it has none, or this kernel or user does not allow them.
    fn load_program(&mut self, _load: &ProgramLoad<'_>) -> Option<Arc<dyn KernelProgram>> {
        None
    }

    /// Its further requirements, without BPF programs until [`ProfileType::load_program`].
    fn program_needs(&self) -> ProgramNeeds {
        ProgramNeeds::default()
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
    fn start(&mut self, _maker: &mut StackMaker, _start: &TypeStart<'_>) {}

    /// Its columns of time that values represent from their start to their end. If only the last
    /// part of a recording is kept, such a value counts for its time in that part.
    fn durations(&self) -> Vec<Column> {
        Vec::new()
    }

    /// The ids of all sets of labels change: those that it keeps are to be forgotten. Happens only
    /// while the last part of a recording is kept, to which sums by labels do not apply.
    fn forget_labels(&mut self) {}

    /// Gives a sample of its event number `event` what the type's own record has of its stack.
    fn complete(&self, _event: usize, _sample: &mut Sample<'_>) {}

    /// Handles a sample of its event number `event`, which is [complete](ProfileType::complete);
    /// `weight`: the value in units of the event.
    fn sample(
        &mut self,
        _maker: &mut StackMaker,
        _event: usize,
        _sample: &Sample<'_>,
        _weight: u64,
    ) {
    }

    /// Handles a record about processes, after `maker`.
    fn record(&mut self, _maker: &mut StackMaker, _record: &Record<'_>) {}

    /// Its periodic work.
    fn periodic(&mut self) -> Option<&mut dyn Periodic> {
        None
    }

    /// Its samples that do not belong to an event.
    fn source(&mut self) -> Option<&mut dyn SampleSource> {
        None
    }

    /// Counts of samples so far that do not belong to an event.
    fn own_samples(&self) -> OwnSamples {
        OwnSamples::default()
    }

    /// The arguments of `prof record` that record it of a running process.
    fn arguments_for_process(&self) -> &'static str {
        ""
    }

    /// Adds the remaining values after the last event. Returns notes for the user.
    fn end(&mut self, _maker: &mut StackMaker, _end: &End) -> Vec<Message> {
        Vec::new()
    }
}

/// Work of a profile type that is not caused by an event.
pub trait Periodic {
    /// True if there is work; `thinned`: see [`Poll::thinned`].
    fn is_due(&self, thinned: bool) -> bool;

    /// Milliseconds until the work has to be done; called before each wait.
    fn idle_ms(&mut self, _elapsed: Duration) -> i64 {
        i64::MAX
    }

    /// True if the window must not close yet.
    fn is_busy(&self, _elapsed: Duration) -> bool {
        false
    }

    /// Does the work.
    fn poll(&mut self, maker: &mut StackMaker, now: &Poll<'_>);
}

/// A source of samples other than events.
pub trait SampleSource {
    /// True if a record about processes is for this source only.
    fn claims(&mut self, record: &Record<'_>) -> bool;

    /// Adds its samples from before `until` (`CLOCK_MONOTONIC`, nanoseconds); `over`: these are the
    /// last.
    fn take_in(&mut self, maker: &mut StackMaker, until: u64, over: bool);

    /// The window closes: stops it.
    fn stop(&mut self);

    /// All events are stopped: releases the target.
    fn release(&mut self);
}

#[cfg(test)]
mod tests;
