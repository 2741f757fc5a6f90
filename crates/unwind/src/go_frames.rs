//! Frame sizes from Go's own table, which stripped programs have, too.
//!
//! Go's linker makes `.debug_frame` of the same values (`writeframes` in
//! cmd/link/internal/ld/dwarf.go).

use sys::go_table::GoTable;

/// Longest part of a function's list of frame sizes that is read, in changes of the size.
const MAX_SIZES: u64 = 4 << 10;

/// Largest frame, in bytes.
const MAX_FRAME: i32 = 1 << 30;

/// Field of a function: the list of its frame sizes (`pcsp`), 0 if it has none.
const SIZES: usize = 3;

/// Size of the frame of the instruction at an address, in bytes: the distance from the stack
/// pointer to the return address. `None` if no function of the table contains it.
pub fn frame_size(table: &GoTable, file: &[u8], address: u64) -> Option<i32> {
    let function = table.function(file, address)?;
    let list = table.field_of(file, &function, SIZES).filter(|&list| list != 0)?;
    let mut entries = MAX_SIZES;
    let size = table.value(file, list, &function, address, &mut entries)?;
    (0..=MAX_FRAME).contains(&size).then_some(size)
}

#[cfg(test)]
mod tests;
