//! Names of addresses that code mentions: of functions that it calls, of words of the global offset
//! table, of data.

use std::fs::File;

use object::elf::{FileHeader64, SHT_DYNSYM, SHT_NOBITS, SHT_RELA};
use object::read::elf::{FileHeader, Rela, SectionHeader, Sym, SymbolTable};
use object::{LittleEndian, Object, ObjectSymbol, SymbolIndex, SymbolKind};
use rustc_hash::{FxHashMap, FxHashSet};

use super::binary::Binary;
use super::plt::CodeSections;
use super::{aliases, demangle};
use sys::arch::{ELF_MACHINE, GLOB_DAT, IRELATIVE, JUMP_SLOT, RELATIVE};
use sys::elf::{MAX_SECTIONS, NameBudget, section_name, section_names};
use sys::{FileAddress, catch_panic, mmap};

type ElfHeader = FileHeader64<LittleEndian>;

/// Longest name that is used.
const MAX_NAME: usize = 64 << 10;

/// Most comparisons of a symbol with an address: a damaged table can have many large symbols.
const MAX_WORK: usize = 1 << 26;

/// The symbol at an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NameAt {
    /// Its name, demangled.
    pub name: String,
    /// Offset of the address in it.
    pub offset: u64,
    /// The address is that of a word of the global offset table with the symbol's address.
    pub slot: bool,
}

impl Binary {
    /// Names of addresses in symbol tables; `None` for an address in no symbol. Debug information
    /// is not read.
    pub fn names_at(&self, addresses: &[FileAddress], demangle: bool) -> Vec<Option<NameAt>> {
        let mut names = vec![None; addresses.len()];
        let slots = catch_panic(|| slots(&self.file, addresses)).flatten().unwrap_or_default();
        // A word may have the address of a function of the same binary.
        let mut requested: Vec<(u64, usize)> = Vec::new();
        for (i, address) in addresses.iter().enumerate() {
            match slots.get(&address.0) {
                Some(Slot::Symbol(name)) => {
                    names[i] = Some(NameAt { name: name.clone(), offset: 0, slot: true });
                }
                Some(Slot::Address(pointer)) => requested.push((*pointer, i)),
                None => requested.push((address.0, i)),
            }
        }
        requested.sort_unstable();
        let mut found: Vec<(usize, u64, Containing)> = Vec::new();
        for layer in self.layers() {
            if requested.is_empty() {
                break;
            }
            let symbols = catch_panic(|| symbols(&layer.file, &requested)).flatten();
            let pairs = requested.iter().zip(symbols.unwrap_or_default());
            found.extend(pairs.filter_map(|(&(address, i), s)| Some((i, address, s?))));
            let named: FxHashSet<usize> = found.iter().map(|(i, ..)| *i).collect();
            requested.retain(|(_, i)| !named.contains(i));
        }
        let at = aliases::at(self.layers(), found.iter().map(|(_, _, symbol)| symbol.start));
        for (i, address, symbol) in found {
            let offset = address - symbol.start;
            let slot = slots.contains_key(&addresses[i].0);
            let best = at.get(&symbol.start).filter(|names| names.contains(&symbol.name));
            let best = best.and_then(|names| names.best()).map(str::to_owned);
            let name = best.unwrap_or(symbol.name);
            names[i] = Some(NameAt { name, offset, slot });
        }
        if names.iter().any(Option::is_none) {
            let all: Vec<u64> = addresses.iter().map(|address| address.0).collect();
            let code = catch_panic(|| CodeSections::read(&self.file, &all)).unwrap_or_default();
            for (name, address) in names.iter_mut().zip(&all).filter(|(name, _)| name.is_none()) {
                let stub = code.stub(*address).map(str::to_owned);
                *name = stub.map(|name| NameAt { name, offset: 0, slot: false });
            }
        }
        if demangle {
            for found in names.iter_mut().flatten() {
                if let Some(readable) = demangle::demangle(&found.name) {
                    found.name = readable;
                }
            }
        }
        names
    }
}

/// A symbol that contains an address.
#[derive(Clone, Debug)]
struct Containing {
    start: u64,
    size: u64,
    name: String,
}

/// The symbols of a file that contain these ascending addresses; of several, one with the last
/// start, of these one with the largest size.
fn symbols(file: &File, requested: &[(u64, usize)]) -> Option<Vec<Option<Containing>>> {
    let map = mmap::map(file).ok()?;
    let file = object::File::parse(&*map).ok()?;
    let mut found: Vec<Option<Containing>> = vec![None; requested.len()];
    let mut left = MAX_WORK;
    let mut budget = NameBudget::of(&map);
    for symbol in file.symbols().chain(file.dynamic_symbols()) {
        let start = symbol.address();
        let first = requested.partition_point(|&(address, _)| address < start);
        let end = start.saturating_add(symbol.size().max(1));
        if requested.get(first).is_none_or(|&(address, _)| address >= end) {
            continue;
        }
        let usable =
            !matches!(symbol.kind(), SymbolKind::Section | SymbolKind::File | SymbolKind::Tls)
                && !symbol.is_undefined()
                && start > 0;
        if !usable {
            continue;
        }
        let Some(name) = budget.found(symbol.name_bytes()) else { break };
        // Arm's mapping symbols, and the compiler's labels.
        if name.is_empty() || name.len() > MAX_NAME || name.starts_with(b"$") {
            continue;
        }
        for (at, _) in requested[first..].iter().enumerate().take_while(|(_, r)| r.0 < end) {
            left = left.checked_sub(1)?;
            let place = &mut found[first + at];
            let size = symbol.size();
            let is_better =
                place.as_ref().is_none_or(|known| (start, size) > (known.start, known.size));
            if is_better {
                let name = String::from_utf8_lossy(name).into_owned();
                *place = Some(Containing { start, size, name });
            }
        }
    }
    Some(found)
}

/// The contents of a word of the global offset table.
enum Slot {
    /// The address of a symbol, mostly of another binary.
    Symbol(String),
    /// An address in the same binary.
    Address(u64),
}

/// Those of the addresses that are words of the global offset table, with their contents; `None` of
/// a file for another architecture.
fn slots(file: &File, addresses: &[FileAddress]) -> Option<FxHashMap<u64, Slot>> {
    let map = mmap::map(file).ok()?;
    let data: &[u8] = &map;
    let header = ElfHeader::parse(data).ok()?;
    let endian = header.endian().ok()?;
    if header.e_machine(endian) != ELF_MACHINE {
        return None;
    }
    let sections = header.sections(endian, data).ok()?;
    // The words as linked, which a static program uses as they are.
    let mut slots = FxHashMap::default();
    let names = section_names(header, endian, data, &sections);
    for section in sections.iter().take(MAX_SECTIONS) {
        let name = section_name::<ElfHeader>(names, endian, section).unwrap_or_default();
        if !name.starts_with(b".got") || section.sh_type(endian) == SHT_NOBITS {
            continue;
        }
        let bytes = section.data(endian, data).unwrap_or_default();
        for FileAddress(address) in addresses {
            let into = address.checked_sub(section.sh_addr(endian));
            let into = into.and_then(|into| usize::try_from(into).ok());
            let word = into.and_then(|into| bytes.get(into..)?.first_chunk::<8>());
            if let Some(word) = word {
                slots.insert(*address, Slot::Address(u64::from_le_bytes(*word)));
            }
        }
    }
    if slots.is_empty() {
        return Some(slots);
    }
    let symbols = sections.symbols(endian, data, SHT_DYNSYM).ok();
    for section in sections.iter().filter(|s| s.sh_type(endian) == SHT_RELA) {
        let Ok(Some((relocations, _))) = section.rela(endian, data) else { continue };
        for r in relocations {
            let Some(slot) = slots.get_mut(&r.r_offset(endian)) else { continue };
            let kind = r.r_type(endian, false);
            if kind == RELATIVE || kind == IRELATIVE {
                *slot = Slot::Address(r.r_addend(endian) as u64);
            } else if [JUMP_SLOT, GLOB_DAT].contains(&kind)
                && let Some(symbols) = &symbols
                && let Some(name) =
                    r.symbol(endian, false).and_then(|i| name_of(symbols, endian, i))
            {
                *slot = Slot::Symbol(name);
            }
        }
    }
    Some(slots)
}

type Symbols<'a> = SymbolTable<'a, ElfHeader, &'a [u8]>;

fn name_of(symbols: &Symbols<'_>, endian: LittleEndian, index: SymbolIndex) -> Option<String> {
    let name = symbols.symbol(index).ok()?.name(endian, symbols.strings()).ok()?;
    let usable = !name.is_empty() && name.len() <= MAX_NAME;
    usable.then(|| String::from_utf8_lossy(name).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SymbolOptions;
    use crate::tests::{Lab, marks};
    use std::process::Command;

    const C: &str = "
        #include <stdio.h>
        int table[64] = {1};
        static int hidden[4] = {2};
        __attribute__((noinline)) int callee(int i) { return table[i] + hidden[i & 3]; }
        int main(int argc, char **argv) { printf(\"%d\\n\", callee(argc)); return 0; }
    ";

    /// Output of a tool about the program.
    fn output(lab: &Lab, tool: &str, option: &str) -> String {
        let output = Command::new(tool).arg(option).arg(lab.path("prog")).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    }

    #[test]
    fn functions_data_and_slots_have_names() {
        for options in [&["-O1", "-fno-plt"][..], &["-O1", "-fno-plt", "-no-pie"]] {
            let lab = Lab::new();
            let path = lab.compile("prog", C, options);
            let symbol = marks(&path);
            let relocations = output(&lab, "readelf", "-rW");
            let of_printf = relocations.lines().find(|line| line.contains("printf"));
            let slot = of_printf.unwrap().split(' ').next().unwrap();
            let slot = u64::from_str_radix(slot, 16).unwrap();
            let addresses = [symbol("callee"), symbol("table") + 8, symbol("hidden"), slot, 1];
            let binary = Binary::find(&path.to_string_lossy(), "", &SymbolOptions::default());
            let names = binary.unwrap().names_at(&addresses.map(FileAddress), true);
            let name = |name: &str, offset, slot| Some(NameAt { name: name.into(), offset, slot });
            let expected = [
                name("callee", 0, false),
                name("table", 8, false),
                name("hidden", 0, false),
                name("printf", 0, true),
                None,
            ];
            assert_eq!(names, expected, "{options:?}");
        }
    }
}
