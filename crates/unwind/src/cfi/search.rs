//! Means to find an entry in `.eh_frame`.

use gimli::{BaseAddresses, EhFrameHdr, LittleEndian};

use super::copied::PAIRS;
use super::memory::Slot;
use crate::module::SectionBytes;

/// Means to find an entry in `.eh_frame`.
pub(super) enum Search {
    /// `.eh_frame_hdr` with a table as linkers write it.
    Usual(UsualTable),
    /// Another `.eh_frame_hdr` with a table.
    Other(SectionBytes),
    /// An index of the section.
    Index(Slot),
}

/// A search table as linkers write it: pairs of distances from the section's own address, in four
/// bytes each.
pub(super) struct UsualTable {
    pub hdr: SectionBytes,
    /// Address of `.eh_frame_hdr`.
    base: u64,
    pairs: usize,
    /// Address of `.eh_frame`.
    eh_frame: u64,
}

/// Bytes before the table of a usual `.eh_frame_hdr`.
const TABLE_AT: usize = 12;

impl Search {
    pub fn new(hdr: Option<SectionBytes>, bases: &BaseAddresses) -> Search {
        /// Version 1; pcrel sdata4, udata4, datarel sdata4.
        const USUAL: [u8; 4] = [1, 0x1b, 0x03, 0x3b];
        let Some(hdr) = hdr else { return Search::Index(Slot::default()) };
        let parsed = EhFrameHdr::new(&hdr, LittleEndian).parse(bases, 8);
        let parsed = parsed.ok().and_then(|h| {
            let eh_frame = h.eh_frame_ptr().direct();
            let pairs = h.table()?.iter(bases).size_hint().0;
            Some((pairs, eh_frame))
        });
        match (parsed, bases.eh_frame_hdr.section) {
            (None, _) => Search::Index(Slot::default()),
            (Some((pairs, Ok(eh_frame))), Some(base))
                if hdr.starts_with(&USUAL) && pairs <= (hdr.len() - TABLE_AT) / 8 =>
            {
                Search::Usual(UsualTable { hdr, base, pairs, eh_frame })
            }
            (Some(_), _) => Search::Other(hdr),
        }
    }
}

impl UsualTable {
    fn pairs(&self) -> &[u8] {
        self.hdr.get(TABLE_AT..).and_then(|table| table.get(..self.pairs * 8)).unwrap_or_default()
    }

    /// Offset in `.eh_frame` of the entry that may contain an address.
    pub fn offset(&self, address: u64) -> Option<usize> {
        self.offset_in(self.pairs(), address)
    }

    /// The same by a part of the table.
    pub fn offset_in(&self, table: &[u8], address: u64) -> Option<usize> {
        let pair = table.as_chunks::<8>().0.get(self.search(table, address))?;
        usize::try_from(self.address(pair, 4).checked_sub(self.eh_frame)?).ok()
    }

    /// Number of parts.
    pub fn parts(&self) -> usize {
        self.pairs.div_ceil(PAIRS)
    }

    /// A part, by number.
    pub fn part(&self, number: u32) -> Option<&[u8]> {
        self.pairs().chunks(PAIRS * 8).nth(number as usize)
    }

    /// The first pairs of all parts.
    pub fn firsts(&self) -> Vec<u8> {
        self.pairs().chunks(PAIRS * 8).flat_map(|part| &part[..8]).copied().collect()
    }

    /// Number of the part for an address, by the first pairs of all.
    pub fn part_of(&self, firsts: &[u8], address: u64) -> Option<u32> {
        u32::try_from(self.search(firsts, address)).ok()
    }

    /// One of the two addresses of a pair.
    fn address(&self, pair: &[u8; 8], at: usize) -> u64 {
        let bytes = pair[at..].first_chunk::<4>().copied().unwrap_or_default();
        self.base.wrapping_add_signed(i32::from_le_bytes(bytes).into())
    }

    /// Number of the pair for an address. Takes the same one as gimli.
    fn search(&self, table: &[u8], address: u64) -> usize {
        let table = table.as_chunks::<8>().0;
        let (mut first, mut pairs) = (0, table.len());
        while pairs > 1 {
            let middle = pairs / 2;
            match self.address(&table[first + middle], 0).cmp(&address) {
                std::cmp::Ordering::Equal => return first + middle,
                std::cmp::Ordering::Less => {
                    first += middle;
                    pairs -= middle;
                }
                std::cmp::Ordering::Greater => pairs = middle,
            }
        }
        first
    }
}
