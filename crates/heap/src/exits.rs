//! Processes that exit, and wait for prof to have looked at their memory: prof's side.

#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};

use memmap2::{MmapOptions, MmapRaw};

use super::layout::exit::{ASKED, CONFINED, FREE, LOOKED_AT, STATE};
use super::layout::{ExitSlot, FILE_SIZE, Header};

/// The part of the shared memory in which processes say that they exit.
pub struct Exits {
    memory: MmapRaw,
}

/// A process that exits and waits. What it says is not trusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asked {
    slot: usize,
    state: u64,
    /// The process.
    pub pid: i32,
    /// The thread that exits; 0: not known.
    pub tid: i32,
    /// Its stack pointer; what it keeps in registers lies above.
    pub sp: u64,
    /// Where its control block is (`fs`).
    pub fs: u64,
    /// Where the table of sampled addresses is, see [`super::table`].
    pub table: u64,
    /// Where the memory that is shared with prof is.
    pub shared: (u64, u64),
    /// When it asked: `CLOCK_MONOTONIC`, nanoseconds.
    pub time: u64,
}

impl Exits {
    /// Those of a shared file.
    ///
    /// # Errors
    ///
    /// It cannot be mapped.
    pub fn of(file: &File) -> io::Result<Exits> {
        MmapOptions::new().len(size_of::<Header>()).map_raw(file).map(|memory| Exits { memory })
    }

    fn slots(&self) -> &[ExitSlot] {
        // SAFETY: the mapping is as large; what others write meanwhile is atomic.
        unsafe { &(*self.memory.as_ptr().cast::<Header>()).exits }
    }

    /// A process that has asked.
    pub fn next(&self) -> Option<Asked> {
        let mut slots = self.slots().iter().enumerate();
        slots.find_map(|(i, slot)| {
            let state = slot.state.load(Acquire);
            let shared = slot.shared.load(Relaxed);
            (state & STATE == ASKED).then(|| Asked {
                slot: i,
                state,
                pid: slot.pid.load(Relaxed),
                tid: slot.tid.load(Relaxed),
                sp: slot.sp.load(Relaxed),
                fs: slot.fs.load(Relaxed),
                table: slot.table.load(Relaxed),
                shared: (shared, shared.saturating_add(FILE_SIZE as u64)),
                time: slot.time.load(Relaxed),
            })
        })
    }

    /// Tells a process that it is looked at; false if it does not wait any more. `confined`: it must
    /// not make system calls.
    pub fn look(&self, asked: &mut Asked, confined: bool) -> bool {
        let looked = asked.state & !STATE | if confined { CONFINED } else { LOOKED_AT };
        let slot = &self.slots()[asked.slot].state;
        let told = slot.compare_exchange(asked.state, looked, AcqRel, Relaxed).is_ok();
        asked.state = looked;
        told
    }

    /// It still waits, so what was seen of its memory holds.
    pub fn waits(&self, asked: &Asked) -> bool {
        self.slots()[asked.slot].state.load(Acquire) == asked.state
    }

    /// Lets it go on, or gives its slot to others if it was killed.
    pub fn let_go(&self, asked: &Asked) {
        let slot = &self.slots()[asked.slot].state;
        // Where that fails it has gone already.
        let _ = slot.compare_exchange(asked.state, FREE, AcqRel, Relaxed);
    }
}
