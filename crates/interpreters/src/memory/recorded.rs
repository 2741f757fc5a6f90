//! Memory that was recorded: ranges of addresses with their bytes, and facts about the process.

use std::cell::RefCell;
use std::collections::BTreeMap;

use super::{Memory, ReadError};

/// First line of a file with recorded memory.
const MAGIC: &str = "recorded memory 1";

/// Recorded memory. As a file: a line with the kind of file, lines `KEY VALUE`, an empty line, and
/// ranges: address (8 bytes), size (4 bytes), bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recorded {
    /// What else is to be known of the process, in order.
    pub facts: Vec<(String, String)>,
    ranges: BTreeMap<u64, Vec<u8>>,
}

impl Recorded {
    /// Adds bytes; they replace those of the same addresses.
    pub fn insert(&mut self, address: u64, bytes: &[u8]) {
        let end = address.saturating_add(bytes.len() as u64);
        let touches = |(start, old): &(&u64, &Vec<u8>)| **start + old.len() as u64 >= address;
        let touched: Vec<u64> =
            self.ranges.range(..=end).rev().take_while(touches).map(|(start, _)| *start).collect();
        let start = touched.last().map_or(address, |first| address.min(*first));
        let mut merged: Vec<u8> = Vec::new();
        let mut place = |at: u64, bytes: &[u8]| {
            let at = (at - start) as usize;
            if merged.len() < at + bytes.len() {
                merged.resize(at + bytes.len(), 0);
            }
            merged[at..at + bytes.len()].copy_from_slice(bytes);
        };
        for old in touched {
            place(old, &self.ranges.remove(&old).expect("it was found"));
        }
        place(address, bytes);
        self.ranges.insert(start, merged);
    }

    /// The value of a fact.
    pub fn fact(&self, key: &str) -> Option<&str> {
        self.facts.iter().find(|(name, _)| name == key).map(|(_, value)| value.as_str())
    }

    /// The ranges: first address and bytes.
    pub fn ranges(&self) -> impl Iterator<Item = (u64, &[u8])> {
        self.ranges.iter().map(|(start, bytes)| (*start, bytes.as_slice()))
    }

    /// The addresses of its words.
    pub fn words(&self) -> Vec<u64> {
        let words = |(start, bytes): (u64, &[u8])| (start..start + bytes.len() as u64).step_by(8);
        self.ranges().flat_map(words).collect()
    }

    /// As a file.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = format!("{MAGIC}\n").into_bytes();
        for (key, value) in &self.facts {
            out.extend(format!("{key} {value}\n").bytes());
        }
        out.push(b'\n');
        for (start, bytes) in &self.ranges {
            out.extend(start.to_le_bytes());
            out.extend((bytes.len() as u32).to_le_bytes());
            out.extend(bytes);
        }
        out
    }

    /// Reads a file; `None` if it is damaged.
    pub fn parse(file: &[u8]) -> Option<Recorded> {
        let end = file.windows(2).position(|pair| pair == b"\n\n")?;
        let mut lines = std::str::from_utf8(&file[..end]).ok()?.lines();
        if lines.next() != Some(MAGIC) {
            return None;
        }
        let fact = |line: &str| line.split_once(' ').map(|(k, v)| (k.to_owned(), v.to_owned()));
        let facts = lines.map(fact).collect::<Option<Vec<_>>>()?;
        let mut recorded = Recorded { facts, ranges: BTreeMap::new() };
        let mut rest = &file[end + 2..];
        while !rest.is_empty() {
            let (start, tail) = rest.split_first_chunk::<8>()?;
            let (size, tail) = tail.split_first_chunk::<4>()?;
            let (bytes, tail) = tail.split_at_checked(u32::from_le_bytes(*size) as usize)?;
            recorded.insert(u64::from_le_bytes(*start), bytes);
            rest = tail;
        }
        Some(recorded)
    }
}

impl Memory for Recorded {
    fn read(&self, address: u64, buffer: &mut [u8]) -> Result<(), ReadError> {
        let (start, bytes) =
            self.ranges.range(..=address).next_back().ok_or(ReadError::Unmapped)?;
        let from = (address - start) as usize;
        let range = bytes.get(from..).and_then(|bytes| bytes.get(..buffer.len()));
        buffer.copy_from_slice(range.ok_or(ReadError::Unmapped)?);
        Ok(())
    }
}

/// Memory of another source that records what is read.
pub struct Recorder<'a> {
    source: &'a dyn Memory,
    recorded: RefCell<Recorded>,
}

impl<'a> Recorder<'a> {
    /// Records what is read from this source.
    pub fn new(source: &'a dyn Memory) -> Recorder<'a> {
        Recorder { source, recorded: RefCell::default() }
    }

    /// What was read.
    pub fn into_recorded(self) -> Recorded {
        self.recorded.into_inner()
    }
}

impl Memory for Recorder<'_> {
    fn read(&self, address: u64, buffer: &mut [u8]) -> Result<(), ReadError> {
        self.source.read(address, buffer)?;
        self.recorded.borrow_mut().insert(address, buffer);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_that_touch_are_one() {
        let mut memory = Recorded::default();
        memory.insert(10, &[1, 2]);
        memory.insert(14, &[5]);
        memory.insert(12, &[3, 4]);
        memory.insert(11, &[9]);
        assert_eq!(memory.ranges().collect::<Vec<_>>(), [(10, &[1, 9, 3, 4, 5][..])]);
        memory.insert(20, &[7]);
        let mut two = [0; 2];
        assert_eq!((memory.read(13, &mut two), two), (Ok(()), [4, 5]));
        assert_eq!(memory.read(14, &mut two), Err(ReadError::Unmapped));
        assert_eq!(memory.read(9, &mut two), Err(ReadError::Unmapped));
    }

    #[test]
    fn what_is_read_is_recorded_and_survives_a_file() {
        let mut memory = Recorded::default();
        memory.insert(100, &[1; 50]);
        let recorder = Recorder::new(&memory);
        recorder.read(110, &mut [0; 8]).unwrap();
        recorder.read(140, &mut [0; 20]).unwrap_err();
        let mut recorded = recorder.into_recorded();
        assert_eq!(recorded.ranges().collect::<Vec<_>>(), [(110, &[1; 8][..])]);
        recorded.facts.push(("key".to_owned(), "a value".to_owned()));
        let file = recorded.to_bytes();
        assert_eq!(Recorded::parse(&file), Some(recorded));
        assert_eq!(Recorded::parse(&file[..file.len() - 1]), None);
    }
}
