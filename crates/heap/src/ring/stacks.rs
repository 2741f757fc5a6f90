//! The ring of sampled allocations: the reader's side.

use std::fs::File;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::time::{Duration, Instant};

use memmap2::MmapRaw;

use super::super::layout::granule::{self, DONE, LATE, READY, RESERVED, RETIRED, SKIPPED, STATE};
use super::super::layout::{GRANULE, GRANULES, MAX_STACK, RING_AT, StackRecord};
use super::memory::{Damaged, header, ring, words};
use super::times::ReadBounds;
use sys::os;

/// Time after which granules behind the record of a slow writer are reused, but not its own; the
/// record counts as lost if the writer has not returned at the end.
const PATIENCE: Duration = Duration::from_millis(200);

/// Most writers that are waited for at a time, and most late ones.
const MAX_WAITING: usize = 256;
const MAX_LATE: usize = 1024;

/// Granules of the largest record.
const MAX_RECORD: u64 = (size_of::<StackRecord>() + MAX_STACK).div_ceil(GRANULE) as u64;

/// Granules up to which the memory is kept; memory beyond is released when prof has caught up.
const KEPT: u64 = GRANULES / 16;

/// Progress of reading the ring of allocations.
pub struct StackQueue {
    /// Number of granules in use.
    pub granules: u64,
    /// Position of the next record.
    pub position: u64,
    /// Read position that the writers have received.
    pub read: u64,
    /// Earlier records whose writers are not done, and the start of the wait; and those that were
    /// skipped.
    waiting: Vec<(u64, u64, Instant)>,
    /// See `waiting`.
    pub late: Vec<(u64, u64)>,
    /// Granules that were used since memory was released.
    used: u64,
}

impl StackQueue {
    /// A reader of an empty ring with this number of granules.
    pub fn new(granules: u64) -> StackQueue {
        StackQueue {
            granules,
            position: 0,
            read: 0,
            waiting: Vec::new(),
            late: Vec::new(),
            used: 0,
        }
    }

    /// Granule of a position.
    pub fn place(&self, position: u64) -> usize {
        (position % self.granules) as usize
    }

    /// The word of the next complete record before position `end`.
    pub fn next(&mut self, memory: &MmapRaw, end: u64) -> Result<Option<u64>, Damaged> {
        while self.position < end {
            let word = words(memory)[(self.position % self.granules) as usize].load(Acquire);
            let count = granule::count(word);
            let here = granule::is_at(word, self.position) || granule::is_retired(word);
            if !here || count == 0 || count > end - self.position {
                return Err("a record of an allocation is out of place");
            }
            match word & STATE {
                READY if count <= MAX_RECORD => return Ok(Some(word)),
                RESERVED if self.is_blocked() => return Ok(None),
                RESERVED => self.waiting.push((self.position, word, Instant::now())),
                SKIPPED | RETIRED | LATE | DONE => {}
                _ => return Err("a record of an allocation has an invalid size"),
            }
            self.position += count;
        }
        Ok(None)
    }

    /// True if too many writers are waited for.
    pub fn is_blocked(&self) -> bool {
        self.waiting.len() == MAX_WAITING
    }

    /// The position and word of a delayed record that is complete now, if it is time for that. A
    /// record that takes too long is skipped, and lost when all is `over`.
    pub fn late(&mut self, memory: &MmapRaw, times: ReadBounds, over: bool) -> Option<(u64, u64)> {
        let words = words(memory);
        let place = |position: u64| &words[(position % self.granules) as usize];
        let comes = |position: u64| {
            let stated = time_at(memory, (position % self.granules) as usize);
            times.allocated(position, stated) < times.until()
        };
        let mut i = 0;
        while let Some(&(position, word, since)) = self.waiting.get(i) {
            let ready = word ^ RESERVED ^ READY;
            let retired = word ^ RESERVED ^ RETIRED;
            if place(position).load(Acquire) == ready {
                if comes(position) {
                    self.waiting.swap_remove(i);
                    return Some((position, ready));
                }
                i += 1;
                continue;
            }
            let passes = since.elapsed() >= PATIENCE && self.late.len() < MAX_LATE;
            if !(over || passes) {
                i += 1;
            // It may return just now.
            } else if place(position).compare_exchange(word, retired, AcqRel, Acquire).is_ok() {
                self.waiting.swap_remove(i);
                self.late.push((position, retired));
            } else if place(position).load(Acquire) != ready {
                // The memory was damaged.
                self.waiting.swap_remove(i);
            }
        }
        let late = |&(position, word): &(u64, u64)| {
            place(position).load(Acquire) == word ^ RETIRED ^ LATE && comes(position)
        };
        let came = self.late.iter().position(late);
        came.map(|i| {
            let (position, word) = self.late.swap_remove(i);
            (position, word ^ RETIRED ^ LATE)
        })
    }

    /// Marks a late record as read; it is no longer waited for.
    pub fn pass_late(&self, memory: &MmapRaw, position: u64, word: u64) {
        if word & STATE == LATE {
            let place = &words(memory)[(position % self.granules) as usize];
            place.store(word ^ LATE ^ DONE, Release);
        }
    }

    /// Publishes the read position to the writers.
    pub fn publish_read(&mut self, memory: &MmapRaw, file: &File) {
        let first = self.waiting.iter().map(|waiting| waiting.0).min();
        let read = first.unwrap_or(self.position);
        let lap = read - read % self.granules;
        self.used = self.used.max(if self.read < lap { self.granules } else { read - lap });
        self.read = read;
        header(memory).stacks.read.store(read, Release);
        self.rewind(memory, file);
    }

    /// When everything is read, moves the writers to the start of the ring, so that little of it is
    /// used; if much was used, it is released.
    fn rewind(&mut self, memory: &MmapRaw, file: &File) {
        let next = &header(memory).stacks.next;
        let at = self.position % self.granules;
        let position = self.position;
        if at < KEPT / 2 || self.read != position || next.load(Acquire) != position {
            return;
        }
        let place = &words(memory)[at as usize];
        let word = place.load(Acquire);
        let skips = granule::word(position, self.granules - at, SKIPPED);
        let begun = granule::is_at(word, position) || granule::is_retired(word);
        if begun || place.compare_exchange(word, skips, AcqRel, Relaxed).is_err() {
            return;
        }
        let end = position + self.granules - at;
        // If that fails, a writer has done it.
        _ = next.compare_exchange(position, end, AcqRel, Relaxed);
        // Skipped granules are not written to in this lap, nor in the next one before it is
        // announced. Late records are not overwritten.
        if at <= KEPT && self.used > KEPT && self.late.is_empty() {
            let offset = |granule: u64| (RING_AT + granule as usize * GRANULE) as u64;
            os::punch(file, offset(KEPT)..offset(self.granules));
            self.used = 0;
        }
        (self.position, self.read) = (end, end);
        header(memory).stacks.read.store(end, Release);
    }
}

/// Time of a record.
pub fn time_at(memory: &MmapRaw, first: usize) -> u64 {
    let at = first * GRANULE + std::mem::offset_of!(StackRecord, time);
    ring(memory)[at / 8].load(Relaxed)
}
