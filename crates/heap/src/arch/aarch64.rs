//! AArch64: its procedure call standard (AAPCS64), the kernel's `arch/arm64`, and glibc's
//! `sysdeps/aarch64`.
//!
//! The library has no hooks, and no thread is borrowed.

use std::fs::File;

use super::RegisterAccess;
use crate::inject::frame::{Back, Context, Destination, SignalFrame, Undo};
use crate::inject::trace::RegisterSet;
use sys::Error;
use sys::record::Regs;

/// Checks that allocations of programs can be sampled.
///
/// # Errors
///
/// The library has no hooks for this architecture.
pub fn check_support() -> Result<(), Error> {
    Err(Error::failed("sampling allocations is not supported on aarch64"))
}

/// The general registers of a stopped thread: `user_pt_regs`, and the thread pointer.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Registers {
    /// x0 to x30.
    pub x: [u64; 31],
    /// The stack pointer.
    pub sp: u64,
    /// The instruction pointer.
    pub pc: u64,
    /// State of the processor.
    pub pstate: u64,
    /// `tpidr_el0`.
    pub tpidr: u64,
}

/// Way of ptrace(2) to them: `NT_PRSTATUS`, `NT_ARM_TLS`.
pub const REGISTER_ACCESS: RegisterAccess = RegisterAccess::Sets(&[
    RegisterSet { number: 1, size: 34 * 8 },
    RegisterSet { number: 0x401, size: 8 },
]);

/// Number of the set of all other registers: `NT_PRFPREG`, without those of SVE.
pub const OTHER_REGISTERS: usize = 2;

/// The registers that unwinding needs.
pub fn unwound(registers: &Registers) -> Regs {
    Regs { ip: registers.pc, sp: registers.sp, bp: registers.x[29] }
}

/// All registers in the form of [`sys::record::AllRegs`].
pub fn sampled(registers: &Registers) -> Vec<u8> {
    let words = registers.x.iter().chain([&registers.sp, &registers.pc]);
    words.flat_map(|word| word.to_ne_bytes()).collect()
}

/// Values that may be pointers to data.
pub fn values(registers: &Registers) -> Vec<u64> {
    registers.x.to_vec()
}

/// Address of the thread's control block.
pub fn thread_pointer(registers: &Registers) -> u64 {
    registers.tpidr
}

/// True if the thread runs 64-bit code.
pub fn is_native(registers: &Registers) -> bool {
    /// `PSR_MODE32_BIT`.
    const MODE_32: u64 = 0x10;
    registers.pstate & MODE_32 == 0
}

/// True if a C library has created the thread: not known, as its control block has no mark.
pub fn has_control_block(_registers: &Registers, _word: impl Fn(u64) -> Option<u64>) -> bool {
    false
}

/// True if the fields of a thread's `status` in `/proc` show a shadow stack, which does not let it
/// be led to other code: not known, so it may have one.
pub fn has_shadow_stack<'a>(_field: impl Fn(&str) -> Option<&'a str>) -> bool {
    true
}

/// True if the thread was stopped in a system call that has not completed: not known, as the kernel
/// prepares the call's restart before it reports the stop.
pub fn is_cut_short(_registers: &Registers) -> bool {
    true
}

/// Address of the futex that a thread waited for when it was stopped: not known.
pub fn futex_of(_registers: &Registers) -> Option<u64> {
    None
}

/// Registers for delivering a signal: unchanged, as the kernel has already decided.
pub fn for_the_kernel(registers: &Registers) -> Registers {
    *registers
}

/// Registers for continuing without a signal: unchanged, as the kernel has already decided.
pub fn to_continue(registers: &Registers) -> Registers {
    *registers
}

/// Target of the call before a return address: not known.
pub fn call_target(_memory: &File, _return_address: u64) -> Option<u64> {
    None
}

/// Code fragments in a C library through which a thread can be led: there are none yet. Arguments
/// are not popped from the stack by short fragments, as on other architectures.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Gadgets {}

impl Gadgets {
    /// Fragments in code that is mapped at `address`.
    pub fn find(_code: &[u8], _address: u64) -> Gadgets {
        Gadgets {}
    }

    /// These, completed by others.
    pub fn or(self, _others: Gadgets) -> Gadgets {
        self
    }

    /// Fragments that keep a function's result and restore its caller's registers.
    pub fn way(&self) -> Option<ReturnPath> {
        None
    }
}

/// Code fragments that a function returns through: there are none yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReturnPath {}

/// Most bytes needed on the stack: `struct rt_sigframe` (arch/arm64/kernel/signal.c), and some for
/// alignment.
pub fn frame_room(_others: &[u8]) -> u64 {
    /// `siginfo`, 176 bytes of `ucontext`, `struct sigcontext` with its reserved records.
    const SIZE: u64 = 128 + 176 + 8 + 34 * 8 + 8 + 4096;
    RED_ZONE + SIZE + 512
}

/// A frame below the stack pointer `sp`, which restores the context of a thread.
pub fn frame_below(
    _sp: u64,
    _context: &Context<'_>,
    way: ReturnPath,
    _back: Back,
    _undo: Undo,
) -> SignalFrame {
    match way {}
}

/// Registers with which a thread performs the undo, and then returns.
pub fn undoing(_frame: &SignalFrame, way: ReturnPath, _registers: &Registers) -> Registers {
    match way {}
}

/// Registers with which a thread begins the way to a destination.
pub fn led_to(_destination: Destination, way: ReturnPath, _registers: &Registers) -> Registers {
    match way {}
}

/// The registers beyond the general ones at the start of a function: as at the start of a program,
/// all zero.
pub fn initial(others: &[u8]) -> Vec<u8> {
    vec![0; others.len()]
}

/// Bytes below its stack pointer that a function may use: none (AAPCS64, 6.4.5.1).
pub const RED_ZONE: u64 = 0;

/// Upper bound of the size of glibc's thread descriptor, which ends where the control block begins,
/// above the thread's stack.
pub const THREAD_SIZE: u64 = 4096;

/// Offsets in glibc's control block of pointers to itself: it has none (`tcbhead_t` in
/// sysdeps/aarch64/nptl/tls.h), so stacks of ended threads are not recognized.
pub const SELF_POINTERS: &[u64] = &[];

/// Offset in it of the pointer to the thread's variables (`dtv`).
pub const VECTOR: u64 = 0;

/// Most bytes below a control block that are data: the descriptor.
pub const DATA_BELOW: u64 = THREAD_SIZE;

/// Most bytes from a control block on that are data: the thread's variables.
pub const DATA_ABOVE: u64 = 64 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn registers_have_the_kernel_s_layout() {
        let RegisterAccess::Sets(sets) = REGISTER_ACCESS else { panic!("no sets") };
        assert_eq!(sets.iter().map(|set| set.size).sum::<usize>(), size_of::<Registers>());
        let x = std::array::from_fn(|i| i as u64);
        let registers = Registers { x, sp: 31, pc: 32, pstate: 0, tpidr: 0x7000 };
        let bytes = sampled(&registers);
        let words = bytes.as_chunks().0.iter().map(|word| u64::from_ne_bytes(*word));
        assert!(words.eq(0..33));
        assert_eq!(unwound(&registers), Regs { ip: 32, sp: 31, bp: 29 });
        assert!(is_native(&registers) && !is_native(&Registers { pstate: 0x10, ..registers }));
    }

    #[test]
    fn nothing_is_led_anywhere() {
        assert_eq!(Gadgets::find(&[0; 64], 0).or(Gadgets {}).way(), None);
        assert!(check_support().is_err());
    }
}
