//! What a recording begins with: its sample types, its period, and what each profile type needs.

use super::columns::Columns;
use super::{Aggregator, Births, Groups, Heap, Taker, Types, Wall, WallSpec};
use crate::sampler::events::Kind;
use crate::sampler::{Options, Session};
use profile::{Builder, Column, Profile, ValueType, comment};
use sys::os;

/// An aggregator for what is `wanted` and what the session has of it.
pub fn aggregator(options: &Options, wanted: Types, session: &mut Session) -> Aggregator {
    let spans = session.take_spans();
    let columns = Columns::new(options, wanted, session, spans);
    let names: Vec<(&str, &str)> = columns.types.iter().map(|(k, u)| (k.as_str(), *u)).collect();
    let mut builder = Builder::new(&names).with_spill(tempfile::tempfile);
    describe(&mut builder.profile, &columns, wanted, session);
    let period = builder.profile.period;
    let groups = groups(&columns, session);
    let Columns { takers, spans, wall, heap, threads, births, .. } = columns;
    let mut aggregator = Aggregator::new(builder, options.stacks, takers);
    aggregator.set_groups(groups);
    aggregator.threads = threads;
    if let Some((Column(created), child)) = births {
        aggregator.set_births(Births::new(Column(created), Column(created + 1), child));
    }
    if let (Some(spec), Some(first)) = (wanted.heap, heap) {
        aggregator.set_heap(Heap::new(spec, first));
    }
    aggregator.set_spans(spans);
    if let (Some(time), Some(column)) = (wanted.wall, wall) {
        let field = |kind| session.events().iter().find(|e| e.kind == kind).and_then(|e| e.field);
        aggregator.set_wall(Wall::new(WallSpec {
            prev_state: field(Kind::Switch),
            woken: field(Kind::Wakeup),
            column,
            running: !time.off_cpu_only,
            min_block: time.min_block.as_nanos() as u64,
            began: os::monotonic_nanos(),
            // The first event's, behind the number of samples.
            cpu: wanted.cpu.then_some((Column(1), period)),
            programs: session.told().wall,
        }));
        if !session.told().wall {
            for (pid, tid) in options.target.threads(&session.pids) {
                aggregator.was_there(pid, tid);
            }
        }
    }
    aggregator
}

/// The period, and which sample type is shown first.
fn describe(profile: &mut Profile, columns: &Columns, wanted: Types, session: &Session) {
    let Columns { types, takers, .. } = columns;
    let first = profile.sample_types[1.min(types.len() - 1)];
    if types.len() > 2 {
        profile.default_sample_type = first.kind;
    }
    profile.period_type = first;
    let fixed = match takers.first() {
        Some(Taker::Count(weight)) => weight.fixed,
        _ => None,
    };
    profile.period = fixed.or(session.period().map(|p| p as i64)).unwrap_or(1);
    let spans_alone = takers.iter().all(|t| matches!(t, Taker::Span { .. } | Taker::Nobody));
    if spans_alone && !columns.begins_with_heap() {
        // Each is counted.
        profile.period_type = profile.sample_types[0];
    }
    let Some(spec) = wanted.heap else { return };
    if columns.begins_with_heap() {
        profile.default_sample_type = profile.strings.intern(spec.default_type());
        let (kind, unit) = (profile.strings.intern("space"), profile.strings.intern("bytes"));
        profile.period_type = ValueType { kind, unit };
        profile.period = i64::try_from(spec.interval).unwrap_or(i64::MAX);
    } else {
        let comment = format!("{}: {}", comment::HEAP_INTERVAL, spec.interval);
        profile.comments.push(profile.strings.intern(&comment));
    }
}

/// The events that are counted together with others, with their columns.
fn groups(columns: &Columns, session: &Session) -> Groups {
    let grouped = session.grouped().filter_map(|(id, event)| match columns.takers[event] {
        Taker::Count(weight) => Some((id, weight.column)),
        _ => None,
    });
    Groups::new(grouped.collect(), session.is_cpu_wide())
}
