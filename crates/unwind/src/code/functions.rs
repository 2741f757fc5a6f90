//! Bounds of functions, from a file's symbols or its calls.

use std::ops::Range;

use memchr::memmem;
use object::elf::{FileHeader64, STT_FUNC, STT_GNU_IFUNC, STT_NOTYPE};
use object::read::elf::{FileHeader, Rela, SectionHeader, SectionTable, Sym};
use object::{LittleEndian, elf};

use super::Text;
use crate::arch;
use crate::read_pages::{BETWEEN_CHECKS, ReadPages};
use sys::arch::RELATIVE;
use sys::elf::MAX_SECTIONS;

/// Most symbols of a file that are read, and most relocations.
const MAX_READ: usize = 1 << 21;

/// Most functions of a file that symbols describe, and most other starts; 16 MiB in all.
const MAX_FUNCTIONS: usize = 1 << 19;

/// Most executable segments of a file. Linkers make one or two.
pub const MAX_SEGMENTS: usize = 64;

/// Largest code that is searched for references to functions, in bytes.
const MAX_SEARCHED: u64 = 16 << 20;

/// Symbols or bytes of code that are read in a step of the analysis.
const READ_IN_A_STEP: usize = 16;

/// A symbol of GHC's run-time code, with the end of its name.
const HASKELL: &[u8] = b"stg_upd_frame_info\0";

/// Largest table of names that is searched for it, in bytes: a sparse file may state any size.
const MAX_NAMES: usize = 64 << 20;

/// Bytes of names whose search takes as long as that of a symbol.
const BYTES_OF_NAMES: usize = 64;

/// Functions of a file.
#[derive(Debug, Default)]
pub struct Functions {
    /// First and limit address of sized symbols, by address.
    sized: Vec<(u64, u64)>,
    /// Other probable starts of functions: symbols without a size, targets of calls, addresses that
    /// are taken.
    starts: Vec<u64>,
    /// Limit addresses of functions.
    ends: Vec<u64>,
    /// The file contains Haskell functions.
    is_haskell: bool,
    /// There are more functions or segments than are searched: none is known.
    are_too_many: bool,
    /// Number of symbols, relocations and bytes of code that were read.
    read: usize,
}

/// Start of the function that contains an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FunctionStart {
    /// From a symbol.
    Known(u64),
    /// Probable: a function seems to begin here, and may be the one.
    Likely(u64),
}

impl FunctionStart {
    /// The address.
    pub fn address(self) -> u64 {
        match self {
            FunctionStart::Known(at) | FunctionStart::Likely(at) => at,
        }
    }
}

/// More functions than are kept.
struct TooMany;

/// Sorts a list without duplicates. An error if it is too long.
fn settle<T: Ord>(list: &mut Vec<T>) -> Result<(), TooMany> {
    list.sort_unstable();
    list.dedup();
    if list.len() > MAX_FUNCTIONS { Err(TooMany) } else { Ok(()) }
}

/// Adds to a list, which is settled whenever it is twice as long as it may be.
fn add<T: Ord>(list: &mut Vec<T>, new: T) -> Result<(), TooMany> {
    if list.len() >= 2 * MAX_FUNCTIONS {
        settle(list)?;
    }
    list.push(new);
    Ok(())
}

impl Functions {
    /// Functions of a file. Time and memory are proportional to the size of its code, symbols and
    /// relocations, and limited.
    /// `stated` are ranges of functions by another table, which are used without symbols.
    ///
    /// `drop_pages` releases the memory of the pages that were read.
    pub fn new(
        text: Text<'_>,
        entry: u64,
        stated: impl ExactSizeIterator<Item = (u64, u64)>,
        drop_pages: &dyn Fn(),
    ) -> Functions {
        let mut functions = Functions::default();
        let is_found = functions.find(text, entry, stated, &mut ReadPages::new(drop_pages));
        drop_pages();
        if is_found.is_err() {
            let read = functions.read;
            return Functions { are_too_many: true, read, ..Functions::default() };
        }
        functions
    }

    fn find(
        &mut self,
        text: Text<'_>,
        entry: u64,
        stated: impl ExactSizeIterator<Item = (u64, u64)>,
        pages: &mut ReadPages<'_>,
    ) -> Result<(), TooMany> {
        if text.segments.len() > MAX_SEGMENTS {
            return Err(TooMany);
        }
        self.add_symbols(text, pages)?;
        if self.sized.len() < stated.len() && stated.len() <= MAX_FUNCTIONS / 2 {
            self.read += stated.len();
            let is_code = |&(start, end): &(u64, u64)| start < end && text.from(start).is_some();
            self.sized.extend(stated.filter(is_code));
        }
        self.add_references(text, pages)?;
        self.add_relocations(text, pages)?;
        if entry != 0 {
            self.starts.push(entry);
        }
        settle(&mut self.sized)?;
        settle(&mut self.starts)?;
        self.ends = self.sized.iter().map(|&(_, end)| end).collect();
        settle(&mut self.ends)?;
        self.sized.shrink_to_fit();
        self.starts.shrink_to_fit();
        self.ends.shrink_to_fit();
        Ok(())
    }

    /// True if there are more functions than are kept: frames of the code are not derived.
    pub fn are_too_many(&self) -> bool {
        self.are_too_many
    }

    /// Number of steps that the search took, in the unit of the analysis.
    pub fn steps(&self) -> usize {
        self.read / READ_IN_A_STEP
    }

    /// True if functions need not be called: GHC's jump to each other, with a stack of their own;
    /// the contents of the other stack are unrelated to them.
    pub fn only_jump(&self) -> bool {
        self.is_haskell
    }

    /// Functions with exactly these ranges.
    #[cfg(any(test, feature = "testing"))]
    pub fn from_symbols(mut sized: Vec<(u64, u64)>) -> Functions {
        sized.sort_unstable();
        let ends = sized.iter().map(|&(_, end)| end).collect();
        Functions { sized, ends, ..Functions::default() }
    }

    /// Adds probable starts.
    #[cfg(any(test, feature = "testing"))]
    pub fn begin_at(&mut self, starts: &[u64]) {
        self.starts.extend_from_slice(starts);
        self.starts.sort_unstable();
    }

    /// Ranges of the functions that symbols name.
    #[cfg(test)]
    pub fn sized(&self) -> &[(u64, u64)] {
        &self.sized
    }

    fn add_symbols(&mut self, text: Text<'_>, pages: &mut ReadPages<'_>) -> Result<(), TooMany> {
        let Some((endian, sections)) = sections(text) else { return Ok(()) };
        let mut left = MAX_READ;
        for kind in [elf::SHT_SYMTAB, elf::SHT_DYNSYM] {
            let Ok(symbols) = sections.symbols(endian, text.bytes, kind) else { continue };
            let strings = sections.section(symbols.string_section());
            let strings = strings.and_then(|s| s.data(endian, text.bytes)).unwrap_or_default();
            let may_be_haskell = self.may_be_haskell(strings, pages);
            let count = symbols.len().min(left);
            left -= count;
            self.read += count;
            for symbol in symbols.iter().take(count) {
                pages.step();
                // Names may be as long as the file, and shared by all symbols.
                self.is_haskell |= may_be_haskell
                    && strings.get(symbol.st_name(endian) as usize..).is_some_and(is_haskell);
                let at = symbol.st_value(endian);
                let size = symbol.st_size(endian);
                if symbol.is_undefined(endian) || text.from(at).is_none() {
                    continue;
                }
                match symbol.st_type() {
                    STT_FUNC | STT_GNU_IFUNC if size > 0 => {
                        add(&mut self.sized, (at, at.saturating_add(size)))?;
                    }
                    STT_FUNC | STT_GNU_IFUNC => add(&mut self.starts, at)?,
                    // In assembly, functions often have no type; local symbols may be labels.
                    STT_NOTYPE if !symbol.is_local() => add(&mut self.starts, at)?,
                    _ => {}
                }
            }
        }
        Ok(())
    }

    /// True if [`HASKELL`] is in a table of names, or the table is too large for a search. It is read
    /// from its beginning to its end; the names of symbols, one by one, would be all over it.
    fn may_be_haskell(&mut self, strings: &[u8], pages: &mut ReadPages<'_>) -> bool {
        if strings.len() > MAX_NAMES {
            return true;
        }
        self.read += strings.len() / BYTES_OF_NAMES;
        let finder = memmem::Finder::new(HASKELL);
        (0..strings.len()).step_by(BETWEEN_CHECKS).any(|begin| {
            let end = strings.len().min(begin + BETWEEN_CHECKS + HASKELL.len() - 1);
            pages.check();
            finder.find(&strings[begin..end]).is_some()
        })
    }

    /// Adds the targets of direct calls, and addresses that are taken.
    fn add_references(&mut self, text: Text<'_>, pages: &mut ReadPages<'_>) -> Result<(), TooMany> {
        let mut left = MAX_SEARCHED;
        for segment in text.segments {
            let Some(bytes) = text.from(segment.address) else { continue };
            if bytes.len() as u64 > left {
                continue;
            }
            left -= bytes.len() as u64;
            self.read += bytes.len();
            // A bit for each byte: code has many calls of few functions.
            let mut is_target = vec![0_u64; bytes.len().div_ceil(64)];
            let mut at = 0;
            while at < bytes.len() {
                let from = segment.address.wrapping_add(at as u64);
                let read = arch::each_reference(&bytes[at..], from, BETWEEN_CHECKS, |target| {
                    let at = target.wrapping_sub(segment.address);
                    if at < bytes.len() as u64 {
                        is_target[at as usize / 64] |= 1 << (at % 64);
                    }
                });
                at += read;
                pages.check();
            }
            for (i, mut bits) in (0_u64..).zip(is_target) {
                while bits != 0 {
                    let at = i * 64 + u64::from(bits.trailing_zeros());
                    add(&mut self.starts, segment.address.wrapping_add(at))?;
                    bits &= bits - 1;
                }
            }
        }
        Ok(())
    }

    /// Adds addresses of functions in data that the dynamic loader relocates.
    fn add_relocations(
        &mut self,
        text: Text<'_>,
        pages: &mut ReadPages<'_>,
    ) -> Result<(), TooMany> {
        let Some((endian, sections)) = sections(text) else { return Ok(()) };
        let mut left = MAX_READ;
        for section in sections.iter() {
            let Ok(Some((entries, _))) = section.rela(endian, text.bytes) else { continue };
            let count = entries.len().min(left);
            left -= count;
            self.read += count;
            for entry in &entries[..count] {
                pages.step();
                let to = entry.r_addend(endian) as u64;
                let relative = entry.r_type(endian, false) == RELATIVE;
                if relative && text.from(to).is_some() {
                    add(&mut self.starts, to)?;
                }
            }
        }
        Ok(())
    }

    /// Ranges of the functions that contain an address, innermost first.
    fn sized_at(&self, address: u64) -> impl Iterator<Item = (u64, u64)> {
        /// Functions rarely contain others.
        const NEAR: usize = 16;
        let upto = self.sized.partition_point(|&(start, _)| start <= address);
        let near = self.sized[..upto].iter().rev().take(NEAR).copied();
        near.filter(move |&(_, end)| address < end)
    }

    /// Addresses of the function of known size that contains an address.
    pub fn bounds(&self, address: u64) -> Option<Range<u64>> {
        self.sized_at(address).next().map(|(start, end)| start..end)
    }

    /// Start of the function that contains an address.
    pub fn start(&self, address: u64) -> Option<FunctionStart> {
        if let Some((start, _)) = self.sized_at(address).next() {
            return Some(FunctionStart::Known(start));
        }
        let upto = self.starts.partition_point(|&start| start <= address);
        upto.checked_sub(1).map(|i| FunctionStart::Likely(self.starts[i]))
    }

    /// True if the code takes this address, or a function without a size seems to begin there.
    pub fn is_taken(&self, address: u64) -> bool {
        self.starts.binary_search(&address).is_ok()
    }

    /// True if a symbol covers both addresses: they are in one function.
    pub fn are_one(&self, a: u64, b: u64) -> bool {
        self.sized_at(a).any(|(start, end)| (start..end).contains(&b))
    }

    /// True if a function ends here or another one begins.
    pub fn is_border(&self, address: u64) -> bool {
        let sized = self.sized_at(address).next();
        match sized {
            // Inside a function of known size, call targets belong to it.
            Some((start, _)) => start == address,
            None => {
                self.ends.binary_search(&address).is_ok()
                    || self.starts.binary_search(&address).is_ok()
            }
        }
    }
}

/// Sections of a file.
fn sections(
    text: Text<'_>,
) -> Option<(LittleEndian, SectionTable<'_, FileHeader64<LittleEndian>>)> {
    let header = FileHeader64::<LittleEndian>::parse(text.bytes).ok()?;
    let endian = header.endian().ok()?;
    // A search for a symbol table passes all of them.
    let sections = header.sections(endian, text.bytes).ok();
    Some((endian, sections.filter(|sections| sections.len() <= MAX_SECTIONS)?))
}

/// True if a name in a string table is [`HASKELL`].
fn is_haskell(name: &[u8]) -> bool {
    name.starts_with(HASKELL)
}

#[cfg(test)]
mod tests;
