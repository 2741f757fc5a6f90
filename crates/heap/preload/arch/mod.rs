//! Assembly, and numbers of the kernel and the dynamic linker.
//!
//! One file an architecture, with the same items: `docs/design/aarch64.md` lists them.

#[cfg(target_arch = "aarch64")]
mod aarch64;
#[cfg(target_arch = "x86_64")]
mod x86_64;

#[cfg(target_arch = "aarch64")]
pub use aarch64::*;
#[cfg(target_arch = "x86_64")]
pub use x86_64::*;

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
compile_error!("prof supports x86_64 and aarch64");
