//! The writers' side of the queues in shared memory.

use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicPtr, AtomicU64};

use crate::layout::{FREES, FREES_AT, FreeSlot, Head, Header, LOST, STACKS, STACKS_AT, StackSlot};

/// The shared memory; null: there is none, nothing is sampled.
pub static SHARED: AtomicPtr<Header> = AtomicPtr::new(core::ptr::null_mut());

/// The shared memory, as long as prof records.
pub fn recording() -> Option<&'static Header> {
    // SAFETY: null, or a mapping of the size of the layout that is never taken away.
    let header = unsafe { SHARED.load(Acquire).as_ref() }?;
    (header.active.load(Relaxed) != 0).then_some(header)
}

/// A slot that is this writer's until it hands it over.
pub struct Slot<T> {
    slot: *mut T,
    position: u64,
}

impl<T> Slot<T> {
    /// To write to.
    pub fn get(&mut self) -> *mut T {
        self.slot
    }

    /// Hands the record over to the reader; false if that has given it up long ago.
    pub fn hand_over(self) -> bool {
        // SAFETY: every slot begins with its turn.
        let turn = unsafe { &*self.slot.cast::<AtomicU64>() };
        let (ours, ready) = (self.position, self.position + 1);
        turn.compare_exchange(ours, ready, Release, Relaxed).is_ok()
    }
}

/// Takes the next slot; `None` if the reader is a whole round behind.
///
/// # Safety
///
/// At `first` are `count` slots of the kind, which begin with their turn.
unsafe fn take<T>(head: &Head, first: *mut T, count: usize) -> Option<Slot<T>> {
    let mut position = head.next.load(Relaxed);
    loop {
        // SAFETY: one of the slots, says the caller.
        let slot = unsafe { first.add(position as usize % count) };
        // SAFETY: as above.
        let turn = unsafe { &*slot.cast::<AtomicU64>() }.load(Acquire);
        if turn != position && turn != LOST {
            let now = head.next.load(Relaxed);
            if now == position {
                return None;
            }
            position = now;
            continue;
        }
        match head.next.compare_exchange_weak(position, position + 1, AcqRel, Relaxed) {
            Ok(_) if turn == position => return Some(Slot { slot, position }),
            Ok(_) => position += 1,
            Err(now) => position = now,
        }
    }
}

/// A slot for an allocation.
pub fn stack_slot(header: &'static Header) -> Option<Slot<StackSlot>> {
    let base = (&raw const *header).cast_mut().cast::<u8>();
    // SAFETY: the mapping has the size of the layout.
    unsafe { take(&header.stacks, base.add(STACKS_AT).cast(), STACKS) }
}

/// A slot for the end of one.
pub fn free_slot(header: &'static Header) -> Option<Slot<FreeSlot>> {
    let base = (&raw const *header).cast_mut().cast::<u8>();
    // SAFETY: the mapping has the size of the layout.
    unsafe { take(&header.frees, base.add(FREES_AT).cast(), FREES) }
}
