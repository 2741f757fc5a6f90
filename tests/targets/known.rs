//! The program of known.c in Rust. Of 9 parts of CPU time, by self: bar 5, main 2, foo1 1.5,
//! foo2 0.5; by total: main 9, foo1 4, foo2 3.
//!
//! Built without overflow checks: plain operators, as a function of the library would be a
//! frame of its own, inlined.
//!
//! usage: known SECONDS     (of wall-clock time; 0: forever)

use std::arch::asm;
use std::time::{Duration, Instant};

/// A chain of multiplications: bound by latency, so that the loop's alignment does not matter.
macro_rules! spin {
    ($x:ident, $unit:ident, $halves:expr) => {
        let mut n = $unit * $halves;
        while n > 0 {
            $x = $x * 6364136223846793005 + 1442695040888963407;
            // SAFETY: no instruction at all; it only hides the value from the optimiser.
            unsafe { asm!("/* {0} */", inout(reg) $x) };
            n -= 1;
        }
    };
}

#[inline(never)]
fn bar(mut x: u64, unit: u64) -> u64 {
    spin!(x, unit, 10);
    x
}

// Own work before and after the call, so that it is no tail call.
#[inline(never)]
fn foo1(mut x: u64, unit: u64) -> u64 {
    spin!(x, unit, 3);
    x = bar(x, unit);
    spin!(x, unit, 3);
    x
}

#[inline(never)]
fn foo2(mut x: u64, unit: u64) -> u64 {
    spin!(x, unit, 1);
    x = bar(x, unit);
    spin!(x, unit, 1);
    x
}

fn main() {
    let seconds: f64 = std::env::args().nth(1).map_or(1.0, |s| s.parse().unwrap());
    let start = Instant::now();
    let mut x = 1u64;
    loop {
        // Rounds of unequal length (about 20 ms), so that no sampling rate is in step.
        let unit = 200_000 + (x >> 33) % 400_000;
        spin!(x, unit, 4);
        x = foo1(x, unit);
        spin!(x, unit, 4);
        x = foo2(x, unit);
        if seconds != 0.0 && start.elapsed() >= Duration::from_secs_f64(seconds) {
            break;
        }
    }
    println!("{x}");
}
