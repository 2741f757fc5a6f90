//! AArch64: System V ABI for the Arm 64-bit Architecture (SYSVABI64), "Procedure Linkage Table".

use super::stub::Stub;

/// `add x16, x16, #n` without `n`, and the bits of `n`.
const ADD: u32 = 0x9100_0210;
const ADD_BITS: u32 = 0xfff << 10;
/// `ldr x17, [x16, #n]` without `n`, which is in units of eight bytes, and the bits of `n`.
const LOAD: u32 = 0xf940_0211;
const LOAD_BITS: u32 = 0xfff << 10;
/// `adrp x16, n` without `n`, and its bits.
const PAGE_OF: u32 = 0x9000_0010;
const PAGE_BITS: u32 = 0x3 << 29 | 0x7_ffff << 5;
/// `br x17`.
const JUMP: u32 = 0xd61f_0220;
/// `bti c`, which precedes them in a stub that may be called indirectly.
const MARK: u32 = 0xd503_245f;

/// Stubs in a section at `address`: `adrp`, `ldr`, `add`, `br` in this order. Their sizes differ
/// within a section, so that of the header does not count.
pub fn stubs(data: &[u8], address: u64, _entry_size: u64) -> Vec<Stub> {
    let code: Vec<u32> = data.as_chunks().0.iter().map(|word| u32::from_le_bytes(*word)).collect();
    let stub = |(i, words): (usize, &[u32])| {
        let [page, load, add, JUMP] = *words else { return None };
        let matches =
            page & !PAGE_BITS == PAGE_OF && load & !LOAD_BITS == LOAD && add & !ADD_BITS == ADD;
        let at = address.wrapping_add(4 * i as u64);
        let marked = i > 0 && code[i - 1] == MARK;
        let slot = page_of(page, at).wrapping_add(u64::from((load & LOAD_BITS) >> 10) * 8);
        let start = if marked { at.wrapping_sub(4) } else { at };
        matches.then_some(Stub { start, end: at.wrapping_add(16), slot })
    };
    code.windows(4).enumerate().filter_map(stub).collect()
}

/// The address that `adrp` computes: a page relative to the instruction's own.
fn page_of(instruction: u32, at: u64) -> u64 {
    let low = instruction >> 29 & 3;
    let high = instruction >> 5 & 0x7_ffff;
    // A signed number of 21 bits.
    let pages = i64::from(((high << 2 | low) << 11) as i32 >> 11);
    (at & !0xfff).wrapping_add_signed(pages << 12)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(code: &[u32]) -> Vec<u8> {
        code.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    #[test]
    fn a_stub_jumps_through_its_slot() {
        // adrp x16, 0x1f000; ldr x17, [x16, #4056]; add x16, x16, #4056; br x17
        let plain = [0xf000_00f0, 0xf947_ee11, 0x913f_6210, JUMP];
        let stub = Stub { start: 0x600, end: 0x610, slot: 0x1_ffd8 };
        assert_eq!(stubs(&bytes(&plain), 0x600, 16), [stub]);
        let marked = [&[MARK][..], &plain].concat();
        let stub = Stub { start: 0x600, end: 0x614, slot: 0x1_ffd8 };
        assert_eq!(stubs(&bytes(&marked), 0x600, 24), [stub]);
        // adrp x16, to the page before.
        let back = [0xf0ff_fff0, 0xf947_ee11, 0x913f_6210, JUMP];
        assert_eq!(stubs(&bytes(&back), 0x1600, 16)[0].slot, 0x0fd8);
        for wrong in 0..4 {
            let mut other = plain;
            other[wrong] ^= 1;
            assert_eq!(stubs(&bytes(&other), 0x600, 16), []);
        }
    }
}
