//! x86-64: System V ABI (AMD64 supplement), the kernel's `arch/x86`, and glibc's `sysdeps/x86_64`.

use super::RegisterAccess;
use crate::inject::frame::{Destination, Target};
use sys::Error;
use sys::record::Regs;

mod call;
mod frame;
mod gadgets;
mod restart;

pub use call::call_target;
pub use frame::{ReturnPath, frame_below, frame_room, undoing};
pub use gadgets::Gadgets;
pub use restart::{for_the_kernel, futex_of, is_cut_short, to_continue};

/// Checks that allocations of programs can be sampled.
///
/// # Errors
///
/// The library has no hooks for this architecture.
pub fn check_support() -> Result<(), Error> {
    Ok(())
}

/// The general registers of a stopped thread.
pub type Registers = libc::user_regs_struct;

/// Way of ptrace(2) to them.
#[allow(clippy::unnecessary_cast, reason = "musl's requests are signed")]
pub const REGISTER_ACCESS: RegisterAccess =
    RegisterAccess::Requests { get: libc::PTRACE_GETREGS as u32, set: libc::PTRACE_SETREGS as u32 };

/// Number of the set of all other registers: `NT_X86_XSTATE`, as `XSAVE` writes them (not
/// compacted).
pub const OTHER_REGISTERS: usize = 0x202;

/// The registers that unwinding needs.
pub fn unwound(registers: &Registers) -> Regs {
    Regs { ip: registers.rip, sp: registers.rsp, bp: registers.rbp }
}

/// All registers in the form of [`sys::record::AllRegs`].
pub fn sampled(registers: &Registers) -> Vec<u8> {
    let r = registers;
    let words: [u64; sys::arch::REGISTERS] = [
        r.rax, r.rbx, r.rcx, r.rdx, r.rsi, r.rdi, r.rbp, r.rsp, r.rip, r.r8, r.r9, r.r10, r.r11,
        r.r12, r.r13, r.r14, r.r15,
    ];
    words.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

/// Values that may be pointers to data.
pub fn values(registers: &Registers) -> Vec<u64> {
    let r = registers;
    vec![
        r.rax, r.rbx, r.rcx, r.rdx, r.rsi, r.rdi, r.rbp, r.r8, r.r9, r.r10, r.r11, r.r12, r.r13,
        r.r14, r.r15,
    ]
}

/// Address of the thread's control block.
pub fn thread_pointer(registers: &Registers) -> u64 {
    registers.fs_base
}

/// True if the thread runs 64-bit code.
pub fn is_native(registers: &Registers) -> bool {
    /// Segment selector of 64-bit code (`__USER_CS`).
    const LONG_MODE: u64 = 0x33;
    registers.cs == LONG_MODE
}

/// True if a C library has created the thread: it stores the control block's own address at its
/// beginning.
pub fn has_control_block(registers: &Registers, word: impl Fn(u64) -> Option<u64>) -> bool {
    word(registers.fs_base) == Some(registers.fs_base)
}

/// True if the fields of a thread's `status` in `/proc` show a shadow stack, which does not let it
/// be led to other code.
pub fn has_shadow_stack<'a>(field: impl Fn(&str) -> Option<&'a str>) -> bool {
    field("x86_Thread_features").is_some_and(|features| features.contains("shstk"))
}

/// Registers with which a thread begins the way to a destination.
pub fn led_to(destination: Destination, way: ReturnPath, registers: &Registers) -> Registers {
    /// Only the interrupt flag, which is always set.
    const FLAGS: u64 = 0x202;
    let Destination { to, arguments, entry, slot } = destination;
    let at_slot = slot.wrapping_add_signed(-i64::from(way.displacement));
    let [rdi, rsi, rdx, fourth, r8, r9] = arguments;
    let (rip, rax) = match to {
        Target::Function(address) => (address, 0),
        Target::Call(number) => (way.syscall, number as u64),
    };
    Registers {
        rip,
        rax,
        rdi,
        rsi,
        rdx,
        r8,
        r9,
        // The fourth argument of a function, and of a system call.
        rcx: fourth,
        r10: fourth,
        rsp: entry,
        rbx: at_slot,
        rbp: at_slot,
        r12: at_slot,
        r13: at_slot,
        r14: at_slot,
        r15: at_slot,
        eflags: FLAGS,
        orig_rax: u64::MAX,
        ..*registers
    }
}

/// The registers beyond the general ones at the start of a function: as at the start of a program.
pub fn initial(others: &[u8]) -> Vec<u8> {
    const CONTROL: [u8; 2] = 0x37f_u16.to_le_bytes();
    const MXCSR: [u8; 4] = 0x1f80_u32.to_le_bytes();
    /// Features in use.
    const IN_USE: std::ops::Range<usize> = 512..520;
    let mut clean = others.to_vec();
    clean[..2].copy_from_slice(&CONTROL);
    clean[24..28].copy_from_slice(&MXCSR);
    clean[IN_USE].fill(0);
    clean
}

/// Bytes below its stack pointer that a function may use (3.2.2).
pub const RED_ZONE: u64 = 128;

/// Upper bound of the size of glibc's thread descriptor, which begins with the control block, above
/// the thread's stack.
pub const THREAD_SIZE: u64 = 4096;

/// Offsets in glibc's control block of pointers to itself (`tcbhead_t` in sysdeps/x86_64/nptl/tls.h:
/// `tcb`, `self`).
pub const SELF_POINTERS: &[u64] = &[0, 16];

/// Offset in it of the pointer to the thread's variables (`dtv`).
pub const VECTOR: u64 = 8;

/// Most bytes below a control block that are data: the thread's variables.
pub const DATA_BELOW: u64 = 64 << 10;

/// Most bytes from a control block on that are data: the descriptor.
pub const DATA_ABOVE: u64 = THREAD_SIZE;
