//! What a user should be told of a recording besides its figures.

use std::time::Duration;

use super::Aggregator;
use super::aggregate::cpu_ticks;
use crate::process::procfs;
use crate::sampler::events::Kind;
use crate::sampler::{Options, Session, Target, os};

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
) -> Vec<String> {
    let mut notes = Vec::new();
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
    } else if session.stats().samples == 0 && missed_time(session).is_none() {
        notes.push(format!(
            "no samples in {:.1} s: the target {}",
            lasted.as_secs_f64(),
            why_empty(options)
        ));
    }
    notes.extend(missed_time(session));
    if aggregator.counts.unlabelled > 0 {
        notes.push(format!(
            "{} threads are known by their process only (no labels pid, tid and thread): there \
             were too many",
            aggregator.counts.unlabelled
        ));
    }
    if os::cut_pages() > 0 {
        notes.push(
            "a program's or library's file was cut off while it was read: stacks through it may \
             be truncated, names in it missing"
                .to_owned(),
        );
    }
    let lost = session.stats().lost;
    if lost > 0 {
        notes.push(format!(
            "{lost} records were lost because prof could not keep up: lower -F, or use -g fp or a \
             smaller -g dwarf,BYTES"
        ));
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
    let counted = session.counted?;
    let expected = counted / period;
    let stats = session.stats();
    let seen = stats.samples + stats.lost;
    if session.events().len() > 1 || expected < ENOUGH || seen * 10 >= expected * 8 {
        return None;
    }
    let why = match period {
        ..SHORT_PERIOD => "the machine cannot take samples that often; lower -F".to_owned(),
        _ => format!(
            "threads that live shorter than {:.1} ms are missed; raise -F, or record the whole \
             machine with -a",
            period as f64 / 1e6
        ),
    };
    Some(format!(
        "the samples cover {:.0} % of the {:.1} s of CPU time that the target used: {why}",
        100.0 * seen as f64 / expected as f64,
        counted as f64 / 1e9,
    ))
}

fn why_empty(options: &Options) -> &'static str {
    match &options.target {
        Target::Command(_) => "ended before the first sample was due; raise -F",
        _ if options.events.iter().any(|e| e.kind != Kind::Clock) => {
            "had none of these events meanwhile"
        }
        _ => "used no CPU meanwhile (it slept or waited)",
    }
}
