//! The blocks of a heap, and which of them are reachable.

use super::Failure;
use super::memory::ProcessMemory;

/// Alignment of blocks, in bytes.
const GRAIN: u64 = 16;

/// Most pointers between blocks that are kept (8 bytes each); beyond that, a block is read again
/// when it is reached, which takes longer.
const MAX_POINTERS: usize = 8 << 20;

/// Most blocks that are reached but not scanned yet (4 bytes each); beyond that, all reached blocks
/// are scanned again.
const MAX_WAITING: usize = 4 << 20;

/// Number of scanned blocks between two checks of the clock.
const BLOCKS_PER_CHECK: usize = 1 << 12;

/// A range of memory that is full of blocks, each with two header words before it, right after the
/// previous block.
pub struct BlockRange {
    start: u64,
    end: u64,
    /// A bit for each grain: a block's header begins here.
    begins: Vec<u64>,
    /// The block that begins here was reached, or is free: there is nothing to do.
    done: Vec<u64>,
    /// The block that begins here is free.
    free: Vec<u64>,
    /// Index of the first grain, over all heaps: a block's index is that of its first.
    first: u32,
    /// For each word of bits, the index of its blocks' pointers in [`Blocks::pointers`]; empty if
    /// they are incomplete.
    pointers: Vec<u32>,
}

/// The bit of a grain.
#[derive(Clone, Copy)]
struct GrainBit {
    /// Index of the word of bits.
    word: usize,
    /// The word in which only this bit is set.
    bit: u64,
}

/// Bytes of a block's header, and of one of its words.
const HEADER: u64 = 2 * WORD;
const WORD: u64 = 8;

impl BlockRange {
    /// A range without blocks; it begins at a multiple of 16.
    pub fn new(start: u64, end: u64) -> BlockRange {
        let words = ((end - start) / GRAIN).div_ceil(64) as usize;
        let bits = || vec![0; words];
        let begins = bits();
        let done = bits();
        let free = bits();
        BlockRange { start, end, begins, done, free, first: 0, pointers: Vec::new() }
    }

    fn bit(&self, address: u64) -> GrainBit {
        let grain = (address - self.start) / GRAIN;
        GrainBit { word: grain as usize / 64, bit: 1 << (grain % 64) }
    }

    /// Marks the start of a block's header.
    pub fn begin(&mut self, address: u64) {
        let GrainBit { word, bit } = self.bit(address);
        self.begins[word] |= bit;
    }

    /// Marks a block as free.
    pub fn set_free(&mut self, address: u64) {
        let GrainBit { word, bit } = self.bit(address);
        self.free[word] |= bit;
        self.done[word] |= bit;
    }

    fn is(bits: &[u64], at: GrainBit) -> bool {
        bits[at.word] & at.bit != 0
    }

    /// Start of the block that contains an address.
    fn block_of(&self, address: u64) -> Option<u64> {
        let GrainBit { word, bit } = self.bit(address);
        let mut bits = self.begins[word] & (bit | (bit - 1));
        let mut at = word;
        while bits == 0 {
            at = at.checked_sub(1)?;
            bits = self.begins[at];
        }
        let grain = at as u64 * 64 + u64::from(63 - bits.leading_zeros());
        Some(self.start + grain * GRAIN)
    }

    /// Index of the block that begins here.
    fn name(&self, begin: u64) -> u32 {
        self.first + ((begin - self.start) / GRAIN) as u32
    }

    fn grains(&self) -> u64 {
        (self.end - self.start) / GRAIN
    }

    /// True if a block in use has its header here.
    pub fn has_block(&self, header: u64) -> bool {
        let inside = (self.start..self.end).contains(&header) && header.is_multiple_of(GRAIN);
        let bit = || self.bit(header);
        inside && BlockRange::is(&self.begins, bit()) && !BlockRange::is(&self.free, bit())
    }
}

/// A block outside the heaps.
#[derive(Clone, Copy, Debug)]
struct Single {
    /// Start of all memory that belongs to it.
    from: u64,
    /// Address that the program received.
    start: u64,
    end: u64,
    reached: bool,
}

/// All blocks.
#[derive(Default)]
pub struct Blocks {
    heaps: Vec<BlockRange>,
    singles: Vec<Single>,
    /// Lowest and highest address of all blocks.
    bounds: (u64, u64),
    /// Index of the first single block.
    first_single: u32,
    /// Edges (from, to) between block indexes of heaps, sorted by `from`.
    pointers: Vec<(u32, u32)>,
    /// Reached, but not scanned yet.
    waiting: Vec<u32>,
    /// Some were dropped for lack of space.
    forgotten: bool,
}

impl Blocks {
    /// Adds a range of blocks.
    pub fn add_heap(&mut self, heap: BlockRange) {
        self.heaps.push(heap);
    }

    /// Adds a block.
    pub fn add(&mut self, start: u64, end: u64) {
        self.add_with_header(start, start, end);
    }

    /// Adds a block that has its own memory before it.
    pub fn add_with_header(&mut self, from: u64, start: u64, end: u64) {
        self.singles.push(Single { from, start, end, reached: false });
    }

    /// Call this after all blocks have been added, and after adding more.
    ///
    /// # Errors
    ///
    /// There are too many.
    pub fn sort(&mut self) -> Result<(), Failure> {
        self.heaps.sort_unstable_by_key(|heap| heap.start);
        self.singles.sort_unstable_by_key(|single| single.start);
        let ranges = || self.ranges();
        let first = ranges().map(|(start, _)| start).min().unwrap_or(u64::MAX);
        self.bounds = (first, ranges().map(|(_, end)| end).max().unwrap_or(0));
        let mut grains = 0;
        for heap in &mut self.heaps {
            heap.first = grains as u32;
            grains += heap.grains();
        }
        self.first_single = grains as u32;
        let names = grains + self.singles.len() as u64;
        if names < u64::from(u32::MAX) { Ok(()) } else { Err(Failure::TooLong) }
    }

    /// All memory of blocks and their allocator.
    pub fn ranges(&self) -> impl Iterator<Item = (u64, u64)> {
        let singles = self.singles.iter().map(|single| (single.from, single.end));
        self.heaps.iter().map(|heap| (heap.start, heap.end)).chain(singles)
    }

    fn heap_of(&self, address: u64) -> Option<usize> {
        let i = self.heaps.partition_point(|heap| heap.end <= address);
        self.heaps.get(i).filter(|heap| heap.start <= address).map(|_| i)
    }

    /// True if a block in use begins exactly here.
    pub fn begins_at(&self, address: u64) -> bool {
        let header = address.wrapping_sub(HEADER);
        let i = self.singles.partition_point(|single| single.start < address);
        self.singles.get(i).is_some_and(|single| single.start == address)
            || self.heap_of(header).is_some_and(|i| self.heaps[i].has_block(header))
    }

    /// True if the block at this address is reachable.
    pub fn is_reached(&self, address: u64) -> bool {
        match self.block_at(address) {
            Some(name) => match self.heap_of_name(name) {
                Some((heap, begin)) => BlockRange::is(&heap.done, heap.bit(begin)),
                None => self.singles[(name - self.first_single) as usize].reached,
            },
            None => false,
        }
    }

    /// Index of the block that contains an address, if it is in use.
    fn block_at(&self, address: u64) -> Option<u32> {
        if address < self.bounds.0 || address >= self.bounds.1 {
            return None;
        }
        if let Some(i) = self.heap_of(address) {
            let heap = &self.heaps[i];
            let begin = heap.block_of(address)?;
            // The allocator itself points to the headers of blocks.
            let is = address >= begin + HEADER && !BlockRange::is(&heap.free, heap.bit(begin));
            return is.then(|| heap.name(begin));
        }
        let i = self.singles.partition_point(|single| single.end <= address);
        let is = self.singles.get(i).is_some_and(|single| single.start <= address);
        is.then(|| self.first_single + i as u32)
    }

    /// The heap of a block, and the heap's start; `None` for a single block.
    fn heap_of_name(&self, name: u32) -> Option<(&BlockRange, u64)> {
        if name >= self.first_single {
            return None;
        }
        let i = self.heaps.partition_point(|heap| heap.first <= name) - 1;
        let heap = &self.heaps[i];
        Some((heap, heap.start + u64::from(name - heap.first) * GRAIN))
    }

    /// Records the edges between blocks of heaps. Blocks whose second word is one of `freed` are
    /// free.
    ///
    /// # Errors
    ///
    /// The time is over, or the process has ended.
    pub fn read_pointers(
        &mut self,
        memory: &mut ProcessMemory,
        freed: &[u64],
    ) -> Result<(), Failure> {
        for i in 0..self.heaps.len() {
            let BlockRange { start, end, .. } = self.heaps[i];
            let from = self.pointers.len();
            memory.each_word(start, end, |at, word| {
                if freed.contains(&word) {
                    let heap = &mut self.heaps[i];
                    let begin = heap.block_of(at).filter(|begin| at == begin + HEADER + WORD);
                    return begin.into_iter().for_each(|begin| heap.set_free(begin));
                }
                // A block extends one word into the next header, which needs that word only if this
                // block is free.
                let holder = || self.block_at(at).or_else(|| self.block_at(at - WORD));
                if let Some(to) = self.pointed_at(word)
                    && let Some(holder) = holder()
                    && self.pointers.len() < MAX_POINTERS
                {
                    self.pointers.push((holder, to));
                }
            })?;
            if self.pointers.len() < MAX_POINTERS {
                self.index_pointers(i, from);
            }
        }
        Ok(())
    }

    /// Builds the index of a heap's edges, which begin at `from`.
    fn index_pointers(&mut self, i: usize, from: usize) {
        let heap = &mut self.heaps[i];
        let mut at = from;
        heap.pointers = Vec::with_capacity(heap.begins.len());
        for word in 0..heap.begins.len() as u32 {
            let first = heap.first.saturating_add(64 * word);
            while self.pointers.get(at).is_some_and(|&(holder, _)| holder < first) {
                at += 1;
            }
            heap.pointers.push(at as u32);
        }
    }

    /// Follows a word that may be a pointer.
    pub fn point(&mut self, word: u64) {
        if let Some(name) = self.pointed_at(word) {
            self.reach(name);
        }
    }

    /// The block that a word points to.
    ///
    /// A word whose lower half is zero is a partly overwritten pointer: no block of glibc's begins
    /// at such an address.
    fn pointed_at(&self, word: u64) -> Option<u32> {
        if word as u32 == 0 { None } else { self.block_at(word) }
    }

    fn reach(&mut self, name: u32) {
        let was = match self.heap_of_name(name) {
            None => {
                let single = &mut self.singles[(name - self.first_single) as usize];
                std::mem::replace(&mut single.reached, true)
            }
            Some((_, begin)) => {
                let i = self.heaps.partition_point(|heap| heap.first <= name) - 1;
                let heap = &mut self.heaps[i];
                let GrainBit { word: at, bit } = heap.bit(begin);
                let was = heap.done[at] & bit != 0;
                heap.done[at] |= bit;
                was
            }
        };
        match was {
            true => {}
            false if self.waiting.len() < MAX_WAITING => self.waiting.push(name),
            false => self.forgotten = true,
        }
    }

    /// Scans all reached blocks, and the blocks that they reach, until none is new.
    ///
    /// # Errors
    ///
    /// The time is over, or the process has ended.
    pub fn follow(&mut self, memory: &mut ProcessMemory) -> Result<(), Failure> {
        loop {
            let mut scanned = 0usize;
            while let Some(name) = self.waiting.pop() {
                if scanned.is_multiple_of(BLOCKS_PER_CHECK) {
                    memory.check_time()?;
                }
                scanned += 1;
                self.scan(name, memory)?;
            }
            if !std::mem::take(&mut self.forgotten) {
                return Ok(());
            }
            for name in 0..self.first_single + self.singles.len() as u32 {
                let reached = match self.heap_of_name(name) {
                    Some((heap, begin)) => {
                        let is = |bits| BlockRange::is(bits, heap.bit(begin));
                        is(&heap.begins) && is(&heap.done) && !is(&heap.free)
                    }
                    None => self.singles[(name - self.first_single) as usize].reached,
                };
                if reached {
                    self.scan(name, memory)?;
                }
            }
        }
    }

    /// Scans a block.
    fn scan(&mut self, name: u32, memory: &mut ProcessMemory) -> Result<(), Failure> {
        let Some((heap, begin)) = self.heap_of_name(name) else {
            let Single { start, end, .. } = self.singles[(name - self.first_single) as usize];
            return memory.each_word(start, end, |_, word| self.point(word));
        };
        let word = heap.bit(begin).word;
        if let Some(&first) = heap.pointers.get(word) {
            let mut at = first as usize;
            while let Some(&(holder, to)) =
                self.pointers.get(at).filter(|(holder, _)| *holder <= name)
            {
                at += 1;
                if holder == name {
                    self.reach(to);
                }
            }
            return Ok(());
        }
        let size = memory.word(begin + WORD)?.unwrap_or(0) & !(GRAIN - 1);
        let end = begin.saturating_add(size).min(heap.end - WORD) + WORD;
        memory.each_word(begin + HEADER, end, |_, word| self.point(word))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn blocks() -> Blocks {
        let mut heap = BlockRange::new(0x1000, 0x9000);
        for at in [0x1000, 0x1020, 0x4020, 0x8000] {
            heap.begin(at);
        }
        heap.set_free(0x8000);
        let mut blocks = Blocks::default();
        blocks.add_heap(heap);
        blocks.add_heap(BlockRange::new(0xa000, 0xb000));
        blocks.add_with_header(0x10000, 0x10010, 0x20000);
        blocks.add(0xffff_0000, 0x2_0000_0000);
        blocks.sort().unwrap();
        blocks
    }

    #[test]
    fn a_pointer_into_a_block_reaches_it() {
        for word in [0x1030, 0x1038, 0x401f] {
            let mut blocks = blocks();
            blocks.point(word);
            blocks.point(word);
            assert_eq!(blocks.waiting, [2], "{word:x}");
            assert!(blocks.is_reached(0x1030) && !blocks.is_reached(0x1010));
        }
        let mut blocks = blocks();
        for word in [0, 0xfff, 0x1020, 0x102f, 0x4020, 0x8010, 0x8fff, 0x9000, 0x10000, 0x20000] {
            blocks.point(word);
        }
        assert!(blocks.waiting.is_empty());
        assert_eq!(blocks.pointed_at(0x1_0000_0000), None);
        blocks.point(0x1ffff);
        blocks.point(0x10010);
        assert_eq!(blocks.waiting, [0x900]);
        assert!(blocks.is_reached(0x10010));
    }

    #[test]
    fn starts_of_blocks_are_found() {
        let blocks = blocks();
        assert!(blocks.begins_at(0x1010) && blocks.begins_at(0x1030) && blocks.begins_at(0x10010));
        // In the middle, free, and not a block.
        for not in [0x1020, 0x1040, 0x8010, 0x10000, 0x30000] {
            assert!(!blocks.begins_at(not), "{not:x}");
        }
    }

    /// Words of this process, treated as a heap.
    #[test]
    fn edges_between_blocks_are_found() {
        let mut words = vec![0u64; 4096];
        let start = (words.as_ptr() as u64).next_multiple_of(16);
        let skip = ((start - words.as_ptr() as u64) / 8) as usize;
        let at = |block: u64| start + block * 64;
        // The last word of a block is the first of the next one's header.
        for (block, to, word) in [(0, 3, 5), (3, 1, 8), (2, 0, 2), (1, 4, 5), (4, 2, 7)] {
            words[skip + block * 8 + 1] = 64 | 1;
            words[skip + block * 8 + word] = at(to as u64) + HEADER;
        }
        words[skip + 4 * 8 + 3] = 77;
        let until = std::time::Instant::now() + std::time::Duration::from_secs(60);
        let mut memory = ProcessMemory::new(std::process::id() as i32, until);
        for freed in [&[77][..], &[]] {
            for keep in [true, false] {
                let mut heap = BlockRange::new(start, at(6));
                (0..6).for_each(|block| heap.begin(at(block)));
                let mut blocks = Blocks::default();
                blocks.add_heap(heap);
                blocks.sort().unwrap();
                if keep || !freed.is_empty() {
                    blocks.read_pointers(&mut memory, freed).unwrap();
                }
                if !keep {
                    blocks.heaps[0].pointers.clear();
                }
                blocks.point(at(0) + HEADER + 3);
                blocks.follow(&mut memory).unwrap();
                let reached = |block| blocks.is_reached(at(block) + HEADER);
                let through_free = freed.is_empty();
                let expected = [true, true, through_free, true, through_free, false];
                let got: Vec<bool> = (0..6).map(reached).collect();
                assert_eq!(got, expected, "{freed:?}, {keep}");
            }
        }
    }
}
