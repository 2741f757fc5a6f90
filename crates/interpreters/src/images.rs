//! The files that a process has mapped, and symbols in them by name.

use std::collections::{HashMap, HashSet};
use std::io;
use std::ops::Range;
use std::path::Path;

use memmap2::Mmap;
use object::LittleEndian;
use object::elf::{
    FileHeader64, PT_DYNAMIC, PT_INTERP, PT_LOAD, PT_TLS, ProgramType, SHN_UNDEF, SHT_DYNSYM,
    SHT_SYMTAB, SectionType,
};
use object::read::elf::{FileHeader, ProgramHeader, SectionTable, Sym};
use sys::elf::{Elf, MAX_PROGRAM_HEADERS, NameBudget};
use sys::foreign::{Links, Root};
use sys::image::is_file;
use sys::maps::{MapsLine, parse_line};
use sys::{FileAddress, FileOffset, LoadBias, ProcessAddress};

use crate::memory::Memory;

mod split;

type Header = FileHeader64<LittleEndian>;

/// A file that a process has mapped as code.
#[derive(Clone, Copy, Debug)]
pub struct LoadedImage<'a> {
    /// Its contents.
    pub file: &'a [u8],
    /// From the addresses that it states to those of the process.
    pub bias: LoadBias,
}

/// A process in which interpreters are looked for.
pub struct Process<'a> {
    /// What it has mapped as code.
    pub images: &'a [LoadedImage<'a>],
    /// Its threads, by the numbers that it sees itself: those of its own PID namespace.
    pub threads: &'a [i32],
    /// Its memory.
    pub memory: &'a dyn Memory,
}

/// Files that a process has mapped as code, opened and mapped by prof as well.
pub struct MappedFiles {
    files: Vec<(Mmap, LoadBias)>,
}

impl MappedFiles {
    /// Most files of a process that are opened.
    const MOST: usize = 4096;

    /// The files that a process has mapped now. Those that cannot be opened, or are others than those
    /// that were mapped, are left out.
    ///
    /// # Errors
    ///
    /// The process has ended, or may not be inspected.
    pub fn open(pid: i32) -> io::Result<MappedFiles> {
        let root = Root::for_process(pid)?;
        let maps = sys::procfs::maps(pid)?;
        let mut files = Vec::new();
        let mut seen = HashSet::new();
        for line in String::from_utf8_lossy(&maps).lines().filter_map(parse_line) {
            let is_file = line.file.inode != 0 && line.path.starts_with('/');
            if line.executable
                && is_file
                && files.len() < MappedFiles::MOST
                && seen.insert(line.file)
            {
                files.extend(map_file(&root, &line));
            }
        }
        Ok(MappedFiles { files })
    }

    /// The files, as [`Process`] has them.
    pub fn images(&self) -> Vec<LoadedImage<'_>> {
        self.files.iter().map(|(file, bias)| LoadedImage { file, bias: *bias }).collect()
    }
}

/// Maps the file of a line, if its path still leads to it.
fn map_file(root: &Root, line: &MapsLine) -> Option<(Mmap, LoadBias)> {
    let file = root.open(Path::new(line.path), Links::Follow).ok()?;
    let metadata = file.metadata().ok()?;
    if !is_file(&file, &metadata, line.file) {
        return None;
    }
    let map = sys::mmap::map(&file).ok()?;
    let (_, address) = Elf::parse(&map)?.address_of(FileOffset(line.offset))?;
    Some((map, LoadBias::between(address, ProcessAddress(line.start))))
}

/// A symbol in a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Symbol {
    /// Its address.
    pub address: u64,
    /// Its size in bytes.
    pub size: u64,
}

impl Symbol {
    /// Its addresses.
    pub fn range(self) -> Range<u64> {
        self.address..self.address.saturating_add(self.size)
    }
}

/// The segment of a file's thread-local variables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tls {
    /// Bytes of a thread.
    pub size: u64,
    /// Their alignment in bytes.
    pub alignment: u64,
}

/// Most sections of a file whose symbols are read: each section's header is. Interpreters have about 40.
const MAX_SECTIONS: usize = 1 << 12;

/// Most symbols of a table that are read; node has 200,000.
const MAX_SYMBOLS: usize = 1 << 22;

impl<'a> LoadedImage<'a> {
    /// Symbols with these names that the file defines: those that are exported, then others, which
    /// a stripped file has not.
    pub(crate) fn symbols<'n>(&self, wanted: &[&'n str]) -> HashMap<&'n str, Symbol> {
        let mut found = HashMap::new();
        self.each_symbol(|name, symbol| {
            if let Some(name) = wanted.iter().find(|wanted| wanted.as_bytes() == name) {
                found.entry(*name).or_insert(symbol);
            }
        });
        found
    }

    /// True if the file exports a symbol with this name.
    pub(crate) fn exports(&self, wanted: &str) -> bool {
        self.exported(&[wanted]).is_some()
    }

    /// The number of the first of these names that the file exports.
    pub(crate) fn exported(&self, wanted: &[&str]) -> Option<usize> {
        let mut found = None;
        let _ = self.read_symbols(&[SHT_DYNSYM], |name, _| {
            let number = wanted.iter().position(|wanted| wanted.as_bytes() == name);
            found = number.or(found).min(found.or(number));
        });
        found
    }

    /// Symbols whose names begin with a prefix, some at most: compilers split a function in two or three.
    pub(crate) fn parts(&self, prefix: &str) -> Vec<Symbol> {
        const MOST: usize = 16;
        let mut found: Vec<Symbol> = Vec::new();
        self.each_symbol(|name, symbol| {
            let is_part = found.len() < MOST && name.starts_with(prefix.as_bytes());
            if is_part && !found.contains(&symbol) {
                found.push(symbol);
            }
        });
        found
    }

    /// Calls a function with each symbol that the file defines. Damaged parts count as absent.
    fn each_symbol(&self, each: impl FnMut(&[u8], Symbol)) {
        let _ = self.read_symbols(&[SHT_DYNSYM, SHT_SYMTAB], each);
    }

    fn read_symbols(
        &self,
        kinds: &[SectionType],
        mut each: impl FnMut(&[u8], Symbol),
    ) -> Option<()> {
        let header = Header::parse(self.file).ok()?;
        let endian = header.endian().ok()?;
        let sections: SectionTable<'_, Header> = header.sections(endian, self.file).ok()?;
        if sections.len() > MAX_SECTIONS {
            return None;
        }
        let mut budget = NameBudget::of(self.file);
        for &kind in kinds {
            let Ok(symbols) = sections.symbols(endian, self.file, kind) else { continue };
            for symbol in symbols.iter().take(MAX_SYMBOLS) {
                if symbol.st_shndx(endian) == SHN_UNDEF {
                    continue;
                }
                let name = budget.found(symbol.name(endian, symbols.strings()))?;
                let address = self.bias.apply(FileAddress(symbol.st_value(endian))).0;
                each(name, Symbol { address, size: symbol.st_size(endian) });
            }
        }
        Some(())
    }

    /// The distance from a thread pointer to a thread-local variable of an executable, whose symbol has
    /// this place (x86-64 psABI, variant II of TLS, local exec).
    pub(crate) fn thread_local(&self, symbol: Symbol) -> Option<i32> {
        let header = Header::parse(self.file).ok()?;
        let endian = header.endian().ok()?;
        let segments = header.program_headers(endian, self.file).ok()?;
        let segments = || segments.iter().take(MAX_PROGRAM_HEADERS);
        if !segments().any(|s| s.p_type(endian) == PT_INTERP) {
            return None;
        }
        let block = segments().find(|s| s.p_type(endian) == PT_TLS)?;
        let size = block.p_memsz(endian).checked_next_multiple_of(block.p_align(endian).max(1))?;
        let offset = symbol.address.wrapping_sub(self.bias.apply(FileAddress(0)).0);
        i32::try_from(offset.wrapping_sub(size).cast_signed()).ok().filter(|distance| *distance < 0)
    }

    /// Addresses of the process from the first to the last that the file is mapped at.
    pub(crate) fn extent(&self) -> Range<u64> {
        let extent = || {
            let header = Header::parse(self.file).ok()?;
            let endian = header.endian().ok()?;
            let segments = header.program_headers(endian, self.file).ok()?;
            let loaded = segments.iter().take(MAX_PROGRAM_HEADERS);
            let ranges = loaded.filter(|s| s.p_type(endian) == PT_LOAD).map(|s| {
                let start = self.bias.apply(FileAddress(s.p_vaddr(endian))).0;
                start..start.saturating_add(s.p_memsz(endian))
            });
            ranges.reduce(|a, b| a.start.min(b.start)..a.end.max(b.end))
        };
        extent().unwrap_or_default()
    }

    /// Address of the file's dynamic section in the process.
    pub(crate) fn dynamic_section(&self) -> Option<u64> {
        self.segment(PT_DYNAMIC, |address, _| address)
    }

    /// The file's thread-local variables.
    pub(crate) fn tls(&self) -> Option<Tls> {
        self.segment(PT_TLS, |_, tls| tls)
    }

    /// A value of the first segment of a kind: of its address in the process, its size and alignment.
    fn segment<T>(&self, kind: ProgramType, value: impl Fn(u64, Tls) -> T) -> Option<T> {
        let header = Header::parse(self.file).ok()?;
        let endian = header.endian().ok()?;
        let segments = header.program_headers(endian, self.file).ok()?;
        let mut loaded = segments.iter().take(MAX_PROGRAM_HEADERS);
        let segment = loaded.find(|segment| segment.p_type(endian) == kind)?;
        let address = self.bias.apply(FileAddress(segment.p_vaddr(endian))).0;
        let tls = Tls { size: segment.p_memsz(endian), alignment: segment.p_align(endian) };
        Some(value(address, tls))
    }

    /// Bytes that the file has for an address of the process: of a constant.
    pub(crate) fn constant<const N: usize>(&self, address: u64) -> Option<[u8; N]> {
        self.bytes(address)?.first_chunk().copied()
    }

    /// The bytes that the file has from an address to the end of its segment.
    pub(crate) fn bytes(&self, address: u64) -> Option<&'a [u8]> {
        let header = Header::parse(self.file).ok()?;
        let endian = header.endian().ok()?;
        let segments = header.program_headers(endian, self.file).ok()?;
        let loaded = segments.iter().take(MAX_PROGRAM_HEADERS);
        loaded.filter(|s| s.p_type(endian) == PT_LOAD).find_map(|s| {
            let start = self.bias.apply(FileAddress(s.p_vaddr(endian))).0;
            let into = address.checked_sub(start).filter(|into| *into < s.p_filesz(endian))?;
            let at = usize::try_from(s.p_offset(endian).checked_add(into)?).ok()?;
            let length = usize::try_from(s.p_filesz(endian) - into).ok()?;
            self.file.get(at..)?.get(..length)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own_file() -> Vec<u8> {
        std::fs::read("/proc/self/exe").unwrap()
    }

    fn image(file: &[u8], bias: u64) -> LoadedImage<'_> {
        LoadedImage { file, bias: LoadBias::between(FileAddress(0), sys::ProcessAddress(bias)) }
    }

    #[test]
    fn symbols_are_at_addresses_of_the_process() {
        let file = own_file();
        let main = |bias| image(&file, bias).symbols(&["main", "no symbol"])["main"];
        assert_eq!(main(0x1000).address, main(0).address + 0x1000);
        assert!(main(0).size > 0 && image(&file, 0).parts("mai").contains(&main(0)));
        assert!(image(&file, 0x1000).extent().contains(&main(0x1000).address));
        let bytes: [u8; 4] = image(&file, 0x1000).constant(0x1000).unwrap();
        assert_eq!(&bytes, b"\x7fELF");
    }

    #[test]
    fn a_damaged_file_has_no_symbols() {
        let file = own_file();
        for cut in [0, 10, 64, 1000, file.len() / 2] {
            assert!(image(&file[..cut], 0).symbols(&["main"]).is_empty());
        }
    }
}
