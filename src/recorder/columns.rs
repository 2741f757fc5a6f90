//! What a recording counts: its sample types, and what becomes of each event's samples.

use super::{Spans, Taker, Types, Weight};
use crate::sampler::events::Kind;
use crate::sampler::spans::SpanSet;
use crate::sampler::{EventSpec, Field, Options, Rate, Session};
use profile::Column;

/// What there is to count, and who does it.
pub struct Columns {
    /// (kind, unit) of each sample type.
    pub types: Vec<(String, &'static str)>,
    /// Of each event.
    pub takers: Vec<Taker>,
    /// The types that are made of spans.
    pub spans: Vec<Spans>,
    /// Wall time.
    pub wall: Option<Column>,
    /// The first of the heap.
    pub heap: Option<Column>,
    /// All threads.
    pub threads: Option<Column>,
    /// Threads that were started, and behind it those that stay; which of a sample's fields names the
    /// thread.
    pub births: Option<(Column, Field)>,
}

impl Columns {
    /// `samples/count` where there are samples of time or of events, one for each event, and those of
    /// the profile types.
    pub fn new(
        options: &Options,
        wanted: Types,
        session: &Session,
        spans: Vec<SpanSet>,
    ) -> Columns {
        let events = session.events();
        let counted = |spec: &EventSpec| !spec.is_aside() && spec.kind != Kind::Span;
        // How often a thread was seen is not its number, if all were looked at several times.
        let looks = wanted.threads.is_some_and(|t| t.snapshots > 1 || !spans.is_empty());
        let mut types = Vec::new();
        if looks || events.iter().any(counted) {
            types.push(("samples".to_owned(), "count"));
        }
        let mut takers = Vec::new();
        let mut of_spans = Vec::new();
        for (of, set) in spans.iter().enumerate() {
            of_spans.extend((0..set.readers.len()).map(|event| Taker::Span { of, event }));
        }
        let mut of_spans = of_spans.into_iter();
        for (i, spec) in events.iter().enumerate() {
            takers.push(match spec.kind {
                // The clock is there for the sake of wall time, and has no column unless it is wanted.
                _ if i == 0 && wanted.wall.is_some() && !wanted.cpu => Taker::Clock,
                Kind::Switch => Taker::Switch,
                Kind::Waited => Taker::Waited,
                Kind::Ended => Taker::Ended,
                Kind::Wakeup => Taker::Wakeup,
                Kind::Birth => Taker::Birth,
                _ if spec.is_bookkeeping() => Taker::Nobody,
                Kind::Span => of_spans.next().expect("so many events of spans"),
                _ => {
                    let weight = of_event(options, wanted, (i, spec), &mut types);
                    let clock = i == 0 && session.tells_wall_time();
                    if clock { Taker::Clock } else { Taker::Count(weight) }
                }
            });
        }
        let spans = spans.into_iter().map(|set| {
            let first = Column(types.len());
            types.extend(set.of.value_types().iter().map(|&(kind, unit)| (kind.to_owned(), unit)));
            Spans::new(set, first)
        });
        let spans = spans.collect();
        let (wall, heap, threads, births) = (None, None, None, None);
        let mut columns = Columns { types, takers, spans, wall, heap, threads, births };
        columns.add_types(wanted, session);
        columns
    }

    fn add_types(&mut self, wanted: Types, session: &Session) {
        let next = |columns: &Columns| Some(Column(columns.types.len()));
        if session.tells_wall_time() {
            self.wall = next(self);
            self.types.push(("wall".to_owned(), "nanoseconds"));
        }
        if let Some(spec) = wanted.heap {
            self.heap = next(self);
            self.types.extend(spec.types().map(|(kind, unit)| (kind.to_owned(), unit)));
        }
        if wanted.threads.is_some() {
            self.threads = next(self);
            self.types.push(("threads".to_owned(), "count"));
            let birth = session.events().iter().find(|e| e.kind == Kind::Birth);
            if let Some(child) = birth.and_then(|e| e.field) {
                self.births = Some((Column(self.types.len()), child));
                let kinds = ["threads_created", "threads_grown"];
                self.types.extend(kinds.map(|kind| (kind.to_owned(), "count")));
            }
        }
    }

    /// The heap is all that is counted, or comes first.
    pub fn begins_with_heap(&self) -> bool {
        self.heap == Some(Column(0))
    }
}

/// Adds the sample type of an event, given with its index.
///
/// CPU time sampled by `cycles` because nobody asked for an event is still told in
/// nanoseconds: each sample stands for one period of the frequency.
fn of_event(
    options: &Options,
    wanted: Types,
    (i, spec): (usize, &EventSpec),
    types: &mut Vec<(String, &'static str)>,
) -> Weight {
    let (mut kind, mut unit) = spec.value_type();
    let mut fixed = None;
    if i == 0
        && wanted.cpu
        && spec.kind == Kind::Hardware
        && let Rate::Frequency(hz) = options.rate
    {
        (kind, unit) = EventSpec::cpu_clock().value_type();
        fixed = Some((1_000_000_000 / hz.max(1)) as i64);
    }
    let known = types.iter().position(|(k, _)| *k == kind);
    if let Some(at) = known.filter(|_| spec.kind == Kind::Probe) {
        // Another place in code that the same name stands for.
        return Weight { column: Column(at), fixed };
    }
    if known.is_some() {
        kind = spec.name.clone();
    }
    types.push((kind, unit));
    Weight { column: Column(types.len() - 1), fixed }
}
