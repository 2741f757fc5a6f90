//! The tables that all profiles of a file share.

use opentelemetry_proto::tonic::common::v1::AnyValue;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::profiles::v1development as proto;
use profile::{
    FunctionId, Label, LabelValue, Line, LocationId, Mapping, MappingId, StackId, StrId,
};
use prost::Message;

use super::fields::contents;
use super::{BUILD_ID, Content, damaged, invalid, keys};
use crate::assembly::Assembly;
use crate::error::ReadError;

/// Numbers of the fields of `ProfilesDictionary`.
mod number {
    pub const MAPPINGS: u32 = 1;
    pub const LOCATIONS: u32 = 2;
    pub const FUNCTIONS: u32 = 3;
    pub const STRINGS: u32 = 5;
    pub const ATTRIBUTES: u32 = 6;
    pub const STACKS: u32 = 7;
}

/// Longest element in bytes: decoded, it takes up to 16 times as much.
const LONGEST: usize = 16 << 20;

/// Elements of a table between two checks of memory.
const CHECKED: usize = 1024;

/// An attribute, as far as prof knows its type.
pub(super) enum Attribute {
    Label(Label),
    /// A list of texts.
    Texts {
        key: StrId,
        texts: Vec<StrId>,
    },
    Other,
}

/// The tables; element 0 of each is none.
#[derive(Default)]
pub(super) struct Dictionary {
    pub strings: Vec<StrId>,
    pub attributes: Vec<Attribute>,
    mappings: Vec<MappingId>,
    /// `None`: a function without a name.
    functions: Vec<Option<FunctionId>>,
    locations: Vec<LocationId>,
    stacks: Vec<StackId>,
}

impl Dictionary {
    /// Reads the tables of a file, which may have several.
    pub(super) fn new(content: &Content, all: &mut Assembly) -> Result<Dictionary, ReadError> {
        let mut dictionary = Dictionary::default();
        let tables: Vec<&[u8]> = contents(&content.bytes, super::DICTIONARY)
            .collect::<Result<_, _>>()
            .map_err(damaged)?;
        for table in tables {
            dictionary.read(content, table, all)?;
        }
        Ok(dictionary)
    }

    /// Reads a dictionary: what others refer to comes first.
    fn read(
        &mut self,
        content: &Content,
        table: &[u8],
        all: &mut Assembly,
    ) -> Result<(), ReadError> {
        each::<StrId>(content, table, number::STRINGS, all, |text, all| {
            let text = str::from_utf8(text).map_err(|_| invalid("a text is not UTF-8"))?;
            self.strings.push(all.string(text));
            Ok(())
        })?;
        each::<Attribute>(content, table, number::ATTRIBUTES, all, |attribute, all| {
            let attribute = decode::<proto::KeyValueAndUnit>(attribute)?;
            let attribute = self.attribute(&attribute, all)?;
            self.attributes.push(attribute);
            Ok(())
        })?;
        each::<MappingId>(content, table, number::MAPPINGS, all, |mapping, all| {
            let mapping = self.mapping(&decode::<proto::Mapping>(mapping)?, all)?;
            self.mappings.push(mapping);
            Ok(())
        })?;
        each::<Option<FunctionId>>(content, table, number::FUNCTIONS, all, |function, all| {
            let function = self.function(&decode::<proto::Function>(function)?, all)?;
            self.functions.push(function);
            Ok(())
        })?;
        each::<LocationId>(content, table, number::LOCATIONS, all, |location, all| {
            let location = self.location(&decode::<proto::Location>(location)?, all)?;
            self.locations.push(location);
            Ok(())
        })?;
        let mut frames = Vec::new();
        each::<StackId>(content, table, number::STACKS, all, |stack, all| {
            frames.clear();
            for index in decode::<proto::Stack>(stack)?.location_indices {
                frames.push(*element(&self.locations, index, "location")?);
            }
            self.stacks.push(all.stack(&frames));
            Ok(())
        })
    }

    /// Memory in bytes.
    pub(super) fn bytes(&self) -> u64 {
        let ids = self.strings.len() + self.mappings.len() + self.locations.len();
        let ids = ids + self.stacks.len() + 2 * self.functions.len();
        (ids * size_of::<StrId>() + self.attributes.len() * size_of::<Attribute>()) as u64
    }

    /// A text by its index.
    pub(super) fn string(&self, index: i32) -> Result<StrId, ReadError> {
        if index == 0 {
            return Ok(StrId::EMPTY);
        }
        element(&self.strings, index, "text").copied()
    }

    /// A stack by its index; 0: none.
    pub(super) fn stack(&self, index: i32, all: &mut Assembly) -> Result<StackId, ReadError> {
        if index == 0 {
            return Ok(all.stack(&[]));
        }
        element(&self.stacks, index, "stack").copied()
    }

    /// The attributes with these indexes.
    pub(super) fn attributes(
        &self,
        indexes: &[i32],
    ) -> impl Iterator<Item = Result<&Attribute, ReadError>> {
        let indexes = indexes.iter().filter(|&&index| index != 0);
        indexes.map(|&index| element(&self.attributes, index, "attribute"))
    }

    /// A value of an attribute as that of a label; `None`: it has another type.
    pub(super) fn label_value(
        &self,
        value: Option<&AnyValue>,
        unit: StrId,
        all: &mut Assembly,
    ) -> Result<Option<LabelValue>, ReadError> {
        Ok(match value.and_then(|value| value.value.as_ref()) {
            Some(Value::StringValue(text)) => Some(LabelValue::Str(all.string(text))),
            Some(&Value::StringValueStrindex(index)) => Some(LabelValue::Str(self.string(index)?)),
            Some(&Value::IntValue(value)) => Some(LabelValue::Num { value, unit }),
            Some(Value::BoolValue(value)) => Some(LabelValue::Str(all.string(&value.to_string()))),
            Some(Value::DoubleValue(value)) => {
                Some(LabelValue::Str(all.string(&value.to_string())))
            }
            Some(Value::ArrayValue(_) | Value::KvlistValue(_) | Value::BytesValue(_)) | None => {
                None
            }
        })
    }

    fn attribute(
        &self,
        attribute: &proto::KeyValueAndUnit,
        all: &mut Assembly,
    ) -> Result<Attribute, ReadError> {
        let key = self.string(attribute.key_strindex)?;
        let unit = self.string(attribute.unit_strindex)?;
        if let Some(value) = self.label_value(attribute.value.as_ref(), unit, all)? {
            let key = keys::label(key, all);
            return Ok(Attribute::Label(Label { key, value }));
        }
        let Some(Value::ArrayValue(array)) =
            attribute.value.as_ref().and_then(|v| v.value.as_ref())
        else {
            return Ok(Attribute::Other);
        };
        let mut texts = Vec::new();
        for value in &array.values {
            if let Some(LabelValue::Str(text)) = self.label_value(Some(value), unit, all)? {
                texts.push(text);
            }
        }
        Ok(Attribute::Texts { key, texts })
    }

    fn mapping(
        &self,
        mapping: &proto::Mapping,
        all: &mut Assembly,
    ) -> Result<MappingId, ReadError> {
        let mut build_id = StrId::EMPTY;
        for attribute in self.attributes(&mapping.attribute_indices) {
            if let Attribute::Label(Label { key, value: LabelValue::Str(id) }) = attribute?
                && all.profile.str(*key) == BUILD_ID
            {
                build_id = *id;
            }
        }
        let mapping = Mapping {
            start: mapping.memory_start,
            limit: mapping.memory_limit,
            file_offset: mapping.file_offset,
            file: self.string(mapping.filename_strindex)?,
            build_id,
            ..Mapping::default()
        };
        // Nothing refers to the first one: its number is that of none.
        let is_none = self.mappings.is_empty();
        Ok(if is_none { MappingId(0) } else { all.add_mapping(mapping) })
    }

    fn function(
        &self,
        function: &proto::Function,
        all: &mut Assembly,
    ) -> Result<Option<FunctionId>, ReadError> {
        let name = self.string(function.name_strindex)?;
        let system_name = self.string(function.system_name_strindex)?;
        let name = if name == StrId::EMPTY { system_name } else { name };
        if name == StrId::EMPTY {
            return Ok(None);
        }
        let system_name = if system_name == StrId::EMPTY { name } else { system_name };
        Ok(Some(all.function_with(profile::Function {
            name,
            system_name,
            filename: self.string(function.filename_strindex)?,
            start_line: function.start_line,
        })))
    }

    fn location(
        &self,
        location: &proto::Location,
        all: &mut Assembly,
    ) -> Result<LocationId, ReadError> {
        let mapping = match location.mapping_index {
            0 => None,
            index => Some(*element(&self.mappings, index, "mapping")?),
        };
        let mut lines = Vec::with_capacity(location.lines.len());
        for line in &location.lines {
            if line.function_index == 0 {
                continue;
            }
            let function = *element(&self.functions, line.function_index, "function")?;
            let line = |function| Line { function, line: line.line, column: line.column };
            lines.extend(function.map(line));
        }
        Ok(all.location(mapping, location.address, &lines))
    }
}

/// Calls `read` with each element of a table, which becomes a `T`.
fn each<'m, T>(
    content: &Content,
    table: &'m [u8],
    number: u32,
    all: &mut Assembly,
    mut read: impl FnMut(&'m [u8], &mut Assembly) -> Result<(), ReadError>,
) -> Result<(), ReadError> {
    for (count, element) in contents(table, number).enumerate() {
        if count.is_multiple_of(CHECKED) {
            content.check(all, (count * size_of::<T>()) as u64)?;
        }
        read(element.map_err(damaged)?, all)?;
    }
    content.check(all, 0)
}

/// Decodes a small message.
pub(super) fn decode<M: Message + Default>(message: &[u8]) -> Result<M, ReadError> {
    if message.len() > LONGEST {
        let (mib, most) = (message.len() >> 20, LONGEST >> 20);
        return Err(invalid(format!("an element has {mib} MiB, more than {most}")));
    }
    M::decode(message).map_err(damaged)
}

/// The element of a table with this index.
fn element<'t, T>(table: &'t [T], index: i32, what: &str) -> Result<&'t T, ReadError> {
    let found = usize::try_from(index).ok().and_then(|index| table.get(index));
    found.ok_or_else(|| {
        let count = table.len();
        invalid(format!("{what} number {index} is used, but there are {count}"))
    })
}
