//! Copies of stacks, kept in memory. Consecutive stacks of a thread mostly have the same bytes, so
//! they are kept in blocks, and equal blocks once.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use rustc_hash::FxHashMap;

/// Bytes of a block, which begins at a multiple of this address.
const BLOCK: usize = 1024;

/// Most threads whose last stacks are compared with the next one.
const MAX_THREADS: usize = 64;

/// Most blocks of a thread that are compared.
const MAX_BLOCKS: usize = 4096;

/// Memory that counts as held until it is dropped.
#[derive(Debug)]
pub struct HeldMemory {
    counter: Arc<AtomicUsize>,
    bytes: usize,
}

impl HeldMemory {
    /// Counts these bytes.
    pub fn new(counter: &Arc<AtomicUsize>, bytes: usize) -> HeldMemory {
        counter.fetch_add(bytes, Ordering::Relaxed);
        HeldMemory { counter: counter.clone(), bytes }
    }
}

impl Drop for HeldMemory {
    fn drop(&mut self) {
        self.counter.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// A block, or a part of one at the end of a copy.
#[derive(Debug)]
struct Block {
    bytes: Box<[u8]>,
    _held: HeldMemory,
}

/// The bytes of a copy.
#[derive(Debug, Default)]
pub struct KeptBytes(Vec<Arc<Block>>);

impl KeptBytes {
    /// Appends the bytes. Returns their number.
    pub fn append_to(&self, to: &mut Vec<u8>) -> usize {
        let before = to.len();
        self.0.iter().for_each(|block| to.extend_from_slice(&block.bytes));
        to.len() - before
    }
}

/// The blocks of each thread's last stacks, by their number: address / [`BLOCK`].
#[derive(Debug, Default)]
pub struct StackBlocks {
    threads: FxHashMap<i32, FxHashMap<u64, Arc<Block>>>,
    /// Number of bytes of all blocks that are kept, here and in copies.
    held: Arc<AtomicUsize>,
}

impl StackBlocks {
    /// Number of bytes of all blocks, and of other memory that counts with them.
    pub fn held(&self) -> &Arc<AtomicUsize> {
        &self.held
    }

    /// Forgets all stacks; copies keep their blocks.
    pub fn clear(&mut self) {
        self.threads.clear();
    }

    /// Copies a part of a thread's stack, which begins at an address.
    pub fn keep(&mut self, tid: i32, address: u64, mut bytes: &[u8]) -> KeptBytes {
        if self.threads.len() >= MAX_THREADS && !self.threads.contains_key(&tid) {
            self.threads.clear();
        }
        let known = self.threads.entry(tid).or_default();
        if known.len() >= MAX_BLOCKS {
            known.clear();
        }
        let mut kept = Vec::with_capacity(bytes.len() / BLOCK + 2);
        let mut at = address;
        while !bytes.is_empty() {
            let to_end = BLOCK - (at % BLOCK as u64) as usize;
            let (part, rest) = bytes.split_at(to_end.min(bytes.len()));
            let new = || {
                let held = HeldMemory::new(&self.held, size_of::<Block>() + part.len());
                Arc::new(Block { bytes: part.into(), _held: held })
            };
            let last = known.entry(at / BLOCK as u64).or_insert_with(new);
            if *last.bytes != *part {
                *last = new();
            }
            kept.push(last.clone());
            at = at.wrapping_add(part.len() as u64);
            bytes = rest;
        }
        KeptBytes(kept)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held(blocks: &StackBlocks) -> usize {
        blocks.held().load(Ordering::Relaxed)
    }

    fn bytes_of(kept: &KeptBytes) -> Vec<u8> {
        let mut bytes = Vec::new();
        assert_eq!(kept.append_to(&mut bytes), bytes.len());
        bytes
    }

    #[test]
    fn equal_parts_of_a_threads_stacks_are_kept_once() {
        let mut blocks = StackBlocks::default();
        let mut stack: Vec<u8> = (0..64 << 10).map(|i: usize| (i / 7) as u8).collect();
        let first = blocks.keep(1, 0x7ffc_0000_0123, &stack);
        let once = held(&blocks);
        assert!(once >= stack.len() && once < stack.len() * 11 / 10, "{once}");
        let before = stack.clone();
        stack[70] ^= 1;
        stack[40_000] ^= 1;
        let second = blocks.keep(1, 0x7ffc_0000_0123, &stack);
        assert!(held(&blocks) < once + 3 * BLOCK, "{}", held(&blocks));
        // A deeper stack has the older bytes behind its own.
        let deeper = [&[9; 640][..], &stack].concat();
        let third = blocks.keep(1, 0x7ffc_0000_0123 - 640, &deeper);
        assert!(held(&blocks) < once + 6 * BLOCK, "{}", held(&blocks));
        // Another thread has its own.
        let other = blocks.keep(2, 0x7ffc_0000_0123, &stack);
        assert!(held(&blocks) > 2 * once);
        for (kept, bytes) in
            [(&first, &before), (&second, &stack), (&third, &deeper), (&other, &stack)]
        {
            assert!(bytes_of(kept) == *bytes);
        }
        drop((first, second, third, other));
        blocks.clear();
        assert_eq!(held(&blocks), 0);
    }

    #[test]
    fn threads_and_blocks_that_are_compared_are_bounded() {
        let mut blocks = StackBlocks::default();
        for tid in 0..1000 {
            blocks.keep(tid, 0x1000, &[1; 4096]);
        }
        assert!(held(&blocks) <= MAX_THREADS * 4096 * 2, "{}", held(&blocks));
        blocks.clear();
        for i in 0..100 {
            blocks.keep(1, i << 20, &[1; 1 << 20]);
        }
        assert!(held(&blocks) <= 8 << 20, "{}", held(&blocks));
        assert!(bytes_of(&blocks.keep(1, u64::MAX - 99, &[7; 100])) == [7; 100]);
        assert!(bytes_of(&blocks.keep(1, 0, &[])).is_empty());
    }
}
