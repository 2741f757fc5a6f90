//! Code without symbols: the stubs of the procedure linkage table, which jump to functions of other
//! libraries; and bounds of sections, so that a symbol without a size does not name code of the
//! next section.
//!
//! A stub jumps through a word of the global offset table, and a relocation names the function
//! whose address the word contains.

use std::cell::OnceCell;
use std::fs::File;

use memmap2::Mmap;
use object::elf::{
    FileHeader64, SHF_EXECINSTR, SHN_UNDEF, SHT_DYNSYM, SHT_NOBITS, SHT_RELA, SHT_SYMTAB,
};
use object::read::elf::{FileHeader, Rela, SectionHeader, SectionTable, Sym, SymbolTable};
use object::{LittleEndian, SymbolIndex};
use rustc_hash::{FxHashMap, FxHashSet};

use super::arch::{self, Stub};
use sys::arch::{GLOB_DAT, IRELATIVE, JUMP_SLOT};
use sys::elf::{MAX_SECTIONS, section_name, section_names};
use sys::mmap;

type ElfHeader = FileHeader64<LittleEndian>;

/// An executable section: first and limit address.
type Bounds = (u64, u64);

/// Sections and stubs of a file's code.
#[derive(Debug, Default)]
pub struct CodeSections {
    /// Executable sections, sorted.
    sections: Vec<Bounds>,
    /// Stubs by first address: limit address, and name.
    stubs: Vec<(u64, u64, String)>,
    /// The file.
    map: Option<Mmap>,
    /// Names of symbols with the address 0, read on first use.
    at_zero: OnceCell<FxHashSet<Vec<u8>>>,
}

impl CodeSections {
    /// Reads the code information for `addresses` of a file; empty if it is not a 64-bit file or has
    /// no sections.
    pub fn read(file: &File, addresses: &[u64]) -> CodeSections {
        let Ok(map) = mmap::map(file) else { return CodeSections::default() };
        let code = parse(&map, addresses).unwrap_or_default();
        CodeSections { map: Some(map), ..code }
    }

    /// Name of the stub at an address of the file, such as `malloc@plt`.
    pub fn stub(&self, address: u64) -> Option<&str> {
        let i = self.stubs.partition_point(|s| s.0 <= address).checked_sub(1)?;
        let (_, end, name) = &self.stubs[i];
        (address < *end).then_some(name)
    }

    /// True if a symbol at `symbol` may name `address`: both are in the same section.
    pub fn same_section(&self, symbol: u64, address: u64) -> bool {
        let section_of =
            |at| self.sections.iter().position(|&(start, end)| start <= at && at < end);
        match (section_of(symbol), section_of(address)) {
            (Some(a), Some(b)) => a == b,
            _ => self.sections.is_empty(),
        }
    }

    /// True if a symbol of this name has the address 0 and no size, as the linker's `__ehdr_start`:
    /// it does not describe code.
    pub fn is_at_zero(&self, name: &str) -> bool {
        let names = self.at_zero.get_or_init(|| {
            let map = self.map.as_deref();
            map.and_then(names_at_zero).unwrap_or_default()
        });
        names.contains(name.as_bytes())
    }
}

fn names_at_zero(cache: &[u8]) -> Option<FxHashSet<Vec<u8>>> {
    let header = ElfHeader::parse(cache).ok()?;
    let endian = header.endian().ok()?;
    let sections = header.sections(endian, cache).ok()?;
    let mut names = FxHashSet::default();
    for table in [SHT_SYMTAB, SHT_DYNSYM] {
        let Ok(symbols) = sections.symbols(endian, cache, table) else { continue };
        for symbol in symbols.iter() {
            let defined = symbol.st_shndx(endian) != SHN_UNDEF;
            if defined && symbol.st_value(endian) == 0 && symbol.st_size(endian) == 0 {
                names.extend(symbols.symbol_name(endian, symbol).map(<[u8]>::to_vec));
            }
        }
    }
    Some(names)
}

fn parse(cache: &[u8], addresses: &[u64]) -> Option<CodeSections> {
    let header = ElfHeader::parse(cache).ok()?;
    let endian = header.endian().ok()?;
    let sections = header.sections(endian, cache).ok()?;
    let mut code = CodeSections::default();
    let mut slots = None;
    let names = section_names(header, endian, cache, &sections);
    for section in sections.iter().take(MAX_SECTIONS) {
        if !section.sh_flags(endian).contains(SHF_EXECINSTR) {
            continue;
        }
        let address = section.sh_addr(endian);
        let end = address.saturating_add(section.sh_size(endian));
        code.sections.push((address, end));
        let name = section_name::<ElfHeader>(names, endian, section).unwrap_or_default();
        if !name.starts_with(b".plt") || section.sh_type(endian) == SHT_NOBITS {
            continue;
        }
        // There may be many relocations; most profiles need none of them.
        if !addresses.iter().any(|a| (address..end).contains(a)) {
            continue;
        }
        let slots = slots.get_or_insert_with(|| slots_of(&sections, endian, cache));
        let data = section.data(endian, cache).unwrap_or_default();
        let stubs = arch::stubs(data, address, section.sh_entsize(endian));
        add_stubs(&mut code.stubs, stubs, slots);
    }
    code.sections.sort_unstable();
    code.stubs.sort_unstable();
    Some(code)
}

fn add_stubs(
    named: &mut Vec<(u64, u64, String)>,
    stubs: Vec<Stub>,
    slots: &FxHashMap<u64, String>,
) {
    for Stub { start, end, slot } in stubs {
        if let Some(name) = slots.get(&slot) {
            named.push((start, end, format!("{name}@plt")));
        }
    }
}

/// Function of each word of the global offset table.
fn slots_of<'a>(
    sections: &SectionTable<'a, ElfHeader, &'a [u8]>,
    endian: LittleEndian,
    cache: &'a [u8],
) -> FxHashMap<u64, String> {
    let mut slots = FxHashMap::default();
    let Ok(symbols) = sections.symbols(endian, cache, SHT_DYNSYM) else { return slots };
    for section in sections.iter().filter(|s| s.sh_type(endian) == SHT_RELA) {
        let Ok(Some((relocations, _))) = section.rela(endian, cache) else { continue };
        for r in relocations {
            let name = match r.r_type(endian, false) {
                JUMP_SLOT | GLOB_DAT => {
                    r.symbol(endian, false).and_then(|i| name_of(&symbols, endian, i))
                }
                IRELATIVE => chosen_at_start(&symbols, endian, r.r_addend(endian) as u64),
                _ => None,
            };
            if let Some(name) = name {
                slots.insert(r.r_offset(endian), name);
            }
        }
    }
    slots
}

type Symbols<'a> = SymbolTable<'a, ElfHeader, &'a [u8]>;

fn name_of(symbols: &Symbols<'_>, endian: LittleEndian, index: SymbolIndex) -> Option<String> {
    let name = symbols.symbol_name(endian, symbols.symbol(index).ok()?).ok()?;
    (!name.is_empty()).then(|| String::from_utf8_lossy(name).into_owned())
}

/// A function of the same file that code at `resolver` chooses among several.
fn chosen_at_start(symbols: &Symbols<'_>, endian: LittleEndian, resolver: u64) -> Option<String> {
    let symbol = symbols.iter().find(|s| s.st_value(endian) == resolver);
    match symbol.and_then(|s| symbols.symbol_name(endian, s).ok()) {
        Some(name) if !name.is_empty() => Some(String::from_utf8_lossy(name).into_owned()),
        _ => Some(format!("*ABS*+{resolver:#x}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stub_is_named_by_its_slot() {
        let slots = FxHashMap::from_iter([(0x4000, "malloc".to_owned())]);
        let stubs = vec![Stub { start: 0x1000, end: 0x1010, slot: 0x4000 }];
        let sections = vec![(0x1000, 0x1010), (0x2000, 0x3000)];
        let mut code = CodeSections { sections, ..CodeSections::default() };
        add_stubs(&mut code.stubs, stubs, &slots);
        assert_eq!(code.stub(0x1000), Some("malloc@plt"));
        assert_eq!(code.stub(0x100f), Some("malloc@plt"));
        assert_eq!((code.stub(0xfff), code.stub(0x1010)), (None, None));
        assert!(code.same_section(0x2000, 0x2fff) && !code.same_section(0x1000, 0x2000));
    }

    /// `objdump -d` names stubs too, as `0000000000001030 <malloc@plt>:`.
    fn stubs_by_objdump(path: &str) -> Option<Vec<(u64, String)>> {
        let sections = [".plt", ".plt.sec", ".plt.got"].map(|s| format!("--section={s}"));
        let mut objdump = std::process::Command::new("objdump");
        let output = objdump.arg("-d").args(sections).arg(path).output().ok()?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let label = |line: &str| {
            let (address, name) = line.split_once(" <")?;
            let name = name.strip_suffix(">:")?;
            // With a version (`malloc@GLIBC_2.2.5@plt`) and an addend, sometimes.
            let (name, plt) = (name.split(['@', '-']).next()?, name.ends_with("@plt"));
            let address = u64::from_str_radix(address, 16).ok()?;
            plt.then(|| (address, format!("{name}@plt")))
        };
        output.status.success().then(|| text.lines().filter_map(label).collect())
    }

    #[test]
    fn stubs_are_named_as_objdump_names_them() {
        let mut seen = 0;
        for file in ["bin/python3", "bin/as", "lib/x86_64-linux-gnu/libstdc++.so.6"] {
            let path = format!("/usr/{file}");
            let Some(theirs) = stubs_by_objdump(&path) else {
                sys::testing::skip(&format!("objdump or {path} is not installed"));
                continue;
            };
            let addresses: Vec<u64> = theirs.iter().map(|t| t.0).collect();
            let code = CodeSections::read(&File::open(&path).unwrap(), &addresses);
            for (address, name) in &theirs {
                if name.starts_with('*') {
                    // prof names some that objdump shows without a name.
                    assert!(code.stub(*address).is_some(), "{path} {address:#x} {name}");
                } else {
                    assert_eq!(code.stub(*address), Some(name.as_str()), "{path} {address:#x}");
                }
            }
            seen += theirs.len();
        }
        assert!(seen == 0 || seen > 100, "{seen}");
    }
}
