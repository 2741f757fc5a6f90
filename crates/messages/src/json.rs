//! Messages on their way to another host. The peer may be of another version, or hostile: what it
//! sends is bounded in depth before it is interpreted.

use std::fmt;

use serde::de::{DeserializeSeed, Error, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value};

use crate::{Level, Message};

/// The depth of objects and lists in a message that is read: a message and its facts are two, so
/// that at most eight messages are within each other.
const MAX_DEPTH: usize = 16;

impl Serialize for Message {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        struct Coded<'a>(&'a Message);
        impl Serialize for Coded<'_> {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                Message::serialize(self.0, serializer)
            }
        }
        #[derive(Serialize)]
        struct Levelled<'a> {
            #[serde(flatten)]
            coded: Coded<'a>,
            level: Level,
        }
        Levelled { coded: Coded(self), level: self.level() }.serialize(serializer)
    }
}

/// Fails for what is no object with a `code`, and for what is nested too deeply.
impl<'de> Deserialize<'de> for Message {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Message, D::Error> {
        let value = Bounded { depth: MAX_DEPTH }.deserialize(deserializer)?;
        let Value::Object(mut fields) = value else {
            return Err(D::Error::custom("a message is an object"));
        };
        let Some(Value::String(code)) = fields.remove("code") else {
            return Err(D::Error::missing_field("code"));
        };
        let facts = fields.remove("facts").unwrap_or_default();
        let level = fields.remove("level").and_then(|level| Level::deserialize(level).ok());
        Ok(known(&code, &facts).unwrap_or_else(|| {
            let level = level.unwrap_or_default();
            Message::Unknown { code, facts, level }
        }))
    }
}

/// The message, if this version has the code, and the facts are those that it needs.
fn known(code: &str, facts: &Value) -> Option<Message> {
    Message::deserialize(&with_facts(code, facts)).ok()
}

/// A message with the facts that a reader of this version expects. A code without facts may have
/// got its first ones in a newer version; one with optional facts only may have had none in an
/// older version.
pub(crate) fn with_facts(code: &str, facts: &Value) -> Value {
    let mut fields = Map::new();
    fields.insert("code".to_owned(), code.into());
    if Message::has_facts(code) {
        let facts = if facts.is_null() { Map::new().into() } else { facts.clone() };
        fields.insert("facts".to_owned(), facts);
    }
    fields.into()
}

/// A reader of values in which objects and lists are nested at most this deep, in any format.
struct Bounded {
    depth: usize,
}

impl Bounded {
    /// The reader of a part.
    fn inner<E: Error>(&self) -> Result<Bounded, E> {
        let depth = self.depth.checked_sub(1);
        depth
            .map(|depth| Bounded { depth })
            .ok_or_else(|| E::custom(format_args!("a message is nested at most {MAX_DEPTH} deep")))
    }
}

impl<'de> DeserializeSeed<'de> for Bounded {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Bounded {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a message")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_none<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        self.inner::<D::Error>()?.deserialize(deserializer)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Value, A::Error> {
        let mut values = Vec::new();
        while let Some(value) = list.next_element_seed(self.inner()?)? {
            values.push(value);
        }
        Ok(values.into())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut object: A) -> Result<Value, A::Error> {
        let mut fields = Map::new();
        while let Some(name) = object.next_key::<String>()? {
            fields.insert(name, object.next_value_seed(self.inner()?)?);
        }
        Ok(fields.into())
    }
}

/// Numbers with a fraction. JSON has none that are not finite: they are 0, also those that a peer
/// wrote as null.
pub mod finite {
    use serde::{Deserialize, Deserializer, Serializer};

    pub fn serialize<S: Serializer>(value: &f64, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_f64(if value.is_finite() { *value } else { 0.0 })
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
        let value = Option::<f64>::deserialize(deserializer)?;
        Ok(value.filter(|value| value.is_finite()).unwrap_or_default())
    }
}
