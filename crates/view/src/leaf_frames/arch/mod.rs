//! Functions of the kernel that only one architecture has. A profile may come from another machine:
//! those of all are known.

mod aarch64;
mod x86_64;

/// Beginnings of the names of functions, without leading underscores.
type Beginnings = [&'static [&'static str]; 2];

/// Functions between a scheduling function and the code that an interrupt or a system call preempts.
pub(super) const PREEMPTION: Beginnings = [x86_64::PREEMPTION, aarch64::PREEMPTION];

/// Functions from a system call's entry to the part that does its work.
pub(super) const SYSTEM_CALL: Beginnings = [x86_64::SYSTEM_CALL, aarch64::SYSTEM_CALL];

/// The system call of futexes.
pub(super) const FUTEX: Beginnings = [x86_64::FUTEX, aarch64::FUTEX];

/// Scheduling functions.
pub(super) const SCHEDULER: Beginnings = [x86_64::SCHEDULER, aarch64::SCHEDULER];
