//! Memory of the unwind tables that are built while recording: indexes of sections without a search
//! table, and decompressed `.debug_frame` sections.
//!
//! All of a recording's together have [`MAX_BYTES`], whatever the files contain. The table that was
//! not used for the longest time is dropped for a new one, and built again when it is needed. That
//! costs time, which is bounded twice: by the number of builds of a table, and by a budget of all
//! of them to which each use adds.

use std::cell::Cell;
use std::sync::{Arc, Mutex, PoisonError};

use gimli::{BaseAddresses, CieOrFde};

use super::{MAX_CIE, Table, cie};
use crate::read_pages::ReadPages;

/// Most bytes of all tables of a recording.
pub const MAX_BYTES: usize = 16 << 20;

/// Most bytes of a decompressed section, those of 120 MB of Go's machine code; with the largest
/// index, [`MAX_BYTES`].
pub const MAX_DECOMPRESSED: usize = 12 << 20;

/// Most entries of an index; one takes 8 bytes.
pub const MAX_ENTRIES: usize = (MAX_BYTES - MAX_DECOMPRESSED) / 8;

/// Most bytes of a section that are indexed. An entry takes 45 bytes in Go's programs, and 50 in
/// those of other compilers.
pub const MAX_INDEXED: usize = 32 << 20;

/// Least bytes of an entry: length, offset of its CIE, address and size.
const LEAST_ENTRY: usize = 10;

/// Most times that a table is built.
pub const MAX_BUILDS: u8 = 4;

/// Largest budget for building, in bytes that are decompressed or indexed.
pub const BUDGET: u64 = 64 << 20;

/// Bytes that each use of a table adds to the budget.
pub const REFILL: u64 = 1024;

/// First addresses and offsets of a section's entries, by address.
#[derive(Default)]
pub struct Index {
    /// Entries begin less than 2 GiB from this address.
    base: u64,
    /// Distance of the first address from the base, plus 2 GiB, and the offset in the low half.
    entries: Vec<u64>,
    /// All of the section could be read.
    pub is_whole: bool,
    /// The section exceeds a limit.
    pub is_cut: bool,
}

const FARTHEST: u64 = 1 << 31;

impl Index {
    /// The index of a section; `drop_pages` releases the pages of its file.
    pub(super) fn new<'a, S: Table<'a>>(
        section: &S,
        bases: &BaseAddresses,
        drop_pages: &dyn Fn(),
    ) -> Index {
        let size = section.reader().len();
        let mut index = Index { is_whole: true, ..Index::default() };
        index.entries.reserve_exact(most_entries(size));
        let mut base = bases.eh_frame.text.filter(|&text| text != 0);
        // Entries mostly have the same CIE as the one before. Those that have not cost its length.
        let mut last = None;
        let mut budget = size.saturating_mul(4).saturating_add(MAX_CIE);
        let mut entries = section.entries(bases);
        let mut pages = ReadPages::new(drop_pages);
        loop {
            pages.step();
            let partial = match entries.next() {
                Ok(Some(CieOrFde::Fde(partial))) => partial,
                Ok(Some(CieOrFde::Cie(_))) => continue,
                Ok(None) => break,
                Err(_) => {
                    index.is_whole = false;
                    break;
                }
            };
            let parsed = partial.parse(|section, bases, offset| match &last {
                Some((at, parsed)) if *at == offset => Ok(Clone::clone(parsed)),
                _ => {
                    let parsed = cie(section, bases, offset)?;
                    budget = budget.saturating_sub(parsed.entry_len());
                    last = Some((offset, parsed.clone()));
                    Ok(parsed)
                }
            });
            let Ok(fde) = parsed else {
                index.is_whole = false;
                continue;
            };
            if budget == 0 || index.entries.len() >= MAX_ENTRIES {
                index.is_cut = true;
                break;
            }
            let start = fde.initial_address();
            index.base = *base.get_or_insert(start);
            if let (Some(distance), Ok(offset)) =
                (index.distance(start), u32::try_from(fde.offset()))
            {
                index.entries.push(distance << 32 | u64::from(offset));
            }
        }
        index.entries.shrink_to_fit();
        index.entries.sort_unstable();
        index
    }

    fn distance(&self, address: u64) -> Option<u64> {
        let distance = address.wrapping_sub(self.base).wrapping_add(FARTHEST);
        (distance < 2 * FARTHEST).then_some(distance)
    }

    /// Offset of the entry that contains an address, if one does.
    pub fn find(&self, address: u64) -> Option<usize> {
        let distance = self.distance(address)?;
        let at = self.entries.partition_point(|entry| entry >> 32 <= distance).checked_sub(1)?;
        Some(self.entries[at] as u32 as usize)
    }

    fn bytes(&self) -> usize {
        self.entries.capacity() * size_of::<u64>()
    }
}

/// Most entries of a section with this size.
fn most_entries(size: usize) -> usize {
    (size / LEAST_ENTRY).min(MAX_ENTRIES)
}

/// A table that was built.
#[derive(Default)]
pub struct Built {
    /// Decompressed contents.
    pub contents: Option<Vec<u8>>,
    /// The index.
    pub index: Index,
}

impl Built {
    fn bytes(&self) -> usize {
        self.contents.as_ref().map_or(0, Vec::capacity) + self.index.bytes()
    }
}

/// Cost of a table before it is built.
#[derive(Clone, Copy)]
pub struct Cost {
    /// Most bytes of memory.
    bytes: usize,
    /// Bytes that are decompressed or indexed.
    work: u64,
}

impl Cost {
    /// That of an index of a section with this size.
    pub fn of_index(size: usize) -> Cost {
        let size = size.min(MAX_INDEXED);
        Cost { bytes: most_entries(size) * size_of::<u64>(), work: size as u64 }
    }

    /// The same of a section with this decompressed size.
    pub fn of_decompressed(size: usize) -> Cost {
        let index = Cost::of_index(size);
        Cost { bytes: index.bytes + size, work: index.work + size as u64 }
    }
}

/// State of one table in [`Tables`].
struct Kept {
    built: Option<Arc<Built>>,
    /// [`Tables::uses`] at the last use.
    used: u64,
    builds: u8,
}

/// The tables of a recording.
struct Tables {
    all: Vec<Kept>,
    bytes: usize,
    uses: u64,
    budget: u64,
    /// Largest number of bytes at any time, with those that a build could have taken.
    #[cfg(test)]
    most: usize,
    #[cfg(test)]
    work: u64,
}

impl Tables {
    fn drop_unused(&mut self, most: usize) {
        while self.bytes > most {
            let kept =
                self.all.iter_mut().filter(|k| k.built.as_ref().is_some_and(|b| b.bytes() > 0));
            let Some(oldest) = kept.min_by_key(|k| k.used) else { return };
            self.bytes -= oldest.built.take().map_or(0, |built| built.bytes());
        }
    }
}

/// Number of a table, once it was used.
#[derive(Default)]
pub struct Slot(Cell<Option<usize>>);

/// The memory of a recording's tables, shared by its images.
#[derive(Clone)]
pub struct TableMemory(Arc<Mutex<Tables>>);

impl Default for TableMemory {
    fn default() -> TableMemory {
        TableMemory(Arc::new(Mutex::new(Tables {
            all: Vec::new(),
            bytes: 0,
            uses: 0,
            budget: BUDGET,
            #[cfg(test)]
            most: 0,
            #[cfg(test)]
            work: 0,
        })))
    }
}

impl TableMemory {
    /// A table, which is built if it is not there; `None` if a budget does not allow that.
    pub fn get(
        &self,
        slot: &Slot,
        cost: Cost,
        build: impl FnOnce() -> Built,
    ) -> Option<Arc<Built>> {
        let mut tables = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let tables = &mut *tables;
        tables.uses += 1;
        tables.budget = (tables.budget + REFILL).min(BUDGET);
        let at = slot.0.get().unwrap_or_else(|| {
            tables.all.push(Kept { built: None, used: 0, builds: 0 });
            tables.all.len() - 1
        });
        slot.0.set(Some(at));
        let kept = &mut tables.all[at];
        kept.used = tables.uses;
        if let Some(built) = &kept.built {
            return Some(built.clone());
        }
        if kept.builds >= MAX_BUILDS || tables.budget < cost.work || cost.bytes > MAX_BYTES {
            return None;
        }
        kept.builds += 1;
        tables.budget -= cost.work;
        tables.drop_unused(MAX_BYTES - cost.bytes);
        #[cfg(test)]
        {
            tables.most = tables.most.max(tables.bytes + cost.bytes);
            tables.work += cost.work;
        }
        let built = Arc::new(build());
        tables.bytes += built.bytes();
        tables.all[at].built = Some(built.clone());
        Some(built)
    }

    /// Releases all tables; they are built again when they are needed, as often as their budget
    /// allows.
    pub fn clear(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).drop_unused(0);
    }

    /// Bytes of all tables.
    #[cfg(test)]
    pub fn bytes(&self) -> usize {
        self.0.lock().unwrap().bytes
    }

    /// The largest number of bytes so far, while building included.
    #[cfg(test)]
    pub fn most(&self) -> usize {
        self.0.lock().unwrap().most
    }

    /// Bytes that were decompressed or indexed.
    #[cfg(test)]
    pub fn work(&self) -> u64 {
        self.0.lock().unwrap().work
    }

    /// Times that tables were built.
    #[cfg(test)]
    pub fn builds(&self) -> usize {
        self.0.lock().unwrap().all.iter().map(|kept| usize::from(kept.builds)).sum()
    }
}
