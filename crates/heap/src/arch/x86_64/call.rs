//! Targets of call instructions.

use std::fs::File;
use std::os::unix::fs::FileExt;

/// First instruction of an entry of the procedure linkage table, if it has one: `endbr64`.
const ENDBR64: [u8; 4] = [0xf3, 0x0f, 0x1e, 0xfa];

/// Target of the call before a return address: of `call` with a displacement, through an entry of
/// the procedure linkage table or not, or through a word at a displacement (`-fno-plt`).
///
/// `None` for other calls, such as through a register: their targets are no longer available.
pub fn call_target(memory: &File, return_address: u64) -> Option<u64> {
    let mut code = [0; 6];
    memory.read_exact_at(&mut code, return_address.checked_sub(6)?).ok()?;
    if let [0xff, 0x15, distance @ ..] = code {
        return word(memory, at_distance(return_address, distance));
    }
    let [_, 0xe8, distance @ ..] = code else { return None };
    let target = at_distance(return_address, distance);
    Some(through_table(memory, target).unwrap_or(target))
}

/// Target of an entry of the procedure linkage table, if this is one.
fn through_table(memory: &File, entry: u64) -> Option<u64> {
    let mut code = [0; 11];
    memory.read_exact_at(&mut code, entry).ok()?;
    let mut at = if code.starts_with(&ENDBR64) { ENDBR64.len() } else { 0 };
    // `bnd`, a prefix of Intel's MPX.
    at += usize::from(code[at] == 0xf2);
    let [0xff, 0x25, distance @ ..] = *code[at..].first_chunk::<6>()? else { return None };
    word(memory, at_distance(entry + at as u64 + 6, distance))
}

fn at_distance(from: u64, distance: [u8; 4]) -> u64 {
    from.wrapping_add_signed(i32::from_le_bytes(distance).into())
}

fn word(memory: &File, address: u64) -> Option<u64> {
    let mut word = [0; 8];
    memory.read_exact_at(&mut word, address).ok()?;
    Some(u64::from_le_bytes(word))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    /// Memory from address 0 on.
    fn memory(parts: &[(usize, &[u8])]) -> File {
        let mut bytes = vec![0xcc; 0x200];
        for (at, part) in parts {
            bytes[*at..at + part.len()].copy_from_slice(part);
        }
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&bytes).unwrap();
        file
    }

    #[test]
    fn calls_are_followed_to_their_targets() {
        const CALL: &[u8] = &[0xe8, 0xfb, 0, 0, 0];
        let slot: &[u8] = &0x7f00_1234_u64.to_le_bytes();
        // At 0, so that it returns to 5, which is too near to the start; at 0x10 to 0x110.
        assert_eq!(call_target(&memory(&[(0, CALL)]), 5), None);
        let direct: &[(usize, &[u8])] = &[(0x10, CALL)];
        assert_eq!(call_target(&memory(direct), 0x15), Some(0x110));
        let table: &[&[u8]] = &[
            &[0xff, 0x25, 0x6a, 0, 0, 0],
            &[0xf3, 0x0f, 0x1e, 0xfa, 0xff, 0x25, 0x66, 0, 0, 0],
            &[0xf3, 0x0f, 0x1e, 0xfa, 0xf2, 0xff, 0x25, 0x65, 0, 0, 0],
        ];
        for entry in table {
            let parts = [(0x10, CALL), (0x110, entry), (0x180, slot)];
            assert_eq!(call_target(&memory(&parts), 0x15), Some(0x7f00_1234));
        }
        let parts: &[(usize, &[u8])] = &[(0x10, &[0xff, 0x15, 0x6a, 1, 0, 0]), (0x180, slot)];
        assert_eq!(call_target(&memory(parts), 0x16), Some(0x7f00_1234));
        // Through a register.
        assert_eq!(
            call_target(&memory(&[(0x10, &[0x90, 0x90, 0x90, 0x90, 0xff, 0xd0])]), 0x16),
            None
        );
    }
}
