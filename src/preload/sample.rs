//! What happens to the few allocations that are sampled, and to their end.

use core::arch::{asm, global_asm};
use core::sync::atomic::AtomicPtr;
use core::sync::atomic::Ordering::{Acquire, Relaxed};

use crate::layout::{DEAD, Header, Kind, MAX_RANGES, MAX_STACK, StackSlot, register};
use crate::queue::{self, recording};
use crate::table::Process;
use crate::{random, real, stack, start, sys};

/// While prof does not record, each thread looks after so many bytes whether it does.
const LOOK_AGAIN: u64 = 256 << 10;

/// What a thread knows. It is all zero when the thread begins.
#[repr(C)]
struct Thread {
    /// Bytes until the next sample. The hooks count it down, so it comes first.
    left: u64,
    /// The generator's; 0: the first distance has not been drawn.
    random: u64,
    /// The last sampled allocation, and what was left after it.
    last_id: u64,
    last_left: u64,
    /// Its number; 0: not asked for yet.
    tid: i32,
    /// In this process.
    pid: i32,
    /// From here to its control block all can be read; 0: not known.
    stack: usize,
}

// `#[thread_local]` is not in stable Rust. The library is there before any thread, so its part of
// the threads' memory lies at a distance that the dynamic linker knows ("initial exec").
global_asm!(
    ".section .tbss.prof_heap_thread,\"awT\",@nobits",
    ".balign 16",
    ".hidden prof_heap_thread",
    ".globl prof_heap_thread",
    ".type prof_heap_thread, @object",
    ".size prof_heap_thread, {size}",
    "prof_heap_thread:",
    ".zero {size}",
    ".text",
    size = const size_of::<Thread>(),
);

/// What this thread knows. A signal handler may interrupt its own thread and use it too; all that
/// can come of that is a distance drawn twice.
fn thread() -> *mut Thread {
    let thread;
    // SAFETY: the first word at fs is the address from which the distance counts.
    unsafe {
        asm!(
            "mov {0}, fs:[0]",
            "add {0}, qword ptr [rip + prof_heap_thread@GOTTPOFF]",
            out(reg) thread,
            options(nostack, pure, readonly),
        );
    }
    thread
}

/// Registers that a callee keeps, as the hooks push them, and what lies above on the stack.
#[repr(C)]
pub struct Frame {
    r15: u64,
    r14: u64,
    r13: u64,
    r12: u64,
    rbx: u64,
    rbp: u64,
    result: u64,
    return_address: u64,
}

/// What this process knows; null as long as nothing is sampled.
pub static PROCESS: AtomicPtr<Process> = AtomicPtr::new(core::ptr::null_mut());

/// What this process knows, if anything is sampled.
pub fn process() -> Option<&'static Process> {
    // SAFETY: null, or memory that is never given back.
    unsafe { PROCESS.load(Acquire).as_ref() }
}

/// This thread begins to be sampled: its next allocation finds out whether prof records. Later
/// samples of it need no system call, which a program may have forbidden itself by then.
pub fn begin(header: &'static Header, process: &Process) {
    let thread = thread();
    // SAFETY: this thread's own.
    unsafe {
        enter(header, process, thread);
        (*thread).left = 0;
    }
}

/// An allocation is larger than what was left until the next sample: `size` bytes at `address`,
/// which is null if there was no memory.
pub unsafe extern "C" fn allocated(size: u64, address: usize, frame: *const Frame) {
    let thread = thread();
    // SAFETY: the thread's own, see `thread`; the frame is on our stack.
    unsafe {
        let (Some(header), Some(process)) = (recording(), process()) else {
            // The distance is drawn anew then: this end of one was none of chance's.
            ((*thread).left, (*thread).random) = (LOOK_AGAIN, 0);
            return;
        };
        if address == 0 {
            return;
        }
        let pid = enter(header, process, thread);
        if (*thread).random == 0 {
            (*thread).random = seed(thread, pid);
            let left = random::distance(&mut (*thread).random, header.interval);
            if left >= size {
                (*thread).left = left - size;
                return;
            }
        }
        (*thread).left = random::distance(&mut (*thread).random, header.interval);
        if !real::in_allocator((*frame).return_address as usize) {
            record(header, process, thread, (size, address), &*frame);
        }
    }
}

/// The number of this thread of a process, as far as it is known without asking; 0: not.
pub fn tid(pid: i32) -> i32 {
    let thread = thread();
    // SAFETY: the thread's own.
    unsafe { if (*thread).pid == pid { (*thread).tid } else { 0 } }
}

/// Where this thread's numbers begin.
unsafe fn seed(thread: *const Thread, pid: i32) -> u64 {
    let numbers = (pid as u64) << 32 | sys::tid() as u64;
    random::spread(random::spread(numbers ^ start::now()) ^ thread as u64)
}

/// Finds out whether this process is a new child, and which thread this is.
unsafe fn enter(header: &'static Header, process: &Process, thread: *mut Thread) -> i32 {
    let mut pid = process.pid.load(Relaxed);
    let is_new = pid == 0;
    if is_new {
        pid = sys::pid();
        let first = process.pid.compare_exchange(0, pid, Relaxed, Relaxed).is_ok();
        if first {
            tell_process(header, pid);
        }
    }
    // SAFETY: the thread's own.
    unsafe {
        if (*thread).pid != pid {
            ((*thread).pid, (*thread).tid) = (pid, sys::tid());
            // A child of many would sample what its brothers do.
            if (*thread).random != 0 {
                (*thread).random = seed(thread, pid);
            }
        }
    }
    pid
}

/// Tells which functions call the allocator for others.
fn tell_process(header: &'static Header, pid: i32) {
    let Some(mut slot) = queue::stack_slot(header) else {
        header.stacks.lost.fetch_add(1, Relaxed);
        return;
    };
    // SAFETY: the slot is ours alone until it is handed over.
    let to = unsafe { &mut *slot.get() };
    (to.id, to.time, to.address) = (0, start::now(), 0);
    (to.pid, to.tid, to.kind) = (pid, sys::tid(), Kind::Process as u32);
    let mut words = 0;
    for (word, address) in to.stack.as_chunks_mut::<8>().0.iter_mut().zip(real::wrappers()) {
        *word = address.to_ne_bytes();
        words += 1;
    }
    to.length = 8 * words as u32;
    to.size = (words / 2).min(MAX_RANGES as u64);
    slot.hand_over();
}

unsafe fn record(
    header: &'static Header,
    process: &Process,
    thread: *mut Thread,
    (size, address): (u64, usize),
    frame: &Frame,
) {
    let lose = || {
        header.stacks.lost.fetch_add(1, Relaxed);
        header.stacks.lost_bytes.fetch_add(size, Relaxed);
        if start::now().saturating_sub(header.beat.load(Relaxed)) > DEAD {
            header.active.store(0, Relaxed);
        }
    };
    let Some(mut slot) = queue::stack_slot(header) else { return lose() };
    let id = header.next_id.fetch_add(1, Relaxed) + 1;
    let tracked = process.insert(address, id, size);
    // SAFETY: the slot is ours alone until it is handed over; the thread's own.
    unsafe {
        let to = &mut *slot.get();
        (to.id, to.time) = (id, start::now());
        (to.address, to.size) = (address as u64, size);
        (to.pid, to.tid) = ((*thread).pid, (*thread).tid);
        to.kind = if tracked { Kind::Allocation } else { Kind::Untracked } as u32;
        fill_stack(to, frame, &mut (*thread).stack);
        if !slot.hand_over() {
            process.remove(address);
            return lose();
        }
        ((*thread).last_id, (*thread).last_left) = (id, (*thread).left);
    }
}

fn fill_stack(to: &mut StackSlot, frame: &Frame, known: &mut usize) {
    to.registers = [0; 17];
    let sp = (&raw const frame.return_address) as usize + 8;
    to.registers[register::BX] = frame.rbx;
    to.registers[register::BP] = frame.rbp;
    to.registers[register::SP] = sp as u64;
    to.registers[register::IP] = frame.return_address.wrapping_sub(1);
    let upper = [frame.r12, frame.r13, frame.r14, frame.r15];
    to.registers[register::R12..].copy_from_slice(&upper);
    // SAFETY: `sp` is in use, just above our own frames; the slot has the space.
    to.length = unsafe { stack::copy(sp, to.stack.as_mut_ptr(), MAX_STACK, known) } as u32;
}

/// The memory at an address is about to be given back, and the filter says that it may have been
/// sampled.
pub extern "C" fn freed(address: usize) {
    if let Some(id) = forget(address) {
        tell_freed(id);
    }
}

/// The name of a sampled allocation, which is not known any more then; 0: it is none.
pub extern "C" fn forgotten(address: usize) -> u64 {
    forget(address).unwrap_or(0)
}

fn forget(address: usize) -> Option<u64> {
    if address == 0 {
        return None;
    }
    process()?.remove(address)
}

fn tell_freed(id: u64) {
    let Some(header) = recording() else { return };
    let Some(mut slot) = queue::free_slot(header) else {
        header.frees.lost.fetch_add(1, Relaxed);
        return;
    };
    let thread = thread();
    // SAFETY: the slot is ours alone until it is handed over; the thread's own.
    unsafe {
        let to = &mut *slot.get();
        let temporary = (*thread).last_id == id && (*thread).last_left == (*thread).left;
        (to.id, to.time, to.temporary) = (id, start::now(), u32::from(temporary));
        to.pid = process().map_or(0, |p| p.pid.load(Relaxed));
    }
    if !slot.hand_over() {
        header.frees.lost.fetch_add(1, Relaxed);
    }
}

/// Memory that was at `old`, sampled under the name `id` or not (0), became `size` bytes at `new`
/// (null: it did not, and stays where it is, unless `size` is 0).
pub unsafe extern "C" fn reallocated(
    size: u64,
    old: usize,
    id: u64,
    new: usize,
    frame: *const Frame,
) {
    if id != 0 {
        match (new, size, process()) {
            (0, 1.., Some(process)) => _ = process.insert(old, id, 0),
            _ => tell_freed(id),
        }
    }
    let thread = thread();
    // SAFETY: the thread's own; the frame is our caller's.
    unsafe {
        match (*thread).left.checked_sub(size) {
            Some(left) => (*thread).left = left,
            None => allocated(size, new, frame),
        }
    }
}
