//! Writing, in version 55 of the format, whose tables belong to threads.

mod libraries;
mod markers;
mod thread;

use std::collections::HashMap;
use std::io::{self, Write};

use profile::{LabelSetId, Profile, StrId};
use serde_json::json;
use view::{Frames, Granularity};

use super::file::OwnMeta;
use crate::WriteOptions;
use crate::samples::{RowPart, ThreadKeys, ThreadLabels, in_order, samples_column};
use libraries::Libraries;
use markers::MarkerKeys;
use thread::ThreadTables;

/// The version that is written.
const VERSION: u32 = 55;

/// Numbers of the categories of frames.
#[derive(Clone, Copy)]
enum Category {
    Other,
    User,
    Kernel,
}

/// How values become weights.
#[derive(Clone, Copy)]
enum Weights {
    /// Numbers of samples, with CPU time beside them.
    CpuSamples {
        /// The column of the numbers of samples; `None`: each row is one.
        samples: Option<usize>,
        /// In nanoseconds.
        cpu: usize,
    },
    /// Times, in nanoseconds in the profile.
    Time {
        column: usize,
    },
    Bytes {
        column: usize,
    },
    Count {
        column: usize,
    },
}

impl Weights {
    fn new(profile: &Profile, column: usize) -> Weights {
        let value_type = profile.sample_types[column];
        let samples = samples_column(profile);
        match (profile.str(value_type.kind), profile.str(value_type.unit)) {
            ("cpu", "nanoseconds") => Weights::CpuSamples { samples, cpu: column },
            (_, "nanoseconds") => Weights::Time { column },
            (_, "bytes") => Weights::Bytes { column },
            _ => Weights::Count { column },
        }
    }

    fn name(self) -> &'static str {
        match self {
            Weights::CpuSamples { .. } | Weights::Count { .. } => "samples",
            Weights::Time { .. } => "tracing-ms",
            Weights::Bytes { .. } => "bytes",
        }
    }

    /// The sample type of the weights.
    fn own_meta(self, profile: &Profile) -> OwnMeta {
        let column = match self {
            Weights::CpuSamples { .. } => None,
            Weights::Time { column } | Weights::Bytes { column } | Weights::Count { column } => {
                Some(profile.sample_types[column])
            }
        };
        let text = |id: StrId| profile.str(id).to_owned();
        let (kind, unit) = column.map_or_else(
            || ("samples".to_owned(), "count".to_owned()),
            |value_type| (text(value_type.kind), text(value_type.unit)),
        );
        OwnMeta { kind, unit, has_times: profile.times.lists() > 0 }
    }
}

/// What the samples of a thread have in common.
#[derive(Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct ThreadKey {
    pid: Option<i64>,
    /// False for the first thread of a process, which comes first.
    is_other: bool,
    tid: Option<i64>,
    process: String,
    thread: String,
}

impl ThreadKey {
    fn new(profile: &Profile, labels: ThreadLabels) -> ThreadKey {
        let ThreadLabels { pid, tid, process, thread } = labels;
        let text = |name| view::label_text(profile, name);
        let process = process.map(text).unwrap_or_default();
        let thread = thread.map_or_else(|| process.clone(), text);
        ThreadKey { pid, is_other: tid.is_some() && tid != pid, tid, process, thread }
    }
}

/// What all threads need of a profile.
struct Written<'p> {
    profile: &'p Profile,
    frames: Frames,
    libraries: Libraries,
    weights: Weights,
    markers: MarkerKeys,
}

/// Writes the sample type of `options`, thread by thread.
pub(super) fn write(
    profile: &Profile,
    options: &WriteOptions,
    out: &mut dyn Write,
) -> io::Result<()> {
    let granularity =
        Granularity { binary: true, unknown: true, inlined: true, ..Granularity::LINES };
    let weights = Weights::new(profile, options.type_index);
    let written = Written {
        profile,
        frames: Frames::new(profile, granularity),
        libraries: Libraries::new(profile),
        weights,
        markers: MarkerKeys::new(profile, weights),
    };
    let mut threads: Vec<(ThreadKey, Vec<RowPart>)> = written.threads().into_iter().collect();
    if threads.is_empty() {
        // A file has a thread at least.
        threads.push((ThreadKey::default(), Vec::new()));
    }
    threads.sort_unstable_by(|a, b| a.0.cmp(&b.0));
    let meta = serde_json::to_string(&written.meta())?;
    let libs = serde_json::to_string(&written.libraries.list)?;
    write!(out, "{{\"meta\":{meta},\n\"libs\":{libs},\n\"pages\":[],\"counters\":[],")?;
    write!(out, "\"profilerOverhead\":[],\"threads\":[")?;
    let mut ids = Ids::default();
    for (number, (key, parts)) in threads.into_iter().enumerate() {
        let comma = if number == 0 { "" } else { "," };
        writeln!(out, "{comma}")?;
        let mut tables = ThreadTables::new(&written);
        parts.iter().for_each(|part| tables.add(*part));
        tables.write(&key, ids.id(key.tid.or(key.pid)), out)?;
    }
    writeln!(out, "]}}")
}

/// The ids of threads, which differ.
#[derive(Default)]
struct Ids(HashMap<i64, u32>);

impl Ids {
    fn id(&mut self, tid: Option<i64>) -> String {
        let tid = tid.unwrap_or_default();
        let count = self.0.entry(tid).or_default();
        *count += 1;
        if *count == 1 { tid.to_string() } else { format!("{tid}.{}", *count - 1) }
    }
}

impl Written<'_> {
    /// The samples of each thread: those with times in their order, then the others.
    fn threads(&self) -> HashMap<ThreadKey, Vec<RowPart>> {
        let keys = ThreadKeys::new(self.profile);
        let mut by_labels: HashMap<LabelSetId, ThreadKey> = HashMap::new();
        let mut threads: HashMap<ThreadKey, Vec<RowPart>> = HashMap::new();
        for part in in_order(self.profile, |_| 1) {
            let labels = self.profile.samples[part.row].labels;
            let key = by_labels
                .entry(labels)
                .or_insert_with(|| ThreadKey::new(self.profile, keys.labels(self.profile, labels)));
            threads.entry(key.clone()).or_default().push(part);
        }
        for parts in threads.values_mut() {
            parts.sort_by_key(|part| part.time.is_none());
        }
        threads
    }

    fn meta(&self) -> serde_json::Value {
        let profile = self.profile;
        let is_cpu = matches!(self.weights, Weights::CpuSamples { .. });
        let has_period =
            is_cpu && profile.period > 0 && profile.str(profile.period_type.unit) == "nanoseconds";
        let interval = if has_period { profile.period as f64 / 1e6 } else { 1.0 };
        let own = self.weights.own_meta(profile);
        let duration = profile.duration_nanos;
        let product = self.libraries.list.first().map_or("prof", |library| &*library.name);
        json!({
            "interval": interval,
            "startTime": profile.time_nanos as f64 / 1e6,
            "profilingStartTime": 0,
            "profilingEndTime": (duration > 0).then(|| duration as f64 / 1e6),
            "preprocessedProfileVersion": VERSION,
            // The version of Firefox's recorder, which the reader needs, but does not use.
            "version": 24,
            "processType": 0,
            "product": product,
            "importedFrom": "prof",
            "stackwalk": 1,
            "debug": false,
            "symbolicated": true,
            "usesOnlyOneStackType": true,
            "sourceCodeIsNotOnSearchfox": true,
            "pausedRanges": [],
            "extensions": { "length": 0, "baseURL": [], "id": [], "name": [] },
            "sampleUnits": { "time": "ms", "eventDelay": "ms", "threadCPUDelta": "ns" },
            "categories": categories(),
            "markerSchema": self.markers.schemas(),
            "extra": notes(&own),
            "prof": own,
        })
    }
}

/// The categories of frames, in the order of [`Category`].
fn categories() -> serde_json::Value {
    let category = |name: &str, color: &str| json!({ "name": name, "color": color, "subcategories": ["Other"] });
    json!([category("Other", "grey"), category("User", "yellow"), category("Kernel", "orange")])
}

/// What the page on the profile says beside the usual.
fn notes(own: &OwnMeta) -> serde_json::Value {
    let entry =
        |label: &str, value: &str| json!({ "label": label, "format": "string", "value": value });
    let mut entries = vec![entry("Sample type", &own.kind)];
    if !own.has_times {
        let note = "not recorded: samples are in the order of the profile";
        entries.push(entry("Times", note));
    }
    json!([{ "label": "Profile", "entries": entries }])
}
