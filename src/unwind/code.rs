//! What a few bytes of machine code say of the stack, where no unwind information does.

/// What code does to the stack pointer until it returns, in bytes, and where `rbp` is popped from;
/// `None` when it does anything but to call, to pop and to give back.
pub fn epilogue(code: &[u8]) -> Option<(u64, Option<u64>)> {
    let (mut size, mut bp, mut rest) = (0, None, code);
    loop {
        let length = match *rest {
            [0xc3, ..] | [0xf3, 0xc3, ..] => return Some((size, bp)),
            [0xe8, _, _, _, _, ..] => 5,
            [0xff, 0xd0..=0xd7, ..] => 2,
            [0x58..=0x5f, ..] => {
                bp = if rest[0] == 0x5d { Some(size) } else { bp };
                size += 8;
                1
            }
            [0x41, 0x58..=0x5f, ..] => {
                size += 8;
                2
            }
            [0x48, 0x83, 0xc4, add @ 0..=0x7f, ..] => {
                size += u64::from(add);
                4
            }
            [0x48, 0x81, 0xc4, a, b, c @ 0..=0x7f, 0, ..] => {
                size += u64::from(u32::from_le_bytes([a, b, c, 0]));
                7
            }
            _ => return None,
        };
        rest = &rest[length..];
    }
}

/// The bytes before a return address end with a call instruction.
pub fn ends_with_call(before: &[u8]) -> bool {
    let back = |n: usize| before.len().checked_sub(n).map(|at| before[at]);
    if back(5) == Some(0xe8) {
        return true;
    }
    // `ff /2`: an indirect call, by the length that its operand has.
    (2..=7).any(|n| {
        let (Some(0xff), Some(modrm)) = (back(n), back(n - 1)) else { return false };
        let (mode, rm) = (modrm >> 6, modrm & 7);
        let sib = if n > 2 { back(n - 2) } else { None };
        let with_sib = usize::from(mode != 3 && rm == 4);
        let displacement = match mode {
            0 if rm == 5 || (rm == 4 && sib.is_some_and(|s| s & 7 == 5)) => 4,
            1 => 1,
            2 => 4,
            _ => 0,
        };
        (modrm >> 3) & 7 == 2 && n == 2 + with_sib + displacement
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_epilogue_says_how_large_the_frame_is() {
        // add $8, %rsp; ret (`_init`), and Go's `crosscall_amd64` from its first call on.
        assert_eq!(epilogue(&[0x48, 0x83, 0xc4, 8, 0xc3]), Some((8, None)));
        let crosscall =
            [0xff, 0xd3, 0x41, 0x5f, 0x41, 0x5e, 0x41, 0x5d, 0x41, 0x5c, 0x5d, 0x5b, 0xc3];
        assert_eq!(epilogue(&crosscall), Some((48, Some(32))));
        assert_eq!(epilogue(&[0x48, 0x81, 0xc4, 0, 1, 0, 0, 0x5d, 0xc3]), Some((264, Some(256))));
        for other in [&[][..], &[0x5d], &[0x31, 0xc0, 0xc3], &[0xe8, 0, 0, 0, 0, 0x90, 0xc3]] {
            assert_eq!(epilogue(other), None, "{other:x?}");
        }
    }

    #[test]
    fn call_instructions_are_known_by_their_bytes() {
        for call in [
            &[0xe8, 1, 2, 3, 4][..],
            &[0xff, 0xd0],
            &[0x41, 0xff, 0xd4],
            &[0xff, 0x10],
            &[0xff, 0x15, 1, 2, 3, 4],
            &[0xff, 0x50, 8],
            &[0xff, 0x54, 0x24, 8],
            &[0xff, 0x90, 1, 2, 3, 4],
            &[0xff, 0x94, 0xc1, 1, 2, 3, 4],
            &[0xff, 0x14, 0xc5, 1, 2, 3, 4],
            &[0xff, 0x14, 0xc1],
        ] {
            let bytes = [&[0x90; 4][..], call].concat();
            assert!(ends_with_call(&bytes), "{call:x?}");
        }
        for other in [&[][..], &[0xff], &[0xff, 0xe0], &[0x90; 8], &[0xff, 0x15, 1, 2, 3]] {
            assert!(!ends_with_call(other), "{other:x?}");
        }
    }
}
