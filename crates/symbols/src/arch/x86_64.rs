//! x86-64: System V ABI, AMD64 supplement, "Procedure Linkage Table".

use super::stub::Stub;

/// `jmp *disp32(%rip)`.
const JUMP: [u8; 2] = [0xff, 0x25];
const JUMP_SIZE: usize = 6;

/// Stubs in a section at `address`, whose entries have this size according to its header.
pub fn stubs(data: &[u8], address: u64, entry_size: u64) -> Vec<Stub> {
    // Lazy and IBT stubs have 16 bytes; those of `.plt.got` have eight without IBT.
    let size = match entry_size {
        size @ (8 | 16) => size as usize,
        _ => 16,
    };
    let stub = |(i, entry): (usize, &[u8])| {
        let at = entry.windows(JUMP.len()).position(|w| w == JUMP)?;
        let displacement = entry.get(at + 2..)?.first_chunk::<4>()?;
        let start = address + (i * size) as u64;
        let next = start + (at + JUMP_SIZE) as u64;
        let slot = next.wrapping_add_signed(i64::from(i32::from_le_bytes(*displacement)));
        Some(Stub { start, end: start + size as u64, slot })
    };
    data.chunks(size).enumerate().filter_map(stub).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stub_jumps_through_its_slot() {
        // endbr64; bnd jmp *0x2fed(%rip); nop
        let mut data = vec![0xf3, 0x0f, 0x1e, 0xfa, 0xf2, 0xff, 0x25];
        data.extend(0x2fedi32.to_le_bytes());
        data.resize(16, 0x90);
        let slot = 0x1000 + 11 + 0x2fed;
        assert_eq!(stubs(&data, 0x1000, 16), [Stub { start: 0x1000, end: 0x1010, slot }]);
        assert_eq!(stubs(&data[..9], 0x1000, 16), []);
    }
}
