//! Copies of `.eh_frame` sections that are read often, with their search tables.
//!
//! A rule that is found in a copy needs neither the file nor a page fault, and takes a few
//! microseconds: the thread that must not wait looks it up itself.

use std::cell::Cell;
use std::sync::Arc;

use super::memory::{Built, Cost, Index, Slot};
use super::rows::{Found, Rows, TableId};
use super::search::{Search, search};
use super::{Described, TableMemory, UnwindContext, UnwindTables, eh_section};
use crate::module::SectionBytes;
use sys::catch_panic;

/// Most bytes of all copies of a recording: those of rustc and its LLVM.
pub const MAX_COPIES: usize = 16 << 20;

/// Rules that are looked up in a file before its sections are copied: those of most files are few.
pub(super) const FEW: u32 = 8;

/// Largest entry that is evaluated from a copy, in bytes: 30 of 49,000 in g++ are larger.
const MAX_ENTRY: usize = 1024;

/// The copy of an image's sections.
#[derive(Default)]
pub(super) struct Copied {
    memory: TableMemory,
    slot: Slot,
    lookups: Cell<u32>,
}

impl Copied {
    /// A copy in the memory of a recording.
    pub fn new(memory: &TableMemory) -> Copied {
        Copied { memory: memory.clone(), ..Copied::default() }
    }

    /// Counts a rule that is looked up, and makes the copy if there were a few. Files are read.
    fn count(&self, hdr: &SectionBytes, frame: &SectionBytes) {
        let lookups = self.lookups.get().saturating_add(1);
        self.lookups.set(lookups);
        if lookups < FEW {
            return;
        }
        self.memory.get(&self.slot, Cost::of_copy(hdr.len() + frame.len()), || {
            let bytes = [&hdr[..], &frame[..]].concat();
            frame.drop_pages();
            Built { contents: Some(bytes), index: Index::default() }
        });
    }

    /// The copy, if there is one.
    fn get(&self) -> Option<Arc<Built>> {
        self.memory.existing(&self.slot)
    }
}

impl UnwindTables {
    /// Notes that a rule of this image is needed that is not cached, and copies the sections of
    /// images of which many are.
    pub fn prepare_copy(&self) {
        if let Some((frame, Search::Usual(hdr, ..))) = &self.eh_frame {
            self.copied.count(hdr, frame);
        }
    }

    /// The entry for the code at an address from the copied sections; `None` if that takes the file.
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
        let (_, Search::Usual(hdr, pairs, eh_frame)) = self.eh_frame.as_ref()? else {
            return None;
        };
        let copy = self.copied.get()?;
        let (hdr, frame) = copy.contents.as_ref()?.split_at_checked(hdr.len())?;
        let base = self.bases.eh_frame_hdr.section?;
        let offset = search(hdr, base, *pairs, *eh_frame, address)?;
        let table = TableId::new(image, false);
        let found = rows.find(table, offset, address);
        match found {
            Some(Found::Row(described)) => return described,
            Some(Found::Outside) => return None,
            Some(Found::Beyond) | None => {}
        }
        let section = eh_section(frame);
        let fde = self.entry_at(&section, offset, address)?;
        if fde.entry_len() > MAX_ENTRY {
            return None;
        }
        self.rows_of(&section, context, &fde, address, (table, rows, found.is_some()))
    }
}
