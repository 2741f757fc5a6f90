//! The string table of a file, and indexes into it.
//!
//! Other messages refer to strings by index, mostly before the table. Until then an index is stored
//! as if it were a [`StrId`], which is right if the file's strings are distinct.

use profile::label::{TIMESTAMP, TIMESTAMP_UNIT};
use profile::{StrId, StringTable};

use crate::error::ReadError;

/// Strings of a file while it is read.
pub(super) struct Strings {
    /// The distinct strings.
    pub table: StringTable,
    /// Bytes of text.
    text: u64,
    /// Number of strings in the file.
    count: u32,
    /// Id of each string in the file; empty while number i has the id i.
    map: Vec<StrId>,
    /// Largest index used, and its offset.
    max_use: u32,
    max_use_at: u64,
    /// Number of the string [`TIMESTAMP`], once it was read.
    timestamp: Option<u32>,
    /// Number of the string [`TIMESTAMP_UNIT`].
    timestamp_unit: Option<u32>,
}

impl Strings {
    pub(super) fn new() -> Strings {
        Strings {
            table: StringTable::default(),
            text: 0,
            count: 0,
            map: Vec::new(),
            max_use: 0,
            max_use_at: 0,
            timestamp: None,
            timestamp_unit: None,
        }
    }

    /// Adds the next string of the file. Invalid UTF-8 is replaced.
    pub(super) fn define(&mut self, bytes: &[u8], at: u64) -> Result<(), ReadError> {
        if self.count == 0 && !bytes.is_empty() {
            return Err(ReadError::at(at, "the first string of the string table is not empty"));
        }
        if bytes == TIMESTAMP.as_bytes() {
            self.timestamp = Some(self.count);
        } else if bytes == TIMESTAMP_UNIT.as_bytes() {
            self.timestamp_unit = Some(self.count);
        }
        let before = self.table.len();
        let id = match std::str::from_utf8(bytes) {
            Ok(text) => self.table.intern(text),
            Err(_) => self.table.intern(&String::from_utf8_lossy(bytes)),
        };
        if self.table.len() > before {
            // Replacement characters are three bytes each.
            self.text += 3 * bytes.len() as u64;
        }
        if id.0 != self.count && self.map.is_empty() {
            self.map.extend((0..self.count).map(StrId));
        }
        if id.0 != self.count || !self.map.is_empty() {
            self.map.push(id);
        }
        self.count += 1;
        Ok(())
    }

    /// Stores a use of the string number `raw`.
    #[inline]
    pub(super) fn keep(&mut self, raw: u64, at: u64) -> Result<StrId, ReadError> {
        let Ok(index) = u32::try_from(raw) else {
            let raw = raw as i64;
            return Err(ReadError::at(at, format!("string number {raw} cannot exist")));
        };
        if index > self.max_use {
            (self.max_use, self.max_use_at) = (index, at);
        }
        Ok(StrId(index))
    }

    /// True if a label with this key and unit, as stored, is known to be a time.
    #[inline]
    pub(super) fn is_time(&self, key: StrId, unit: StrId) -> bool {
        self.timestamp == Some(key.0) && self.timestamp_unit == Some(unit.0)
    }

    /// Its memory.
    pub(super) fn bytes(&self) -> u64 {
        self.text + 24 * self.table.len() as u64 + 4 * self.map.len() as u64
    }

    /// Checks all uses after everything has been read. String 0 is always the empty one.
    pub(super) fn check(&self) -> Result<(), ReadError> {
        if self.max_use > 0 && self.max_use >= self.count {
            let index = self.max_use;
            let count = self.count;
            let what = format!("string number {index} is used, but the table has {count} strings");
            return Err(ReadError::at(self.max_use_at, what));
        }
        Ok(())
    }

    /// True if stored uses are not ids yet.
    pub(super) fn needs_translation(&self) -> bool {
        !self.map.is_empty()
    }

    /// The id for a stored use; call after [`Strings::check`].
    pub(super) fn id(&self, kept: StrId) -> StrId {
        self.map.get(kept.0 as usize).copied().unwrap_or(StrId::EMPTY)
    }
}
