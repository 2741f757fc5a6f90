//! Converts an [`EventSpec`] and the options to `perf_event_attr`.

use perf_event::events::Software;
use perf_event::{Builder, ReadFormat, SampleFlag};
use perf_event_open_sys::bindings as abi;

use super::events::{EventKind, EventSpec, GroupRole};
use super::{Rate, StackMethod, Target};
use sys::arch::{INTERRUPTED_REGISTERS, SAMPLED_REGISTERS};
use sys::procfs;
use sys::record::Layout;
use sys::record::MAX_DUMP;

/// `CLOCK_MONOTONIC` of `clock_gettime(2)`.
const CLOCK_MONOTONIC: i32 = libc::CLOCK_MONOTONIC;

/// The kernel's shortest period of a clock, in nanoseconds (`perf_swevent_start_hrtimer`).
pub const SHORTEST_CLOCK: u64 = 10_000;

/// Features that a kernel or a user may lack; restricted when the first event is opened.
#[derive(Clone, Copy, Debug)]
pub struct Features {
    /// Build IDs in mapping records (Linux 5.12).
    pub build_id: bool,
    /// True if kernel code may be sampled.
    pub kernel: bool,
    /// True if counters sample the registers of interrupted code, too.
    pub interrupted: bool,
    /// True if counters sample the cgroups of processes, too (Linux 5.7).
    pub cgroup: bool,
}

impl Features {
    /// All that this kernel may have, for a target.
    pub fn all(target: &Target) -> Features {
        let chain = procfs::sysctl("kernel/perf_event_max_stack").unwrap_or(0);
        // "Kernel lockdown" refuses these registers to everyone.
        let lockdown = std::fs::read_to_string("/sys/kernel/security/lockdown");
        let interrupted = INTERRUPTED_REGISTERS != 0
            && chain <= LONGEST_CHAIN
            && !lockdown.is_ok_and(|mode| mode.contains("[confidentiality]"));
        let cgroup = matches!(target, Target::Cgroup(_));
        Features { build_id: true, kernel: true, interrupted, cgroup }
    }
}

/// Maximum `kernel.perf_event_max_stack` with which the interrupted registers are sampled.
const LONGEST_CHAIN: i64 = 1024;

/// Maximum number of bytes of a stack's copy in samples with the interrupted registers.
///
/// The kernel shortens copies to what a record has room for (64 KiB), but does not consider the
/// registers behind them: the sizes of such records are wrong (`perf_prepare_sample` in
/// kernel/events/core.c, Linux 6.18). So there must be room for the longest call chain, and for 2 KiB
/// of registers, counts of a group and other fields.
const COPY_BEFORE_REGISTERS: u32 = MAX_DUMP - 8 * LONGEST_CHAIN as u32 - 2048;

/// The period or frequency of an event, which determines the weight of its samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trigger {
    /// Every N events; a sample weighs N.
    Period(u64),
    /// N samples per second, for which the kernel adapts the period; samples carry their weight.
    Frequency(u64),
}

/// The trigger of an event at a rate, on a kernel with this `perf_event_max_sample_rate`.
///
/// Clocks run with a fixed period, so each sample weighs exactly that. Tracepoints and probes are
/// sampled at each occurrence unless a period is given.
pub fn trigger(spec: &EventSpec, rate: Rate, max_rate: u64) -> Trigger {
    let frequency = match rate {
        _ if spec.kind == EventKind::OfType => return Trigger::Period(1),
        Rate::Period(period) if spec.kind == EventKind::Clock => {
            return Trigger::Period(period.max(SHORTEST_CLOCK));
        }
        Rate::Period(period) => return Trigger::Period(period),
        Rate::Frequency(hz) => hz.min(max_rate),
        Rate::Max => max_rate,
    };
    match spec.kind {
        EventKind::Clock => Trigger::Period((1_000_000_000 / frequency.max(1)).max(SHORTEST_CLOCK)),
        EventKind::Tracepoint | EventKind::Probe | EventKind::OfType => Trigger::Period(1),
        EventKind::Software | EventKind::Hardware => Trigger::Frequency(frequency),
    }
}

/// The fields of an event's samples.
///
/// `PERF_SAMPLE_PERIOD` only with a frequency: with a fixed period it makes the kernel ignore
/// the period of software events (`perf_swevent_event` in kernel/events/core.c).
pub fn layout(
    spec: &EventSpec,
    trigger: Trigger,
    stacks: StackMethod,
    features: Features,
) -> Layout {
    let stacks = stacks_of(spec, stacks);
    Layout {
        raw: spec.raw,
        group: spec.group == GroupRole::Leader,
        period: matches!(trigger, Trigger::Frequency(_)),
        callchain: stacks != StackMethod::None,
        user_stack: stacks.has_copies(),
        interrupted: has_interrupted(spec, stacks, features),
        cgroup: has_cgroup(spec, features),
    }
}

/// True if samples have the registers of the interrupted code, too: those of counters, whose
/// interrupts come also while the kernel saves the user's registers, and late: those of events that
/// count user code only, too. Other events occur in code for which it has saved them.
fn has_interrupted(spec: &EventSpec, stacks: StackMethod, features: Features) -> bool {
    features.interrupted && spec.kind == EventKind::Hardware && stacks.has_copies()
}

/// True if samples have the cgroup of their process: those of counters, whose interrupts come also
/// while the kernel switches to a thread of the cgroup.
fn has_cgroup(spec: &EventSpec, features: Features) -> bool {
    features.cgroup && spec.kind == EventKind::Hardware
}

fn stacks_of(spec: &EventSpec, stacks: StackMethod) -> StackMethod {
    match stacks {
        _ if !spec.stack => StackMethod::None,
        StackMethod::Auto { dump } => StackMethod::Auto { dump: dump.min(spec.most_dump) },
        StackMethod::Dwarf { dump } => StackMethod::Dwarf { dump: dump.min(spec.most_dump) },
        other => other,
    }
}

/// The event that owns a ring buffer: it counts nothing and never ends.
pub fn ring_owner<'a>(watermark: u32) -> Builder<'a> {
    let mut builder = Builder::new(Software::DUMMY);
    let attr = builder.attrs_mut();
    common(attr);
    attr.set_watermark(1);
    attr.__bindgen_anon_2.wakeup_watermark = watermark;
    builder
}

fn common(attr: &mut abi::perf_event_attr) {
    attr.sample_type = (SampleFlag::IDENTIFIER | SampleFlag::TID | SampleFlag::TIME).bits();
    attr.set_sample_id_all(1);
    attr.set_use_clockid(1);
    attr.clockid = CLOCK_MONOTONIC;
}

/// The time at which an event starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StartWhen {
    /// When it is opened.
    Now,
    /// When the process calls `execve`.
    OnExec,
    /// When it replaces another event, if it does.
    Later,
}

/// The settings of an event apart from its target.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// The trigger.
    pub trigger: Trigger,
    /// The method to record stacks.
    pub stacks: StackMethod,
    /// True if threads and children created later are sampled too.
    pub inherit: bool,
    /// True if it carries the records of context switches.
    pub switches: bool,
    /// The time at which it starts.
    pub start: StartWhen,
    /// True if it covers all processes of a CPU.
    pub cpu_wide: bool,
}

/// The event itself, disabled.
pub fn sampling_event<'a>(spec: &EventSpec, shape: &Shape, features: Features) -> Builder<'a> {
    let mut builder = Builder::new(spec);
    // Times enabled and running, because there may be more events than counters.
    let mut format =
        ReadFormat::LOST | ReadFormat::TOTAL_TIME_ENABLED | ReadFormat::TOTAL_TIME_RUNNING;
    if spec.group == GroupRole::Leader {
        // Each sample of a leader then has these fields.
        format |= ReadFormat::GROUP | ReadFormat::ID;
    }
    builder.read_format(format);
    let attr = builder.attrs_mut();
    common(attr);
    attr.sample_type |= SampleFlag::IP.bits();
    match shape.trigger {
        _ if spec.group == GroupRole::Member => {}
        Trigger::Period(period) => attr.__bindgen_anon_1.sample_period = period,
        Trigger::Frequency(hz) => {
            attr.set_freq(1);
            attr.__bindgen_anon_1.sample_freq = hz;
            attr.sample_type |= SampleFlag::PERIOD.bits();
        }
    }
    attr.set_precise_ip(u64::from(spec.precise));
    attr.set_exclude_user(u64::from(!spec.user));
    // An event of kernel code only is refused, instead of sampling nothing.
    let kernel = spec.kernel && (features.kernel || !spec.user);
    attr.set_exclude_kernel(u64::from(!kernel));
    attr.set_exclude_hv(1);
    attr.set_exclude_guest(1);
    attr.set_exclude_idle(u64::from(shape.cpu_wide));
    if spec.unscoped {
        attr.set_exclude_user(0);
        attr.set_exclude_kernel(0);
        attr.set_exclude_hv(0);
        attr.set_exclude_guest(0);
        attr.set_exclude_idle(0);
    }
    if spec.group == GroupRole::Leader {
        attr.sample_type |= SampleFlag::READ.bits();
    }
    attr.set_inherit(u64::from(shape.inherit));
    attr.set_enable_on_exec(u64::from(shape.start == StartWhen::OnExec));
    if spec.group != GroupRole::Member {
        let stacks = stacks_of(spec, shape.stacks);
        set_stacks(attr, stacks, features);
        if has_interrupted(spec, stacks, features) {
            attr.sample_type |= SampleFlag::REGS_INTR.bits();
            attr.sample_regs_intr = INTERRUPTED_REGISTERS;
            attr.sample_stack_user = attr.sample_stack_user.min(COPY_BEFORE_REGISTERS);
        }
        if has_cgroup(spec, features) {
            attr.sample_type |= u64::from(abi::PERF_SAMPLE_CGROUP);
        }
    }
    if spec.raw {
        attr.sample_type |= SampleFlag::RAW.bits();
    }
    attr.set_context_switch(u64::from(shape.switches));
    builder
}

/// The event that carries the sideband records: mappings, names, forks, exits and kernel code. It
/// counts nothing, so opening it needs no privilege.
pub fn sideband_event<'a>(inherit: bool, features: Features) -> Builder<'a> {
    let mut builder = Builder::new(Software::DUMMY);
    let attr = builder.attrs_mut();
    common(attr);
    attr.set_exclude_kernel(1);
    attr.set_exclude_hv(1);
    attr.set_inherit(u64::from(inherit));
    attr.set_mmap(1);
    attr.set_mmap2(1);
    attr.set_build_id(u64::from(features.build_id));
    attr.set_comm(1);
    attr.set_comm_exec(1);
    attr.set_task(1);
    attr.set_ksymbol(1);
    builder
}

fn set_stacks(attr: &mut abi::perf_event_attr, stacks: StackMethod, features: Features) {
    let dump = match stacks {
        StackMethod::None => return,
        StackMethod::FramePointer => None,
        StackMethod::Auto { dump } | StackMethod::Dwarf { dump } => Some(dump),
    };
    attr.sample_type |= SampleFlag::CALLCHAIN.bits();
    attr.set_exclude_callchain_kernel(u64::from(!features.kernel));
    attr.set_exclude_callchain_user(u64::from(matches!(stacks, StackMethod::Dwarf { .. })));
    if let Some(dump) = dump {
        attr.sample_type |= (SampleFlag::REGS_USER | SampleFlag::STACK_USER).bits();
        attr.sample_regs_user = SAMPLED_REGISTERS;
        attr.sample_stack_user = dump.min(MAX_DUMP) & !7;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: Features =
        Features { build_id: true, kernel: true, interrupted: true, cgroup: true };

    #[test]
    fn clocks_have_a_fixed_period_and_counters_a_frequency() {
        let clock = EventSpec::cpu_clock();
        assert_eq!(trigger(&clock, Rate::Frequency(99), 100_000), Trigger::Period(10_101_010));
        assert_eq!(trigger(&clock, Rate::Max, 50_000), Trigger::Period(20_000));
        assert_eq!(trigger(&clock, Rate::Period(1), 100_000), Trigger::Period(10_000));
        assert_eq!(trigger(&clock, Rate::Max, 200_000), Trigger::Period(10_000));
        assert_eq!(trigger(&clock, Rate::Period(10_001), 100_000), Trigger::Period(10_001));
        let faults = EventSpec::parse("page-faults").unwrap();
        assert_eq!(trigger(&faults, Rate::Frequency(99), 100_000), Trigger::Frequency(99));
        assert_eq!(trigger(&faults, Rate::Period(7), 100_000), Trigger::Period(7));
        assert!(!layout(&clock, Trigger::Period(1), StackMethod::FramePointer, ALL).period);
        assert!(layout(&clock, Trigger::Frequency(1), StackMethod::FramePointer, ALL).period);
    }

    #[test]
    fn only_counters_sample_the_interrupted_registers_and_the_cgroup() {
        let fields = |name: &str, stacks| {
            let spec = EventSpec::parse(name).unwrap();
            let layout = layout(&spec, Trigger::Frequency(99), stacks, ALL);
            (layout.interrupted, layout.cgroup)
        };
        let copies = StackMethod::Auto { dump: 4096 };
        assert_eq!(fields("cycles", copies), (true, true));
        assert_eq!(fields("cycles:u", copies), (true, true), "its interrupts come late");
        assert_eq!(fields("cycles", StackMethod::FramePointer), (false, true));
        assert_eq!(fields("cpu-clock", copies), (false, false));
        assert_eq!(fields("page-faults", copies), (false, false));
    }

    #[test]
    fn the_dump_is_a_multiple_of_eight_below_64_kib() {
        let shape = Shape {
            trigger: Trigger::Period(1),
            stacks: StackMethod::Auto { dump: 1 << 20 },
            inherit: true,
            switches: false,
            start: StartWhen::Now,
            cpu_wide: false,
        };
        let copied = |spec: &EventSpec| sampling_event(spec, &shape, ALL).attrs().sample_stack_user;
        assert_eq!(copied(&EventSpec::cpu_clock()), MAX_DUMP);
        assert_eq!(copied(&EventSpec::parse("cycles").unwrap()), COPY_BEFORE_REGISTERS);
        assert_eq!((MAX_DUMP % 8, COPY_BEFORE_REGISTERS % 8), (0, 0));
    }
}
