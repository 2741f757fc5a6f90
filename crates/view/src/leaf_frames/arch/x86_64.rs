//! Functions of the kernel on x86-64.

/// Functions between a scheduling function and the code that an interrupt or a system call preempts.
pub const PREEMPTION: &[&str] = &[
    "asm_sysvec_",
    "sysvec_",
    "asm_common_interrupt",
    "common_interrupt",
    "asm_exc_",
    "exc_page_fault",
];

/// Functions from a system call's entry to the part that does its work; also of 32-bit programs.
pub const SYSTEM_CALL: &[&str] = &[
    "do_syscall_64",
    "entry_SYSCALL_64",
    "entry_SYSCALL_compat",
    "x64_sys_call",
    "entry_SYSENTER",
    "entry_INT80",
    "do_fast_syscall_32",
    "do_SYSENTER_32",
    "do_int80",
    "ia32_sys_call",
];

/// The system call of futexes.
pub const FUTEX: &[&str] = &["x64_sys_futex", "ia32_sys_futex"];

/// Scheduling functions.
pub const SCHEDULER: &[&str] = &[];
