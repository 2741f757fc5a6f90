//! Debug information of compiled code: which methods, one inlined into the other, an instruction is of
//! (`PcDesc`, `ScopeDesc`, `CompressedStream`).

use super::blob::DebugPlaces;
use crate::{Memory, ReadError};

/// Largest tables, in bytes.
const MOST_SCOPES: u64 = 4 << 20;
/// See [`MOST_SCOPES`].
const MOST_POSITIONS: u64 = 4 << 20;
/// See [`MOST_SCOPES`].
const MOST_METADATA: u64 = 256 << 10;

/// Size of a `PcDesc`.
const POSITION: usize = 16;

/// Most methods that are inlined into each other.
const DEEPEST: usize = 256;

/// Debug information of a method's code.
#[derive(Debug)]
pub struct DebugInfo {
    /// Instructions and their scopes: distance from the first instruction, and place in `scopes`, in
    /// the order of instructions.
    positions: Vec<(i32, u32)>,
    scopes: Vec<u8>,
    /// Methods, and other objects.
    metadata: Vec<u64>,
    excludes_zero: bool,
}

/// A method that an instruction is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scope {
    /// The address of the method.
    pub method: u64,
    /// The position in its bytecode; -1 before the first instruction.
    pub bci: i32,
}

impl DebugInfo {
    /// That of a method at these places.
    pub fn read(
        places: &DebugPlaces,
        excludes_zero: bool,
        memory: &dyn Memory,
    ) -> Result<DebugInfo, ReadError> {
        let bytes = |range: &std::ops::Range<u64>, most: u64| {
            let size = range.end.saturating_sub(range.start).min(most);
            let mut bytes = vec![0; size as usize];
            memory.read(range.start, &mut bytes)?;
            Ok(bytes)
        };
        let positions = bytes(&places.positions, MOST_POSITIONS)?;
        let half = |bytes: &[u8]| u32::from_le_bytes(*bytes.first_chunk().expect("four bytes"));
        let pair = |bytes: &[u8]| (half(bytes).cast_signed(), half(&bytes[4..]));
        let positions = positions.chunks_exact(POSITION).map(pair).collect();
        let scopes = bytes(&places.scopes, MOST_SCOPES)?;
        let metadata = bytes(&places.metadata, MOST_METADATA)?;
        let word = |bytes: &[u8]| u64::from_le_bytes(*bytes.first_chunk().expect("eight bytes"));
        let metadata = metadata.chunks_exact(8).map(word).collect();
        Ok(DebugInfo { positions, scopes, metadata, excludes_zero })
    }

    /// Bytes of memory that it takes.
    pub fn cost(&self) -> usize {
        self.positions.len() * 8 + self.scopes.len() + self.metadata.len() * 8
    }

    /// True if exactly this distance from the first instruction is described.
    pub fn describes(&self, distance: u64) -> bool {
        let distance = i32::try_from(distance);
        distance.is_ok_and(|distance| {
            self.positions.binary_search_by_key(&distance, |(at, _)| *at).is_ok()
        })
    }

    /// The methods of the first described instruction at or behind a distance from the first one, the
    /// innermost first; none if the compiler has described none.
    pub fn scopes(&self, distance: u32) -> Vec<Scope> {
        let mut scopes = Vec::new();
        let Ok(distance) = i32::try_from(distance) else { return scopes };
        let first = self.positions.partition_point(|(at, _)| *at < distance);
        let Some(&(_, place)) = self.positions.get(first) else { return scopes };
        let mut place = place as usize;
        while place != 0 && scopes.len() < DEEPEST {
            let mut at = place;
            let mut number = || number(&self.scopes, &mut at, self.excludes_zero);
            let read = number().zip(number()).zip(number());
            let Some(((sender, method), bci)) = read else { return Vec::new() };
            let method = (method as usize).checked_sub(1).and_then(|at| self.metadata.get(at));
            let Some(&method) = method else { return Vec::new() };
            scopes.push(Scope { method, bci: (bci.cast_signed()).wrapping_sub(1) });
            // The scope around it was written before.
            if sender as usize >= place {
                return Vec::new();
            }
            place = sender as usize;
        }
        scopes
    }
}

/// A compressed number (`UNSIGNED5`): bytes of six bits each, of which only the last is below 192, or
/// the fifth.
pub fn number(bytes: &[u8], at: &mut usize, excludes_zero: bool) -> Option<u32> {
    const LAST: u8 = 192;
    let excluded = u32::from(excludes_zero);
    let mut sum = 0_u32;
    for i in 0..5 {
        let byte = *bytes.get(*at)?;
        *at += 1;
        sum = sum.wrapping_add(u32::from(byte).checked_sub(excluded)? << (6 * i));
        if byte < LAST {
            break;
        }
    }
    Some(sum)
}

/// The same of a number with a sign.
pub fn signed(bytes: &[u8], at: &mut usize, excludes_zero: bool) -> Option<i32> {
    let number = number(bytes, at, excludes_zero)?;
    Some((number >> 1).cast_signed() ^ -((number & 1).cast_signed()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_those_of_both_encodings() {
        let read = |bytes: &[u8], excludes| {
            let mut at = 0;
            number(bytes, &mut at, excludes).map(|number| (number, at))
        };
        // unsigned5.hpp: the largest of one byte, and the first of two.
        assert_eq!(read(&[0], false), Some((0, 1)));
        assert_eq!(read(&[191], false), Some((191, 1)));
        assert_eq!(read(&[192, 0], false), Some((192, 2)));
        assert_eq!(read(&[1], true), Some((0, 1)));
        assert_eq!(read(&[191], true), Some((190, 1)));
        assert_eq!(read(&[192, 1], true), Some((191, 2)));
        assert_eq!(read(&[0], true), None);
        assert_eq!(read(&[255; 5], false).map(|(_, at)| at), Some(5));
        assert_eq!(read(&[255; 4], false), None);
        let negative = |bytes: &[u8]| signed(bytes, &mut 0, false);
        assert_eq!([negative(&[0]), negative(&[1]), negative(&[2])], [Some(0), Some(-1), Some(1)]);
    }

    #[test]
    fn scopes_that_lead_in_a_circle_are_none() {
        let info = |scopes: &[u8], place| DebugInfo {
            positions: vec![(-1, 0), (10, place)],
            scopes: scopes.to_vec(),
            metadata: vec![0x1000, 0x2000],
            excludes_zero: false,
        };
        let outer = Scope { method: 0x2000, bci: 7 };
        let inner = Scope { method: 0x1000, bci: 4 };
        // The first method, in the second.
        let scopes = [9, 0, 2, 8, 1, 1, 5];
        assert_eq!(info(&scopes, 1).scopes(3), vec![outer]);
        assert_eq!(info(&scopes, 4).scopes(10), vec![inner, outer]);
        assert_eq!(info(&scopes, 4).scopes(11), Vec::new());
        let itself = [9, 1, 2, 8];
        assert_eq!(info(&itself, 1).scopes(10), Vec::new());
        let beyond = [9, 0, 3, 8];
        assert_eq!(info(&beyond, 1).scopes(10), Vec::new());
    }
}
