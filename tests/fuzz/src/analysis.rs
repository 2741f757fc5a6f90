//! Machine code without unwind information: its analysis costs what its size allows, in counted
//! steps and bytes.

/// Steps for each byte of code. Programs take 1 to 5; the most by design are 50 for each of three
/// functions and the code before them, in which each byte begins an instruction, and 50 for calls,
/// which are followed through 256 instructions.
const FOR_A_BYTE: u64 = 250;

/// Steps of a lookup: the instructions of a block, for each kind of lookup.
const FOR_A_LOOKUP: u64 = 64;

/// Longest code: with more, there are too few runs.
const LONGEST: usize = 2048;

/// Bytes that are kept for each byte of code.
const HELD: usize = 2000;

/// Takes an input.
pub fn run(data: &[u8]) {
    let Some((&[first, second, third, step], code)) = data.split_first_chunk() else { return };
    let code = &code[..code.len().min(LONGEST)];
    let size = code.len() as u64;
    let at = |part: u8| size * u64::from(part) / 256;
    // One known function, and two probable ones.
    let sized = [(at(first), at(second))];
    let sized = if first < second { &sized[..] } else { &[] };
    let mut starts = [at(second), at(third)];
    starts.sort_unstable();
    let addresses = (0..size).step_by(usize::from(step % 32) + 1);
    let lookups = addresses.clone().count() as u64;
    let cost = unwind::fuzz_cost(code, sized, &starts, addresses);
    let most = size * FOR_A_BYTE + lookups * FOR_A_LOOKUP + 4096;
    assert!(cost.steps <= most, "{cost:?} for {size} bytes, {lookups} lookups");
    assert!(cost.held <= HELD * code.len() + 16384, "{cost:?} for {size} bytes");
}
