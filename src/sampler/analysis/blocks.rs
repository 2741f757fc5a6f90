//! Copies of stacks, kept in memory. Consecutive stacks of a thread mostly have the same bytes:
//! while many wait, they are kept in blocks, and equal blocks once. That takes five times as long
//! as a plain copy, so the first ones are kept as they are.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use rustc_hash::FxHashMap;

/// Bytes of a block, which begins at a multiple of this address.
const BLOCK: usize = 512;

/// Bytes of a group of blocks, of which equal ones are kept once, too.
const GROUP: usize = 32 * BLOCK;

/// Most threads whose last stacks are compared with the next one.
const MAX_THREADS: usize = 1024;

/// Most groups of a thread that are compared: deep stacks have 2 MiB.
const MAX_GROUPS: usize = 256;

/// Bytes that are kept without a search for equal blocks.
pub const MAX_PLAIN: usize = 4 << 20;

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

/// A block, or a part of one at an end of a copy.
#[derive(Debug)]
struct Block {
    bytes: [u8; BLOCK],
    length: usize,
    _held: HeldMemory,
}

impl Block {
    fn new(part: &[u8], counter: &Arc<AtomicUsize>) -> Arc<Block> {
        let mut bytes = [0; BLOCK];
        bytes[..part.len()].copy_from_slice(part);
        let _held = HeldMemory::new(counter, size_of::<Block>() + ARC);
        Arc::new(Block { bytes, length: part.len(), _held })
    }

    fn bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

/// Bytes of the counters of an [`Arc`].
const ARC: usize = 16;

/// Consecutive blocks of one group.
#[derive(Debug)]
struct Group {
    /// Number of the first: address / [`BLOCK`].
    first: u64,
    blocks: Vec<Arc<Block>>,
    _held: HeldMemory,
}

impl Group {
    /// The blocks of a part of a group; those that are equal in an older group are shared.
    fn new(
        address: u64,
        bytes: &[u8],
        older: Option<&Group>,
        zeros: &Arc<Block>,
        counter: &Arc<AtomicUsize>,
    ) -> Group {
        let block = |(number, part): (u64, &[u8])| {
            let known = older.and_then(|group| group.block(number));
            let same = known.into_iter().chain([zeros]).find(|block| block.bytes() == part);
            same.cloned().unwrap_or_else(|| Block::new(part, counter))
        };
        let blocks: Vec<Arc<Block>> = parts(address, bytes, BLOCK).map(block).collect();
        let size = size_of::<Group>() + ARC + blocks.capacity() * size_of::<Arc<Block>>();
        let _held = HeldMemory::new(counter, size);
        Group { first: address / BLOCK as u64, blocks, _held }
    }

    fn block(&self, number: u64) -> Option<&Arc<Block>> {
        self.blocks.get(usize::try_from(number.checked_sub(self.first)?).ok()?)
    }

    /// True if it has exactly these bytes.
    fn is(&self, address: u64, bytes: &[u8]) -> bool {
        let mut parts = parts(address, bytes, BLOCK);
        let all = self
            .blocks
            .iter()
            .all(|block| parts.next().is_some_and(|(_, part)| block.bytes() == part));
        self.first == address / BLOCK as u64 && all && parts.next().is_none()
    }
}

/// Divides bytes at multiples of `size`, each with its number: address / size.
fn parts(address: u64, bytes: &[u8], size: usize) -> impl Iterator<Item = (u64, &[u8])> {
    let mut left = bytes;
    let mut at = address;
    std::iter::from_fn(move || {
        let to_end = size - (at % size as u64) as usize;
        let (part, rest) = left.split_at(to_end.min(left.len()));
        let number = at / size as u64;
        (left, at) = (rest, at.wrapping_add(part.len() as u64));
        (!part.is_empty()).then_some((number, part))
    })
}

/// The bytes of a copy.
#[derive(Debug)]
pub enum KeptBytes {
    /// As they are.
    Plain(PlainBytes),
    /// In blocks, of which equal ones are shared.
    Blocks(BlockBytes),
}

/// Bytes with memory of their own.
#[derive(Debug)]
pub struct PlainBytes {
    bytes: Box<[u8]>,
    _held: HeldMemory,
}

impl PlainBytes {
    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

/// Bytes in blocks.
#[derive(Debug)]
pub struct BlockBytes(Vec<Arc<Group>>);

impl BlockBytes {
    /// Appends the bytes.
    pub fn append_to(&self, to: &mut Vec<u8>) {
        let blocks = self.0.iter().flat_map(|group| &group.blocks);
        blocks.for_each(|block| to.extend_from_slice(block.bytes()));
    }
}

/// A part of a stack that is copied at once. Parts overlap, or share a group: each is compared with
/// the same part of the last stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StackPart {
    /// The kernel's copy.
    Copy,
    /// The chunk with this number beyond it.
    Chunk(usize),
}

/// A group of a thread's last stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Place {
    part: StackPart,
    /// Address / [`GROUP`].
    group: u64,
}

/// The blocks of each thread's last stacks.
#[derive(Debug, Default)]
pub struct StackBlocks {
    threads: FxHashMap<i32, FxHashMap<Place, Arc<Group>>>,
    /// A block of zeros, of which stacks of new threads mostly consist.
    zeros: Option<Arc<Block>>,
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
        self.zeros = None;
    }

    /// Copies a part of a thread's stack, which begins at an address.
    pub fn keep(&mut self, tid: i32, part: StackPart, address: u64, bytes: &[u8]) -> KeptBytes {
        if self.held.load(Ordering::Relaxed) < MAX_PLAIN {
            let _held = HeldMemory::new(&self.held, bytes.len());
            return KeptBytes::Plain(PlainBytes { bytes: bytes.into(), _held });
        }
        KeptBytes::Blocks(self.keep_blocks(tid, part, address, bytes))
    }

    /// The same; blocks that are equal to those of the last stack are shared.
    fn keep_blocks(&mut self, tid: i32, part: StackPart, address: u64, bytes: &[u8]) -> BlockBytes {
        if self.threads.len() >= MAX_THREADS && !self.threads.contains_key(&tid) {
            self.threads.clear();
        }
        let held = &self.held;
        let zeros = self.zeros.get_or_insert_with(|| Block::new(&[0; BLOCK], held));
        let known = self.threads.entry(tid).or_default();
        if known.len() >= MAX_GROUPS {
            known.clear();
        }
        let mut kept = Vec::with_capacity(bytes.len() / GROUP + 2);
        let mut at = address;
        for (group, bytes) in parts(address, bytes, GROUP) {
            let place = Place { part, group };
            let older = known.get(&place);
            let group = match older {
                Some(group) if group.is(at, bytes) => group.clone(),
                _ => {
                    let new = Group::new(at, bytes, older.map(|group| &**group), zeros, held);
                    let new = Arc::new(new);
                    known.insert(place, new.clone());
                    new
                }
            };
            kept.push(group);
            at = at.wrapping_add(bytes.len() as u64);
        }
        BlockBytes(kept)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held(blocks: &StackBlocks) -> usize {
        blocks.held().load(Ordering::Relaxed)
    }

    fn bytes_of(kept: &BlockBytes) -> Vec<u8> {
        let mut bytes = Vec::new();
        kept.append_to(&mut bytes);
        bytes
    }

    #[test]
    fn the_first_copies_are_plain() {
        let mut blocks = StackBlocks::default();
        let stack = [7; 32 << 10];
        let mut keep = || blocks.keep(1, StackPart::Copy, 0x7ffc_0000_0123, &stack);
        let first: Vec<KeptBytes> = (0..MAX_PLAIN / stack.len()).map(|_| keep()).collect();
        let are_plain = first.iter().all(|kept| match kept {
            KeptBytes::Plain(plain) => plain.bytes() == stack,
            KeptBytes::Blocks(_) => false,
        });
        assert!(are_plain);
        let next = [keep(), keep()];
        assert!(next.iter().all(|kept| matches!(kept, KeptBytes::Blocks(_))));
        assert!((MAX_PLAIN..MAX_PLAIN + (64 << 10)).contains(&held(&blocks)));
        drop(first);
        assert!(held(&blocks) < 64 << 10);
        let again = blocks.keep(1, StackPart::Copy, 0, &stack);
        assert!(matches!(again, KeptBytes::Plain(_)));
        drop((next, again));
        blocks.clear();
        assert_eq!(held(&blocks), 0);
    }

    #[test]
    fn equal_parts_of_a_threads_stacks_are_kept_once() {
        let mut blocks = StackBlocks::default();
        let mut stack: Vec<u8> = (0..64 << 10).map(|i: usize| (i / 7) as u8).collect();
        let first = blocks.keep_blocks(1, StackPart::Copy, 0x7ffc_0000_0123, &stack);
        let once = held(&blocks);
        assert!(once >= stack.len() && once < stack.len() * 5 / 4, "{once}");
        let before = stack.clone();
        stack[70] ^= 1;
        stack[40_000] ^= 1;
        let second = blocks.keep_blocks(1, StackPart::Copy, 0x7ffc_0000_0123, &stack);
        assert!(held(&blocks) < once + 5 * BLOCK, "{}", held(&blocks));
        // A deeper stack has the older bytes behind its own.
        let deeper = [&[9; 640][..], &stack].concat();
        let third = blocks.keep_blocks(1, StackPart::Copy, 0x7ffc_0000_0123 - 640, &deeper);
        assert!(held(&blocks) < once + 10 * BLOCK, "{}", held(&blocks));
        // Another thread has its own.
        let other = blocks.keep_blocks(2, StackPart::Copy, 0x7ffc_0000_0123, &stack);
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
    fn parts_of_a_stack_that_overlap_are_kept_once() {
        let mut blocks = StackBlocks::default();
        let stack: Vec<u8> = (0..64 << 10).map(|i: usize| (i / 7) as u8).collect();
        let keep = |blocks: &mut StackBlocks| {
            let copy = blocks.keep_blocks(1, StackPart::Copy, 0x7ffc_0000_0680, &stack[..27_008]);
            let first =
                blocks.keep_blocks(1, StackPart::Chunk(0), 0x7ffc_0000_6000, &stack[..0x8000]);
            let next =
                blocks.keep_blocks(1, StackPart::Chunk(1), 0x7ffc_0000_e000, &stack[..0x1000]);
            [copy, first, next]
        };
        let kept = keep(&mut blocks);
        let once = held(&blocks);
        let again = keep(&mut blocks);
        assert_eq!(held(&blocks), once);
        drop((kept, again));
    }

    #[test]
    fn threads_and_blocks_that_are_compared_are_bounded() {
        let mut blocks = StackBlocks::default();
        for tid in 0..3000 {
            blocks.keep_blocks(tid, StackPart::Copy, 0x1000, &[1; 4096]);
        }
        assert!(held(&blocks) <= MAX_THREADS * 4096 * 3 / 2, "{}", held(&blocks));
        blocks.clear();
        for i in 0..100 {
            blocks.keep_blocks(1, StackPart::Copy, i << 20, &[1; 1 << 20]);
        }
        assert!(held(&blocks) <= 6 << 20, "{}", held(&blocks));
        assert!(
            bytes_of(&blocks.keep_blocks(1, StackPart::Copy, u64::MAX - 99, &[7; 100])) == [7; 100]
        );
        assert!(bytes_of(&blocks.keep_blocks(1, StackPart::Copy, 0, &[])).is_empty());
    }
}
