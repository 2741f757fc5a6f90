//! Notes for the user about a recording, in addition to its figures.

use std::time::Duration;

use super::coverage::CpuCoverage;
use crate::sampler::aggregator::Aggregator;
use crate::sampler::events::EventKind;
use crate::sampler::{
    CPU_WIDE_PERIOD, EventSpec, Options, Rate, Session, StackMethod, Stats, Target, permissions,
};
use heap::privileged;
use sys::os;
use sys::procfs;
use unwind::StackEnd;

/// CPU time used before the recording started.
pub struct UsedBefore {
    /// prof's own CPU time.
    pub own_cpu_seconds: f64,
    /// Descendants of the target, which are not sampled without `--tree`, and their CPU time in
    /// clock ticks.
    descendants: Option<(Vec<i32>, u64)>,
}

/// A completed recording.
pub struct EndedRecording<'a> {
    /// The requested options.
    pub options: &'a Options,
    /// The source of the samples.
    pub session: &'a Session,
    /// The aggregated samples.
    pub aggregator: &'a Aggregator,
    /// The share of the CPU time that was sampled, if known.
    pub covered: Option<CpuCoverage>,
    /// Its length.
    pub lasted: Duration,
    /// True if a signal ended it.
    pub interrupted: bool,
}

impl UsedBefore {
    /// Reads it now.
    pub fn now(target: &Target) -> UsedBefore {
        UsedBefore { own_cpu_seconds: os::own_usage().0, descendants: descendant_ticks(target) }
    }

    /// Notes for the user about a recording with few or incomplete samples.
    pub fn notes(&self, ended: &EndedRecording<'_>) -> Vec<String> {
        notes(ended, self.descendants.as_ref())
    }
}

/// CPU time of processes so far, in clock ticks.
fn cpu_ticks(pids: &[i32]) -> u64 {
    pids.iter().filter_map(|&pid| Some(procfs::stat(pid)?.cpu_ticks)).sum()
}

fn descendant_ticks(target: &Target) -> Option<(Vec<i32>, u64)> {
    let Target::Processes { pids, tree: false } = target else { return None };
    let children = procfs::descendants(pids);
    let ticks = cpu_ticks(&children);
    Some((children, ticks))
}

fn notes(ended: &EndedRecording<'_>, before: Option<&(Vec<i32>, u64)>) -> Vec<String> {
    let EndedRecording { options, session, aggregator, covered, lasted, .. } = *ended;
    let maker = &aggregator.maker;
    let mut notes = Vec::new();
    let lives = session.pids.is_empty() || session.pids.iter().any(|&p| procfs::stat(p).is_some());
    let own: u64 = match &options.target {
        Target::Processes { pids, .. } => {
            pids.iter().filter_map(|pid| maker.counts.by_process.get(pid)).sum()
        }
        _ => session.stats().samples,
    };
    let children_busy = before.map_or(Duration::ZERO, |(children, before)| {
        let ticks = cpu_ticks(children).saturating_sub(*before);
        Duration::from_millis(ticks * 1000 / os::ticks_per_second())
    });
    let missed = missed_time(&options.target, session, covered);
    let idle = own as u128 * 10 < u128::from(session.stats().samples.max(1)) || own < 10;
    if let Target::Processes { pids, .. } = &options.target
        && idle
        && children_busy > lasted / 20
    {
        notes.push(format!(
            "process {} was idle while its children used {:.1} s of CPU; --tree records them too",
            pids[0],
            children_busy.as_secs_f64()
        ));
    } else if session.stats().samples == 0
        && missed.is_none()
        && !session.events().iter().all(|event| event.auxiliary)
    {
        notes.push(format!(
            "no samples in {:.1} s: the {} {}",
            lasted.as_secs_f64(),
            if matches!(options.target, Target::Everything) { "machine" } else { "target" },
            why_empty(ended, lives)
        ));
    }
    notes.extend(missed);
    if let Target::Command(words) = &options.target
        && !session.is_cpu_wide()
        && let Some(why) = privileged(&words[0])
    {
        // For root too, if the process's privileges become those of another user.
        notes.push(match os::uid() {
            0 => format!(
                "{why}: when it starts, the kernel ends the recording of its threads; record it \
                 with -a, or with -p when it runs"
            ),
            _ => format!(
                "{why}: when it starts, the kernel hides it from this user; run prof as \
                 root"
            ),
        });
    }
    if maker.counts.hidden_mappings {
        notes.push(permissions::explain_hidden_mappings());
    }
    if maker.counts.unlabelled > 0 {
        notes.push(format!(
            "{} threads are labelled by name and process only (no label tid): there were too many",
            maker.counts.unlabelled
        ));
    }
    let left_out = maker.table.images.left_out();
    if left_out > 0 {
        notes.push(format!(
            "{left_out} mappings of files were not distinguished, because there were too many: \
             samples in them have no names"
        ));
    }
    if sys::mmap::cut_pages() > 0 {
        notes.push(
            "a program's or library's file was truncated while it was read: stacks through it may \
             be truncated, names in it missing"
                .to_owned(),
        );
    }
    notes.extend(deep_stacks(session, aggregator));
    notes.extend(losses(ended));
    notes
}

/// Lost samples, their share, and a remedy.
fn losses(ended: &EndedRecording<'_>) -> Vec<String> {
    let EndedRecording { options, session, aggregator, covered, .. } = *ended;
    let each_time = aggregator.types.iter().any(|(_, one)| one.is_each_time());
    let has_clock = aggregator.types.has_cpu_time();
    let mut notes = Vec::new();
    let Stats { lost, lost_records, .. } = session.stats();
    if lost > 0 {
        let whose = if session.loses_only_target_samples() { "" } else { " of all processes" };
        let covered = covered.map_or(String::new(), |covered| {
            format!(
                "; the others cover {:.0} % of the {:.1} s of CPU time that the target used",
                covered.percent(),
                covered.used as f64 / 1e9
            )
        });
        notes.push(format!(
            "{lost} samples{whose} were lost because prof could not read them in time{covered}{}",
            remedy(options, each_time && !has_clock, os::uid() == 0)
        ));
        let events = session.events().iter().enumerate();
        let made_up = events.filter(|&(i, _)| session.scales_for_losses(i));
        let mut names: Vec<&str> = made_up.map(|(_, event)| event.name.as_str()).collect();
        names.dedup();
        if !names.is_empty() {
            notes.push(format!(
                "the values of {} are scaled to what the kernel counted, lost ones included",
                names.join(", ")
            ));
        }
    }
    if lost_records > 0 {
        notes.push(format!(
            "{lost_records} records about mappings and names were lost, because there were more than \
             prof could read in time; processes that still ran were read from /proc again"
        ));
    }
    notes
}

/// Reasons why stacks end with the kernel's copy of them.
fn deep_stacks(session: &Session, aggregator: &Aggregator) -> Vec<String> {
    let cut = aggregator.maker.counts.ends[StackEnd::DumpTooSmall as usize];
    let counts = session.deep().counts();
    let mut notes = Vec::new();
    if let Some(why) = session.deep().why_not().filter(|_| cut > 0) {
        let why = permissions::explain_deep_stacks(why);
        notes.push(format!("deep stacks end where the kernel's copy of them does: {why}"));
    }
    if counts.lost > 0 {
        notes.push(format!(
            "{} deep stacks are truncated because prof could not copy them in time: lower -F",
            counts.lost
        ));
    }
    if counts.differed > 0 {
        notes.push(format!(
            "{} deep stacks are truncated because two copies of the same moment differ",
            counts.differed
        ));
    }
    notes
}

/// The samples should add up to the CPU time that the target used. They do not if threads end
/// before their first sample is due, or if the kernel skips samples, which it does not count.
fn missed_time(target: &Target, session: &Session, covered: Option<CpuCoverage>) -> Option<String> {
    const ENOUGH: u64 = 10;
    /// Missing samples are reported from one in N on, if their number is known.
    const SKIPPED: u64 = 20;
    /// In nanoseconds.
    const SHORT_PERIOD: u64 = 200_000;
    let period = session.period()?;
    let covered = covered.filter(|covered| covered.used / period >= ENOUGH)?;
    let (due, taken) = (covered.used / period, covered.sampled / period);
    let missing = due.saturating_sub(taken);
    let counted = session.cpu_time().is_some();
    let skipped = counted && missing.saturating_sub(session.cut_short()) * SKIPPED > due;
    // If whole CPUs are sampled, the number of samples varies by chance.
    let chance = if session.is_cpu_wide() { 4.0 * (due as f64).sqrt() } else { 0.0 };
    let many = covered.percent() < 80.0 && missing as f64 > chance;
    if session.stats().lost > 0 || !(many || skipped) {
        return None;
    }
    let millis = period as f64 / 1e6;
    let why = match period {
        ..SHORT_PERIOD => {
            "the machine cannot take samples that often; lower -F or raise -c".to_owned()
        }
        _ if skipped || session.is_cpu_wide() => why_skipped(session),
        // Sampling whole CPUs misses no thread.
        ..CPU_WIDE_PERIOD if permissions::may_sample_cpus() => {
            format!(
                "threads that use less than {millis:.1} ms each are missed; -F 999 samples them"
            )
        }
        _ => format!(
            "threads that use less than {millis:.1} ms each are missed; raise -F, or record the \
             whole machine with -a"
        ),
    };
    Some(format!(
        "the samples cover {:.0} % of the {:.1} s of CPU time that {} used: {why}",
        covered.percent(),
        covered.used as f64 / 1e9,
        if matches!(target, Target::Everything) { "the CPUs" } else { "the target" },
    ))
}

/// The reason why the kernel skips samples that are due.
fn why_skipped(session: &Session) -> String {
    let late = "the kernel skips samples whose timer is late";
    if !session.has_programs_at_samples() {
        return late.to_owned();
    }
    let without = if session.is_filtered() { "" } else { "; -g fp takes the latter" };
    format!("{late}, and those that come while BPF programs or calls of bpf(2) run{without}")
}

/// The remedy against losses, if any.
fn remedy(options: &Options, each_time: bool, root: bool) -> String {
    let copies = matches!(options.stacks, StackMethod::Auto { .. } | StackMethod::Dwarf { .. });
    let remedies = [
        fewer(options, each_time),
        copies.then_some("use -g fp or a smaller -g dwarf,BYTES"),
        (!root).then_some("run prof as root, which gives it priority over other processes"),
    ];
    let remedies: Vec<&str> = remedies.into_iter().flatten().collect();
    if remedies.is_empty() { String::new() } else { format!("; {}", remedies.join(", or ")) }
}

/// The option that makes samples rarer, unless they are as rare as by default.
///
/// `each_time`: only types that record every event are recorded.
fn fewer(options: &Options, each_time: bool) -> Option<&'static str> {
    if each_time && options.events.is_empty() {
        return Some("each event is recorded: record fewer processes");
    }
    let tracepoint = options.events.iter().any(EventSpec::is_each_time);
    match options.rate {
        Rate::Period(_) => Some("raise -c"),
        _ if tracepoint => Some("sample every Nth event only with -c N"),
        Rate::Frequency(..=99) => None,
        _ => Some("lower -F"),
    }
}

fn why_empty(ended: &EndedRecording<'_>, running: bool) -> String {
    let EndedRecording { options, session, aggregator, interrupted, .. } = *ended;
    let events = session.events();
    if interrupted && session.pids.iter().any(|&pid| procfs::stat(pid).is_some()) {
        return "was interrupted too early, or used no CPU until then".to_owned();
    }
    if events.iter().any(|e| e.kind != EventKind::Clock) {
        let types = aggregator.types.iter().filter(|(_, one)| one.is_each_time());
        let others = events.iter().filter(|e| e.kind != EventKind::OfType && !e.auxiliary);
        let others = others.map(|e| e.name.as_str());
        let names: Vec<&str> = others.chain(types.map(|(_, one)| one.noun())).collect();
        return format!("had no {} in that time", names.join(", "));
    }
    let place = match (&options.cpus, events[0].user, events[0].kernel) {
        (Some(_), ..) => " on these CPUs",
        (None, false, _) => " in the kernel",
        (None, _, false) => " outside the kernel",
        _ => "",
    };
    let of_command = matches!(options.target, Target::Command(_)).then(os::children_cpu);
    match of_command.or(session.cpu_time().map(|n| n as f64 / 1e9)) {
        Some(cpu) if cpu > 0.0 && place.is_empty() => format!(
            "used {:.1} ms of CPU, and a sample is due every {:.1} ms; raise -F",
            cpu * 1e3,
            session.period().unwrap_or(0) as f64 / 1e6
        ),
        _ if !running => format!("ended before a sample was due{place}; raise -F"),
        _ => format!("used no CPU{place} in that time (it slept or waited)"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(event: &EventSpec, rate: Rate, stacks: StackMethod) -> Options {
        Options { events: vec![event.clone()], ..Options::new(Target::Everything, rate, stacks) }
    }

    #[test]
    fn fewer_samples_are_had_with_what_triggers_them() {
        let clock = EventSpec::cpu_clock();
        let tracepoint = EventSpec { kind: EventKind::Tracepoint, ..EventSpec::cpu_clock() };
        let advice =
            |event: &EventSpec, rate| fewer(&options(event, rate, StackMethod::None), false);
        assert_eq!(advice(&clock, Rate::Frequency(999)), Some("lower -F"));
        assert!(advice(&tracepoint, Rate::Frequency(99)).unwrap().contains("-c N"));
        assert_eq!(advice(&tracepoint, Rate::Period(7)), Some("raise -c"));
    }

    #[test]
    fn advice_against_losses_is_of_use() {
        let clock = EventSpec::cpu_clock();
        let of =
            |hz, stacks, root| remedy(&options(&clock, Rate::Frequency(hz), stacks), false, root);
        assert_eq!(of(99, StackMethod::FramePointer, true), "");
        assert_eq!(of(999, StackMethod::FramePointer, true), "; lower -F");
        let copies = of(99, StackMethod::Auto { dump: 8 << 10 }, true);
        assert!(copies.contains("-g fp") && !copies.contains("-F"), "{copies}");
        assert!(of(99, StackMethod::None, false).contains("as root"));
    }
}
