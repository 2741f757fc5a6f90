//! Stack memory beyond the copy that came with a sample, read from the process while it lives.
//!
//! What is read is a little younger than the sample. The outer frames of a deep stack hardly
//! ever change in so short a time, and a walk through memory that did change ends nowhere: only
//! one that reaches the thread's entry counts, and the sample says so.
//!
//! What is read for one sample serves all that are older than that moment: a deep stack costs one
//! read of its memory for each look at the rings. The last samples of a process that has ended
//! are sometimes among them.

use crate::os;

/// Bytes read at a time; a multiple of the page size.
const BLOCK: usize = 16 << 10;

/// The least that is there or not.
const PAGE: u64 = 4096;

/// Blocks kept: 8 MiB, the usual limit of a stack. A block lies where its address says, so those
/// of one stack are not in each other's way.
const BLOCKS: usize = 512;

/// Blocks read for one walk at most: 10 MiB.
const MAX_READS: usize = 640;

struct Block {
    pid: i32,
    /// It was read then or a little later (`CLOCK_MONOTONIC`, nanoseconds).
    time: u64,
    address: u64,
    /// What could be read of it begins and ends here.
    from: usize,
    to: usize,
    bytes: [u8; BLOCK],
}

/// Memory that was read.
#[derive(Default)]
pub struct Live {
    pid: i32,
    blocks: Vec<Option<Box<Block>>>,
    /// When the rings were looked at last.
    now: u64,
    /// Time of the current walk's sample.
    sampled: u64,
    /// The current walk has asked for something, and got something.
    asked: bool,
    got: bool,
    /// Blocks read for the current walk.
    reads: usize,
}

impl Live {
    /// The rings are looked at, and it is `now` (`CLOCK_MONOTONIC`, nanoseconds).
    pub fn look(&mut self, now: u64) {
        self.now = now;
    }

    /// Begins a walk up the stack of a process's sample at that time.
    pub fn begin(&mut self, pid: i32, sampled: u64) {
        (self.pid, self.sampled, self.asked, self.reads) = (pid, sampled, false, 0);
        self.got = false;
    }

    /// Something was asked for in this walk.
    pub fn was_read(&self) -> bool {
        self.asked
    }

    /// Something was there.
    pub fn was_there(&self) -> bool {
        self.got
    }

    /// The word at an address.
    pub fn word(&mut self, address: u64) -> Result<u64, ()> {
        let start = address & !(BLOCK as u64 - 1);
        let slot = (start / BLOCK as u64) as usize % BLOCKS;
        let (pid, sampled) = (self.pid, self.sampled);
        self.asked = true;
        let is_it = |b: &&Block| (b.address, b.pid) == (start, pid) && b.time >= sampled;
        let known = self.blocks.get(slot).and_then(Option::as_deref).filter(is_it);
        let block = match known {
            Some(block) => block,
            None => self.read(start, slot, address)?,
        };
        let at = (address - start) as usize;
        let there = block.bytes.get(at..block.to).filter(|_| at >= block.from);
        let word = there.and_then(|b| b.first_chunk()).map(|w| u64::from_le_bytes(*w));
        self.got |= word.is_some();
        word.ok_or(())
    }

    /// Reads a block, in which this address is needed.
    fn read(&mut self, start: u64, slot: usize, needed: u64) -> Result<&Block, ()> {
        if self.reads >= MAX_READS {
            return Err(());
        }
        self.reads += 1;
        if self.blocks.is_empty() {
            self.blocks.resize_with(BLOCKS, || None);
        }
        let block = self.blocks[slot].get_or_insert_with(|| {
            Box::new(Block { pid: 0, time: 0, address: 0, from: 0, to: 0, bytes: [0; BLOCK] })
        });
        // Never again for this sample, should its time be in the future.
        (block.pid, block.address) = (self.pid, start);
        block.time = self.now.max(self.sampled);
        // The mapping may begin within the block. One that cannot be read is remembered, too: it
        // is not asked for again.
        let page = ((needed & !(PAGE - 1)) - start) as usize;
        for from in [0, page] {
            let into = &mut block.bytes[from..];
            let length = os::read_memory(self.pid, start + from as u64, into).unwrap_or(0);
            (block.from, block.to) = (from, from + length);
            if length > 0 {
                break;
            }
        }
        Ok(block)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_this_process() -> Live {
        let mut live = Live::default();
        live.look(10);
        live.begin(std::process::id() as i32, 9);
        live
    }

    #[test]
    fn words_of_a_living_process_are_read_until_its_memory_ends() {
        let words: Vec<u64> = (0..10_000).collect();
        let at = |i: usize| &raw const words[i] as u64;
        let mut live = of_this_process();
        assert!(!live.was_read());
        for i in [0, 1, 9_999, 5_000] {
            assert_eq!(live.word(at(i)), Ok(i as u64));
        }
        assert!(live.was_read());
        assert_eq!(live.word(8), Err(()));
        assert_eq!(live.word(u64::MAX - 7), Err(()));
        live.begin(i32::MAX, 9);
        assert!(!live.was_read());
        assert_eq!(live.word(at(0)), Err(()), "no such process");
    }

    #[test]
    fn what_was_read_serves_older_samples() {
        let words = Box::new(std::sync::atomic::AtomicU64::new(1));
        let at = words.as_ptr() as u64;
        let mut live = of_this_process();
        assert_eq!(live.word(at), Ok(1));
        words.store(2, std::sync::atomic::Ordering::Relaxed);
        live.look(20);
        live.begin(std::process::id() as i32, 10);
        assert_eq!(live.word(at), Ok(1));
        assert!(live.was_read());
        live.begin(std::process::id() as i32, 11);
        assert_eq!(live.word(at), Ok(2));
    }

    /// As much as the usual limit of a stack, whatever was read before.
    #[test]
    fn a_whole_stack_is_read_and_no_more_than_that_is_kept() {
        let words: Vec<u64> = (0..(12 << 20) / 8).collect();
        let at = |i: usize| &raw const words[i] as u64;
        let mut live = of_this_process();
        let each_page = (0..words.len()).step_by(512);
        let got = each_page.clone().take_while(|&i| live.word(at(i)) == Ok(i as u64)).count();
        assert!(got * 512 * 8 >= 8 << 20, "{got} pages");
        assert!(got < each_page.count(), "a walk reads without end");
        assert!(live.blocks.len() == BLOCKS && live.blocks.iter().all(Option::is_some));
    }
}
