//! Frame sizes from the table that every Go program has for its own stack traces, even if stripped:
//! `.gopclntab` ("Go 1.2 Runtime Symbol Table", and cmd/link/internal/ld/pcln.go since).
//!
//! Go's linker makes `.debug_frame` of the same values (`writeframes` in
//! cmd/link/internal/ld/dwarf.go).

use std::ops::Range;

use object::LittleEndian;
use object::elf::{FileHeader64, Rela64, SHT_RELA, SectionHeader64};
use object::read::elf::{FileHeader, Rela, SectionHeader};

use sys::arch::RELATIVE;

/// Most relocations that are searched for the start of the code.
const MAX_RELOCATIONS: usize = 1 << 21;

/// Most bytes that are searched for a table, and the alignment of tables.
const MAX_SEARCHED: usize = 64 << 20;
const ALIGNMENT: usize = 8;

/// Longest part of a function's list of frame sizes that is read, in bytes. A change of the size
/// takes 2 to 4.
const MAX_SIZES: usize = 8 << 10;

/// Largest frame, in bytes.
const MAX_FRAME: i32 = 1 << 30;

/// Field of a function after its address: the offset of its frame sizes (`pcsp`), behind its name,
/// arguments and deferred return.
const SIZES: usize = 3;

/// Layout version of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Version {
    Go1_2,
    Go1_16,
    /// 1.18, and 1.20 with another magic number.
    Go1_18,
}

/// A table of functions, as positions in its file.
#[derive(Debug)]
pub struct GoTable {
    /// The section in the file.
    range: Range<usize>,
    version: Version,
    /// Bytes of the shortest instruction.
    quantum: u64,
    /// Base of function addresses.
    text: u64,
    count: usize,
    /// Offsets of the table's parts.
    functions: usize,
    values: usize,
}

impl GoTable {
    /// The table of a file; `None` if it has none, or an unsupported one.
    pub fn find(file: &[u8]) -> Option<GoTable> {
        let header = FileHeader64::<LittleEndian>::parse(file).ok()?;
        let endian = header.endian().ok()?;
        let sections = header.sections(endian, file).ok()?;
        let named = |wanted: &[u8]| {
            sections.iter().find(|section| {
                let name = sections.section_name(endian, section);
                name.is_ok_and(|name| name.ends_with(wanted))
            })
        };
        let range = |section: &SectionHeader64<LittleEndian>| {
            let (offset, size) = section.file_range(endian)?;
            let start = usize::try_from(offset).ok()?;
            Some(start..start.checked_add(usize::try_from(size).ok()?)?)
        };
        let (section, mut table) = match named(b".gopclntab") {
            Some(section) => (section, GoTable::of(file, range(section)?)?),
            // Other linkers put it among other data of a position-independent program.
            None => {
                let section = named(b".data.rel.ro")?;
                (section, GoTable::within(file, range(section)?)?)
            }
        };
        if table.version >= Version::Go1_18 {
            let place = table.range.start.checked_add(TEXT)?.checked_sub(range(section)?.start)?;
            let at = section.sh_addr(endian).checked_add(place as u64)?;
            // In a position-independent program, it is a relocation.
            let lists = sections.iter().filter(|s| s.sh_type(endian) == SHT_RELA);
            let lists = lists.filter_map(|section| section.rela(endian, file).ok()?);
            let relocated = relocated(lists.flat_map(|(all, _)| all), at);
            let of_text = || {
                let text = named(b".text")?;
                let is_all = table.has_code_of(file, text.sh_size(endian));
                is_all.then(|| text.sh_addr(endian))
            };
            table.text = match (relocated, table.text) {
                (Some(text), _) => text,
                (None, 0) => of_text()?,
                (None, stated) => stated,
            };
        }
        Some(table)
    }

    /// The table that lies somewhere in a part of a file.
    fn within(file: &[u8], range: Range<usize>) -> Option<GoTable> {
        let data = file.get(range.clone())?;
        let data = &data[..data.len().min(MAX_SEARCHED)];
        let mut words = data.chunks_exact(ALIGNMENT).enumerate();
        words.find_map(|(i, word)| {
            let is_header = matches!(word, [0xf0 | 0xf1 | 0xfa | 0xfb, 0xff, 0xff, 0xff, 0, 0, ..]);
            let start = range.start + i * ALIGNMENT;
            is_header.then(|| GoTable::of(file, start..range.end)).flatten()
        })
    }

    /// The table in a part of a file; `None` if its header is unsupported or inconsistent.
    fn of(file: &[u8], range: Range<usize>) -> Option<GoTable> {
        let data = file.get(range.clone())?;
        let version = match number(data, 0)? {
            0xffff_fffb => Version::Go1_2,
            0xffff_fffa => Version::Go1_16,
            0xffff_fff0 | 0xffff_fff1 => Version::Go1_18,
            _ => return None,
        };
        let &[0, 0, quantum @ (1 | 2 | 4), 8] = data.get(4..8)?.first_chunk()? else { return None };
        let part = |n: usize| usize::try_from(word(data, 8 + n * 8)?).ok();
        let (text, values, functions) = match version {
            Version::Go1_2 => (0, 0, 16),
            // Count, files, then the positions of names, units, files, values and functions.
            Version::Go1_16 => (0, part(5)?, part(6)?),
            Version::Go1_18 => (word(data, TEXT)?, part(6)?, part(7)?),
        };
        let count = part(0)?;
        let quantum = quantum.into();
        let table = GoTable { range, version, quantum, text, count, functions, values };
        // There must be room for the functions and the end of the last one.
        let size = count.checked_add(1)?.checked_mul(2 * table.field())?;
        let is_whole = functions.checked_add(size)? <= data.len();
        (count > 0 && is_whole).then_some(table)
    }

    /// True if the functions are about as large together as the code.
    fn has_code_of(&self, file: &[u8], size: u64) -> bool {
        let data = file.get(self.range.clone()).unwrap_or_default();
        let last = self.entry(data, self.count);
        last.is_some_and(|last| last <= size && size - last <= 4096)
    }

    /// Bytes of a field in the list of functions.
    fn field(&self) -> usize {
        if self.version >= Version::Go1_18 { 4 } else { 8 }
    }

    /// Address of function number `n`, or the end of the last one.
    fn entry(&self, data: &[u8], n: usize) -> Option<u64> {
        let at = self.functions + n * 2 * self.field();
        if self.version >= Version::Go1_18 {
            return self.text.checked_add(number(data, at)?.into());
        }
        word(data, at)
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

    /// Range of the function that contains an address.
    pub fn function(&self, file: &[u8], address: u64) -> Option<Range<u64>> {
        let data = file.get(self.range.clone())?;
        let n = self.number_of(data, address)?;
        Some(self.entry(data, n)?..self.entry(data, n + 1)?)
    }

    /// Ranges of the functions, each up to the next one; damaged entries are 0.
    pub fn functions(&self, file: &[u8]) -> impl ExactSizeIterator<Item = (u64, u64)> {
        let data = file.get(self.range.clone()).unwrap_or_default();
        let entry = |n| self.entry(data, n).unwrap_or_default();
        (0..self.count).map(move |n| (entry(n), entry(n + 1)))
    }

    /// Size of the frame of the instruction at an address, in bytes: the distance from the stack
    /// pointer to the return address. `None` if no function of the table contains it.
    pub fn frame_size(&self, file: &[u8], address: u64) -> Option<i32> {
        let data = file.get(self.range.clone())?;
        let n = self.number_of(data, address)?;
        let entry = self.entry(data, n)?;
        let at = self.functions + n * 2 * self.field() + self.field();
        let (offset, base) = match self.version {
            Version::Go1_2 => (word(data, at)?, 0),
            Version::Go1_16 => (word(data, at)?, self.functions),
            Version::Go1_18 => (number(data, at)?.into(), self.functions),
        };
        let function = base.checked_add(usize::try_from(offset).ok()?)?;
        // It begins with its address again.
        let (again, size) = match self.version {
            Version::Go1_18 => (self.text.checked_add(number(data, function)?.into())?, 4),
            _ => (word(data, function)?, 8),
        };
        let sizes = number(data, function.checked_add(size + SIZES * 4)?)?;
        if again != entry || sizes == 0 {
            return None;
        }
        let sizes = data.get(self.values.checked_add(sizes as usize)?..)?;
        let size = value_at(sizes, address - entry, self.quantum)?;
        (0..=MAX_FRAME).contains(&size).then_some(size)
    }
}

/// The address that a relocation puts at `at`. Many sections may have the same ones: the limit is of
/// all together.
fn relocated<'a>(all: impl Iterator<Item = &'a Rela64<LittleEndian>>, at: u64) -> Option<u64> {
    let there = |r: &&Rela64<LittleEndian>| {
        r.r_offset(LittleEndian) == at && r.r_type(LittleEndian, false) == RELATIVE
    };
    all.take(MAX_RELOCATIONS).find(there).map(|r| r.r_addend(LittleEndian) as u64)
}

/// Offset of the start of the code in tables that have it.
const TEXT: usize = 8 + 2 * 8;

fn number(data: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(*data.get(at..)?.first_chunk()?))
}

fn word(data: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(*data.get(at..)?.first_chunk()?))
}

/// Value for an offset in a function, in a list of differences of values and of addresses.
fn value_at(list: &[u8], offset: u64, quantum: u64) -> Option<i32> {
    let mut left = &list[..list.len().min(MAX_SIZES)];
    let mut end = 0_u64;
    let mut value = -1_i32;
    let mut is_first = true;
    loop {
        let change = varint(&mut left)?;
        if change == 0 && !is_first {
            return None;
        }
        is_first = false;
        let half = (change >> 1) as i32;
        value = value.wrapping_add(if change & 1 == 1 { !half } else { half });
        end = end.checked_add(u64::from(varint(&mut left)?) * quantum)?;
        if offset < end {
            return Some(value);
        }
    }
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
