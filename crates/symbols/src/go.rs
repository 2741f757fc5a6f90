//! Names from the table that every Go program has for its own stack traces, even if stripped.
//!
//! For inlined code it only contains the function around it, so such addresses have no line: it
//! would be another function's.

use std::cell::Cell;
use std::fs::File;
use std::ops::Range;

use super::address_frames::{AddressFrames, SymbolFrame};
use profile::StrId;
use sys::go_table::{Function, GoTable, Parts, Version, number};
use sys::mmap;

/// Longest name of a function or file, in bytes.
const MAX_NAME: usize = 16 << 10;

/// Most entries of line tables that are skipped for the addresses of one file.
const MAX_ENTRIES: u64 = 1 << 27;

/// Index of the table of inlined code of a function (`PCDATA_InlTreeIndex`).
const INLINED: usize = 2;

/// Frames of `addresses` of `file`, as far as its Go table contains them; `None` if it
/// has none, or an unsupported one.
pub fn resolve(file: &File, addresses: &[u64]) -> Option<AddressFrames> {
    let map = mmap::map(file).ok()?;
    let table = Table::new(&map, GoTable::with_names(&map)?);
    let mut resolved = AddressFrames::default();
    for &address in addresses {
        let function = table.table.function(&map, address);
        let frame = function.and_then(|function| table.frame(&function, address, &mut resolved));
        resolved.push(frame);
    }
    Some(resolved)
}

/// Bounds of the functions with these addresses, by the Go table of `file`; `None` if it has none,
/// or an unsupported one.
pub fn bounds(file: &File, addresses: &[u64]) -> Option<Vec<Option<Range<u64>>>> {
    let map = mmap::map(file).ok()?;
    let table = GoTable::with_names(&map)?;
    Some(addresses.iter().map(|&address| table.bounds(&map, address)).collect())
}

/// A table, with the file that it is of.
#[derive(Debug)]
struct Table<'a> {
    file: &'a [u8],
    table: GoTable,
    /// Entries of lists of values that may still be read.
    entries: Cell<u64>,
}

impl<'a> Table<'a> {
    fn new(file: &'a [u8], table: GoTable) -> Table<'a> {
        Table { file, table, entries: Cell::new(MAX_ENTRIES) }
    }

    /// The 32-bit field number `n` of a function.
    fn field(&self, function: &Function, n: usize) -> Option<u32> {
        self.table.field_of(self.file, function, n)
    }

    fn frame(
        &self,
        function: &Function,
        address: u64,
        resolved: &mut AddressFrames,
    ) -> Option<SymbolFrame> {
        let name = self.text_at(self.table.parts().names, self.field(function, 0)?)?;
        let name = resolved.strings.intern(name);
        let (file, line) = self.line(function, address).unwrap_or(("", 0));
        let file = if line > 0 { resolved.strings.intern(file) } else { StrId::EMPTY };
        Some(SymbolFrame { name, system_name: name, file, line, column: 0 })
    }

    /// The text at `offset` after `base`.
    fn text_at(&self, base: usize, offset: u32) -> Option<&'a str> {
        let from = self.table.data(self.file).get(base.checked_add(offset as usize)?..)?;
        let from = &from[..from.len().min(MAX_NAME)];
        let text = &from[..from.iter().position(|&b| b == 0)?];
        std::str::from_utf8(text).ok().filter(|text| !text.is_empty())
    }

    /// File and line of an instruction, unless it was inlined.
    fn line(&self, function: &Function, address: u64) -> Option<(&'a str, u32)> {
        // Name, arguments, deferred return, stack, files, lines, further tables, …
        const FILES: usize = 4;
        const LINES: usize = 5;
        const FURTHER: usize = 6;
        let tables = self.field(function, FURTHER)? as usize;
        if tables > INLINED {
            let first = match self.table.version() {
                Version::Go1_2 => 8,
                Version::Go1_16 | Version::Go1_18 => 9,
                Version::Go1_20 => 10,
            };
            let table = self.field(function, first + INLINED)?;
            if table > 0 && self.value(table, function, address)? >= 0 {
                return None;
            }
        }
        let line = self.value(self.field(function, LINES)?, function, address)?;
        let file = self.value(self.field(function, FILES)?, function, address)?;
        let line = u32::try_from(line).ok()?;
        let file = u32::try_from(file).ok()?;
        let Parts { units, files, .. } = self.table.parts();
        let data = self.table.data(self.file);
        let name = match self.table.version() {
            Version::Go1_2 => {
                let place = files.checked_add(file as usize * 4)?;
                self.text_at(0, number(data, place)?)?
            }
            _ => {
                let index = self.field(function, FURTHER + 1)?.checked_add(file)?;
                let place = units.checked_add(index as usize * 4)?;
                self.text_at(files, number(data, place)?)?
            }
        };
        Some((name, line))
    }

    /// The value of a list for the instruction at `address`.
    fn value(&self, list: u32, function: &Function, address: u64) -> Option<i32> {
        let mut entries = self.entries.get();
        let value = self.table.value(self.file, list, function, address, &mut entries);
        self.entries.set(entries);
        value
    }
}

#[cfg(test)]
mod tests;
