//! Means to find an entry in `.eh_frame`.

use gimli::{BaseAddresses, EhFrameHdr, LittleEndian};

use super::memory::Slot;
use crate::module::SectionBytes;

/// Means to find an entry in `.eh_frame`.
pub(super) enum Search {
    /// `.eh_frame_hdr` with a table as linkers write it: pairs of distances from the section's own
    /// address, in four bytes each. The number of pairs, and the address of `.eh_frame`.
    Usual(SectionBytes, usize, u64),
    /// Another `.eh_frame_hdr` with a table.
    Other(SectionBytes),
    /// An index of the section.
    Index(Slot),
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
        match parsed {
            None => Search::Index(Slot::default()),
            Some((pairs, Ok(eh_frame)))
                if hdr.starts_with(&USUAL) && pairs <= (hdr.len() - TABLE_AT) / 8 =>
            {
                Search::Usual(hdr, pairs, eh_frame)
            }
            Some(_) => Search::Other(hdr),
        }
    }
}

/// Offset in `.eh_frame` of the entry that may contain an address, by a usual search table at
/// `base`. Takes the same one as gimli.
pub(super) fn search(
    hdr: &[u8],
    base: u64,
    mut pairs: usize,
    eh_frame: u64,
    address: u64,
) -> Option<usize> {
    let table = hdr.get(TABLE_AT..)?.as_chunks::<8>().0.get(..pairs)?;
    let half = |word: &[u8; 8], at: usize| {
        let bytes = word[at..].first_chunk::<4>().copied().unwrap_or_default();
        base.wrapping_add_signed(i32::from_le_bytes(bytes).into())
    };
    let mut first = 0;
    while pairs > 1 {
        let middle = pairs / 2;
        match half(&table[first + middle], 0).cmp(&address) {
            std::cmp::Ordering::Equal => {
                first += middle;
                break;
            }
            std::cmp::Ordering::Less => {
                first += middle;
                pairs -= middle;
            }
            std::cmp::Ordering::Greater => pairs = middle,
        }
    }
    usize::try_from(half(table.get(first)?, 4).checked_sub(eh_frame)?).ok()
}
