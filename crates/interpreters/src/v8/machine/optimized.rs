//! Optimized code (Maglev, TurboFan): functions are inlined into it.

use super::super::heap::{Heap, No, is_object, small, weak_object};
use super::super::names;
use super::Machine;
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

/// The frames that a call in optimized code is made from, the innermost first.
pub(super) fn frames(heap: Heap<'_>, key: &CodeKey, machine: Machine) -> Result<Vec<CodeKey>, No> {
    let [data, table] = heap.words(machine.object, heap.offsets.code.data)?;
    let data = Data::read(heap, data)?;
    // The code is of this function, and the address is behind one of its calls.
    if data.shared != key.object || !data.has_call(machine.distance) {
        return Err(No::Other);
    }
    let table = names::byte_array(heap, table, MAX_TABLE)?.ok_or(No::Other)?;
    let mut place = place_before(&table, machine.distance).ok_or(No::Other)?;
    let mut frames = Vec::new();
    while let Some(number) = place.inlining {
        let (shared, caller) = data.inlined(heap, number)?;
        frames.push(frame(heap, shared, place.at)?);
        // Functions around it come before it.
        if frames.len() > MAX_DEPTH || caller.inlining.is_some_and(|outer| outer >= number) {
            return Err(No::Other);
        }
        place = caller;
    }
    let own = frame(heap, key.object, place.at)?;
    if own.identity != key.identity {
        return Err(No::Other);
    }
    frames.push(own);
    Ok(frames)
}

/// The frame of a function at a place, which one of its bytecodes has to have.
fn frame(heap: Heap<'_>, shared: u64, place: u32) -> Result<CodeKey, No> {
    let [script, scope, number] = names::key_words(heap, shared)?.ok_or(No::Other)?;
    let bytecode = names::bytecode(heap, shared)?.ok_or(No::Other)?;
    let table = names::position_table(heap, bytecode)?;
    let position = names::position_of(&table, place).ok_or(No::Other)?;
    Ok(CodeKey { object: shared, identity: [script, scope, number, 0], position })
}

/// The last place of a table before a distance from the first instruction: that of the call behind which
/// the distance is.
fn place_before(table: &[u8], distance: u32) -> Option<SourcePlace> {
    let entries = names::entries(table).take_while(|(position, _)| *position < distance.into());
    SourcePlace::decode(entries.last()?.1)
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
}
