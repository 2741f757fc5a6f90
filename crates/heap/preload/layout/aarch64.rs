//! Registers in a record of an allocation: those that a callee preserves, on AArch64.

/// Number of registers.
pub const COUNT: usize = 14;

/// Index of the frame pointer, x29.
pub const BP: usize = 10;
/// Index of the stack pointer.
pub const SP: usize = 12;
/// Index of the instruction pointer.
pub const IP: usize = 13;

/// Positions of the registers in the kernel's samples: x19 to x30, sp, pc.
#[allow(dead_code, reason = "only prof reads samples")]
pub const IN_SAMPLES: [usize; COUNT] = [19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31, 32];
