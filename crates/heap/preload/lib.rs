//! The library that samples allocations inside a program.
//!
//! It is not a part of the prof crate: `build.rs` compiles it, and prof embeds and preloads it. It
//! interposes the functions that allocate and free (`arch`), counts the bytes down to the next
//! sample (`sample`), and writes a record with registers and a copy of the stack into memory that
//! it shares with prof (`queue`, `layout`). prof does the rest.
//!
//! Rules: no allocation, no lock, no call into the C library except the functions that it
//! interposes and, at the start, `dl_iterate_phdr`; so it works in signal handlers, between fork
//! and exec, at exit, and with any C library.

#![no_std]

mod arch;
mod exit;
mod filter;
mod got;
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
    arch::abort()
}
