//! Finds the call between two frames that frame pointers skip.

use iced_x86::{Decoder, DecoderOptions, Instruction, Mnemonic};
use object::LittleEndian;
use object::elf::FileHeader64;
use object::read::elf::{FileHeader, ProgramHeader};

use super::graph::Graph;
use super::{LONGEST_CALL, call_before};
use crate::code::{Between, CallTarget, File, FunctionStart};

/// Largest function that is searched for addresses of others, in bytes.
const MAX_SIZE: usize = 1 << 16;

/// Most segments of a file in which such an address is read.
const MAX_SEGMENTS: usize = 256;

/// Target of a direct call, by its return address.
pub fn called(file: File<'_>, after: u64) -> Option<u64> {
    match call_before(file.text.before(after, LONGEST_CALL)?, after)? {
        CallTarget::Direct(target) => Some(target),
        CallTarget::Indirect => None,
    }
}

/// The only call from the function that begins at `begin` to the other one, by its return address.
/// Of several calls it is the one before which the address of the argument is taken.
pub fn find(
    file: File<'_>,
    graph: &Graph,
    begin: u64,
    between: Between,
    are_one: impl Fn(u64, u64) -> bool,
) -> Option<u64> {
    let in_one_function = |a: u64, b: u64| a == b || are_one(a, b) || file.functions.are_one(a, b);
    let leads = |after: u64| {
        in_one_function(begin, after.wrapping_sub(1))
            && called(file, after).is_some_and(|target| in_one_function(target, between.to))
    };
    let mut calls: Vec<u64> = graph.returns().filter(|&after| leads(after)).collect();
    if calls.len() > 1 {
        let Some(FunctionStart::Known(argument)) = file.functions.start(between.argument?) else {
            return None;
        };
        let with_it = calls_with(file, begin, argument, *calls.iter().max()?);
        calls.retain(|after| with_it.contains(after));
    }
    match calls[..] {
        [only] => Some(only),
        _ => None,
    }
}

/// Calls before which, and after the previous call, the address of a function is taken, or of a
/// word that contains it. By their return addresses, up to the last one.
fn calls_with(file: File<'_>, begin: u64, function: u64, last: u64) -> Vec<u64> {
    let size = usize::try_from(last - begin.min(last)).unwrap_or(0);
    let bytes = file.text.from(begin).unwrap_or_default();
    // Parts of a function that are far away are not in order.
    let size = if size > MAX_SIZE { 0 } else { size.min(bytes.len()) };
    let mut decoder = Decoder::with_ip(64, &bytes[..size], begin, DecoderOptions::NONE);
    let mut found = Vec::new();
    let mut is_taken = false;
    let mut instruction = Instruction::default();
    while decoder.can_decode() {
        decoder.decode_out(&mut instruction);
        if instruction.mnemonic() == Mnemonic::Lea && instruction.is_ip_rel_memory_operand() {
            let at = instruction.ip_rel_memory_address();
            is_taken |= at == function || word(file.text.bytes, at) == Some(function);
        } else if instruction.mnemonic() == Mnemonic::Call {
            if is_taken {
                found.push(instruction.next_ip());
            }
            is_taken = false;
        }
    }
    found
}

/// The word at an address, as in the file.
fn word(bytes: &[u8], address: u64) -> Option<u64> {
    let header = FileHeader64::<LittleEndian>::parse(bytes).ok()?;
    let endian = header.endian().ok()?;
    let segments = header.program_headers(endian, bytes).ok()?;
    let data = segments
        .iter()
        .take(MAX_SEGMENTS)
        .find_map(|s| s.data_range(endian, bytes, address, 8).ok()?)?;
    Some(u64::from_le_bytes(*data.first_chunk()?))
}
