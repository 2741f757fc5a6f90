//! Resolves the events: defaults, fallbacks, and the events that profile types need.

use std::io;

use perf_event::Counter;

use super::{Attacher, EventTrial, set_filter};
use crate::sampler::attr::{
    SHORTEST_CLOCK, StartWhen, Trigger, sampling_event, sideband_event, trigger,
};
use crate::sampler::events::{EventKind, GroupRole};
use crate::sampler::open_error::{is_invalid, is_missing};
use crate::sampler::permissions::{Wanted, is_denied, refusal, refused};
use crate::sampler::types::{EventOwner, NeededClock, ProfileType, ProfileTypes, TypeEvent};
use crate::sampler::{EventSpec, LeftOut, Rate};
use messages::Message;
use sys::procfs;
use sys::{Error, ErrorKind};

impl Attacher {
    pub(super) fn resolve_events(&mut self, types: &mut ProfileTypes) -> Result<(), Error> {
        let max_rate = procfs::sysctl("kernel/perf_event_max_sample_rate").unwrap_or(100_000);
        let max_rate = max_rate.max(1) as u64;
        if let Rate::Frequency(hz) = self.options.rate
            && hz > max_rate
        {
            self.notes.push(Message::RateLimited { requested: hz, limit: max_rate });
        }
        if self.options.rate == Rate::Max {
            self.notes.push(Message::HighestRate { limit: max_rate });
        }
        match self.clock {
            NeededClock::None => {}
            NeededClock::CpuTime => self.events.insert(0, EventSpec::cycles()),
            // One clock for both on-CPU and off-CPU time.
            NeededClock::Nanoseconds => self.events.insert(0, EventSpec::cpu_clock()),
        }
        if self.options.precise {
            self.request_precision();
        }
        self.note_probes();
        let mut event = 0;
        while event < self.events.len() {
            let first = event == 0 && self.clock != NeededClock::None;
            match self.or_restore(|attacher| attacher.resolve_event(event, max_rate)) {
                Ok(()) => event += 1,
                Err(why) if first || why.kind() != ErrorKind::Failed => return Err(why),
                Err(why) => event = self.leave_out(event, why),
            }
        }
        self.resolve_types(types)?;
        self.note_short_period();
        Ok(())
    }

    /// Determines whether the kernel supports build IDs in mapping records.
    pub(super) fn resolve_sideband(&mut self) {
        let mut builder = sideband_event(false, self.features);
        builder.enabled(false).observe_self().one_cpu(self.cpus[0] as usize);
        if builder.build().is_err_and(|e| is_invalid(&e)) {
            self.features.build_id = false;
        }
    }

    /// Tries one of the named events, or its fallback.
    fn resolve_event(&mut self, i: usize, max_rate: u64) -> Result<(), Error> {
        self.define_probe(i)?;
        let default = i == 0 && self.clock == NeededClock::CpuTime;
        let spec = self.events[i].clone();
        let at = trigger(&spec, self.options.rate, max_rate);
        let tried = if spec.group == GroupRole::Member {
            self.try_member(i)
        } else {
            self.try_precisely(i, at)
        };
        match tried {
            Ok(()) => {}
            Err(e) if spec.group == GroupRole::Leader && self.options.inherit && is_invalid(&e) => {
                // Linux 6.12 and older.
                self.options.inherit = false;
                self.notes.push(Message::GroupsOfExistingThreads);
                self.try_precisely(i, at).map_err(|e| self.refused(&spec, &e))?;
            }
            Err(e) if default && is_missing(&e) => {
                self.events[i] = EventSpec::cpu_clock();
                let clock = Message::ClockInsteadOfCycles { precise: spec.most_precise };
                self.notes.push(clock);
                let spec = self.events[i].clone();
                let at = trigger(&spec, self.options.rate, max_rate);
                self.try_event(&spec, at).map_err(|e| self.refused(&spec, &e))?;
            }
            Err(e) => return Err(self.refused(&spec, &e)),
        }
        self.triggers.push(trigger(&self.events[i], self.options.rate, max_rate));
        Ok(())
    }

    /// Removes an event, with the others of its group and the other locations of the same name;
    /// returns the index of the next event.
    fn leave_out(&mut self, event: usize, why: Error) -> usize {
        let belongs =
            |a: &EventSpec, b: &EventSpec| b.group == GroupRole::Member || a.name == b.name;
        let events = &self.events;
        let mut from = event;
        let mut to = event + 1;
        while from > 0 && belongs(&events[from - 1], &events[from]) {
            from -= 1;
        }
        while to < events.len() && belongs(&events[to - 1], &events[to]) {
            to += 1;
        }
        let mut names: Vec<String> = self.events.drain(from..to).map(|e| e.name).collect();
        self.triggers.truncate(from);
        names.dedup();
        let name = match names.as_slice() {
            [event] => event.clone(),
            several => format!("{{{}}}", several.join(",")),
        };
        self.refused.push(LeftOut::event(name, why));
        from
    }

    /// The events of the profile types: a type whose events are not available is left out, unless
    /// it is the only thing to record.
    fn resolve_types(&mut self, types: &mut ProfileTypes) -> Result<(), Error> {
        let processes = types.need_processes();
        let clock = usize::from(self.clock != NeededClock::None);
        let mut others = types.has_cpu_time() || processes || self.events.len() > clock;
        if self.events.is_empty() && processes {
            self.push_event(TypeEvent::each_time(EventSpec::sideband()), None);
        }
        for (index, kind) in types.iter_mut() {
            match self.resolve_type(index, kind.as_mut()) {
                Ok(()) => others = true,
                Err(why) => {
                    self.refused.push(LeftOut::profile_type(kind.name(), why));
                    self.types_left_out.push(index);
                }
            }
        }
        let left_out = &self.types_left_out;
        let mut used = types.iter().filter(|(index, _)| !left_out.contains(index));
        self.switch_records = used.any(|(_, kind)| kind.program_needs().switch_records);
        match self.refused.first() {
            Some(first) if !others => Err(first.why.clone()),
            _ => {
                self.notes.extend(self.refused.iter().cloned().map(Message::from));
                Ok(())
            }
        }
    }

    fn resolve_type(&mut self, index: usize, kind: &mut dyn ProfileType) -> Result<(), Error> {
        // The clock is event 0 of a type that takes its samples.
        let takes_clock = kind.needs().clock == NeededClock::Nanoseconds;
        let mut events = Vec::new();
        self.or_restore(|attacher| {
            events = kind.events(&mut EventTrial(attacher))?;
            events.iter().try_for_each(|event| {
                let tried = attacher.try_event(&event.spec, Trigger::Period(event.period));
                tried.map_err(|e| attacher.refused(&event.spec, &e))
            })
        })?;
        let anywhere = events.first().is_some_and(|event| event.spec.anywhere);
        if self.events.is_empty() && !self.cpu_wide && anywhere {
            // No other event is opened on the target's threads.
            self.push_event(TypeEvent::each_time(EventSpec::sideband()), None);
        }
        if takes_clock {
            self.owners.resize(self.events.len(), None);
            self.owners[0] = Some(EventOwner { index, event: 0 });
        }
        for (i, event) in events.into_iter().enumerate() {
            let event_of = EventOwner { index, event: i + usize::from(takes_clock) };
            self.push_event(event, Some(event_of));
        }
        Ok(())
    }

    fn push_event(&mut self, event: TypeEvent, owner: Option<EventOwner>) {
        self.owners.resize(self.events.len(), None);
        self.events.push(event.spec);
        self.triggers.push(Trigger::Period(event.period));
        self.owners.push(owner);
    }

    /// Adds the notes of probes.
    fn note_probes(&mut self) {
        let notes = self.events.iter().filter_map(|spec| spec.probe.as_ref()?.note.clone());
        let mut notes: Vec<Message> = notes.collect();
        notes.dedup();
        self.notes.extend(notes);
    }

    /// Inherited probes have to be defined in tracefs.
    fn define_probe(&mut self, event: usize) -> Result<(), Error> {
        if !self.options.inherit || self.cpu_wide {
            return Ok(());
        }
        let mut spec = self.events[event].clone();
        spec.define(&mut self.definitions).map_err(|e| match e.raw_os_error() {
            Some(libc::EINVAL | libc::ENOENT) => self.refused(&spec, &e),
            Some(_) => refused(&e, Wanted::Probe(spec.name.clone())),
            None => refused(&e, Wanted::Tracefs(spec.name.clone())),
        })?;
        self.events[event] = spec;
        Ok(())
    }

    /// Restores the features and notes if `attempt` fails.
    pub(super) fn or_restore<E>(
        &mut self,
        resolve: impl FnOnce(&mut Attacher) -> Result<(), E>,
    ) -> Result<(), E> {
        let before = (self.features, self.options.inherit, self.notes.len());
        let resolved = resolve(self);
        if resolved.is_err() {
            (self.features, self.options.inherit) = (before.0, before.1);
            self.notes.truncate(before.2);
        }
        resolved
    }

    fn note_short_period(&mut self) {
        if let Rate::Period(period @ ..SHORTEST_CLOCK) = self.options.rate
            && self.events.iter().any(|e| e.kind == EventKind::Clock)
        {
            self.notes.push(Message::PeriodTooShort { period, shortest: SHORTEST_CLOCK });
        }
    }

    /// Opens an event on prof itself (or a CPU) and restricts the features to those that work.
    pub(super) fn try_event(&mut self, spec: &EventSpec, trigger: Trigger) -> io::Result<()> {
        let shape = self.shape(spec, trigger, true, StartWhen::Later);
        loop {
            let mut builder = sampling_event(spec, &shape, self.features);
            builder.enabled(false);
            if shape.cpu_wide {
                builder.any_pid();
            } else {
                builder.observe_self();
            }
            let error = match builder.one_cpu(self.cpus[0] as usize).build() {
                Ok(counter) => return set_filter(&counter, spec),
                Err(e) => e,
            };
            if is_denied(&error) && self.features.kernel && spec.user && !shape.cpu_wide {
                self.features.kernel = false;
                let why = Box::new(refusal(&error, Wanted::Kernel));
                self.notes.push(Message::NoKernelFrames { why });
            } else if self.features.cgroup && error.raw_os_error() == Some(libc::EINVAL) {
                self.features.cgroup = false;
            } else {
                return Err(error);
            }
        }
    }

    /// Like [`Attacher::try_event`], for an event that is counted together with the leader before
    /// it.
    fn try_member(&mut self, event: usize) -> io::Result<()> {
        let open = |attacher: &Attacher, event: usize, leader: Option<&mut Counter>| {
            let spec = &attacher.events[event];
            let trigger = Trigger::Period(1_000_000);
            let shape = attacher.shape(spec, trigger, false, StartWhen::Later);
            let mut builder = sampling_event(spec, &shape, attacher.features);
            builder.enabled(false).one_cpu(attacher.cpus[0] as usize);
            if attacher.cpu_wide {
                builder.any_pid()
            } else {
                builder.observe_self()
            };
            match leader {
                Some(leader) => builder.build_with_group(leader),
                None => builder.build(),
            }
        };
        let mut leader = open(self, self.leader_of(event), None)?;
        if let Err(e) = open(self, event, Some(&mut leader)) {
            // PMUs that cannot distinguish user code from kernel code.
            self.events[event].unscoped = true;
            open(self, event, Some(&mut leader)).map_err(|_| e)?;
        }
        Ok(())
    }

    pub(super) fn leader_of(&self, event: usize) -> usize {
        let leader = self.events[..event].iter().rposition(|spec| spec.group == GroupRole::Leader);
        leader.expect("a member has a leader before it")
    }
}
