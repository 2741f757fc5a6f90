//! Opens the events of a session: on every thread of processes, or on CPUs.

#![allow(unsafe_code)]

mod counts;
mod precise_ip;
mod processes;
mod resolve;
mod trial;

use std::ffi::CString;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::Arc;

use perf_event::{Builder, Counter};
use perf_event_open_sys::ioctls;
use rustc_hash::FxHashMap;

use super::attr::{self, Features, Shape, StartWhen, Trigger, sampling_event};
use super::bpf::deep::DeepStacks;
use super::bpf::filter::SampleFilter;
use super::bpf::walk::WalkMaps;
use super::events::{EventKind, GroupRole, Overload};
use super::permissions::{Wanted, refused};
use super::probe_definitions::Definitions;
use super::ring::Ring;
use super::rings::Outputs;
use super::types::{EventOwner, NeededClock, ProfileTypes};
use super::{EventSpec, LeftOut, Options};
use messages::Message;
use sys::Error;
use sys::os;
pub use trial::EventTrial;

/// File descriptors that are needed in addition to those of events.
const OTHER_FILES: u64 = 128;

/// The target of an event.
#[derive(Clone, Copy)]
pub enum Who<'a> {
    /// A thread.
    Thread(i32),
    /// All threads on a CPU.
    Cpu,
    /// A cgroup on a CPU.
    Cgroup(&'a File),
}

/// An opened event; samples refer to it by its identifier.
#[derive(Clone, Copy, Debug)]
pub struct Opened {
    /// Index in [`Attacher::events`].
    pub event: u16,
}

/// Opens events and keeps them.
pub struct Attacher {
    /// The events, with defaults resolved.
    pub events: Vec<EventSpec>,
    /// The trigger of each event.
    pub triggers: Vec<Trigger>,
    /// Features that the kernel and the user's privileges allow.
    pub features: Features,
    /// All opened events; they are closed when dropped.
    pub counters: Vec<Counter>,
    /// The events that carry the sideband records; they sample nothing.
    sideband: Vec<Counter>,
    /// Events of CPUs that went offline: they have counts, but sample nothing any more.
    retired: Vec<Counter>,
    /// True after [`Attacher::begin`]: events opened later start at once.
    begun: bool,
    /// The event of each identifier.
    pub ids: FxHashMap<u64, Opened>,
    /// The profile type that each event belongs to, if any.
    owners: Vec<Option<EventOwner>>,
    /// Indexes of the profile types that are left out.
    pub types_left_out: Vec<usize>,
    /// Copies the parts of stacks that the kernel's copies lack.
    pub deep: DeepStacks,
    /// Notes for the user about fallbacks.
    pub notes: Vec<Message>,
    /// Requested events and types that are not available.
    refused: Vec<LeftOut>,
    /// Probe definitions, which outlive the events that use them.
    definitions: Definitions,
    options: Options,
    cpus: Vec<u32>,
    pub(super) cpu_wide: bool,
    /// The clock that profile types need, which is the first event.
    clock: NeededClock,
    /// True if the first event carries records of context switches.
    switch_records: bool,
    /// Programs that select the samples of the target, where whole CPUs are sampled on behalf of
    /// processes.
    pub(super) filter: Option<SampleFilter>,
}

impl Attacher {
    /// Resolves the defaults and tries each event once, on prof itself or on the first CPU. `walks`:
    /// those that programs of profile types make.
    ///
    /// # Errors
    ///
    /// An event does not exist here, or recording is not permitted.
    pub fn new(
        options: &Options,
        types: &mut ProfileTypes,
        cpus: Vec<u32>,
        cpu_wide: bool,
        walks: Option<&Arc<WalkMaps>>,
    ) -> Result<Attacher, Error> {
        let mut attacher = Attacher {
            events: options.events.clone(),
            triggers: Vec::new(),
            features: Features::all(&options.target),
            counters: Vec::new(),
            sideband: Vec::new(),
            retired: Vec::new(),
            begun: false,
            ids: FxHashMap::default(),
            owners: Vec::new(),
            types_left_out: Vec::new(),
            deep: DeepStacks::default(),
            notes: Vec::new(),
            refused: options.refused.clone(),
            definitions: Definitions::default(),
            options: options.clone(),
            cpus,
            cpu_wide,
            clock: types.clock(),
            switch_records: types.iter().any(|(_, kind)| kind.program_needs().switch_records),
            filter: None,
        };
        attacher.resolve_sideband();
        attacher.resolve_events(types)?;
        let sampled = attacher.events.iter().zip(&attacher.triggers);
        attacher.deep = DeepStacks::for_events(options, sampled, walks);
        Ok(attacher)
    }

    /// True if no requested event or type is left out.
    pub fn has_everything(&self) -> bool {
        self.refused.len() == self.options.refused.len()
    }

    /// The clock that the first event provides.
    pub fn clock(&self) -> NeededClock {
        self.clock
    }

    /// The profile type that an event belongs to, if any.
    pub fn owner(&self, event: usize) -> Option<EventOwner> {
        self.owners.get(event).copied().flatten()
    }

    /// The events of a profile type, in order.
    pub fn events_of(&self, index: usize) -> impl Iterator<Item = usize> + '_ {
        let is_it =
            move |owner: &Option<EventOwner>| owner.is_some_and(|owner| owner.index == index);
        let owners = self.owners.iter().enumerate();
        owners.filter(move |(_, owner)| is_it(owner)).map(|(event, _)| event)
    }

    fn shape(&self, spec: &EventSpec, trigger: Trigger, first: bool, start: StartWhen) -> Shape {
        let cpu_wide = self.cpu_wide || spec.anywhere;
        Shape {
            trigger,
            stacks: self.options.stacks,
            inherit: self.options.inherit && !cpu_wide,
            switches: first && self.switch_records,
            start,
            cpu_wide,
        }
    }

    fn start(&self, event: usize) -> StartWhen {
        let later = self.events[event].overload == Overload::Start;
        let command = matches!(self.options.target, super::Target::Command(_));
        match (later, command && !self.cpu_wide && !self.events[event].anywhere) {
            (true, _) => StartWhen::Later,
            (false, true) => StartWhen::OnExec,
            (false, false) => StartWhen::Now,
        }
    }

    /// Raises the limit of open files, so that this number of threads can be opened.
    ///
    /// # Errors
    ///
    /// The hard limit of open files is too low; the line states the required one.
    pub fn reserve_files(&mut self, threads: usize) -> Result<(), Error> {
        let events = threads * self.cpus.len() * (self.events.len() + 1);
        let needed = (self.counters.len() + self.sideband.len() + events) as u64 + OTHER_FILES;
        match os::raise_open_files(needed) {
            Ok(None) => Ok(()),
            Ok(Some((old, new))) => {
                let threads = threads as u64;
                self.notes.push(Message::OpenFilesRaised { from: old, to: new, threads });
                Ok(())
            }
            Err(_) => Err(Error::failed(format!(
                "too few file descriptors: {threads} threads on {} CPUs need {needed}; run \
                 'ulimit -n {needed}' first (as root, if the hard limit is in the way), or \
                 record with -a",
                self.cpus.len()
            ))),
        }
    }

    /// Opens all events of one thread, CPU or cgroup and redirects them to the rings. Sideband
    /// records are written from now on (or from `execve` on), samples from [`Attacher::begin`] on.
    ///
    /// Returns false if the thread has exited.
    pub fn open(&mut self, who: Who<'_>, outputs: Outputs<'_>) -> io::Result<bool> {
        let machine = matches!(who, Who::Cpu);
        let first = self.counters.len();
        match self.open_sideband(who, outputs.sideband) {
            Ok(()) => {}
            Err(e) if e.raw_os_error() == Some(libc::ESRCH) => return Ok(false),
            Err(e) => return Err(e),
        }
        for event in 0..self.events.len() {
            if self.events[event].anywhere && !machine {
                continue;
            }
            match self.open_event(event, who, outputs, first) {
                Ok(()) => {}
                Err(e) if e.raw_os_error() == Some(libc::ESRCH) => return Ok(false),
                Err(e) => return Err(e),
            }
        }
        Ok(true)
    }

    /// Opens the events that are sampled on all CPUs, unless all events are.
    pub fn open_anywhere(&mut self, outputs: Outputs<'_>) -> Result<(), Error> {
        for event in 0..self.events.len() {
            if self.events[event].anywhere {
                // None of these is a member of a group.
                let opened = self.open_event(event, Who::Cpu, outputs, 0);
                opened.map_err(|e| refused(&e, Wanted::WholeMachine))?;
            }
        }
        Ok(())
    }

    /// Opens the sideband event, with rings of its own.
    fn open_sideband(&mut self, who: Who<'_>, rings: &[Ring]) -> io::Result<()> {
        let command = matches!(self.options.target, super::Target::Command(_));
        let inherit = self.options.inherit && !self.cpu_wide;
        for ring in rings {
            let mut builder = attr::sideband_event(inherit, self.features);
            builder.enabled(false).one_cpu(ring.cpu() as usize);
            observe(&mut builder, who);
            let on_exec = command && !self.cpu_wide;
            builder.attrs_mut().set_enable_on_exec(u64::from(on_exec));
            let mut counter = builder.build()?;
            set_output(&counter, ring.fd())?;
            if !on_exec {
                counter.enable()?;
            }
            self.sideband.push(counter);
        }
        Ok(())
    }

    /// `first`: index of the first counter of the same thread, CPU or cgroup.
    fn open_event(
        &mut self,
        event: usize,
        who: Who<'_>,
        outputs: Outputs<'_>,
        first: usize,
    ) -> io::Result<()> {
        let leader = (self.events[event].group == GroupRole::Member).then(|| self.leader_of(event));
        let spec = &self.events[event];
        let trigger = self.triggers[event];
        let shape = self.shape(spec, trigger, event == 0, self.start(event));
        let rings = if spec.with_records { outputs.sideband } else { outputs.samples };
        for (at, ring) in rings.iter().enumerate() {
            let mut builder = sampling_event(&self.events[event], &shape, self.features);
            builder.enabled(false).one_cpu(ring.cpu() as usize);
            observe(&mut builder, who);
            let leader = leader.map(|leader| first + leader * rings.len() + at);
            self.open_one(&builder, ring, event as u16, shape.start, leader)?;
        }
        Ok(())
    }

    fn open_one(
        &mut self,
        builder: &Builder<'_>,
        ring: &Ring,
        event: u16,
        start: StartWhen,
        leader: Option<usize>,
    ) -> io::Result<()> {
        let mut counter = match leader {
            Some(leader) => builder.build_with_group(&mut self.counters[leader])?,
            None => builder.build()?,
        };
        let spec = &self.events[usize::from(event)];
        set_filter(&counter, spec)?;
        set_output(&counter, ring.fd())?;
        let dump = builder.attrs().sample_stack_user;
        let filter = self.filter.as_ref().filter(|_| spec.kind == EventKind::Clock);
        let has_program = self.deep.attach(&counter, spec, dump, filter);
        if let Some(filter) = filter.filter(|_| !has_program) {
            filter.attach(counter.as_raw_fd());
        }
        self.ids.insert(counter.id(), Opened { event });
        if start == StartWhen::Now && self.begun {
            counter.enable()?;
        }
        self.counters.push(counter);
        Ok(())
    }

    /// Starts the events: all opened ones and those inherited from them.
    ///
    /// Opening thousands of events takes as long as many sampling periods, and the rings are not
    /// read during that time.
    pub fn begin(&mut self) {
        self.begun = true;
        let events: Vec<bool> =
            (0..self.events.len()).map(|event| self.start(event) == StartWhen::Now).collect();
        let ids = &self.ids;
        let starts =
            |c: &&mut Counter| ids.get(&c.id()).is_some_and(|o| events[usize::from(o.event)]);
        for counter in self.counters.iter_mut().filter(starts) {
            // The event of a thread that has exited has nothing to sample.
            let _ = counter.enable();
        }
    }

    /// Opens the events of a CPU (by index) again, if all events are those of whole CPUs: the
    /// kernel removes the events of a CPU that goes offline and does not restore them.
    ///
    /// # Errors
    ///
    /// The CPU is offline again.
    pub fn reopen(&mut self, at: usize, outputs: Outputs<'_>) -> io::Result<()> {
        assert!(self.cpu_wide, "the events of threads follow them to any CPU");
        let ring = |rings: &'_ [Ring]| at..(at + 1).min(rings.len());
        let outputs = Outputs {
            sideband: &outputs.sideband[ring(outputs.sideband)],
            samples: &outputs.samples[ring(outputs.samples)],
        };
        let first = self.counters.len();
        let cpus = self.cpus.len();
        let opened = self.open(Who::Cpu, outputs);
        if opened.is_ok() && self.counters.len() == first + self.events.len() {
            self.sideband.swap_remove(at);
            for event in 0..self.events.len() {
                self.counters.swap(event * cpus + at, first + event);
            }
        }
        self.retired.extend(self.counters.drain(first..));
        opened.map(drop)
    }

    /// Starts or stops sampling an event. (The period of an event can be changed, but not that of
    /// events inherited from it.)
    pub fn set_sampling(&mut self, event: usize, on: bool) {
        let ids = &self.ids;
        let is_it = |c: &&mut Counter| {
            ids.get(&c.id()).is_some_and(|opened| usize::from(opened.event) == event)
        };
        for counter in self.counters.iter_mut().filter(is_it) {
            // The event of a thread that has exited has nothing to sample.
            let _ = if on { counter.enable() } else { counter.disable() };
        }
    }

    /// Stops all events but those whose samples must not be lost.
    pub fn disable_samples(&mut self) {
        let Attacher { ids, events, counters, .. } = self;
        let stops = |c: &&mut Counter| {
            let event = ids.get(&c.id()).map(|opened| usize::from(opened.event));
            event.is_some_and(|event| !events[event].with_records)
        };
        for counter in counters.iter_mut().filter(stops) {
            // The event of a thread that has exited has nothing to sample.
            let _ = counter.disable();
        }
    }

    /// The descriptors of an event; of whole CPUs, in the order of the rings.
    pub fn descriptors(&self, event: usize) -> Vec<RawFd> {
        let is_it =
            |c: &&Counter| self.ids.get(&c.id()).is_some_and(|o| usize::from(o.event) == event);
        self.counters.iter().filter(is_it).map(AsRawFd::as_raw_fd).collect()
    }

    /// The sampled CPUs.
    pub fn cpus(&self) -> &[u32] {
        &self.cpus
    }

    /// True if the events are opened on whole CPUs.
    pub fn is_cpu_wide(&self) -> bool {
        self.cpu_wide
    }

    /// The events of a CPU (by index), for [`redirect`].
    pub fn events_of_cpu(&self, cpu: usize) -> io::Result<Vec<OwnedFd>> {
        assert!(self.cpu_wide, "the events of a thread are not in the order of the CPUs");
        let events = self.counters.iter().skip(cpu).step_by(self.cpus.len());
        // SAFETY: a counter keeps its descriptor open, and it is borrowed for long enough.
        events
            .map(|c| unsafe { BorrowedFd::borrow_raw(c.as_raw_fd()) }.try_clone_to_owned())
            .collect()
    }
}

/// Redirects events of a CPU to another ring of that CPU, which `ring` owns. Records in progress
/// may still be written to the previous ring. The kernel waits for an RCU grace period, a few ticks
/// long (`ring_buffer_attach` in kernel/events/core.c).
///
/// # Errors
///
/// Some of the events may still use the previous ring.
pub fn redirect(events: &[OwnedFd], ring: &OwnedFd) -> io::Result<()> {
    events.iter().try_for_each(|event| set_output(event, ring.as_raw_fd()))
}

fn observe<'a>(builder: &mut Builder<'a>, who: Who<'a>) {
    match who {
        Who::Thread(tid) => builder.observe_pid(tid),
        Who::Cpu => builder.any_pid(),
        Who::Cgroup(directory) => builder.observe_cgroup(directory),
    };
}

fn set_output(event: &impl AsRawFd, ring: RawFd) -> io::Result<()> {
    // SAFETY: both descriptors are open perf events; the call only links them.
    match unsafe { ioctls::SET_OUTPUT(event.as_raw_fd(), ring) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Sets the filter of a tracepoint, in the kernel; inherited events have the same.
///
/// # Errors
///
/// The filter is invalid for this tracepoint (`EINVAL`).
fn set_filter(event: &impl AsRawFd, spec: &EventSpec) -> io::Result<()> {
    let Some(filter) = &spec.filter else { return Ok(()) };
    let filter = CString::new(filter.as_str())?;
    // SAFETY: the descriptor is an open perf event; the kernel copies the text within the call.
    match unsafe { ioctls::SET_FILTER(event.as_raw_fd(), filter.as_ptr().cast_mut()) } {
        0.. => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
