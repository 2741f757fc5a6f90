//! Stubs of the procedure linkage table, by the CPU architecture that prof is built for.
//!
//! One file an architecture, with the same items: `docs/design/aarch64.md` lists them.

#[cfg(any(test, target_arch = "aarch64"))]
#[cfg_attr(not(target_arch = "aarch64"), allow(dead_code, reason = "compiled for its tests"))]
mod aarch64;
mod stub;
#[cfg(target_arch = "x86_64")]
mod x86_64;

#[cfg(target_arch = "aarch64")]
pub use aarch64::*;
pub use stub::Stub;
#[cfg(target_arch = "x86_64")]
pub use x86_64::*;

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
compile_error!("prof supports x86_64 and aarch64");
