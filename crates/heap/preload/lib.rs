//! The library that prof puts into a program to sample what it allocates.
//!
//! It is not a part of the prof crate: `build.rs` beside it compiles it, and prof carries it
//! along and preloads it. It interposes the functions that allocate and free (`hooks`), counts
//! the bytes down to the next sample (`sample`), and writes a record with registers and a copy
//! of the stack into memory that it shares with prof (`queue`, `layout`). prof does the rest.
//!
//! Rules of the house: no allocation, no lock, no call into the C library but the functions that
//! it stands for and, at the start, `dl_iterate_phdr`; so it works in signal handlers, between
//! fork and exec, at exit, and in any C library. x86-64 only.

#![no_std]

mod exit;
mod got;
mod hooks;
mod layout;
mod queue;
mod random;
mod real;
mod sample;
mod stack;
mod start;
mod symbols;
mod sys;
mod table;

/// Nothing here panics on purpose; if it does, there is no way to tell and go on.
#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    // SAFETY: an instruction that ends the program by SIGILL.
    unsafe { core::arch::asm!("ud2", options(noreturn)) }
}

// `core` was compiled with landing pads, which are never used here. Not for others to see: Rust's
// standard library has one of this name that works.
core::arch::global_asm!(
    ".hidden rust_eh_personality",
    ".globl rust_eh_personality",
    "rust_eh_personality:",
    "ud2",
);
