//! Roots of the stacks of Go's threads and goroutines, and switches between stacks in Go's run-time
//! code: Go's unwind information covers neither, its machine code does (`runtime/asm_amd64.s`,
//! `runtime/sys_linux_amd64.s`).

use iced_x86::{Decoder, DecoderOptions, FlowControl};

use super::code;
use crate::cfi::Rule;

/// Most bytes before an address that are read.
pub const GO_BEFORE: usize = 96;

/// Most bytes from an address on that are read.
pub const GO_AFTER: usize = 48;

/// Most bytes from setting the stack pointer to the end of the call: `asmcgocall` has the most.
const SWITCH: usize = 40;

/// Offset of `sched.sp` in `runtime.g`: the saved stack pointer of a goroutine.
const SCHED_SP: u8 = 56;

/// `mov $111, %edi; mov $60, %eax; syscall`: the end of `clone` in a new thread, after its function
/// returns.
const EXIT: [u8; 12] = [0xbf, 111, 0, 0, 0, 0xb8, 60, 0, 0, 0, 0x0f, 0x05];

/// The rule of the code at an address in a Go file, where it differs from the unwind information:
/// `before` ends with that address's byte, the last one of a call, `after` begins behind it.
pub fn go_rule(address: u64, before: &[u8], after: &[u8]) -> Option<Rule> {
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
        return runs_on_other_stack(before, after).then_some(Rule::Switched);
    }
    if after.starts_with(&EXIT) {
        return Some(Rule::Outermost);
    }
    let before = &before[before.len().saturating_sub(SWITCH)..];
    (0..before.len()).any(|i| switch_length(&before[i..]).is_some()).then_some(Rule::Switched)
}

/// `mov (%rsp), %rdi; lea 8(%rsp), %rsi`: the arguments of a program.
const ARGUMENTS: [u8; 9] = [0x48, 0x8b, 0x3c, 0x24, 0x48, 0x8d, 0x74, 0x24, 0x08];

/// The function that the entry point of a Go program jumps to (`_rt0_amd64_linux`, `_rt0_amd64`).
pub fn go_start<'a>(entry: u64, code: impl Fn(u64) -> Option<&'a [u8]>) -> Option<u64> {
    let jump = |at: u64| {
        let [0xe9, to @ ..] = *code(at)?.first_chunk::<5>()? else { return None };
        Some(at.wrapping_add(5).wrapping_add_signed(i32::from_le_bytes(to).into()))
    };
    let first = jump(entry)?;
    let has_arguments = code(first)?.starts_with(&ARGUMENTS);
    has_arguments.then(|| jump(first.checked_add(ARGUMENTS.len() as u64)?)).flatten()
}

/// True if [`go_rule`] may differ from the unwind information somewhere in this code.
pub fn may_have_go_rules(code: &[u8]) -> bool {
    let reads_sp = code.windows(4).any(|code| code[1] == 0x8b && code[3] == SCHED_SP);
    reads_sp
        || code.windows(2).any(|code| code == [0x90, 0xe8])
        || code.windows(EXIT.len()).any(|code| code == EXIT)
}

/// True if the instruction whose first byte ends `before` runs on another stack: the stack pointer
/// has been set and the call is still to come, or it has returned and the stack pointer is still to
/// be restored.
fn runs_on_other_stack(before: &[u8], after: &[u8]) -> bool {
    let Some(at) = before.len().checked_sub(1) else { return false };
    if !before.windows(4).any(|code| code[1] == 0x8b && code[3] == SCHED_SP) {
        return false;
    }
    let code = [before, after].concat();
    let switched = |i: usize| Some(i + switch_length(&code[i..])?);
    (0..at).filter_map(switched).any(|start| lies_between(&code, start, at))
}

/// True if the code is straight from `start` to `at`, with one call, before `at` or after it; if
/// before, the stack pointer is not set in between.
fn lies_between(code: &[u8], start: usize, at: usize) -> bool {
    let mut decoder = Decoder::new(64, &code[start..], DecoderOptions::NONE);
    let mut is_reached = false;
    let mut is_called = false;
    while decoder.can_decode() {
        let here = start + decoder.position();
        is_reached |= here == at;
        if sets_stack(&code[here..]) || (here > at && !is_reached) {
            return is_reached && is_called;
        }
        match decoder.decode().flow_control() {
            FlowControl::Next => {}
            FlowControl::Call | FlowControl::IndirectCall if is_reached || is_called => {
                return !is_called;
            }
            FlowControl::Call | FlowControl::IndirectCall => is_called = true,
            _ => return false,
        }
    }
    false
}

/// True for a `mov` from a register or from memory to `%rsp`.
fn sets_stack(code: &[u8]) -> bool {
    match code {
        [0x48 | 0x4c, 0x89, operand, ..] => operand & 0xc7 == 0xc4,
        [0x48 | 0x49, 0x8b, operand, ..] => operand >> 3 & 7 == 4,
        _ => false,
    }
}

/// `mov sched.sp(%g), %rsp`, or the same by way of another register: its length in bytes.
fn switch_length(code: &[u8]) -> Option<usize> {
    let [prefix, 0x8b, operand, SCHED_SP, then @ ..] = code else { return None };
    let prefix = *prefix;
    let operand = *operand;
    // A 64-bit register from memory with a displacement of one byte.
    if prefix & 0xf8 != 0x48 || operand >> 6 != 1 || operand & 7 == 4 {
        return None;
    }
    let to = (operand >> 3 & 7) | (prefix & 4) << 1;
    match to {
        4 => Some(4),
        // `mov %reg, %rsp`.
        0..8 => matches!(then, [0x48, 0x89, m, ..] if *m == 0xc4 | to << 3).then_some(7),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The bytes of this code that run on another stack, out of those that begin an instruction.
    fn away(code: &[u8], instructions: &[usize]) -> Vec<usize> {
        let at =
            |&&i: &&usize| go_rule(0x1000, &code[..=i], &code[i + 1..]) == Some(Rule::Switched);
        instructions.iter().filter(at).copied().collect()
    }

    #[test]
    fn between_stacks_no_caller_is_read() {
        // mov %rsi,%r14; mov 0x38(%r14),%rsp; push %rax; mov (%rdx),%r12; call *%r12; pop %rax; jmp
        let mcall = [
            0x49, 0x89, 0xf6, 0x49, 0x8b, 0x66, 0x38, 0x50, 0x4c, 0x8b, 0x22, 0x41, 0xff, 0xd4,
            0x58, 0xe9, 0x37, 0x45, 0, 0,
        ];
        assert_eq!(away(&mcall, &[0, 3, 7, 8, 11]), [7, 8, 11]);
        // mov 0x38(%rdx),%rbx; mov %rbx,%rsp; mov %rdi,%rdx; mov (%rdi),%rdi; call *%rdi;
        // mov %fs:-8,%rax; mov 0x38(%rax),%rsp; movq $0,0x38(%rax); ret
        let systemstack = [
            0x48, 0x8b, 0x5a, 0x38, 0x48, 0x89, 0xdc, 0x48, 0x89, 0xfa, 0x48, 0x8b, 0x3f, 0xff,
            0xd7, 0x64, 0x48, 0x8b, 0x04, 0x25, 0xf8, 0xff, 0xff, 0xff, 0x48, 0x8b, 0x60, 0x38,
            0x48, 0xc7, 0x40, 0x38, 0, 0, 0, 0, 0xc3, 0x90,
        ];
        let instructions = [0, 4, 7, 10, 13, 15, 24, 28, 36];
        assert_eq!(away(&systemstack, &instructions), [7, 10, 13, 15, 24]);
        // asmcgocall: mov 0x38(%rsi),%rsp; sub $64,%rsp; and $-16,%rsp; mov %rdi,48(%rsp);
        // call *%rax; mov 48(%rsp),%rdi; mov %rsi,%rsp; ret
        let asmcgocall = [
            0x48, 0x8b, 0x66, 0x38, 0x48, 0x83, 0xec, 0x40, 0x48, 0x83, 0xe4, 0xf0, 0x48, 0x89,
            0x7c, 0x24, 0x30, 0xff, 0xd0, 0x48, 0x8b, 0x7c, 0x24, 0x30, 0x48, 0x89, 0xf4, 0xc3,
        ];
        assert_eq!(away(&asmcgocall, &[0, 4, 8, 12, 17, 19, 24, 27]), [4, 8, 12, 17, 19, 24]);
        // A jump in between, or no call at all.
        assert!(away(&[0x49, 0x8b, 0x66, 0x38, 0x90, 0xff, 0xe3], &[4, 5]).is_empty());
    }

    #[test]
    fn the_first_function_is_the_one_that_the_entry_jumps_to() {
        // jmp; then the arguments, and jmp.
        let code =
            [&[0xe9, 0x0b, 0, 0, 0][..], &[0xcc; 11], &ARGUMENTS, &[0xe9, 0x20, 0, 0, 0]].concat();
        fn of(code: &[u8]) -> Option<u64> {
            go_start(0x1000, |address| code.get(usize::try_from(address - 0x1000).ok()?..))
        }
        assert_eq!(of(&code), Some(0x1000 + 16 + 14 + 0x20));
        assert_eq!(of(&code[..20]), None);
        assert_eq!(of(&code[16..]), None);
        assert_eq!(of(&[]), None);
    }

    #[test]
    fn go_s_code_shows_where_stacks_begin_and_end() {
        let nop = [0x90u8; 48];
        let of = |address, before: &[u8], after: &[u8]| {
            go_rule(address, &[&nop, before].concat(), after)
        };
        // goexit: the return address of goroutines, and the one after its call.
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
            // Before the call, no call has returned.
            assert_eq!(of(0x1000, &switch[..4], &[0x58]), None, "{switch:x?}");
        }
        // Another word is read, or stored elsewhere.
        for other in [[0x48, 0x8b, 0x62, 0x40], [0x48, 0x8b, 0x5a, 0x38]] {
            assert_eq!(of(0x1000, &[&other[..], &[0xff, 0xd7]].concat(), &[]), None, "{other:x?}");
        }
        assert_eq!(go_rule(0, &[], &[]), None);
    }
}
