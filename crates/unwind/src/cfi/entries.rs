//! Finds the entries of `.eh_frame` and `.debug_frame`.

use std::sync::Arc;

use gimli::{
    BaseAddresses, CommonInformationEntry, DebugFrame, EhFrame, EhFrameHdr, FrameDescriptionEntry,
    LittleEndian, UnwindOffset,
};

use super::memory::{Built, Cost, Index, MAX_DECOMPRESSED, MAX_INDEXED, Slot};
use super::search::Search;
use super::{MAX_CIE, Slice, Table, UnwindTables};
use crate::arch;
use crate::module::SectionBytes;
use sys::catch_panic;

impl UnwindTables {
    /// First address of the function that contains an address, from `.eh_frame`.
    pub fn start(&self, address: u64) -> Option<u64> {
        catch_panic(|| self.eh_entry(address).map(|(_, fde)| fde.initial_address())).flatten()
    }

    /// True if one entry covers both addresses: they are in one function.
    pub fn are_one(&self, a: u64, b: u64) -> bool {
        let in_one = || self.eh_entry(a).is_some_and(|(_, fde)| fde.contains(b));
        catch_panic(in_one).unwrap_or(false)
    }

    /// True if `.eh_frame` has an entry for the address.
    pub fn in_eh_frame(&self, address: u64) -> bool {
        catch_panic(|| self.eh_entry(address).is_some()).unwrap_or(false)
    }

    pub(super) fn eh_section(&self) -> Option<EhFrame<Slice<'_>>> {
        let (frame, _) = self.eh_frame.as_ref()?;
        Some(eh_section(frame))
    }

    pub(super) fn eh_entry(
        &self,
        address: u64,
    ) -> Option<(EhFrame<Slice<'_>>, FrameDescriptionEntry<Slice<'_>>)> {
        let section = self.eh_section()?;
        let fde = self.entry_at(&section, self.eh_offset(address)?, address)?;
        Some((section, fde))
    }

    /// Offset of the entry in `.eh_frame` that contains an address, if one does.
    pub(super) fn eh_offset(&self, address: u64) -> Option<usize> {
        let (frame, by) = self.eh_frame.as_ref()?;
        match by {
            Search::Usual(table) => table.offset(address),
            Search::Other(hdr) => {
                let hdr = EhFrameHdr::new(hdr, LittleEndian).parse(&self.bases, 8).ok()?;
                let table = hdr.table()?;
                let found = table.lookup(address, &self.bases).ok()?;
                Some(UnwindOffset::into(table.pointer_to_offset(found).ok()?))
            }
            Search::Index(slot) => self.eh_index(frame, slot)?.index.find(address),
        }
    }

    /// Index of `.eh_frame`.
    pub(super) fn eh_index(&self, frame: &SectionBytes, slot: &Slot) -> Option<Arc<Built>> {
        self.get(slot, Cost::of_index(frame.len()), || {
            let section = eh_section(&frame[..frame.len().min(MAX_INDEXED)]);
            let index = self.index(&section, frame, &|| frame.drop_pages());
            Built { contents: None, index }
        })
    }

    /// Index of `.debug_frame`, and its contents if it is compressed.
    pub(super) fn debug_table(&self) -> Option<Arc<Built>> {
        let (section, file) = self.debug_frame.as_ref()?;
        let Some(size) = section.compressed() else {
            let bytes = file.get(section.range())?;
            return self.get(&self.debug_index, Cost::of_index(bytes.len()), || {
                let start = debug_section(&bytes[..bytes.len().min(MAX_INDEXED)]);
                let index = self.index(&start, bytes, &|| file.drop_pages());
                Built { contents: None, index }
            });
        };
        let size = usize::try_from(size).ok().filter(|&size| size <= MAX_DECOMPRESSED);
        let Some(size) = size else {
            self.over_budget.set(true);
            return None;
        };
        self.get(&self.debug_index, Cost::of_decompressed(size), || {
            let bytes = section.decompressed(file, size).unwrap_or_default();
            file.drop_pages();
            let index = self.index(&debug_section(&bytes), &bytes, &|| {});
            Built { contents: Some(bytes), index }
        })
    }

    pub(super) fn debug_section<'a>(&'a self, built: &'a Built) -> Option<DebugFrame<Slice<'a>>> {
        let (section, file) = self.debug_frame.as_ref()?;
        let bytes = match &built.contents {
            Some(bytes) => bytes,
            None => file.get(section.range())?,
        };
        Some(debug_section(bytes))
    }

    fn get(&self, slot: &Slot, cost: Cost, build: impl FnOnce() -> Built) -> Option<Arc<Built>> {
        let built = self.memory.get(slot, cost, build);
        if built.as_ref().is_none_or(|built| built.index.is_cut) {
            self.over_budget.set(true);
        }
        built
    }

    /// The index of a section, of which `all` are the bytes; `drop_pages` releases those of its file.
    fn index<'a, S: Table<'a>>(&self, section: &S, all: &[u8], drop_pages: &dyn Fn()) -> Index {
        let new = || Index::new(section, &self.bases, drop_pages);
        let mut index = catch_panic(new).unwrap_or_default();
        drop_pages();
        index.is_cut |= section.reader().len() < all.len();
        index
    }

    /// The entry at an offset of a section, if it contains an address.
    pub(super) fn entry_at<'a, S: Table<'a>>(
        &self,
        section: &S,
        offset: usize,
        address: u64,
    ) -> Option<FrameDescriptionEntry<Slice<'a>>> {
        let fde = section.fde_from_offset(&self.bases, offset.into(), cie).ok()?;
        fde.contains(address).then_some(fde)
    }
}

/// A section `.eh_frame`.
pub(super) fn eh_section(bytes: &[u8]) -> EhFrame<Slice<'_>> {
    let mut section = EhFrame::new(bytes, LittleEndian);
    section.set_address_size(8);
    section.set_vendor(arch::VENDOR);
    section
}

/// A section `.debug_frame`.
pub(super) fn debug_section(bytes: &[u8]) -> DebugFrame<Slice<'_>> {
    let mut section = DebugFrame::new(bytes, LittleEndian);
    section.set_address_size(8);
    section.set_vendor(arch::VENDOR);
    section
}

/// The CIE at an offset, if it is not too large: each entry that is read takes it.
pub(super) fn cie<'a, S: Table<'a>>(
    section: &S,
    bases: &BaseAddresses,
    offset: S::Offset,
) -> gimli::Result<CommonInformationEntry<Slice<'a>>> {
    let at: usize = UnwindOffset::into(offset);
    let bytes = section.reader().slice();
    let length = bytes.get(at..).and_then(|bytes| bytes.first_chunk::<4>());
    match length.map(|length| u32::from_le_bytes(*length)) {
        // All ones: a length of 64 bits follows.
        Some(length) if length as usize <= MAX_CIE || length == u32::MAX => {
            let cie = section.cie_from_offset(bases, offset)?;
            let is_small = cie.entry_len() <= MAX_CIE;
            if is_small { Ok(cie) } else { Err(gimli::Error::NotCieId(at as u64)) }
        }
        _ => Err(gimli::Error::NotCieId(at as u64)),
    }
}
