//! The faults of an ended recording, with their causes: no samples, lost samples, CPU time without
//! samples.

use std::cmp::Reverse;
use std::io;
use std::time::Duration;

use crate::sampler::aggregator::Aggregator;
use crate::sampler::events::EventKind;
use crate::sampler::interpreters::{InterpreterCounts, Refused};
use crate::sampler::{
    CPU_WIDE_PERIOD, EventSpec, Options, Rate, Session, Stats, Target, permissions,
};
use heap::privileged;
use messages::{CpuCoverage, LossRemedy, Message, SampledPlace, Scope};
use sys::image::NotOpened;
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
    /// The counters of the part that is in the profile.
    pub stats: Stats,
    /// Number of threads whose samples have no label `tid` in that part.
    pub unlabelled: u64,
    /// The share of the CPU time that was sampled, if known.
    pub covered: Option<CpuCoverage>,
    /// Its length.
    pub lasted: Duration,
    /// True if all of the recording is in the profile.
    pub is_whole: bool,
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
    pub fn notes(&self, ended: &Outcome<'_>) -> Vec<Message> {
        let before = self.descendants.as_ref().filter(|_| ended.is_whole);
        notes(ended, before)
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

fn notes(ended: &Outcome<'_>, before: Option<&(Vec<i32>, u64)>) -> Vec<Message> {
    let Outcome { options, session, aggregator, .. } = *ended;
    let counts = &aggregator.maker.counts;
    let uncovered = uncovered_time(ended);
    let mut notes = Vec::new();
    notes.extend(privileged_command(&options.target, session));
    // One note for each cause.
    if notes.is_empty() {
        notes.extend(idle_parent(ended, before).or_else(|| no_samples(ended, uncovered.is_some())));
    }
    notes.extend(uncovered);
    if counts.hidden_mappings {
        let why = Box::new(permissions::hidden_mappings());
        notes.push(Message::StacksWithoutMappings { why });
    }
    if ended.unlabelled > 0 {
        notes.push(Message::UnlabelledThreads { threads: ended.unlabelled });
    }
    let mappings = aggregator.maker.table.images.left_out();
    if mappings > 0 {
        notes.push(Message::IndistinctMappings { mappings });
    }
    let binaries = aggregator.maker.over_budget();
    if !binaries.is_empty() {
        notes.push(Message::AnalysisLimits { binaries });
    }
    for (why, binaries) in aggregator.maker.not_opened() {
        let why = why_not_opened(why).map(Box::new);
        notes.extend(why.map(|why| Message::NotOpened { binaries, why }));
    }
    if ended.has_cut_file {
        notes.push(Message::BinaryTruncated);
    }
    notes.extend(deep_stacks(session, aggregator));
    notes.extend(interpreters(ended));
    notes.extend(losses(ended));
    notes
}

/// The reason why binaries were not opened, if the user can mend it.
fn why_not_opened(why: NotOpened) -> Option<Message> {
    match why {
        NotOpened::NoDescriptor => Some(permissions::open_files()),
        NotOpened::Forbidden => Some(Message::Forbidden),
        NotOpened::Failed(errno) => {
            let error = io::Error::from_raw_os_error(errno).to_string();
            Some(Message::System { error })
        }
        NotOpened::Gone | NotOpened::Replaced | NotOpened::TooMany => None,
    }
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
fn privileged_command(target: &Target, session: &Session) -> Option<Message> {
    let Target::Command(words) = target else { return None };
    let program = privileged(&words[0]).filter(|_| !session.is_cpu_wide())?;
    Some(Message::PrivilegedCommand { program, root: os::uid() == 0 })
}

/// The processes of the target were idle while their children, which are not sampled, were not.
fn idle_parent(ended: &Outcome<'_>, before: Option<&(Vec<i32>, u64)>) -> Option<Message> {
    let Target::Processes { pids, .. } = &ended.options.target else { return None };
    let (descendants, ticks) = before?;
    let by_process = &ended.aggregator.maker.counts.by_process;
    let own: u64 = pids.iter().filter_map(|pid| by_process.get(pid)).sum();
    let all = ended.session.stats().samples.max(1);
    let idle = own as u128 * 10 < u128::from(all) || own < 10;
    let ticks = cpu_ticks(descendants).saturating_sub(*ticks);
    let children = Duration::from_millis(ticks * 1000 / os::ticks_per_second());
    let busy = children > ended.lasted / 20;
    let seconds = children.as_secs_f64();
    (idle && busy).then_some(Message::IdleParent { pid: pids[0], seconds })
}

fn no_samples(ended: &Outcome<'_>, is_explained: bool) -> Option<Message> {
    let Outcome { session, stats, lasted, aggregator, .. } = *ended;
    let sampled = session.events().iter().any(|event| !event.auxiliary);
    // A profile type may have values without any sample of its clock.
    let has_stacks = aggregator.maker.builder.distinct() > 0;
    let empty = stats.samples == 0 && !has_stacks && sampled && !is_explained;
    let seconds = lasted.as_secs_f64();
    empty.then(|| Message::NoSamples { seconds, why: Box::new(why_empty(ended)) })
}

/// Lost samples, their share, and the remedies.
fn losses(ended: &Outcome<'_>) -> Vec<Message> {
    let Outcome { options, session, aggregator, covered, .. } = *ended;
    let each_time = aggregator.types.count_every_event();
    let has_clock = aggregator.types.has_cpu_time();
    let mut notes = Vec::new();
    let Stats { samples: taken, lost, lost_records, .. } = ended.stats;
    if lost > 0 {
        let any_process = !session.loses_only_target_samples();
        let remedies = remedies(options, each_time && !has_clock, os::uid() == 0);
        notes.push(Message::Lost { lost, taken, any_process, covered, remedies });
        let events = session.events().iter().enumerate();
        let made_up = events.filter(|&(i, _)| session.scales_for_losses(i));
        let mut events: Vec<String> = made_up.map(|(_, event)| event.name.clone()).collect();
        events.dedup();
        if !events.is_empty() {
            notes.push(Message::ScaledForLosses { events });
        }
    }
    if lost_records > 0 {
        notes.push(Message::LostRecords { records: lost_records });
    }
    notes
}

/// Reasons why stacks end with the kernel's copy of them.
fn deep_stacks(session: &Session, aggregator: &Aggregator) -> Vec<Message> {
    let cut = aggregator.maker.counts.ends[StackEnd::DumpTooSmall as usize];
    let counts = session.deep().counts();
    let mut notes = Vec::new();
    if let Some(why) = session.deep().why_not().filter(|_| cut > 0) {
        let why = Box::new(permissions::deep_stacks(why));
        notes.push(Message::NoDeepStacks { why });
    }
    if counts.lost > 0 {
        notes.push(Message::DeepStacksLate { stacks: counts.lost });
    }
    if counts.differed > 0 {
        notes.push(Message::DeepStacksDiffered { stacks: counts.differed });
    }
    notes
}

/// Functions of interpreted programs that are not shown.
fn interpreters(ended: &Outcome<'_>) -> Vec<Message> {
    let interpreters = &ended.aggregator.maker.interpreters;
    if interpreters.images().next().is_none() {
        return Vec::new();
    }
    if !interpreters.is_read() && interpreters.needs_walks() {
        let why = Box::new(why_not_read(ended));
        return vec![Message::InterpretersNotRead { why }];
    }
    let mut notes = Vec::new();
    for (refused, &processes) in interpreters.refused() {
        let Refused { interpreter, why } = refused.clone();
        let interpreter = interpreter.name().to_owned();
        notes.push(Message::InterpreterNotSupported { interpreter, why, processes });
    }
    let InterpreterCounts { shown, mismatched, native, uncopied, elsewhere } = interpreters.counts;
    if elsewhere > native.max(uncopied) && shown == 0 {
        let why = Box::new(Message::NotReadAtEvents);
        notes.push(Message::InterpretersNotRead { why });
    }
    let mut others = [
        (mismatched, Message::InterpreterMismatch { stacks: mismatched }),
        (native, Message::NativeInterpreterStacks { stacks: native, shown }),
        (uncopied, Message::UncopiedInterpreterStacks { stacks: uncopied }),
    ];
    // The first one is the reason that readers get.
    others.sort_by_key(|(stacks, _)| Reverse(*stacks));
    notes.extend(others.into_iter().filter(|(stacks, _)| *stacks > 0).map(|(_, note)| note));
    notes
}

/// The reason for which no program copies frames of interpreters.
fn why_not_read(ended: &Outcome<'_>) -> Message {
    let Outcome { options, session, .. } = *ended;
    match session.deep().why_not() {
        _ if !options.stacks.has_copies() => Message::NoStackCopies,
        Some(why) => permissions::deep_stacks(why),
        None if !session.deep().is_attached() => Message::NotReadAtEvents,
        None if !procfs::is_first_pid_namespace() => Message::InnerPidNamespace,
        None => Message::NoProgramLoops,
    }
}

/// The samples should add up to the CPU time that the target used. They do not if threads end
/// before their first sample is due, or if the kernel skips samples, which it does not count.
fn uncovered_time(ended: &Outcome<'_>) -> Option<Message> {
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
    if ended.stats.lost > 0 || !(many || skipped) {
        return None;
    }
    let why = Box::new(match period {
        ..SHORT_PERIOD => Message::TooFrequent,
        _ if skipped || session.is_cpu_wide() => why_skipped(session),
        _ => {
            // Sampling whole CPUs misses no thread.
            let whole_cpus = period < CPU_WIDE_PERIOD && permissions::may_sample_cpus();
            Message::ShortThreads { period, whole_cpus }
        }
    });
    Some(Message::Uncovered { covered, period, scope: scope(&options.target), why })
}

/// The reason why the kernel skips samples that are due.
fn why_skipped(session: &Session) -> Message {
    if session.has_programs_at_samples() {
        Message::LateTimersAndPrograms { frame_pointers_help: !session.is_filtered() }
    } else {
        Message::LateTimers
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

fn why_empty(ended: &Outcome<'_>) -> Message {
    let Outcome { options, session, aggregator, interrupted, .. } = *ended;
    let scope = scope(&options.target);
    let events = session.events();
    let is_running = session.pids.iter().any(|&pid| procfs::stat(pid).is_some());
    if interrupted && is_running {
        return Message::Interrupted { scope };
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
        return Message::NothingHappened { scope, events: others.chain(types).collect() };
    }
    let place = match (&options.cpus, events[0].user, events[0].kernel) {
        (Some(_), ..) => SampledPlace::SomeCpus,
        (None, false, _) => SampledPlace::Kernel,
        (None, _, false) => SampledPlace::User,
        _ => SampledPlace::Everywhere,
    };
    let command_time = matches!(options.target, Target::Command(_)).then(os::children_cpu);
    match command_time.or(session.cpu_time().map(|n| n as f64 / 1e9)) {
        Some(seconds) if seconds > 0.0 && place == SampledPlace::Everywhere => {
            Message::LittleTime { scope, seconds, period: session.period().unwrap_or(0) }
        }
        _ if !is_running && !session.pids.is_empty() => Message::EndedEarly { scope, place },
        _ => Message::Idle { scope, place },
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
