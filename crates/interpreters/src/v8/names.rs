//! Names and lines of a function, read from the process.

use super::V8;
use super::frames::identity;
use super::heap::{Heap, No, is_object, small};
use crate::{Code, CodeKey, Lines, Memory, Name, ReadError};

/// Longest name of a function that is kept, in characters; longer ones are cut and end with `...`.
const MAX_FUNCTION: u32 = 512;

/// Longest name of a script, in characters (`PATH_MAX`).
const MAX_FILE: u32 = 4096;

/// Largest source position table, in bytes.
const MAX_POSITIONS: u32 = 256 << 10;

/// Most local variables of a function whose names are in its `ScopeInfo`; others have a table
/// (`kScopeInfoMaxInlinedLocalNamesSize`).
const MAX_INLINED_NAMES: u32 = 75;

/// Names a function. Its identity is compared before and after the reading: it may be collected and
/// its memory used again at any moment.
pub(super) fn name(v8: &V8, key: &CodeKey, memory: &dyn Memory) -> Name {
    let heap = Heap { offsets: &v8.offsets, memory };
    match read(v8, heap, key) {
        Ok(code) => Name::Found(code),
        Err(No::Other) => Name::Gone,
        Err(No::Memory(error)) => Name::Unreadable(error),
    }
}

/// The words of a `SharedFunctionInfo` that a key has.
pub(super) fn key_words(heap: Heap<'_>, shared: u64) -> Result<Option<[u64; 3]>, No> {
    heap.typed(shared, heap.offsets.types.shared)?;
    Ok(identity(heap.words(shared, heap.offsets.shared_script - 8)?))
}

fn check_identity(heap: Heap<'_>, key: &CodeKey) -> Result<(), No> {
    let is_same = key_words(heap, key.object)?.is_some_and(|words| words == key.identity[..3]);
    if is_same { Ok(()) } else { Err(No::Other) }
}

fn read(v8: &V8, heap: Heap<'_>, key: &CodeKey) -> Result<Code, No> {
    check_identity(heap, key)?;
    let offsets = heap.offsets;
    let script = heap.typed(key.identity[0], offsets.types.script)?;
    let scope = Scope::read(heap, heap.word(key.object, offsets.shared_name)?)?;
    let text = |object: Option<u64>, most| match object {
        Some(object) => heap.text(object, most),
        None => Ok((String::new(), false)),
    };
    let (mut function, mut is_cut) = text(scope.name, MAX_FUNCTION)?;
    if function.is_empty() {
        (function, is_cut) = text(scope.inferred, MAX_FUNCTION)?;
    }
    if is_cut {
        function.push_str("...");
    }
    let name = heap.word(script, offsets.script_name)?;
    let is_named = is_object(name) && heap.is_string(name)?;
    let (file, is_cut) = text(is_named.then_some(name), MAX_FILE)?;
    let file = if is_cut { String::new() } else { file };
    // A large source may be more than can be read at this time: its functions have names without lines.
    let span = match v8.sources.span(heap, script, scope.start..=scope.end) {
        Err(No::Memory(ReadError::Budget)) => None,
        span => span?,
    };
    let line = |place| span.as_ref().and_then(|span| span.line(place));
    let first_line = line(scope.start).unwrap_or(0);
    if function.is_empty() {
        // As node shows it, with its line: a script has many.
        function = match first_line {
            0 => "(anonymous)".to_owned(),
            line => format!("(anonymous:{line})"),
        };
    }
    let bytecode = match bytecode(heap, key.object)? {
        Some(bytecode) => steps(&position_table(heap, bytecode)?, line),
        None => Vec::new(),
    };
    heap.memory.renew();
    check_identity(heap, key)?;
    let lines = Lines::Steps(bytecode.into());
    Ok(Code { function, file, first_line, lines })
}

/// What a `ScopeInfo` has of its function.
pub(super) struct Scope {
    /// The name, a string.
    name: Option<u64>,
    /// What it is assigned to, a string; for functions without a name.
    inferred: Option<u64>,
    /// Places in the script.
    pub start: u32,
    pub end: u32,
}

/// Bits of a `ScopeInfo` (`ScopeFlags` of `scope-info.tq`, the same from 10.2 to 13.6).
mod flag {
    pub const SAVED_CLASS_VARIABLE: u32 = 1 << 10;
    pub const FUNCTION_VARIABLE: u32 = 3 << 12;
    pub const INFERRED_NAME: u32 = 1 << 14;
}

impl Scope {
    pub fn read(heap: Heap<'_>, scope: u64) -> Result<Scope, No> {
        let offsets = heap.offsets;
        heap.typed(scope, offsets.types.scope)?;
        let [flags, _, count] = heap.words(scope, 8)?;
        // A small integer, later a number of 32 bits.
        let flags = small(flags).map_or(flags as u32, |flags| flags as u32);
        let count = small(count).and_then(|count| u32::try_from(count).ok()).ok_or(No::Other)?;
        if count > 1 << 20 {
            return Err(No::Other);
        }
        let names = if count >= MAX_INLINED_NAMES { 1 } else { count };
        let has = |flag: u32| u32::from(flags & flag != 0);
        let mut word = offsets.scope_words + names + count + has(flag::SAVED_CLASS_VARIABLE);
        let at = |word: u32| 8 + 8 * word;
        let string = |object: u64| -> Result<Option<u64>, No> {
            Ok((is_object(object) && heap.is_string(object)?).then_some(object))
        };
        let (mut name, mut inferred) = (None, None);
        if flags & flag::FUNCTION_VARIABLE != 0 {
            // The name, or 0 if there is none, and a place.
            let [object, place] = heap.words(scope, at(word))?;
            name = string(object)?;
            if small(place).is_none() || name.is_none() && object != 0 {
                return Err(No::Other);
            }
            word += 2;
        }
        if flags & flag::INFERRED_NAME != 0 {
            // A name, or undefined.
            let object = heap.word(scope, at(word))?;
            if !is_object(object) {
                return Err(No::Other);
            }
            inferred = string(object)?;
            word += 1;
        }
        // The places lie in the head, or behind the names.
        let places = if offsets.scope_words > 3 { 3 } else { word };
        let [start, end] = heap.words(scope, at(places))?;
        let place = |word| small(word).and_then(|place| u32::try_from(place).ok()).ok_or(No::Other);
        let (start, end) = (place(start)?, place(end)?);
        if start > end {
            return Err(No::Other);
        }
        Ok(Scope { name, inferred, start, end })
    }
}

/// The bytecode of a function; `None` if it has none now.
pub(super) fn bytecode(heap: Heap<'_>, shared: u64) -> Result<Option<u64>, No> {
    bytecode_in(heap, heap.word(shared, heap.offsets.shared_data)?)
}

/// The bytecode in data of a function or of code; `None` if it has none.
pub(super) fn bytecode_in(heap: Heap<'_>, mut data: u64) -> Result<Option<u64>, No> {
    let types = heap.offsets.types;
    // Unoptimized machine code has it, and a function whose interpreter is copied.
    for _ in 0..3 {
        if !is_object(data) {
            return Ok(None);
        }
        let kind = heap.kind(data)?;
        data = if kind == types.bytecode {
            return Ok(Some(data));
        } else if kind == types.interpreter_data {
            heap.word(data, 8)?
        } else if kind == types.code {
            heap.word(data, heap.offsets.code.data)?
        } else {
            return Ok(None);
        };
    }
    Ok(None)
}

/// The source position table of bytecode; empty if it is not there.
pub(super) fn position_table(heap: Heap<'_>, bytecode: u64) -> Result<Vec<u8>, No> {
    let offsets = heap.offsets;
    let table = heap.word(bytecode, offsets.bytecode_positions)?;
    Ok(byte_array(heap, table, MAX_POSITIONS)?.unwrap_or_default())
}

/// The contents of an array of bytes; `None` if it is none, or larger than `most`.
pub(super) fn byte_array(heap: Heap<'_>, array: u64, most: u32) -> Result<Option<Vec<u8>>, No> {
    if !is_object(array) || !heap.offsets.types.bytes.contains(&heap.kind(array)?) {
        return Ok(None);
    }
    let length = heap.length(array)?;
    if length > most { Ok(None) } else { heap.bytes(array, length).map(Some) }
}

/// The lines of positions, from a source position table (`source-position-table.cc`): for each entry,
/// the distance to the next position, or its complement, and that to the place in the source, as numbers
/// of 7 bits a byte with the sign in the lowest bit.
pub(super) fn steps(table: &[u8], line: impl Fn(u32) -> Option<u32>) -> Vec<(u32, u32)> {
    let mut steps: Vec<(u32, u32)> = Vec::new();
    for (position, place) in positions(table) {
        let line = place.and_then(&line).unwrap_or(Lines::NONE);
        match steps.last_mut() {
            Some(last) if last.1 == line => {}
            Some(last) if last.0 == position => last.1 = line,
            _ => steps.push((position, line)),
        }
    }
    steps
}

/// Positions, and their places in the script, as far as they have one. The entry of a function is at -1
/// (`kFunctionEntryBytecodeOffset`), which becomes 0 here.
pub(super) fn positions(table: &[u8]) -> impl Iterator<Item = (u32, Option<u32>)> {
    entries(table).map_while(|(position, place)| {
        // `SourcePosition`: an external one, or the place plus 1, below the number of what is inlined.
        let at = (place >> 1 & 0x3fff_ffff) as u32;
        let is_script = place & 1 == 0 && place >> 31 == 0;
        let at = at.checked_sub(1).filter(|_| is_script);
        Some((u32::try_from(position.max(0)).ok()?, at))
    })
}

/// The position in bytecode of a place; of the entry of a function, [`CodeKey::NOT_BEGUN`].
pub(super) fn position_of(table: &[u8], place: u32) -> Option<u32> {
    let found = entries(table).zip(positions(table)).find(|(_, (_, at))| *at == Some(place));
    let ((stored, _), (position, _)) = found?;
    Some(if stored < 0 { CodeKey::NOT_BEGUN } else { position })
}

/// The entries of a source position table: position in code, and place (`SourcePosition`).
pub(super) fn entries(table: &[u8]) -> impl Iterator<Item = (i64, i64)> {
    let mut bytes = table.iter();
    let (mut position, mut place) = (-1_i64, 0_i64);
    std::iter::from_fn(move || {
        let distance = number(&mut bytes)?;
        let distance = if distance >= 0 { distance } else { -(distance + 1) };
        position = position.checked_add(distance)?;
        place = place.wrapping_add(number(&mut bytes)?);
        Some((position, place))
    })
}

fn number(bytes: &mut std::slice::Iter<'_, u8>) -> Option<i64> {
    let mut bits = 0_u64;
    for shift in (0..63).step_by(7) {
        let byte = bytes.next()?;
        bits |= u64::from(byte & 127) << shift;
        if byte & 128 == 0 {
            return Some((bits >> 1) as i64 ^ -((bits & 1) as i64));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_are_distances() {
        // The entry, place 19; a statement at 0, place 20; an expression at 5, place 14; a statement at 100, place 500.
        let table = [1, 80, 2, 4, 11, 23, 0xbe, 1, 0x98, 15];
        let found: Vec<_> = positions(&table).collect();
        assert_eq!(found, [(0, Some(19)), (0, Some(20)), (5, Some(14)), (100, Some(500))]);
        let places = [19, 20, 500, 501].map(|place| position_of(&table, place));
        assert_eq!(places, [Some(CodeKey::NOT_BEGUN), Some(0), Some(100), None]);
        assert_eq!(steps(&table, |place| Some(place / 100 + 1)), [(0, 1), (100, 6)]);
    }
}
