//! Memory that is read in blocks: the words of an object, and objects that were allocated together, take
//! one system call.

use std::cell::RefCell;

use super::{Memory, ReadError};

/// Bytes of a block, and its alignment. A page has whole blocks: where a word can be read, so can its
/// block.
const BLOCK: usize = 256;

/// Longest read that is served from a block.
const SHORT: usize = 64;

/// Most blocks that are kept.
const MOST: usize = 64;

/// Memory whose blocks are kept after the first reading, until [`Memory::renew`].
pub(crate) struct Blocks<'m> {
    memory: &'m dyn Memory,
    kept: RefCell<Vec<(u64, [u8; BLOCK])>>,
}

impl<'m> Blocks<'m> {
    /// Of which nothing was read yet.
    pub fn new(memory: &'m dyn Memory) -> Blocks<'m> {
        Blocks { memory, kept: RefCell::default() }
    }
}

impl Memory for Blocks<'_> {
    fn read(&self, address: u64, buffer: &mut [u8]) -> Result<(), ReadError> {
        let start = address & !(BLOCK as u64 - 1);
        let at = (address - start) as usize;
        let part = at..at + buffer.len();
        if buffer.len() > SHORT || part.end > BLOCK {
            return self.memory.read(address, buffer);
        }
        let mut kept = self.kept.borrow_mut();
        if let Some((_, block)) = kept.iter().rev().find(|(known, _)| *known == start) {
            buffer.copy_from_slice(&block[part]);
            return Ok(());
        }
        let mut block = [0; BLOCK];
        match self.memory.read(start, &mut block) {
            Ok(()) => {}
            Err(error @ (ReadError::Ended | ReadError::Denied)) => return Err(error),
            // There may be less than a block, of the memory or of what may be read.
            Err(ReadError::Unmapped | ReadError::Budget) => {
                return self.memory.read(address, buffer);
            }
        }
        buffer.copy_from_slice(&block[part]);
        if kept.len() >= MOST {
            kept.clear();
        }
        kept.push((start, block));
        Ok(())
    }

    fn renew(&self) {
        self.kept.borrow_mut().clear();
        self.memory.renew();
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Counted, Recorded};
    use super::*;

    #[test]
    fn words_of_a_block_are_read_at_once_until_they_are_to_be_new() {
        let mut memory = Recorded::default();
        let bytes: Vec<u8> = (0..=255).collect();
        memory.insert(4096, &bytes);
        // Less than a block.
        memory.insert(8192, &[7; 16]);
        let counted = Counted::new(&memory);
        let blocks = Blocks::new(&counted);
        let words: &dyn Memory = &blocks;
        let word = |first: u8| u64::from_le_bytes(std::array::from_fn(|i| first + i as u8));
        assert_eq!([4096, 4104, 4344].map(|at| words.word(at)), [0, 8, 248].map(|w| Ok(word(w))));
        assert_eq!(counted.calls.get(), 1);
        blocks.renew();
        assert_eq!((words.word(4096), counted.calls.get()), (Ok(word(0)), 2));
        // Across the end of a block, and longer than what is kept.
        assert_eq!(words.word(4346), Err(ReadError::Unmapped));
        let mut long = [0; SHORT + 1];
        assert_eq!((blocks.read(4096, &mut long), counted.calls.get()), (Ok(()), 4));
        assert_eq!(words.word(8200), Ok(u64::from_le_bytes([7; 8])));
        assert_eq!(words.word(8208), Err(ReadError::Unmapped));
    }

    #[test]
    fn what_is_left_of_a_budget_is_used_for_words() {
        let value = [7_u64; 64];
        let budget = super::super::Budget { bytes: 100, calls: 10 };
        let memory = super::super::ProcessMemory::new(std::process::id() as i32, budget);
        let blocks = Blocks::new(&memory);
        let words: &dyn Memory = &blocks;
        assert_eq!(words.word(value.as_ptr() as u64), Ok(7));
    }
}
