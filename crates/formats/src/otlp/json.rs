//! OTLP profiles as JSON, as the file exporter of the OpenTelemetry Collector writes them: one
//! message in each line, or a single one.
//!
//! Fields have the names of the protobuf in lower camel case, or as they are; 64-bit numbers may be
//! texts. A message is encoded as protobuf while it is read, and that is read as any other; written,
//! it is the protobuf, field by field.

mod write;

use std::fmt;
use std::io::Read;

use profile::Profile;
use prost::encoding::{WireType, encode_key, encode_varint};
use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::{Content, read_messages};
use crate::error::ReadError;
use crate::unpacked::text;
use crate::{Format, Writer, json};

/// The format of [`mod@self`].
#[derive(Debug)]
pub struct OtlpJson;

/// Its title.
const TITLE: &str = "OTLP profiles as JSON";

/// Memory of a message in addition to its content, in bytes.
const OVERHEAD: usize = 4096;

/// Deepest nesting of messages: a value of an attribute may contain others.
const DEEPEST: usize = 32;

/// A field of a message.
struct Field {
    name: &'static str,
    number: u32,
    kind: Kind,
    /// Its value is an array.
    is_repeated: bool,
}

/// The type of a field's value, or of each of its values.
#[derive(Clone, Copy)]
enum Kind {
    /// An integer of 32 bits.
    Index,
    /// An integer of 64 bits.
    Signed,
    /// An integer of 64 bits without a sign.
    Unsigned,
    /// The same in 8 bytes.
    Fixed,
    Double,
    Bool,
    Text,
    /// A message with these fields: a function, because a message may contain others of its kind.
    Message(fn() -> &'static [Field]),
}

const fn field(name: &'static str, number: u32, kind: Kind) -> Field {
    Field { name, number, kind, is_repeated: false }
}

const fn repeated(name: &'static str, number: u32, kind: Kind) -> Field {
    Field { is_repeated: true, ..field(name, number, kind) }
}

/// The fields of each message that are read and written.
mod message {
    use super::Kind::{Bool, Double, Fixed, Index, Message, Signed, Text, Unsigned};
    use super::{Field, field, repeated};

    pub static DATA: &[Field] = &[
        repeated("resourceProfiles", 1, Message(|| RESOURCE_PROFILES)),
        field("dictionary", 2, Message(|| DICTIONARY)),
    ];
    static DICTIONARY: &[Field] = &[
        repeated("mappingTable", 1, Message(|| MAPPING)),
        repeated("locationTable", 2, Message(|| LOCATION)),
        repeated("functionTable", 3, Message(|| FUNCTION)),
        // Its elements are left out, but a table has an empty one.
        repeated("linkTable", 4, Message(|| &[])),
        repeated("stringTable", 5, Text),
        repeated("attributeTable", 6, Message(|| ATTRIBUTE)),
        repeated("stackTable", 7, Message(|| STACK)),
    ];
    static RESOURCE_PROFILES: &[Field] = &[
        field("resource", 1, Message(|| RESOURCE)),
        repeated("scopeProfiles", 2, Message(|| SCOPE_PROFILES)),
    ];
    static SCOPE_PROFILES: &[Field] =
        &[field("scope", 1, Message(|| SCOPE)), repeated("profiles", 2, Message(|| PROFILE))];
    static SCOPE: &[Field] = &[field("name", 1, Text), field("version", 2, Text)];
    static RESOURCE: &[Field] = &[repeated("attributes", 1, Message(|| KEY_VALUE))];
    static KEY_VALUE: &[Field] = &[
        field("key", 1, Text),
        field("value", 2, Message(|| ANY_VALUE)),
        field("keyStrindex", 3, Index),
    ];
    static ANY_VALUE: &[Field] = &[
        field("stringValue", 1, Text),
        field("boolValue", 2, Bool),
        field("intValue", 3, Signed),
        field("doubleValue", 4, Double),
        field("arrayValue", 5, Message(|| ARRAY)),
        field("stringValueStrindex", 8, Index),
    ];
    static ARRAY: &[Field] = &[repeated("values", 1, Message(|| ANY_VALUE))];
    static PROFILE: &[Field] = &[
        field("sampleType", 1, Message(|| VALUE_TYPE)),
        repeated("samples", 2, Message(|| SAMPLE)),
        field("timeUnixNano", 3, Fixed),
        field("durationNano", 4, Unsigned),
        field("periodType", 5, Message(|| VALUE_TYPE)),
        field("period", 6, Signed),
        repeated("attributeIndices", 11, Index),
    ];
    static VALUE_TYPE: &[Field] =
        &[field("typeStrindex", 1, Index), field("unitStrindex", 2, Index)];
    static SAMPLE: &[Field] = &[
        field("stackIndex", 1, Index),
        repeated("attributeIndices", 2, Index),
        repeated("values", 4, Signed),
        repeated("timestampsUnixNano", 5, Fixed),
    ];
    static MAPPING: &[Field] = &[
        field("memoryStart", 1, Unsigned),
        field("memoryLimit", 2, Unsigned),
        field("fileOffset", 3, Unsigned),
        field("filenameStrindex", 4, Index),
        repeated("attributeIndices", 5, Index),
    ];
    static STACK: &[Field] = &[repeated("locationIndices", 1, Index)];
    static LOCATION: &[Field] = &[
        field("mappingIndex", 1, Index),
        field("address", 2, Unsigned),
        repeated("lines", 3, Message(|| LINE)),
    ];
    static LINE: &[Field] =
        &[field("functionIndex", 1, Index), field("line", 2, Signed), field("column", 3, Signed)];
    static FUNCTION: &[Field] = &[
        field("nameStrindex", 1, Index),
        field("systemNameStrindex", 2, Index),
        field("filenameStrindex", 3, Index),
        field("startLine", 4, Signed),
    ];
    static ATTRIBUTE: &[Field] = &[
        field("keyStrindex", 1, Index),
        field("value", 2, Message(|| ANY_VALUE)),
        field("unitStrindex", 3, Index),
    ];
}

impl Format for OtlpJson {
    fn name(&self) -> &'static str {
        "otlp-json"
    }

    fn title(&self) -> &'static str {
        TITLE
    }

    fn extensions(&self) -> &'static [&'static str] {
        &["otlp.json"]
    }

    /// True for an object whose first field is one of `ProfilesData`.
    fn detect(&self, head: &[u8]) -> bool {
        let name = text(head)
            .and_then(|text| text.trim_start().strip_prefix('{')?.trim_start().strip_prefix('"'))
            .and_then(|text| Some(text.split_once('"')?.0));
        name.is_some_and(|name| message::DATA.iter().any(|field| field.has_name(name)))
    }

    fn read(&self, input: &mut dyn Read) -> Result<Profile, ReadError> {
        let parsed = json::read_all(TITLE, input, || Encoder::new(message::DATA, 0))?;
        let taken: usize = parsed.value.iter().map(|bytes| bytes.len() + OVERHEAD).sum();
        let memory_allowed = parsed.memory_allowed.saturating_sub(taken as u64);
        let content = |bytes| Content { bytes, memory_allowed };
        let messages: Vec<Content> = parsed.value.into_iter().map(content).collect();
        read_messages(&messages)
    }

    fn writer(&self) -> Option<Writer> {
        Some(write::write)
    }
}

impl Field {
    /// Whether it has this name, in lower camel case or with underscores.
    fn has_name(&self, name: &str) -> bool {
        let letters = name.bytes().filter(|&byte| byte != b'_');
        letters
            .map(|byte| byte.to_ascii_lowercase())
            .eq(self.name.bytes().map(|byte| byte.to_ascii_lowercase()))
    }
}

/// Encodes an object as a message with these fields; others are left out.
struct Encoder {
    fields: &'static [Field],
    depth: usize,
}

impl Encoder {
    fn new(fields: &'static [Field], depth: usize) -> Encoder {
        Encoder { fields, depth }
    }
}

impl<'de> DeserializeSeed<'de> for Encoder {
    type Value = Vec<u8>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Vec<u8>, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Encoder {
    type Value = Vec<u8>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Vec<u8>, A::Error> {
        let mut out = Vec::new();
        while let Some(name) = map.next_key::<String>()? {
            let Some(field) = self.fields.iter().find(|field| field.has_name(&name)) else {
                map.next_value::<IgnoredAny>()?;
                continue;
            };
            let is_element = false;
            map.next_value_seed(Value { out: &mut out, field, depth: self.depth, is_element })?;
        }
        if self.depth == 0 {
            json::count(OVERHEAD)?;
        }
        Ok(out)
    }
}

/// Encodes the value of a field.
struct Value<'o> {
    out: &'o mut Vec<u8>,
    field: &'static Field,
    depth: usize,
    /// It is in an array, which contains no other.
    is_element: bool,
}

impl Value<'_> {
    /// Makes space for bytes of the value, and for its key and a length.
    fn reserve<E: Error>(&mut self, bytes: usize) -> Result<(), E> {
        const KEY_AND_LENGTH: usize = 20;
        let before = self.out.capacity();
        self.out.reserve(bytes + KEY_AND_LENGTH);
        json::count(self.out.capacity() - before)
    }

    fn varint<E: Error>(mut self, value: u64) -> Result<(), E> {
        self.reserve(0)?;
        encode_key(self.field.number, WireType::Varint, self.out);
        encode_varint(value, self.out);
        Ok(())
    }

    fn fixed<E: Error>(mut self, bytes: [u8; 8]) -> Result<(), E> {
        self.reserve(bytes.len())?;
        encode_key(self.field.number, WireType::SixtyFourBit, self.out);
        self.out.extend(bytes);
        Ok(())
    }

    /// Writes an integer.
    fn number<E: Error>(self, value: u64) -> Result<(), E> {
        match self.field.kind {
            Kind::Index | Kind::Signed | Kind::Unsigned => self.varint(value),
            Kind::Fixed => self.fixed(value.to_le_bytes()),
            Kind::Double => self.double(value as f64),
            Kind::Bool | Kind::Text | Kind::Message(_) => self.mismatch("a number"),
        }
    }

    fn double<E: Error>(self, value: f64) -> Result<(), E> {
        match self.field.kind {
            Kind::Double => self.fixed(value.to_le_bytes()),
            // Some writers have no integers.
            Kind::Index | Kind::Signed | Kind::Unsigned | Kind::Fixed
                if value.fract() == 0.0 && value.abs() < 2f64.powi(63) =>
            {
                self.number(value as i64 as u64)
            }
            _ => self.mismatch("a decimal"),
        }
    }

    fn content<E: Error>(mut self, bytes: &[u8]) -> Result<(), E> {
        self.reserve(bytes.len())?;
        encode_key(self.field.number, WireType::LengthDelimited, self.out);
        encode_varint(bytes.len() as u64, self.out);
        self.out.extend_from_slice(bytes);
        Ok(())
    }

    fn mismatch<T, E: Error>(&self, what: &str) -> Result<T, E> {
        Err(E::custom(format!("{} is {what}", self.field.name)))
    }
}

impl<'de> DeserializeSeed<'de> for Value<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Value<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a value of {}", self.field.name)
    }

    fn visit_unit<E: Error>(self) -> Result<(), E> {
        // Without it, the elements behind it would have other indexes.
        if self.is_element { self.mismatch("null in an array") } else { Ok(()) }
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<(), E> {
        match self.field.kind {
            Kind::Bool => self.varint(value.into()),
            _ => self.mismatch("a truth value"),
        }
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<(), E> {
        self.number(value)
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<(), E> {
        self.number(value as u64)
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<(), E> {
        self.double(value)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<(), E> {
        match self.field.kind {
            Kind::Text => self.content(text.as_bytes()),
            Kind::Index | Kind::Signed | Kind::Unsigned | Kind::Fixed => {
                let number = text.parse().ok().or_else(|| Some(text.parse::<i64>().ok()? as u64));
                match number {
                    Some(number) => self.number(number),
                    None => self.mismatch("no number"),
                }
            }
            Kind::Double => match text.parse() {
                Ok(number) => self.double(number),
                Err(_) => self.mismatch("no number"),
            },
            Kind::Bool | Kind::Message(_) => self.mismatch("a text"),
        }
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut all: A) -> Result<(), A::Error> {
        let Value { out, field, depth, is_element } = self;
        if is_element {
            return Err(A::Error::custom(format!("{} has an array in an array", field.name)));
        }
        loop {
            let element = Value { out: &mut *out, field, depth, is_element: true };
            if all.next_element_seed(element)?.is_none() {
                return Ok(());
            }
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<(), A::Error> {
        let Kind::Message(fields) = self.field.kind else { return self.mismatch("an object") };
        if self.depth >= DEEPEST {
            return Err(A::Error::custom("its values are nested too deeply"));
        }
        let message = Encoder::new(fields(), self.depth + 1).visit_map(map)?;
        self.content(&message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A message with two samples of `main`, one of them with a time.
    const EXAMPLE: &str = r#"{"dictionary": {"mapping_table": [{}],
        "locationTable": [{}, {"address": "4096", "lines": [{"functionIndex": 1, "line": "7"}]}],
        "functionTable": [{}, {"nameStrindex": 1}], "linkTable": [{}],
        "stringTable": ["", "main", "cpu", "nanoseconds", "state", "on \u263a"],
        "attributeTable": [{}, {"keyStrindex": 4, "value": {"stringValueStrindex": 5}}],
        "stackTable": [{}, {"locationIndices": [1]}]},
      "resourceProfiles": [{"resource": {"attributes": [
          {"key": "process.pid", "value": {"intValue": "42"}},
          {"key": "list", "value": {"arrayValue": {"values": [{"boolValue": true}]}}}]},
        "scopeProfiles": [{"scope": {"name": "x"}, "profiles": [{
          "profileId": "0123456789abcdef0123456789abcdef",
          "sampleType": {"typeStrindex": 2, "unitStrindex": 3}, "samples": [
            {"stackIndex": 1, "values": ["-5", 8], "attributeIndices": [1]},
            {"stackIndex": 1, "values": [2], "timestampsUnixNano": ["1700000000000005000"]}],
          "timeUnixNano": "1700000000000000000", "durationNano": 9}]}], "unknown": [[{}]]}]}"#;

    fn read(text: &str) -> Result<Profile, String> {
        OtlpJson.read(&mut text.as_bytes()).map_err(|error| error.to_string())
    }

    #[test]
    fn a_message_is_read_as_its_protobuf() {
        assert!(OtlpJson.detect(EXAMPLE.as_bytes()));
        let p = read(EXAMPLE).unwrap();
        assert_eq!((p.type_names(), p.duration_nanos), (vec!["cpu".into()], 9));
        assert_eq!((p.total(0), p.samples.len(), p.times.lists()), (5, 2, 1));
        let names: Vec<&str> = p.functions.iter().map(|f| p.str(f.name)).collect();
        assert_eq!(names, ["main"]);
        let keys: Vec<&str> = p.labels.keys().into_iter().map(|key| p.str(key)).collect();
        assert!(keys.contains(&"pid") && keys.contains(&"state"), "{keys:?}");
    }

    #[test]
    fn messages_in_several_lines_are_added_up() {
        let line = EXAMPLE.replace('\n', " ");
        let next = line.replace("1700000000000000000", "1700000005000000000");
        let p = read(&format!("{line}\n{next}\n")).unwrap();
        assert_eq!((p.total(0), p.duration_nanos), (10, 5_000_000_009));
    }

    #[test]
    fn invalid_messages_are_refused() {
        let cut = &EXAMPLE[..EXAMPLE.len() / 2];
        let deep = format!("{{\"dictionary\":{}", "{\"attributeTable\":".repeat(9));
        let array = r#"{"dictionary":{"stringTable":[[""]]}}"#;
        let number = r#"{"dictionary":{"stringTable":[7]}}"#;
        let values = "{\"arrayValue\":{\"values\":".repeat(10_000);
        let values = format!(r#"{{"dictionary":{{"attributeTable":{{"value":{values}"#);
        let null = r#"{"dictionary":{"stringTable":[null,""]}}"#;
        for text in [cut, &deep, array, null, number, &values, "{}", r#"{"resourceProfiles":[]}"#] {
            assert!(read(text).is_err(), "{text:.60}");
        }
    }
}
