//! Recognizes split DWARF by the headers of its skeleton units.

use addr2line::gimli;
use object::{Endian, Endianness};

/// True if units are in other files, by the headers in a `.debug_info` section of a file that has a
/// `.debug_addr` section (without it none can be). `read` yields bytes at an offset of the section.
pub fn is_split<'a>(endian: Endianness, read: impl Fn(u64, u64) -> Option<&'a [u8]>) -> bool {
    let number = |at, size: u64| {
        let bytes = read(at, size)?;
        Some(match size {
            1 => u64::from(bytes[0]),
            2 => endian.read_u16(bytes.try_into().ok()?).into(),
            4 => endian.read_u32(bytes.try_into().ok()?).into(),
            _ => endian.read_u64(bytes.try_into().ok()?),
        })
    };
    // A unit begins with its length, its version and, since DWARF 5, its type.
    let unit = |start: u64| {
        let (length, at) = match number(start, 4)? {
            0xffff_ffff => (number(start.checked_add(4)?, 8)?, start.checked_add(12)?),
            length => (length, start.checked_add(4)?),
        };
        // DWARF 4 has `.debug_addr` only in GNU's split form.
        let split = match number(at, 2)? {
            5 => number(at.checked_add(2)?, 1)? == u64::from(gimli::DW_UT_skeleton.0),
            version => version < 5,
        };
        Some((split, at.checked_add(length)?))
    };
    let mut next = 0;
    while let Some((split, end)) = unit(next) {
        if split {
            return true;
        }
        next = end;
    }
    false
}
