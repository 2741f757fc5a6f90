//! A mirror of the code cache: the blobs that were seen, with the times at which they were.
//!
//! A blob is read after the sample that needs it, and another one may be at its place by then. It counts
//! as that of the sample if it was seen before and after it, or soon after it.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::blob::{Blob, Header};
use super::heap::CodeHeap;
use super::layout::Layout;
use crate::Memory;

/// Longest time after a sample at which a blob is read that counts as that of the sample, in
/// nanoseconds. A method's code is freed after several pauses of the program in which no thread
/// executes it: measured, frames were right and complete after 0.2 s, and not after 1 s.
const LATEST: u64 = 200_000_000;

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

/// The mirror.
#[derive(Debug)]
pub struct Mirror {
    heaps: Vec<CodeHeap>,
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
        Mirror { heaps, blobs: BTreeMap::new(), bytes: 0, lookups: 0 }
    }

    /// The heaps.
    pub fn heaps(&self) -> &[CodeHeap] {
        &self.heaps
    }

    /// The block of the known blob at an address.
    #[cfg(test)]
    pub fn block_at(&self, address: u64) -> Option<u64> {
        self.blobs.range(..=address).next_back().map(|(_, seen)| seen.blob.block)
    }

    /// What was at an address at the time of a sample; without memory, only what is known.
    pub fn find(
        &mut self,
        address: u64,
        times: Times,
        layout: &Layout,
        memory: Option<&dyn Memory>,
    ) -> Found {
        let Some(heap) = self.heaps.iter().find(|heap| heap.range.contains(&address)) else {
            return Found::Nothing;
        };
        let known = self.blobs.range(..=address).next_back().map(|(_, seen)| seen);
        let known = known.filter(|seen| address < seen.blob.end).cloned();
        if let Some(seen) = &known {
            let was_there = seen.was_at(times) && times.sample <= seen.last;
            let stays = !seen.blob.kind.is_replaced();
            if was_there || stays {
                return Found::Blob(seen.blob.clone());
            }
        }
        let Some(memory) = memory else { return Found::Unread };
        let found = match &known {
            Some(seen) => Header::read(seen.blob.block, layout, memory).map(Some),
            None => heap.block(address, memory).and_then(|block| {
                block.map(|block| Header::read(block, layout, memory)).transpose()
            }),
        };
        let header = match found {
            Ok(Some(header)) => header,
            Ok(None) => return Found::Replaced,
            Err(_) => return Found::Unreadable,
        };
        if let Some(seen) = &known
            && header.identity(layout) == Some(seen.blob.identity)
        {
            return self.see(Seen { last: times.now, ..seen.clone() }, times);
        }
        let other = known.as_ref().map(|seen| seen.last);
        // Its place may be divided in another way now.
        let header = match &known {
            None => Ok(Some(header)),
            Some(_) => heap.block(address, memory).and_then(|block| {
                block.map(|block| Header::read(block, layout, memory)).transpose()
            }),
        };
        let blob = header.and_then(|header| match header {
            Some(header) => header.blob(layout, memory),
            None => Ok(None),
        });
        match blob {
            Ok(Some(blob)) if (blob.address..blob.end).contains(&address) => {
                let blob = Arc::new(blob);
                self.see(Seen { blob, first: times.now, last: times.now, other }, times)
            }
            Ok(_) => Found::Replaced,
            Err(_) => Found::Unreadable,
        }
    }

    /// Keeps a blob that was seen now.
    fn see(&mut self, seen: Seen, times: Times) -> Found {
        let was_there = seen.was_at(times) || !seen.blob.kind.is_replaced();
        let blob = seen.blob.clone();
        self.insert(seen);
        if was_there { Found::Blob(blob) } else { Found::Replaced }
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
