//! Event names, as perf spells them (`perf-list(1)`): `cycles:u`, `page-faults`,
//! `sched:sched_switch`, `r01c2`, `L1-dcache-load-misses`, `pmu/event/`.

use std::io;

use perf_event::events::{Dynamic, Event};
use perf_event_open_sys::bindings::{self as sys, perf_event_attr};

use super::permissions::{Wanted, explain, tracefs_is_mounted, tracepoint_id};
use super::{Error, modifiers};

/// What kind of event it is; decides how it is sampled and what its values mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A clock that runs with CPU time (`cpu-clock`, `task-clock`): values are nanoseconds.
    Clock,
    /// Another event that the kernel counts.
    Software,
    /// An event of the CPU's performance monitoring unit.
    Hardware,
    /// A tracepoint.
    Tracepoint,
    /// A thread stops running on a CPU; see [`EventSpec::switches`].
    Switch,
}

/// An event, ready to be opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventSpec {
    /// As the user wrote it, modifiers included.
    pub name: String,
    /// Its kind.
    pub kind: Kind,
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
}

const HARDWARE: &[(&[&str], u32)] = &[
    (&["cycles", "cpu-cycles"], sys::PERF_COUNT_HW_CPU_CYCLES),
    (&["instructions"], sys::PERF_COUNT_HW_INSTRUCTIONS),
    (&["cache-references"], sys::PERF_COUNT_HW_CACHE_REFERENCES),
    (&["cache-misses"], sys::PERF_COUNT_HW_CACHE_MISSES),
    (&["branches", "branch-instructions"], sys::PERF_COUNT_HW_BRANCH_INSTRUCTIONS),
    (&["branch-misses"], sys::PERF_COUNT_HW_BRANCH_MISSES),
    (&["bus-cycles"], sys::PERF_COUNT_HW_BUS_CYCLES),
    (
        &["stalled-cycles-frontend", "idle-cycles-frontend"],
        sys::PERF_COUNT_HW_STALLED_CYCLES_FRONTEND,
    ),
    (&["stalled-cycles-backend", "idle-cycles-backend"], sys::PERF_COUNT_HW_STALLED_CYCLES_BACKEND),
    (&["ref-cycles"], sys::PERF_COUNT_HW_REF_CPU_CYCLES),
];

const SOFTWARE: &[(&[&str], u32)] = &[
    (&["cpu-clock"], sys::PERF_COUNT_SW_CPU_CLOCK),
    (&["task-clock"], sys::PERF_COUNT_SW_TASK_CLOCK),
    (&["page-faults", "faults"], sys::PERF_COUNT_SW_PAGE_FAULTS),
    (&["context-switches", "cs"], sys::PERF_COUNT_SW_CONTEXT_SWITCHES),
    (&["cpu-migrations", "migrations"], sys::PERF_COUNT_SW_CPU_MIGRATIONS),
    (&["minor-faults"], sys::PERF_COUNT_SW_PAGE_FAULTS_MIN),
    (&["major-faults"], sys::PERF_COUNT_SW_PAGE_FAULTS_MAJ),
    (&["alignment-faults"], sys::PERF_COUNT_SW_ALIGNMENT_FAULTS),
    (&["emulation-faults"], sys::PERF_COUNT_SW_EMULATION_FAULTS),
    (&["cgroup-switches"], sys::PERF_COUNT_SW_CGROUP_SWITCHES),
];

const CACHES: &[(&str, u32)] = &[
    ("L1-dcache", sys::PERF_COUNT_HW_CACHE_L1D),
    ("L1-icache", sys::PERF_COUNT_HW_CACHE_L1I),
    ("LLC", sys::PERF_COUNT_HW_CACHE_LL),
    ("dTLB", sys::PERF_COUNT_HW_CACHE_DTLB),
    ("iTLB", sys::PERF_COUNT_HW_CACHE_ITLB),
    ("branch", sys::PERF_COUNT_HW_CACHE_BPU),
    ("node", sys::PERF_COUNT_HW_CACHE_NODE),
];

const CACHE_OPS: &[(&str, u32, u32)] = &[
    ("loads", sys::PERF_COUNT_HW_CACHE_OP_READ, sys::PERF_COUNT_HW_CACHE_RESULT_ACCESS),
    ("load-misses", sys::PERF_COUNT_HW_CACHE_OP_READ, sys::PERF_COUNT_HW_CACHE_RESULT_MISS),
    ("stores", sys::PERF_COUNT_HW_CACHE_OP_WRITE, sys::PERF_COUNT_HW_CACHE_RESULT_ACCESS),
    ("store-misses", sys::PERF_COUNT_HW_CACHE_OP_WRITE, sys::PERF_COUNT_HW_CACHE_RESULT_MISS),
    ("prefetches", sys::PERF_COUNT_HW_CACHE_OP_PREFETCH, sys::PERF_COUNT_HW_CACHE_RESULT_ACCESS),
    ("prefetch-misses", sys::PERF_COUNT_HW_CACHE_OP_PREFETCH, sys::PERF_COUNT_HW_CACHE_RESULT_MISS),
];

impl EventSpec {
    /// The default event where there is a PMU.
    pub fn cycles() -> EventSpec {
        EventSpec::hardware("cycles", sys::PERF_COUNT_HW_CPU_CYCLES)
    }

    /// The default event where there is none.
    pub fn cpu_clock() -> EventSpec {
        let (type_, config) = (sys::PERF_TYPE_SOFTWARE, sys::PERF_COUNT_SW_CPU_CLOCK);
        EventSpec::plain("cpu-clock", Kind::Clock, type_, u64::from(config))
    }

    /// Each time that a thread stops running on a CPU: the tracepoint `sched:sched_switch`, which
    /// tells why, where this user may read it, else the software event.
    pub fn switches() -> EventSpec {
        match tracepoint_id("sched", "sched_switch") {
            Ok(id) => {
                let name = "sched:sched_switch";
                EventSpec::plain(name, Kind::Switch, sys::PERF_TYPE_TRACEPOINT, id)
            }
            Err(_) => EventSpec::software_switches(),
        }
    }

    /// The software event, for those who may not use tracepoints.
    pub fn software_switches() -> EventSpec {
        let config = u64::from(sys::PERF_COUNT_SW_CONTEXT_SWITCHES);
        EventSpec::plain("context-switches", Kind::Switch, sys::PERF_TYPE_SOFTWARE, config)
    }

    fn plain(name: &str, kind: Kind, type_: u32, config: u64) -> EventSpec {
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
        }
    }

    fn hardware(name: &str, config: u32) -> EventSpec {
        EventSpec::plain(name, Kind::Hardware, sys::PERF_TYPE_HARDWARE, u64::from(config))
    }

    /// Parses one event with its modifiers.
    ///
    /// Errors: an unknown name or modifier, a tracepoint that this kernel lacks or that this
    /// user may not read.
    pub fn parse(text: &str) -> Result<EventSpec, Error> {
        let (name, modifiers) = split_modifiers(text);
        let mut spec = plain_event(name)
            .or_else(|| raw_event(name))
            .map_or_else(|| named_event(name, text), Ok)?;
        spec.name = text.to_owned();
        if let Some(modifiers) = modifiers {
            modifiers::apply(&mut spec, modifiers)
                .map_err(|why| Error::usage(format!("event '{text}': {why}")))?;
        }
        Ok(spec)
    }

    /// What one sample of this event is worth by default, as (kind, unit) of pprof.
    pub fn value_type(&self) -> (String, &'static str) {
        match self.kind {
            Kind::Clock => ("cpu".to_owned(), "nanoseconds"),
            _ => (self.name.clone(), "count"),
        }
    }

    /// An event that works everywhere and is nearest to this one.
    pub fn nearest_software(&self) -> &'static str {
        match self.kind {
            Kind::Hardware => "cpu-clock (where CPU time goes)",
            Kind::Tracepoint | Kind::Switch => "context-switches",
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
    }
}

/// `cycles:u` → (`cycles`, `u`); `sched:sched_switch` has one colon of its own.
fn split_modifiers(text: &str) -> (&str, Option<&str>) {
    let colons = text.matches(':').count();
    if let Some((name, rest)) = text.rsplit_once('/')
        && name.contains('/')
    {
        return (&text[..name.len() + 1], (!rest.is_empty()).then(|| rest.trim_start_matches(':')));
    }
    let is_tracepoint = |name: &str| plain_event(name).is_none() && raw_event(name).is_none();
    match text.rsplit_once(':') {
        Some((name, rest)) if colons > 1 || !is_tracepoint(name) => (name, Some(rest)),
        _ => (text, None),
    }
}

fn plain_event(name: &str) -> Option<EventSpec> {
    let find = |table: &'static [(&[&str], u32)]| {
        table.iter().find(|(names, _)| names.contains(&name)).map(|&(_, config)| config)
    };
    if let Some(config) = find(HARDWARE) {
        return Some(EventSpec::hardware(name, config));
    }
    if let Some(config) = find(SOFTWARE) {
        let clock = matches!(name, "cpu-clock" | "task-clock");
        let kind = if clock { Kind::Clock } else { Kind::Software };
        return Some(EventSpec::plain(name, kind, sys::PERF_TYPE_SOFTWARE, u64::from(config)));
    }
    let (cache, rest) = CACHES
        .iter()
        .find_map(|(cache, id)| Some((id, name.strip_prefix(cache)?.strip_prefix('-')?)))?;
    let (_, op, result) = CACHE_OPS.iter().find(|(op, ..)| *op == rest)?;
    let config = u64::from(cache | (op << 8) | (result << 16));
    Some(EventSpec::plain(name, Kind::Hardware, sys::PERF_TYPE_HW_CACHE, config))
}

/// `r01c2`: a raw event in hexadecimal.
fn raw_event(name: &str) -> Option<EventSpec> {
    let digits = name.strip_prefix('r').filter(|d| !d.is_empty() && d.len() <= 16)?;
    let config = u64::from_str_radix(digits, 16).ok()?;
    Some(EventSpec::plain(name, Kind::Hardware, sys::PERF_TYPE_RAW, config))
}

fn named_event(name: &str, text: &str) -> Result<EventSpec, Error> {
    if let Some((pmu, terms)) = name.strip_suffix('/').and_then(|n| n.split_once('/')) {
        return pmu_event(pmu, terms, text);
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

/// The name that is meant by one with no more than a third of its letters wrong.
fn near(name: &str) -> Option<&'static str> {
    let names = HARDWARE.iter().chain(SOFTWARE).flat_map(|(names, _)| names.iter());
    let (wrong, near) = names.map(|near| (distance(near, name), near)).min()?;
    (wrong * 3 <= name.chars().count() && !name.is_empty()).then_some(near)
}

/// Edit distance, for "did you mean".
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().take(64).collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, ca) in a.chars().enumerate() {
        let mut diagonal = i;
        row[0] = i + 1;
        for (j, cb) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(ca != *cb);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

/// `cpu/cache-misses/` or `cpu/event=0x3c,umask=1/`, from what sysfs says of the PMU.
fn pmu_event(pmu: &str, terms: &str, text: &str) -> Result<EventSpec, Error> {
    let failed = |why: String| Error::usage(format!("event '{text}': {why}"));
    let valid = |s: &str| !s.is_empty() && !s.contains(['/', '.']);
    if !valid(pmu) {
        return Err(unknown(text));
    }
    let mut builder = Dynamic::builder(pmu)
        .map_err(|e| failed(format!("this machine has no PMU '{pmu}' ({e})")))?;
    for term in terms.split(',') {
        let result = match term.split_once('=') {
            Some((field, value)) => {
                let digits = value.trim_start_matches("0x");
                let radix = if digits.len() == value.len() { 10 } else { 16 };
                let value = u64::from_str_radix(digits, radix)
                    .map_err(|_| failed(format!("'{value}' is not a number")))?;
                builder.field(field, value).err().map(|e| e.to_string())
            }
            None if valid(term) => builder.event(term).err().map(|e| e.to_string()),
            None => Some("no event is named".to_owned()),
        };
        if let Some(why) = result {
            return Err(failed(format!("PMU '{pmu}' has no '{term}' ({why})")));
        }
    }
    let event = builder.build().map_err(|e| failed(e.to_string()))?;
    let mut attr = perf_event_attr::default();
    event.update_attrs(&mut attr);
    let mut spec = EventSpec::plain(text, Kind::Hardware, attr.type_, attr.config);
    // SAFETY: both unions hold plain integers of one size; every bit pattern is valid.
    unsafe {
        spec.config1 = attr.__bindgen_anon_3.config1;
        spec.config2 = attr.__bindgen_anon_4.config2;
    }
    Ok(spec)
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
        _ => Error::other(explain(&e, Wanted::Tracefs(text.to_owned()))),
    })?;
    Ok(EventSpec::plain(text, Kind::Tracepoint, sys::PERF_TYPE_TRACEPOINT, id))
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
        assert_eq!((e.kind, e.config), (Kind::Software, 3));
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
