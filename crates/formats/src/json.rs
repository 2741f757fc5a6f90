//! JSON, read as a stream.
//!
//! The memory of what is read is counted while it is read: arrays of values that are kept are read
//! with [`list`] or [`count`], texts with [`text`].

use std::cell::Cell;
use std::fmt;
use std::io::{self, BufReader, Read};
use std::marker::PhantomData;

use serde::de::{Deserialize, DeserializeSeed, Deserializer, Error, SeqAccess, Visitor};

use crate::assembly::excess;
use crate::error::ReadError;
use crate::unpacked::Unpacked;

/// Longest error of the parser in bytes: it may contain text of the file.
const LONGEST: usize = 200;

/// A value, and the memory that a profile made of it may take, in bytes.
pub(crate) struct Parsed<T> {
    pub value: T,
    pub memory_allowed: u64,
}

/// Memory in bytes.
#[derive(Clone, Copy, Default)]
struct Memory {
    used: u64,
    /// By what was read of the file so far.
    allowed: u64,
}

thread_local! {
    /// The memory of the value that this thread reads: derived readers can pass nothing on.
    static MEMORY: Cell<Memory> = const { Cell::new(Memory { used: 0, allowed: 0 }) };
}

/// A content that updates the memory allowed.
struct Metered<'r>(Unpacked<'r>);

impl Read for Metered<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let read = self.0.read(out)?;
        MEMORY.set(Memory { allowed: self.0.memory_allowed(), ..MEMORY.get() });
        Ok(read)
    }
}

/// Counts memory of the value that is read, in bytes.
///
/// # Errors
///
/// It is more than allowed.
pub(crate) fn count<E: Error>(bytes: usize) -> Result<(), E> {
    let mut memory = MEMORY.get();
    memory.used = memory.used.saturating_add(bytes as u64);
    MEMORY.set(memory);
    excess(memory.used, memory.allowed).map_or(Ok(()), |excess| Err(E::custom(excess)))
}

/// Reads an array, and counts its memory. `null` is an empty one.
///
/// # Errors
///
/// As those of [`count`] and of the elements.
pub(crate) fn list<'de, T: Deserialize<'de>, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Vec<T>, D::Error> {
    struct List<T>(PhantomData<T>);

    impl<'de, T: Deserialize<'de>> Visitor<'de> for List<T> {
        type Value = Vec<T>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an array")
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut all: A) -> Result<Vec<T>, A::Error> {
            let mut list = Vec::new();
            while let Some(element) = all.next_element()? {
                count(size_of::<T>())?;
                list.push(element);
            }
            Ok(list)
        }

        fn visit_unit<E: Error>(self) -> Result<Vec<T>, E> {
            Ok(Vec::new())
        }
    }

    deserializer.deserialize_any(List(PhantomData))
}

/// Reads a text, and counts its memory.
///
/// # Errors
///
/// As those of [`count`], or it is no text.
pub(crate) fn text<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    let text = String::deserialize(deserializer)?;
    count(text.capacity()).map(|()| text)
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
    MEMORY.set(Memory::default());
    let mut reader = BufReader::with_capacity(64 << 10, Metered(Unpacked::new(input)?));
    skip_mark(&mut reader)?;
    let mut parser = serde_json::Deserializer::from_reader(&mut reader);
    parser.disable_recursion_limit();
    let value = seed.deserialize(&mut parser).and_then(|value| parser.end().map(|()| value));
    let value = value.map_err(|error| invalid(title, error))?;
    Ok(Parsed { value, memory_allowed: reader.get_ref().0.memory_allowed() })
}

/// Reads all values of a stream, one after the other, with a seed for each; at least one.
///
/// # Errors
///
/// As those of [`read`].
pub(crate) fn read_all<T, S: for<'de> DeserializeSeed<'de, Value = T>>(
    title: &'static str,
    input: &mut dyn Read,
    seed: impl Fn() -> S,
) -> Result<Parsed<Vec<T>>, ReadError> {
    MEMORY.set(Memory::default());
    let mut reader = BufReader::with_capacity(64 << 10, Metered(Unpacked::new(input)?));
    skip_mark(&mut reader)?;
    let mut parser = serde_json::Deserializer::from_reader(&mut reader);
    parser.disable_recursion_limit();
    let mut value = Vec::new();
    loop {
        let next = seed().deserialize(&mut parser);
        value.push(next.map_err(|error| invalid(title, error))?);
        if parser.end().is_ok() {
            break;
        }
    }
    Ok(Parsed { value, memory_allowed: reader.get_ref().0.memory_allowed() })
}

/// Skips a byte order mark.
fn skip_mark(reader: &mut BufReader<Metered<'_>>) -> Result<(), ReadError> {
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

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::Compression;
    use flate2::write::GzEncoder;

    use crate::Format;
    use crate::speedscope::Speedscope;
    use crate::v8::{CpuProfile, HeapProfile};

    fn repeated(begin: &str, element: &str, count: usize) -> Vec<u8> {
        let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
        gzip.write_all(begin.as_bytes()).unwrap();
        let part = element.repeat(1000);
        (0..count / 1000).for_each(|_| gzip.write_all(part.as_bytes()).unwrap());
        gzip.finish().unwrap()
    }

    #[test]
    fn memory_is_bounded_while_json_is_read() {
        let frames = r#"{"shared":{"frames":["#;
        let profiles = r#"{"shared":{"frames":[]},"profiles":["#;
        let formats: [(&dyn Format, &str, &str, usize); 4] = [
            (&HeapProfile, r#"{"head":{"children":["#, "{},", 9_000_000),
            (&CpuProfile, r#"{"nodes":["#, r#"{"id":1,"callFrame":{}},"#, 5_000_000),
            (&Speedscope, frames, r#"{"name":""},"#, 9_000_000),
            (&Speedscope, profiles, r#"{"type":""},"#, 5_000_000),
        ];
        for (format, begin, element, count) in formats {
            let packed = repeated(begin, element, count);
            let error = format.read(&mut &*packed).unwrap_err().to_string();
            assert!(error.contains(" MiB of memory up to here, too much"), "{begin}: {error}");
        }
    }
}
