//! Bounds of functions, from a file's symbols or its calls.

use object::elf::{FileHeader64, STT_FUNC, STT_GNU_IFUNC, STT_NOTYPE};
use object::read::elf::{FileHeader, Rela, SectionHeader, Sym};
use object::{LittleEndian, elf};

use super::Text;
use crate::arch;
use sys::arch::RELATIVE;

/// Most symbols of a file that are read.
const MAX_SYMBOLS: usize = 1 << 21;

/// Largest code that is searched for references to functions, in bytes.
const MAX_SEARCHED: u64 = 16 << 20;

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
    /// Number of steps that the search took.
    steps: usize,
}

/// Start of the function that contains an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FunctionStart {
    /// From a symbol.
    Known(u64),
    /// Probable: a function seems to begin here, and may be the one.
    Likely(u64),
}

impl Functions {
    /// Functions of a file.
    pub fn new(text: Text<'_>, entry: u64) -> Functions {
        let mut functions = Functions::default();
        functions.add_symbols(text);
        functions.add_references(text);
        functions.add_relocations(text);
        if entry != 0 {
            functions.starts.push(entry);
        }
        let Functions { sized, starts, ends, .. } = &mut functions;
        sized.sort_unstable();
        sized.dedup();
        ends.extend(sized.iter().map(|&(_, end)| end));
        for list in [starts, ends] {
            list.sort_unstable();
            list.dedup();
        }
        functions
    }

    /// Number of steps that the search took, in the unit of the analysis.
    pub fn steps(&self) -> usize {
        self.steps
    }

    /// True if functions need not be called: GHC's jump to each other, with a stack of their own;
    /// the contents of the other stack are unrelated to them.
    pub fn only_jump(&self) -> bool {
        self.is_haskell
    }

    /// Functions with exactly these ranges.
    #[cfg(test)]
    pub fn of_symbols(mut sized: Vec<(u64, u64)>) -> Functions {
        sized.sort_unstable();
        let ends = sized.iter().map(|&(_, end)| end).collect();
        Functions { sized, ends, ..Functions::default() }
    }

    /// Adds probable starts.
    #[cfg(test)]
    pub fn begin_at(&mut self, starts: &[u64]) {
        self.starts.extend_from_slice(starts);
        self.starts.sort_unstable();
    }

    /// Ranges of the functions that symbols name.
    #[cfg(test)]
    pub fn sized(&self) -> &[(u64, u64)] {
        &self.sized
    }

    fn add_symbols(&mut self, text: Text<'_>) -> Option<()> {
        let header = FileHeader64::<LittleEndian>::parse(text.bytes).ok()?;
        let endian = header.endian().ok()?;
        let sections = header.sections(endian, text.bytes).ok()?;
        let mut left = MAX_SYMBOLS;
        for kind in [elf::SHT_SYMTAB, elf::SHT_DYNSYM] {
            let Ok(symbols) = sections.symbols(endian, text.bytes, kind) else { continue };
            for symbol in symbols.iter().take(left) {
                self.is_haskell |= symbol
                    .name(endian, symbols.strings())
                    .is_ok_and(|n| n == b"stg_upd_frame_info");
                let at = symbol.st_value(endian);
                let size = symbol.st_size(endian);
                if symbol.is_undefined(endian) || text.from(at).is_none() {
                    continue;
                }
                match symbol.st_type() {
                    STT_FUNC | STT_GNU_IFUNC if size > 0 => {
                        self.sized.push((at, at.saturating_add(size)));
                    }
                    STT_FUNC | STT_GNU_IFUNC => self.starts.push(at),
                    // In assembly, functions often have no type; local symbols may be labels.
                    STT_NOTYPE if !symbol.is_local() => self.starts.push(at),
                    _ => {}
                }
            }
            left = left.saturating_sub(symbols.len());
        }
        Some(())
    }

    /// Adds the targets of direct calls, and addresses that are taken.
    fn add_references(&mut self, text: Text<'_>) {
        let mut left = MAX_SEARCHED;
        for segment in text.segments {
            let Some(bytes) = text.from(segment.address) else { continue };
            if bytes.len() as u64 > left {
                continue;
            }
            left -= bytes.len() as u64;
            arch::each_reference(bytes, segment.address, |target| {
                if target.wrapping_sub(segment.address) < bytes.len() as u64 {
                    self.starts.push(target);
                }
            });
        }
    }

    /// Adds addresses of functions in data that the dynamic loader relocates.
    fn add_relocations(&mut self, text: Text<'_>) -> Option<()> {
        let header = FileHeader64::<LittleEndian>::parse(text.bytes).ok()?;
        let endian = header.endian().ok()?;
        let sections = header.sections(endian, text.bytes).ok()?;
        let mut left = MAX_SYMBOLS;
        for section in sections.iter() {
            let Ok(Some((entries, _))) = section.rela(endian, text.bytes) else { continue };
            for entry in entries.iter().take(left) {
                let to = entry.r_addend(endian) as u64;
                let relative = entry.r_type(endian, false) == RELATIVE;
                if relative && text.from(to).is_some() {
                    self.starts.push(to);
                }
            }
            left = left.saturating_sub(entries.len());
        }
        Some(())
    }

    /// Ranges of the functions that contain an address, innermost first.
    fn sized_at(&self, address: u64) -> impl Iterator<Item = (u64, u64)> {
        /// Functions rarely contain others.
        const NEAR: usize = 16;
        let upto = self.sized.partition_point(|&(start, _)| start <= address);
        let near = self.sized[..upto].iter().rev().take(NEAR).copied();
        near.filter(move |&(_, end)| address < end)
    }

    /// Start of the function that contains an address.
    pub fn start(&self, address: u64) -> Option<FunctionStart> {
        if let Some((start, _)) = self.sized_at(address).next() {
            return Some(FunctionStart::Known(start));
        }
        let upto = self.starts.partition_point(|&start| start <= address);
        upto.checked_sub(1).map(|i| FunctionStart::Likely(self.starts[i]))
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
