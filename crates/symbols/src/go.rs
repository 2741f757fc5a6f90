//! Names from the table that every Go program has for its own stack traces, even if stripped:
//! `.gopclntab` ("Go 1.2 Runtime Symbol Table", and cmd/link/internal/ld/pcln.go since).
//!
//! For inlined code it only contains the function around it, so such addresses have no line: it
//! would be another function's.

use std::cell::Cell;
use std::fs::File;
use std::ops::Range;

use object::LittleEndian;
use object::elf::{FileHeader64, SHT_RELA};
use object::read::elf::{FileHeader, Rela, SectionHeader};
use rustc_hash::FxHashMap;

use super::address_frames::{AddressFrames, SymbolFrame};
use profile::StrId;
use sys::arch::RELATIVE;
use sys::mmap;

type ElfHeader = FileHeader64<LittleEndian>;

/// Longest name of a function or file, in bytes.
const MAX_NAME: usize = 16 << 10;

/// Most entries of line tables that are skipped for the addresses of one file.
const MAX_ENTRIES: u64 = 1 << 27;

/// Index of the table of inlined code of a function (`PCDATA_InlTreeIndex`).
const INLINED: usize = 2;

/// Layout version of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Version {
    Go1_2,
    Go1_16,
    Go1_18,
    Go1_20,
}

/// Frames of `addresses` of `file`, as far as its Go table contains them; `None` if it
/// has none, or an unsupported one.
pub fn resolve(file: &File, addresses: &[u64]) -> Option<AddressFrames> {
    let map = mmap::map(file).ok()?;
    let table = read(&map)?;
    let mut resolved = AddressFrames::default();
    for &address in addresses {
        let function = table.function(address);
        let frame = function.and_then(|function| table.frame(&function, address, &mut resolved));
        resolved.push(frame);
    }
    Some(resolved)
}

/// Bounds of the functions with these addresses, by the Go table of `file`; `None` if it has none,
/// or an unsupported one.
pub fn bounds(file: &File, addresses: &[u64]) -> Option<Vec<Option<Range<u64>>>> {
    let map = mmap::map(file).ok()?;
    let table = read(&map)?;
    Some(addresses.iter().map(|&address| table.bounds(address)).collect())
}

fn read(data: &[u8]) -> Option<Table<'_>> {
    let header = ElfHeader::parse(data).ok()?;
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
    // In a position-independent program, addresses in the table are relocations.
    let mut relocated = FxHashMap::default();
    let inside = |address: u64| address.checked_sub(start).filter(|&at| at < bytes.len() as u64);
    for section in sections.iter().filter(|s| s.sh_type(endian) == SHT_RELA) {
        let Ok(Some((relocations, _))) = section.rela(endian, data) else { continue };
        for r in relocations.iter().filter(|r| r.r_type(endian, false) == RELATIVE) {
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
    /// Bytes of a pointer, and of the shortest instruction.
    pointer: usize,
    quantum: u64,
    /// Addresses that the dynamic linker would write, by offset.
    relocated: FxHashMap<usize, u64>,
    /// Base of function addresses.
    text: u64,
    count: usize,
    /// Offsets of the table's parts.
    functions: usize,
    names: usize,
    units: usize,
    files: usize,
    values: usize,
    /// Entries that may still be skipped.
    entries: Cell<u64>,
}

/// Position of a function in the table.
struct GoFunction {
    entry: u64,
    /// Offset of its fields after the address.
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
        let quantum = u64::from(*data.get(6)?);
        let pointer = usize::from(*data.get(7)?);
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
        table.read_layout()?;
        if version >= Version::Go1_18 && table.text == 0 {
            table.text = table.start_of(text?)?;
        }
        Some(table)
    }

    /// Reads the number of functions and the offsets of the parts; `None` if they are inconsistent.
    fn read_layout(&mut self) -> Option<()> {
        let pointer = self.pointer;
        let word = |n: usize| usize::try_from(self.address(8 + n * pointer)?).ok();
        let has_text = self.version >= Version::Go1_18;
        let count = word(0)?;
        let text = if has_text { word(2)? as u64 } else { 0 };
        let first = if has_text { 3 } else { 2 };
        let parts: [usize; 5] = match self.version {
            Version::Go1_2 => [0, 0, 0, 0, 8 + pointer],
            _ => [
                word(first)?,
                word(first + 1)?,
                word(first + 2)?,
                word(first + 3)?,
                word(first + 4)?,
            ],
        };
        self.text = text;
        self.count = count;
        [self.names, self.units, self.files, self.values, self.functions] = parts;
        // There must be room for the functions and the end of the last one.
        let size = count.checked_add(1)?.checked_mul(2 * self.field())?;
        if count == 0 || self.functions.checked_add(size)? > self.data.len() {
            return None;
        }
        if self.version == Version::Go1_2 {
            let files = self.functions.checked_add((count * 2 + 1) * pointer)?;
            self.files = self.number(files)? as usize;
        }
        Some(())
    }

    /// Start of the functions of a table that does not contain it: that of the code, given as its
    /// address and size, if both have the same size.
    fn start_of(&self, code: (u64, u64)) -> Option<u64> {
        let (start, size) = code;
        let last = self.entry(self.count)?;
        (last <= size && size - last <= 4096).then_some(start)
    }

    /// Bytes of a field in the list of functions.
    fn field(&self) -> usize {
        if self.version >= Version::Go1_18 { 4 } else { self.pointer }
    }

    fn number(&self, at: usize) -> Option<u32> {
        Some(u32::from_le_bytes(*self.data.get(at..)?.first_chunk()?))
    }

    /// A number of pointer size.
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

    /// Number of the function that contains the instruction at `address`.
    fn number_of(&self, address: u64) -> Option<usize> {
        let mut from = 0;
        let mut to = self.count;
        while from < to {
            let middle = (from + to) / 2;
            if self.entry(middle)? <= address { from = middle + 1 } else { to = middle }
        }
        let n = from.checked_sub(1)?;
        (self.entry(n)?..self.entry(n + 1)?).contains(&address).then_some(n)
    }

    /// Addresses of the function that contains the instruction at `address`.
    fn bounds(&self, address: u64) -> Option<Range<u64>> {
        let n = self.number_of(address)?;
        Some(self.entry(n)?..self.entry(n + 1)?)
    }

    /// The function that contains the instruction at `address`.
    fn function(&self, address: u64) -> Option<GoFunction> {
        let n = self.number_of(address)?;
        let entry = self.entry(n)?;
        let field = self.field();
        let offset = self.functions + n * 2 * field + field;
        let offset = match field {
            4 => self.number(offset)? as usize,
            _ => usize::try_from(self.address(offset)?).ok()?,
        };
        let base = if self.version == Version::Go1_2 { 0 } else { self.functions };
        let start = base.checked_add(offset)?;
        // It begins with its address again.
        let (again, size) = if self.version >= Version::Go1_18 {
            (self.text.checked_add(self.number(start)?.into())?, 4)
        } else {
            (self.address(start)?, self.pointer)
        };
        (again == entry).then_some(GoFunction { entry, fields: start + size })
    }

    /// The 32-bit field number `n` of a function.
    fn of(&self, function: &GoFunction, n: usize) -> Option<u32> {
        self.number(function.fields.checked_add(n * 4)?)
    }

    fn frame(
        &self,
        function: &GoFunction,
        address: u64,
        resolved: &mut AddressFrames,
    ) -> Option<SymbolFrame> {
        let name = self.text_at(self.names, self.of(function, 0)?)?;
        let name = resolved.strings.intern(name);
        let (file, line) = self.line(function, address).unwrap_or(("", 0));
        let file = if line > 0 { resolved.strings.intern(file) } else { StrId::EMPTY };
        Some(SymbolFrame { name, system_name: name, file, line, column: 0 })
    }

    /// The text at `offset` after `base`.
    fn text_at(&self, base: usize, offset: u32) -> Option<&'a str> {
        let from = self.data.get(base.checked_add(offset as usize)?..)?;
        let from = &from[..from.len().min(MAX_NAME)];
        let text = &from[..from.iter().position(|&b| b == 0)?];
        std::str::from_utf8(text).ok().filter(|text| !text.is_empty())
    }

    /// File and line of an instruction, unless it was inlined.
    fn line(&self, function: &GoFunction, address: u64) -> Option<(&'a str, u32)> {
        // Name, arguments, deferred return, stack, files, lines, further tables, …
        const FILES: usize = 4;
        const LINES: usize = 5;
        const FURTHER: usize = 6;
        let tables = self.of(function, FURTHER)? as usize;
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
        let line = self.value(self.of(function, LINES)?, function.entry, address)?;
        let file = self.value(self.of(function, FILES)?, function.entry, address)?;
        let line = u32::try_from(line).ok()?;
        let file = u32::try_from(file).ok()?;
        let name = match self.version {
            Version::Go1_2 => {
                let place = self.files.checked_add(file as usize * 4)?;
                self.text_at(0, self.number(place)?)?
            }
            _ => {
                let index = self.of(function, FURTHER + 1)?.checked_add(file)?;
                let place = self.units.checked_add(index as usize * 4)?;
                self.text_at(self.files, self.number(place)?)?
            }
        };
        Some((name, line))
    }

    /// Value of a table for the instruction at `address`. A table has pairs of differences, of the
    /// value and of the address up to which it applies.
    fn value(&self, table: u32, entry: u64, address: u64) -> Option<i32> {
        let mut at = self.values.checked_add(table as usize)?;
        let mut value = -1_i32;
        let mut end = entry;
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
