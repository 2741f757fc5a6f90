//! Markers: the waits, requests and calls of a thread that have times.

use profile::{Profile, StrId, ThreadState, label};
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::Weights;
use crate::samples::RowPart;

/// The type of all markers.
const TYPE: &str = "Wait";

/// `phase` of a marker with a begin and an end.
const INTERVAL: u32 = 1;

/// A label of samples that are intervals.
struct MarkerKey {
    name: &'static str,
    key: StrId,
}

/// The labels of samples that are intervals, the one that names the marker first.
pub(super) struct MarkerKeys(Vec<MarkerKey>);

/// A marker.
pub(super) struct Marker {
    pub name: String,
    /// Milliseconds.
    start: f64,
    end: f64,
    data: Value,
}

/// The table of markers of a thread.
#[derive(Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct MarkerTable {
    length: usize,
    name: Vec<u32>,
    start_time: Vec<f64>,
    end_time: Vec<f64>,
    phase: Vec<u32>,
    category: Vec<u32>,
    data: Vec<Value>,
}

/// The markers of a thread, in the order of their ends.
#[derive(Default)]
pub(super) struct Markers(MarkerTable);

impl MarkerKeys {
    /// Those of a profile whose values are times.
    pub(super) fn new(profile: &Profile, weights: Weights) -> MarkerKeys {
        if !matches!(weights, Weights::Time { .. }) || profile.times.is_empty() {
            return MarkerKeys(Vec::new());
        }
        let names =
            [label::LOCK, label::KIND, label::SYSCALL, label::DEVICE, label::RW, label::STATE];
        let key = |name| profile.strings.find(name).map(|key| MarkerKey { name, key });
        MarkerKeys(names.into_iter().filter_map(key).collect())
    }

    /// The marker of a sample that lasts `length` milliseconds, up to its time.
    pub(super) fn marker(
        &self,
        profile: &Profile,
        part: RowPart,
        length: f64,
        stack: Option<u32>,
    ) -> Option<Marker> {
        let labels = profile.samples[part.row].labels;
        let end = part.time? as f64 / 1e3;
        let values: Vec<(&str, String)> = self
            .0
            .iter()
            .filter_map(|key| {
                let value = profile.labels.value(labels, key.key)?;
                Some((key.name, view::label_text(profile, value)))
            })
            .collect();
        let (key, name) = values.first()?;
        if *key == label::STATE && name == ThreadState::Running.name() {
            return None;
        }
        let name = name.clone();
        let start = (end - length).max(0.0);
        let mut data = Map::new();
        data.insert("type".to_owned(), TYPE.into());
        data.extend(values.into_iter().map(|(key, value)| (key.to_owned(), value.into())));
        if let Some(stack) = stack {
            data.insert("cause".to_owned(), json!({ "time": start, "stack": stack }));
        }
        Some(Marker { name, start, end, data: data.into() })
    }

    /// The description of the markers.
    pub(super) fn schemas(&self) -> Value {
        let Some(first) = self.0.first() else { return json!([]) };
        let field =
            |key: &MarkerKey| json!({ "key": key.name, "label": key.name, "format": "string" });
        let fields: Vec<Value> = self.0.iter().map(field).collect();
        let name = format!("{{marker.data.{}}}", first.name);
        json!([{
            "name": TYPE,
            "display": ["marker-chart", "marker-table", "timeline-overview"],
            "chartLabel": name,
            "tooltipLabel": name,
            "tableLabel": name,
            "description": "From the begin of a wait, request or call to its end.",
            "fields": fields,
        }])
    }
}

impl Markers {
    /// Adds a marker whose name has this number.
    pub(super) fn push(&mut self, name: u32, marker: Marker) {
        let table = &mut self.0;
        table.length += 1;
        table.name.push(name);
        table.start_time.push(marker.start);
        table.end_time.push(marker.end);
        table.phase.push(INTERVAL);
        table.category.push(0);
        table.data.push(marker.data);
    }

    /// The table.
    pub(super) fn table(&self) -> &MarkerTable {
        &self.0
    }
}
