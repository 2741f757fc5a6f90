//! Names of the kernel's events, and names with the same meaning on any CPU.

use std::fs;

use perf_event_open_sys::bindings as abi;

use super::{EventKind, EventSpec};
use crate::sampler::arch::{self, CPU_PMU};
use sys::suggest::nearest;

/// Events of the counters of any CPU (`perf_event_open(2)`, `PERF_TYPE_HARDWARE`).
pub const HARDWARE: &[(&[&str], u32)] = &[
    (&["cycles", "cpu-cycles"], abi::PERF_COUNT_HW_CPU_CYCLES),
    (&["instructions"], abi::PERF_COUNT_HW_INSTRUCTIONS),
    (&["cache-references"], abi::PERF_COUNT_HW_CACHE_REFERENCES),
    (&["cache-misses"], abi::PERF_COUNT_HW_CACHE_MISSES),
    (&["branches", "branch-instructions"], abi::PERF_COUNT_HW_BRANCH_INSTRUCTIONS),
    (&["branch-misses"], abi::PERF_COUNT_HW_BRANCH_MISSES),
    (&["bus-cycles"], abi::PERF_COUNT_HW_BUS_CYCLES),
    (
        &["stalled-cycles-frontend", "idle-cycles-frontend"],
        abi::PERF_COUNT_HW_STALLED_CYCLES_FRONTEND,
    ),
    (&["stalled-cycles-backend", "idle-cycles-backend"], abi::PERF_COUNT_HW_STALLED_CYCLES_BACKEND),
    (&["ref-cycles"], abi::PERF_COUNT_HW_REF_CPU_CYCLES),
];

/// Events that the kernel counts in software.
pub const SOFTWARE: &[(&[&str], u32)] = &[
    (&["cpu-clock"], abi::PERF_COUNT_SW_CPU_CLOCK),
    (&["task-clock"], abi::PERF_COUNT_SW_TASK_CLOCK),
    (&["page-faults", "faults"], abi::PERF_COUNT_SW_PAGE_FAULTS),
    (&["context-switches", "cs"], abi::PERF_COUNT_SW_CONTEXT_SWITCHES),
    (&["cpu-migrations", "migrations"], abi::PERF_COUNT_SW_CPU_MIGRATIONS),
    (&["minor-faults"], abi::PERF_COUNT_SW_PAGE_FAULTS_MIN),
    (&["major-faults"], abi::PERF_COUNT_SW_PAGE_FAULTS_MAJ),
    (&["alignment-faults"], abi::PERF_COUNT_SW_ALIGNMENT_FAULTS),
    (&["emulation-faults"], abi::PERF_COUNT_SW_EMULATION_FAULTS),
    (&["cgroup-switches"], abi::PERF_COUNT_SW_CGROUP_SWITCHES),
];

const CACHES: &[(&str, u32)] = &[
    ("L1-dcache", abi::PERF_COUNT_HW_CACHE_L1D),
    ("L1-icache", abi::PERF_COUNT_HW_CACHE_L1I),
    ("LLC", abi::PERF_COUNT_HW_CACHE_LL),
    ("dTLB", abi::PERF_COUNT_HW_CACHE_DTLB),
    ("iTLB", abi::PERF_COUNT_HW_CACHE_ITLB),
    ("branch", abi::PERF_COUNT_HW_CACHE_BPU),
    ("node", abi::PERF_COUNT_HW_CACHE_NODE),
];

const CACHE_OPS: &[(&str, u32, u32)] = &[
    ("loads", abi::PERF_COUNT_HW_CACHE_OP_READ, abi::PERF_COUNT_HW_CACHE_RESULT_ACCESS),
    ("load-misses", abi::PERF_COUNT_HW_CACHE_OP_READ, abi::PERF_COUNT_HW_CACHE_RESULT_MISS),
    ("stores", abi::PERF_COUNT_HW_CACHE_OP_WRITE, abi::PERF_COUNT_HW_CACHE_RESULT_ACCESS),
    ("store-misses", abi::PERF_COUNT_HW_CACHE_OP_WRITE, abi::PERF_COUNT_HW_CACHE_RESULT_MISS),
    ("prefetches", abi::PERF_COUNT_HW_CACHE_OP_PREFETCH, abi::PERF_COUNT_HW_CACHE_RESULT_ACCESS),
    ("prefetch-misses", abi::PERF_COUNT_HW_CACHE_OP_PREFETCH, abi::PERF_COUNT_HW_CACHE_RESULT_MISS),
];

/// Names with the same meaning on any CPU, and the events that they denote on this one.
pub const GENERIC: &[(&str, Generic)] = &[
    ("l1-misses", Generic::Same("L1-dcache-load-misses")),
    ("l2-misses", Generic::L2Misses),
    ("llc-misses", Generic::Same("LLC-load-misses")),
    ("dtlb-misses", Generic::Same("dTLB-load-misses")),
    ("itlb-misses", Generic::Same("iTLB-load-misses")),
    ("stalled-cycles", Generic::StalledCycles),
];

/// The resolution of a name of [`GENERIC`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Generic {
    /// A synonym of this name.
    Same(&'static str),
    /// An event number that depends on the CPU.
    L2Misses,
    /// The cycles in which the back end stalled, or the front end where only that is counted.
    StalledCycles,
}

/// The names of all cache events, in perf's order.
pub fn cache_names() -> impl Iterator<Item = String> {
    let names_of =
        |cache: &'static str| CACHE_OPS.iter().map(move |(op, ..)| format!("{cache}-{op}"));
    CACHES.iter().flat_map(move |(cache, _)| names_of(cache))
}

/// The event with one of the names above, if any.
pub fn find(name: &str) -> Option<EventSpec> {
    let find = |table: &'static [(&[&str], u32)]| {
        table.iter().find(|(names, _)| names.contains(&name)).map(|&(_, config)| config)
    };
    if let Some(config) = find(HARDWARE) {
        return Some(EventSpec::hardware(name, config));
    }
    if let Some(config) = find(SOFTWARE) {
        let clock = matches!(name, "cpu-clock" | "task-clock");
        let kind = if clock { EventKind::Clock } else { EventKind::Software };
        return Some(EventSpec::plain(name, kind, abi::PERF_TYPE_SOFTWARE, u64::from(config)));
    }
    if let Some((_, generic)) = GENERIC.iter().find(|(n, _)| *n == name) {
        return Some(EventSpec { name: name.to_owned(), ..generic.resolve() });
    }
    cache(name)
}

fn cache(name: &str) -> Option<EventSpec> {
    let (cache, rest) = CACHES
        .iter()
        .find_map(|(cache, id)| Some((id, name.strip_prefix(cache)?.strip_prefix('-')?)))?;
    let (_, op, result) = CACHE_OPS.iter().find(|(op, ..)| *op == rest)?;
    let config = u64::from(cache | (op << 8) | (result << 16));
    Some(EventSpec::plain(name, EventKind::Hardware, abi::PERF_TYPE_HW_CACHE, config))
}

impl Generic {
    fn resolve(self) -> EventSpec {
        match self {
            Generic::Same(name) => find(name).expect("a name of the tables above"),
            Generic::L2Misses => {
                let cpu = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
                arch::l2_misses(&cpu).unwrap_or_else(|| {
                    // Refused like an event that the machine lacks.
                    EventSpec::plain("l2-misses", EventKind::Hardware, NO_TYPE, 0)
                })
            }
            Generic::StalledCycles => {
                let there = |name: &str| {
                    fs::exists(format!("/sys/bus/event_source/devices/{CPU_PMU}/events/{name}"))
                        .is_ok_and(|there| there)
                };
                let back = "stalled-cycles-backend";
                let front = "stalled-cycles-frontend";
                let name = if !there(back) && there(front) { front } else { back };
                find(name).expect("a name of the tables above")
            }
        }
    }
}

/// A type without a PMU: the kernel returns `ENOENT`.
const NO_TYPE: u32 = u32::MAX;

/// The most similar name, if no more than a third of the letters differ.
pub fn near(name: &str) -> Option<&'static str> {
    let names = HARDWARE.iter().chain(SOFTWARE).flat_map(|(names, _)| names.iter().copied());
    nearest(name, names.chain(GENERIC.iter().map(|(name, _)| *name)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generic_names_are_events_of_the_cpu() {
        let of = |name: &str| find(name).map(|e| (e.kind, e.type_, e.config));
        let cache = |config| Some((EventKind::Hardware, abi::PERF_TYPE_HW_CACHE, config));
        assert_eq!(of("l1-misses"), cache(0x1_0000));
        assert_eq!(of("llc-misses"), cache(0x1_0002));
        assert_eq!(of("dtlb-misses"), cache(0x1_0003));
        assert_eq!(of("itlb-misses"), cache(0x1_0004));
        assert_eq!(find("l2-misses").unwrap().name, "l2-misses");
        let stalled = find("stalled-cycles").unwrap();
        assert_eq!((stalled.name.as_str(), stalled.kind), ("stalled-cycles", EventKind::Hardware));
        assert!(matches!(stalled.config, 7 | 8));
        assert!(cache_names().all(|name| find(&name).is_some()));
        assert_eq!(cache_names().count(), 42);
    }
}
