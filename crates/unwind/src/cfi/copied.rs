//! Rules from copies of `.eh_frame` sections and of their search tables: of whole sections while
//! there is room, and of parts as they are needed.
//!
//! A rule that is found in copies needs neither the file nor a page fault, and takes a few
//! microseconds: the thread that must not wait looks it up itself.

use std::cell::{Cell, RefCell};

use gimli::UnwindSection;

use super::pieces::{CopyMemory, Part, Pieces};
use super::rows::{Found, Rows, TableId};
use super::search::{Search, UsualTable};
use super::{Described, Entry, UnwindContext, UnwindTables, eh_section};
use crate::module::SectionBytes;
use sys::catch_panic;

/// Rules that are looked up in a file before parts of its sections are copied: those of most files
/// are few.
pub(super) const FEW: u32 = 8;

/// Bytes of a part of a section, and pairs of a part of a search table.
const PART: usize = 32 << 10;
pub(super) const PAIRS: usize = PART / 8;

/// Largest entry that is evaluated from a copy, in bytes: 30 of 49,000 in g++ are larger. The same
/// of a CIE.
const MAX_ENTRY: usize = 1024;

/// Most parts of a search table: 300 MB of `.eh_frame` have so many.
const MAX_PARTS: usize = PAIRS / 2;

/// The copies of an image.
#[derive(Default)]
pub(super) struct Copied {
    memory: CopyMemory,
    lookups: Cell<u32>,
    /// A CIE and one of its entries.
    entry: RefCell<Vec<u8>>,
}

impl Copied {
    /// Copies in the memory of a recording.
    pub fn new(memory: &CopyMemory) -> Copied {
        Copied { memory: memory.clone(), ..Copied::default() }
    }
}

/// The bytes of an entry or a CIE at an offset of `.eh_frame`, if its part was copied and it is not
/// too large; with its length of four bytes.
fn entry_bytes(pieces: &mut Pieces, image: u32, offset: usize) -> Option<&[u8]> {
    let part = pieces.get(image, Part::Frame(u32::try_from(offset / PART).ok()?))?;
    let bytes = part.get(offset % PART..)?;
    let length = u32::from_le_bytes(*bytes.first_chunk()?) as usize;
    bytes.get(..length.checked_add(4).filter(|&length| length <= MAX_ENTRY)?)
}

/// Bytes before the distance of the CIE in an entry, and the end of that distance.
const CIE_AT: usize = 4;
const CIE_END: usize = 8;

/// Offset of the CIE of the entry at an offset, with these bytes.
fn cie_of(offset: usize, bytes: &[u8]) -> Option<usize> {
    let distance = u32::from_le_bytes(*bytes.get(CIE_AT..)?.first_chunk()?) as usize;
    // A distance of 0 is that of a CIE.
    (offset + CIE_AT).checked_sub(distance).filter(|_| distance > 0)
}

/// Puts the CIE of the entry at an offset, and the entry behind it, into `section`. Returns the
/// entry's offset there; `None` if they are not copied.
fn gather(pieces: &mut Pieces, image: u32, offset: usize, section: &mut Vec<u8>) -> Option<usize> {
    let cie = cie_of(offset, entry_bytes(pieces, image, offset)?)?;
    section.clear();
    section.extend_from_slice(entry_bytes(pieces, image, cie)?);
    let at = section.len();
    section.extend_from_slice(entry_bytes(pieces, image, offset)?);
    let distance = u32::try_from(at + CIE_AT).ok()?.to_le_bytes();
    section[at + CIE_AT..at + CIE_END].copy_from_slice(&distance);
    Some(at)
}

/// Copies a part of the search table, if it is not there.
fn provide_table(pieces: &mut Pieces, image: u32, table: &UsualTable, number: u32) -> bool {
    let Some(part) = table.part(number) else { return false };
    pieces.provide(image, Part::Table(number), part.len(), || Some(part.to_vec()))
}

/// Copies a part of `.eh_frame`, if it is not there.
fn provide_frame(pieces: &mut Pieces, image: u32, frame: &[u8], offset: usize) -> bool {
    let Ok(number) = u32::try_from(offset / PART) else { return false };
    let start = number as usize * PART;
    let end = frame.len().min(start + PART + MAX_ENTRY);
    let copy = || Some(frame.get(start..end)?.to_vec());
    pieces.provide(image, Part::Frame(number), end.saturating_sub(start), copy)
}

impl UnwindTables {
    /// Notes that a rule of this image is needed that is not cached, and copies what determines it
    /// for images of which many are. Files are read.
    pub fn prepare_copy(&self, image: u32, address: u64) {
        let Some((frame, Search::Usual(table))) = &self.eh_frame else { return };
        let lookups = self.copied.lookups.get().saturating_add(1);
        self.copied.lookups.set(lookups);
        let mut pieces = self.copied.memory.pieces();
        pieces.count_lookup();
        if lookups < FEW || table.parts() > MAX_PARTS {
            return;
        }
        if lookups == FEW && pieces.has_room(frame.len() + table.hdr.len()) {
            copy_all(&mut pieces, image, (frame, table));
        }
        copy(&mut pieces, image, (frame, table), address);
    }

    /// The entry for the code at an address from copies; `None` if that takes the file.
    pub fn described_in_copy(
        &self,
        image: u32,
        rows: &mut Rows,
        context: &mut UnwindContext,
        address: u64,
    ) -> Option<Described> {
        catch_panic(|| self.find_copied(image, rows, context, address)).flatten()
    }

    fn find_copied(
        &self,
        image: u32,
        rows: &mut Rows,
        context: &mut UnwindContext,
        address: u64,
    ) -> Option<Described> {
        let (_, Search::Usual(table)) = self.eh_frame.as_ref()? else { return None };
        let mut pieces = self.copied.memory.pieces();
        pieces.count_lookup();
        let part = table.part_of(pieces.get(image, Part::Firsts)?, address)?;
        let offset = table.offset_in(pieces.get(image, Part::Table(part))?, address)?;
        let id = TableId::new(image, false);
        let found = rows.find(id, offset, address);
        match found {
            Some(Found::Row(described)) => return described,
            Some(Found::Outside) => return None,
            Some(Found::Beyond) | None => {}
        }
        let mut entry = self.copied.entry.borrow_mut();
        let at = gather(&mut pieces, image, offset, &mut entry)?;
        drop(pieces);
        // Addresses are relative to where the entry is in the file.
        let mut bases = self.bases.clone();
        let base = bases.eh_frame.section?;
        bases.eh_frame.section = Some(base.wrapping_add((offset as u64).wrapping_sub(at as u64)));
        let section = eh_section(&entry);
        let fde = section.fde_from_offset(&bases, at.into(), super::cie).ok()?;
        let entry = Entry { section: &section, bases: &bases, fde: &fde, offset };
        fde.contains(address)
            .then(|| self.rows_of(&entry, context, address, (id, rows, found.is_some())))?
    }
}

/// Copies all of an image.
fn copy_all(pieces: &mut Pieces, image: u32, (frame, table): (&SectionBytes, &UsualTable)) {
    for number in 0..table.parts() as u32 {
        provide_table(pieces, image, table, number);
    }
    for offset in (0..frame.len()).step_by(PART) {
        provide_frame(pieces, image, frame, offset);
    }
    frame.drop_pages();
}

/// Copies what determines the rule of an address.
fn copy(
    pieces: &mut Pieces,
    image: u32,
    (frame, table): (&SectionBytes, &UsualTable),
    address: u64,
) -> Option<()> {
    let firsts = table.parts() * 8;
    pieces.provide(image, Part::Firsts, firsts, || Some(table.firsts())).then_some(())?;
    let number = table.part_of(pieces.get(image, Part::Firsts)?, address)?;
    provide_table(pieces, image, table, number).then_some(())?;
    let offset = table.offset_in(pieces.get(image, Part::Table(number))?, address)?;
    provide_frame(pieces, image, frame, offset).then_some(())?;
    let cie = cie_of(offset, entry_bytes(pieces, image, offset)?)?;
    provide_frame(pieces, image, frame, cie).then_some(())
}
