//! x86-64: System V ABI (AMD64 supplement), and the kernel's `arch/x86`.
//!
//! Registers have DWARF's numbers (figure 3.36).

use gimli::{RegisterRule, Vendor};

use crate::cfi::{Return, Rule, Saved};

mod code;
mod go;

pub use code::{
    CodeCache, CodeFrame, DeliveryContexts, LONGEST_CALL, Moved, contexts, delivers,
    each_reference, is_after_call, leave_adapter, managed_rule, sized_frame, straight_rule,
};
pub use go::{GO_AFTER, GO_BEFORE, go_rule, go_start, may_have_go_rules};

/// Number of registers that are restored.
pub const COLUMNS: usize = 17;

/// The frame pointer: `rbp`.
pub const BP: u8 = 6;
/// The stack pointer: `rsp`.
pub const SP: u8 = 7;
/// The instruction pointer: `rip`.
pub const IP: u8 = 16;
/// The column of the return address: `rip` of the caller.
pub const RA: u8 = 16;

/// The register of a call's result: `rax`.
pub const RESULT: u8 = 0;

/// Registers in which a handler receives its exception: `rax` and `rdx`.
pub const EXCEPTION: [u8; 2] = [0, 1];

/// Extensions of call frame information.
pub const VENDOR: Vendor = Vendor::Default;

/// Bytes below the stack pointer that functions may use (3.2.2).
pub const RED_ZONE: u64 = 128;

/// Distance of the canonical frame address from the stack pointer at a function's beginning: a call
/// pushes the return address.
pub const ENTRY_CFA: i32 = 8;

/// Location of a return address: just below the canonical frame address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReturnAddress;

impl ReturnAddress {
    /// Its address, by the canonical frame address; `None` if it is in a register.
    #[inline]
    pub fn slot(self, cfa: u64) -> Option<u64> {
        Some(cfa.wrapping_sub(8))
    }
}

/// The return address as the rule of its column describes it; `None` if another way than the usual
/// ones.
pub fn return_address(rule: Option<RegisterRule<usize>>) -> Option<Return<ReturnAddress>> {
    match rule {
        None | Some(RegisterRule::Undefined) => Some(Return::Outermost),
        Some(RegisterRule::Offset(-8)) => Some(Return::At(ReturnAddress)),
        Some(_) => None,
    }
}

/// The address of the code that a saved return address leads to.
#[inline]
pub fn code_address(word: u64) -> u64 {
    word
}

/// Location of the return address that a return with this stack pointer has removed.
pub fn removed_slot(sp: u64) -> Option<u64> {
    sp.checked_sub(8)
}

/// The rule of Go's code with a frame of this many bytes above the stack pointer.
pub fn go_frame(size: i32) -> Option<Rule> {
    let cfa = size.checked_add(ENTRY_CFA)?;
    Some(Rule::Offset { register: SP, cfa, bp: Saved::Same, ra: ReturnAddress })
}

/// The rule of a function with a frame pointer.
const WITH_POINTER: Rule =
    Rule::Offset { register: BP, cfa: 16, bp: Saved::FromCfa(-16), ra: ReturnAddress };

/// True if code with this rule switches to another segment of the stack: `__morestack` of libgcc
/// leaves out the return address to its direct caller, which calls it before its own frame.
pub fn switches_segment(rule: Rule) -> bool {
    rule == Rule::Offset { register: BP, cfa: 24, bp: Saved::FromCfa(-24), ra: ReturnAddress }
}

/// True if a function with this rule has a frame pointer.
pub fn has_pointer(rule: Rule) -> bool {
    rule == WITH_POINTER
}

/// The rule of code that a run-time system describes, with a frame pointer.
pub fn linked_frame() -> Option<Rule> {
    Some(WITH_POINTER)
}

/// The caller's stack pointer in a function with this frame pointer.
pub fn caller_sp(bp: u64) -> Option<u64> {
    bp.checked_add(16)
}

/// `mov $15, %rax; syscall`: the return address of signal handlers (`rt_sigreturn`).
pub const SIGRETURN: &[u8] = &[0x48, 0xc7, 0xc0, 0x0f, 0, 0, 0, 0x0f, 0x05];

/// Beginnings of the names of files that contain [`SIGRETURN`].
pub const SIGRETURN_FILES: &[&str] = &["libc.", "libc-", "libpthread", "ld-musl"];

/// Registers in a `struct ucontext` (`asm/ucontext.h`, `asm/sigcontext.h`): r8 to r15, di, si, bp,
/// bx, dx, ax, cx, sp, ip.
pub const SIGNAL_REGISTERS: [u8; 17] = [8, 9, 10, 11, 12, 13, 14, 15, 5, 4, 6, 3, 1, 0, 2, 7, 16];
/// Offset of the first one from the stack pointer at [`SIGRETURN`].
pub const SIGNAL_FIRST: u64 = 40;
/// Offset of the frame pointer.
pub const SIGNAL_BP: u64 = 120;
/// Offset of the stack pointer.
pub const SIGNAL_SP: u64 = 160;
/// Offset of the instruction pointer.
pub const SIGNAL_IP: u64 = 168;

/// `mov $60, %al; syscall`: the call `exit`.
pub const EXIT: &[u8] = &[0xb0, 60, 0x0f, 0x05];
