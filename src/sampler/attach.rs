//! Opens the events of a session: on every thread of processes, or on CPUs.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};

use perf_event::{Builder, Counter};
use perf_event_open_sys::ioctls;
use rustc_hash::{FxHashMap, FxHashSet};

use super::attr::{Features, SHORTEST_CLOCK, Shape, Start, Trigger, sampling_event, trigger};
use super::events::Kind;
use super::permissions::{Wanted, explain};
use super::record::{self, Record};
use super::ring::Ring;
use super::{Error, EventSpec, Options, Rate};
use crate::os;
use crate::process::procfs;

/// Descriptors that are needed besides those of events.
const OTHER_FILES: u64 = 128;

/// Rounds of enumeration before giving up on a target that never stops starting threads from
/// threads that were not attached; each round attaches all that it sees.
const MAX_ROUNDS: usize = 50;

/// When threads stop running too often, so many times are sampled once. It is no divisor of what
/// programs do by turns.
pub const THINNED: u64 = 61;

/// Who an event is opened on.
#[derive(Clone, Copy)]
pub enum Who<'a> {
    /// A thread.
    Thread(i32),
    /// Everything on a CPU.
    Cpu,
    /// A cgroup on a CPU.
    Cgroup(&'a File),
}

/// An event that was opened, as samples name it by its identifier.
#[derive(Clone, Copy, Debug)]
pub struct Opened {
    /// Index in [`Attacher::events`].
    pub event: u16,
}

/// Opens events and remembers them.
pub struct Attacher {
    /// The events, defaults resolved.
    pub events: Vec<EventSpec>,
    /// Their triggers.
    pub triggers: Vec<Trigger>,
    /// What the kernel and the user may.
    pub features: Features,
    /// All opened events; they end when these are dropped.
    pub counters: Vec<Counter>,
    /// Identifier → event.
    pub ids: FxHashMap<u64, Opened>,
    /// Sentences for the user about fallbacks.
    pub notes: Vec<String>,
    options: Options,
    cpus: Vec<u32>,
    cpu_wide: bool,
}

impl Attacher {
    /// Resolves the defaults and tries each event once, on prof itself or on the first CPU.
    ///
    /// Errors: an event does not exist here, or nothing may be recorded.
    pub fn new(options: &Options, cpus: Vec<u32>, cpu_wide: bool) -> Result<Attacher, Error> {
        let mut attacher = Attacher {
            events: options.events.clone(),
            triggers: Vec::new(),
            features: Features { build_id: true, kernel: true },
            counters: Vec::new(),
            ids: FxHashMap::default(),
            notes: Vec::new(),
            options: options.clone(),
            cpus,
            cpu_wide,
        };
        attacher.resolve_events()?;
        Ok(attacher)
    }

    fn resolve_events(&mut self) -> Result<(), Error> {
        let max_rate = procfs::sysctl("kernel/perf_event_max_sample_rate").unwrap_or(100_000);
        let max_rate = max_rate.max(1) as u64;
        if let Rate::Frequency(hz) = self.options.rate
            && hz > max_rate
        {
            self.notes.push(format!(
                "{hz} Hz is beyond the kernel's limit; sampling at {max_rate} Hz \
                 (sysctl kernel.perf_event_max_sample_rate)"
            ));
        }
        let default = self.events.is_empty();
        if default {
            // Time on a CPU and off it are told by one clock.
            let clock = self.options.switches;
            let event = if clock { EventSpec::cpu_clock() } else { EventSpec::cycles() };
            self.events.push(event);
        }
        for i in 0..self.events.len() {
            let spec = self.events[i].clone();
            match self.try_event(&spec, trigger(&spec, self.options.rate, max_rate)) {
                Ok(()) => {}
                Err(e) if default && is_missing(&e) => {
                    self.events[i] = EventSpec::cpu_clock();
                    self.notes.push(
                        "no hardware counters on this machine: sampling cpu-clock instead of cycles"
                            .to_owned(),
                    );
                    let spec = self.events[i].clone();
                    let at = trigger(&spec, self.options.rate, max_rate);
                    self.try_event(&spec, at).map_err(|e| self.refused(&spec, &e))?;
                }
                Err(e) => return Err(self.refused(&spec, &e)),
            }
            self.triggers.push(trigger(&self.events[i], self.options.rate, max_rate));
        }
        if self.options.switches {
            self.resolve_switches()?;
        }
        self.note_short_period();
        Ok(())
    }

    fn resolve_switches(&mut self) -> Result<(), Error> {
        let trigger = Trigger::Period(1);
        if !self.features.kernel {
            // That is where they happen.
            let denied = io::Error::from_raw_os_error(libc::EACCES);
            return Err(Error::other(explain(&denied, Wanted::Kernel)));
        }
        let before = (self.features, self.notes.len());
        let mut spec = EventSpec::switches();
        if self.try_event(&spec, trigger).is_err() || !self.features.kernel {
            self.features = before.0;
            self.notes.truncate(before.1);
            spec = EventSpec::software_switches();
            self.try_event(&spec, trigger).map_err(|e| self.refused(&spec, &e))?;
        }
        self.events.extend([spec.clone(), spec]);
        self.triggers.extend([trigger, Trigger::Period(THINNED)]);
        Ok(())
    }

    fn note_short_period(&mut self) {
        if let Rate::Period(period @ ..SHORTEST_CLOCK) = self.options.rate
            && self.events.iter().any(|e| e.kind == Kind::Clock)
        {
            self.notes.push(format!(
                "the kernel's clocks have no period of {period} ns; sampling each \
                 {SHORTEST_CLOCK} ns, the shortest"
            ));
        }
    }

    /// Opens an event on prof itself (or a CPU) and narrows the features down to what works.
    fn try_event(&mut self, spec: &EventSpec, trigger: Trigger) -> io::Result<()> {
        let shape = self.shape(trigger, true, Start::Later);
        loop {
            let mut builder = sampling_event(spec, &shape, self.features);
            builder.enabled(false);
            if self.cpu_wide {
                builder.any_pid();
            } else {
                builder.observe_self();
            }
            let error = match builder.one_cpu(self.cpus[0] as usize).build() {
                Ok(_) => return Ok(()),
                Err(e) => e,
            };
            let denied = matches!(error.raw_os_error(), Some(libc::EACCES | libc::EPERM));
            if denied && self.features.kernel && spec.user && !self.cpu_wide {
                self.features.kernel = false;
                let why = explain(&error, Wanted::Kernel);
                self.notes.push(format!("kernel frames are left out: {why}"));
            } else if self.features.build_id && !denied && !is_missing(&error) {
                self.features.build_id = false;
            } else {
                return Err(error);
            }
        }
    }

    fn refused(&self, spec: &EventSpec, error: &io::Error) -> Error {
        if is_missing(error) {
            return Error::other(format!(
                "event '{}' does not exist on this machine{}; nearest that works: {}",
                spec.name,
                if spec.kind == Kind::Hardware {
                    " (no hardware counters, or not this one)"
                } else {
                    ""
                },
                spec.nearest_software()
            ));
        }
        let wanted = match spec.kind {
            Kind::Tracepoint => Wanted::Tracepoint(spec.name.clone()),
            _ if self.cpu_wide => Wanted::WholeMachine,
            _ if !spec.user => Wanted::Kernel,
            _ => Wanted::OwnProcess,
        };
        Error::other(explain(error, wanted))
    }

    fn shape(&self, trigger: Trigger, sideband: bool, start: Start) -> Shape {
        Shape {
            trigger,
            stacks: self.options.stacks,
            inherit: self.options.inherit && !self.cpu_wide,
            sideband,
            switches: sideband && self.options.switches,
            start,
            cpu_wide: self.cpu_wide,
        }
    }

    fn start(&self, event: usize) -> Start {
        let thinned = self.options.switches && event + 1 == self.events.len();
        let command = matches!(self.options.target, super::Target::Command(_));
        match (thinned, command && !self.cpu_wide) {
            (true, _) => Start::Later,
            (false, true) => Start::OnExec,
            (false, false) => Start::Now,
        }
    }

    /// Makes sure that so many threads can be opened.
    ///
    /// Errors: the hard limit of open files is too low; the line says what is needed.
    pub fn reserve_files(&mut self, threads: usize) -> Result<(), Error> {
        let events = threads * self.cpus.len() * self.events.len();
        let needed = (self.counters.len() + events) as u64 + OTHER_FILES;
        match os::raise_open_files(needed) {
            Ok(None) => Ok(()),
            Ok(Some((old, new))) => {
                self.notes.push(format!(
                    "raised the limit of open files from {old} to {new} for {threads} threads"
                ));
                Ok(())
            }
            Err(_) => Err(Error::other(format!(
                "too few file descriptors: {threads} threads on {} CPUs need {needed}; run \
                 'ulimit -n {needed}' first (as root, if the hard limit is in the way), or \
                 record with -a",
                self.cpus.len()
            ))),
        }
    }

    /// Opens all events of one thread, CPU or cgroup, redirects them to the rings, and starts
    /// them (unless they start at `execve`).
    ///
    /// Returns false when the thread is gone.
    pub fn open(&mut self, who: Who<'_>, rings: &[Ring]) -> io::Result<bool> {
        for event in 0..self.events.len() {
            let shape = self.shape(self.triggers[event], event == 0, self.start(event));
            for ring in rings {
                let mut builder = sampling_event(&self.events[event], &shape, self.features);
                builder.enabled(false).one_cpu(ring.cpu() as usize);
                match who {
                    Who::Thread(tid) => builder.observe_pid(tid),
                    Who::Cpu => builder.any_pid(),
                    Who::Cgroup(folder) => builder.observe_cgroup(folder),
                };
                match self.open_one(&builder, ring, event as u16, shape.start) {
                    Ok(()) => {}
                    Err(e) if e.raw_os_error() == Some(libc::ESRCH) => return Ok(false),
                    Err(e) => return Err(e),
                }
            }
        }
        Ok(true)
    }

    fn open_one(
        &mut self,
        builder: &Builder<'_>,
        ring: &Ring,
        event: u16,
        start: Start,
    ) -> io::Result<()> {
        let mut counter = builder.build()?;
        set_output(&counter, ring.fd())?;
        self.ids.insert(counter.id(), Opened { event });
        if start == Start::Now {
            counter.enable()?;
        }
        self.counters.push(counter);
        Ok(())
    }

    /// Samples the event `to` from now on, and not `from`. (The period of an event can be changed,
    /// but not that of those that were inherited from it.)
    pub fn replace(&mut self, from: usize, to: usize) {
        for (event, on) in [(to, true), (from, false)] {
            let ids = &self.ids;
            let is_it = |c: &&mut Counter| {
                ids.get(&c.id()).is_some_and(|opened| usize::from(opened.event) == event)
            };
            for counter in self.counters.iter_mut().filter(is_it) {
                // One whose thread is gone has nothing to sample.
                let _ = if on { counter.enable() } else { counter.disable() };
            }
        }
    }

    /// Number of CPUs.
    pub fn cpus(&self) -> usize {
        self.cpus.len()
    }

    /// The events are those of whole CPUs.
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

    /// Attaches to all threads of these processes; threads that are born meanwhile are either
    /// inherited (then the ring holds their `FORK`) or found by the next round.
    ///
    /// Returns the number of threads attached.
    pub fn attach_processes(&mut self, pids: &[i32], rings: &mut [Ring]) -> Result<usize, Error> {
        let mut known = FxHashSet::default();
        let mut attached = 0;
        for _ in 0..MAX_ROUNDS {
            let mut new: Vec<i32> = pids
                .iter()
                .flat_map(|&pid| procfs::threads(pid).unwrap_or_default())
                .filter(|tid| !known.contains(tid))
                .collect();
            if attached > 0 && !new.is_empty() {
                // A FORK record is written just after the thread becomes visible.
                std::thread::sleep(std::time::Duration::from_millis(1));
                let born = forked(rings);
                known.extend(new.extract_if(.., |tid| born.contains(tid)));
            }
            if new.is_empty() {
                break;
            }
            self.reserve_files(new.len())?;
            for tid in new {
                known.insert(tid);
                let opened = self.open(Who::Thread(tid), rings);
                attached += usize::from(opened.map_err(|e| self.not_attached(tid, &e))?);
            }
        }
        Ok(attached)
    }

    fn not_attached(&self, tid: i32, error: &io::Error) -> Error {
        let pid = procfs::owner(tid).map_or(tid, |(pid, _)| pid);
        Error::other(explain(error, Wanted::OtherProcess(pid as u32)))
    }

    /// Reads all counters: what the kernel counted of each event, inherited ones included, and
    /// the samples of all events that it could not write.
    pub fn totals(&mut self) -> Totals {
        let mut totals = Totals { events: vec![0; self.events.len()], lost: 0 };
        for counter in &mut self.counters {
            let Ok(data) = counter.read_full() else { continue };
            totals.lost += data.lost().unwrap_or(0);
            if let Some(opened) = self.ids.get(&counter.id()) {
                totals.events[usize::from(opened.event)] += data.count();
            }
        }
        totals
    }
}

/// Lets events of a CPU write to another ring of that CPU from now on, which `ring` owns. What is
/// being written may still go to the one before. The kernel waits until no CPU is within such a
/// moment, a few ticks long (`ring_buffer_attach` in kernel/events/core.c).
///
/// Errors: then some of the events may still use the ring before.
pub fn redirect(events: &[OwnedFd], ring: &OwnedFd) -> io::Result<()> {
    events.iter().try_for_each(|event| set_output(event, ring.as_raw_fd()))
}

fn set_output(event: &impl AsRawFd, ring: RawFd) -> io::Result<()> {
    // SAFETY: both descriptors are open perf events; the call only links them.
    match unsafe { ioctls::SET_OUTPUT(event.as_raw_fd(), ring) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// What the kernel counted by the end.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Each event, in its unit.
    pub events: Vec<u64>,
    /// Samples that could not be written.
    pub lost: u64,
}

/// Threads whose birth is in the rings, that is: that inherited our events.
fn forked(rings: &mut [Ring]) -> FxHashSet<i32> {
    let mut born = FxHashSet::default();
    for ring in rings {
        ring.refresh();
        ring.scan(|header, bytes| {
            if let Some(Record::Fork { tid, .. }) = record::other(header, bytes) {
                born.insert(tid);
            }
        });
    }
    born
}

/// The kernel or the machine lacks the event (rather than refusing it).
fn is_missing(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ENODEV | libc::EOPNOTSUPP))
}
