//! Where functions begin and end, by a file's symbols, or by its calls.

use iced_x86::{Decoder, DecoderOptions, Instruction, Mnemonic};
use object::elf::{FileHeader64, STT_FUNC, STT_GNU_IFUNC, STT_NOTYPE};
use object::read::elf::{FileHeader, Rela, SectionHeader, Sym};
use object::{LittleEndian, elf};

use super::graph::Text;

/// Most symbols that are read of a file.
const MAX_SYMBOLS: usize = 1 << 21;

/// Largest code that is searched for references to functions, in bytes.
const MAX_SEARCHED: u64 = 16 << 20;

/// Functions of a file.
#[derive(Debug, Default)]
pub struct Functions {
    /// First address and first one behind, by address: what symbols with a size say.
    sized: Vec<(u64, u64)>,
    /// Other addresses at which functions begin, most likely: symbols without a size, targets of
    /// calls, addresses that are taken.
    starts: Vec<u64>,
    /// Where functions end.
    ends: Vec<u64>,
    /// There are functions of Haskell's.
    is_haskell: bool,
}

/// Where the function begins that an address lies in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// A symbol says so.
    Known(u64),
    /// A function begins here, most likely, and it may be this one.
    Likely(u64),
}

impl Functions {
    /// What a file says.
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

    /// Functions need not be called: GHC's jump to each other, with a stack of their own in `rbp`,
    /// and what lies on the other one says nothing of them.
    pub fn only_jump(&self) -> bool {
        self.is_haskell
    }

    /// Functions with these ranges, and no others.
    #[cfg(test)]
    pub fn of_symbols(mut sized: Vec<(u64, u64)>) -> Functions {
        sized.sort_unstable();
        let ends = sized.iter().map(|&(_, end)| end).collect();
        Functions { sized, ends, ..Functions::default() }
    }

    /// Functions begin there, too, most likely.
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
                let (at, size) = (symbol.st_value(endian), symbol.st_size(endian));
                if symbol.is_undefined(endian) || text.from(at).is_none() {
                    continue;
                }
                match symbol.st_type() {
                    STT_FUNC | STT_GNU_IFUNC if size > 0 => {
                        self.sized.push((at, at.saturating_add(size)));
                    }
                    STT_FUNC | STT_GNU_IFUNC => self.starts.push(at),
                    // In assembly, functions often have no type; local ones may be labels.
                    STT_NOTYPE if !symbol.is_local() => self.starts.push(at),
                    _ => {}
                }
            }
            left = left.saturating_sub(symbols.len());
        }
        Some(())
    }

    /// Functions that are called directly begin at the calls' targets, others where an address is
    /// taken.
    fn add_references(&mut self, text: Text<'_>) {
        let mut left = MAX_SEARCHED;
        let mut instruction = Instruction::default();
        for segment in text.segments {
            let Some(bytes) = text.from(segment.address) else { continue };
            if bytes.len() as u64 > left {
                continue;
            }
            left -= bytes.len() as u64;
            // One after the other: what looks like a call in the middle of an instruction is none.
            let mut decoder = Decoder::with_ip(64, bytes, segment.address, DecoderOptions::NONE);
            while decoder.can_decode() {
                decoder.decode_out(&mut instruction);
                let target = match instruction.mnemonic() {
                    Mnemonic::Call if instruction.is_call_near() => {
                        instruction.near_branch_target()
                    }
                    Mnemonic::Lea if instruction.is_ip_rel_memory_operand() => {
                        instruction.ip_rel_memory_address()
                    }
                    _ => continue,
                };
                let is_inside = target.wrapping_sub(segment.address) < bytes.len() as u64;
                if is_inside && target != instruction.next_ip() {
                    self.starts.push(target);
                }
            }
        }
    }

    /// Addresses of functions that data holds, where the dynamic loader puts them.
    fn add_relocations(&mut self, text: Text<'_>) -> Option<()> {
        let header = FileHeader64::<LittleEndian>::parse(text.bytes).ok()?;
        let endian = header.endian().ok()?;
        let sections = header.sections(endian, text.bytes).ok()?;
        let mut left = MAX_SYMBOLS;
        for section in sections.iter() {
            let Ok(Some((entries, _))) = section.rela(endian, text.bytes) else { continue };
            for entry in entries.iter().take(left) {
                let to = entry.r_addend(endian) as u64;
                let relative = entry.r_type(endian, false) == elf::R_X86_64_RELATIVE;
                if relative && text.from(to).is_some() {
                    self.starts.push(to);
                }
            }
            left = left.saturating_sub(entries.len());
        }
        Some(())
    }

    /// Ranges of the functions that hold an address, innermost first.
    fn sized_at(&self, address: u64) -> impl Iterator<Item = (u64, u64)> {
        /// Functions hardly lie within others.
        const NEAR: usize = 16;
        let upto = self.sized.partition_point(|&(start, _)| start <= address);
        let near = self.sized[..upto].iter().rev().take(NEAR).copied();
        near.filter(move |&(_, end)| address < end)
    }

    /// Where the function begins that holds an address.
    pub fn start(&self, address: u64) -> Option<Start> {
        if let Some((start, _)) = self.sized_at(address).next() {
            return Some(Start::Known(start));
        }
        let upto = self.starts.partition_point(|&start| start <= address);
        upto.checked_sub(1).map(|i| Start::Likely(self.starts[i]))
    }

    /// The addresses lie in one function, a symbol says.
    pub fn are_one(&self, a: u64, b: u64) -> bool {
        self.sized_at(a).any(|(start, end)| (start..end).contains(&b))
    }

    /// A function ends here or another one begins.
    pub fn is_border(&self, address: u64) -> bool {
        let known = self.sized_at(address).next();
        match known {
            // Inside a function whose extent is known, calls' targets are its own.
            Some((start, _)) => start == address,
            None => {
                self.ends.binary_search(&address).is_ok()
                    || self.starts.binary_search(&address).is_ok()
            }
        }
    }
}
