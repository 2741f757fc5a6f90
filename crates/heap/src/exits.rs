//! Exiting processes that wait until prof has searched their memory: prof's side.

#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};

use memmap2::{MmapOptions, MmapRaw};

use super::layout::exit::{CONFINED, FREE, REQUESTED, SEARCHED, STATE};
use super::layout::{ExitSlot, FILE_SIZE, Header};

/// The slots of exiting processes in shared memory.
pub struct Exits {
    memory: MmapRaw,
}

/// An exiting process that waits. Its fields are not trusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExitRequest {
    slot: usize,
    state: u64,
    /// The process.
    pub pid: i32,
    /// The exiting thread; 0: unknown.
    pub tid: i32,
    /// Its stack pointer; saved registers are above.
    pub sp: u64,
    /// Address of its control block.
    pub control_block: u64,
    /// Address of the table of sampled addresses, see [`super::table`].
    pub table: u64,
    /// Address range of the memory that is shared with prof.
    pub shared: (u64, u64),
    /// Time of the request: `CLOCK_MONOTONIC`, nanoseconds.
    pub time: u64,
}

impl Exits {
    /// The slots of a shared file.
    ///
    /// # Errors
    ///
    /// It cannot be mapped.
    pub fn map(file: &File) -> io::Result<Exits> {
        MmapOptions::new().len(size_of::<Header>()).map_raw(file).map(|memory| Exits { memory })
    }

    fn slots(&self) -> &[ExitSlot] {
        // SAFETY: the mapping is as large; concurrent writes are atomic.
        unsafe { &(*self.memory.as_ptr().cast::<Header>()).exits }
    }

    /// The next process that waits.
    pub fn next(&self) -> Option<ExitRequest> {
        let mut slots = self.slots().iter().enumerate();
        slots.find_map(|(i, slot)| {
            let state = slot.state.load(Acquire);
            let shared = slot.shared.load(Relaxed);
            (state & STATE == REQUESTED).then(|| ExitRequest {
                slot: i,
                state,
                pid: slot.pid.load(Relaxed),
                tid: slot.tid.load(Relaxed),
                sp: slot.sp.load(Relaxed),
                control_block: slot.control_block.load(Relaxed),
                table: slot.table.load(Relaxed),
                shared: (shared, shared.saturating_add(FILE_SIZE as u64)),
                time: slot.time.load(Relaxed),
            })
        })
    }

    /// Marks a process as being searched; false if it no longer waits. `confined`: it must not make
    /// system calls.
    pub fn begin_search(&self, process: &mut ExitRequest, confined: bool) -> bool {
        let searched = process.state & !STATE | if confined { CONFINED } else { SEARCHED };
        let slot = &self.slots()[process.slot].state;
        let waiting = slot.compare_exchange(process.state, searched, AcqRel, Relaxed).is_ok();
        process.state = searched;
        waiting
    }

    /// True if it still waits, so the data read from its memory is valid.
    pub fn waits(&self, process: &ExitRequest) -> bool {
        self.slots()[process.slot].state.load(Acquire) == process.state
    }

    /// Lets the process continue, or frees its slot if it was killed.
    pub fn release(&self, process: &ExitRequest) {
        let slot = &self.slots()[process.slot].state;
        // If that fails it has continued already.
        let _ = slot.compare_exchange(process.state, FREE, AcqRel, Relaxed);
    }
}
