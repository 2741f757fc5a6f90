//! Writing: the protobuf of a message as JSON, in one line.
//!
//! As in [the mapping of OTLP](https://opentelemetry.io/docs/specs/otlp/#json-protobuf-encoding),
//! names are in lower camel case, and numbers of 64 bits are texts.

use std::io::{self, Read, Write};

use profile::Profile;
use prost::encoding::{decode_key, decode_varint};

use super::super::fields::Fields;
use super::super::write::message;
use super::{Field, Kind};
use crate::WriteOptions;

/// Writes all sample types, that of `options` first.
pub(super) fn write(
    profile: &Profile,
    options: &WriteOptions,
    out: &mut dyn Write,
) -> io::Result<()> {
    object(&message(profile, options)?, super::message::DATA, out)?;
    out.write_all(b"\n")
}

/// Writes a message with these fields, of which repeated ones follow each other.
fn object(message: &[u8], fields: &'static [Field], out: &mut dyn Write) -> io::Result<()> {
    out.write_all(b"{")?;
    let mut last: Option<&Field> = None;
    let end =
        |last: Option<&Field>| if last.is_some_and(|last| last.is_repeated) { "]" } else { "" };
    for encoded in Fields::new(message) {
        let encoded = encoded.map_err(io::Error::other)?;
        let field = fields.iter().find(|field| field.number == encoded.number);
        let field = field.ok_or_else(|| io::Error::other("a field of OTLP without a name"))?;
        if last.is_some_and(|last| last.number == field.number) {
            out.write_all(b",")?;
        } else {
            let comma = if last.is_some() { "," } else { "" };
            let begin = if field.is_repeated { "[" } else { "" };
            write!(out, "{}{comma}\"{}\":{begin}", end(last), field.name)?;
        }
        last = Some(field);
        match (encoded.content, field.kind) {
            (Some(content), Kind::Message(fields)) => object(content, fields(), out)?,
            (Some(content), Kind::Text) => {
                let text = str::from_utf8(content).map_err(io::Error::other)?;
                serde_json::to_writer(&mut *out, text)?;
            }
            (Some(content), kind) => numbers(content, kind, out)?,
            (None, kind) => {
                let mut value = encoded.encoded;
                decode_key(&mut value).map_err(io::Error::other)?;
                numbers(value, kind, out)?;
            }
        }
    }
    write!(out, "{}}}", end(last))
}

/// Writes numbers, one after another.
fn numbers(mut encoded: &[u8], kind: Kind, out: &mut dyn Write) -> io::Result<()> {
    let mut comma = "";
    while !encoded.is_empty() {
        write!(out, "{comma}{}", number(&mut encoded, kind)?)?;
        comma = ",";
    }
    Ok(())
}

/// The next number, as in JSON.
fn number(encoded: &mut &[u8], kind: Kind) -> io::Result<String> {
    let varint = |encoded: &mut &[u8]| decode_varint(encoded).map_err(io::Error::other);
    Ok(match kind {
        Kind::Fixed => format!("\"{}\"", u64::from_le_bytes(eight(encoded)?)),
        Kind::Double => format!("\"{}\"", double(f64::from_le_bytes(eight(encoded)?))),
        Kind::Index => (varint(encoded)? as i32).to_string(),
        Kind::Signed => format!("\"{}\"", varint(encoded)? as i64),
        Kind::Unsigned => format!("\"{}\"", varint(encoded)?),
        Kind::Bool => (varint(encoded)? != 0).to_string(),
        Kind::Text | Kind::Message(_) => {
            return Err(io::Error::other("a number in place of a text or a message"));
        }
    })
}

/// A number with a fraction, by protobuf's names of what is none.
fn double(value: f64) -> String {
    match value {
        f64::INFINITY => "Infinity".to_owned(),
        f64::NEG_INFINITY => "-Infinity".to_owned(),
        value => value.to_string(),
    }
}

fn eight(encoded: &mut &[u8]) -> io::Result<[u8; 8]> {
    let mut bytes = [0; 8];
    encoded.read_exact(&mut bytes)?;
    Ok(bytes)
}
