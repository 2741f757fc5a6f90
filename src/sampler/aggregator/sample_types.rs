//! The sample types of a recording, and the route of each event's samples.

use super::event_groups::EventGroups;
use super::{Route, Weight};
use crate::sampler::events::EventKind;
use crate::sampler::types::{NeededClock, ProfileTypes, SampleType};
use crate::sampler::{EventSpec, Options, Rate, Session};
use profile::{Column, Profile};

/// The sample types: those of events, then those of the profile types.
pub struct SampleTypes {
    names: Vec<(String, &'static str)>,
    /// The route of each event's samples.
    pub routes: Vec<Route>,
    /// CPU time of the clock whose samples a profile type takes.
    pub cpu_time: Option<Column>,
    /// The first column of each profile type, by its index.
    pub first: Vec<(usize, Column)>,
}

impl SampleTypes {
    /// `samples/count` if there are samples of time or of events, one sample type for each event,
    /// and those of the profile types.
    pub fn new(options: &Options, types: &ProfileTypes, session: &Session) -> SampleTypes {
        let mut all = SampleTypes {
            names: Vec::new(),
            routes: Vec::new(),
            cpu_time: None,
            first: Vec::new(),
        };
        let is_counted =
            |(i, spec): (usize, &EventSpec)| !spec.auxiliary && session.owner(i).is_none();
        let counted = session.events().iter().enumerate().any(is_counted);
        if counted || types.count_samples(!counted) {
            all.add(SampleType::count("samples"));
        }
        for event in 0..session.events().len() {
            let route = all.route(event, options, types, session);
            all.routes.push(route);
        }
        for (index, kind) in types.iter() {
            all.first.push((index, Column(all.names.len())));
            kind.sample_types().into_iter().for_each(|kind| all.add(kind));
        }
        all
    }

    fn add(&mut self, SampleType { kind, unit }: SampleType) {
        self.names.push((kind.to_owned(), unit));
    }

    /// (kind, unit) of each sample type.
    pub fn names(&self) -> Vec<(&str, &str)> {
        self.names.iter().map(|(kind, unit)| (kind.as_str(), *unit)).collect()
    }

    fn route(
        &mut self,
        event: usize,
        options: &Options,
        types: &ProfileTypes,
        session: &Session,
    ) -> Route {
        let spec = &session.events()[event];
        let owner = session.owner(event);
        let is_clock = event == 0 && session.clock() != NeededClock::None;
        if is_clock && types.has_cpu_time() {
            let weight = self.add_event(spec, cpu_time_of_samples(spec, options));
            self.cpu_time = Some(weight.column);
            return owner.map_or(Route::Count(weight), Route::Type);
        }
        match owner {
            Some(owner) => Route::Type(owner),
            None if is_clock || spec.is_sideband() => Route::Nowhere,
            None => Route::Count(self.add_event(spec, None)),
        }
    }

    /// Adds the sample type of an event; each of its samples weighs `fixed`, if given.
    fn add_event(&mut self, spec: &EventSpec, fixed: Option<i64>) -> Weight {
        let (mut kind, unit) = match fixed {
            Some(_) => EventSpec::cpu_clock().value_type(),
            None => spec.value_type(),
        };
        let known = self.names.iter().position(|(k, _)| *k == kind);
        if let Some(at) = known.filter(|_| spec.kind == EventKind::Probe) {
            // Another location of the same name.
            return Weight { column: Column(at), fixed };
        }
        if known.is_some() {
            kind = spec.name.clone();
        }
        self.names.push((kind, unit));
        Weight { column: Column(self.names.len() - 1), fixed }
    }

    /// Writes the period and the default sample type.
    pub fn describe(&self, profile: &mut Profile, types: &ProfileTypes, session: &Session) {
        let first = profile.sample_types[1.min(self.names.len() - 1)];
        if self.names.len() > 2 {
            profile.default_sample_type = first.kind;
        }
        let counted = match self.routes.first() {
            Some(Route::Count(weight)) => Some(weight),
            _ => None,
        };
        let fixed = counted.and_then(|weight| weight.fixed);
        profile.period = fixed.or(session.period().map(|p| p as i64)).unwrap_or(1);
        let time = self.names.iter().position(|(kind, unit)| {
            matches!(kind.as_str(), "cpu" | "wall") && *unit == "nanoseconds"
        });
        // If the first event is not counted by itself, it is the clock of a profile type.
        let own = counted.map(|weight| weight.column.0).or(time);
        // Without samples of time, all recorded values are counts.
        let counts = self.names[0].0 != "samples";
        profile.period_type = match own {
            Some(column) => profile.sample_types[column],
            None if counts => profile.sample_types[0],
            None => first,
        };
        for &(index, column) in &self.first {
            let kind = types.iter().find(|(known, _)| *known == index);
            kind.into_iter()
                .for_each(|(_, kind)| kind.describe(profile, column == Column::default()));
        }
    }

    /// The events that are counted together with others, with their columns.
    pub fn groups(&self, session: &Session) -> EventGroups {
        let grouped = session.grouped().filter_map(|(id, event)| match self.routes[event] {
            Route::Count(weight) => Some((id, weight.column)),
            _ => None,
        });
        EventGroups::new(grouped.collect(), session.is_cpu_wide())
    }
}

/// CPU time that is sampled by `cycles`, because no event was requested, is counted in nanoseconds
/// as well: each sample represents one period of the frequency.
fn cpu_time_of_samples(spec: &EventSpec, options: &Options) -> Option<i64> {
    match options.rate {
        Rate::Frequency(hz) if spec.kind == EventKind::Hardware => {
            Some((1_000_000_000 / hz.max(1)) as i64)
        }
        _ => None,
    }
}
