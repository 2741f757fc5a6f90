//! A mirror of the code cache: the blobs that were seen, with the times at which they were.
//!
//! A blob is read after the sample that needs it, and another one may be at its place by then. It counts
//! as that of the sample if it was seen before and after it, or soon after it, or if nothing was freed in
//! its heap so far.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::blob::{Blob, Header};
use super::heap::CodeHeap;
use super::layout::Layout;
use crate::{Memory, ReadError};

/// Longest time after a sample at which a blob is read that counts as that of the sample, in
/// nanoseconds. A method's code is freed after several pauses of the program in which no thread
/// executes it: measured, frames were right and complete after 0.2 s, and not after 1 s.
const LATEST: u64 = 200_000_000;

/// Time after a blob was seen in which it is not read again, in nanoseconds: much shorter than
/// [`LATEST`].
const FRESH: u64 = 20_000_000;

/// Time between two looks for free blocks of a heap, in nanoseconds.
const BETWEEN_LOOKS: u64 = 50_000_000;

/// Most bytes of what is kept of blobs, and most blobs.
const MOST_BYTES: usize = 64 << 20;
/// See [`MOST_BYTES`].
const MOST_BLOBS: usize = 1 << 17;

/// Times, in nanoseconds of the same clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Times {
    /// Of the sample.
    pub sample: u64,
    /// Now: memory is read after it.
    pub now: u64,
}

impl Times {
    /// True if what was seen at a time counts as what was there at the sample.
    pub fn is_soon(self, time: u64) -> bool {
        time <= self.sample.saturating_add(LATEST)
    }

    /// True if the sample is soon after a time, or before it.
    pub fn is_soon_after(self, time: u64) -> bool {
        self.sample <= time.saturating_add(LATEST)
    }

    /// True if what was seen at a time is not read again for the sample.
    pub fn is_fresh(self, time: u64) -> bool {
        self.sample <= time.saturating_add(FRESH)
    }
}

/// A blob and the interval in which it was seen.
#[derive(Clone, Debug)]
struct Seen {
    blob: Arc<Blob>,
    first: u64,
    last: u64,
    /// When another one was seen last at its place.
    other: Option<u64>,
}

impl Seen {
    /// True if it was there at a sample, if it was there after that.
    fn was_at(&self, times: Times) -> bool {
        let other = self.other.map(|other| other.saturating_add(LATEST));
        self.first <= times.sample
            || times.is_soon(self.first) && other.is_none_or(|other| other < times.sample)
    }
}

/// What is at an address at the time of a sample.
#[derive(Clone, Debug)]
pub enum Found {
    /// This blob.
    Blob(Arc<Blob>),
    /// It is no code of HotSpot's.
    Nothing,
    /// There may have been another blob at the time of the sample, or there is none now.
    Replaced,
    /// Memory has to be read.
    Unread,
    /// Memory cannot be read.
    Unreadable,
}

/// What is known of a heap.
#[derive(Clone, Debug)]
struct SeenHeap {
    heap: CodeHeap,
    /// When it was read last.
    read: Option<u64>,
    /// Nothing was freed in it before that: it had no free block.
    has_all: bool,
}

/// The mirror.
#[derive(Debug)]
pub struct Mirror {
    heaps: Vec<SeenHeap>,
    /// By their first addresses.
    blobs: BTreeMap<u64, Seen>,
    /// Bytes of blobs when they were counted last.
    bytes: usize,
    /// Lookups since then.
    lookups: u32,
}

impl Mirror {
    /// A mirror of these heaps, in which nothing was seen yet.
    pub fn new(heaps: Vec<CodeHeap>) -> Mirror {
        let seen = |heap| SeenHeap { heap, read: None, has_all: true };
        let heaps = heaps.into_iter().map(seen).collect();
        Mirror { heaps, blobs: BTreeMap::new(), bytes: 0, lookups: 0 }
    }

    /// The heaps.
    pub fn heaps(&self) -> Vec<CodeHeap> {
        self.heaps.iter().map(|seen| seen.heap.clone()).collect()
    }

    /// The number of the heap with an address.
    pub fn heap(&self, address: u64) -> Option<usize> {
        self.heaps.iter().position(|seen| seen.heap.range.contains(&address))
    }

    /// Reads what is in the heaps now.
    pub fn read_heaps(&mut self, now: u64, layout: &Layout, memory: &dyn Memory) {
        for number in 0..self.heaps.len() {
            self.read_heap(number, now, layout, memory);
        }
    }

    fn read_heap(&mut self, number: usize, now: u64, layout: &Layout, memory: &dyn Memory) {
        let heap = self.heaps[number].heap.clone();
        let mut blobs = Vec::new();
        let has_all = heap.each_block(layout, memory, |header| {
            match self.blobs.get_mut(&header.address()) {
                Some(seen) if seen.blob.has(&header, layout) => seen.last = seen.last.max(now),
                _ => blobs.extend(header.blob(layout, memory)?),
            }
            Ok(())
        });
        let seen = &mut self.heaps[number];
        seen.read = Some(now);
        seen.has_all &= has_all;
        for blob in blobs {
            let other = self.known(blob.address).map(|seen| seen.last);
            self.heaps[number].has_all &= other.is_none();
            self.insert(Seen { blob: Arc::new(blob), first: now, last: now, other });
        }
        if self.heaps[number].has_all {
            // They are where they were made.
            self.blobs.range_mut(heap.range).for_each(|(_, seen)| seen.first = 0);
        }
    }

    /// The known blob at an address.
    fn known(&self, address: u64) -> Option<&Seen> {
        let last = self.blobs.range(..=address).next_back().map(|(_, seen)| seen);
        last.filter(|seen| address < seen.blob.end)
    }

    /// The block of the known blob at an address.
    #[cfg(test)]
    pub fn block_at(&self, address: u64) -> Option<u64> {
        self.known(address).map(|seen| seen.blob.block)
    }

    /// What was at an address at the time of a sample; without memory, only what is known.
    pub fn find(
        &mut self,
        address: u64,
        times: Times,
        layout: &Layout,
        memory: Option<&dyn Memory>,
    ) -> Found {
        let Some(number) = self.heap(address) else { return Found::Nothing };
        let known = self.known(address).cloned();
        if let Some(seen) = &known {
            let was_there = seen.was_at(times) && times.is_fresh(seen.last);
            if was_there || seen.blob.is_permanent() {
                return Found::Blob(seen.blob.clone());
            }
        }
        let Some(memory) = memory else { return Found::Unread };
        let seen = match self.read(number, address, known.as_ref(), times.now, layout, memory) {
            Ok(Some(seen)) => seen,
            Ok(None) => return Found::Replaced,
            Err(_) => {
                // Its process has ended, or too much was read.
                return match known {
                    Some(seen) if seen.was_at(times) && times.is_soon_after(seen.last) => {
                        Found::Blob(seen.blob)
                    }
                    _ => Found::Unreadable,
                };
            }
        };
        let blob = seen.blob.clone();
        let was_there = seen.was_at(times) || blob.is_permanent();
        self.insert(seen);
        if was_there || self.is_of_all(number, blob.address, times, layout, memory) {
            Found::Blob(blob)
        } else {
            Found::Replaced
        }
    }

    /// The blob at an address now; `None` if there is none.
    fn read(
        &mut self,
        number: usize,
        address: u64,
        known: Option<&Seen>,
        now: u64,
        layout: &Layout,
        memory: &dyn Memory,
    ) -> Result<Option<Seen>, ReadError> {
        if let Some(seen) = known {
            let header = Header::read(seen.blob.block, layout, memory)?;
            if seen.blob.has(&header, layout) {
                return Ok(Some(Seen { last: now, ..seen.clone() }));
            }
            // Its place may be divided in another way now.
            self.heaps[number].has_all = false;
        }
        let Some(block) = self.heaps[number].heap.block(address, memory)? else { return Ok(None) };
        let blob = Header::read(block, layout, memory)?.blob(layout, memory)?;
        let blob = blob.filter(|blob| (blob.address..blob.end).contains(&address));
        let other = known.map(|seen| seen.last);
        Ok(blob.map(|blob| Seen { blob: Arc::new(blob), first: now, last: now, other }))
    }

    /// True if nothing was freed so far in the heap of a blob.
    fn is_of_all(
        &mut self,
        number: usize,
        blob: u64,
        times: Times,
        layout: &Layout,
        memory: &dyn Memory,
    ) -> bool {
        let SeenHeap { read, has_all, .. } = self.heaps[number];
        if has_all && read.is_none_or(|read| read.saturating_add(BETWEEN_LOOKS) <= times.now) {
            self.read_heap(number, times.now, layout, memory);
        }
        self.blobs.get(&blob).is_some_and(|seen| seen.was_at(times))
    }

    fn insert(&mut self, seen: Seen) {
        let range = seen.blob.address..seen.blob.end;
        let before = self.blobs.range(..range.start).next_back();
        let before = before.filter(|(_, seen)| seen.blob.end > range.start).map(|(at, _)| *at);
        let others: Vec<u64> = self.blobs.range(range).map(|(at, _)| *at).chain(before).collect();
        for at in others {
            self.blobs.remove(&at);
        }
        self.limit();
        self.blobs.insert(seen.blob.address, seen);
    }

    /// Forgets all blobs if they take too much memory.
    fn limit(&mut self) {
        /// Blobs that are seen between two counts.
        const BETWEEN: u32 = 256;
        self.lookups += 1;
        if self.lookups.is_multiple_of(BETWEEN) {
            self.bytes = self.blobs.values().map(|seen| seen.blob.cost()).sum();
        }
        if self.bytes > MOST_BYTES || self.blobs.len() >= MOST_BLOBS {
            self.blobs.clear();
            self.bytes = 0;
        }
    }
}
