//! Lists that are made while they are read, and objects whose members are data.

use serde::ser::{Serialize, Serializer};

/// A list of an answer.
pub struct List<'a, T> {
    items: Box<dyn Fn() -> Box<dyn Iterator<Item = T> + 'a> + 'a>,
}

impl<'a, T: 'a> List<'a, T> {
    /// The list of what `items` returns, each time it is read.
    pub fn new<I: Iterator<Item = T> + 'a>(items: impl Fn() -> I + 'a) -> List<'a, T> {
        List { items: Box::new(move || Box::new(items())) }
    }

    /// The items.
    pub fn iter(&self) -> impl Iterator<Item = T> + use<'a, '_, T> {
        (self.items)()
    }
}

impl<T: Serialize> Serialize for List<'_, T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq((self.items)())
    }
}

/// An object whose members are names of the profile, in their order.
#[derive(Clone, Debug, PartialEq)]
pub struct Members<V>(pub Vec<(String, V)>);

impl<V: Serialize> Serialize for Members<V> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(name, value)| (name, value)))
    }
}

#[cfg(feature = "schema")]
mod schema {
    use std::borrow::Cow;

    use schemars::{JsonSchema, Schema, SchemaGenerator};

    use super::{List, Members};

    impl<T: JsonSchema> JsonSchema for List<'_, T> {
        fn schema_name() -> Cow<'static, str> {
            Vec::<T>::schema_name()
        }

        fn json_schema(generator: &mut SchemaGenerator) -> Schema {
            Vec::<T>::json_schema(generator)
        }

        fn inline_schema() -> bool {
            true
        }
    }

    impl<V: JsonSchema> JsonSchema for Members<V> {
        fn schema_name() -> Cow<'static, str> {
            format!("MembersOf{}", V::schema_name()).into()
        }

        fn json_schema(generator: &mut SchemaGenerator) -> Schema {
            let value = generator.subschema_for::<V>();
            schemars::json_schema!({ "type": "object", "additionalProperties": value })
        }

        fn inline_schema() -> bool {
            true
        }
    }
}
