//! JSON, read as a stream.

use std::io::{BufReader, Read};

use serde::de::DeserializeSeed;

use crate::error::ReadError;
use crate::unpacked::Unpacked;

/// Longest error of the parser in bytes: it may contain text of the file.
const LONGEST: usize = 200;

/// A value, and the memory that a profile made of it may take, in bytes.
pub(crate) struct Parsed<T> {
    pub value: T,
    pub memory_allowed: u64,
}

/// Reads the only value of a stream, which may be compressed with gzip. `seed` bounds the depth, if
/// its values contain others of their kind; the parser bounds that of no other.
///
/// # Errors
///
/// The stream cannot be read, or is no such value.
pub(crate) fn read<T>(
    title: &'static str,
    input: &mut dyn Read,
    seed: impl for<'de> DeserializeSeed<'de, Value = T>,
) -> Result<Parsed<T>, ReadError> {
    let mut reader = BufReader::with_capacity(64 << 10, Unpacked::new(input)?);
    skip_mark(&mut reader)?;
    let mut parser = serde_json::Deserializer::from_reader(&mut reader);
    parser.disable_recursion_limit();
    let value = seed.deserialize(&mut parser).and_then(|value| parser.end().map(|()| value));
    let value = value.map_err(|error| invalid(title, error))?;
    Ok(Parsed { value, memory_allowed: reader.get_ref().memory_allowed() })
}

/// Skips a byte order mark.
fn skip_mark(reader: &mut BufReader<Unpacked<'_>>) -> Result<(), ReadError> {
    use std::io::BufRead;
    const MARK: &[u8] = "\u{feff}".as_bytes();
    if reader.fill_buf()?.starts_with(MARK) {
        reader.consume(MARK.len());
    }
    Ok(())
}

fn invalid(title: &'static str, error: serde_json::Error) -> ReadError {
    if error.is_io() {
        return ReadError::io(error.into());
    }
    let mut text = error.to_string();
    if text.len() > LONGEST {
        let place = format!("… at line {} column {}", error.line(), error.column());
        let end = (0..=LONGEST).rev().find(|&end| text.is_char_boundary(end)).unwrap_or(0);
        text.truncate(end);
        text += &place;
    }
    ReadError::invalid(title, text)
}
