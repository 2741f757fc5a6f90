//! Line tables of code objects.

use crate::php::InstructionLines;

/// A line table, as the interpreter has it. Positions are bytes from the first instruction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lines {
    /// `co_lnotab` (CPython up to 3.9): pairs of bytes, the distance to the next instruction and that
    /// to its line (`Objects/lnotab_notes.txt`).
    Pairs(Box<[u8]>),
    /// `co_linetable` of CPython 3.10: pairs of bytes, the size of a range and the distance to its
    /// line, which -128 says it has none (PEP 626).
    Ranges(Box<[u8]>),
    /// `co_linetable` of CPython 3.11 and later: entries of several bytes, of which only the first
    /// has its highest bit set (`Objects/locations.md`).
    Locations(Box<[u8]>),
    /// Lines of V8's bytecode: pairs of the position at which a line begins and the line
    /// ([`Lines::NONE`]: none), in the order of positions.
    Steps(Box<[(u32, u32)]>),
    /// `insns_info` of Ruby.
    Indexed(IndexedLines),
    /// Lines of PHP's instructions.
    Instructions(InstructionLines),
}

/// Lines with an index of their positions (Ruby's `struct succ_index_table`, `iseq.c`). Positions are
/// the low halves of addresses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IndexedLines {
    /// The low half of the address of the first instruction.
    pub start: u32,
    /// Number of words of the instructions.
    pub size: u32,
    /// The index: number of lines that begin at or before a word of the instructions. Empty if there is
    /// one line.
    pub index: Box<[u8]>,
    /// Lines, in the order of their positions.
    pub lines: Box<[u32]>,
}

impl IndexedLines {
    /// Words whose numbers of lines stand in the first words of the index.
    const IMMEDIATE: u32 = 54;
    /// Words with numbers of lines of seven bits.
    const IN_WORD: u32 = 9;
    /// Words in a block of the index.
    const IN_BLOCK: u32 = 512;
    /// Size of a block of the index in bytes: number of lines before it (4, and 4 unused), in each of
    /// its parts of 64 words (9 bits), and a bit for each word.
    const BLOCK: usize = 80;

    /// Size in bytes of the index of code of a number of words.
    pub(crate) fn index_size(size: u32) -> usize {
        if size < Self::IMMEDIATE {
            return size.div_ceil(Self::IN_WORD) as usize * 8;
        }
        let blocks = (size - Self::IMMEDIATE).div_ceil(Self::IN_BLOCK);
        (Self::IMMEDIATE / Self::IN_WORD) as usize * 8 + blocks as usize * Self::BLOCK
    }

    /// True if an instruction may begin at a position, or the last one ends there.
    pub(crate) fn contains(&self, position: u32) -> bool {
        self.word(position).is_some()
    }

    /// True if the index is that of the lines: all of them begin before the end of the code.
    pub(crate) fn is_whole(&self) -> bool {
        let all = self.size.checked_sub(1).and_then(|last| self.rank(last));
        self.lines.len() < 2 || all.is_some_and(|all| all as usize == self.lines.len())
    }

    /// The word of the instructions at a position.
    fn word(&self, position: u32) -> Option<u32> {
        let distance = position.wrapping_sub(self.start);
        let word = distance / 8;
        (distance.is_multiple_of(8) && word <= self.size).then_some(word)
    }

    /// The line of the instruction before a position, which is that of the next one.
    fn line(&self, position: u32) -> Option<u32> {
        let word = self.word(position)?.saturating_sub(1);
        let number = match self.lines.len() {
            1 => 1,
            _ => self.rank(word)?,
        };
        self.lines.get((number as usize).checked_sub(1)?).copied()
    }

    /// Number of lines that begin at or before a word.
    fn rank(&self, word: u32) -> Option<u32> {
        let at = |at: usize| {
            let word = self.index.get(at..)?.first_chunk()?;
            Some(u64::from_le_bytes(*word))
        };
        let Some(rest) = word.checked_sub(Self::IMMEDIATE) else {
            let ranks = at((word / Self::IN_WORD) as usize * 8)?;
            return Some((ranks >> (word % Self::IN_WORD * 7)) as u32 & 0x7f);
        };
        let immediate = (Self::IMMEDIATE / Self::IN_WORD) as usize * 8;
        let block = immediate + (rest / Self::IN_BLOCK) as usize * Self::BLOCK;
        let bit = rest % Self::IN_BLOCK;
        let part = bit / 64;
        let before = at(block)? as u32;
        let ranks = at(block + 8)?;
        let in_parts = if part == 0 { 0 } else { (ranks >> ((part - 1) * 9)) as u32 & 0x1ff };
        let bits = at(block + 16 + part as usize * 8)? << (63 - bit % 64);
        before.checked_add(in_parts)?.checked_add(bits.count_ones())
    }
}

impl Lines {
    /// No line.
    pub const NONE: u32 = 0;

    /// The line of a position in code whose first line is given; `None` if it has none.
    pub fn line(&self, first: u32, position: u32) -> Option<u32> {
        let line = match self {
            Lines::Pairs(table) => line_of_pairs(table, position),
            Lines::Ranges(table) => find(ranges(table), position)?,
            Lines::Locations(table) => find(locations(table), position)?,
            Lines::Steps(steps) => return line_of_steps(steps, position),
            Lines::Indexed(lines) => return lines.line(position).filter(|line| *line > 0),
            Lines::Instructions(table) => return table.line(position),
        };
        u32::try_from(i64::from(first) + line).ok().filter(|line| *line > 0)
    }

    /// Size in bytes of the code that it covers; `None` if the table does not state it.
    pub(crate) fn code_size(&self) -> Option<u64> {
        match self {
            Lines::Pairs(_) | Lines::Steps(_) | Lines::Indexed(_) | Lines::Instructions(_) => None,
            Lines::Ranges(table) => Some(ranges(table).map(|(size, _)| u64::from(size)).sum()),
            Lines::Locations(table) => {
                Some(locations(table).map(|(size, _)| u64::from(size)).sum())
            }
        }
    }

    /// Size of the table in bytes.
    pub fn len(&self) -> usize {
        match self {
            Lines::Pairs(table) | Lines::Ranges(table) | Lines::Locations(table) => table.len(),
            Lines::Steps(steps) => steps.len() * 8,
            Lines::Indexed(lines) => lines.index.len() + 4 * lines.lines.len(),
            Lines::Instructions(table) => table.len(),
        }
    }

    /// True if the table has no entry.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

fn line_of_steps(steps: &[(u32, u32)], position: u32) -> Option<u32> {
    let after = steps.partition_point(|(start, _)| *start <= position);
    let (_, line) = steps.get(after.checked_sub(1)?)?;
    Some(*line).filter(|line| *line != Lines::NONE)
}

/// The distance from the first line to that of a position.
fn line_of_pairs(table: &[u8], position: u32) -> i64 {
    let (mut at, mut line) = (0_u64, 0);
    for pair in table.chunks_exact(2) {
        at += u64::from(pair[0]);
        if at > u64::from(position) {
            break;
        }
        line += i64::from(pair[1] as i8);
    }
    line
}

/// The line of the range that contains a position, of ranges with their sizes.
fn find(ranges: impl Iterator<Item = (u32, Option<i64>)>, position: u32) -> Option<i64> {
    let mut end = 0_u64;
    for (size, line) in ranges {
        end += u64::from(size);
        if u64::from(position) < end {
            return line;
        }
    }
    None
}

/// Ranges of 3.10: size in bytes, and distance from the first line.
fn ranges(table: &[u8]) -> impl Iterator<Item = (u32, Option<i64>)> {
    let mut line = 0;
    table.chunks_exact(2).map(move |pair| match pair[1] as i8 {
        -128 => (pair[0].into(), None),
        distance => {
            line += i64::from(distance);
            (pair[0].into(), Some(line))
        }
    })
}

/// Ranges of 3.11 and later.
fn locations(table: &[u8]) -> impl Iterator<Item = (u32, Option<i64>)> {
    let mut rest = table;
    let mut line = 0;
    std::iter::from_fn(move || {
        let (first, tail) = rest.split_first()?;
        let size = (tail.iter().position(|byte| byte & 0x80 != 0)).unwrap_or(tail.len());
        let (entry, tail) = tail.split_at(size);
        rest = tail;
        // Kinds of `enum _PyCodeLocationInfoKind`.
        let distance = match (first >> 3) & 15 {
            15 => None,
            13 | 14 => Some(signed(entry)),
            kind @ 10..=12 => Some(i64::from(kind) - 10),
            _ => Some(0),
        };
        line += distance.unwrap_or(0);
        Some(((u32::from(first & 7) + 1) * 2, distance.map(|_| line)))
    })
}

/// A number of six bits a byte, the lowest first, of which the lowest bit is the sign.
fn signed(bytes: &[u8]) -> i64 {
    let mut value = 0_u32;
    for (i, byte) in bytes.iter().take(6).enumerate() {
        value |= u32::from(byte & 63).wrapping_shl(6 * i as u32);
        if byte & 64 == 0 {
            break;
        }
    }
    let magnitude = i64::from(value >> 1);
    if value & 1 == 0 { magnitude } else { -magnitude }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn pairs(table: &[u8]) -> Lines {
        Lines::Pairs(table.into())
    }

    #[test]
    fn pairs_are_added_up_to_the_position() {
        let table = pairs(&[6, 1, 2, 0xff, 255, 0, 45, 5]);
        let lines = [0, 5, 6, 8, 307, 308].map(|at| table.line(10, at).unwrap());
        assert_eq!(lines, [10, 10, 11, 10, 10, 15]);
    }

    #[test]
    fn ranges_may_have_no_line() {
        let table = Lines::Ranges([4, 1, 2, 0x80, 4, 0xff, 2, 3].into());
        let lines = [0, 3, 4, 6, 9, 10, 12].map(|at| table.line(7, at));
        assert_eq!(lines, [Some(8), Some(8), None, Some(7), Some(7), Some(10), None]);
        assert_eq!(table.code_size(), Some(12));
    }

    #[test]
    fn entries_of_locations_have_different_sizes() {
        // Short form; one line with columns; no columns (-3); long (+100); no location.
        let table = [
            0x80 | 1,
            0x12,
            0x80 | 11 << 3,
            1,
            2,
            0x80 | 13 << 3,
            7,
            0x80 | 14 << 3 | 1,
            0x40 | 8,
            3,
            0,
            1,
            1,
            0x80 | 15 << 3,
        ];
        let table = Lines::Locations(table.into());
        let lines = [0, 3, 4, 6, 8, 11, 12, 14].map(|at| table.line(50, at));
        let expected = [50, 50, 51, 48, 148, 148].map(Some);
        assert_eq!(lines[..6], expected);
        assert_eq!(lines[6..], [None, None]);
        assert_eq!(table.code_size(), Some(14));
    }

    /// The index of lines that begin at these words, as Ruby makes it (`succ_index_table_create`).
    fn index(size: u32, begins: &[u32]) -> Box<[u8]> {
        let rank = |word: u32| begins.iter().filter(|begin| **begin <= word).count() as u64;
        let mut words = Vec::new();
        for first in (0..IndexedLines::index_size(size.min(53)) as u32 / 8).map(|i| i * 9) {
            words.push((0..9).fold(0, |word, i| word | rank(first + i) << (7 * i)));
        }
        let blocks = size.saturating_sub(54).div_ceil(512);
        for first in (0..blocks).map(|block| 54 + 512 * block) {
            let before = rank(first - 1);
            words.push(before);
            let in_parts = |part: u32| rank(first + 64 * part - 1) - before;
            words.push((1..8).fold(0, |word, part| word | in_parts(part) << (9 * (part - 1))));
            for part in 0..8 {
                let begins = |i: u32| u64::from(begins.contains(&(first + 64 * part + i)));
                words.push((0..64).fold(0, |word, i| word | begins(i) << i));
            }
        }
        words.iter().flat_map(|word: &u64| word.to_le_bytes()).collect()
    }

    #[test]
    fn a_line_is_that_of_the_instruction_before() {
        let begins = [0, 3, 8, 9, 53, 54, 117, 118, 600, 1100];
        for size in [10, 53, 54, 55, 566, 567, 1200] {
            let lines: Vec<u32> = begins.iter().map(|begin| begin + 1000).collect();
            let index = index(size, &begins);
            assert_eq!(index.len(), IndexedLines::index_size(size), "{size}");
            let begun = begins.iter().filter(|begin| **begin < size).count();
            let whole =
                IndexedLines { start: 0, size, index: index.clone(), lines: lines[..begun].into() };
            let longer = IndexedLines { lines: vec![1; begun + 1].into(), ..whole.clone() };
            assert!(whole.is_whole() && !longer.is_whole(), "{size}");
            let table = IndexedLines { start: u32::MAX - 15, size, index, lines: lines.into() };
            let table = Lines::Indexed(table);
            for word in 1..=size {
                let expected = begins.iter().rev().find(|begin| **begin < word).unwrap() + 1000;
                let position = (u32::MAX - 15).wrapping_add(8 * word);
                assert_eq!(table.line(7, position), Some(expected), "{word} of {size}");
            }
            // The instruction before the first one, in the middle of a word, and outside.
            assert_eq!(table.line(7, u32::MAX - 15), Some(1000));
            assert_eq!(table.line(7, u32::MAX - 14), None);
            assert_eq!(table.line(7, (u32::MAX - 15).wrapping_add(8 * size + 8)), None);
        }
    }

    #[test]
    fn a_single_line_has_no_index() {
        let table = IndexedLines { start: 80, size: 3, index: [].into(), lines: [6].into() };
        let table = Lines::Indexed(table);
        assert_eq!([80, 104, 112].map(|at| table.line(1, at)), [Some(6), Some(6), None]);
    }

    proptest! {
        #[test]
        fn any_index_is_read_without_panic(
            index in proptest::collection::vec(any::<u8>(), 0..400),
            lines in proptest::collection::vec(any::<u32>(), 0..20),
            start: u32, size: u32, position: u32,
        ) {
            let index = index.into_boxed_slice();
            let table =
                IndexedLines { start, size: size % 3000, index, lines: lines.into() };
            let table = Lines::Indexed(table);
            for at in [position, start.wrapping_add(position % 3000 * 8)] {
                let _ = (table.line(1, at), table.len(), table.code_size());
                let Lines::Indexed(table) = &table else { unreachable!() };
                let _ = table.is_whole();
            }
        }

        #[test]
        fn any_table_is_read_without_panic(
            table in proptest::collection::vec(any::<u8>(), 0..60), first: u32, position: u32,
        ) {
            let table: Box<[u8]> = table.into();
            for lines in [Lines::Pairs(table.clone()), Lines::Ranges(table.clone()),
                          Lines::Locations(table)] {
                let _ = (lines.line(first, position), lines.line(first, position % 99),
                         lines.code_size());
            }
        }
    }
}
