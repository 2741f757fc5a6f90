//! Registers in a record of an allocation: those that a callee preserves, on x86-64.

/// Number of registers.
pub const COUNT: usize = 8;

/// Index of the frame pointer, `rbp`.
pub const BP: usize = 1;
/// Index of the stack pointer, `rsp`.
pub const SP: usize = 2;
/// Index of the instruction pointer, `rip`.
pub const IP: usize = 3;

/// Positions of the registers in the kernel's samples: rbx, rbp, rsp, rip, r12 to r15.
#[allow(dead_code, reason = "only prof reads samples")]
pub const IN_SAMPLES: [usize; COUNT] = [1, 6, 7, 8, 13, 14, 15, 16];
