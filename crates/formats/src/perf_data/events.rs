//! The events of a recording, found by the identifiers in its records.

use rustc_hash::FxHashMap;

use super::attribute::{Attribute, Event, Trailer};
use super::fields::Fields;
use super::header::{MOST_EVENTS, cut};
use super::record::{RawRecord, kind};

/// The events.
#[derive(Default)]
pub struct Events {
    pub all: Vec<Event>,
    by_id: FxHashMap<u64, usize>,
}

impl Events {
    pub fn new(all: Vec<Event>) -> Events {
        let ids = all.iter().enumerate();
        let by_id = ids.flat_map(|(place, event)| event.ids.iter().map(move |&id| (id, place)));
        let by_id = by_id.collect();
        Events { all, by_id }
    }

    /// Adds an event of a stream.
    pub fn add(&mut self, event: Event) {
        if self.all.len() < MOST_EVENTS {
            let place = self.all.len();
            self.by_id.extend(event.ids.iter().map(|&id| (id, place)));
            self.all.push(event);
        }
    }

    /// Sets the name of an event by a record of a stream.
    pub fn rename(&mut self, body: &[u8]) {
        /// `PERF_EVENT_UPDATE__NAME`.
        const NAME: u64 = 2;
        let mut fields = Fields::new(body);
        let (kind, id) = (fields.u64(), fields.u64());
        let place = id.and_then(|id| self.by_id.get(&id).copied());
        if let Some(place) = place.filter(|_| kind == Some(NAME)) {
            self.all[place].name = cut(String::from_utf8_lossy(fields.text()).into_owned());
        }
    }

    /// The fields that all events have at the same place are those of the first.
    pub fn first(&self) -> Option<&Attribute> {
        self.all.first().map(|event| &event.attribute)
    }

    /// The number of the event with an identifier.
    pub fn place_of_id(&self, id: u64) -> Option<usize> {
        self.by_id.get(&id).copied()
    }

    /// The number of the event of a sample; `None` if it is unknown.
    pub fn place_of_sample(&self, body: &[u8]) -> Option<usize> {
        if self.all.len() == 1 {
            return Some(0);
        }
        match self.first()?.id_of_sample(body) {
            None | Some(0) => (!self.all.is_empty()).then_some(0),
            Some(id) => self.by_id.get(&id).copied(),
        }
    }

    /// The time of a record, if it has any.
    pub fn time(&self, record: &RawRecord) -> Option<u64> {
        let first = self.first()?;
        match record.kind {
            kind::SAMPLE => {
                let event = &self.all[self.place_of_sample(&record.body)?];
                event.attribute.time_of_sample(&record.body)
            }
            _ => {
                let Trailer { time, .. } = first.trailer(&record.body);
                time.filter(|&time| time != u64::MAX && time != 0)
            }
        }
    }
}
