//! Functions of the kernel on AArch64.

/// Functions between a scheduling function and the code that an interrupt or a system call preempts.
pub const PREEMPTION: &[&str] = &[
    "el0_irq",
    "el0_da",
    "el0_ia",
    "el0_interrupt",
    "el1_irq",
    "el1_interrupt",
    "el0t_64_irq",
    "el1h_64_irq",
];

/// Functions from a system call's entry to the part that does its work.
pub const SYSTEM_CALL: &[&str] = &["do_el0_svc", "el0_svc", "el0t_64_sync", "invoke_syscall"];

/// The system call of futexes.
pub const FUTEX: &[&str] = &["arm64_sys_futex"];

/// Scheduling functions.
pub const SCHEDULER: &[&str] = &["arm64_preempt_schedule"];
