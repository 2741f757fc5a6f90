//! Call frame information: the contents of `.eh_frame` or `.debug_frame`, as rules that are short
//! enough to cache, and in full for the few frames that need it.
//!
//! Registers have DWARF's numbers, see [`crate::arch`].

use std::cell::Cell;
use std::sync::Arc;

use gimli::{
    BaseAddresses, DebugFrame, EhFrame, EhFrameHdr, EndianSlice, FrameDescriptionEntry,
    LittleEndian, Register, RegisterRule, Section, UnwindContextStorage, UnwindSection,
    UnwindTableRow,
};

mod copied;
mod entries;
mod machine;
mod memory;
mod pieces;
mod rows;
mod search;
mod shorten;

use super::arch::{self, COLUMNS, DeliveryContexts, IP, RA, ReturnAddress};
use super::module::{SectionBytes, Step};
use copied::Copied;
use entries::{cie, eh_section};
use machine::Machine;
use memory::Slot;
pub use memory::TableMemory;
pub use pieces::CopyMemory;
pub use rows::Rows;
use rows::{Found, MAX_ROWS, TableId};
use search::{Search, UsualTable};
use shorten::{Shorten, Visitor};
use sys::catch_panic;
use sys::image::Bytes;

/// Location of the caller's frame pointer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Saved {
    /// Unchanged.
    Same,
    /// In memory, at this offset in bytes from the canonical frame address.
    FromCfa(i32),
    /// In memory, at this offset in bytes from the frame pointer.
    FromBp(i32),
}

/// Return address of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Return<R> {
    /// None: the frame has no caller.
    Outermost,
    /// At a usual location.
    At(R),
}

/// Rule for finding the caller's frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// The canonical frame address (CFA) is a register plus `cfa`.
    Offset {
        /// The register.
        register: u8,
        /// Number that is added.
        cfa: i32,
        /// Location of the caller's frame pointer.
        bp: Saved,
        /// Location of the return address.
        ra: ReturnAddress,
    },
    /// The CFA is the word at a register plus `at`, plus `cfa`: the frame was aligned, or the stack
    /// pointer saved.
    Deref {
        /// The register.
        register: u8,
        /// Offset of the word.
        at: i32,
        /// Number that is added to the word.
        cfa: i32,
        /// Location of the caller's frame pointer.
        bp: Saved,
        /// Location of the return address.
        ra: ReturnAddress,
    },
    /// The frame has no caller.
    Outermost,
    /// The caller is on another stack.
    Switched,
    /// The frame may contain the registers of an exception's handler instead of the caller's.
    Delivering(Option<DeliveryContexts>),
    /// No such short rule exists; see [`UnwindTables::step`].
    Evaluate,
    /// The code has no unwind information.
    Uncovered,
}

/// Entry of the tables for the code at an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Described {
    /// The rule.
    pub rule: Rule,
    /// The function saves the registers in its frame in which a handler receives its exception, as
    /// functions do that may return to one.
    pub may_deliver: bool,
}

impl Described {
    /// That of code without unwind information.
    const UNCOVERED: Described = Described { rule: Rule::Uncovered, may_deliver: false };
}

/// The general registers, as far as they are known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KnownRegisters {
    values: [u64; COLUMNS],
    known: u64,
}

impl KnownRegisters {
    /// All registers unknown.
    pub const NONE: KnownRegisters = KnownRegisters { values: [0; COLUMNS], known: 0 };

    /// Value of a register, if known.
    pub fn get(&self, register: u8) -> Option<u64> {
        let is_known = usize::from(register) < COLUMNS && self.known & 1 << register != 0;
        is_known.then(|| self.values[usize::from(register)])
    }

    /// Sets a register.
    pub fn set(&mut self, register: u8, value: u64) {
        self.values[usize::from(register)] = value;
        self.known |= 1 << register;
    }

    /// Sets the instruction pointer.
    pub fn set_ip(&mut self, ip: u64) {
        self.set(IP, ip);
    }
}

type Slice<'a> = EndianSlice<'a, LittleEndian>;

/// A section with call frame information.
trait Table<'a>: UnwindSection<Slice<'a>> + Section<Slice<'a>> {}

impl<'a> Table<'a> for EhFrame<Slice<'a>> {}
impl<'a> Table<'a> for DebugFrame<Slice<'a>> {}

/// An entry of a table.
struct Entry<'a, 's, S: Table<'a>> {
    /// The section, or a part of it.
    section: &'s S,
    /// Addresses of the sections, or of the part.
    bases: &'s BaseAddresses,
    fde: &'s FrameDescriptionEntry<Slice<'a>>,
    /// In the whole section.
    offset: usize,
}

/// Storage for a row: less than gimli's, which is cleared for each entry. Compilers describe the
/// general registers, and save no more than some vector registers.
#[derive(Debug)]
pub struct RowStorage;

impl UnwindContextStorage<usize> for RowStorage {
    type Rules = [(Register, RegisterRule<usize>); COLUMNS + 32];
    type Stack = Box<[UnwindTableRow<usize, RowStorage>; 4]>;
}

/// Working memory for the evaluation of rows.
pub type UnwindContext<C = RowStorage> = gimli::UnwindContext<usize, C>;

/// Largest common information entry (CIE) that is read, in bytes. Compilers write less than 100.
const MAX_CIE: usize = 4096;

/// Largest entry that is evaluated, with its CIE, in bytes. The largest in rustc has 34 KB.
const MAX_ENTRY: u64 = 64 << 10;

/// Largest budget of an image for the evaluation of entries, in bytes. An entry of compilers takes
/// 55 bytes.
const BUDGET: u64 = 1 << 20;

/// Bytes that each evaluation adds to the budget.
const REFILL: u64 = 1024;

/// The unwind tables of an image.
pub struct UnwindTables {
    bases: BaseAddresses,
    /// `.eh_frame`, and its search table.
    eh_frame: Option<(SectionBytes, Search)>,
    /// `.debug_frame`; used where `.eh_frame` has no entry.
    debug_frame: Option<(sys::elf::DebugFrame, Arc<Bytes>)>,
    debug_index: Slot,
    memory: TableMemory,
    copied: Copied,
    budget: Cell<u64>,
    over_budget: Cell<bool>,
}

impl UnwindTables {
    /// Tables of a file. Indexes of those without one are built when they are needed.
    pub fn new(
        bases: BaseAddresses,
        eh_frame: Option<SectionBytes>,
        eh_frame_hdr: Option<SectionBytes>,
        debug_frame: Option<(sys::elf::DebugFrame, Arc<Bytes>)>,
    ) -> UnwindTables {
        let search = || Search::new(eh_frame_hdr, &bases);
        let eh_frame = eh_frame.map(|frame| (frame, search()));
        UnwindTables {
            bases,
            eh_frame,
            debug_frame,
            debug_index: Slot::default(),
            memory: TableMemory::default(),
            copied: Copied::default(),
            budget: Cell::new(BUDGET),
            over_budget: Cell::new(false),
        }
    }

    /// The same with the memory of a recording, and that of its copies.
    pub fn with_memory(self, memory: &TableMemory, copies: &CopyMemory) -> UnwindTables {
        UnwindTables { memory: memory.clone(), copied: Copied::new(copies), ..self }
    }

    /// True if a limit has been reached, so that code may have been taken as without unwind
    /// information that has it.
    pub fn over_budget(&self) -> bool {
        self.over_budget.get()
    }

    /// Rule of the code at an address.
    #[cfg(test)]
    pub fn rule<C: UnwindContextStorage<usize>>(
        &self,
        context: &mut UnwindContext<C>,
        address: u64,
    ) -> Rule {
        self.described(context, address).rule
    }

    /// Entry for the code at an address.
    #[cfg(test)]
    pub fn described<C: UnwindContextStorage<usize>>(
        &self,
        context: &mut UnwindContext<C>,
        address: u64,
    ) -> Described {
        self.visit(context, address, Shorten).unwrap_or(Described::UNCOVERED)
    }

    /// Entry for the code at an address of this image, from the cached rows of its function, which
    /// are evaluated if they are not cached.
    pub fn described_in(
        &self,
        image: u32,
        rows: &mut Rows,
        context: &mut UnwindContext,
        address: u64,
    ) -> Described {
        let found = catch_panic(|| self.find_row(image, rows, context, address));
        found.flatten().unwrap_or(Described::UNCOVERED)
    }

    fn find_row(
        &self,
        image: u32,
        rows: &mut Rows,
        context: &mut UnwindContext,
        address: u64,
    ) -> Option<Described> {
        if let Some(offset) = self.eh_offset(address) {
            let table = TableId::new(image, false);
            match rows.find(table, offset, address) {
                Some(Found::Row(described)) => return described,
                Some(Found::Outside) => {}
                found => {
                    let section = self.eh_section()?;
                    if let Some(fde) = self.entry_at(&section, offset, address) {
                        let entry = self.entry(&section, &fde);
                        let cached = (table, rows, found.is_some());
                        return self.rows_of(&entry, context, address, cached);
                    }
                }
            }
        }
        let built = self.debug_table()?;
        let offset = built.index.find(address)?;
        let table = TableId::new(image, true);
        match rows.find(table, offset, address) {
            Some(Found::Row(described)) => described,
            Some(Found::Outside) => None,
            found => {
                let section = self.debug_section(&built)?;
                let fde = self.entry_at(&section, offset, address)?;
                let cached = (table, rows, found.is_some());
                self.rows_of(&self.entry(&section, &fde), context, address, cached)
            }
        }
    }

    /// Evaluates and stores the rows of an entry; returns that of an address. The first time, the
    /// rows up to that address suffice: many functions are seen once. Then `again` is set, and all
    /// are evaluated.
    fn rows_of<'a, S: Table<'a>>(
        &self,
        entry: &Entry<'a, '_, S>,
        context: &mut UnwindContext,
        address: u64,
        (table, rows, again): (TableId, &mut Rows, bool),
    ) -> Option<Described> {
        let Entry { section, bases, fde, offset } = *entry;
        if !self.affords(fde) {
            return None;
        }
        let encoding = fde.cie().encoding();
        let code = (fde.initial_address(), fde.end_address());
        let mut found = None;
        let all = rows.keep(table, offset, code, |rows| {
            let Ok(mut evaluated) = fde.rows(section, bases, context) else {
                rows.push((code.0, Some(None)));
                return true;
            };
            let mut end = code.0;
            while rows.len() < MAX_ROWS {
                match evaluated.next_row() {
                    Ok(Some(row)) if row.start_address() < code.1 => {
                        let described = Some(Some(Shorten.visit(section, row, encoding)));
                        let is_found = row.contains(address);
                        end = row.end_address();
                        let is_new = rows.last().is_none_or(|last| last.1 != described);
                        if is_new && row.start_address() < end {
                            rows.push((row.start_address(), described));
                        }
                        if is_found {
                            found = described.flatten();
                            if !again {
                                rows.push((end, None));
                                return true;
                            }
                        }
                    }
                    Ok(_) => return true,
                    Err(_) => {
                        rows.push((end, Some(None)));
                        return true;
                    }
                }
            }
            false
        });
        if all { found } else { self.row(entry, context, address, Shorten) }
    }

    /// One step up by the full entry. `registers` become the caller's, as far as those can be
    /// determined.
    pub fn step<C: UnwindContextStorage<usize>>(
        &self,
        context: &mut UnwindContext<C>,
        address: u64,
        registers: &mut KnownRegisters,
        read: &mut dyn FnMut(u64) -> Result<u64, ()>,
    ) -> Step {
        let machine = Machine { before: *registers, cfa: None, read };
        let Some(stepped) = self.visit(context, address, machine) else { return Step::Failed };
        match stepped {
            Ok(after) => {
                *registers = after;
                match after.get(RA).map(arch::code_address) {
                    Some(0) => Step::NoCaller,
                    Some(address) => Step::Caller(address),
                    None => Step::End,
                }
            }
            Err(step) => step,
        }
    }

    /// True if the tables have an entry that begins at this address, and none for the byte before
    /// it.
    pub fn begins_alone(&self, context: &mut UnwindContext, address: u64) -> bool {
        self.visit(context, address.wrapping_sub(1), Shorten).is_none()
            && self.visit(context, address, Shorten).is_some()
    }

    /// Looks up the row of the code at an address. Damaged tables count as missing.
    fn visit<V: Visitor, C: UnwindContextStorage<usize>>(
        &self,
        context: &mut UnwindContext<C>,
        address: u64,
        visitor: V,
    ) -> Option<V::Output> {
        catch_panic(|| self.look_up(context, address, visitor)).flatten()
    }

    fn look_up<V: Visitor, C: UnwindContextStorage<usize>>(
        &self,
        context: &mut UnwindContext<C>,
        address: u64,
        visitor: V,
    ) -> Option<V::Output> {
        if let Some((section, fde)) = self.eh_entry(address) {
            let affords = self.affords(&fde);
            return affords
                .then(|| self.row(&self.entry(&section, &fde), context, address, visitor))?;
        }
        let built = self.debug_table()?;
        let section = self.debug_section(&built)?;
        let fde = self.entry_at(&section, built.index.find(address)?, address)?;
        let entry = self.entry(&section, &fde);
        self.affords(&fde).then(|| self.row(&entry, context, address, visitor))?
    }

    /// True if the entry in `.eh_frame` for the address cannot be read, or the section is so
    /// damaged that it may have had one.
    pub fn is_damaged(&self, context: &mut UnwindContext, address: u64) -> bool {
        catch_panic(|| self.is_damaged_at(context, address)).unwrap_or(true)
    }

    fn is_damaged_at(&self, context: &mut UnwindContext, address: u64) -> bool {
        let Some((frame, search)) = &self.eh_frame else { return false };
        let section = eh_section(frame);
        let found = match search {
            Search::Usual(UsualTable { hdr, .. }) | Search::Other(hdr) => {
                EhFrameHdr::new(hdr, LittleEndian).parse(&self.bases, 8).and_then(|h| {
                    let table = h.table().ok_or(gimli::Error::NoUnwindInfoForAddress)?;
                    table.fde_for_address(&section, &self.bases, address, cie)
                })
            }
            Search::Index(slot) => {
                let Some(built) = self.eh_index(frame, slot) else { return false };
                match self.eh_entry(address) {
                    Some((_, fde)) => Ok(fde),
                    None => return !built.index.is_whole,
                }
            }
        };
        match found {
            Ok(fde) => {
                let entry = self.entry(&section, &fde);
                self.affords(&fde) && self.row(&entry, context, address, Shorten).is_none()
            }
            Err(gimli::Error::NoUnwindInfoForAddress) => false,
            Err(_) => true,
        }
    }

    /// True if the budget suffices for the evaluation of an entry, which is taken from it.
    fn affords(&self, fde: &FrameDescriptionEntry<Slice<'_>>) -> bool {
        let bytes = fde.entry_len().saturating_add(fde.cie().entry_len()) as u64;
        let budget = (self.budget.get() + REFILL).min(BUDGET);
        let rest = budget.checked_sub(bytes).filter(|_| bytes <= MAX_ENTRY);
        self.budget.set(rest.unwrap_or(budget));
        self.over_budget.set(self.over_budget.get() || rest.is_none());
        rest.is_some()
    }

    /// An entry of a whole section.
    fn entry<'a, 's, S: Table<'a>>(
        &'s self,
        section: &'s S,
        fde: &'s FrameDescriptionEntry<Slice<'a>>,
    ) -> Entry<'a, 's, S> {
        Entry { section, bases: &self.bases, fde, offset: fde.offset() }
    }

    fn row<'a, S: Table<'a>, V: Visitor, C: UnwindContextStorage<usize>>(
        &self,
        Entry { section, bases, fde, .. }: &Entry<'a, '_, S>,
        context: &mut UnwindContext<C>,
        address: u64,
        visitor: V,
    ) -> Option<V::Output> {
        let encoding = fde.cie().encoding();
        let row = fde.unwind_info_for_address(*section, bases, context, address).ok()?;
        Some(visitor.visit(*section, row, encoding))
    }
}

#[cfg(test)]
mod tests;
