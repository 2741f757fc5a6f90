//! The end of a process: prof searches its memory for pointers to allocations that were never
//! freed.
//!
//! The process waits for a bounded time. It makes no system call unless prof permits it: a seccomp
//! filter may allow only a few.

use core::arch::naked_asm;
use core::hint::spin_loop;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use crate::layout::exit::{CONFINED, FREE, PATIENCE, REQUESTED, SEARCHED, STATE, TAKEN};
use crate::layout::{ExitSlot, Header};
use crate::queue::{SHARED, recording};
use crate::table::Process;
use crate::{sample, stack, start, sys};

/// Interval in nanoseconds of polling for prof's completion.
const NAP: u64 = 200_000;

/// The C library calls this after the program's own exit handlers.
#[used]
#[unsafe(link_section = ".fini_array")]
static AT_EXIT: unsafe extern "C" fn() = at_exit;

/// Saves callee-saved registers on the stack, where prof finds them; callees restore those that
/// they change.
#[unsafe(naked)]
unsafe extern "C" fn at_exit() {
    naked_asm!(
        ".cfi_startproc",
        "sub rsp, 56",
        ".cfi_adjust_cfa_offset 56",
        "mov qword ptr [rsp], rbx",
        "mov qword ptr [rsp + 8], rbp",
        "mov qword ptr [rsp + 16], r12",
        "mov qword ptr [rsp + 24], r13",
        "mov qword ptr [rsp + 32], r14",
        "mov qword ptr [rsp + 40], r15",
        "mov qword ptr [rsp + 48], 0",
        "mov rdi, rsp",
        "call {request}",
        "add rsp, 56",
        ".cfi_adjust_cfa_offset -56",
        "ret",
        ".cfi_endproc",
        request = sym request_search,
    )
}

extern "C" fn request_search(sp: u64) {
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
    fill(slot, process, (pid, sp));
    slot.state.store(name | REQUESTED, Release);
    wait(header, slot, name);
}

fn fill(slot: &ExitSlot, process: &Process, (pid, sp): (i32, u64)) {
    slot.pid.store(pid, Relaxed);
    slot.tid.store(sample::tid(pid), Relaxed);
    slot.sp.store(sp, Relaxed);
    slot.fs.store(stack::thread_block() as u64, Relaxed);
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
