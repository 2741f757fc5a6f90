//! Profiles of OpenTelemetry: the message `ProfilesData` of
//! [`opentelemetry/proto/profiles/v1development`](https://github.com/open-telemetry/opentelemetry-proto),
//! of which agents send the fields to a collector (`ExportProfilesServiceRequest` has the same).
//!
//! Each of its profiles has a single sample type; samples of equal stacks and attributes are one.

mod dictionary;
mod fields;
mod json;
mod keys;
mod observations;
mod write;

use std::collections::HashMap;
use std::io::Read;

use opentelemetry_proto::tonic::profiles::v1development as proto;
use opentelemetry_proto::tonic::resource::v1::Resource;
use profile::{Label, LabelSetId, LabelValue, Profile, StrId};

use crate::assembly::{Assembly, ColumnValue, InternedSample, excess};
use crate::error::ReadError;
use crate::samples::samples_column;
use crate::unpacked::Unpacked;
use crate::{Format, Writer};
use dictionary::{Attribute, Dictionary, decode};
use fields::{Fields, contents};
use observations::{Observation, Observations};

pub use json::OtlpJson;

/// The format of [`mod@self`].
#[derive(Debug)]
pub struct Otlp;

/// Its title.
const TITLE: &str = "OTLP profiles";

/// Numbers of the fields of `ProfilesData`.
const RESOURCES: u32 = 1;
const DICTIONARY: u32 = 2;

/// Numbers of the fields of `ResourceProfiles`.
const RESOURCE: u32 = 1;
const SCOPES: u32 = 2;

/// Number of the profiles in `ScopeProfiles`.
const PROFILES: u32 = 2;

/// Number of the samples in `Profile`.
const SAMPLES: u32 = 2;

/// Number of the file in `Profile` that a profile was made of.
const ORIGINAL: u32 = 10;

/// The attribute of a mapping with its GNU build id.
const BUILD_ID: &str = "process.executable.build_id.gnu";

/// The attribute of a profile with comments.
const COMMENTS: &str = "pprof.profile.comment";

/// The attributes of a profile with its texts: frames to drop, frames to keep, documentation.
const TEXTS: [&str; 3] =
    ["pprof.profile.drop_frames", "pprof.profile.keep_frames", "pprof.profile.doc_url"];

/// Most sample types of a file.
const MOST_TYPES: usize = 256;

/// Most attributes of a resource; each of its samples has them.
const MOST_ATTRIBUTES: usize = 256;

/// Samples between two checks of memory.
const CHECKED: usize = 1024;

impl Format for Otlp {
    fn name(&self) -> &'static str {
        "otlp"
    }

    fn title(&self) -> &'static str {
        TITLE
    }

    fn extensions(&self) -> &'static [&'static str] {
        &["otlp", "otlp.pb"]
    }

    fn detect(&self, head: &[u8]) -> bool {
        /// Tags of length-delimited fields.
        const FIRST: u8 = 1 << 3 | 2;
        const SECOND: u8 = 2 << 3 | 2;
        match Fields::new(head).begin_of_content() {
            // pprof's first field has numbers.
            Some((1, content)) => matches!(content.first(), Some(&(FIRST | SECOND))),
            // The first mapping of a dictionary is empty; a sample of pprof has a location.
            Some((2, content)) => content.starts_with(&[FIRST, 0]),
            _ => false,
        }
    }

    fn read(&self, input: &mut dyn Read) -> Result<Profile, ReadError> {
        read_messages(&[Content::new(input)?])
    }

    fn writer(&self) -> Option<Writer> {
        Some(write::write)
    }

    fn is_text(&self) -> bool {
        false
    }
}

fn invalid(what: impl Into<String>) -> ReadError {
    ReadError::invalid(TITLE, what)
}

/// The error of a message that is no such message.
#[expect(clippy::needless_pass_by_value, reason = "for map_err")]
fn damaged(error: prost::DecodeError) -> ReadError {
    invalid(error.to_string())
}

/// The bytes of a file.
struct Content {
    bytes: Vec<u8>,
    /// Memory of a profile made of it, in bytes.
    memory_allowed: u64,
}

impl Content {
    fn new(input: &mut dyn Read) -> Result<Content, ReadError> {
        let mut input = Unpacked::new(input)?;
        let mut bytes = Vec::new();
        loop {
            let read = (&mut input).take(1 << 20).read_to_end(&mut bytes)?;
            let allowed = input.memory_allowed();
            if let Some(excess) = excess(bytes.len() as u64, allowed) {
                return Err(invalid(excess));
            }
            if read == 0 {
                let memory_allowed = allowed.saturating_sub(bytes.len() as u64);
                return Ok(Content { bytes, memory_allowed });
            }
        }
    }

    /// Checks the memory of a profile, and of `others` bytes beside it.
    fn check(&self, all: &Assembly, others: u64) -> Result<(), ReadError> {
        let allowed = self.memory_allowed.saturating_sub(others);
        all.excess(allowed).map_or(Ok(()), |excess| Err(invalid(excess)))
    }
}

/// The profile of messages, which are at least one: their samples are added up.
fn read_messages(messages: &[Content]) -> Result<Profile, ReadError> {
    let (mut all, mut timed) = (Assembly::default(), Observations::default());
    let mut start = None;
    for content in messages {
        find_start(content, &mut start)?;
    }
    all.profile.time_nanos = start.unwrap_or_default() as i64;
    for content in messages {
        let dictionary = Dictionary::new(content, &mut all)?;
        let mut reader = Reader {
            content,
            dictionary: &dictionary,
            all,
            start,
            timed,
            label_sets: HashMap::new(),
            label_bytes: 0,
        };
        for resource in contents(&content.bytes, RESOURCES) {
            reader.resource(resource.map_err(damaged)?)?;
        }
        (all, timed) = (reader.all, reader.timed);
    }
    let last = messages.last().ok_or_else(ReadError::empty)?;
    finish(all, start, timed, last)
}

/// Finds the start of the first profile, in nanoseconds since the Unix epoch.
fn find_start(content: &Content, start: &mut Option<u64>) -> Result<(), ReadError> {
    for resource in contents(&content.bytes, RESOURCES) {
        for scope in contents(resource.map_err(damaged)?, SCOPES) {
            for profile in contents(scope.map_err(damaged)?, PROFILES) {
                let time = header(profile.map_err(damaged)?)?.time_unix_nano;
                if time != 0 && start.is_none_or(|start| time < start) {
                    *start = Some(time);
                }
            }
        }
    }
    Ok(())
}

/// The profile of all that was read, with the values that have times.
fn finish(
    mut all: Assembly,
    start: Option<u64>,
    mut timed: Observations,
    content: &Content,
) -> Result<Profile, ReadError> {
    if all.profile.sample_types.is_empty() {
        return Err(invalid("it has no profile"));
    }
    timed.add_to(&mut all, content)?;
    if start.is_none() {
        let duration = all.begin_times_at_zero().saturating_mul(1000);
        all.profile.duration_nanos = all.profile.duration_nanos.max(duration);
    }
    let mut profile = all.finish();
    put_samples_first(&mut profile);
    Ok(profile)
}

struct Reader<'c> {
    content: &'c Content,
    dictionary: &'c Dictionary,
    all: Assembly,
    /// Nanoseconds since the epoch at the start of the first profile.
    start: Option<u64>,
    /// Samples with times.
    timed: Observations,
    /// Of the samples of the resource that is read, by their attributes.
    label_sets: HashMap<Box<[i32]>, LabelSetId>,
    /// Memory of all sets of labels.
    label_bytes: u64,
}

/// What the samples of a profile have in common.
struct ProfileContext<'l> {
    /// The column of its sample type.
    column: usize,
    /// Attributes of its resource.
    labels: &'l [Label],
}

/// A profile without its samples.
fn header(profile: &[u8]) -> Result<proto::Profile, ReadError> {
    let mut header = Vec::new();
    for field in Fields::new(profile) {
        let field = field.map_err(damaged)?;
        if ![SAMPLES, ORIGINAL].contains(&field.number) {
            header.extend_from_slice(field.encoded);
        }
    }
    decode(&header)
}

impl Reader<'_> {
    /// Reads the profiles of a resource, such as a service or a container.
    fn resource(&mut self, resource: &[u8]) -> Result<(), ReadError> {
        self.label_sets.clear();
        let mut labels = Vec::new();
        for resource in contents(resource, RESOURCE) {
            self.resource_labels(&decode(resource.map_err(damaged)?)?, &mut labels)?;
        }
        for scope in contents(resource, SCOPES) {
            for profile in contents(scope.map_err(damaged)?, PROFILES) {
                self.profile(profile.map_err(damaged)?, &labels)?;
            }
        }
        Ok(())
    }

    fn resource_labels(
        &mut self,
        resource: &Resource,
        labels: &mut Vec<Label>,
    ) -> Result<(), ReadError> {
        let count = resource.attributes.len();
        if count > MOST_ATTRIBUTES {
            let what = format!("a resource has {count} attributes, more than {MOST_ATTRIBUTES}");
            return Err(invalid(what));
        }
        for attribute in &resource.attributes {
            let value = attribute.value.as_ref();
            let value = self.dictionary.label_value(value, StrId::EMPTY, &mut self.all)?;
            let key = match attribute.key_strindex {
                0 => self.all.string(&attribute.key),
                index => self.dictionary.string(index)?,
            };
            let key = keys::label(key, &mut self.all);
            let is_new = !labels.iter().any(|label: &Label| label.key == key);
            labels.extend(value.filter(|_| is_new).map(|value| Label { key, value }));
        }
        Ok(())
    }

    fn profile(&mut self, profile: &[u8], labels: &[Label]) -> Result<(), ReadError> {
        let header = header(profile)?;
        let column = self.column(&header)?;
        self.facts(&header)?;
        let context = ProfileContext { column, labels };
        for (number, sample) in contents(profile, SAMPLES).enumerate() {
            if number.is_multiple_of(CHECKED) {
                self.check()?;
            }
            self.sample(&decode(sample.map_err(damaged)?)?, &context)?;
        }
        self.check()
    }

    fn column(&mut self, header: &proto::Profile) -> Result<usize, ReadError> {
        let sample_type = header.sample_type.unwrap_or_default();
        let kind = self.dictionary.string(sample_type.type_strindex)?;
        let unit = self.dictionary.string(sample_type.unit_strindex)?;
        let profile = &self.all.profile;
        let (kind, unit) = (profile.str(kind).to_owned(), profile.str(unit).to_owned());
        let kind = if kind.is_empty() { "samples".to_owned() } else { kind };
        let unit = if unit.is_empty() { "count".to_owned() } else { unit };
        let column = self.all.type_column(&kind, &unit);
        if column >= MOST_TYPES {
            return Err(invalid(format!("it has more than {MOST_TYPES} sample types")));
        }
        // The first profile is the one to show.
        if self.all.profile.default_sample_type == StrId::EMPTY {
            self.all.profile.default_sample_type = self.all.string(&kind);
        }
        Ok(column)
    }

    /// Takes over what is known of the recording.
    fn facts(&mut self, header: &proto::Profile) -> Result<(), ReadError> {
        let duration = i64::try_from(header.duration_nano).unwrap_or(i64::MAX);
        let period_type = header.period_type.unwrap_or_default();
        let kind = self.dictionary.string(period_type.type_strindex)?;
        let unit = self.dictionary.string(period_type.unit_strindex)?;
        let profile = &mut self.all.profile;
        // Messages of a stream follow each other: together, they last from the first to the last.
        let end = header.time_unix_nano.saturating_add(header.duration_nano);
        let since_start = match header.time_unix_nano {
            0 => 0,
            _ => i64::try_from(end).unwrap_or(i64::MAX).saturating_sub(profile.time_nanos),
        };
        profile.duration_nanos = profile.duration_nanos.max(duration).max(since_start);
        if profile.period == 0 {
            profile.period = header.period.max(0);
            profile.period_type = profile::ValueType { kind, unit };
        }
        for attribute in self.dictionary.attributes(&header.attribute_indices) {
            take_attribute(profile, attribute?);
        }
        Ok(())
    }

    fn sample(
        &mut self,
        sample: &proto::Sample,
        context: &ProfileContext<'_>,
    ) -> Result<(), ReadError> {
        let stack = self.dictionary.stack(sample.stack_index, &mut self.all)?;
        let labels = self.labels(&sample.attribute_indices, context.labels)?;
        let (values, times) = (&sample.values, &sample.timestamps_unix_nano);
        if !values.is_empty() && !times.is_empty() && values.len() != times.len() {
            let what = format!("a sample has {} values, but {} times", values.len(), times.len());
            return Err(invalid(what));
        }
        if times.is_empty() {
            let sum = values.iter().fold(0i64, |sum, value| sum.saturating_add(*value));
            let values = &[ColumnValue { column: context.column, value: sum }];
            self.all.add_interned(InternedSample { stack, labels, values, time: None });
        }
        for (number, time) in times.iter().enumerate() {
            let value = values.get(number).copied().unwrap_or(1);
            let micros = time.saturating_sub(self.start.unwrap_or_default()) / 1000;
            let value = ColumnValue { column: context.column, value };
            self.timed.add(Observation { stack, labels, time: micros, value });
        }
        Ok(())
    }

    /// The labels of a sample with these attributes: they come before those of the resource.
    fn labels(&mut self, attributes: &[i32], resource: &[Label]) -> Result<LabelSetId, ReadError> {
        if let Some(labels) = self.label_sets.get(attributes) {
            return Ok(*labels);
        }
        let mut labels: Vec<Label> = Vec::with_capacity(resource.len());
        for attribute in self.dictionary.attributes(attributes) {
            if let Attribute::Label(label) = attribute? {
                labels.push(*label);
            }
        }
        let own = labels.len();
        for label in resource {
            if !labels[..own].iter().any(|found| found.key == label.key) {
                labels.push(*label);
            }
        }
        labels.sort_unstable();
        labels.dedup();
        self.label_bytes += (labels.len() * size_of::<Label>() + size_of_val(attributes)) as u64;
        let labels = self.all.profile.labels.intern(&labels);
        self.label_sets.insert(attributes.into(), labels);
        Ok(labels)
    }

    fn check(&self) -> Result<(), ReadError> {
        self.content
            .check(&self.all, self.timed.bytes() + self.dictionary.bytes() + self.label_bytes)
    }
}

/// Puts the number of samples first, as in the profiles of prof and Go, by which views count samples.
fn put_samples_first(profile: &mut Profile) {
    let width = profile.sample_types.len();
    let Some(place) = samples_column(profile) else { return };
    profile.sample_types[..=place].rotate_right(1);
    for row in profile.values.chunks_exact_mut(width) {
        row[..=place].rotate_right(1);
    }
}

/// Takes over an attribute of a profile.
fn take_attribute(profile: &mut Profile, attribute: &Attribute) {
    match attribute {
        Attribute::Texts { key, texts } if profile.str(*key) == COMMENTS => {
            // Each sample type has them.
            for text in texts {
                if !profile.comments.contains(text) {
                    profile.comments.push(*text);
                }
            }
        }
        Attribute::Label(Label { key, value: LabelValue::Str(text) }) => {
            let number = TEXTS.into_iter().position(|name| name == profile.str(*key));
            let fields = [&mut profile.drop_frames, &mut profile.keep_frames, &mut profile.doc_url];
            if let Some(field) = number.and_then(|number| fields.into_iter().nth(number)) {
                *field = *text;
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests;
