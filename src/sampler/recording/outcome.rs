//! The faults of an ended recording, with their causes: no samples, lost samples, CPU time without
//! samples.

use std::time::Duration;

use super::coverage::CpuCoverage;
use crate::sampler::aggregator::Aggregator;
use crate::sampler::events::EventKind;
use crate::sampler::notes::{
    EmptyCause, LossRemedy, LossScope, MissedCause, RecordingNote, SampledPlace, Scope,
    ShortThreadRemedy, UncoveredTime,
};
use crate::sampler::{
    CPU_WIDE_PERIOD, EventSpec, Options, Rate, Session, Stats, Target, permissions,
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

/// What a recording has led to.
pub struct Outcome<'a> {
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
    /// True if a binary was truncated while it was read.
    pub has_cut_file: bool,
}

impl UsedBefore {
    /// Reads it now.
    pub fn now(target: &Target) -> UsedBefore {
        UsedBefore { own_cpu_seconds: os::own_usage().0, descendants: descendant_ticks(target) }
    }

    /// Notes for the user about a recording with few or incomplete samples.
    pub fn notes(&self, ended: &Outcome<'_>) -> Vec<RecordingNote> {
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

fn notes(ended: &Outcome<'_>, before: Option<&(Vec<i32>, u64)>) -> Vec<RecordingNote> {
    let Outcome { options, session, aggregator, .. } = *ended;
    let counts = &aggregator.maker.counts;
    let missed = uncovered_time(ended);
    let mut notes = Vec::new();
    notes.extend(privileged_command(&options.target, session));
    // One note for each cause.
    if notes.is_empty() {
        notes.extend(idle_parent(ended, before).or_else(|| no_samples(ended, missed.is_some())));
    }
    notes.extend(missed.map(RecordingNote::Uncovered));
    if counts.hidden_mappings {
        notes.push(RecordingNote::HiddenMappings(permissions::hidden_mappings()));
    }
    if counts.unlabelled > 0 {
        notes.push(RecordingNote::UnlabelledThreads(counts.unlabelled));
    }
    let left_out = aggregator.maker.table.images.left_out();
    if left_out > 0 {
        notes.push(RecordingNote::IndistinctMappings(left_out));
    }
    let limited = aggregator.maker.over_budget();
    if !limited.is_empty() {
        notes.push(RecordingNote::AnalysisLimits(limited));
    }
    for (why, binaries) in aggregator.maker.not_opened() {
        notes.push(RecordingNote::NotOpened { why, binaries });
    }
    if ended.has_cut_file {
        notes.push(RecordingNote::BinaryTruncated);
    }
    notes.extend(deep_stacks(session, aggregator));
    notes.extend(losses(ended));
    notes
}

/// The scope of a target.
fn scope(target: &Target) -> Scope {
    match target {
        Target::Everything => Scope::Machine,
        _ => Scope::Target,
    }
}

/// A command that runs with other privileges than its user's, for root too if these are another
/// user's: the kernel does not let its threads be sampled.
fn privileged_command(target: &Target, session: &Session) -> Option<RecordingNote> {
    let Target::Command(words) = target else { return None };
    let program = privileged(&words[0]).filter(|_| !session.is_cpu_wide())?;
    Some(RecordingNote::PrivilegedCommand { program, root: os::uid() == 0 })
}

/// The processes of the target were idle while their children, which are not sampled, were not.
fn idle_parent(ended: &Outcome<'_>, before: Option<&(Vec<i32>, u64)>) -> Option<RecordingNote> {
    let Target::Processes { pids, .. } = &ended.options.target else { return None };
    let (descendants, ticks) = before?;
    let by_process = &ended.aggregator.maker.counts.by_process;
    let own: u64 = pids.iter().filter_map(|pid| by_process.get(pid)).sum();
    let all = ended.session.stats().samples.max(1);
    let idle = own as u128 * 10 < u128::from(all) || own < 10;
    let ticks = cpu_ticks(descendants).saturating_sub(*ticks);
    let children = Duration::from_millis(ticks * 1000 / os::ticks_per_second());
    let busy = children > ended.lasted / 20;
    (idle && busy).then_some(RecordingNote::IdleParent { pid: pids[0], children })
}

fn no_samples(ended: &Outcome<'_>, is_explained: bool) -> Option<RecordingNote> {
    let Outcome { options, session, lasted, .. } = *ended;
    let sampled = session.events().iter().any(|event| !event.auxiliary);
    let empty = session.stats().samples == 0 && sampled && !is_explained;
    let scope = scope(&options.target);
    empty.then(|| RecordingNote::NoSamples { lasted, scope, why: why_empty(ended) })
}

/// Lost samples, their share, and the remedies.
fn losses(ended: &Outcome<'_>) -> Vec<RecordingNote> {
    let Outcome { options, session, aggregator, covered, .. } = *ended;
    let each_time = aggregator.types.count_every_event();
    let has_clock = aggregator.types.has_cpu_time();
    let mut notes = Vec::new();
    let Stats { samples: taken, lost, lost_records, .. } = session.stats();
    if lost > 0 {
        let scope = if session.loses_only_target_samples() {
            LossScope::Target
        } else {
            LossScope::AllProcesses
        };
        let remedies = remedies(options, each_time && !has_clock, os::uid() == 0);
        notes.push(RecordingNote::Lost { lost, taken, scope, covered, remedies });
        let events = session.events().iter().enumerate();
        let made_up = events.filter(|&(i, _)| session.scales_for_losses(i));
        let mut names: Vec<String> = made_up.map(|(_, event)| event.name.clone()).collect();
        names.dedup();
        if !names.is_empty() {
            notes.push(RecordingNote::ScaledForLosses(names));
        }
    }
    if lost_records > 0 {
        notes.push(RecordingNote::LostRecords(lost_records));
    }
    notes
}

/// Reasons why stacks end with the kernel's copy of them.
fn deep_stacks(session: &Session, aggregator: &Aggregator) -> Vec<RecordingNote> {
    let cut = aggregator.maker.counts.ends[StackEnd::DumpTooSmall as usize];
    let counts = session.deep().counts();
    let mut notes = Vec::new();
    if let Some(why) = session.deep().why_not().filter(|_| cut > 0) {
        notes.push(RecordingNote::NoDeepStacks(permissions::deep_stacks(why)));
    }
    if counts.lost > 0 {
        notes.push(RecordingNote::DeepStacksLate(counts.lost));
    }
    if counts.differed > 0 {
        notes.push(RecordingNote::DeepStacksDiffered(counts.differed));
    }
    notes
}

/// The samples should add up to the CPU time that the target used. They do not if threads end
/// before their first sample is due, or if the kernel skips samples, which it does not count.
fn uncovered_time(ended: &Outcome<'_>) -> Option<UncoveredTime> {
    const ENOUGH: u64 = 10;
    /// Missing samples are reported from one in N on, if their number is known.
    const SKIPPED: u64 = 20;
    /// In nanoseconds.
    const SHORT_PERIOD: u64 = 200_000;
    let Outcome { options, session, covered, .. } = *ended;
    let period = session.period()?;
    let covered = covered.filter(|covered| covered.used / period >= ENOUGH)?;
    let due = covered.used / period;
    let taken = covered.sampled / period;
    let missing = due.saturating_sub(taken);
    let counted = session.cpu_time().is_some();
    let skipped = counted && missing.saturating_sub(session.cut_short()) * SKIPPED > due;
    // If whole CPUs are sampled, the number of samples varies by chance.
    let chance = if session.is_cpu_wide() { 4.0 * (due as f64).sqrt() } else { 0.0 };
    let many = covered.percent() < 80.0 && missing as f64 > chance;
    if session.stats().lost > 0 || !(many || skipped) {
        return None;
    }
    let cause = match period {
        ..SHORT_PERIOD => MissedCause::TooFrequent,
        _ if skipped || session.is_cpu_wide() => why_skipped(session),
        // Sampling whole CPUs misses no thread.
        ..CPU_WIDE_PERIOD if permissions::may_sample_cpus() => {
            MissedCause::ShortThreads(ShortThreadRemedy::WholeCpus)
        }
        _ => MissedCause::ShortThreads(ShortThreadRemedy::HigherRate),
    };
    Some(UncoveredTime { covered, period, scope: scope(&options.target), cause })
}

/// The reason why the kernel skips samples that are due.
fn why_skipped(session: &Session) -> MissedCause {
    if session.has_programs_at_samples() {
        MissedCause::LateTimersAndPrograms { frame_pointers_help: !session.is_filtered() }
    } else {
        MissedCause::LateTimers
    }
}

/// The remedies against losses, the best first.
fn remedies(options: &Options, each_time: bool, root: bool) -> Vec<LossRemedy> {
    let copies = options.stacks.has_copies();
    let remedies = [
        fewer(options, each_time),
        copies.then_some(LossRemedy::SmallerCopies),
        (!root).then_some(LossRemedy::Root),
    ];
    remedies.into_iter().flatten().collect()
}

/// The option that makes samples rarer, unless they are as rare as by default.
///
/// `each_time`: only types that record every event are recorded.
fn fewer(options: &Options, each_time: bool) -> Option<LossRemedy> {
    if each_time && options.events.is_empty() {
        return Some(LossRemedy::FewerProcesses);
    }
    let tracepoint = options.events.iter().any(EventSpec::counts_every_event);
    match options.rate {
        Rate::Period(_) => Some(LossRemedy::LongerPeriod),
        _ if tracepoint => Some(LossRemedy::AnyPeriod),
        Rate::Frequency(..=99) => None,
        _ => Some(LossRemedy::LowerRate),
    }
}

fn why_empty(ended: &Outcome<'_>) -> EmptyCause {
    let Outcome { options, session, aggregator, interrupted, .. } = *ended;
    let events = session.events();
    let is_running = session.pids.iter().any(|&pid| procfs::stat(pid).is_some());
    if interrupted && is_running {
        return EmptyCause::Interrupted;
    }
    // The first event is that of CPU time, `cycles` where the CPU counts them.
    let is_cpu_time = |at: usize, event: &EventSpec| {
        event.kind == EventKind::Clock || at == 0 && aggregator.types.has_cpu_time()
    };
    if events.iter().enumerate().any(|(at, event)| !is_cpu_time(at, event)) {
        let types = aggregator.types.iter().filter(|(_, kind)| kind.needs().every_event);
        let others = events.iter().filter(|e| e.kind != EventKind::OfType && !e.auxiliary);
        let others = others.map(|e| e.name.clone());
        let types = types.map(|(_, kind)| kind.name().noun().to_owned());
        return EmptyCause::NoEvents(others.chain(types).collect());
    }
    let place = match (&options.cpus, events[0].user, events[0].kernel) {
        (Some(_), ..) => SampledPlace::SomeCpus,
        (None, false, _) => SampledPlace::Kernel,
        (None, _, false) => SampledPlace::User,
        _ => SampledPlace::Everywhere,
    };
    let command_time = matches!(options.target, Target::Command(_)).then(os::children_cpu);
    match command_time.or(session.cpu_time().map(|n| n as f64 / 1e9)) {
        Some(used) if used > 0.0 && place == SampledPlace::Everywhere => {
            EmptyCause::TooShort { used, period: session.period().unwrap_or(0) }
        }
        _ if !is_running && !session.pids.is_empty() => EmptyCause::Ended(place),
        _ => EmptyCause::Idle(place),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sampler::StackMethod;

    fn options(event: &EventSpec, rate: Rate, stacks: StackMethod) -> Options {
        Options { events: vec![event.clone()], ..Options::new(Target::Everything, rate, stacks) }
    }

    #[test]
    fn fewer_samples_are_had_with_what_triggers_them() {
        let clock = EventSpec::cpu_clock();
        let tracepoint = EventSpec { kind: EventKind::Tracepoint, ..EventSpec::cpu_clock() };
        let advice =
            |event: &EventSpec, rate| fewer(&options(event, rate, StackMethod::None), false);
        assert_eq!(advice(&clock, Rate::Frequency(999)), Some(LossRemedy::LowerRate));
        assert_eq!(advice(&tracepoint, Rate::Frequency(99)), Some(LossRemedy::AnyPeriod));
        assert_eq!(advice(&tracepoint, Rate::Period(7)), Some(LossRemedy::LongerPeriod));
    }

    #[test]
    fn advice_against_losses_is_of_use() {
        let clock = EventSpec::cpu_clock();
        let of =
            |hz, stacks, root| remedies(&options(&clock, Rate::Frequency(hz), stacks), false, root);
        assert_eq!(of(99, StackMethod::FramePointer, true), []);
        assert_eq!(of(999, StackMethod::FramePointer, true), [LossRemedy::LowerRate]);
        let copies = of(99, StackMethod::Auto { dump: 8 << 10 }, true);
        assert_eq!(copies, [LossRemedy::SmallerCopies]);
        assert_eq!(of(99, StackMethod::None, false), [LossRemedy::Root]);
    }
}
