//! Profile types: what `-T` takes. Each is one file behind one trait, and one line in [`ALL`].
//!
//! A recording asks its types, in this order: what they need ([`ProfileType::prepare`],
//! [`ProfileType::load_program`], [`ProfileType::events`]); then, for each sample of theirs and each
//! record about processes, what to add to the profile; and at the end for what is still missing.
//! It knows none of them by name.

mod collection;
mod cpu;
mod heap;
mod io;
mod lock;
mod paired;
mod settings;
mod syscall_names;
mod syscalls;
mod threads;
mod wall;

use std::ffi::OsString;
use std::rc::Rc;
use std::time::Duration;

use super::attach::EventTrial;
use super::bpf::btf::Btf;
use super::bpf::{KernelProgram, ThreadScope};
use super::recording::Interrupts;
use super::stack_maker::StackMaker;
use super::{EventSpec, Target};
pub use collection::{EventOwner, ProfileTypes};
use profile::{Column, Profile};
pub use settings::{HeapSettings, Settings};
use sys::Error;
use sys::record::{Record, Sample};
pub use threads::snapshot;

/// All profile types, in the order in which their sample types stand in a file.
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

/// Removes what killed recordings have left behind.
pub fn remove_leftovers() {
    heap::remove_leftovers();
}

/// A profile type as it can be asked for.
pub struct Registered {
    /// The value of `-T`.
    pub name: &'static str,
    /// What it records, in a few words for `--help`.
    pub help: &'static str,
    /// The type with these settings, or `None` if they do not ask for it.
    pub new: fn(&Settings) -> Option<Box<dyn ProfileType>>,
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
    /// A number of something.
    pub const fn count(kind: &'static str) -> SampleType {
        SampleType { kind, unit: "count" }
    }

    /// Time.
    pub const fn nanoseconds(kind: &'static str) -> SampleType {
        SampleType { kind, unit: "nanoseconds" }
    }

    /// Memory, or what is read and written.
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
    /// The event that samples CPU time best: `cycles`, or `cpu-clock` where there is no PMU.
    CpuTime,
    /// `cpu-clock`, scope samples [`ProfileType::sample`] gets as event 0, before the events of the
    /// type.
    Nanoseconds,
}

/// What became of a profile type's preparations.
pub enum Prepared {
    /// It is ready.
    Ready,
    /// These events are recorded in its place, and the user is told why.
    Replaced {
        /// The events.
        by: EventSpec,
        /// A sentence.
        note: String,
    },
}

/// What [`ProfileType::prepare`] may need.
pub struct Setup<'a> {
    /// What is recorded.
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
    /// It is sampled every `period` times.
    pub period: u64,
}

impl TypeEvent {
    /// An event that is sampled each time.
    pub fn each_time(spec: EventSpec) -> TypeEvent {
        TypeEvent { spec, period: 1 }
    }
}

/// What [`ProfileType::start`] may need.
pub struct TypeStart<'a> {
    /// The first of its sample types.
    pub first: Column,
    /// The column of CPU time with the weight of a sample of the clock, if CPU time is recorded.
    pub cpu_time: Option<(Column, i64)>,
    /// What is recorded.
    pub target: &'a Target,
    /// The processes that were there.
    pub pids: &'a [i32],
}

/// What [`ProfileType::poll`] may need.
pub struct Poll<'a> {
    /// Since sampling began.
    pub elapsed: Duration,
    /// The processes that were there at the beginning.
    pub pids: &'a [i32],
    /// Events were thinned: see [`Overload`](super::events::Overload).
    pub thinned: bool,
}

/// What [`ProfileType::end`] may need.
pub struct End {
    /// `CLOCK_MONOTONIC`, nanoseconds.
    pub time: u64,
    /// Events were thinned: see [`Overload`](super::events::Overload).
    pub thinned: bool,
    /// Processes that the COMMAND started go on after it.
    pub outlived: bool,
}

/// Samples that are none of an event's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OwnSamples {
    /// Taken.
    pub taken: u64,
    /// Lost.
    pub lost: u64,
}

/// A profile type of a recording.
pub trait ProfileType {
    /// As the subject of a sentence, with its verb: `block I/O is`.
    fn subject(&self) -> &'static str;

    /// Its name in sentences: `block I/O`.
    fn noun(&self) -> &'static str {
        let subject = self.subject();
        subject.rsplit_once(' ').map_or(subject, |(noun, _)| noun)
    }

    /// Its sample types. Before [`ProfileType::events`] those that it has if nothing is refused.
    fn sample_types(&self) -> Vec<SampleType>;

    /// The clock that it needs.
    fn clock(&self) -> NeededClock {
        NeededClock::None
    }

    /// Its stacks count in the sample type `samples`, too. `alone`: nothing else is recorded.
    fn counts_samples(&self, _alone: bool) -> bool {
        false
    }

    /// It needs what the target's processes do even if no event is sampled.
    fn needs_processes(&self) -> bool {
        false
    }

    /// It records everything that happens, whatever `-F` says.
    fn is_each_time(&self) -> bool {
        false
    }

    /// The arguments of `prof record` with which it records a process that runs.
    fn arguments_for_process(&self) -> &'static str {
        ""
    }

    /// Makes ready what it needs before a COMMAND starts.
    ///
    /// # Errors
    ///
    /// One line that says what is in the way: the type is left out, if others are recorded.
    fn prepare(&mut self, _setup: &Setup<'_>) -> Result<Prepared, Error> {
        Ok(Prepared::Ready)
    }

    /// What a COMMAND finds in its environment.
    fn environment(&self) -> Vec<(OsString, OsString)> {
        Vec::new()
    }

    /// Loads its programs into the kernel, for the threads of `scope`; `None`: it has none, or
    /// this kernel or user does not allow them.
    fn load_program(
        &mut self,
        _kernel: &Btf,
        _scope: ThreadScope,
    ) -> Option<Rc<dyn KernelProgram>> {
        None
    }

    /// After [`ProfileType::load_program`]: it needs events on the target's own threads, since they
    /// happen too often for those of whole CPUs.
    fn needs_thread_events(&self) -> bool {
        false
    }

    /// After [`ProfileType::load_program`]: it needs the kernel's records of context switches.
    fn needs_switch_records(&self) -> bool {
        false
    }

    /// Its events; it may be asked more than once, and the last answer counts.
    ///
    /// # Errors
    ///
    /// One line that says what is in the way: the type is left out, if others are recorded.
    fn events(&mut self, _trial: &mut EventTrial<'_>) -> Result<Vec<TypeEvent>, Error> {
        Ok(Vec::new())
    }

    /// Sampling is about to begin.
    ///
    /// # Errors
    ///
    /// One line that says what is in the way: the type is left out, if others are recorded.
    fn begin(&mut self) -> Result<(), Error> {
        Ok(())
    }

    /// Describes it in the profile, if its sample types are the `first` ones or not.
    fn describe(&self, _profile: &mut Profile, _first: bool) {}

    /// Sampling has begun, and its sample types have their columns.
    fn start(&mut self, maker: &mut StackMaker, start: &TypeStart<'_>);

    /// Takes in a sample of its event number `event`; `weight`: what it counts, in units of the event.
    fn sample(
        &mut self,
        _maker: &mut StackMaker,
        _event: usize,
        _sample: &Sample<'_>,
        _weight: u64,
    ) {
    }

    /// True if a record about processes is for this type alone.
    fn claims(&mut self, _record: &Record<'_>) -> bool {
        false
    }

    /// Takes in a record about processes, which `maker` has taken in already.
    fn record(&mut self, _maker: &mut StackMaker, _record: &Record<'_>) {}

    /// It has samples that are none of an event's, for [`ProfileType::take_in`].
    fn has_own_samples(&self) -> bool {
        false
    }

    /// Takes in its own samples from before `until` (`CLOCK_MONOTONIC`, nanoseconds); `over`: there
    /// will be no more.
    fn take_in(&mut self, _maker: &mut StackMaker, _until: u64, _over: bool) {}

    /// Milliseconds until [`ProfileType::poll`] is due, asked before each wait.
    fn idle_ms(&mut self, _elapsed: Duration) -> i64 {
        i64::MAX
    }

    /// The window must not close yet.
    fn is_busy(&self, _elapsed: Duration) -> bool {
        false
    }

    /// Does what is to be done now and then.
    fn poll(&mut self, _maker: &mut StackMaker, _now: &Poll<'_>) {}

    /// The window closes: its own samples end.
    fn stop(&mut self) {}

    /// All events are stopped: lets go of the target.
    fn release(&mut self) {}

    /// Counts of [`ProfileType::take_in`] and [`ProfileType::poll`] so far.
    fn own_samples(&self) -> OwnSamples {
        OwnSamples::default()
    }

    /// Everything was taken in: adds what is still missing. Returns sentences for the user.
    fn end(&mut self, maker: &mut StackMaker, end: &End) -> Vec<String>;
}

#[cfg(test)]
mod tests;
