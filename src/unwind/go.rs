//! Where the stacks of Go's threads and goroutines begin, and where its run-time code goes on on
//! another stack: Go's unwind information says neither, its machine code does
//! (`runtime/asm_amd64.s`, `runtime/sys_linux_amd64.s`).

use super::cfi::Rule;
use super::code;

/// Most bytes before an address that are looked at.
pub const BEFORE: usize = 48;

/// Most bytes from an address on.
pub const AFTER: usize = 16;

/// From where the stack pointer is set to the end of the call: `asmcgocall` has the most between.
const SWITCH: usize = 40;

/// `mov $111, %edi; mov $60, %eax; syscall`: what `clone` does in a new thread when its function
/// returns.
const EXIT: [u8; 12] = [0xbf, 111, 0, 0, 0, 0xb8, 60, 0, 0, 0, 0x0f, 0x05];

/// The rule of the code at an address in a file of Go's that has another than its unwind
/// information says: `before` ends with that address's byte, the last one of a call, `after`
/// begins behind it.
pub fn rule(address: u64, before: &[u8], after: &[u8]) -> Option<Rule> {
    // `goexit` is `nop; call; nop`. Goroutines return to its second byte, and it calls itself.
    if let (Some(0x90), [0xe8, _, _, _, _, 0x90, ..]) = (before.last(), after) {
        return Some(Rule::Outermost);
    }
    let called = before.last_chunk::<6>();
    if let (Some([0x90, 0xe8, ..]), [0x90, 0xcc, ..]) = (called, after)
        && (address + 1 - 6).is_multiple_of(16)
    {
        return Some(Rule::Outermost);
    }
    if !code::ends_with_call(before) {
        return None;
    }
    if after.starts_with(&EXIT) {
        return Some(Rule::Outermost);
    }
    let before = &before[before.len().saturating_sub(SWITCH)..];
    before.windows(7).any(switches).then_some(Rule::Switched)
}

/// `mov sched.sp(%g), %rsp`, or the same by way of another register: at 56 in `runtime.g` lies
/// where its stack was left.
fn switches(code: &[u8]) -> bool {
    const SCHED_SP: u8 = 56;
    let [prefix, 0x8b, operand, SCHED_SP, then @ ..] = code else { return false };
    let (prefix, operand) = (*prefix, *operand);
    // A 64-bit register from memory with a displacement of one byte.
    if prefix & 0xf8 != 0x48 || operand >> 6 != 1 || operand & 7 == 4 {
        return false;
    }
    let to = (operand >> 3 & 7) | (prefix & 4) << 1;
    match to {
        4 => true,
        // `mov %reg, %rsp`.
        0..8 => matches!(then, [0x48, 0x89, m] if *m == 0xc4 | to << 3),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn go_s_code_says_where_stacks_begin_and_end() {
        let nop = [0x90u8; 48];
        let of =
            |address, before: &[u8], after: &[u8]| rule(address, &[&nop, before].concat(), after);
        // goexit: where goroutines return to, and behind its call.
        let goexit = [0xe8, 0x1a, 0x25, 0, 0, 0x90, 0xcc, 0xcc];
        assert_eq!(of(0x1000, &[0x90], &goexit), Some(Rule::Outermost));
        assert_eq!(of(0x1005, &goexit[..5], &goexit[5..]), Some(Rule::Outermost));
        // Another call between two nops.
        assert_eq!(of(0x1006, &goexit[..5], &goexit[5..]), None);
        assert_eq!(of(0x1005, &goexit[..5], &[0x90, 0x48]), None);
        // clone: call *%r12.
        let clone = [0x41, 0xff, 0xd4];
        assert_eq!(of(0x1000, &clone, &EXIT), Some(Rule::Outermost));
        assert_eq!(of(0x1000, &clone, &EXIT[1..]), None);
        // mcall, systemstack and morestack of Go 1.19, systemstack of 1.21.
        let mcall = [0x49, 0x8b, 0x66, 0x38, 0x50, 0x4c, 0x8b, 0x22, 0x41, 0xff, 0xd4];
        let by_rbx = [0x48, 0x8b, 0x5a, 0x38, 0x48, 0x89, 0xdc, 0x48, 0x89, 0xfa];
        let systemstack = [&by_rbx[..], &[0x48, 0x8b, 0x3f, 0xff, 0xd7]].concat();
        let morestack = [0x48, 0x8b, 0x63, 0x38, 0xe8, 0x75, 0x45, 0, 0];
        let newer = [0x48, 0x8b, 0x62, 0x38, 0x48, 0x89, 0xfa, 0x48, 0x8b, 0x3f, 0xff, 0xd7];
        for switch in [&mcall[..], &systemstack, &morestack, &newer] {
            assert_eq!(of(0x1000, switch, &[0x58]), Some(Rule::Switched), "{switch:x?}");
            assert_eq!(of(0x1000, &switch[1..], &[0x58]), None, "{switch:x?}");
            // Before the call.
            assert_eq!(of(0x1000, &switch[..4], &[0x58]), None, "{switch:x?}");
        }
        // Something else is read, or put elsewhere.
        for other in [[0x48, 0x8b, 0x62, 0x40], [0x48, 0x8b, 0x5a, 0x38]] {
            assert_eq!(of(0x1000, &[&other[..], &[0xff, 0xd7]].concat(), &[]), None, "{other:x?}");
        }
        assert_eq!(rule(0, &[], &[]), None);
    }
}
