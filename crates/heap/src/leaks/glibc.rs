//! The blocks of glibc's allocator, from their headers.
//!
//! `malloc/malloc.c` and `malloc/arena.c`: two words precede the program's memory. The second is
//! the distance to the next block's header, with three flag bits: the block before is in use (1),
//! it has its own mapping (2), it is not of the main arena (4). The main arena begins at the start
//! of `brk`'s memory, others in heaps at multiples of 64 MiB. If that does not hold to the end of a
//! heap, or a sampled block was not found, the result is rejected.

use std::collections::HashSet;

use super::areas::{Areas, page_of};
use super::blocks::{BlockRange, Blocks};
use super::memory::{PAGE, ProcessMemory};
use super::{Failure, SampledBlock};

const PREV_INUSE: u64 = 1;
const IS_MMAPPED: u64 = 2;
const FLAGS: u64 = 7;
const ALIGNMENT: u64 = 16;
/// Bytes of a block's header, and of the smallest block with it.
const HEADER: u64 = 16;
const LEAST: u64 = 32;

/// Alignment and largest size of the heaps of other arenas (`HEAP_MAX_SIZE`).
const HEAP: u64 = 64 << 20;

/// Most bytes at the start of such a heap: its description, and that of the arena.
const DESCRIPTION: u64 = 4096;

/// Size of a thread's cache of freed blocks (`tcache_perthread_struct`, glibc 2.30 to 2.41) with
/// its header: counters of 64 sizes, and the first block of each.
const CACHE: u64 = 0x290;
const SIZES: u64 = 64;

/// Finds the blocks of glibc's allocator in anonymous memory, and the words that mark freed blocks
/// in threads' caches.
///
/// # Errors
///
/// The time is over, or the process has ended.
pub fn blocks(
    areas: &Areas,
    memory: &mut ProcessMemory,
    sampled: &[SampledBlock],
) -> Result<(Blocks, Vec<u64>), Failure> {
    let mut found = BlockFinder { memory, blocks: Blocks::default(), singles: HashSet::new() };
    let mut heaps = Vec::new();
    if let Some((start, end)) = areas.brk {
        heaps.extend(found.heap(start, end)?);
    }
    for (start, end) in areas.anonymous() {
        heaps.extend(found.heaps_of_arenas(start, end)?);
        found.mapped(start, end)?;
    }
    for sampled in sampled {
        found.mapped_at(sampled.address)?;
    }
    let keys = found.keys(&heaps)?;
    heaps.into_iter().for_each(|(heap, _)| found.blocks.add_heap(heap));
    Ok((found.blocks, keys))
}

/// A heap, and its blocks that have the size of a thread's cache.
type WithCaches = (BlockRange, Vec<u64>);

struct BlockFinder<'a> {
    memory: &'a mut ProcessMemory,
    blocks: Blocks,
    /// Blocks with their own mapping.
    singles: HashSet<u64>,
}

impl BlockFinder<'_> {
    /// Second header word of a block.
    fn size(&mut self, at: u64) -> Result<u64, Failure> {
        Ok(self.memory.word(at + 8)?.unwrap_or(0))
    }

    /// A range that consists of blocks.
    fn heap(&mut self, start: u64, end: u64) -> Result<Option<WithCaches>, Failure> {
        let start = start.next_multiple_of(ALIGNMENT);
        if start >= end || !self.seems_heap(start, end)? {
            return Ok(None);
        }
        let mut heap = BlockRange::new(start, end);
        let mut caches = Vec::new();
        let mut at = start;
        let mut before = None;
        loop {
            let word = self.size(at)?;
            let size = word & !FLAGS;
            heap.begin(at);
            if let Some(before) = before.filter(|_| word & PREV_INUSE == 0) {
                heap.set_free(before);
            }
            if size == CACHE {
                caches.push(at);
            }
            // If the arena continues elsewhere, marker blocks are at its end here.
            if size < LEAST || size == end - at {
                heap.set_free(at);
            }
            (at, before) = match size {
                _ if size == end - at => break,
                0 if end - at == HEADER => break,
                HEADER.. if size.is_multiple_of(ALIGNMENT) && size < end - at => {
                    (at + size, Some(at))
                }
                _ => return Ok(None),
            };
        }
        Ok(Some((heap, caches)))
    }

    /// True if the first few blocks have valid sizes.
    fn seems_heap(&mut self, start: u64, end: u64) -> Result<bool, Failure> {
        let mut at = start;
        for _ in 0..3 {
            let size = self.size(at)? & !FLAGS;
            if size < LEAST || !size.is_multiple_of(ALIGNMENT) || size > end - at {
                return Ok(false);
            }
            at += size;
            if at == end {
                break;
            }
        }
        Ok(true)
    }

    /// Heaps of other arenas than the main one.
    fn heaps_of_arenas(&mut self, start: u64, end: u64) -> Result<Vec<WithCaches>, Failure> {
        let mut heaps = Vec::new();
        let mut at = start.next_multiple_of(HEAP);
        while at < end {
            let mut field =
                |i: u64| -> Result<u64, Failure> { Ok(self.memory.word(at + 8 * i)?.unwrap_or(0)) };
            let arena = field(0)?;
            let before = field(1)?;
            let size = field(2)?;
            let most = field(3)?;
            let whole = size != 0 && size.is_multiple_of(PAGE) && size <= most && most <= HEAP;
            let is_arena = arena > at || before.is_multiple_of(HEAP) && before != 0;
            if whole && is_arena && at + size <= end {
                let first = (HEADER..DESCRIPTION).step_by(ALIGNMENT as usize);
                for offset in first {
                    if let Some(heap) = self.heap(at + offset, at + size)? {
                        heaps.push(heap);
                        break;
                    }
                }
            }
            at += HEAP;
        }
        Ok(heaps)
    }

    /// Blocks with their own mapping that follow each other from the start of a range.
    fn mapped(&mut self, start: u64, end: u64) -> Result<(), Failure> {
        let mut at = start;
        while at < end {
            let offset = self.memory.word(at)?;
            let word = self.size(at)?;
            let size = word & !FLAGS;
            let is = offset == Some(0) && word & FLAGS == IS_MMAPPED && size.is_multiple_of(PAGE);
            if !is || size == 0 || size > end - at {
                break;
            }
            self.single(at, at, at + size);
            at += size;
        }
        Ok(())
    }

    /// A sampled block with its own mapping.
    fn mapped_at(&mut self, address: u64) -> Result<(), Failure> {
        let header = address.wrapping_sub(HEADER);
        if !address.is_multiple_of(ALIGNMENT) || address < HEADER {
            return Ok(());
        }
        let offset = self.memory.word(header)?.unwrap_or(0);
        let word = self.size(header)?;
        let size = word & !FLAGS;
        let from = header.wrapping_sub(offset);
        let end = header.wrapping_add(size);
        if word & FLAGS == IS_MMAPPED
            && size >= LEAST
            && from <= header
            && page_of(from) == from
            && end > header
            && end.is_multiple_of(PAGE)
        {
            self.single(from, header, end);
        }
        Ok(())
    }

    fn single(&mut self, from: u64, header: u64, end: u64) {
        if self.singles.insert(header) {
            self.blocks.add_with_header(from, header + HEADER, end);
        }
    }

    /// Keys of freed blocks in threads' caches. Such blocks look like used ones, but their second
    /// word is a number that all of a process share, or all of a thread.
    fn keys(&mut self, heaps: &[WithCaches]) -> Result<Vec<u64>, Failure> {
        let mut keys = HashSet::new();
        for at in heaps.iter().flat_map(|(_, caches)| caches) {
            self.keys_of_cache(at + HEADER, heaps, &mut keys)?;
        }
        Ok(keys.into_iter().collect())
    }

    /// Key of freed blocks in a thread's cache, if there is one at this address.
    fn keys_of_cache(
        &mut self,
        cache: u64,
        heaps: &[WithCaches],
        keys: &mut HashSet<u64>,
    ) -> Result<(), Failure> {
        let mut all = HashSet::new();
        for i in 0..SIZES {
            let count =
                self.memory.word(cache + i / 4 * 8)?.unwrap_or(0) >> (16 * (i % 4)) & 0xffff;
            let first = self.memory.word(cache + 2 * SIZES + 8 * i)?.unwrap_or(0);
            if count == 0 && first == 0 {
                continue;
            }
            let header = first.wrapping_sub(HEADER);
            if !heaps.iter().any(|(heap, _)| heap.has_block(header)) {
                return Ok(());
            }
            all.insert(self.memory.word(first + 8)?.unwrap_or(0));
        }
        // Another block of that size.
        if all.len() == 1 && !all.contains(&0) {
            keys.extend(all);
        }
        Ok(())
    }
}
