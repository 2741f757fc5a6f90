//! Parts of recording that depend on the CPU architecture: instructions at probes, numbers and
//! arguments of system calls, the kernel's fields of registers.
//!
//! One file an architecture, with the same items: `docs/design/aarch64.md` lists them.

#[cfg(any(test, target_arch = "aarch64"))]
#[cfg_attr(not(target_arch = "aarch64"), allow(dead_code, reason = "compiled for its tests"))]
mod aarch64;
#[cfg(target_arch = "x86_64")]
mod x86_64;

#[cfg(target_arch = "aarch64")]
pub use aarch64::*;
#[cfg(target_arch = "x86_64")]
pub use x86_64::*;

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
compile_error!("prof supports x86_64 and aarch64");

/// Offsets in `pt_regs`.
pub struct CallArguments {
    /// The number of a system call.
    pub number: i16,
    /// Its first argument, while it is entered.
    pub first: i16,
    /// Its second argument.
    pub second: i16,
    /// Its third argument.
    pub third: i16,
}
