//! What a user should be told of a recording besides its figures.

use std::time::Duration;

use super::Aggregator;
use super::aggregate::cpu_ticks;
use crate::os;
use crate::process::procfs;
use crate::sampler::events::Kind;
use crate::sampler::heap::privileged;
use crate::sampler::{CPU_WIDE_PERIOD, EventSpec, Options, Rate, Session, Target, permissions};

/// CPU time so far of a target's existing descendants, which are not sampled without `--tree`.
pub fn descendant_ticks(target: &Target) -> Option<(Vec<i32>, u64)> {
    let Target::Processes { pids, tree: false } = target else { return None };
    let children = procfs::descendants(pids);
    let ticks = cpu_ticks(&children);
    Some((children, ticks))
}

/// What a user should know of a recording that shows little.
pub fn advice(
    options: &Options,
    session: &Session,
    aggregator: &Aggregator,
    before: Option<(Vec<i32>, u64)>,
    lasted: Duration,
    interrupted: bool,
) -> Vec<String> {
    let mut notes = Vec::new();
    let lives = session.pids.is_empty() || session.pids.iter().any(|&p| procfs::stat(p).is_some());
    let own: u64 = match &options.target {
        Target::Processes { pids, .. } => {
            pids.iter().filter_map(|pid| aggregator.counts.by_process.get(pid)).sum()
        }
        _ => session.stats().samples,
    };
    let children_busy = before.map_or(Duration::ZERO, |(children, before)| {
        let ticks = cpu_ticks(&children).saturating_sub(before);
        Duration::from_millis(ticks * 1000 / os::ticks_per_second())
    });
    let missed = missed_time(session);
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
        && !session.events().iter().all(EventSpec::is_aside)
    {
        notes.push(format!(
            "no samples in {:.1} s: the {} {}",
            lasted.as_secs_f64(),
            if matches!(options.target, Target::Everything) { "machine" } else { "target" },
            why_empty(options, session, lives, interrupted)
        ));
    }
    notes.extend(missed);
    if let Target::Command(words) = &options.target
        && !session.is_cpu_wide()
        && let Some(why) = privileged(&words[0])
    {
        // For root, too, if its rights become those of somebody else.
        notes.push(match os::uid() {
            0 => format!(
                "{why}: when it begins, the kernel ends what is recorded of its threads; record it \
                 with -a, or with -p when it runs"
            ),
            _ => format!(
                "{why}: when it begins, the kernel ends what this user may see of it; run prof as \
                 root"
            ),
        });
    }
    if aggregator.counts.hidden_mappings {
        notes.push(permissions::explain_hidden_mappings());
    }
    if aggregator.counts.unlabelled > 0 {
        notes.push(format!(
            "{} threads are known by their name and process only (no label tid): there were too many",
            aggregator.counts.unlabelled
        ));
    }
    if crate::process::mapped::cut_pages() > 0 {
        notes.push(
            "a program's or library's file was cut off while it was read: stacks through it may \
             be truncated, names in it missing"
                .to_owned(),
        );
    }
    let lost = session.stats().lost;
    if lost > 0 {
        notes.push(format!(
            "{lost} records were lost because prof could not keep up: {}, or use -g fp or a \
             smaller -g dwarf,BYTES",
            fewer(options)
        ));
        let events = session.events().iter().enumerate();
        let made_up = events.filter(|&(i, _)| session.makes_up_for_losses(i));
        let mut names: Vec<&str> = made_up.map(|(_, event)| event.name.as_str()).collect();
        names.dedup();
        if !names.is_empty() {
            notes.push(format!(
                "the values of {} are scaled to what the kernel counted, lost ones included",
                names.join(", ")
            ));
        }
    }
    notes
}

/// The kernel counts the target's CPU time exactly; the samples should add up to it. They do not
/// when most threads end before their first sample is due.
fn missed_time(session: &Session) -> Option<String> {
    const ENOUGH: u64 = 10;
    /// Nanoseconds.
    const SHORT_PERIOD: u64 = 200_000;
    let period = session.period().filter(|_| session.events()[0].kind == Kind::Clock)?;
    let counted = session.cpu_time()?;
    let expected = counted / period;
    let stats = session.stats();
    let seen = stats.samples + stats.lost;
    if session.events().len() > 1 || expected < ENOUGH || seen * 10 >= expected * 8 {
        return None;
    }
    let millis = period as f64 / 1e6;
    let why = match period {
        ..SHORT_PERIOD => {
            "the machine cannot take samples that often; lower -F or raise -c".to_owned()
        }
        // Whole CPUs could be sampled instead, which misses no thread.
        ..CPU_WIDE_PERIOD if permissions::may_sample_cpus() => {
            format!("threads that use less than {millis:.1} ms each are missed; -F 999 sees them")
        }
        _ => format!(
            "threads that use less than {millis:.1} ms each are missed; raise -F, or record the \
             whole machine with -a"
        ),
    };
    Some(format!(
        "the samples cover {:.0} % of the {:.1} s of CPU time that the target used: {why}",
        100.0 * seen as f64 / expected as f64,
        counted as f64 / 1e9,
    ))
}

/// What makes samples rarer.
fn fewer(options: &Options) -> &'static str {
    if !options.spans.is_empty() && options.events.is_empty() && !options.cpu {
        return "what lasts is recorded each time: record fewer processes";
    }
    let tracepoint = options.events.iter().any(EventSpec::is_each_time);
    match options.rate {
        Rate::Period(_) => "raise -c",
        _ if tracepoint => "sample every Nth event only with -c N",
        _ => "lower -F",
    }
}

fn why_empty(options: &Options, session: &Session, running: bool, interrupted: bool) -> String {
    let events = session.events();
    if interrupted && session.pids.iter().any(|&pid| procfs::stat(pid).is_some()) {
        return "was interrupted too early, or used no CPU until then".to_owned();
    }
    if events.iter().any(|e| e.kind != Kind::Clock) {
        let types = options.spans.iter().map(|of| of.name());
        let others = events.iter().filter(|e| e.kind != Kind::Span).map(|e| e.name.as_str());
        let names: Vec<&str> = others.chain(types).collect();
        return format!("had no {} meanwhile", names.join(", "));
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
        _ => format!("used no CPU{place} meanwhile (it slept or waited)"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sampler::Stacks;

    #[test]
    fn fewer_samples_are_had_with_what_triggers_them() {
        let clock = EventSpec::cpu_clock();
        let tracepoint = EventSpec { kind: Kind::Tracepoint, ..EventSpec::cpu_clock() };
        let advice = |event: &EventSpec, rate| {
            fewer(&Options {
                events: vec![event.clone()],
                ..Options::new(Target::Everything, rate, Stacks::None)
            })
        };
        assert_eq!(advice(&clock, Rate::Frequency(99)), "lower -F");
        assert!(advice(&tracepoint, Rate::Frequency(99)).contains("-c N"));
        assert_eq!(advice(&tracepoint, Rate::Period(7)), "raise -c");
    }
}
