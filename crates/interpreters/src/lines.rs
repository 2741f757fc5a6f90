//! Line tables of code objects.

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
    /// Lines of V8's code, in the order of positions. Those of machine code are numbers of their own
    /// ([`Steps::CODE`]).
    Steps(Box<Steps>),
}

/// The lines of a function of V8: pairs of the position at which a line begins and the line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Steps {
    /// Of bytecode.
    pub bytecode: Vec<(u32, u32)>,
    /// Of the machine code that the function had, by the low bits of addresses.
    pub code: Vec<(u32, u32)>,
}

impl Steps {
    /// In a position: it is that of machine code.
    pub const CODE: u32 = 1 << 31;

    /// Line 0 of a pair: there is none.
    pub const NONE: u32 = 0;

    /// That of machine code without a table is the first line.
    fn line(&self, first: u32, position: u32) -> Option<u32> {
        let is_code = position & Steps::CODE != 0;
        let steps = if is_code { &self.code } else { &self.bytecode };
        let found = match steps.partition_point(|(start, _)| *start <= position) {
            0 if is_code => Some(first),
            0 => None,
            after => steps.get(after - 1).map(|(_, line)| *line),
        };
        found.filter(|line| *line != Steps::NONE)
    }
}

impl Lines {
    /// The line of a position in code whose first line is given; `None` if it has none.
    pub fn line(&self, first: u32, position: u32) -> Option<u32> {
        let line = match self {
            Lines::Pairs(table) => line_of_pairs(table, position),
            Lines::Ranges(table) => find(ranges(table), position)?,
            Lines::Locations(table) => find(locations(table), position)?,
            Lines::Steps(steps) => return steps.line(first, position),
        };
        u32::try_from(i64::from(first) + line).ok().filter(|line| *line > 0)
    }

    /// Size in bytes of the code that it covers; `None` if the table does not state it.
    pub(crate) fn code_size(&self) -> Option<u64> {
        match self {
            Lines::Pairs(_) | Lines::Steps(_) => None,
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
            Lines::Steps(steps) => (steps.bytecode.len() + steps.code.len()) * 8,
        }
    }

    /// True if the table has no entry.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
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

    proptest! {
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
