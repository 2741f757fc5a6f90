//! Optimized code (Maglev, TurboFan): functions are inlined into it.

use super::super::V8;
use super::super::heap::{Heap, No, is_object, small, weak_object};
use super::super::names;
use super::{Instruction, Machine, baseline};
use crate::CodeKey;

/// Most items of deoptimization data, of inlined functions and of places where they are inlined.
const MAX_ITEMS: u32 = 1 << 14;

/// Most functions that are inlined into each other.
const MAX_DEPTH: usize = 64;

/// Largest table of places in bytes.
const MAX_TABLE: u32 = 256 << 10;

/// A place in a script, and which inlined function it is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct SourcePlace {
    /// Number of characters before it.
    at: u32,
    /// Number of the place at which the function is inlined; `None` if it is the code's own.
    inlining: Option<u32>,
}

impl SourcePlace {
    /// Of a `SourcePosition`: from the lowest bit, whether it is not in a script, the place and the
    /// number, each plus 1.
    fn decode(bits: i64) -> Option<SourcePlace> {
        let at = (bits >> 1 & 0x3fff_ffff) as u32;
        let inlining = (bits >> 31 & 0xffff) as u32;
        let at = at.checked_sub(1).filter(|_| bits & 1 == 0)?;
        Some(SourcePlace { at, inlining: inlining.checked_sub(1) })
    }
}

/// The frames that an instruction of optimized code, or a call in it, belongs to, the innermost first.
pub(super) fn frames(
    v8: &V8,
    heap: Heap<'_>,
    key: &CodeKey,
    machine: Machine,
    instruction: Instruction,
) -> Result<Vec<CodeKey>, No> {
    let [data, table] = heap.words(machine.object, heap.offsets.code.data)?;
    let data = Data::read(heap, data)?;
    // The code is of this function.
    if data.shared != key.object {
        return Err(No::Other);
    }
    let table = names::byte_array(heap, table, MAX_TABLE)?.ok_or(No::Other)?;
    let is_maglev = machine.kind == heap.offsets.baseline + 1;
    let place = if instruction == Instruction::Call && !is_maglev && data.has_call(machine.distance)
    {
        place_of_call(&table, machine.distance)
    } else if is_maglev || is_detailed(&table, start(heap, key.object)?) {
        let into = u32::from(instruction == Instruction::Call);
        machine.distance.checked_sub(into).and_then(|distance| place_of(&table, distance))
    } else {
        None
    };
    let mut place = place.ok_or(No::Other)?;
    let compiler = if is_maglev { Compiler::Maglev(v8) } else { Compiler::TurboFan };
    let mut frames = Vec::new();
    while let Some(number) = place.inlining {
        let (shared, caller) = data.inlined(heap, number)?;
        frames.push(frame(heap, shared, place.at, compiler)?);
        // Functions around it come before it.
        if frames.len() > MAX_DEPTH || caller.inlining.is_some_and(|outer| outer >= number) {
            return Err(No::Other);
        }
        place = caller;
    }
    // It may have been collected since the reading began.
    heap.memory.renew();
    let own = frame(heap, key.object, place.at, compiler)?;
    if own.identity != key.identity {
        return Err(No::Other);
    }
    frames.push(own);
    Ok(frames)
}

/// What has compiled code.
#[derive(Clone, Copy)]
enum Compiler<'a> {
    /// In a process with this V8.
    Maglev(&'a V8),
    TurboFan,
}

/// The frame of a function at a place, which one of its bytecodes has to have.
fn frame(heap: Heap<'_>, shared: u64, place: u32, compiler: Compiler<'_>) -> Result<CodeKey, No> {
    let [script, scope, number] = names::key_words(heap, shared)?.ok_or(No::Other)?;
    let bytecode = names::bytecode(heap, shared)?.ok_or(No::Other)?;
    let table = names::position_table(heap, bytecode)?;
    let mut position = names::position_of(&table, place).ok_or(No::Other)?;
    if let Compiler::Maglev(v8) = compiler {
        let opcode = heap.offsets.jump_loop.ok_or(No::Other)?;
        let loops = baseline::positions_with(v8, heap, bytecode, opcode)?;
        if ends_loop(&table, &loops, place) {
            position = CodeKey::UNKNOWN;
        }
    }
    Ok(CodeKey { object: shared, identity: [script, scope, number, 0], context: 0, position })
}

/// True if a place is that of the end of a loop, which has a jump at one of these positions. Maglev
/// compiles the first turn of a loop apart, and all that follows up to the end of the loop has the place
/// of that end (`source_position_iterator_` of its graph builder is not reset).
fn ends_loop(table: &[u8], loops: &[u32], place: u32) -> bool {
    let mut last = None;
    let mut loops = loops.iter().peekable();
    for (position, at) in names::positions(table) {
        while loops.next_if(|end| **end < position).is_some() {
            if last == Some(place) {
                return true;
            }
        }
        last = at;
    }
    loops.peek().is_some() && last == Some(place)
}

/// The place at which a function begins.
fn start(heap: Heap<'_>, shared: u64) -> Result<u32, No> {
    let scope = heap.word(shared, heap.offsets.shared_name)?;
    Ok(names::Scope::read(heap, scope)?.start)
}

/// True if a table of TurboFan's has the places of all instructions, else of calls only. It begins with
/// that of the function then (`CodeGenerator::AssembleCode`), before what sets up the frame; no call is
/// there.
fn is_detailed(table: &[u8], start: u32) -> bool {
    const SETUP: i64 = 32;
    names::entries(table).next().is_some_and(|(position, bits)| {
        position < SETUP
            && SourcePlace::decode(bits) == Some(SourcePlace { at: start, inlining: None })
    })
}

/// The last place of a table before a distance from the first instruction: that of the call behind which
/// the distance is.
fn place_of_call(table: &[u8], distance: u32) -> Option<SourcePlace> {
    let entries = names::entries(table).take_while(|(position, _)| *position < distance.into());
    SourcePlace::decode(entries.last()?.1)
}

/// The place of the instruction at a distance, from a table that has all. Code behind the last place may
/// be what the compiler has moved out of the way of all others: it has none.
fn place_of(table: &[u8], distance: u32) -> Option<SourcePlace> {
    let mut entries = names::entries(table).peekable();
    let mut found = None;
    while let Some((_, bits)) = entries.next_if(|(position, _)| *position <= distance.into()) {
        found = Some(bits);
    }
    entries.peek()?;
    SourcePlace::decode(found?)
}

/// Deoptimization data (`DeoptimizationData`).
struct Data {
    items: Vec<u64>,
    /// The function that was compiled.
    shared: u64,
    /// Numbers of inlined functions.
    inlined: u32,
    /// Items behind that with the number of the places of inlining.
    rest: usize,
    literals: u64,
    inlining: u64,
}

/// An exit has its bytecode, its translation and its address.
const EXIT: usize = 3;

impl Data {
    fn read(heap: Heap<'_>, data: u64) -> Result<Data, No> {
        let offsets = heap.offsets.deoptimization;
        if !heap.offsets.types.arrays.contains(&heap.kind(data)?) {
            return Err(No::Other);
        }
        let length = heap.length(data)?;
        if length > MAX_ITEMS {
            return Err(No::Other);
        }
        let items = heap.items(data, 0, length)?;
        let item = |at: u32| items.get(at as usize).copied().ok_or(No::Other);
        let inlined = small(item(offsets.inlined)?).and_then(|count| u32::try_from(count).ok());
        let mut shared = item(offsets.shared)?;
        if is_object(shared) && heap.kind(shared)? != heap.offsets.types.shared {
            shared = heap.word(shared, 8)?;
        }
        heap.typed(shared, heap.offsets.types.shared)?;
        let (literals, inlining) = (item(offsets.literals)?, item(offsets.inlining)?);
        let rest = offsets.inlining as usize + 1;
        let inlined = inlined.filter(|count| *count < MAX_ITEMS).ok_or(No::Other)?;
        Ok(Data { items, shared, inlined, rest, literals, inlining })
    }

    /// True if an address at this distance is behind a call from which the code may be left.
    fn has_call(&self, distance: u32) -> bool {
        let number = |at: usize| {
            let number = small(*self.items.get(self.rest + at)?)?;
            usize::try_from(number).ok()
        };
        let (Some(eager), Some(lazy)) = (number(1), number(2)) else { return false };
        let first = self.rest.saturating_add(3).saturating_add(eager.saturating_mul(EXIT));
        let exits = self.items.get(first..).unwrap_or_default().chunks_exact(EXIT).take(lazy);
        exits.into_iter().any(|exit| small(exit[EXIT - 1]) == i32::try_from(distance).ok())
    }

    /// An inlined function, and the place of its call.
    fn inlined(&self, heap: Heap<'_>, number: u32) -> Result<(u64, SourcePlace), No> {
        // A place, the number of the function, and a gap.
        const SIZE: u32 = 16;
        let kind = heap.kind(self.inlining)?;
        let length = heap.length(self.inlining)?;
        if !heap.offsets.types.bytes.contains(&kind) || number >= length / SIZE {
            return Err(No::Other);
        }
        let first = heap.offsets.array[1] + number * SIZE;
        let [bits, function] = heap.words(self.inlining, first)?;
        let function = function as u32;
        if function >= self.inlined || function >= heap.length(self.literals)? {
            return Err(No::Other);
        }
        let literal = heap.items(self.literals, function, 1)?[0];
        let shared = weak_object(literal).unwrap_or(literal);
        heap.typed(shared, heap.offsets.types.shared)?;
        Ok((shared, SourcePlace::decode(bits.cast_signed()).ok_or(No::Other)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_has_the_number_of_its_inlining() {
        assert_eq!(SourcePlace::decode(20 << 1), Some(SourcePlace { at: 19, inlining: None }));
        assert_eq!(
            SourcePlace::decode(3 << 31 | 20 << 1),
            Some(SourcePlace { at: 19, inlining: Some(2) })
        );
        assert_eq!([SourcePlace::decode(0), SourcePlace::decode(20 << 1 | 1)], [None; 2]);
    }

    /// A table with these entries, whose distances are below 32: positions, and places.
    fn table(entries: &[(u8, u8)]) -> Vec<u8> {
        let (mut last, mut bits) = (-1, 0);
        let pair = |(position, at): &(u8, u8)| {
            let (distance, next) = (*position as i8 - last, (*at as i8 + 1) << 1);
            let change = next - bits;
            (last, bits) = (*position as i8, next);
            [distance << 1, change << 1 ^ change >> 7].map(|number| number as u8)
        };
        entries.iter().flat_map(pair).collect()
    }

    #[test]
    fn an_instruction_has_the_last_place_before_its_end() {
        let table = table(&[(4, 9), (10, 3), (10, 5), (20, 7), (30, 9)]);
        let at = |found: Option<SourcePlace>| found.map(|place| place.at);
        let found = |distance| at(place_of(&table, distance));
        assert_eq!(
            [3, 4, 9, 10, 19, 20, 29].map(found),
            [None, Some(9), Some(9), Some(5), Some(5), Some(7), Some(7)]
        );
        // Code may be moved there from anywhere, but calls have their place.
        assert_eq!([30, 31].map(found), [None; 2]);
        let call = |distance| at(place_of_call(&table, distance));
        assert_eq!([4, 10, 11, 31].map(call), [None, Some(9), Some(5), Some(9)]);
    }

    #[test]
    fn a_loop_ends_in_the_last_place_before_its_jump() {
        let table = table(&[(0, 9), (4, 3), (10, 5), (20, 7), (30, 9)]);
        let found = |loops: &[u32]| [9, 3, 5, 7].map(|place| ends_loop(&table, loops, place));
        assert_eq!(found(&[]), [false; 4]);
        assert_eq!(found(&[9]), [false, true, false, false]);
        assert_eq!(found(&[10]), [false, false, true, false]);
        assert_eq!(found(&[4, 8, 25]), [false, true, false, true]);
        assert_eq!(found(&[40]), [true, false, false, false]);
    }

    #[test]
    fn a_table_of_calls_is_not_one_of_all_instructions() {
        assert!(is_detailed(&table(&[(0, 9), (20, 3)]), 9));
        assert!(is_detailed(&table(&[(23, 9)]), 9));
        assert!(!is_detailed(&table(&[(0, 8), (20, 9)]), 9));
        assert!(!is_detailed(&table(&[(40, 9)]), 9));
        assert!(!is_detailed(&[], 0));
    }
}
