//! The queue of ends of allocations: the reader's side.

use std::collections::VecDeque;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::time::{Duration, Instant};

use memmap2::MmapRaw;

use super::super::layout::{FREES, FreeSlot, OUT_OF_USE, TEMPORARY};
use super::memory::{Damaged, free_slots};
use super::records::{AllocationRecord, Writer};
use super::times::ReadBounds;

/// Time after which the slot of a slow writer is taken out of use, so that it is no longer waited
/// for.
const PATIENCE: Duration = Duration::from_millis(200);

/// Most writers that are waited for at a time, and most slots out of use.
const MAX_WAITING: usize = 256;
const MAX_LATE: usize = 1024;

/// Progress of reading the queue of ends.
#[derive(Default)]
pub struct FreeQueue {
    /// Position of the next record.
    pub position: u64,
    /// Earlier positions whose writers are not done, and the start of the wait.
    waiting: Vec<(u64, Instant)>,
    /// The same, in slots that are out of use now.
    late: VecDeque<u64>,
    /// Number of writers that did not return.
    lost: u64,
}

fn slot(memory: &MmapRaw, position: u64) -> &FreeSlot {
    &free_slots(memory)[position as usize % FREES]
}

impl FreeQueue {
    /// The next complete record before position `end`.
    pub fn next<'a>(
        &mut self,
        memory: &'a MmapRaw,
        end: u64,
    ) -> Result<Option<&'a FreeSlot>, Damaged> {
        while self.position < end {
            let slot = slot(memory, self.position);
            match slot.turn.load(Acquire) {
                turn if turn & OUT_OF_USE != 0 => {}
                turn if turn == self.position + 1 => return Ok(Some(slot)),
                turn if turn == self.position => {
                    if self.is_blocked() {
                        return Ok(None);
                    }
                    self.waiting.push((self.position, Instant::now()));
                }
                _ => return Err("the end of an allocation is out of place"),
            }
            self.position += 1;
        }
        Ok(None)
    }

    /// True if too many writers are waited for.
    pub fn is_blocked(&self) -> bool {
        self.waiting.len() == MAX_WAITING
    }

    /// Marks the next record as read.
    pub fn pass(&mut self, slot: &FreeSlot) {
        give_back(slot, self.position);
        self.position += 1;
    }

    /// Passes on delayed records that are complete now, if it is time for that. When all is `over`,
    /// no writer is waited for any more.
    pub fn take_waiting(
        &mut self,
        memory: &MmapRaw,
        times: ReadBounds,
        over: bool,
        mut consume: impl FnMut(&FreeSlot),
    ) {
        let FreeQueue { waiting, late, lost, .. } = self;
        waiting.retain(|&(position, since)| {
            let slot = slot(memory, position);
            if slot.turn.load(Acquire) == position + 1 {
                let comes = times.freed(position, slot.time.load(Relaxed)) < times.until();
                if comes {
                    consume(slot);
                    give_back(slot, position);
                }
                return !comes;
            }
            let passes = over || since.elapsed() >= PATIENCE;
            let out_of_use = position | OUT_OF_USE;
            // It may return just now.
            let is_out =
                passes && slot.turn.compare_exchange(position, out_of_use, AcqRel, Acquire).is_ok();
            if is_out {
                late.push_back(position);
            }
            !is_out
        });
        late.retain(|&position| {
            let slot = slot(memory, position);
            let came = slot.turn.load(Acquire) == (position + 1) | OUT_OF_USE
                && times.freed(position, slot.time.load(Relaxed)) < times.until();
            if came {
                consume(slot);
            }
            !came
        });
        let most = if over { 0 } else { MAX_LATE };
        while late.len() > most {
            late.pop_front();
            *lost += 1;
        }
    }

    /// Number of records so far whose writers did not return.
    pub fn lost(&self) -> u64 {
        self.lost
    }
}

/// Releases the slot of a position.
fn give_back(slot: &FreeSlot, position: u64) {
    slot.turn.store(position + FREES as u64, Release);
}

/// The record in a slot.
pub fn freed_by(slot: &FreeSlot) -> AllocationRecord<'static> {
    let process = slot.process.load(Relaxed);
    let by = Writer { number: process & !TEMPORARY, pid: slot.pid.load(Relaxed) };
    AllocationRecord::Free { id: slot.id.load(Relaxed), by, temporary: process & TEMPORARY != 0 }
}
