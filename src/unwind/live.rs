//! Stack memory beyond the copy that came with a sample, read from the process while it lives.
//!
//! What is read is a little younger than the sample. The outer frames of a deep stack hardly
//! ever change in so short a time, and a walk through memory that did change ends nowhere: only
//! one that reaches the thread's entry counts, and the sample says so.

use crate::os;

/// Bytes read at a time; a multiple of the page size.
const BLOCK: usize = 16 << 10;

/// Blocks of one walk: a megabyte.
const MAX_BLOCKS: usize = 64;

struct Block {
    address: u64,
    /// Bytes of it that could be read.
    length: usize,
    bytes: Box<[u8; BLOCK]>,
}

/// What was read for the current walk.
#[derive(Default)]
pub struct Live {
    pid: i32,
    blocks: Vec<Block>,
    /// Blocks of the current walk; the others' memory is used again.
    used: usize,
}

impl Live {
    /// Begins a walk: nothing that was read before counts.
    pub fn begin(&mut self, pid: i32) {
        (self.pid, self.used) = (pid, 0);
    }

    /// Something was read for this walk.
    pub fn was_read(&self) -> bool {
        self.used > 0
    }

    /// The word at an address.
    pub fn word(&mut self, address: u64) -> Result<u64, ()> {
        let start = address & !(BLOCK as u64 - 1);
        // A walk goes up, so the last block is the likely one.
        let known = self.blocks[..self.used].iter().rposition(|b| b.address == start);
        let block = match known {
            Some(i) => &self.blocks[i],
            None => self.read(start)?,
        };
        let at = (address - start) as usize;
        let word = block.bytes[..block.length].get(at..).and_then(|b| b.first_chunk());
        word.map(|w| u64::from_le_bytes(*w)).ok_or(())
    }

    fn read(&mut self, address: u64) -> Result<&Block, ()> {
        if self.used >= MAX_BLOCKS {
            return Err(());
        }
        if self.used == self.blocks.len() {
            self.blocks.push(Block { address, length: 0, bytes: Box::new([0; BLOCK]) });
        }
        let block = &mut self.blocks[self.used];
        block.address = address;
        // A block that cannot be read is remembered, too: it is not asked for again.
        block.length = os::read_memory(self.pid, address, &mut block.bytes[..]).unwrap_or(0);
        self.used += 1;
        Ok(block)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_a_living_process_are_read_until_its_memory_ends() {
        let words: Vec<u64> = (0..10_000).collect();
        let at = |i: usize| &raw const words[i] as u64;
        let mut live = Live::default();
        live.begin(std::process::id() as i32);
        assert!(!live.was_read());
        for i in [0, 1, 9_999, 5_000] {
            assert_eq!(live.word(at(i)), Ok(i as u64));
        }
        assert!(live.was_read());
        assert_eq!(live.word(8), Err(()));
        assert_eq!(live.word(u64::MAX - 7), Err(()));
        live.begin(i32::MAX);
        assert_eq!(live.word(at(0)), Err(()), "no such process");
    }
}
