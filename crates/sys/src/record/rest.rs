//! Stack bytes beyond the kernel's copy, read at the same moment.

use super::GoStacks;
use crate::arch;

/// Bytes of a chunk, except the last one.
pub const CHUNK: usize = 32 << 10;

const PAGE: usize = arch::PAGE as usize;

/// A part of a stack. A missing page is a hole, not a page of zeros.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Chunk<'a> {
    bytes: &'a [u8],
    holes: u8,
}

impl<'a> Chunk<'a> {
    /// A chunk; `holes` has a bit for each missing page.
    pub fn new(bytes: &'a [u8], holes: u8) -> Chunk<'a> {
        Chunk { bytes, holes }
    }

    /// Its bytes, those of holes included.
    pub fn bytes(self) -> &'a [u8] {
        self.bytes
    }

    /// A bit for each missing page.
    pub fn holes(self) -> u8 {
        self.holes
    }

    /// A page, or the available part of the last one.
    fn page(&self, page: usize) -> Option<&'a [u8]> {
        let hole = self.holes >> page & 1 != 0;
        let bytes = self.bytes.get(page * PAGE..)?;
        (!hole && !bytes.is_empty()).then(|| &bytes[..bytes.len().min(PAGE)])
    }
}

/// Chunks of [`CHUNK`] bytes, from an address that is a multiple of the page size; missing ones are
/// empty.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rest<'a> {
    from: u64,
    chunks: &'a [Chunk<'a>],
    replaced: &'a [u8],
    go: GoStacks<'a>,
}

impl<'a> Rest<'a> {
    /// Chunks from an address on.
    pub fn new(from: u64, chunks: &'a [Chunk<'a>]) -> Rest<'a> {
        Rest { from, chunks, replaced: &[], go: GoStacks::default() }
    }

    /// The same with return addresses that the kernel has replaced for return probes: pairs of
    /// words, the address on the stack and the return address that was there.
    pub fn with_replaced(self, replaced: &'a [u8]) -> Rest<'a> {
        Rest { replaced, ..self }
    }

    /// The same with the other stack of a thread of Go.
    pub fn with_go(self, go: GoStacks<'a>) -> Rest<'a> {
        Rest { go, ..self }
    }

    /// The other stack of a thread of Go.
    pub fn go(self) -> GoStacks<'a> {
        self.go
    }

    /// The replaced return addresses, as in [`Rest::with_replaced`].
    pub fn replaced(self) -> &'a [u8] {
        self.replaced
    }

    /// The return address that the kernel has replaced at an address of the stack.
    pub fn original(&self, slot: u64) -> Option<u64> {
        let mut pairs = self.replaced.as_chunks::<16>().0.iter().map(|pair| {
            let (at, original) = pair.split_at(8);
            let word = |half: &[u8]| half.first_chunk().map_or(0, |word| u64::from_ne_bytes(*word));
            (word(at), word(original))
        });
        pairs.find(|&(at, original)| at == slot && original != 0).map(|(_, original)| original)
    }

    /// Address of the first chunk.
    pub fn from(self) -> u64 {
        self.from
    }

    /// The chunks.
    pub fn chunks(self) -> &'a [Chunk<'a>] {
        self.chunks
    }

    /// True if there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.chunks.is_empty()
    }

    /// The word at an address, if it is available.
    pub fn word(&self, address: u64) -> Option<u64> {
        let at = usize::try_from(address.checked_sub(self.from)?).ok()?;
        let chunk = self.chunks.get(at / CHUNK)?;
        let page = chunk.page(at % CHUNK / PAGE)?;
        match page.get(at % PAGE..)?.first_chunk() {
            Some(word) => Some(u64::from_le_bytes(*word)),
            None => self.torn(address),
        }
    }

    /// An unaligned word on two pages.
    fn torn(&self, address: u64) -> Option<u64> {
        let first = address & !7;
        let shift = (address & 7) * 8;
        if shift == 0 {
            return None;
        }
        let low = self.word(first)?;
        let high = self.word(first.checked_add(8)?)?;
        Some(low >> shift | high << (64 - shift))
    }

    /// True if `copy`, which begins at an address, has the same bytes where both overlap.
    pub fn agrees(&self, start: u64, copy: &[u8]) -> bool {
        let end = start.saturating_add(copy.len() as u64);
        let chunks = self.chunks.iter().enumerate();
        chunks.flat_map(|(i, chunk)| (0..CHUNK / PAGE).map(move |page| (i, chunk, page))).all(
            |(i, chunk, page)| {
                let from = self.from + (i * CHUNK + page * PAGE) as u64;
                let Some(bytes) = chunk.page(page).filter(|_| from < end) else { return true };
                let first = from.max(start);
                let last = end.min(from + bytes.len() as u64);
                if first >= last {
                    return true;
                }
                let ours = &bytes[(first - from) as usize..(last - from) as usize];
                let theirs = &copy[(first - start) as usize..(last - start) as usize];
                ours == theirs
            },
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(from: u64, length: usize) -> Vec<u8> {
        (from / 8..).flat_map(|i| (i * 8).to_le_bytes()).take(length).collect()
    }

    #[test]
    fn a_hole_is_not_there() {
        let first = bytes(0x10000, CHUNK);
        let second = bytes(0x10000 + CHUNK as u64, 5000);
        let chunks = [Chunk::new(&first, 0b100), Chunk::new(&second, 0)];
        let rest = Rest::new(0x10000, &chunks);
        for there in [0x10000, 0x11ff8, 0x13000, 0x17ff8, 0x18000, 0x19380] {
            assert_eq!(rest.word(there), Some(there), "{there:x}");
        }
        for not_there in [0, 0xfff8, 0x12000, 0x12ff8, 0x19388, u64::MAX] {
            assert_eq!(rest.word(not_there), None, "{not_there:x}");
        }
        // Unaligned words: within a page, on two, and half in a hole.
        assert_eq!(rest.word(0x10004), Some(0x0001_0008_0000_0000));
        assert_eq!(rest.word(0x10ffc), Some(0x0001_1000_0000_0000));
        assert_eq!(rest.word(0x11ffc), None);
        assert_eq!(Rest::default().word(0), None);
    }

    #[test]
    fn a_chunk_that_was_lost_is_not_there() {
        let last = bytes(0x18000, 4096);
        let chunks = [Chunk::default(), Chunk::new(&last, 0)];
        let rest = Rest::new(0x10000, &chunks);
        assert_eq!((rest.word(0x10000), rest.word(0x18008)), (None, Some(0x18008)));
    }

    #[test]
    fn copies_must_be_equal_where_they_overlap() {
        let first = bytes(0x10000, CHUNK);
        let chunks = [Chunk::new(&first, 0b10)];
        let rest = Rest::new(0x10000, &chunks);
        let copy = bytes(0xf800, 0x2000);
        assert!(rest.agrees(0xf800, &copy));
        for (changed, agrees) in [(0x7ff, true), (0x800, false), (0x17ff, false), (0x1800, true)] {
            let mut copy = copy.clone();
            copy[changed] ^= 1;
            assert_eq!(rest.agrees(0xf800, &copy), agrees, "{changed:x}");
        }
        assert!(rest.agrees(0x8000, &bytes(0, 0x8000)), "they have nothing in common");
        assert!(rest.agrees(u64::MAX - 7, &[0; 32]));
    }
}
