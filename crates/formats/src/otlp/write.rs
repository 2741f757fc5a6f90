//! Writing: a profile for each sample type, the requested one first.

use std::collections::HashMap;
use std::hash::Hash;
use std::io::{self, Write};

use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, ArrayValue, InstrumentationScope};
use opentelemetry_proto::tonic::profiles::v1development as proto;
use profile::{LabelValue, Profile, StrId};
use prost::Message;

use super::{BUILD_ID, COMMENTS, TEXTS, keys};
use crate::WriteOptions;
use crate::samples::RowPart;

/// The attributes of a mapping whose locations have been looked up, as those of pprof.
const LOOKED_UP: [&str; 4] = [
    "pprof.mapping.has_functions",
    "pprof.mapping.has_filenames",
    "pprof.mapping.has_line_numbers",
    "pprof.mapping.has_inline_frames",
];

/// A value of an attribute.
#[derive(Clone, PartialEq, Eq, Hash)]
enum AttributeValue {
    Text(String),
    Texts(Vec<String>),
    Number { value: i64, unit: i32 },
    Bool(bool),
}

/// An attribute.
#[derive(Clone, PartialEq, Eq, Hash)]
struct AttributeKey {
    key: i32,
    value: AttributeValue,
}

/// The tables while they are written.
struct Tables {
    dictionary: proto::ProfilesDictionary,
    strings: HashMap<String, i32>,
    attributes: HashMap<AttributeKey, i32>,
}

/// Index of a new element of a table.
fn index<T>(table: &[T]) -> i32 {
    i32::try_from(table.len()).unwrap_or(i32::MAX)
}

/// Writes all sample types, that of `options` first.
pub(super) fn write(
    profile: &Profile,
    options: &WriteOptions,
    out: &mut dyn Write,
) -> io::Result<()> {
    out.write_all(&message(profile, options)?)
}

/// The encoded message that is written.
///
/// # Errors
///
/// The profile is too large for its indexes.
pub(super) fn message(profile: &Profile, options: &WriteOptions) -> io::Result<Vec<u8>> {
    let largest = [profile.strings.len(), profile.locations.len(), profile.stacks.len()];
    if largest.into_iter().any(|length| length > i32::MAX as usize / 2) {
        return Err(io::Error::new(
            io::ErrorKind::FileTooLarge,
            "the profile is too large for OTLP",
        ));
    }
    let mut tables = Tables::new(profile);
    let labels = (0..profile.labels.len() as u32).map(profile::LabelSetId);
    let labels: Vec<Vec<i32>> =
        labels.map(|set| tables.labels(profile, profile.labels.get(set))).collect();
    let columns = 0..profile.sample_types.len();
    let others = columns.filter(|&column| column != options.type_index);
    let columns = std::iter::once(options.type_index).chain(others);
    let profiles = columns.map(|column| tables.profile(profile, column, &labels)).collect();
    let version = env!("CARGO_PKG_VERSION").to_owned();
    let scope = InstrumentationScope { name: "prof".to_owned(), version, ..Default::default() };
    let scope = proto::ScopeProfiles { scope: Some(scope), profiles, schema_url: String::new() };
    let resource = proto::ResourceProfiles {
        resource: Some(Default::default()),
        scope_profiles: vec![scope],
        schema_url: String::new(),
    };
    let data = proto::ProfilesData {
        resource_profiles: vec![resource],
        dictionary: Some(tables.dictionary),
    };
    Ok(data.encode_to_vec())
}

impl Tables {
    fn new(profile: &Profile) -> Tables {
        let mut tables = Tables {
            dictionary: proto::ProfilesDictionary {
                mapping_table: vec![Default::default()],
                location_table: vec![Default::default()],
                function_table: vec![Default::default()],
                link_table: vec![Default::default()],
                string_table: vec![String::new()],
                attribute_table: vec![Default::default()],
                stack_table: vec![Default::default()],
            },
            strings: HashMap::from([(String::new(), 0)]),
            attributes: HashMap::new(),
        };
        tables.mappings(profile);
        tables.functions(profile);
        tables.locations(profile);
        tables.stacks(profile);
        tables
    }

    fn string(&mut self, text: &str) -> i32 {
        if let Some(&index) = self.strings.get(text) {
            return index;
        }
        let index = index(&self.dictionary.string_table);
        self.dictionary.string_table.push(text.to_owned());
        self.strings.insert(text.to_owned(), index);
        index
    }

    fn attribute(&mut self, key: &str, value: AttributeValue) -> i32 {
        let key = AttributeKey { key: self.string(key), value };
        if let Some(&index) = self.attributes.get(&key) {
            return index;
        }
        let text = |text: &String| Value::StringValue(text.clone());
        let any = |value| AnyValue { value: Some(value) };
        let (value, unit) = match &key.value {
            AttributeValue::Text(value) => (text(value), 0),
            AttributeValue::Texts(texts) => {
                let values = texts.iter().map(|value| any(text(value))).collect();
                (Value::ArrayValue(ArrayValue { values }), 0)
            }
            &AttributeValue::Number { value, unit } => (Value::IntValue(value), unit),
            &AttributeValue::Bool(value) => (Value::BoolValue(value), 0),
        };
        let table = &mut self.dictionary.attribute_table;
        let index = index(table);
        let value = Some(any(value));
        table.push(proto::KeyValueAndUnit { key_strindex: key.key, value, unit_strindex: unit });
        self.attributes.insert(key, index);
        index
    }

    fn mappings(&mut self, profile: &Profile) {
        for mapping in &profile.mappings {
            let looked_up = [
                mapping.has_functions,
                mapping.has_filenames,
                mapping.has_line_numbers,
                mapping.has_inline_frames,
            ];
            let mut attribute_indices = Vec::new();
            if mapping.build_id != StrId::EMPTY {
                let id = AttributeValue::Text(profile.str(mapping.build_id).to_owned());
                attribute_indices.push(self.attribute(BUILD_ID, id));
            }
            for (key, is_looked_up) in LOOKED_UP.into_iter().zip(looked_up) {
                if is_looked_up {
                    attribute_indices.push(self.attribute(key, AttributeValue::Bool(true)));
                }
            }
            let mapping = proto::Mapping {
                memory_start: mapping.start,
                memory_limit: mapping.limit,
                file_offset: mapping.file_offset,
                filename_strindex: self.string(profile.str(mapping.file)),
                attribute_indices,
            };
            self.dictionary.mapping_table.push(mapping);
        }
    }

    fn functions(&mut self, profile: &Profile) {
        for function in &profile.functions {
            let function = proto::Function {
                name_strindex: self.string(profile.str(function.name)),
                system_name_strindex: self.string(profile.str(function.system_name)),
                filename_strindex: self.string(profile.str(function.filename)),
                start_line: function.start_line,
            };
            self.dictionary.function_table.push(function);
        }
    }

    fn locations(&mut self, profile: &Profile) {
        for (number, location) in profile.locations.iter().enumerate() {
            let lines = profile.lines_of(profile::LocationId(number as u32)).iter();
            let lines = lines.map(|line| proto::Line {
                function_index: line.function.0 as i32 + 1,
                line: line.line,
                column: line.column,
            });
            self.dictionary.location_table.push(proto::Location {
                mapping_index: location.mapping.map_or(0, |mapping| mapping.0 as i32 + 1),
                address: location.address,
                lines: lines.collect(),
                attribute_indices: Vec::new(),
            });
        }
    }

    fn stacks(&mut self, profile: &Profile) {
        for number in 0..profile.stacks.len() as u32 {
            let stack = profile.stacks.get(profile::StackId(number)).iter();
            let location_indices = stack.map(|location| location.0 as i32 + 1).collect();
            self.dictionary.stack_table.push(proto::Stack { location_indices });
        }
    }

    /// The attributes that a set of labels is.
    fn labels(&mut self, profile: &Profile, labels: &[profile::Label]) -> Vec<i32> {
        let mut indexes = Vec::with_capacity(labels.len());
        for label in labels {
            let value = match label.value {
                LabelValue::Str(text) => AttributeValue::Text(profile.str(text).to_owned()),
                LabelValue::Num { value, unit } => {
                    AttributeValue::Number { value, unit: self.string(profile.str(unit)) }
                }
            };
            indexes.push(self.attribute(keys::attribute(profile.str(label.key)), value));
        }
        indexes
    }

    fn value_type(
        &mut self,
        profile: &Profile,
        value_type: profile::ValueType,
    ) -> proto::ValueType {
        proto::ValueType {
            type_strindex: self.string(profile.str(value_type.kind)),
            unit_strindex: self.string(profile.str(value_type.unit)),
        }
    }

    /// The profile of a sample type. `labels` has the attributes of each set of labels.
    fn profile(&mut self, profile: &Profile, column: usize, labels: &[Vec<i32>]) -> proto::Profile {
        let comments = profile.comments.iter().map(|&comment| profile.str(comment).to_owned());
        let comments: Vec<String> = comments.collect();
        let mut attribute_indices = Vec::new();
        if !comments.is_empty() {
            attribute_indices.push(self.attribute(COMMENTS, AttributeValue::Texts(comments)));
        }
        let texts = [profile.drop_frames, profile.keep_frames, profile.doc_url];
        for (key, text) in TEXTS.into_iter().zip(texts) {
            if text != StrId::EMPTY {
                let text = AttributeValue::Text(profile.str(text).to_owned());
                attribute_indices.push(self.attribute(key, text));
            }
        }
        let samples = (0..profile.samples.len())
            .filter(|&row| profile.values_of(row)[column] != 0)
            .map(|row| sample(profile, column, row, labels))
            .collect();
        let period_type = self.value_type(profile, profile.period_type);
        proto::Profile {
            sample_type: Some(self.value_type(profile, profile.sample_types[column])),
            samples,
            time_unix_nano: u64::try_from(profile.time_nanos).unwrap_or_default(),
            duration_nano: u64::try_from(profile.duration_nanos).unwrap_or_default(),
            period_type: Some(period_type),
            period: profile.period,
            attribute_indices,
            ..Default::default()
        }
    }
}

fn sample(profile: &Profile, column: usize, row: usize, labels: &[Vec<i32>]) -> proto::Sample {
    let sample = profile.samples[row];
    let times = profile.times.get(sample.times);
    let start = u64::try_from(profile.time_nanos).unwrap_or_default();
    let values = if times.is_empty() {
        vec![profile.values_of(row)[column]]
    } else {
        let count = times.len();
        let part = |number| RowPart { time: None, row, number, count };
        (0..count).map(|number| part(number).value(profile, column)).collect()
    };
    let time = |micros: &u64| start.saturating_add(micros.saturating_mul(1000));
    proto::Sample {
        stack_index: sample.stack.0 as i32 + 1,
        attribute_indices: labels[sample.labels.0 as usize].clone(),
        link_index: 0,
        values,
        timestamps_unix_nano: times.iter().map(time).collect(),
    }
}
