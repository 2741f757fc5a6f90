//! Writers' side of the queues in shared memory.

use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicPtr, AtomicU64};

use super::layout::granule::{
    self, LATE, READY, RESERVED, RETIRED, SKIPPED, count, is_at, is_retired,
};
use super::layout::{
    FREES, FREES_AT, FreeSlot, GRANULE, GRANULES, Header, LIVE, LIVE_PACE, OUT_OF_USE, RING_AT,
    StackRecord, WORDS_AT,
};

/// The shared memory; null: none, and nothing is sampled.
pub static SHARED: AtomicPtr<Header> = AtomicPtr::new(core::ptr::null_mut());

/// Most attempts to reserve a place: other writers succeed in the meantime, unless the memory is
/// damaged.
const ATTEMPTS: usize = 10_000;

/// The shared memory, while prof records.
pub fn recording() -> Option<&'static Header> {
    // SAFETY: null, or a mapping of the size of the layout that is never removed.
    let header = unsafe { SHARED.load(Acquire).as_ref() }?;
    (header.active.load(Relaxed) != 0).then_some(header)
}

/// Current mean sampling interval: the fuller the ring, and the more allocations are tracked, the
/// longer.
pub fn interval(header: &Header) -> u64 {
    let next = header.stacks.next.load(Relaxed);
    let filled = next.saturating_sub(header.stacks.read.load(Relaxed));
    let live = u64::try_from(header.live.load(Relaxed)).unwrap_or(0);
    let by_space = filled.saturating_sub(header.pace_from) / header.pace.max(1);
    let doublings = by_space.max(live.saturating_sub(LIVE / 2) / LIVE_PACE);
    let interval = header.interval.max(1);
    // Bounded, so that it does not overflow.
    interval << doublings.min(u64::from(interval.leading_zeros().saturating_sub(2)))
}

/// A record that belongs to this writer until it is published.
pub struct RecordPlace<'a> {
    word: &'a AtomicU64,
    reserved: u64,
    record: *mut StackRecord,
    time: u64,
}

impl RecordPlace<'_> {
    /// The record to write; the stack follows it.
    pub fn record(&mut self) -> *mut StackRecord {
        self.record
    }

    /// Time of its reservation.
    pub fn time(&self) -> u64 {
        self.time
    }

    /// Publishes the record to the reader; false if the memory was damaged.
    pub fn hand_over(self) -> bool {
        let change = |from: u64, to: u64| {
            let (from, to) = (self.reserved ^ RESERVED ^ from, self.reserved ^ RESERVED ^ to);
            self.word.compare_exchange(from, to, Release, Relaxed).is_ok()
        };
        change(RESERVED, READY) || change(RETIRED, LATE)
    }
}

/// Number of granules in use, bounded if the memory is damaged.
fn granules(header: &Header) -> u64 {
    let granules = header.granules;
    if granules.is_power_of_two() { granules.min(GRANULES) } else { GRANULES }
}

/// The words of the granules.
fn words(header: &Header) -> &[AtomicU64] {
    let base = (&raw const *header).cast::<u8>();
    // SAFETY: the mapping has the size of the layout, and all processes use these as atomic words.
    unsafe { core::slice::from_raw_parts(base.add(WORDS_AT).cast(), GRANULES as usize) }
}

/// Space for a record with a stack of `stack` bytes, at this `time`; `None` if there is none.
pub fn reserve(header: &Header, time: u64, stack: usize) -> Option<RecordPlace<'_>> {
    let (words, next, granules) = (words(header), &header.stacks.next, granules(header));
    let wanted = (size_of::<StackRecord>() + stack).div_ceil(GRANULE) as u64;
    for _ in 0..ATTEMPTS {
        let position = next.load(Acquire);
        // Before the words are read: granules are retired before they count as read.
        let read = header.stacks.read.load(Acquire);
        let at = position % granules;
        let word = words[at as usize].load(Acquire);
        if is_at(word, position) || is_retired(word) {
            // Its writer has not advanced yet, or is gone.
            _ = next.compare_exchange(position, position + count(word), AcqRel, Relaxed);
            continue;
        }
        let end = (at + wanted).min(granules);
        let retired = words.get(at as usize..end as usize).unwrap_or_default().iter();
        let retired = retired.map(|word| word.load(Relaxed)).position(is_retired);
        let space = retired.map_or(end - at, |n| n as u64);
        let state = if space < wanted { SKIPPED } else { RESERVED };
        if (position + space).wrapping_sub(read) > granules {
            let is_now = header.stacks.read.load(Acquire) == read && next.load(Acquire) == position;
            if is_now {
                return None;
            }
            // This thread was preempted since it read the word.
            continue;
        }
        let reserved = granule::word(position, space, state);
        let taken = words[at as usize].compare_exchange(word, reserved, AcqRel, Relaxed).is_ok();
        if taken {
            _ = next.compare_exchange(position, position + space, AcqRel, Relaxed);
        }
        if taken && state == RESERVED {
            let base = (&raw const *header).cast_mut().cast::<u8>();
            // SAFETY: the ring is within the mapping, and so is this record: see `end`.
            let record = unsafe { base.add(RING_AT + at as usize * GRANULE).cast() };
            return Some(RecordPlace { word: &words[at as usize], reserved, record, time });
        }
    }
    None
}

/// A slot that belongs to this writer until it is published.
pub struct Slot<'a> {
    slot: &'a FreeSlot,
    position: u64,
}

impl Slot<'_> {
    /// The slot to write.
    pub fn get(&self) -> &FreeSlot {
        self.slot
    }

    /// Publishes the record to the reader; false if the memory was damaged.
    pub fn hand_over(self) -> bool {
        let change = |bit: u64| {
            let (ours, ready) = (self.position | bit, (self.position + 1) | bit);
            self.slot.turn.compare_exchange(ours, ready, Release, Relaxed).is_ok()
        };
        change(0) || change(OUT_OF_USE)
    }
}

/// A slot for the end of an allocation at this `time`; `None` if the reader is a whole lap behind.
pub fn free_slot(header: &Header, time: u64) -> Option<Slot<'_>> {
    let base = (&raw const *header).cast::<u8>();
    // SAFETY: the mapping has the size of the layout, and all processes use the slots as atomic
    // numbers.
    let slots: &[FreeSlot] =
        unsafe { core::slice::from_raw_parts(base.add(FREES_AT).cast(), FREES) };
    let next = &header.frees.next;
    let mut position = next.load(Relaxed);
    for _ in 0..ATTEMPTS {
        let slot = &slots[position as usize % FREES];
        let turn = slot.turn.load(Acquire);
        if turn != position && turn & OUT_OF_USE == 0 {
            let now = next.load(Relaxed);
            if now == position {
                return None;
            }
            position = now;
            continue;
        }
        match next.compare_exchange_weak(position, position + 1, AcqRel, Relaxed) {
            Ok(_) if turn == position => {
                slot.time.store(time, Relaxed);
                return Some(Slot { slot, position });
            }
            Ok(_) => position += 1,
            Err(now) => position = now,
        }
    }
    None
}
