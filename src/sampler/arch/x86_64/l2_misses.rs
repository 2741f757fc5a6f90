//! The event of misses in the second-level cache.

use perf_event_open_sys::bindings as abi;

use crate::sampler::events::{EventKind, EventSpec};

/// Models of Intel's family 6 whose `L2_RQSTS.MISS` is event 0x24 with mask 0x3f: Haswell to
/// Emerald Rapids without the Atoms and hybrids (Intel's perfmon event lists; models as in
/// `arch/x86/include/asm/intel-family.h`).
const L2_RQSTS_MISS: &[u8] = &[
    0x3c, 0x3f, 0x45, 0x46, 0x3d, 0x47, 0x4f, 0x56, 0x4e, 0x5e, 0x55, 0x8e, 0x9e, 0xa5, 0xa6, 0x7d,
    0x7e, 0x6a, 0x6c, 0x8c, 0x8d, 0xa7, 0x8f, 0xcf,
];

/// Misses in the second-level cache, for the CPU described by `/proc/cpuinfo`.
pub fn l2_misses(cpuinfo: &str) -> Option<EventSpec> {
    let field = |name: &str| {
        let line = cpuinfo.lines().find(|l| l.split(':').next().is_some_and(|k| k.trim() == name));
        line?.split_once(':').map(|(_, value)| value.trim())
    };
    let number = |name: &str| field(name)?.parse::<u32>().ok();
    match (field("vendor_id")?, number("cpu family")?, number("model")?) {
        ("GenuineIntel", 6, model) if L2_RQSTS_MISS.iter().any(|&m| u32::from(m) == model) => {
            Some(EventSpec::plain("l2-misses", EventKind::Hardware, abi::PERF_TYPE_RAW, 0x3f24))
        }
        // Zen's generic cache misses are those of the second level, event 0x64 with mask 0x09
        // (`amd_zen1_perfmon_event_map` in arch/x86/events/amd/core.c).
        ("AuthenticAMD", 0x17.., _) => {
            Some(EventSpec::hardware("l2-misses", abi::PERF_COUNT_HW_CACHE_MISSES))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_cpu_has_its_number_for_the_second_level() {
        let cpu = |vendor: &str, family: u32, model: u32| {
            let text = format!(
                "processor\t: 0\nvendor_id\t: {vendor}\ncpu family\t: {family}\n\
                 model\t\t: {model}\nmodel name\t: x 6\n"
            );
            l2_misses(&text).map(|e| (e.type_, e.config))
        };
        assert_eq!(cpu("GenuineIntel", 6, 0x55), Some((abi::PERF_TYPE_RAW, 0x3f24)));
        assert_eq!(cpu("AuthenticAMD", 0x19, 1), Some((abi::PERF_TYPE_HARDWARE, 3)));
        assert_eq!(cpu("AuthenticAMD", 0x10, 1), None);
        assert_eq!(cpu("GenuineIntel", 6, 0x5c), None, "an Atom");
        assert_eq!(l2_misses(""), None);
    }
}
