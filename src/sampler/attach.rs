//! Opens the events of a session: on every thread of processes, or on CPUs.

mod precise;
mod resolve;

use std::ffi::CString;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};

use perf_event::{Builder, Counter};
use perf_event_open_sys::ioctls;
use rustc_hash::{FxHashMap, FxHashSet};

use super::attr::{Features, Shape, Start, Trigger, sampling_event};
use super::bpf::Told;
use super::definitions::Definitions;
use super::events::Kind;
use super::permissions::{Wanted, explain};
use super::record::{self, Record};
use super::ring::Ring;
use super::spans::SpanSet;
use super::{Error, EventSpec, Options, Refused};
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
    /// The profile types that are made of spans, in the order of their events.
    pub spans: Vec<SpanSet>,
    /// Sentences for the user about fallbacks.
    pub notes: Vec<String>,
    /// What was asked for and is left out.
    refused: Vec<Refused>,
    /// Outlive the events that use them.
    definitions: Definitions,
    options: Options,
    cpus: Vec<u32>,
    pub(super) cpu_wide: bool,
    /// What programs in the kernel tell.
    told: Told,
}

impl Attacher {
    /// Resolves the defaults and tries each event once, on prof itself or on the first CPU.
    ///
    /// Errors: an event does not exist here, or nothing may be recorded.
    /// `told`: what programs in the kernel tell.
    pub fn new(
        options: &Options,
        cpus: Vec<u32>,
        cpu_wide: bool,
        told: Told,
    ) -> Result<Attacher, Error> {
        let mut attacher = Attacher {
            events: options.events.clone(),
            triggers: Vec::new(),
            features: Features { build_id: true, kernel: true },
            counters: Vec::new(),
            ids: FxHashMap::default(),
            spans: Vec::new(),
            notes: Vec::new(),
            refused: options.refused.clone(),
            definitions: Definitions::default(),
            options: options.clone(),
            cpus,
            cpu_wide,
            told,
        };
        attacher.resolve_events()?;
        Ok(attacher)
    }

    /// Of the events that it was given, none is left out.
    pub fn has_all_events(&self) -> bool {
        self.refused.len() == self.options.refused.len()
    }

    fn shape(&self, spec: &EventSpec, trigger: Trigger, sideband: bool, start: Start) -> Shape {
        let cpu_wide = self.cpu_wide || spec.anywhere;
        Shape {
            trigger,
            stacks: self.options.stacks,
            inherit: self.options.inherit && !cpu_wide,
            sideband,
            switches: sideband && self.options.switches && !self.told.wall,
            start,
            cpu_wide,
        }
    }

    fn start(&self, event: usize) -> Start {
        let thinned = self.events[event].kind == Kind::Switch
            && self.triggers[event] == Trigger::Period(THINNED);
        let command = matches!(self.options.target, super::Target::Command(_));
        match (thinned, command && !self.cpu_wide && !self.events[event].anywhere) {
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
        let machine = matches!(who, Who::Cpu);
        let first = self.counters.len();
        for event in 0..self.events.len() {
            if self.events[event].anywhere && !machine {
                continue;
            }
            match self.open_event(event, who, rings, first) {
                Ok(()) => {}
                Err(e) if e.raw_os_error() == Some(libc::ESRCH) => return Ok(false),
                Err(e) => return Err(e),
            }
        }
        Ok(true)
    }

    /// Opens the events that are sampled wherever they happen, unless all are.
    pub fn open_anywhere(&mut self, rings: &[Ring]) -> Result<(), Error> {
        for event in 0..self.events.len() {
            if self.events[event].anywhere {
                // None of these is a member of a group.
                let opened = self.open_event(event, Who::Cpu, rings, 0);
                opened.map_err(|e| Error::other(explain(&e, Wanted::WholeMachine)))?;
            }
        }
        Ok(())
    }

    /// The counters of the same thread, CPU or cgroup begin at `first`.
    fn open_event(
        &mut self,
        event: usize,
        who: Who<'_>,
        rings: &[Ring],
        first: usize,
    ) -> io::Result<()> {
        let leader = self.events[event].member.then(|| self.leader_of(event));
        let (spec, trigger) = (&self.events[event], self.triggers[event]);
        let shape = self.shape(spec, trigger, event == 0, self.start(event));
        for (at, ring) in rings.iter().enumerate() {
            let mut builder = sampling_event(&self.events[event], &shape, self.features);
            builder.enabled(false).one_cpu(ring.cpu() as usize);
            match who {
                Who::Thread(tid) => builder.observe_pid(tid),
                Who::Cpu => builder.any_pid(),
                Who::Cgroup(folder) => builder.observe_cgroup(folder),
            };
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
        start: Start,
        leader: Option<usize>,
    ) -> io::Result<()> {
        let mut counter = match leader {
            Some(leader) => builder.build_with_group(&mut self.counters[leader])?,
            None => builder.build()?,
        };
        set_filter(&counter, &self.events[usize::from(event)])?;
        set_output(&counter, ring.fd())?;
        self.ids.insert(counter.id(), Opened { event });
        if start == Start::Now {
            counter.enable()?;
        }
        self.counters.push(counter);
        Ok(())
    }

    /// Samples an event from now on, or no longer. (The period of an event can be changed, but not
    /// that of those that were inherited from it.)
    pub fn turn(&mut self, event: usize, on: bool) {
        let ids = &self.ids;
        let is_it = |c: &&mut Counter| {
            ids.get(&c.id()).is_some_and(|opened| usize::from(opened.event) == event)
        };
        for counter in self.counters.iter_mut().filter(is_it) {
            // One whose thread is gone has nothing to sample.
            let _ = if on { counter.enable() } else { counter.disable() };
        }
    }

    /// The descriptors of an event of whole CPUs, in the order of the rings.
    pub fn descriptors(&self, event: usize) -> Vec<RawFd> {
        let is_it =
            |c: &&Counter| self.ids.get(&c.id()).is_some_and(|o| usize::from(o.event) == event);
        self.counters.iter().filter(is_it).map(AsRawFd::as_raw_fd).collect()
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
        let mut totals = Totals { events: vec![Counted::default(); self.events.len()], lost: 0 };
        for counter in &mut self.counters {
            let Ok(data) = counter.read_full() else { continue };
            totals.lost += data.lost().unwrap_or(0);
            if let Some(opened) = self.ids.get(&counter.id()) {
                let counted = &mut totals.events[usize::from(opened.event)];
                let time = |time: Option<std::time::Duration>| time.unwrap_or_default().as_nanos();
                counted.count += data.count();
                counted.running += time(data.time_running()) as u64;
                counted.enabled += time(data.time_enabled()) as u64;
            }
        }
        if !self.cpu_wide {
            // On each CPU, a thread's event waits while the thread is on another.
            let cpus = self.cpus.len() as u64;
            totals.events.iter_mut().for_each(|counted| counted.enabled /= cpus);
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

/// Lets only those events of a tracepoint count that its filter admits; what is inherited from it
/// has the same.
///
/// Errors: the filter is not one of this tracepoint's (`EINVAL`).
fn set_filter(event: &impl AsRawFd, spec: &EventSpec) -> io::Result<()> {
    let Some(filter) = &spec.filter else { return Ok(()) };
    let filter = CString::new(filter.as_str())?;
    // SAFETY: the descriptor is an open perf event; the kernel copies the text within the call.
    match unsafe { ioctls::SET_FILTER(event.as_raw_fd(), filter.as_ptr().cast_mut()) } {
        0.. => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// What the kernel counted of an event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    /// In the event's unit.
    pub count: u64,
    /// How long the event could have been counted, in nanoseconds.
    pub enabled: u64,
    /// How long it was: less where events take turns, because there are more than counters.
    pub running: u64,
}

impl Counted {
    /// The count of the whole time, if a part of it was not counted.
    pub fn scaled(self) -> Option<u64> {
        // A thousandth is what it takes to start and stop.
        let whole = u128::from(self.running) * 1001 >= u128::from(self.enabled) * 1000;
        if whole || self.running == 0 {
            return None;
        }
        let scaled = u128::from(self.count) * u128::from(self.enabled) / u128::from(self.running);
        Some(u64::try_from(scaled).unwrap_or(u64::MAX))
    }
}

/// What the kernel counted by the end.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Each event.
    pub events: Vec<Counted>,
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

#[cfg(test)]
mod tests {
    use super::Counted;

    #[test]
    fn events_that_took_turns_are_scaled() {
        let of = |count, enabled, running| Counted { count, enabled, running }.scaled();
        assert_eq!(of(1000, 4_000_000, 1_000_000), Some(4000));
        assert_eq!(of(1000, 1_000_000, 1_000_000), None);
        assert_eq!(of(1000, 1_000_500, 1_000_000), None, "started a moment later");
        assert_eq!(of(0, 1_000_000, 0), None, "never counted");
        assert_eq!(of(u64::MAX, u64::MAX, 1 << 20), Some(u64::MAX));
    }
}
