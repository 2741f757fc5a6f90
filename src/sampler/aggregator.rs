//! Aggregates samples into weighted stacks: each sample is added to the sample type of its event,
//! or passed to the profile type that the event belongs to.

mod event_groups;
mod sample_types;

use std::time::Duration;

use super::stack_maker::StackMaker;
use super::types::{
    End, EventOwner, OwnSamples, Periodic, Poll, ProfileTypes, SampleSource, TypeStart,
};
use super::{Event, Options, Session};
use event_groups::EventGroups;
use messages::Message;
use profile::{Builder, Column};
use sample_types::SampleTypes;
use sys::os;
use sys::record::{Record, Sample};

/// The weight of a sample, and the sample type to which it is added.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Weight {
    /// The sample type.
    pub column: Column,
    /// The weight of every sample; `None`: the number of events that it counted.
    pub fixed: Option<i64>,
}

/// The destination of an event's samples.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Route {
    /// Counted by stack.
    Count(Weight),
    /// Passed to a profile type.
    Type(EventOwner),
    /// None: the event has no samples, or nothing counts them.
    Nowhere,
}

/// See [`Event::Sample`].
#[derive(Clone, Copy)]
struct SampleWeight {
    weight: u64,
    represents: u32,
}

/// Builds the profile while recording.
pub struct Aggregator {
    /// Builds the stacks.
    pub maker: StackMaker,
    /// The recorded profile types.
    pub types: ProfileTypes,
    /// The route of each event.
    routes: Vec<Route>,
    /// Events that are counted together.
    groups: EventGroups,
    /// Indices of the types with samples that do not belong to an event.
    own_samples: Vec<usize>,
}

impl Aggregator {
    /// For the types and events of a session.
    pub fn new(options: &Options, types: ProfileTypes, session: &Session) -> Aggregator {
        let sample_types = SampleTypes::new(options, &types, session);
        let mut builder = Builder::new(&sample_types.names()).with_spill(tempfile::tempfile);
        sample_types.describe(&mut builder.profile, &types, session);
        let period = builder.profile.period;
        let mut types = types;
        let with_sources =
            types.iter_mut().filter_map(|(index, kind)| kind.source().map(|_| index));
        let own_samples = with_sources.collect();
        let mut aggregator = Aggregator {
            maker: StackMaker::new(builder, options.stacks),
            own_samples,
            types,
            groups: sample_types.groups(session),
            routes: sample_types.routes,
        };
        let Aggregator { maker, types, .. } = &mut aggregator;
        for &(index, first) in &sample_types.first {
            let start = TypeStart {
                first,
                cpu_time: sample_types.cpu_time.map(|column| (column, period)),
                target: &options.target,
                pids: &session.pids,
            };
            if let Some(kind) = types.get_mut(index) {
                kind.start(maker, &start);
            }
        }
        aggregator
    }

    /// For each event, whether the weights of its samples are added up: one sample can represent
    /// several then.
    pub fn weighted(&self) -> Vec<bool> {
        self.routes.iter().map(|route| matches!(route, Route::Count(_))).collect()
    }

    /// The columns of time that lasts; see [`ProfileType::durations`](super::types::ProfileType).
    pub fn durations(&self) -> Vec<Column> {
        self.types.iter().flat_map(|(_, kind)| kind.durations()).collect()
    }

    /// Drops the labels of slices that were dropped, if they are many.
    pub fn drop_old_labels(&mut self) {
        if self.maker.builder.has_old_labels() {
            self.types.iter_mut().for_each(|(_, kind)| kind.forget_labels());
            self.maker.forget_labels();
            self.maker.builder.renumber_labels();
        }
    }

    /// True if types have samples that do not belong to an event.
    pub fn has_own_samples(&self) -> bool {
        !self.own_samples.is_empty()
    }

    /// True if an event needs nothing but cached results: no file is read for it, and no code
    /// analysed. A sample's stack is then prepared.
    pub fn is_quick(&mut self, event: &Event<'_>) -> bool {
        match event {
            Event::Sample { event, sample, .. } => match self.routes[*event] {
                Route::Nowhere => true,
                Route::Type(EventOwner { index, event }) => {
                    let mut sample = *sample;
                    if let Some(kind) = self.types.get_mut(index) {
                        kind.complete(event, &mut sample);
                    }
                    self.maker.prepare(&sample)
                }
                Route::Count(_) => self.maker.prepare(sample),
            },
            Event::Other(record) => self.maker.table.is_quick(record),
        }
    }

    /// True if a type has periodic work to do now.
    pub fn is_due(&mut self, thinned: bool) -> bool {
        self.periodic().any(|work| work.is_due(thinned))
    }

    fn periodic(&mut self) -> impl Iterator<Item = &mut dyn Periodic> {
        self.types.iter_mut().filter_map(|(_, kind)| kind.periodic())
    }

    /// Milliseconds until a type has periodic work.
    pub fn idle_ms(&mut self, elapsed: Duration) -> i64 {
        self.periodic().map(|work| work.idle_ms(elapsed)).min().unwrap_or(i64::MAX)
    }

    /// True if a type still has work that belongs to the window.
    pub fn is_busy(&mut self, elapsed: Duration) -> bool {
        self.periodic().any(|work| work.is_busy(elapsed))
    }

    /// Adds an event of this time (`CLOCK_MONOTONIC`, nanoseconds), after the samples from before it
    /// that do not belong to an event.
    ///
    /// These are not left for the end of a round: a record changes what processes and threads are
    /// called and which code they have mapped, from its time on. An older sample is unwound and
    /// labelled by the state before it, a later one by that after it. Their ring must not fill while
    /// many events are unwound, either.
    pub fn event(&mut self, time: u64, event: &Event<'_>) {
        self.take_in(time, false);
        match event {
            Event::Sample { event, weight, represents, sample } => {
                self.sample(
                    *event,
                    SampleWeight { weight: *weight, represents: *represents },
                    sample,
                );
            }
            Event::Other(record) => self.record(record),
        }
    }

    fn sample(
        &mut self,
        event: usize,
        SampleWeight { weight, represents }: SampleWeight,
        sample: &Sample<'_>,
    ) {
        // Durations end with the event that adds them.
        self.maker.builder.set_time(Some(sample.time));
        match self.routes[event] {
            Route::Count(_) if !sample.group.is_empty() => self.group(sample),
            Route::Count(Weight { column, fixed }) => {
                let fixed = fixed.map(|each| each.saturating_mul(represents.into()));
                let weight = fixed.unwrap_or(i64::try_from(weight).unwrap_or(i64::MAX));
                self.maker.add_sample(sample, 1, &[(column, weight)]);
            }
            Route::Type(EventOwner { index, event }) => {
                if let Some(kind) = self.types.get_mut(index) {
                    let mut sample = *sample;
                    kind.complete(event, &mut sample);
                    kind.sample(&mut self.maker, event, &sample, weight);
                }
            }
            Route::Nowhere => {}
        }
    }

    fn group(&mut self, sample: &Sample<'_>) {
        let values = self.groups.since_last(sample.tid, sample.group);
        self.maker.add_sample(sample, 1, values);
    }

    fn record(&mut self, record: &Record<'_>) {
        if self.sources().any(|source| source.claims(record)) {
            return;
        }
        if let Record::Exit { tid, .. } = *record {
            self.groups.forget(tid);
        }
        self.maker.record(record);
        for (_, kind) in self.types.iter_mut() {
            kind.record(&mut self.maker, record);
        }
    }

    /// Adds samples from before `until` that do not belong to an event; see
    /// [`SampleSource::take_in`].
    pub fn take_in(&mut self, until: u64, over: bool) {
        for &index in &self.own_samples {
            if let Some(source) = self.types.get_mut(index).and_then(|kind| kind.source()) {
                source.take_in(&mut self.maker, until, over);
            }
        }
    }

    /// The sources of samples that do not belong to an event.
    pub fn sources(&mut self) -> impl Iterator<Item = &mut dyn SampleSource> {
        self.types.iter_mut().filter_map(|(_, kind)| kind.source())
    }

    /// Runs the periodic work of the types.
    pub fn poll(&mut self, now: &Poll<'_>) {
        self.maker.builder.set_time(Some(os::monotonic_nanos()));
        for (_, kind) in self.types.iter_mut() {
            if let Some(work) = kind.periodic() {
                work.poll(&mut self.maker, now);
            }
        }
    }

    /// The samples so far that do not belong to an event.
    pub fn own_samples(&self) -> OwnSamples {
        self.types.iter().fold(OwnSamples::default(), |sum, (_, kind)| {
            let OwnSamples { taken, lost } = kind.own_samples();
            OwnSamples { taken: sum.taken + taken, lost: sum.lost + lost }
        })
    }

    /// Completes the profile after the last event. Returns notes for the user.
    pub fn end(&mut self, end: &End) -> Vec<Message> {
        let Aggregator { maker, types, .. } = self;
        let mut notes = Vec::new();
        for (_, kind) in types.iter_mut() {
            // What goes on as the recording ends.
            maker.builder.set_time(Some(end.time));
            notes.extend(kind.end(maker, end));
        }
        notes
    }

    /// Scales the weights of events to the kernel's counts, given by event, and extrapolated
    /// samples to their known totals.
    ///
    /// The period that a sample carries is the next one where the kernel has just changed it, so the
    /// periods of a few samples can add up to many times what happened.
    pub fn scale(&mut self, counts: impl Iterator<Item = (usize, u64)>) {
        self.maker.scale_estimates();
        for (column, total) in self.totals(counts) {
            self.maker.builder.scale_to(column, i64::try_from(total).unwrap_or(i64::MAX));
        }
    }

    /// Scales the weights of events since the previous part to the kernel's counts so far, without
    /// those that earlier parts have.
    pub fn scale_part(&mut self, counts: Vec<(usize, u64)>, scaled: &mut Vec<(Column, u64)>) {
        for (column, total) in self.totals(counts.into_iter()) {
            let known = scaled.iter().position(|(known, _)| *known == column);
            let known = known.unwrap_or_else(|| {
                scaled.push((column, 0));
                scaled.len() - 1
            });
            let before = &mut scaled[known].1;
            let new = i64::try_from(total.saturating_sub(*before)).unwrap_or(i64::MAX);
            // What is counted without a sample belongs to the samples that follow.
            if new > 0 && self.maker.builder.scale_to(column, new) {
                *before = total;
            }
        }
    }

    /// The counts of each column, of the events whose weights are counted.
    fn totals(&self, counts: impl Iterator<Item = (usize, u64)>) -> Vec<(Column, u64)> {
        // Several events may have one sample type.
        let mut totals: Vec<(Column, u64)> = Vec::new();
        for (event, count) in counts {
            if let Route::Count(Weight { column, fixed: None }) = self.routes[event] {
                match totals.iter_mut().find(|(known, _)| *known == column) {
                    Some((_, total)) => *total += count,
                    None => totals.push((column, count)),
                }
            }
        }
        totals
    }
}
