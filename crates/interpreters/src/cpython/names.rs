//! Names and lines of a code object, read from the process.

use std::ops::RangeInclusive;

use super::{Cpython, Offsets};
use crate::memory::{Memory, ReadError};
use crate::{Code, CodeKey, Lines, Name};

/// Longest name of a function that is kept, in characters; longer ones are cut and end with `...`.
const MAX_FUNCTION: usize = 512;

/// Longest name of a file, in characters (`PATH_MAX`).
const MAX_FILE: usize = 4096;

/// Largest line table, in bytes; that of a module with 20,000 lines has 100 KiB.
const MAX_LINES: usize = 256 << 10;

/// Instructions with which the code of each version begins: RESUME and its variants, MAKE_CELL,
/// COPY_FREE_VARS, RETURN_GENERATOR (`Include/opcode.h`, later `opcode_ids.h`).
const FIRST: [(u8, &[u8]); 3] = [
    (11, &[151, 150, 135, 149, 75]),
    (12, &[151, 240, 135, 149, 75]),
    (13, &[149, 207, 236, 94, 62, 35]),
];

/// The instruction with which the compiler ends all code up to 3.9.
const RETURN_VALUE: u8 = 83;

/// The reason why there is no name.
enum No {
    Memory(ReadError),
    /// What is there is no code object, or another one.
    Other,
}

impl From<ReadError> for No {
    fn from(error: ReadError) -> No {
        match error {
            // Memory that was freed may be unmapped.
            ReadError::Unmapped => No::Other,
            error => No::Memory(error),
        }
    }
}

/// Names a code object. Its identity is compared before and after the reading: it may be freed and
/// its memory used again at any moment.
pub(super) fn name(cpython: &Cpython, key: &CodeKey, memory: &dyn Memory) -> Name {
    match read(cpython, key, memory) {
        Ok(code) => Name::Found(code),
        Err(No::Other) => Name::Gone,
        Err(No::Memory(error)) => Name::Unreadable(error),
    }
}

fn read(cpython: &Cpython, key: &CodeKey, memory: &dyn Memory) -> Result<Code, No> {
    check_identity(cpython, key, memory)?;
    let offsets = &cpython.offsets;
    let [file, function, lines, _] = key.identity;
    let text = |at, most| string(cpython, at, most, memory);
    let (mut function, is_cut) = text(function, MAX_FUNCTION)?;
    if is_cut {
        function.push_str("...");
    }
    let (file, is_cut) = text(file, MAX_FILE)?;
    let file = if is_cut { String::new() } else { file };
    let first_line = memory.half(at(key.object, offsets.code_first_line))?;
    let lines = line_table(offsets, lines, memory)?;
    check_identity(cpython, key, memory)?;
    Ok(Code { function, file, first_line, lines })
}

/// True if the name of a code object is the last part of its qualified name, as far as it has one.
pub(super) fn has_one_name(
    cpython: &Cpython,
    key: &CodeKey,
    qualified: &str,
    memory: &dyn Memory,
) -> bool {
    let name = memory.word(at(key.object, cpython.offsets.code_name)).map_err(No::from);
    match name.and_then(|name| string(cpython, name, MAX_FUNCTION, memory)) {
        Ok((name, is_cut)) => is_cut || qualified.ends_with("...") || qualified.ends_with(&name),
        Err(_) => false,
    }
}

/// Size in bytes of the bytecode of a code object; `None` if there is no bytecode.
pub(super) fn bytecode_size(
    cpython: &Cpython,
    key: &CodeKey,
    memory: &dyn Memory,
) -> Result<Option<u64>, ReadError> {
    let offsets = &cpython.offsets;
    let size = |object: u64| memory.word(at(object, offsets.object_size));
    let kind = |object: u64| memory.word(at(object, offsets.object_type));
    if offsets.minor <= 10 {
        // It is a `bytes`, as the line table.
        let bytecode = memory.word(at(key.object, offsets.code_bytecode))?;
        if kind(bytecode)? != kind(key.identity[2])? {
            return Ok(None);
        }
        let size = size(bytecode)?;
        // The last two instructions.
        let last = at(bytecode, offsets.bytes_data).wrapping_add(size).wrapping_sub(4);
        let is_last = offsets.minor == 10 || (memory.half(last)? >> 16) as u8 == RETURN_VALUE;
        return Ok(is_last.then_some(size));
    }
    // The size is the number of its instructions, of 2 bytes each.
    let first = memory.half(at(key.object, offsets.code_bytecode))? as u8;
    let is_first = FIRST.iter().any(|(minor, all)| *minor == offsets.minor && all.contains(&first));
    Ok(if is_first { Some(size(key.object)?.saturating_mul(2)) } else { None })
}

/// References to an object that lives. The first word of one that was freed, which is their number, is
/// null or the address of the next free block, in an arena beyond 4 GiB (`Objects/obmalloc.c`); of a
/// block of the C library's, the word with the type is overwritten, too.
const REFERENCES: RangeInclusive<u64> = 1..=u32::MAX as u64;

/// Checks that a code object is the one of a sample, and lives: texts of a dead one may be others'.
/// New code in the same memory may have the same pointers; its name differs.
fn check_identity(cpython: &Cpython, key: &CodeKey, memory: &dyn Memory) -> Result<(), No> {
    let offsets = &cpython.offsets;
    if !REFERENCES.contains(&memory.word(key.object)?) {
        return Err(No::Other);
    }
    let kind = memory.word(at(key.object, offsets.object_type))?;
    let mut bytes = [0; 32];
    let bytes = &mut bytes[..(offsets.identity_size() as usize).min(32)];
    memory.read(at(key.object, offsets.identity_at()), bytes)?;
    let name = offsets.code_qualname.unwrap_or(offsets.code_name);
    let word = |offset: u32| {
        let place = (offset - offsets.identity_at()) as usize;
        bytes[place..].first_chunk().map_or(0, |word| u64::from_le_bytes(*word))
    };
    let hash = memory.word(at(word(offsets.code_name), offsets.str_hash))?;
    let identity = [word(offsets.code_filename), word(name), word(offsets.code_lines), hash];
    let is_same = kind == cpython.symbols.code_type && identity == key.identity;
    if is_same { Ok(()) } else { Err(No::Other) }
}

/// The text of a `str` of at most `most` characters, and whether it was cut.
fn string(
    cpython: &Cpython,
    object: u64,
    most: usize,
    memory: &dyn Memory,
) -> Result<(String, bool), No> {
    let offsets = &cpython.offsets;
    if memory.word(at(object, offsets.object_type))? != cpython.symbols.str_type {
        return Err(No::Other);
    }
    let length = memory.word(at(object, offsets.str_length))?;
    let state = memory.half(at(object, offsets.str_state))?;
    // Bits of `state`: interned (2), size of a character (3), compact, ASCII only.
    let (size, is_compact, is_ascii) = ((state >> 2) & 7, state & 32 != 0, state & 64 != 0);
    if !is_compact || ![1, 2, 4].contains(&size) || is_ascii && size != 1 {
        return Err(No::Other);
    }
    let start = at(object, if is_ascii { offsets.str_ascii } else { offsets.str_other });
    let kept = usize::try_from(length).unwrap_or(usize::MAX).min(most);
    let mut bytes = vec![0; kept * size as usize];
    memory.read(start, &mut bytes)?;
    let character = |unit: &[u8]| {
        let mut number = [0; 4];
        number[..unit.len()].copy_from_slice(unit);
        char::from_u32(u32::from_le_bytes(number)).unwrap_or(char::REPLACEMENT_CHARACTER)
    };
    let text: String = bytes.chunks_exact(size as usize).map(character).collect();
    // Neither names nor files contain it; memory that is no text does.
    if text.contains('\0') {
        return Err(No::Other);
    }
    Ok((text, length > kept as u64))
}

fn line_table(offsets: &Offsets, object: u64, memory: &dyn Memory) -> Result<Lines, No> {
    let size = memory.word(at(object, offsets.object_size))?;
    // A larger table is not read: its code has no lines.
    let size = usize::try_from(size).ok().filter(|size| *size <= MAX_LINES).unwrap_or(0);
    let mut table = vec![0; size].into_boxed_slice();
    match memory.read(at(object, offsets.bytes_data), &mut table) {
        Err(_) if memory.is_copy() => table = Box::default(),
        read => read?,
    }
    Ok(match offsets.minor {
        ..=9 => Lines::Pairs(table),
        10 => Lines::Ranges(table),
        _ => Lines::Locations(table),
    })
}

fn at(address: u64, offset: u32) -> u64 {
    address.wrapping_add(offset.into())
}
