//! Objects on V8's heap.

use super::Offsets;
use crate::memory::{Memory, ReadError};

/// What is added to the address of an object in a pointer to it (`kHeapObjectTag`).
pub(super) const TAG: i32 = 1;

/// Most strings that a string is made of, and most that are inside of each other.
const MAX_PARTS: usize = 256;

/// True for pointers to objects; others are small integers, or weak.
pub(super) fn is_object(word: u64) -> bool {
    word & 3 == 1 && word > 4096
}

/// The object of a weak pointer.
pub(super) fn weak_object(word: u64) -> Option<u64> {
    (word & 3 == 3 && word > 4096).then_some(word - 2)
}

/// The small integer of a word (without compressed pointers: the upper half).
pub(super) fn small(word: u64) -> Option<i32> {
    (word as u32 == 0).then_some((word >> 32) as i32)
}

/// The reason why an object cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum No {
    Memory(ReadError),
    /// Another object, or none.
    Other,
}

impl From<ReadError> for No {
    fn from(error: ReadError) -> No {
        match error {
            // Memory that was freed may be unmapped.
            ReadError::Unmapped => No::Other,
            error => No::Memory(error),
        }
    }
}

/// Reads objects.
#[derive(Clone, Copy)]
pub(super) struct Heap<'a> {
    pub offsets: &'a Offsets,
    pub memory: &'a dyn Memory,
}

impl Heap<'_> {
    /// The word of an object at an offset.
    pub fn word(&self, object: u64, offset: u32) -> Result<u64, No> {
        Ok(self.memory.word(at(object, offset.into()))?)
    }

    /// The 32-bit number of an object at an offset.
    pub fn half(&self, object: u64, offset: u32) -> Result<u32, No> {
        Ok(self.memory.half(at(object, offset.into()))?)
    }

    /// Words of an object from an offset on.
    pub fn words<const N: usize>(&self, object: u64, offset: u32) -> Result<[u64; N], No> {
        let mut bytes = [[0; 8]; N];
        self.memory.read(at(object, offset.into()), bytes.as_flattened_mut())?;
        Ok(bytes.map(u64::from_le_bytes))
    }

    /// A number of words from an index of an array on, which the caller has bounded.
    pub fn items(&self, array: u64, from: u32, count: u32) -> Result<Vec<u64>, No> {
        let mut bytes = vec![0; count as usize * 8];
        let first = u64::from(self.offsets.array[1]) + u64::from(from) * 8;
        self.memory.read(at(array, first), &mut bytes)?;
        let words = bytes.as_chunks::<8>().0.iter();
        Ok(words.map(|word| u64::from_le_bytes(*word)).collect())
    }

    /// The first bytes of an array of bytes, as many as the caller has bounded.
    pub fn bytes(&self, array: u64, count: u32) -> Result<Vec<u8>, No> {
        let mut bytes = vec![0; count as usize];
        self.memory.read(at(array, self.offsets.array[1].into()), &mut bytes)?;
        Ok(bytes)
    }

    /// The type of an object.
    pub fn kind(&self, object: u64) -> Result<u32, No> {
        if !is_object(object) {
            return Err(No::Other);
        }
        let map = self.word(object, 0)?;
        if !is_object(map) {
            return Err(No::Other);
        }
        Ok(self.memory.half(at(map, self.offsets.map_type.into()))? & 0xffff)
    }

    /// The object if it has the type.
    pub fn typed(&self, object: u64, kind: u32) -> Result<u64, No> {
        if self.kind(object)? == kind { Ok(object) } else { Err(No::Other) }
    }

    /// The `Code` of an object with instructions.
    pub fn code_of(&self, stream: u64) -> Result<u64, No> {
        if self.offsets.code.has_instructions() { Ok(stream) } else { self.word(stream, 8) }
    }

    /// Length of an array.
    pub fn length(&self, array: u64) -> Result<u32, No> {
        let length = small(self.word(array, self.offsets.array[0])?);
        length.and_then(|length| u32::try_from(length).ok()).ok_or(No::Other)
    }

    /// True if an object is a string.
    pub fn is_string(&self, object: u64) -> Result<bool, No> {
        Ok(self.kind(object)? < self.offsets.types.strings)
    }

    /// Number of characters of a string.
    pub fn string_length(&self, object: u64) -> Result<u32, No> {
        if !self.is_string(object)? {
            return Err(No::Other);
        }
        let length = self.memory.half(at(object, self.offsets.string_length.into()))?;
        // `String::kMaxLength` is 2^29 - 24.
        if length < 1 << 30 { Ok(length) } else { Err(No::Other) }
    }

    /// The first characters of a string, at most `most`, and whether there are more.
    pub fn text(&self, object: u64, most: u32) -> Result<(String, bool), No> {
        let length = self.string_length(object)?;
        let units = self.units(object, 0, length.min(most))?;
        let text = String::from_utf16_lossy(&units);
        // Neither names nor files contain it; memory that is no text does.
        if text.contains('\0') {
            return Err(No::Other);
        }
        Ok((text, length > most))
    }

    /// Characters of a string from a number on, of which it has as many.
    pub fn units(&self, object: u64, from: u32, count: u32) -> Result<Vec<u16>, No> {
        let mut units = Vec::new();
        // Strings, the first character and the number of characters of each.
        let mut open: Vec<(u64, u32, u32)> = vec![(object, from, count)];
        let mut parts = 0;
        while let Some((object, from, count)) = open.pop() {
            if count == 0 {
                continue;
            }
            parts += 1;
            if parts > MAX_PARTS {
                return Err(No::Other);
            }
            let length = self.string_length(object)?;
            if from.checked_add(count).is_none_or(|end| end > length) {
                return Err(No::Other);
            }
            self.part(object, from, count, &mut open, &mut units)?;
        }
        Ok(units)
    }

    /// Reads a part of a string: its characters, or which strings have them.
    fn part(
        &self,
        object: u64,
        from: u32,
        count: u32,
        open: &mut Vec<(u64, u32, u32)>,
        units: &mut Vec<u16>,
    ) -> Result<(), No> {
        let offsets = self.offsets;
        let kind = self.kind(object)?;
        // `StringRepresentationMask`, `StringEncodingMask` and an external string that has no address.
        let (representation, is_one_byte, is_uncached) = (kind & 7, kind & 8 != 0, kind & 16 != 0);
        match representation {
            0 => {
                self.flat(at(object, offsets.string_chars.into()), is_one_byte, from, count, units)
            }
            1 => {
                let [first, second] = offsets.cons;
                let (first, second) = (self.word(object, first)?, self.word(object, second)?);
                let length = self.string_length(first)?;
                let head = length.saturating_sub(from).min(count);
                open.push((second, from.saturating_sub(length), count - head));
                open.push((first, from, head));
                Ok(())
            }
            2 if !is_uncached => {
                let chars = self.word(object, offsets.external)?;
                self.flat(chars, is_one_byte, from, count, units)
            }
            3 => {
                let [parent, offset] = offsets.sliced;
                let offset = small(self.word(object, offset)?).unwrap_or(-1);
                let offset = u32::try_from(offset).map_err(|_| No::Other)?;
                let from = from.checked_add(offset).ok_or(No::Other)?;
                open.push((self.word(object, parent)?, from, count));
                Ok(())
            }
            5 => {
                open.push((self.word(object, offsets.thin)?, from, count));
                Ok(())
            }
            _ => Err(No::Other),
        }
    }

    fn flat(
        &self,
        chars: u64,
        is_one_byte: bool,
        from: u32,
        count: u32,
        units: &mut Vec<u16>,
    ) -> Result<(), No> {
        let size = if is_one_byte { 1 } else { 2 };
        let mut bytes = vec![0; count as usize * size];
        let first = chars.wrapping_add(u64::from(from) * size as u64);
        self.memory.read(first, &mut bytes)?;
        if is_one_byte {
            units.extend(bytes.into_iter().map(u16::from));
        } else {
            let pairs = bytes.as_chunks::<2>().0.iter();
            units.extend(pairs.map(|pair| u16::from_le_bytes(*pair)));
        }
        Ok(())
    }
}

fn at(object: u64, offset: u64) -> u64 {
    object.wrapping_sub(TAG as u64).wrapping_add(offset)
}
