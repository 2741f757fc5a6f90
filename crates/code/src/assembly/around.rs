//! Code around an address that has no name.

use std::ops::Range;

use profile::Cause;
use symbols::{Binary, SymbolOptions};
use sys::{FileAddress, FileOffset};

use super::{Instruction, Piece, Request, Weight};

/// Bytes before and after an address that are shown of a function whose bounds are unknown.
const NEAR: u64 = 256;

/// For each of `others`, whether it is in the function of the code at `at`; without known bounds,
/// whether it is near and has no bounds either.
///
/// # Errors
///
/// No binary of the recorded build was found.
pub fn same_code(
    binary: &str,
    build_id: &str,
    at: FileOffset,
    others: &[FileOffset],
    options: &SymbolOptions,
) -> Result<Vec<bool>, Cause> {
    let binary = Binary::find(binary, build_id, options)?;
    let Some(at) = binary.address_of(at) else { return Ok(vec![false; others.len()]) };
    let own = binary.functions_at(&[at]).pop().flatten();
    let near = own.clone().unwrap_or(at.0.saturating_sub(NEAR)..at.0.saturating_add(NEAR));
    let near = others
        .iter()
        .map(|&other| binary.address_of(other).filter(|address| near.contains(&address.0)));
    let near: Vec<Option<FileAddress>> = near.collect();
    if own.is_some() {
        return Ok(near.iter().map(Option::is_some).collect());
    }
    let addresses: Vec<FileAddress> = near.iter().flatten().copied().collect();
    let mut ranges = binary.functions_at(&addresses).into_iter();
    let is_same = |address: &Option<FileAddress>| {
        address.is_some() && ranges.next().is_some_and(|range| range.is_none())
    };
    Ok(near.iter().map(is_same).collect())
}

/// The piece that is shown around an address whose function has no known bounds: from the first
/// address near it at which a sample was taken. Instructions begin there if an interrupt took it;
/// where others begin before it is unknown. `unbounded`: addresses without bounds.
pub(super) fn piece(
    request: &Request<'_>,
    at: FileAddress,
    unbounded: &[(u64, Weight)],
) -> Option<Range<u64>> {
    let near = at.0.saturating_sub(NEAR)..=at.0;
    let begins = |weight: &Weight| request.skids && weight.self_value != 0;
    let starts =
        unbounded.iter().filter(|(address, weight)| near.contains(address) && begins(weight));
    let start = starts.map(|(address, _)| *address).min()?;
    Some(start..at.0.saturating_add(NEAR))
}

/// Bytes of the longest instruction.
const LONGEST: u64 = 15;

/// Removes what may be the first bytes of an instruction at the end of a piece, which has none of
/// the function's.
pub(super) fn end_at_an_instruction(piece: &mut Piece) {
    let last = piece.function.end.saturating_sub(LONGEST);
    let is_cut = |i: &Instruction| i.text.is_none() && i.address.0 >= last;
    if let Some(cut) = piece.instructions.iter().position(is_cut) {
        piece.function.end = piece.instructions[cut].address.0;
        piece.instructions.truncate(cut);
    }
}
