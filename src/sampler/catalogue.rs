//! The events of this machine; each is tried, and the reason is given if it does not work.

use std::fs;
use std::io;

use super::EventSpec;
use super::attr::{Features, Shape, StartWhen, Trigger, sampling_event};
use super::events::names::{self, Generic};
use super::events::pmu;
use super::permissions::{Facts, Wanted, obstacle};
use super::{StackMethod, tracefs};
use messages::Message;

/// Events of one kind.
#[derive(Clone, Debug, PartialEq)]
pub struct Group {
    /// A keyword: `hardware`, `cache`, `pmu`, `software`, `tracepoint`, `probe`, `sdt`.
    pub kind: &'static str,
    /// Headline.
    pub title: String,
    /// The reason why none of them works here.
    pub why: Option<Message>,
    /// The events, in a stable order.
    pub events: Vec<Listed>,
}

/// An event.
#[derive(Clone, Debug, PartialEq)]
pub struct Listed {
    /// The name for `-e`.
    pub name: String,
    /// Other names, or a description.
    pub about: String,
    /// The reason why it does not work here.
    pub why: Option<Message>,
}

impl Group {
    /// A group of events that are not tried one by one.
    pub fn new(kind: &'static str, title: &str, why: Option<Message>, names: Vec<String>) -> Group {
        let listed = |name| Listed { name, about: String::new(), why: None };
        let events = names.into_iter().map(listed).collect();
        Group { kind, title: title.to_owned(), why, events }
    }

    /// Keeps the events that match one of `words`; without words, all. A word is the kind of a
    /// group, or matches a part of the name or description, or as a pattern (`*`, `?`) the whole
    /// name.
    pub fn retain(&mut self, words: &[&String]) {
        if words.is_empty() || words.iter().any(|word| kind(word) == self.kind) {
            return;
        }
        // A word for a kind is a part of other names by chance only: `sw` of `sched_switch`.
        let is_name = |word: &&&String| !KINDS.contains(&kind(word));
        self.events.retain(|event| words.iter().filter(is_name).any(|word| event.is_called(word)));
    }

    /// Moves a reason that all events share to the group.
    fn summed_up(mut self) -> Group {
        let first = self.events.first().and_then(|e| e.why.clone());
        if first.is_some() && self.events.iter().all(|e| e.why == first) {
            self.why = first;
            self.events.iter_mut().for_each(|e| e.why = None);
        }
        self
    }
}

impl Listed {
    fn is_called(&self, word: &str) -> bool {
        let word = word.to_lowercase();
        let name = self.name.to_lowercase();
        if word.contains(['*', '?']) {
            return matches(word.as_bytes(), name.as_bytes());
        }
        name.contains(&word) || self.about.to_lowercase().contains(&word)
    }
}

/// The kinds of groups.
const KINDS: [&str; 7] = ["hardware", "cache", "pmu", "software", "tracepoint", "probe", "sdt"];

/// The kind of a group that a word is the name of, also in perf's words.
pub fn kind(word: &str) -> &str {
    match word {
        "hw" => "hardware",
        "sw" => "software",
        "hwcache" => "cache",
        _ => word,
    }
}

/// True if a pattern with `*` and `?` matches the whole of `text`.
pub(super) fn matches(pattern: &[u8], text: &[u8]) -> bool {
    let mut p = 0;
    let mut t = 0;
    let mut star = None;
    while t < text.len() {
        match pattern.get(p) {
            Some(b'*') => {
                star = Some((p, t));
                p += 1;
            }
            Some(&c) if c == b'?' || c == text[t] => (p, t) = (p + 1, t + 1),
            _ => match star {
                // The last star matches one letter more.
                Some((at, from)) => {
                    star = Some((at, from + 1));
                    (p, t) = (at + 1, from + 1);
                }
                None => return false,
            },
        }
    }
    pattern[p..].iter().all(|&c| c == b'*')
}

/// All groups except the markers of binaries.
pub fn groups() -> Vec<Group> {
    let mut groups = vec![hardware(), generic(), caches()];
    groups.extend(pmus());
    groups.extend([software(), probes(), tracepoints()]);
    groups
}

fn tried(name: &str, about: String) -> Listed {
    let why = match EventSpec::parse(name) {
        Ok(spec) => why_not(&spec),
        Err(e) => Some(Message::NotAnEvent { error: e.to_string() }),
    };
    Listed { name: name.to_owned(), about, why }
}

fn table(table: &[(&[&str], u32)]) -> Vec<Listed> {
    table.iter().map(|(names, _)| tried(names[0], names[1..].join(", "))).collect()
}

fn hardware() -> Group {
    let events = table(names::HARDWARE);
    Group { events, ..Group::new("hardware", "Hardware events", None, Vec::new()) }.summed_up()
}

fn generic() -> Group {
    let events = names::GENERIC.iter().map(|(name, generic)| {
        let about = match generic {
            Generic::Same(other) => (*other).to_owned(),
            Generic::L2Misses => "misses of the second-level cache, by the CPU's model".to_owned(),
            Generic::StalledCycles => {
                "of the back end, or the front end where only that is counted".to_owned()
            }
        };
        tried(name, about)
    });
    let title = "Hardware events by names for any CPU";
    Group { events: events.collect(), ..Group::new("hardware", title, None, Vec::new()) }
        .summed_up()
}

fn caches() -> Group {
    let events = names::cache_names().map(|name| tried(&name, String::new()));
    let title = "Hardware cache events";
    Group { events: events.collect(), ..Group::new("cache", title, None, Vec::new()) }.summed_up()
}

fn software() -> Group {
    let events = table(names::SOFTWARE);
    Group { events, ..Group::new("software", "Software events", None, Vec::new()) }.summed_up()
}

/// Events that sysfs lists, by PMU.
fn pmus() -> Vec<Group> {
    let groups = pmu::names().into_iter().filter_map(|pmu| {
        let events = pmu::events(&pmu);
        let events: Vec<_> =
            events.iter().map(|event| tried(&format!("{pmu}/{event}/"), String::new())).collect();
        let title = format!("Events of the PMU {pmu}");
        let group = Group { events, ..Group::new("pmu", &title, None, Vec::new()) };
        (!group.events.is_empty()).then(|| group.summed_up())
    });
    let mut groups: Vec<Group> = groups.collect();
    let raw = vec!["rNNNN".to_owned(), "PMU/TERM=VALUE,.../".to_owned()];
    let mut raw = Group::new("pmu", "Raw events, by the CPU's manual", None, raw);
    raw.why = why_not(&EventSpec::parse("r0").expect("a number"));
    groups.push(raw);
    groups
}

fn probes() -> Group {
    let events_of = |pmu: &'static str| {
        let there = fs::exists(format!("/sys/bus/event_source/devices/{pmu}/type"));
        (!there.unwrap_or(false)).then(|| Message::PmuNotBuilt { pmu: pmu.to_owned() })
    };
    let listed = |name: &str, about: &str, pmu: &'static str| Listed {
        name: name.to_owned(),
        about: about.to_owned(),
        why: events_of(pmu),
    };
    let events = vec![
        listed(
            "probe:[FILE:]FUNCTION[+OFFSET][%return]",
            "a function of a program or library",
            "uprobe",
        ),
        listed("sdt:[FILE:]PROVIDER:NAME", "a marker: prof list FILE, prof list -p PID", "uprobe"),
        listed("kprobe:FUNCTION[+OFFSET][%return]", "a function of the kernel", "kprobe"),
    ];
    Group { events, ..Group::new("probe", "Probes", None, Vec::new()) }
}

fn tracepoints() -> Group {
    let (why, names) = match tracefs::tracepoints() {
        // All of them have the same requirements as the first.
        Ok(names) => {
            let first = names.first().and_then(|name| EventSpec::parse(name).ok());
            (first.and_then(|spec| why_not(&spec)), names)
        }
        Err(e) => {
            let wanted = Wanted::Tracefs("SYSTEM:NAME".into());
            let why = obstacle(&e, &wanted, &Facts::read());
            (Some(why), Vec::new())
        }
    };
    Group::new("tracepoint", "Tracepoints", why, names)
}

/// The reason why an event cannot be opened, tried on prof itself.
fn why_not(spec: &EventSpec) -> Option<Message> {
    let shape = Shape {
        trigger: Trigger::Period(1_000_000),
        stacks: StackMethod::None,
        inherit: false,
        switches: false,
        start: StartWhen::Later,
        cpu_wide: false,
    };
    let open = |kernel| {
        let mut builder = sampling_event(
            spec,
            &shape,
            Features { build_id: false, kernel, interrupted: false, cgroup: false },
        );
        builder.enabled(false).observe_self().any_cpu();
        builder.build().map(|_| ())
    };
    let error = open(true).or_else(|_| open(false)).err()?;
    Some(match error.raw_os_error() {
        Some(libc::ENOENT | libc::ENODEV | libc::EOPNOTSUPP) => {
            if has_counters() {
                Message::EventNotCounted
            } else {
                Message::NoHardwareCounters
            }
        }
        Some(libc::EINVAL) => Message::NoInterrupts,
        _ => {
            let wanted = Wanted::Tracepoint(spec.name.clone());
            obstacle(&error, &wanted, &Facts::read())
        }
    })
}

fn has_counters() -> bool {
    let open = || -> io::Result<()> {
        let mut builder = perf_event::Builder::new(perf_event::events::Hardware::CPU_CYCLES);
        builder.enabled(false).observe_self().any_cpu().exclude_kernel(true).build()?;
        Ok(())
    };
    open().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns() {
        let is = |pattern: &str, text: &str| matches(pattern.as_bytes(), text.as_bytes());
        assert!(is("sched:*wak*", "sched:sched_waking") && is("*", "") && is("a?c", "abc"));
        assert!(is("*misses", "l1-misses") && is("a*b*c", "aXbYbZc"));
        assert!(!is("sched", "sched:x") && !is("a?c", "ac") && !is("*x", "xy") && !is("", "a"));
    }

    #[test]
    fn words_find_events_by_name_alias_and_kind() {
        let mut group =
            Group::new("software", "", None, vec!["page-faults".into(), "cpu-clock".into()]);
        group.events[0].about = "faults".into();
        let left = |word: &str| {
            let mut group = group.clone();
            group.retain(&[&word.to_owned()]);
            group.events.len()
        };
        assert_eq!([left("FAULT"), left("software"), left("c*k"), left("x")], [1, 2, 1, 0]);
        assert_eq!([left("sw"), left("hw"), left("hwcache")], [2, 0, 0]);
        group.kind = "tracepoint";
        group.events[0].name = "sched:sched_switch".into();
        let mut others = group.clone();
        others.retain(&[&"sw".to_owned()]);
        assert!(others.events.is_empty());
    }

    #[test]
    fn the_same_reason_is_given_once() {
        use Message::{EventNotCounted, NoHardwareCounters};
        let listed = |why| Listed { name: "x".into(), about: String::new(), why };
        let of = |whys: [Message; 2]| {
            let events = whys.into_iter().map(|why| listed(Some(why))).collect();
            Group { events, ..Group::new("pmu", "", None, Vec::new()) }.summed_up()
        };
        let same = of([NoHardwareCounters, NoHardwareCounters]);
        assert_eq!(same.why, Some(NoHardwareCounters));
        assert!(same.events.iter().all(|e| e.why.is_none()));
        assert_eq!(of([NoHardwareCounters, EventNotCounted]).why, None);
    }

    #[test]
    fn this_machine_has_software_events() {
        let groups = groups();
        let software = groups.iter().find(|g| g.kind == "software").unwrap();
        assert!(software.events.iter().any(|e| e.name == "page-faults" && e.why.is_none()));
        assert_eq!(groups, super::groups(), "a stable order");
    }
}
