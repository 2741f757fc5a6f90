//! The names that every Go program carries for its own stack traces, also when it is stripped: the
//! table `.gopclntab` ("Go 1.2 Runtime Symbol Table", and cmd/link/internal/ld/pcln.go since).
//!
//! Of code that was inlined, only the function that it was inlined into is known here, so such
//! addresses have no line: it would be another function's.

use std::cell::Cell;
use std::fs::File;

use object::LittleEndian;
use object::elf::{FileHeader64, R_X86_64_RELATIVE, SHT_RELA};
use object::read::elf::{FileHeader, Rela, SectionHeader};
use rustc_hash::FxHashMap;

use super::answers::{Answers, Frame};
use profile::StrId;
use sys::mmap;

type Header = FileHeader64<LittleEndian>;

/// Longest name of a function or file, in bytes.
const MAX_NAME: usize = 16 << 10;

/// Entries of all tables of lines that are passed over for the addresses of one file.
const MAX_ENTRIES: u64 = 1 << 27;

/// Which table of a function says where code was inlined (`PCDATA_InlTreeIndex`).
const INLINED: usize = 2;

/// How a table is laid out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Version {
    Go1_2,
    Go1_16,
    Go1_18,
    Go1_20,
}

/// The frames of link-time `addresses` in `file`, as far as its Go table knows them;
/// `None`: it has none, or one of an unknown kind.
pub fn resolve(file: &File, addresses: &[u64]) -> Option<Answers> {
    let map = mmap::map(file).ok()?;
    let table = read(&map)?;
    let mut answers = Answers::default();
    for &address in addresses {
        let function = table.function(address);
        let frame = function.and_then(|function| table.frame(&function, address, &mut answers));
        answers.push(frame);
    }
    Some(answers)
}

fn read(data: &[u8]) -> Option<Table<'_>> {
    let header = Header::parse(data).ok()?;
    let endian = header.endian().ok()?;
    let sections = header.sections(endian, data).ok()?;
    let named = |wanted: &[u8]| {
        sections.iter().find(|section| {
            let name = sections.section_name(endian, section);
            name.is_ok_and(|name| name.ends_with(wanted))
        })
    };
    let section = named(b".gopclntab")?;
    let bytes = section.data(endian, data).ok()?;
    let start = section.sh_addr(endian);
    // Where the program may be loaded anywhere, addresses in the table are relocations.
    let mut relocated = FxHashMap::default();
    let inside = |address: u64| address.checked_sub(start).filter(|&at| at < bytes.len() as u64);
    for section in sections.iter().filter(|s| s.sh_type(endian) == SHT_RELA) {
        let Ok(Some((relocations, _))) = section.rela(endian, data) else { continue };
        for r in relocations.iter().filter(|r| r.r_type(endian, false) == R_X86_64_RELATIVE) {
            if let Some(at) = inside(r.r_offset(endian)) {
                relocated.insert(at as usize, r.r_addend(endian) as u64);
            }
        }
    }
    let text = named(b".text").map(|s| (s.sh_addr(endian), s.sh_size(endian)));
    Table::new(bytes, relocated, text)
}

/// A table of functions.
#[derive(Debug)]
struct Table<'a> {
    data: &'a [u8],
    version: Version,
    /// Bytes of a pointer, and of an instruction at least.
    pointer: usize,
    quantum: u64,
    /// Addresses that the dynamic linker would write, by their place.
    relocated: FxHashMap<usize, u64>,
    /// What addresses of functions are relative to.
    text: u64,
    count: usize,
    /// Where the parts of the table begin.
    functions: usize,
    names: usize,
    units: usize,
    files: usize,
    values: usize,
    /// Entries that may still be passed over.
    entries: Cell<u64>,
}

/// A function's place in the table.
struct Function {
    entry: u64,
    /// Where its fields behind the address begin.
    fields: usize,
}

impl<'a> Table<'a> {
    fn new(
        data: &'a [u8],
        relocated: FxHashMap<usize, u64>,
        text: Option<(u64, u64)>,
    ) -> Option<Table<'a>> {
        let version = match u32::from_le_bytes(*data.first_chunk()?) {
            0xffff_fffb => Version::Go1_2,
            0xffff_fffa => Version::Go1_16,
            0xffff_fff0 => Version::Go1_18,
            0xffff_fff1 => Version::Go1_20,
            _ => return None,
        };
        let (quantum, pointer) = (u64::from(*data.get(6)?), usize::from(*data.get(7)?));
        if data.get(4..6)? != [0, 0] || ![1, 2, 4].contains(&quantum) || ![4, 8].contains(&pointer)
        {
            return None;
        }
        let mut table = Table {
            data,
            version,
            pointer,
            quantum,
            relocated,
            text: 0,
            count: 0,
            functions: 0,
            names: 0,
            units: 0,
            files: 0,
            values: 0,
            entries: Cell::new(MAX_ENTRIES),
        };
        let word = |n: usize| usize::try_from(table.address(8 + n * pointer)?).ok();
        let (count, first) = (word(0)?, if version >= Version::Go1_18 { 3 } else { 2 });
        let parts: [usize; 5] = match version {
            Version::Go1_2 => [0, 0, 0, 0, 8 + pointer],
            _ => [
                word(first)?,
                word(first + 1)?,
                word(first + 2)?,
                word(first + 3)?,
                word(first + 4)?,
            ],
        };
        let text_start = if version >= Version::Go1_18 { word(2)? as u64 } else { 0 };
        (table.text, table.count) = (text_start, count);
        [table.names, table.units, table.files, table.values, table.functions] = parts;
        // There must be room for the functions and the end of the last one.
        let size = count.checked_add(1)?.checked_mul(2 * table.field())?;
        if count == 0 || table.functions.checked_add(size)? > data.len() {
            return None;
        }
        if version == Version::Go1_2 {
            let files = table.functions.checked_add((count * 2 + 1) * pointer)?;
            table.files = table.number(files)? as usize;
        }
        if version >= Version::Go1_18 && table.text == 0 {
            // The start is nowhere in the file: it is that of the code if that has the same size.
            let (start, size) = text?;
            let last = table.entry(count)?;
            table.text = start;
            if last > size || size - last > 4096 {
                return None;
            }
        }
        Some(table)
    }

    /// Bytes of a field in the list of functions.
    fn field(&self) -> usize {
        if self.version >= Version::Go1_18 { 4 } else { self.pointer }
    }

    fn number(&self, at: usize) -> Option<u32> {
        Some(u32::from_le_bytes(*self.data.get(at..)?.first_chunk()?))
    }

    /// A number as long as a pointer.
    fn address(&self, at: usize) -> Option<u64> {
        let stored = match self.pointer {
            4 => self.number(at)?.into(),
            _ => u64::from_le_bytes(*self.data.get(at..)?.first_chunk()?),
        };
        Some(self.relocated.get(&at).copied().unwrap_or(stored))
    }

    /// Address of function number `n`, or the end of the last one.
    fn entry(&self, n: usize) -> Option<u64> {
        let at = self.functions + n * 2 * self.field();
        if self.version >= Version::Go1_18 {
            return self.text.checked_add(self.number(at)?.into());
        }
        self.address(at)
    }

    /// The function with the instruction at `address`.
    fn function(&self, address: u64) -> Option<Function> {
        let (mut from, mut to) = (0, self.count);
        while from < to {
            let middle = (from + to) / 2;
            if self.entry(middle)? <= address { from = middle + 1 } else { to = middle }
        }
        let n = from.checked_sub(1)?;
        let entry = self.entry(n)?;
        if !(entry..self.entry(n + 1)?).contains(&address) {
            return None;
        }
        let field = self.field();
        let offset = self.functions + n * 2 * field + field;
        let offset = match field {
            4 => self.number(offset)? as usize,
            _ => usize::try_from(self.address(offset)?).ok()?,
        };
        let base = if self.version == Version::Go1_2 { 0 } else { self.functions };
        let start = base.checked_add(offset)?;
        // It begins with its address once more.
        let (again, size) = match self.version >= Version::Go1_18 {
            true => (self.text.checked_add(self.number(start)?.into())?, 4),
            false => (self.address(start)?, self.pointer),
        };
        (again == entry).then_some(Function { entry, fields: start + size })
    }

    /// The 32-bit field number `n` of a function.
    fn of(&self, function: &Function, n: usize) -> Option<u32> {
        self.number(function.fields.checked_add(n * 4)?)
    }

    fn frame(&self, function: &Function, address: u64, answers: &mut Answers) -> Option<Frame> {
        let name = self.text_at(self.names, self.of(function, 0)?)?;
        let name = answers.strings.intern(name);
        let (file, line) = self.line(function, address).unwrap_or(("", 0));
        let file = if line > 0 { answers.strings.intern(file) } else { StrId::EMPTY };
        Some(Frame { name, system_name: name, file, line, column: 0 })
    }

    /// The text that begins so far behind `base`.
    fn text_at(&self, base: usize, offset: u32) -> Option<&'a str> {
        let from = self.data.get(base.checked_add(offset as usize)?..)?;
        let from = &from[..from.len().min(MAX_NAME)];
        let text = &from[..from.iter().position(|&b| b == 0)?];
        std::str::from_utf8(text).ok().filter(|text| !text.is_empty())
    }

    /// File and line of an instruction, unless it was inlined.
    fn line(&self, function: &Function, address: u64) -> Option<(&'a str, u32)> {
        // Name, arguments, deferred return, stack, files, lines, further tables, …
        let (files, lines, further) = (4, 5, 6);
        let tables = self.of(function, further)? as usize;
        if tables > INLINED {
            let first = match self.version {
                Version::Go1_2 => 8,
                Version::Go1_16 | Version::Go1_18 => 9,
                Version::Go1_20 => 10,
            };
            let table = self.of(function, first + INLINED)?;
            if table > 0 && self.value(table, function.entry, address)? >= 0 {
                return None;
            }
        }
        let line = self.value(self.of(function, lines)?, function.entry, address)?;
        let file = self.value(self.of(function, files)?, function.entry, address)?;
        let (line, file) = (u32::try_from(line).ok()?, u32::try_from(file).ok()?);
        let name = match self.version {
            Version::Go1_2 => {
                let place = self.files.checked_add(file as usize * 4)?;
                self.text_at(0, self.number(place)?)?
            }
            _ => {
                let index = self.of(function, further + 1)?.checked_add(file)?;
                let place = self.units.checked_add(index as usize * 4)?;
                self.text_at(self.files, self.number(place)?)?
            }
        };
        Some((name, line))
    }

    /// What a table has for the instruction at `address`: pairs of differences of the value and of
    /// the address up to which it holds.
    fn value(&self, table: u32, entry: u64, address: u64) -> Option<i32> {
        let mut at = self.values.checked_add(table as usize)?;
        let (mut value, mut end) = (-1_i32, entry);
        for first in std::iter::successors(Some(true), |_| Some(false)) {
            self.entries.set(self.entries.get().checked_sub(1)?);
            let difference = self.variable(&mut at)?;
            if difference == 0 && !first {
                return None;
            }
            let sign = -((difference & 1) as i32);
            value = value.wrapping_add((difference >> 1) as i32 ^ sign);
            end = end.checked_add(u64::from(self.variable(&mut at)?) * self.quantum)?;
            if address < end {
                return Some(value);
            }
        }
        None
    }

    /// A number of seven bits a byte.
    fn variable(&self, at: &mut usize) -> Option<u32> {
        let mut number = 0_u32;
        for shift in [0, 7, 14, 21, 28] {
            let byte = *self.data.get(*at)?;
            *at += 1;
            number |= u32::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(number);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests;
