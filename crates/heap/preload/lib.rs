//! The library that samples allocations inside a program.
//!
//! It is not a part of the prof crate: `build.rs` compiles it, and prof embeds and preloads it. It
//! interposes the functions that allocate and free (`hooks`), counts the bytes down to the next
//! sample (`sample`), and writes a record with registers and a copy of the stack into memory that
//! it shares with prof (`queue`, `layout`). prof does the rest.
//!
//! Rules: no allocation, no lock, no call into the C library except the functions that it
//! interposes and, at the start, `dl_iterate_phdr`; so it works in signal handlers, between fork
//! and exec, at exit, and with any C library. x86-64 only.

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

/// Nothing here panics on purpose; a panic could be neither reported nor survived.
#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    // SAFETY: an instruction that ends the program by SIGILL.
    unsafe { core::arch::asm!("ud2", options(noreturn)) }
}

// `core` was compiled with landing pads, which are never used here. The symbol is hidden: Rust's
// standard library has a working one of this name.
core::arch::global_asm!(
    ".hidden rust_eh_personality",
    ".globl rust_eh_personality",
    "rust_eh_personality:",
    "ud2",
);
