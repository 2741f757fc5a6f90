//! Code that is compiled without optimization (Sparkplug): one piece of it for each bytecode, in their
//! order.

use super::super::V8;
use super::super::heap::{Heap, No};
use super::super::names;
use super::{CodeAddress, Machine};
use crate::CodeKey;

/// Largest bytecode and largest table of sizes that are read, in bytes.
const MAX_BYTECODE: u32 = 256 << 10;

/// Bytecodes that widen the operands of the next one: twice and four times, and the same for a debugger
/// (`bytecodes.h`).
const PREFIXES: [u8; 4] = [0, 1, 2, 3];

/// The position in bytecode of a place in its machine code.
pub(super) fn position(
    v8: &V8,
    heap: Heap<'_>,
    shared: u64,
    machine: Machine,
    place: CodeAddress,
) -> Result<u32, No> {
    let code = heap.offsets.code;
    let [data, table] = heap.words(machine.object, code.data)?;
    let bytecode = names::bytecode_in(heap, data)?.ok_or(No::Other)?;
    // The code is of this function.
    if names::bytecode(heap, shared)? != Some(bytecode) {
        return Err(No::Other);
    }
    let bytes = instructions(heap, bytecode)?;
    let starts = starts(&v8.symbols.bytecodes, &bytes).ok_or(No::Other)?;
    let sizes = names::byte_array(heap, table, MAX_BYTECODE)?.ok_or(No::Other)?;
    // The address behind a call belongs to the call.
    let distance = machine.distance + u32::from(place.is_innermost);
    position_at(&starts, &sizes, distance).ok_or(No::Other)
}

/// The instructions of bytecode.
fn instructions(heap: Heap<'_>, bytecode: u64) -> Result<Vec<u8>, No> {
    let length = heap.length(bytecode)?;
    if length > MAX_BYTECODE {
        return Err(No::Other);
    }
    let mut bytes = vec![0; length as usize];
    let first = bytecode.wrapping_sub(1).wrapping_add(heap.offsets.bytecode.into());
    heap.memory.read(first, &mut bytes)?;
    Ok(bytes)
}

/// The positions of instructions with an opcode.
pub(super) fn positions_with(
    v8: &V8,
    heap: Heap<'_>,
    bytecode: u64,
    opcode: u8,
) -> Result<Vec<u32>, No> {
    let bytes = instructions(heap, bytecode)?;
    let starts = starts(&v8.symbols.bytecodes, &bytes).ok_or(No::Other)?;
    Ok(starts.into_iter().filter(|start| opcode_at(&bytes, *start) == Some(opcode)).collect())
}

/// The opcode of an instruction, behind its prefix.
fn opcode_at(bytecode: &[u8], start: u32) -> Option<u8> {
    let rest = bytecode.get(start as usize..)?;
    rest.iter().copied().take(2).find(|byte| !PREFIXES.contains(byte))
}

/// Where instructions of bytecode begin; `None` if they do not end with it.
fn starts(sizes: &[u8], bytecode: &[u8]) -> Option<Vec<u32>> {
    let count = sizes.len() / 3;
    let mut starts = Vec::new();
    let mut at = 0;
    while at < bytecode.len() {
        starts.push(at as u32);
        let mut scale = 0;
        if PREFIXES.contains(&bytecode[at]) {
            scale = 1 + usize::from(bytecode[at] % 2);
            at += 1;
        }
        let opcode = usize::from(*bytecode.get(at)?);
        let size = *sizes.get(scale * count..)?.get(..count)?.get(opcode)?;
        at += usize::from(size.max(1));
    }
    (at == bytecode.len()).then_some(starts)
}

/// The position of the instruction whose machine code has a byte with this number, the first one being
/// 1, from a table of sizes: of the code before the first instruction, then of each
/// (`BytecodeOffsetIterator`).
fn position_at(starts: &[u32], sizes: &[u8], distance: u32) -> Option<u32> {
    let mut sizes = sizes.iter();
    let mut end = number(&mut sizes)?;
    let mut position = CodeKey::NOT_BEGUN;
    let mut starts = starts.iter();
    while end < u64::from(distance) {
        position = *starts.next()?;
        end += number(&mut sizes)?;
    }
    Some(position)
}

/// A number of seven bits a byte.
fn number(bytes: &mut std::slice::Iter<'_, u8>) -> Option<u64> {
    let mut number = 0;
    for shift in (0..32).step_by(7) {
        let byte = bytes.next()?;
        number |= u64::from(byte & 127) << shift;
        if byte & 128 == 0 {
            return Some(number);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instructions_have_their_sizes() {
        // Prefixes; 4 and 5 with operands of 1 byte each, 2 with a prefix, and 4.
        let sizes = [1, 1, 1, 1, 2, 3, 1, 1, 1, 1, 3, 5, 1, 1, 1, 1, 5, 9];
        let bytecode = [4, 9, 0, 5, 9, 9, 9, 9, 1, 4, 9, 9, 9, 9, 5, 9, 9];
        assert_eq!(starts(&sizes, &bytecode), Some(vec![0, 2, 8, 14]));
        assert_eq!(starts(&sizes, &bytecode[..16]), None);
        assert_eq!(starts(&sizes, &[6]), None);
        assert_eq!(starts(&[], &bytecode), None);
        assert_eq!(
            [0, 2, 8, 17].map(|at| opcode_at(&bytecode, at)),
            [Some(4), Some(5), Some(4), None]
        );
    }

    #[test]
    fn an_address_belongs_to_the_instruction_whose_code_ends_behind_it_or_there() {
        let (starts, sizes) = ([0, 2, 8], [10, 5, 0x80, 1, 7]);
        let found = |distance| position_at(&starts, &sizes, distance);
        assert_eq!([found(1), found(10)], [Some(CodeKey::NOT_BEGUN); 2]);
        assert_eq!([found(11), found(15), found(16), found(143)], [0, 0, 2, 2].map(Some));
        assert_eq!([found(144), found(150), found(151)], [Some(8), Some(8), None]);
    }
}
