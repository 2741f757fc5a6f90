//! Handling of sampled allocations, and of their ends.

use core::sync::atomic::AtomicPtr;
use core::sync::atomic::Ordering::{Acquire, Relaxed};

use crate::arch::{HookFrame, thread};
use crate::layout::{
    Header, Kind, LIVE, MAX_RANGES, MAX_STACK, PAGE, PROCESS_PAGES, PROCESSES_AT, StackRecord,
    TEMPORARY,
};
use crate::queue::{self, recording};
use crate::table::Process;
use crate::{arch, random, real, stack, start, sys};

/// Number of bytes after which a thread checks again whether prof records.
const LOOK_AGAIN: u64 = 256 << 10;

/// Thread-local state, initially all zero.
#[repr(C)]
pub struct ThreadLocals {
    /// Bytes until the next sample. The hooks count it down, so it comes first.
    left: u64,
    /// State of the generator; 0: the first interval has not been drawn.
    random: u64,
    /// Id of the last sampled allocation, and the rest after it.
    last_id: u64,
    last_left: u64,
    /// Its TID; 0: not read yet.
    tid: i32,
    /// Its PID.
    pid: i32,
    /// From here to its control block all memory is readable; 0: unknown.
    stack: usize,
}

/// State of this process; null if nothing is sampled.
pub static PROCESS: AtomicPtr<Process> = AtomicPtr::new(core::ptr::null_mut());

/// State of this process, if it is sampled.
pub fn process() -> Option<&'static Process> {
    // SAFETY: null, or memory that is never released.
    unsafe { PROCESS.load(Acquire).as_ref() }
}

/// Begins sampling of this thread: its next allocation checks whether prof records. Later samples
/// of it need no system call, which a seccomp filter may forbid by then.
pub fn begin(header: &'static Header, process: &Process) {
    let thread = thread();
    // SAFETY: this thread's own.
    unsafe {
        enter(header, process, thread);
        (*thread).left = 0;
    }
}

/// Handles an allocation that exceeds the rest of the interval: `size` bytes at `address`, which is
/// null if there was no memory.
pub unsafe extern "C" fn allocated(size: u64, address: usize, frame: *const HookFrame) {
    let thread = thread();
    // SAFETY: the thread's own, see `thread`; the frame is on our stack.
    unsafe {
        let (Some(header), Some(process)) = (recording(), process()) else {
            // The interval is drawn again then: the end of this one was not random.
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
        if real::in_allocator((*frame).return_address() as usize) {
            return;
        }
        let interval = queue::interval(header);
        if random::stays(&mut (*thread).random, size, header.interval, interval) {
            let allocation = SampledAllocation { size, address, interval };
            record(header, process, thread, allocation, &*frame);
        }
    }
}

/// TID of this thread in a process, if it is known without a system call; 0 otherwise.
pub fn tid(pid: i32) -> i32 {
    let thread = thread();
    // SAFETY: the thread's own.
    unsafe { if (*thread).pid == pid { (*thread).tid } else { 0 } }
}

/// Seed of this thread's generator.
unsafe fn seed(thread: *const ThreadLocals, pid: i32) -> u64 {
    let numbers = (pid as u64) << 32 | sys::tid() as u64;
    random::spread(random::spread(numbers ^ start::now()) ^ thread as u64)
}

/// Detects a new child process, and the thread.
unsafe fn enter(header: &'static Header, process: &Process, thread: *mut ThreadLocals) -> i32 {
    let mut pid = process.pid.load(Relaxed);
    if pid == 0 {
        pid = sys::pid();
        if process.pid.compare_exchange(0, pid, Relaxed, Relaxed).is_ok() {
            process.number.store(identify(header), Relaxed);
        }
    }
    if !process.reported.load(Relaxed) {
        report_process(header, process, pid);
    }
    // SAFETY: the thread's own.
    unsafe {
        if (*thread).pid != pid {
            ((*thread).pid, (*thread).tid) = (pid, sys::tid());
            // A child of many would sample the same allocations as its siblings.
            if (*thread).random != 0 {
                (*thread).random = seed(thread, pid);
            }
        }
    }
    pid
}

/// Identifies this process to prof through the kernel; returns the number that was used, 0 if it
/// failed.
fn identify(header: &'static Header) -> u32 {
    let number = header.next_process.fetch_add(1, Relaxed).wrapping_add(1) & !TEMPORARY;
    let page = PROCESSES_AT + number as usize % PROCESS_PAGES * PAGE;
    let shown = sys::show((&raw const *header) as usize + page, PAGE);
    if shown { number } else { 0 }
}

/// Reports the functions that call the allocator for others. Without space, the next sample tries
/// again.
fn report_process(header: &'static Header, process: &Process, pid: i32) {
    let mut ranges = [0usize; 2 * MAX_RANGES];
    let mut words = 0;
    for (word, address) in ranges.iter_mut().zip(real::wrappers()) {
        (*word, words) = (address, words + 1);
    }
    let length = words * size_of::<usize>();
    let Some(mut place) = queue::reserve(header, start::now(), length) else { return };
    let record = StackRecord {
        time: place.time(),
        size: words as u64 / 2,
        interval: 1,
        process: process.number.load(Relaxed),
        pid,
        tid: sys::tid(),
        kind: Kind::Process as u32,
        length: length as u32,
        ..StackRecord::default()
    };
    // SAFETY: the place is ours alone until it is published, and has the space.
    unsafe {
        place.record().write(record);
        arch::copy(ranges.as_ptr() as usize, place.record().add(1).cast(), length);
    }
    if place.hand_over() {
        process.reported.store(true, Relaxed);
    }
}

/// An allocation that is sampled.
struct SampledAllocation {
    /// Its size in bytes.
    size: u64,
    /// Its address.
    address: usize,
    /// The mean interval with which it is sampled, in bytes.
    interval: u64,
}

unsafe fn record(
    header: &'static Header,
    process: &Process,
    thread: *mut ThreadLocals,
    allocation: SampledAllocation,
    frame: &HookFrame,
) {
    let SampledAllocation { size, address, interval } = allocation;
    let lose = || {
        header.stacks.lost.fetch_add(1, Relaxed);
        header.stacks.lost_bytes.fetch_add(size, Relaxed);
    };
    let sp = frame.stack_pointer();
    // SAFETY: the thread's own.
    let length = stack::length(sp, MAX_STACK, unsafe { &mut (*thread).stack });
    let Some(mut place) = queue::reserve(header, start::now(), length) else { return lose() };
    let id = header.next_id.fetch_add(1, Relaxed) + 1;
    let tracked = track(header, process, address, id, size);
    let kind = if tracked { Kind::Allocation } else { Kind::Untracked } as u32;
    // SAFETY: the thread's own.
    let (pid, tid) = unsafe { ((*thread).pid, (*thread).tid) };
    let record = StackRecord {
        id,
        time: place.time(),
        address: address as u64,
        size,
        interval,
        process: process.number.load(Relaxed),
        pid,
        tid,
        kind,
        length: length as u32,
        rest: 0,
        registers: frame.registers(),
    };
    // SAFETY: the place is ours alone until it is published, and has the space; `sp` is in use,
    // just above our own frames. The thread's own.
    unsafe {
        place.record().write(record);
        arch::copy(sp, place.record().add(1).cast(), length);
        if !place.hand_over() {
            if tracked {
                process.remove(address);
                header.live.fetch_sub(1, Relaxed);
            }
            return lose();
        }
        ((*thread).last_id, (*thread).last_left) = (id, (*thread).left);
    }
}

/// Tracks an allocation until its end, if there is space for it in this process and in the queue of
/// ends.
fn track(header: &Header, process: &Process, address: usize, id: u64, size: u64) -> bool {
    let many = header.live.fetch_add(1, Relaxed) >= LIVE as i64;
    let tracked = !many && process.insert(address, id, size);
    if !tracked {
        header.live.fetch_sub(1, Relaxed);
    }
    tracked
}

/// Called before the memory at an address is freed, if the filter indicates that it may have been
/// sampled.
pub extern "C" fn freed(address: usize) {
    if let Some(id) = forget(address) {
        report_free(id);
    }
}

/// Removes a sampled allocation from the table and returns its id; 0 if there is none.
pub extern "C" fn forgotten(address: usize) -> u64 {
    forget(address).unwrap_or(0)
}

fn forget(address: usize) -> Option<u64> {
    if address == 0 {
        return None;
    }
    process()?.remove(address)
}

fn report_free(id: u64) {
    let Some(header) = recording().filter(|header| id > header.first_id) else { return };
    let Some(place) = queue::free_slot(header, start::now()) else { return lose_end() };
    let thread = thread();
    // SAFETY: the thread's own.
    let temporary = unsafe { (*thread).last_id == id && (*thread).last_left == (*thread).left };
    let (pid, number) = process()
        .map_or((0, 0), |process| (process.pid.load(Relaxed), process.number.load(Relaxed)));
    let to = place.get();
    to.id.store(id, Relaxed);
    to.process.store(number | if temporary { TEMPORARY } else { 0 }, Relaxed);
    to.pid.store(pid, Relaxed);
    if !place.hand_over() {
        lose_end();
    }
}

/// The end of an allocation will not be reported.
fn lose_end() {
    if let Some(header) = recording() {
        header.frees.lost.fetch_add(1, Relaxed);
    }
}

/// Memory at `old`, sampled under the id `id` or not (0), was reallocated to `size` bytes at `new`
/// (null: it failed and memory stays at `old`, unless `size` is 0).
pub unsafe extern "C" fn reallocated(
    size: u64,
    old: usize,
    id: u64,
    new: usize,
    frame: *const HookFrame,
) {
    if id != 0 {
        match (new, size, process()) {
            (0, 1.., Some(process)) => {
                if !process.insert(old, id, 0) {
                    lose_end();
                }
            }
            _ => report_free(id),
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
