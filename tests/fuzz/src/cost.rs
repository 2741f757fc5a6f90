//! The cost of an input: CPU time of this thread, and the memory that is held at most.

#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use sys::os;

/// How often an input is analysed before it counts as expensive: another process may have taken the
/// CPU's caches.
const TRIALS: usize = 5;

/// What an analysis may cost: a base, and an amount for each byte of the input.
pub struct Limits {
    /// CPU time of any input.
    pub time: Duration,
    /// CPU time for each byte.
    pub time_for_a_byte: Duration,
    /// Bytes held for any input.
    pub memory: usize,
    /// Bytes held for each byte.
    pub memory_for_a_byte: usize,
}

impl Limits {
    /// Runs an analysis of `size` bytes, and panics if it costs more than the limits. It is the
    /// same each time.
    pub fn hold(&self, size: usize, analyse: impl Fn()) {
        let bytes = u32::try_from(size).expect("a short input");
        let time_limit = self.time + self.time_for_a_byte * bytes;
        let memory_limit = self.memory + self.memory_for_a_byte * size;
        let (held, time) = measure(&analyse);
        assert!(held <= memory_limit, "{held} bytes held for {size} bytes: {memory_limit} allowed");
        // Tests run beside others, and assert no time.
        if !cfg!(feature = "libfuzzer") {
            return;
        }
        let mut least = time;
        for _ in 1..TRIALS {
            if least <= time_limit {
                return;
            }
            least = least.min(measure(&analyse).1);
        }
        assert!(least <= time_limit, "{least:?} for {size} bytes: {time_limit:?} allowed");
    }
}

/// The most bytes that an analysis held, and its CPU time.
fn measure(analyse: &impl Fn()) -> (usize, Duration) {
    let before = HELD.load(Relaxed);
    MOST_HELD.store(before, Relaxed);
    let start = os::thread_cpu_time();
    analyse();
    let time = os::thread_cpu_time().saturating_sub(start);
    (MOST_HELD.load(Relaxed).saturating_sub(before), time)
}

/// Bytes that are allocated now, and the most since [`measure`] began.
static HELD: AtomicUsize = AtomicUsize::new(0);
static MOST_HELD: AtomicUsize = AtomicUsize::new(0);

/// The system's allocator, counted.
struct Counted;

#[global_allocator]
static COUNTED: Counted = Counted;

fn add(size: usize) {
    let held = HELD.fetch_add(size, Relaxed).wrapping_add(size);
    MOST_HELD.fetch_max(held, Relaxed);
}

// SAFETY: all calls are passed on to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counted {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        add(layout.size());
        // SAFETY: the caller's promises are those that the system's allocator needs.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        add(layout.size());
        // SAFETY: as above.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        HELD.fetch_sub(layout.size(), Relaxed);
        // SAFETY: as above.
        unsafe { System.dealloc(pointer, layout) }
    }
}
