//! The cost of the analysis of any code, for fuzzing.

use super::{File, Functions, Text};
use crate::arch::CodeCache;
use crate::{AddressKind, CodeAddress};
use sys::FileAddress;
use sys::elf::Segment;

/// Counted cost of lookups.
#[derive(Clone, Copy, Debug)]
pub struct Cost {
    /// Decoded and evaluated instructions, and words.
    pub steps: u64,
    /// Bytes of cached results.
    pub held: usize,
}

/// The cost of frames and calls in code at address 0, without a budget. `sized` are ranges of
/// functions, `starts` other starts; `addresses` are looked up as instructions and as return
/// addresses.
pub fn fuzz_cost(
    code: &[u8],
    sized: &[(u64, u64)],
    starts: &[u64],
    addresses: impl Iterator<Item = u64>,
) -> Cost {
    let segments = [Segment { address: 0, offset: 0, size: code.len() as u64 }];
    let text = Text { segments: &segments, bytes: code };
    let mut functions = Functions::from_symbols(sized.to_vec());
    functions.begin_at(starts);
    let file = File { image: 0, text, functions: &functions, entry: 0 };
    let mut cache = CodeCache::unlimited();
    for address in addresses {
        for kind in [AddressKind::Instruction, AddressKind::Return] {
            cache.frame(file, CodeAddress { address: FileAddress(address), kind });
        }
        cache.leads(file, address, Some(address / 2), |_, _| false);
        if let Some(&(start, _)) = sized.first() {
            cache.moved(file, start, address);
        }
    }
    let (steps, held) = cache.cost();
    Cost { steps, held }
}
