//! The fields of a message, one after another: large messages are not decoded as a whole, whose
//! memory would be a multiple of the file.

use prost::DecodeError;
use prost::encoding::{DecodeContext, WireType, decode_key, decode_varint, skip_field};

/// A field.
pub(super) struct Field<'m> {
    pub number: u32,
    /// The content of a length-delimited field; `None`: it is a number.
    pub content: Option<&'m [u8]>,
    /// All of it, as in the message.
    pub encoded: &'m [u8],
}

/// The fields of a message; after an error, none.
pub(super) struct Fields<'m> {
    rest: &'m [u8],
}

impl<'m> Fields<'m> {
    pub(super) fn new(message: &'m [u8]) -> Fields<'m> {
        Fields { rest: message }
    }

    /// The number of the first field, and the bytes from its content on, if it is length-delimited.
    pub(super) fn begin_of_content(mut self) -> Option<(u32, &'m [u8])> {
        let (number, wire_type) = decode_key(&mut self.rest).ok()?;
        decode_varint(&mut self.rest).ok()?;
        (wire_type == WireType::LengthDelimited).then_some((number, self.rest))
    }

    fn field(&mut self) -> Result<Field<'m>, DecodeError> {
        let begin = self.rest;
        let (number, wire_type) = decode_key(&mut self.rest)?;
        let before = self.rest;
        skip_field(wire_type, number, &mut self.rest, DecodeContext::default())?;
        let value = &before[..before.len() - self.rest.len()];
        let content = (wire_type == WireType::LengthDelimited).then(|| {
            let mut content = value;
            decode_varint(&mut content).map(|_| content)
        });
        let encoded = &begin[..begin.len() - self.rest.len()];
        Ok(Field { number, content: content.transpose()?, encoded })
    }
}

impl<'m> Iterator for Fields<'m> {
    type Item = Result<Field<'m>, DecodeError>;

    fn next(&mut self) -> Option<Result<Field<'m>, DecodeError>> {
        if self.rest.is_empty() {
            return None;
        }
        let field = self.field();
        if field.is_err() {
            self.rest = &[];
        }
        Some(field)
    }
}

/// The contents of the length-delimited fields with this number.
pub(super) fn contents(
    message: &[u8],
    number: u32,
) -> impl Iterator<Item = Result<&[u8], DecodeError>> {
    Fields::new(message).filter_map(move |field| match field {
        Ok(field) => field.content.filter(|_| field.number == number).map(Ok),
        Err(error) => Some(Err(error)),
    })
}
