//! The code cache: heaps of blocks, of which each has a code blob.

use std::ops::Range;

use super::blob::Header;
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

/// Bytes that are read at once of all blocks, and most bytes of a heap.
const PART: u64 = 64 << 10;
/// See [`PART`].
const MOST_READ: u64 = 48 << 20;

/// Most blocks of a heap that are read.
const MOST_BLOCKS: usize = 1 << 17;

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
    /// Where the address is up to which it has grown.
    grown: u64,
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
        let grown = heap.wrapping_add(layout.grown);
        Ok(CodeHeap { range, segments, log2_segment, grown })
    }

    /// A heap of these addresses.
    #[cfg(test)]
    pub fn new(range: Range<u64>, segments: u64, log2_segment: u32, grown: u64) -> CodeHeap {
        CodeHeap { range, segments, log2_segment, grown }
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

    /// Reads the headers of all blocks that are in use. Returns true if they are known to be all that
    /// there are and were: no block is free.
    pub fn each_block(
        &self,
        layout: &Layout,
        memory: &dyn Memory,
        each: impl FnMut(Header) -> Result<(), ReadError>,
    ) -> bool {
        self.try_each_block(layout, memory, each).unwrap_or(false)
    }

    fn try_each_block(
        &self,
        layout: &Layout,
        memory: &dyn Memory,
        mut each: impl FnMut(Header) -> Result<(), ReadError>,
    ) -> Result<bool, ReadError> {
        let size = Header::size(layout);
        let segment = |address: u64| (address - self.range.start) >> self.log2_segment;
        let grown = memory.word(self.grown)?.clamp(self.range.start, self.range.end);
        let end = grown.min(self.range.start.saturating_add(MOST_READ));
        let mut headers = Window::new(memory, end);
        let mut tags = Window::new(memory, self.segments.saturating_add(segment(end)));
        let mut has_all = end == grown;
        let mut block = self.range.start;
        for _ in 0..MOST_BLOCKS {
            if block >= end {
                return Ok(has_all);
            }
            if tags.bytes(self.segments.wrapping_add(segment(block)), 1)? != [0] {
                return Ok(has_all);
            }
            let bytes = headers.bytes(block, size)?.to_vec();
            let header = Header::new(block, bytes, layout);
            let length = header.length(layout) << self.log2_segment;
            if length == 0 {
                return Ok(false);
            }
            if header.is_used(layout) {
                each(header)?;
            } else {
                has_all = false;
            }
            block = block.saturating_add(length);
        }
        Ok(false)
    }
}

/// Memory that is read in parts.
struct Window<'m> {
    memory: &'m dyn Memory,
    start: u64,
    bytes: Vec<u8>,
    /// The address behind the last one that is read.
    end: u64,
}

impl<'m> Window<'m> {
    fn new(memory: &'m dyn Memory, end: u64) -> Window<'m> {
        Window { memory, start: 0, bytes: Vec::new(), end }
    }

    /// Bytes at an address. Behind the end, nothing is mapped.
    fn bytes(&mut self, address: u64, size: usize) -> Result<&[u8], ReadError> {
        let offset = |start: u64| usize::try_from(address.checked_sub(start)?).ok();
        let is_inside = |at: usize| at.checked_add(size).is_some_and(|end| end <= self.bytes.len());
        if offset(self.start).filter(|at| is_inside(*at)).is_none() {
            let rest = self.end.saturating_sub(address).min(PART);
            if rest < size as u64 {
                return Err(ReadError::Unmapped);
            }
            self.bytes.resize(rest as usize, 0);
            self.start = address;
            let mut read = self.memory.read(address, &mut self.bytes);
            if read == Err(ReadError::Unmapped) {
                // The end of what is mapped may be in this part.
                self.bytes.truncate(size);
                read = self.memory.read(address, &mut self.bytes);
            }
            if let Err(error) = read {
                self.bytes.clear();
                return Err(error);
            }
        }
        let at = (address - self.start) as usize;
        Ok(&self.bytes[at..at + size])
    }
}
