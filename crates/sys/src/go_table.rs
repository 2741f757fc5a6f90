//! The table that every Go program has for its own stack traces, even if stripped: `.gopclntab`
//! ("Go 1.2 Runtime Symbol Table", and cmd/link/internal/ld/pcln.go since).
//!
//! It is not trusted: what is damaged is absent.

use std::ops::Range;

use object::LittleEndian;
use object::elf::{FileHeader64, Rela64, SHT_RELA, SectionHeader64};
use object::read::elf::{FileHeader, Rela, SectionHeader};
use rustc_hash::FxHashMap;

use crate::arch::RELATIVE;
use crate::elf::{self, section_name};

/// Most bytes that are searched for a table, and the alignment of tables.
const MAX_SEARCHED: usize = 64 << 20;
const ALIGNMENT: usize = 8;

/// Offset of the number of functions, and of the start of the code in tables that have it.
const COUNT: usize = 8;
const TEXT: usize = COUNT + 2 * 8;

/// Layout version of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Version {
    /// Since Go 1.2.
    Go1_2,
    /// Since Go 1.16: has parts.
    Go1_16,
    /// Since Go 1.18: addresses of functions are relative to the start of the code.
    Go1_18,
    /// Since Go 1.20: functions have one more field.
    Go1_20,
}

/// A table of functions, as positions in its file. All functions take the bytes of that file.
#[derive(Debug)]
pub struct GoTable {
    /// In the file; the end may be behind that of the table.
    range: Range<usize>,
    version: Version,
    /// Bytes of the shortest instruction.
    quantum: u64,
    /// Words that the dynamic linker would write, by offset.
    relocated: FxHashMap<usize, u64>,
    /// Base of function addresses.
    text: u64,
    count: usize,
    /// Offset of the list of functions, with which their fields begin since Go 1.16.
    functions: usize,
    /// Offsets of further parts.
    parts: Parts,
}

/// Offsets of the parts of a table; 0 in tables without parts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Parts {
    /// Names of functions.
    pub names: usize,
    /// Numbers of files, by compilation unit.
    pub units: usize,
    /// Names of files; in tables without parts, the list of their offsets.
    pub files: usize,
    /// Lists of values by address.
    pub values: usize,
}

/// A function of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Function {
    /// Its address.
    pub entry: u64,
    /// Offset of its fields after the address.
    fields: usize,
}

/// Limits of the relocations of a table.
struct Limits {
    /// Most relocations of a file that are searched.
    searched: usize,
    /// Most relocations of a table; one with more is unsupported.
    kept: usize,
}

/// For names, which a process with limits of its own looks up.
const FOR_NAMES: Limits = Limits { searched: 1 << 24, kept: usize::MAX };

/// For unwinding, in the recorder.
const FOR_FRAMES: Limits = Limits { searched: 1 << 21, kept: 1 };

/// The sections of a file.
struct Sections<'a> {
    file: &'a [u8],
    table: object::read::elf::SectionTable<'a, FileHeader64<LittleEndian>>,
    names: &'a [u8],
}

impl<'a> Sections<'a> {
    fn parse(file: &'a [u8]) -> Option<Sections<'a>> {
        let header = FileHeader64::<LittleEndian>::parse(file).ok()?;
        let table = header.sections(header.endian().ok()?, file).ok()?;
        let names = elf::section_names(header, LittleEndian, file, &table);
        Some(Sections { file, table, names })
    }

    /// The first section whose name ends so.
    fn named(&self, wanted: &[u8]) -> Option<&'a SectionHeader64<LittleEndian>> {
        let name = |section| section_name::<FileHeader64<_>>(self.names, LittleEndian, section);
        let mut all = self.table.iter().take(elf::MAX_SECTIONS);
        all.find(|section| name(section).is_some_and(|name| name.ends_with(wanted)))
    }

    /// All relocations; many sections may have the same ones.
    fn relocations(&self) -> impl Iterator<Item = &'a Rela64<LittleEndian>> {
        let all = self.table.iter().take(elf::MAX_SECTIONS);
        let lists = all.filter(|s| s.sh_type(LittleEndian) == SHT_RELA);
        let lists = lists.filter_map(|section| section.rela(LittleEndian, self.file).ok()?);
        lists.flat_map(|(all, _)| all)
    }
}

/// The bytes of a section in its file.
fn range_of(section: &SectionHeader64<LittleEndian>) -> Option<Range<usize>> {
    let (offset, size) = section.file_range(LittleEndian)?;
    let start = usize::try_from(offset).ok()?;
    Some(start..start.checked_add(usize::try_from(size).ok()?)?)
}

impl GoTable {
    /// The table in the section of its name; `None` if the file has none, or an unsupported one.
    pub fn with_names(file: &[u8]) -> Option<GoTable> {
        let sections = Sections::parse(file)?;
        let section = sections.named(b".gopclntab")?;
        let table = GoTable::parse(file, range_of(section)?)?;
        table.placed(&sections, section, &FOR_NAMES)
    }

    /// The table in the section of its name, or among other data, where other linkers put it in a
    /// position-independent program; `None` if the file has none, or an unsupported one.
    ///
    /// It takes bounded memory: a position-independent table of before Go 1.18, of which each address
    /// is a relocation, counts as unsupported.
    pub fn with_frames(file: &[u8]) -> Option<GoTable> {
        let sections = Sections::parse(file)?;
        let (section, table) = match sections.named(b".gopclntab") {
            Some(section) => (section, GoTable::parse(file, range_of(section)?)?),
            None => {
                let section = sections.named(b".data.rel.ro")?;
                (section, GoTable::within(file, range_of(section)?)?)
            }
        };
        table.placed(&sections, section, &FOR_FRAMES)
    }

    /// The table that lies somewhere in a part of a file.
    fn within(file: &[u8], range: Range<usize>) -> Option<GoTable> {
        let data = file.get(range.clone())?;
        let data = &data[..data.len().min(MAX_SEARCHED)];
        let mut words = data.chunks_exact(ALIGNMENT).enumerate();
        words.find_map(|(i, word)| {
            let is_header = matches!(word, [0xf0 | 0xf1 | 0xfa | 0xfb, 0xff, 0xff, 0xff, 0, 0, ..]);
            let start = range.start + i * ALIGNMENT;
            is_header.then(|| GoTable::parse(file, start..range.end)).flatten()
        })
    }

    /// The table in a part of a file, without what a dynamic linker would write; `None` if its
    /// header is unsupported or inconsistent.
    pub fn parse(file: &[u8], range: Range<usize>) -> Option<GoTable> {
        let data = file.get(range.clone())?;
        let version = match number(data, 0)? {
            0xffff_fffb => Version::Go1_2,
            0xffff_fffa => Version::Go1_16,
            0xffff_fff0 => Version::Go1_18,
            0xffff_fff1 => Version::Go1_20,
            _ => return None,
        };
        let &[0, 0, quantum @ (1 | 2 | 4), 8] = data.get(4..8)?.first_chunk()? else { return None };
        let part = |n: usize| usize::try_from(word(data, COUNT + n * 8)?).ok();
        let count = part(0)?;
        let has_text = version >= Version::Go1_18;
        let text = if has_text { word(data, TEXT)? } else { 0 };
        let first = if has_text { 3 } else { 2 };
        let mut functions = COUNT + 8;
        let mut parts = Parts::default();
        if version >= Version::Go1_16 {
            parts = Parts {
                names: part(first)?,
                units: part(first + 1)?,
                files: part(first + 2)?,
                values: part(first + 3)?,
            };
            functions = part(first + 4)?;
        }
        let field = if has_text { 4 } else { 8 };
        // There must be room for the functions and the end of the last one.
        let end = functions.checked_add(count.checked_add(1)?.checked_mul(2 * field)?)?;
        if count == 0 || end > data.len() {
            return None;
        }
        if version == Version::Go1_2 {
            parts.files = number(data, end - field)? as usize;
        }
        let (quantum, relocated) = (quantum.into(), FxHashMap::default());
        Some(GoTable { range, version, quantum, relocated, text, count, functions, parts })
    }

    /// With what the dynamic linker would write into a table of this section, and the start of its
    /// functions.
    fn placed(
        mut self,
        sections: &Sections<'_>,
        section: &SectionHeader64<LittleEndian>,
        limits: &Limits,
    ) -> Option<GoTable> {
        let before = self.range.start.checked_sub(range_of(section)?.start)?;
        let start = section.sh_addr(LittleEndian).checked_add(before as u64)?;
        // The start of the code is the only address of later tables.
        let inside = if self.has_text() { TEXT..TEXT + 1 } else { 0..self.range.len() };
        self.relocated = relocated(sections.relocations(), start, inside, limits)?;
        if let Some(&text) = self.relocated.get(&TEXT).filter(|_| self.has_text()) {
            self.text = text;
        }
        if self.has_text() && self.text == 0 {
            self.text = stated_start(sections, start, limits).unwrap_or(0);
        }
        let text = sections.named(b".text");
        let text = text.map(|s| (s.sh_addr(LittleEndian), s.sh_size(LittleEndian)));
        self.starting_in(sections.file, text)
    }

    /// With the start of the code, given as its address and size, if the table lacks it: `None` if
    /// the functions are not as large together, up to the alignment of the code.
    pub fn starting_in(mut self, file: &[u8], code: Option<(u64, u64)>) -> Option<GoTable> {
        if self.has_text() && self.text == 0 {
            let (start, size) = code?;
            let last = self.entry(self.data(file), self.count)?;
            self.text = (last <= size && size - last < 64).then_some(start)?;
        }
        Some(self)
    }

    /// Layout version.
    pub fn version(&self) -> Version {
        self.version
    }

    /// Where its parts are.
    pub fn parts(&self) -> Parts {
        self.parts
    }

    /// The bytes of the table, maybe with others behind them.
    pub fn data<'a>(&self, file: &'a [u8]) -> &'a [u8] {
        file.get(self.range.clone()).unwrap_or_default()
    }

    fn has_text(&self) -> bool {
        self.version >= Version::Go1_18
    }

    /// Bytes of a field in the list of functions, and of a function's address.
    fn field(&self) -> usize {
        if self.has_text() { 4 } else { 8 }
    }

    /// An address or offset, as the dynamic linker would leave it.
    fn word(&self, data: &[u8], at: usize) -> Option<u64> {
        let stored = word(data, at)?;
        Some(self.relocated.get(&at).copied().unwrap_or(stored))
    }

    /// The address of a function at an offset.
    fn address(&self, data: &[u8], at: usize) -> Option<u64> {
        if self.has_text() {
            return self.text.checked_add(number(data, at)?.into());
        }
        self.word(data, at)
    }

    /// Address of function number `n`, or the end of the last one.
    fn entry(&self, data: &[u8], n: usize) -> Option<u64> {
        self.address(data, self.functions + n * 2 * self.field())
    }

    /// Number of the function that contains an address.
    fn number_of(&self, data: &[u8], address: u64) -> Option<usize> {
        let mut from = 0;
        let mut to = self.count;
        while from < to {
            let middle = from + (to - from) / 2;
            if self.entry(data, middle)? <= address { from = middle + 1 } else { to = middle }
        }
        let n = from.checked_sub(1)?;
        (self.entry(data, n)?..self.entry(data, n + 1)?).contains(&address).then_some(n)
    }

    /// Addresses of the function that contains an address.
    pub fn bounds(&self, file: &[u8], address: u64) -> Option<Range<u64>> {
        let data = self.data(file);
        let n = self.number_of(data, address)?;
        Some(self.entry(data, n)?..self.entry(data, n + 1)?)
    }

    /// Addresses of all functions, each up to the next one; damaged entries are 0.
    pub fn all_bounds(&self, file: &[u8]) -> impl ExactSizeIterator<Item = (u64, u64)> {
        let data = self.data(file);
        let entry = |n| self.entry(data, n).unwrap_or_default();
        (0..self.count).map(move |n| (entry(n), entry(n + 1)))
    }

    /// The function that contains an address.
    pub fn function(&self, file: &[u8], address: u64) -> Option<Function> {
        let data = self.data(file);
        let n = self.number_of(data, address)?;
        let entry = self.entry(data, n)?;
        let at = self.functions + n * 2 * self.field() + self.field();
        let offset = match self.version {
            Version::Go1_2 | Version::Go1_16 => usize::try_from(self.word(data, at)?).ok()?,
            Version::Go1_18 | Version::Go1_20 => number(data, at)? as usize,
        };
        let base = if self.version == Version::Go1_2 { 0 } else { self.functions };
        let start = base.checked_add(offset)?;
        // It begins with its address again.
        let again = self.address(data, start)?;
        (again == entry).then_some(Function { entry, fields: start + self.field() })
    }

    /// The name of a function, up to 256 bytes of it.
    pub fn name<'a>(&self, file: &'a [u8], function: &Function) -> Option<&'a [u8]> {
        const LONGEST: usize = 256;
        let offset = self.field_of(file, function, 0)? as usize;
        let name = self.data(file).get(self.parts.names.checked_add(offset)?..)?;
        name[..name.len().min(LONGEST)].split(|&byte| byte == 0).next()
    }

    /// The 32-bit field number `n` of a function, after its address: its name, arguments, deferred
    /// return, and the lists of its frame sizes, files and lines; then the number of further lists.
    pub fn field_of(&self, file: &[u8], function: &Function, n: usize) -> Option<u32> {
        number(self.data(file), function.fields.checked_add(n * 4)?)
    }

    /// Value for the instruction at an address of a function in one of the lists, of differences of
    /// values and of the addresses up to which they apply; takes the entries that it reads from
    /// `entries`, and ends without a value when none is left.
    pub fn value(
        &self,
        file: &[u8],
        list: u32,
        function: &Function,
        address: u64,
        entries: &mut u64,
    ) -> Option<i32> {
        let mut left = self.data(file).get(self.parts.values.checked_add(list as usize)?..)?;
        let mut value = -1_i32;
        let mut end = function.entry;
        let mut is_first = true;
        loop {
            *entries = entries.checked_sub(1)?;
            let change = varint(&mut left)?;
            if change == 0 && !is_first {
                return None;
            }
            is_first = false;
            let half = (change >> 1) as i32;
            value = value.wrapping_add(if change & 1 == 1 { !half } else { half });
            end = end.checked_add(u64::from(varint(&mut left)?) * self.quantum)?;
            if address < end {
                return Some(value);
            }
        }
    }
}

/// Start of the code of the table at an address, as the program's own description of itself
/// (`runtime.firstmoduledata`) states it: since Go 1.26, that has a section, and the table lacks it.
/// C's code may lie before.
fn stated_start(sections: &Sections<'_>, table: u64, limits: &Limits) -> Option<u64> {
    /// Offsets of the table's address (`pcHeader`) and of the start (`text`).
    const TABLE: usize = 0;
    const START: usize = 176;
    let section = sections.named(b".go.module")?;
    let data = sections.file.get(range_of(section)?)?;
    let address = section.sh_addr(LittleEndian);
    let field = |at: usize| {
        let found = relocated(sections.relocations(), address, at..at + 1, limits)?;
        found.get(&at).copied().or_else(|| word(data, at))
    };
    field(START).filter(|&start| start != 0 && field(TABLE) == Some(table))
}

/// What relocations write into the words of a table that begins at the address `start`, by their
/// offsets `inside` of it; `None` if those are more than the limit.
fn relocated<'a>(
    all: impl Iterator<Item = &'a Rela64<LittleEndian>>,
    start: u64,
    inside: Range<usize>,
    limits: &Limits,
) -> Option<FxHashMap<usize, u64>> {
    let mut found = FxHashMap::default();
    let relative = |r: &&Rela64<LittleEndian>| r.r_type(LittleEndian, false) == RELATIVE;
    for relocation in all.take(limits.searched).filter(relative) {
        let at = relocation.r_offset(LittleEndian).checked_sub(start);
        let Some(at) = at.and_then(|at| usize::try_from(at).ok()) else { continue };
        if inside.contains(&at) {
            found.insert(at, relocation.r_addend(LittleEndian) as u64);
            if found.len() > limits.kept {
                return None;
            }
            if found.len() == inside.len() {
                break;
            }
        }
    }
    Some(found)
}

/// The 32-bit number at an offset.
pub fn number(data: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(*data.get(at..)?.first_chunk()?))
}

fn word(data: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(*data.get(at..)?.first_chunk()?))
}

fn varint(from: &mut &[u8]) -> Option<u32> {
    let mut value = 0_u32;
    for shift in (0..32).step_by(7) {
        let (&byte, rest) = from.split_first()?;
        *from = rest;
        value |= u32::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Some(value);
        }
    }
    None
}

#[cfg(test)]
mod tests;
