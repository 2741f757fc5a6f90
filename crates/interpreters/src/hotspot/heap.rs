//! The code cache: heaps of blocks, of which each has a code blob.

use std::ops::Range;

use super::layout::{HeapLayout, Layout};
use crate::{Memory, ReadError, Refusal};

/// Most heaps; there are one or three.
const MOST: u32 = 16;

/// Largest heap in bytes (`ReservedCodeCacheSize`, `globals.hpp`).
const LARGEST: u64 = 2 << 30;

/// Segments before an address that are read at once.
const WINDOW: u64 = 256;

/// Most parts of the segment map that are read for one address: a step back is at most 254 segments.
const MOST_WINDOWS: u32 = 1 << 10;

/// A segment of no block.
const FREE: u8 = 0xff;

/// A heap of code (`CodeHeap`). It is reserved at one place, and grows there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CodeHeap {
    /// Its addresses.
    pub range: Range<u64>,
    /// The address of the segment map: a byte for each segment.
    segments: u64,
    log2_segment: u32,
}

impl CodeHeap {
    /// The heaps of a process.
    ///
    /// # Errors
    ///
    /// There are none yet ([`Refusal::NotRunning`]), or they are not as expected.
    pub fn read_all(layout: &Layout, memory: &dyn Memory) -> Result<Vec<CodeHeap>, Refusal> {
        let list = memory.word(layout.heaps)?;
        if list == 0 {
            return Err(Refusal::NotRunning);
        }
        let count = memory.half(list.wrapping_add(layout.list_length))?;
        let items = memory.word(list.wrapping_add(layout.list_items))?;
        if count == 0 {
            return Err(Refusal::NotRunning);
        }
        if count > MOST {
            return Err(Refusal::Layout("there are too many heaps of code"));
        }
        let mut heaps = Vec::new();
        for number in 0..u64::from(count) {
            let heap = memory.word(items.wrapping_add(number * 8))?;
            heaps.push(CodeHeap::read(&layout.heap, heap, memory)?);
        }
        Ok(heaps)
    }

    fn read(layout: &HeapLayout, heap: u64, memory: &dyn Memory) -> Result<CodeHeap, Refusal> {
        let word = |at: u64| memory.word(heap.wrapping_add(at));
        let range = word(layout.low)?..word(layout.high)?;
        let segments = word(layout.segments)?;
        let log2_segment = memory.half(heap.wrapping_add(layout.log2_segment))?;
        let size = range.end.saturating_sub(range.start);
        if size == 0 || size > LARGEST || !(4..=16).contains(&log2_segment) {
            return Err(Refusal::Layout("a heap of code has no addresses"));
        }
        Ok(CodeHeap { range, segments, log2_segment })
    }

    /// The address of its segment map.
    #[cfg(test)]
    pub fn segments(&self) -> u64 {
        self.segments
    }

    /// The block behind one; `None` at the end.
    pub fn next(
        &self,
        block: u64,
        layout: &HeapLayout,
        memory: &dyn Memory,
    ) -> Result<Option<u64>, ReadError> {
        let length = memory.half(block.wrapping_add(layout.block_length))?;
        let next = block.checked_add(u64::from(length) << self.log2_segment);
        Ok(next.filter(|next| *next > block && self.range.contains(next)))
    }

    /// The address of the block that contains an address; `None` if that is free
    /// (`CodeHeap::find_block_for`).
    pub fn block(&self, address: u64, memory: &dyn Memory) -> Result<Option<u64>, ReadError> {
        let mut segment = (address - self.range.start) >> self.log2_segment;
        for _ in 0..MOST_WINDOWS {
            let first = segment.saturating_sub(WINDOW - 1);
            let mut tags = [0; WINDOW as usize];
            let tags = &mut tags[..=(segment - first) as usize];
            memory.read(self.segments.wrapping_add(first), tags)?;
            loop {
                let tag = tags[(segment - first) as usize];
                match u64::from(tag) {
                    0 => return Ok(Some(self.range.start + (segment << self.log2_segment))),
                    _ if tag == FREE => return Ok(None),
                    back if back > segment => return Ok(None),
                    back => segment -= back,
                }
                if segment < first {
                    break;
                }
            }
        }
        Ok(None)
    }
}
