//! Event names, as perf spells them (`perf-list(1)`): `cycles:u`, `page-faults`,
//! `sched:sched_switch`, `r01c2`, `L1-dcache-load-misses`, `pmu/event/`.

pub mod names;
pub mod patterns;
pub mod pmu;
mod probe;

use std::io;

use perf_event::events::Event;
use perf_event_open_sys::bindings::{self as abi, perf_event_attr};

use super::modifiers;
use super::permissions::{Wanted, refused, tracefs_is_mounted, tracepoint_id};
use names::near;
pub use probe::Probe;
use sys::Error;

/// The kind of an event, which determines how it is sampled and what its values mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventKind {
    /// A clock of CPU time (`cpu-clock`, `task-clock`): values are nanoseconds.
    Clock,
    /// Another event that the kernel counts.
    Software,
    /// An event of the CPU's performance monitoring unit.
    Hardware,
    /// A tracepoint.
    Tracepoint,
    /// A location in a program's or the kernel's code; see [`EventSpec::uprobe`].
    Probe,
    /// An event of a [profile type](super::types), which interprets its samples.
    OfType,
}

/// The effect on an event when a ring fills faster than it is read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Overload {
    /// Sampling continues.
    #[default]
    Continue,
    /// Sampling stops.
    Stop,
    /// Sampling starts; the event was not sampled before.
    Start,
}

/// The role of an event in a group of events, which are counted together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum GroupRole {
    /// It is counted alone.
    #[default]
    None,
    /// The members that follow are counted with it; each of its samples has the counts of all.
    Leader,
    /// It is counted with the last leader before it.
    Member,
}

/// An event, ready to be opened.
#[derive(Clone, Debug, PartialEq)]
pub struct EventSpec {
    /// The name as the user wrote it, with modifiers.
    pub name: String,
    /// Its kind.
    pub kind: EventKind,
    /// `perf_event_attr.type`.
    pub type_: u32,
    /// `perf_event_attr.config`.
    pub config: u64,
    /// `perf_event_attr.config1`.
    pub config1: u64,
    /// `perf_event_attr.config2`.
    pub config2: u64,
    /// Sample user code.
    pub user: bool,
    /// Sample kernel code.
    pub kernel: bool,
    /// `precise_ip`, from `:p`, `:pp`, `:ppp`.
    pub precise: u8,
    /// As precise as the machine allows, from `:P`.
    pub most_precise: bool,
    /// Samples carry the fields of the tracepoint.
    pub raw: bool,
    /// Samples carry a stack, recorded according to [`super::Options::stacks`].
    pub stack: bool,
    /// Maximum number of bytes of the stack that are copied with a sample.
    pub most_dump: u32,
    /// The kernel's filter of a tracepoint: a condition on its fields, in the syntax of the
    /// kernel's `Documentation/trace/events.rst`.
    pub filter: Option<String>,
    /// Its role in a group of events, which are counted together.
    pub group: GroupRole,
    /// Its PMU cannot distinguish user code from kernel code.
    pub unscoped: bool,
    /// The location of an [`EventKind::Probe`].
    pub probe: Option<Probe>,
    /// It is sampled on all CPUs, whatever the target is.
    pub anywhere: bool,
    /// The lack of samples is not reported.
    pub auxiliary: bool,
    /// Its samples are written to the sideband rings, since none may be lost.
    pub with_records: bool,
    /// Stacks longer than the kernel's copy are copied completely.
    pub deep_stacks: bool,
    /// Offset of the time of the walk over an interpreter's frames in the records of a program that
    /// walks; `None`: no program writes its samples, or that does not walk.
    pub walked_at: Option<usize>,
    /// The effect on it when there are too many samples.
    pub overload: Overload,
}

impl EventSpec {
    /// The time of the walk over an interpreter's frames, in the record of a sample.
    pub fn walk_time(&self, raw: &[u8]) -> Option<u64> {
        Some(u64::from_ne_bytes(*raw.get(self.walked_at?..)?.first_chunk()?))
    }

    /// The default event with a PMU.
    pub fn cycles() -> EventSpec {
        EventSpec::hardware("cycles", abi::PERF_COUNT_HW_CPU_CYCLES)
    }

    /// The default event without a PMU.
    pub fn cpu_clock() -> EventSpec {
        let type_ = abi::PERF_TYPE_SOFTWARE;
        let config = abi::PERF_COUNT_SW_CPU_CLOCK;
        EventSpec::plain("cpu-clock", EventKind::Clock, type_, u64::from(config))
    }

    /// An event that never occurs, but carries the sideband records.
    pub fn sideband() -> EventSpec {
        let config = u64::from(abi::PERF_COUNT_SW_DUMMY);
        let event = EventSpec::plain("dummy", EventKind::Software, abi::PERF_TYPE_SOFTWARE, config);
        // No privilege is needed to open it.
        EventSpec { kernel: false, stack: false, auxiliary: true, ..event }
    }

    /// True for [`EventSpec::sideband`].
    pub fn is_sideband(&self) -> bool {
        let dummy = u64::from(abi::PERF_COUNT_SW_DUMMY);
        (self.type_, self.config) == (abi::PERF_TYPE_SOFTWARE, dummy)
    }

    /// True if BPF programs write its samples.
    pub fn is_written_by_programs(&self) -> bool {
        let output = u64::from(abi::PERF_COUNT_SW_BPF_OUTPUT);
        (self.type_, self.config) == (abi::PERF_TYPE_SOFTWARE, output)
    }

    pub(super) fn plain(name: &str, kind: EventKind, type_: u32, config: u64) -> EventSpec {
        EventSpec {
            name: name.to_owned(),
            kind,
            type_,
            config,
            config1: 0,
            config2: 0,
            user: true,
            kernel: true,
            precise: 0,
            most_precise: false,
            raw: false,
            stack: true,
            most_dump: u32::MAX,
            filter: None,
            group: GroupRole::None,
            unscoped: false,
            probe: None,
            anywhere: false,
            auxiliary: false,
            with_records: false,
            deep_stacks: matches!(
                kind,
                EventKind::Clock | EventKind::Software | EventKind::Hardware
            ),
            walked_at: None,
            overload: Overload::Continue,
        }
    }

    pub(super) fn hardware(name: &str, config: u32) -> EventSpec {
        EventSpec::plain(name, EventKind::Hardware, abi::PERF_TYPE_HARDWARE, u64::from(config))
    }

    /// Parses one event with its modifiers.
    ///
    /// # Errors
    ///
    /// An unknown name or modifier, a tracepoint that this kernel lacks or that this
    /// user may not read.
    pub fn parse(text: &str) -> Result<EventSpec, Error> {
        let (name, modifiers) = split_modifiers(text);
        let mut spec = names::find(name)
            .or_else(|| raw_event(name))
            .map_or_else(|| named_event(name, text), Ok)?;
        spec.name = text.to_owned();
        if let Some(modifiers) = modifiers {
            modifiers::apply(&mut spec, modifiers)
                .map_err(|why| Error::usage(format!("event '{text}': {why}")))?;
        }
        Ok(spec)
    }

    /// The default value of one sample of this event, as (kind, unit) of pprof.
    pub fn value_type(&self) -> (String, &'static str) {
        match self.kind {
            EventKind::Clock => ("cpu".to_owned(), "nanoseconds"),
            _ => (self.name.clone(), "count"),
        }
    }

    /// True if each occurrence is sampled, at a rate that depends on the target.
    pub fn counts_every_event(&self) -> bool {
        matches!(self.kind, EventKind::Tracepoint | EventKind::Probe)
    }

    /// The event that is nearest to this one and works on every machine.
    pub fn nearest_software(&self) -> &'static str {
        match self.kind {
            EventKind::Hardware => "cpu-clock (where CPU time goes)",
            EventKind::Tracepoint | EventKind::Probe | EventKind::OfType => "context-switches",
            _ => "cpu-clock",
        }
    }
}

impl Event for &EventSpec {
    fn update_attrs(self, attr: &mut perf_event_attr) {
        attr.type_ = self.type_;
        attr.config = self.config;
        attr.__bindgen_anon_3.config1 = self.config1;
        attr.__bindgen_anon_4.config2 = self.config2;
        if let Some(probe) = &self.probe {
            probe.update_attrs(attr);
        }
    }
}

/// `cycles:u` → (`cycles`, `u`); `sched:sched_switch` contains a colon itself.
fn split_modifiers(text: &str) -> (&str, Option<&str>) {
    let colons = text.matches(':').count();
    if let Some((name, rest)) = text.rsplit_once('/')
        && name.contains('/')
    {
        return (&text[..name.len() + 1], (!rest.is_empty()).then(|| rest.trim_start_matches(':')));
    }
    let is_tracepoint = |name: &str| names::find(name).is_none() && raw_event(name).is_none();
    match text.rsplit_once(':') {
        Some((name, rest)) if colons > 1 || !is_tracepoint(name) => (name, Some(rest)),
        _ => (text, None),
    }
}

/// `r01c2`: a raw event in hexadecimal.
fn raw_event(name: &str) -> Option<EventSpec> {
    let digits = name.strip_prefix('r').filter(|d| !d.is_empty() && d.len() <= 16)?;
    let config = u64::from_str_radix(digits, 16).ok()?;
    Some(EventSpec::plain(name, EventKind::Hardware, abi::PERF_TYPE_RAW, config))
}

fn named_event(name: &str, text: &str) -> Result<EventSpec, Error> {
    if let Some((pmu, terms)) = name.strip_suffix('/').and_then(|n| n.split_once('/')) {
        return pmu::event(pmu, terms, text);
    }
    if let Some((system, event)) = name.split_once(':') {
        return tracepoint(system, event, text);
    }
    Err(unknown(text))
}

fn unknown(text: &str) -> Error {
    let name = text.split(':').next().unwrap_or_default();
    let near = near(name).map_or(String::new(), |near| format!("; did you mean '{near}'?"));
    Error::usage(format!(
        "event '{text}' is unknown{near} \
         (names as in perf: cycles, cpu-clock, page-faults, sched:sched_switch, r01c2, …)"
    ))
}

fn tracepoint(system: &str, event: &str, text: &str) -> Result<EventSpec, Error> {
    let valid = |s: &str| !s.is_empty() && s.chars().all(|c| c.is_alphanumeric() || c == '_');
    let is_event = near(system).is_some() && event.chars().all(modifiers::is_known);
    if !valid(system) || !valid(event) || is_event {
        return Err(unknown(text));
    }
    let id = tracepoint_id(system, event).map_err(|e| match e.kind() {
        io::ErrorKind::NotFound if tracefs_is_mounted() => Error::usage(format!(
            "this kernel has no tracepoint '{text}'; /sys/kernel/tracing/available_events lists all"
        )),
        _ => refused(&e, Wanted::Tracefs(text.to_owned())),
    })?;
    Ok(EventSpec::plain(text, EventKind::Tracepoint, abi::PERF_TYPE_TRACEPOINT, id))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_modifiers_and_raw_codes() {
        let e = EventSpec::parse("cycles:u").unwrap();
        assert_eq!((e.type_, e.config, e.user, e.kernel), (0, 0, true, false));
        let e = EventSpec::parse("instructions:kpp").unwrap();
        assert_eq!((e.config, e.user, e.kernel, e.precise), (1, false, true, 2));
        let e = EventSpec::parse("cs").unwrap();
        assert_eq!((e.kind, e.config), (EventKind::Software, 3));
        let e = EventSpec::parse("r01c2").unwrap();
        assert_eq!((e.type_, e.config), (4, 0x1c2));
        let e = EventSpec::parse("LLC-load-misses:u").unwrap();
        assert_eq!((e.type_, e.config, e.kernel), (3, 0x1_0002, false));
        assert_eq!(EventSpec::parse("cpu-clock").unwrap().value_type().1, "nanoseconds");
    }

    #[test]
    fn what_is_unknown_is_named_with_its_neighbour() {
        let line = EventSpec::parse("cycels").unwrap_err().to_string();
        assert!(line.contains("'cycels'") && line.contains("'cycles'"), "{line}");
        let line = EventSpec::parse("cycels:u").unwrap_err().to_string();
        assert!(line.contains("'cycles'"), "{line}");
        for far in ["", "nosuch", "x", "sc"] {
            let line = EventSpec::parse(far).unwrap_err().to_string();
            assert!(!line.contains("did you mean"), "{line}");
        }
        for bad in ["", ":", "cycles:", "cycles:x", "a:b:c:d", "/x/", "cpu/../", "rzz", "a/"] {
            assert!(EventSpec::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn tracepoint_names_have_a_colon_of_their_own() {
        assert_eq!(split_modifiers("sched:sched_switch"), ("sched:sched_switch", None));
        assert_eq!(split_modifiers("sched:sched_switch:u"), ("sched:sched_switch", Some("u")));
        assert_eq!(split_modifiers("cpu/x/u"), ("cpu/x/", Some("u")));
    }
}
