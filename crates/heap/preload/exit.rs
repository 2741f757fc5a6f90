//! The end of a process: prof searches its memory for pointers to allocations that were never
//! freed.
//!
//! The process waits for a bounded time. It makes no system call unless prof permits it: a seccomp
//! filter may allow only a few.

use core::hint::spin_loop;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use crate::layout::exit::{CONFINED, FREE, PATIENCE, REQUESTED, SEARCHED, STATE, TAKEN};
use crate::layout::{ExitSlot, Header};
use crate::queue::{SHARED, recording};
use crate::table::Process;
use crate::{arch, sample, start, sys};

/// Interval in nanoseconds of polling for prof's completion.
const NAP: u64 = 200_000;

/// The C library calls this after the program's own exit handlers.
#[used]
#[unsafe(link_section = ".fini_array")]
static AT_EXIT: unsafe extern "C" fn() = arch::at_exit;

/// Requests the search. The callee-saved registers are on the stack from `sp` on.
pub extern "C" fn request_search(sp: u64) {
    let (Some(header), Some(process)) = (recording(), sample::process()) else { return };
    let pid = process.pid.load(Relaxed);
    // A child without allocations of its own has nothing to lose.
    if header.leaks.load(Relaxed) == 0 || pid == 0 || process.is_empty() {
        return;
    }
    let name = header.next_id.fetch_add(1, Relaxed) << STATE.count_ones();
    let mut slots = header.exits.iter();
    let take = |slot: &&ExitSlot| {
        slot.state.compare_exchange(FREE, name | TAKEN, Acquire, Relaxed).is_ok()
    };
    // If none is free, prof is not notified, and reports that.
    let Some(slot) = slots.find(take) else { return };
    fill(slot, process, pid, sp);
    slot.state.store(name | REQUESTED, Release);
    wait(header, slot, name);
}

fn fill(slot: &ExitSlot, process: &Process, pid: i32, sp: u64) {
    slot.pid.store(pid, Relaxed);
    slot.tid.store(sample::tid(pid), Relaxed);
    slot.sp.store(sp, Relaxed);
    slot.control_block.store(arch::thread_block() as u64, Relaxed);
    slot.table.store((&raw const *process) as u64, Relaxed);
    slot.shared.store(SHARED.load(Relaxed) as u64, Relaxed);
    slot.time.store(start::now(), Relaxed);
}

fn wait(header: &Header, slot: &ExitSlot, name: u64) {
    let until = slot.time.load(Relaxed) + PATIENCE;
    loop {
        let state = slot.state.load(Acquire);
        match state ^ name {
            SEARCHED => sys::sleep(NAP),
            REQUESTED | CONFINED => (0..100).for_each(|_| spin_loop()),
            // Free again, or already another process's.
            _ => return,
        }
        let over = start::now() >= until || header.active.load(Relaxed) == 0;
        if over && slot.state.compare_exchange(state, FREE, Relaxed, Relaxed).is_ok() {
            return;
        }
    }
}
