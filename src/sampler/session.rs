//! A running recording: its rings, its events, and the order of their records.

mod counts;
mod hotplug;
mod programs;
mod targets;

use std::os::fd::RawFd;
use std::time::{Duration, Instant};

use perf_event_open_sys::bindings as abi;

use super::attach::{Attacher, Who};
use super::attr::{self, Trigger};
use super::bpf::btf::Btf;
use super::bpf::deep::{DeepStacks, StackChunks};
use super::bpf::filter::SampleFilter;
use super::cgroup::CgroupMembers;
use super::events::{EventKind, GroupRole, Overload};
use super::filter::ProcessFilter;
use super::permissions::{Wanted, refused};
use super::ring::{self, Next, Ring};
use super::rings::Rings;
use super::types::{EventOwner, NeededClock, ProfileTypes};
use super::{Delivery, Event, EventSpec, Options, Target};
use hotplug::Hotplug;
use messages::Message;
use programs::KernelPrograms;
use sys::Error;
use sys::os;
use sys::record::{self, Header, Layout, Record};
use targets::{attach, cgroups, cpus, filter, new_attacher};

/// Nanoseconds for which a record may still be preceded by an older one of another CPU.
const SETTLE_NANOS: u64 = 2_000_000;

/// Interval between two moves to another CPU: where all CPUs are busy, moving does not help for
/// long.
const MOVE_AGAIN: Duration = Duration::from_secs(1);

/// Interval in milliseconds at which a ring is read that cannot be polled.
const WAIT_FOR_LOCKED_RING_MS: i32 = 10;

/// Interval in milliseconds at which the rings are looked at while events stay in them: the rest of
/// a ring has room for about 200 samples.
const WAIT_FOR_ANALYSIS_MS: i32 = 10;

/// Samples per second above which events are thinned: each costs the target a few microseconds.
const MOST_SAMPLES: f64 = 30_000.0;

/// Shortest period in nanoseconds at which whole CPUs are sampled on behalf of a process.
pub const CPU_WIDE_PERIOD: u64 = 1_000_000;

/// Counters of a session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Samples delivered.
    pub samples: u64,
    /// Samples lost because a ring was full.
    pub lost: u64,
    /// Records about processes lost because a ring was full.
    pub lost_records: u64,
    /// Number of times that the kernel throttled an event.
    pub throttled: u64,
    /// Samples lost because too many waited for analysis; included in `lost`.
    pub not_kept: u64,
    /// Inconsistent records.
    pub damaged: u64,
}

/// A running recording.
pub struct Session {
    attacher: Attacher,
    rings: Rings,
    /// Time at which prof last moved off the target's CPU.
    moved: Option<Instant>,
    layouts: Vec<Layout>,
    /// The processes on whose behalf whole CPUs are sampled.
    filter: Option<ProcessFilter>,
    /// The cgroups of the target, if samples have that of their process.
    cgroups: Option<CgroupMembers>,
    /// Counters of the records read from the rings.
    stats: Stats,
    /// Lost samples according to the kernel's counters, read at the end.
    lost_by_events: u64,
    /// Number of threads and processes that the target has started.
    forks: u64,
    /// True if the events count the target's work only; those of whole CPUs count idle time too.
    counts_target: bool,
    /// Count of each event according to the kernel; filled by [`Session::stop`].
    counts: Vec<u64>,
    /// True for each event that was counted for a part of the time only, and scaled.
    took_turns: Vec<bool>,
    /// True if events were thinned, because there were too many samples.
    thinned: bool,
    programs: KernelPrograms,
    hotplug: Hotplug,
    /// Time at which the rings were last read.
    drained: Instant,
    /// Time at which the last record was handled, or the last wait ended.
    busy_since: Option<Instant>,
    /// Longest time from there to the next record or wait.
    longest_pause: Duration,
    /// Processes that were attached at the start.
    pub pids: Vec<i32>,
}

impl Session {
    /// Opens all events; sampling starts with [`Session::begin`]. A command, given by its pid, is
    /// started after that.
    ///
    /// Profile types whose events are not available are removed from `types`, with a note.
    ///
    /// # Errors
    ///
    /// One line that states the obstacle.
    pub fn open(
        options: &Options,
        types: &mut ProfileTypes,
        command: Option<i32>,
    ) -> Result<Session, Error> {
        let cpus = cpus(options)?;
        // The kernel's verifier takes a while for each program.
        let mut programs = KernelPrograms::load(options, types);
        os::pause_briefly();
        let (mut attacher, filtered) = new_attacher(options, types, &cpus, programs.walks())?;
        for &index in &attacher.types_left_out {
            types.leave_out(index);
            programs.leave_out(index);
        }
        os::pause_briefly();
        let mut rings = Rings::open(&cpus, options, &mut attacher)?;
        let everywhere = matches!(options.target, Target::Everything) || filtered;
        if !everywhere {
            attacher.open_anywhere(rings.outputs())?;
        }
        let (filter, pids) = if filtered {
            // Without the filter, samples of other processes fill the rings too.
            attacher.filter = Btf::running().and_then(|kernel| SampleFilter::load(&kernel)).ok();
            let opened = attacher.open(Who::Cpu, rings.outputs());
            opened.map_err(|e| refused(&e, Wanted::WholeMachine))?;
            filter(options, command, attacher.filter.as_ref())?
        } else {
            (None, attach(&mut attacher, options, command, &mut rings)?)
        };
        os::pause_briefly();
        programs.begin(&attacher, rings.outputs().samples, options, &pids, command)?;
        let layouts: Vec<Layout> = attacher
            .events
            .iter()
            .zip(&attacher.triggers)
            .map(|(spec, &trigger)| attr::layout(spec, trigger, options.stacks, attacher.features))
            .collect();
        let stats = Stats::default();
        let counts_target = filter.is_none() && !matches!(options.target, Target::Everything);
        let counts = Vec::new();
        let took_turns = Vec::new();
        let thinned = false;
        let moved = None;
        Ok(Session {
            attacher,
            rings,
            moved,
            cgroups: cgroups(options, &layouts)?,
            layouts,
            filter,
            stats,
            lost_by_events: 0,
            forks: 0,
            counts_target,
            counts,
            took_turns,
            thinned,
            programs,
            hotplug: Hotplug::new(options, cpus),
            drained: Instant::now(),
            busy_since: None,
            longest_pause: Duration::ZERO,
            pids,
        })
    }

    /// Starts sampling.
    pub fn begin(&mut self) {
        self.attacher.begin();
    }

    /// The sampled events, with defaults resolved.
    pub fn events(&self) -> &[EventSpec] {
        &self.attacher.events
    }

    /// The profile type that an event belongs to, if any.
    pub fn owner(&self, event: usize) -> Option<EventOwner> {
        self.attacher.owner(event)
    }

    /// The clock that the first event provides.
    pub fn clock(&self) -> NeededClock {
        self.attacher.clock()
    }

    /// True if BPF programs write samples of their own.
    pub fn has_programs(&self) -> bool {
        !self.programs.is_empty()
    }

    /// The period of the first event, if it is fixed.
    pub fn period(&self) -> Option<u64> {
        match self.attacher.triggers.first()? {
            Trigger::Period(period) => Some(*period),
            Trigger::Frequency(_) => None,
        }
    }

    /// True if lost samples can only be the target's, and all of them are counted.
    pub fn loses_only_target_samples(&self) -> bool {
        self.filter.is_none()
            || self.attacher.filter.as_ref().is_some_and(SampleFilter::is_complete)
    }

    /// After [`Session::stop`]: CPU time of the target in nanoseconds, as counted by the kernel's
    /// clock event; `None` if the events count more than the target.
    pub fn cpu_time(&self) -> Option<u64> {
        let clock = self.attacher.events.first()?.kind == EventKind::Clock && self.counts_target;
        self.counts.first().copied().filter(|_| clock)
    }

    /// Upper bound of the samples that are missing because threads end before their next sample is
    /// due: one for each event of a thread.
    pub fn cut_short(&self) -> u64 {
        let forks = if self.is_cpu_wide() { 0 } else { self.forks };
        self.attacher.descriptors(0).len() as u64 + forks * self.cpus().len() as u64
    }

    /// True if a BPF program is attached to the sampling events. The kernel drops a sample, and
    /// does not count it, if it interrupts another program or `bpf(2)` (`bpf_overflow_handler` in
    /// `kernel/events/core.c`).
    pub fn has_programs_at_samples(&self) -> bool {
        self.is_filtered() || self.deep().is_attached()
    }

    /// True if a program attached to the sampling events selects the samples.
    pub fn is_filtered(&self) -> bool {
        self.attacher.filter.is_some()
    }

    /// The sampled CPUs.
    pub fn cpus(&self) -> &[u32] {
        self.attacher.cpus()
    }

    /// After [`Session::stop`]: events whose samples do not add up to the kernel's count, with that
    /// count: the kernel chose the period, or samples were lost.
    pub fn counts(&self) -> impl Iterator<Item = (usize, u64)> + '_ {
        let differs = |&(i, _): &(usize, u64)| {
            let chosen = matches!(self.attacher.triggers[i], Trigger::Frequency(_));
            let spec = &self.attacher.events[i];
            // The events of a thread after its last sample cannot be attributed.
            let together = spec.group != GroupRole::None;
            (chosen || together || self.took_turns[i] || self.scales_for_losses(i))
                && self.filter.is_none()
        };
        self.counts.iter().copied().enumerate().filter(differs)
    }

    /// The identifiers of the events that are counted as a group, with the events' indices.
    pub fn grouped(&self) -> impl Iterator<Item = (u64, usize)> + '_ {
        let ids = self.attacher.ids.iter().map(|(&id, opened)| (id, usize::from(opened.event)));
        let events = &self.attacher.events;
        ids.filter(|&(_, event)| events[event].group != GroupRole::None)
    }

    /// True if the events are opened on whole CPUs.
    pub fn is_cpu_wide(&self) -> bool {
        self.attacher.is_cpu_wide()
    }

    /// True if samples of this event may have been lost and its values are scaled to the kernel's
    /// count.
    pub fn scales_for_losses(&self, event: usize) -> bool {
        self.stats().lost > 0 && self.attacher.events[event].counts_every_event()
    }

    /// Notes for the user: fallbacks taken and limits of the system.
    pub fn notes(&self) -> &[Message] {
        &self.attacher.notes
    }

    /// The counters so far. Losses that both the kernel's counters and its records report count
    /// once: some records are read after [`Session::stop`].
    pub fn stats(&self) -> Stats {
        let lost = self.stats.lost.max(self.lost_by_events) + self.stats.not_kept;
        Stats { lost, ..self.stats }
    }

    /// Statistics of stacks that are longer than the kernel's copies of them.
    pub fn deep(&self) -> &DeepStacks {
        &self.attacher.deep
    }

    /// Waits until a ring has filled to its watermark, one of `others` or `analysis` is readable, a
    /// signal arrives, or `timeout_ms` have passed. Returns whether one of `others` is readable.
    pub fn wait(&mut self, others: &[i32], analysis: Option<RawFd>, timeout_ms: i32) -> bool {
        note_pause(&mut self.longest_pause, &mut self.busy_since);
        let growing = self.rings.growing_fd();
        let deep = self.attacher.deep.fd();
        let rings = self.rings.pollable();
        let deep_at = rings.len() + usize::from(growing.is_some());
        let own = rings.iter().map(Ring::fd).chain(growing).chain(deep);
        let fds = own.chain(analysis).chain(others.iter().copied());
        let mut fds: Vec<libc::pollfd> =
            fds.map(|fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 }).collect();
        // Deferred data does not signal again: poll early while a ring fills.
        let filling = self.rings.all.iter().any(|r| r.waiting() * 4 > r.size())
            || self.attacher.deep.is_filling();
        let most = match (filling, self.rings.is_redirecting()) {
            // What was left in the rings signals no more.
            _ if analysis.is_some() => WAIT_FOR_ANALYSIS_MS,
            (true, _) => 2,
            (_, true) => WAIT_FOR_LOCKED_RING_MS,
            _ => timeout_ms,
        };
        os::poll(&mut fds, timeout_ms.min(most));
        self.busy_since = Some(Instant::now());
        if deep.is_some() && fds[deep_at].revents != 0 {
            self.attacher.deep.clear();
        }
        // The ring that has filled belongs to a CPU of the target.
        let filled = fds.iter().zip(rings).find(|(fd, _)| fd.revents != 0);
        if let Some((_, ring)) = filled
            && self.moved.is_none_or(|at| at.elapsed() > MOVE_AGAIN)
            && os::leave_cpu(ring.cpu())
        {
            self.moved = Some(Instant::now());
        }
        fds[fds.len() - others.len()..].iter().any(|fd| fd.revents != 0)
    }

    /// Longest time without a wait for the rings or a record that was read from them.
    pub fn longest_pause(&self) -> Duration {
        self.longest_pause
    }

    /// True if each ring has room for as much as it holds.
    pub fn has_room(&self) -> bool {
        let is_full = self.rings.all.iter().any(|ring| ring.is_filled_above(2));
        !is_full && !self.attacher.deep.is_filling()
    }

    /// True if little is in the rings, so that it may stay there.
    pub fn holds_little(&self) -> bool {
        ring::hold_little(&self.rings.all) && !self.attacher.deep.is_filling()
    }

    /// The time (`CLOCK_MONOTONIC`, nanoseconds) before which all records of all CPUs are in their
    /// rings.
    pub fn settled(&self) -> u64 {
        os::monotonic_nanos() - SETTLE_NANOS
    }

    /// Delivers the events before `until` in order of time. `until` is at most
    /// [`Session::settled`], unless the events are stopped. When a ring fills faster than it is
    /// read, events are thinned: see [`Overload`].
    pub fn drain(&mut self, until: u64, mut consume: impl FnMut(Event<'_>)) {
        self.drain_timed(until, |_, event| {
            consume(event);
            Delivery::Taken
        });
    }

    /// Like [`Session::drain`], with the time of each event (`CLOCK_MONOTONIC`, nanoseconds); 0 if
    /// unknown. Returns the time before which all events were delivered: `until`, or that of one
    /// that was [kept](Delivery::Kept).
    pub fn drain_timed(
        &mut self,
        until: u64,
        mut consume: impl FnMut(u64, Event<'_>) -> Delivery,
    ) -> u64 {
        // Before the records are read, because the first ones take longest.
        if self.is_overloaded() {
            self.thin();
        }
        let lost = self.stats.lost;
        let Session { attacher, rings, layouts, filter, cgroups, stats, forks, .. } = self;
        let (longest_pause, busy_since) = (&mut self.longest_pause, &mut self.busy_since);
        let mut deep = std::mem::take(&mut attacher.deep);
        deep.begin();
        let sideband = rings.outputs().sideband.len();
        let delivered = ring::drain(&mut rings.all, until, |ring, header, bytes| {
            let Some(mut event) = decode(attacher, layouts, header, bytes) else {
                stats.damaged += 1;
                return Next::Deliver;
            };
            if let Event::Other(Record::Lost(n)) = event
                && ring >= sideband
            {
                event = Event::Other(Record::LostSamples(n));
            }
            let admitted = filter.as_mut().is_none_or(|f| f.admits(&event))
                && cgroups.as_mut().is_none_or(|groups| groups.admits(&event));
            if !admitted {
                return Next::Deliver;
            }
            *forks += u64::from(matches!(event, Event::Other(Record::Fork { .. })));
            let time = record::time_of(header, bytes).unwrap_or(0);
            let mut chunks = StackChunks::default();
            let walked = match &event {
                Event::Sample { event, sample, .. } => {
                    attacher.events[*event].walk_time(sample.raw)
                }
                Event::Other(_) => None,
            };
            deep.complete(&mut event, walked, &mut chunks);
            let delivery = consume(time, event);
            count(stats, &attacher.events, &event, delivery);
            note_pause(longest_pause, busy_since);
            match delivery {
                Delivery::Kept if !deep.is_filling() => Next::MayWait,
                _ => Next::Deliver,
            }
        });
        deep.end(delivered);
        attacher.deep = deep;
        if delivered == until {
            self.drained = Instant::now();
        }
        if self.stats.lost > lost {
            self.thin();
        }
        delivered
    }

    fn can_be_thinned(&self) -> bool {
        !self.thinned && self.events().iter().any(|e| e.overload != Overload::Continue)
    }

    /// True if samples are so frequent that they would slow the target down, or fill a ring faster
    /// than it is read.
    fn is_overloaded(&mut self) -> bool {
        let used = |parts: u64| move |ring: &Ring| ring.is_filled_above(parts);
        if !self.can_be_thinned() || !self.rings.samples().iter().any(used(4)) {
            return false;
        }
        let mut samples = 0;
        for ring in self.rings.samples() {
            ring.refresh();
            ring.scan(|header, _| samples += u32::from(header.kind == abi::PERF_RECORD_SAMPLE));
        }
        let rate = f64::from(samples) / self.drained.elapsed().as_secs_f64().max(1e-6);
        rate > MOST_SAMPLES || self.rings.samples().iter().any(used(2))
    }

    fn thin(&mut self) {
        // Events whose counts were read are stopped, and must not start again.
        if !self.can_be_thinned() || !self.counts.is_empty() {
            return;
        }
        self.thinned = true;
        // The replacements start before the thinned events stop.
        for (overload, on) in [(Overload::Start, true), (Overload::Stop, false)] {
            for event in 0..self.events().len() {
                if self.events()[event].overload == overload {
                    self.attacher.set_sampling(event, on);
                }
            }
        }
    }

    /// True if events were thinned, because there were too many samples.
    pub fn is_thinned(&self) -> bool {
        self.thinned
    }

    /// Replaces well-used rings by larger ones; to be called after each wait.
    pub fn widen_rings(&mut self) {
        self.rings.widen(&mut self.attacher);
    }

    /// Stops the events; the contents of the rings remain for a last [`Session::drain`].
    pub fn stop(&mut self) {
        // Removing the programs takes the kernel some time, during which the rings are not read.
        // The sums of a thread that exits are needed until the last program is removed.
        self.attacher.disable_samples();
        self.programs.end();
        self.attacher.notes.extend(self.hotplug.notes());
        self.rings.settle(&mut self.attacher);
        for counter in &mut self.attacher.counters {
            // An event whose thread has exited cannot be stopped and need not be.
            let _ = counter.disable();
        }
        let totals = self.attacher.totals();
        self.lost_by_events = totals.lost;
        for (spec, counted) in self.attacher.events.iter().zip(&totals.events) {
            let scaled = counted.scaled().filter(|_| spec.kind == EventKind::Hardware);
            self.counts.push(scaled.unwrap_or(counted.count));
            self.took_turns.push(scaled.is_some());
            if scaled.is_some() {
                let share = 100.0 * counted.running as f64 / counted.enabled as f64;
                let event = spec.name.clone();
                let percent = share.round() as u64;
                self.attacher.notes.push(Message::TookTurns { event, percent });
            }
        }
    }
}

/// Notes the time since the last record or wait.
fn note_pause(longest: &mut Duration, since: &mut Option<Instant>) {
    let now = Instant::now();
    let last = since.replace(now).unwrap_or(now);
    *longest = (*longest).max(now - last);
}

fn count(stats: &mut Stats, events: &[EventSpec], event: &Event<'_>, delivery: Delivery) {
    match event {
        Event::Sample { event, .. } if delivery == Delivery::NoRoom => {
            stats.not_kept += u64::from(events[*event].stack);
        }
        Event::Sample { .. } if delivery == Delivery::Represented => {}
        Event::Other(_) if delivery == Delivery::NoRoom => stats.lost_records += 1,
        // The end of a span is not a sample of its own.
        Event::Sample { event, .. } => stats.samples += u64::from(events[*event].stack),
        Event::Other(Record::LostSamples(n)) => stats.lost += n,
        Event::Other(Record::Lost(n)) => stats.lost_records += n,
        Event::Other(Record::Throttle) => stats.throttled += 1,
        Event::Other(_) => {}
    }
}

fn decode<'a>(
    attacher: &Attacher,
    layouts: &[Layout],
    header: Header,
    bytes: &'a [u8],
) -> Option<Event<'a>> {
    if header.kind != abi::PERF_RECORD_SAMPLE {
        return record::other(header, bytes).map(Event::Other);
    }
    let event = usize::from(attacher.ids.get(&record::sample_id(bytes)?)?.event);
    let sample = record::sample(header, bytes, layouts[event])?;
    let weight = match attacher.triggers[event] {
        Trigger::Period(period) => period,
        Trigger::Frequency(_) => sample.period.unwrap_or(1),
    };
    Some(Event::Sample { event, weight, represents: 1, sample })
}

#[cfg(test)]
mod tests;
