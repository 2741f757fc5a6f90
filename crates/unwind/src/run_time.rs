//! Frames of run-time code without frame pointers, by its instructions.
//!
//! The code is read from the process when it is needed first, which is later than the sample. So
//! only memory counts that the process cannot write to: before it can be changed and executed
//! again, the kernel reports it as mapped again, and what was read is not used any more.

use rustc_hash::FxHashMap;

use super::arch;
use super::cfi::Rule;
use super::{AddressKind, Frame};
use sys::maps::{Region, Regions};
use sys::os;

/// Size of a block of code that is read at once, in bytes. A process that ends takes its code with
/// it: what later samples need is mostly in the block of an earlier one.
const BLOCK: u64 = 64 << 10;

/// Most blocks that are kept.
const MAX_BLOCKS: usize = 32;

/// Most blocks that are read in a recording: a compiler may map its code again all the time.
const MAX_READS: u32 = 1 << 16;

/// Most rules that are kept; one takes 64 bytes.
const MAX_RULES: usize = 1 << 14;

/// Most bytes that are analysed from an address on.
const MOST: usize = 64;

/// A part of a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct BlockId {
    /// [`Region::since`].
    since: u64,
    /// Its first address.
    start: u64,
}

/// Code that was read.
struct Block {
    id: BlockId,
    /// Empty if it could not be read.
    bytes: Vec<u8>,
}

/// Code that was read from processes, and its rules.
#[derive(Default)]
pub struct RunTimeCode {
    /// The one used last is the last.
    blocks: Vec<Block>,
    reads: u32,
    /// By [`Region::since`] and the address of an instruction, or of a call's last byte.
    rules: FxHashMap<(u64, u64), Option<Rule>>,
}

impl RunTimeCode {
    /// The rule of a frame in these regions, if it is known and there is one.
    pub fn known_rule(&self, regions: &Regions, frame: Frame) -> Option<Rule> {
        self.known(regions.find(frame.instruction())?, frame)?
    }

    /// The rule of a frame, if its code was needed before.
    pub fn known(&self, region: &Region, frame: Frame) -> Option<Option<Rule>> {
        if region.writable {
            return Some(None);
        }
        self.rules.get(&(region.since, frame.instruction().0)).copied()
    }

    /// The rule of a frame in a region of a process, from its code.
    pub fn rule(&mut self, pid: i32, region: &Region, frame: Frame) -> Option<Rule> {
        let found = self.analyse(pid, region, frame);
        if self.rules.len() >= MAX_RULES {
            self.rules.clear();
        }
        self.rules.insert((region.since, frame.instruction().0), found);
        found
    }

    fn analyse(&mut self, pid: i32, region: &Region, frame: Frame) -> Option<Rule> {
        let start = region.start + (frame.address.0.checked_sub(region.start)? & !(BLOCK - 1));
        let code = self.block(pid, region, start);
        let at = usize::try_from(frame.address.0.checked_sub(start)?).ok()?;
        let (before, from) = code.split_at_checked(at)?;
        let before = &before[before.len().saturating_sub(arch::LONGEST_CALL as usize)..];
        let is_plausible = match frame.kind {
            AddressKind::Instruction => true,
            AddressKind::Return => arch::is_after_call(before, frame.address.0),
        };
        let from = &from[..from.len().min(MOST)];
        is_plausible.then(|| arch::straight_rule(from, frame.kind)).flatten()
    }

    /// The bytes of a block, as far as they could be read.
    fn block(&mut self, pid: i32, region: &Region, start: u64) -> &[u8] {
        let id = BlockId { since: region.since, start };
        let at = match self.blocks.iter().position(|block| block.id == id) {
            Some(at) => at,
            None => {
                if self.blocks.len() >= MAX_BLOCKS {
                    self.blocks.remove(0);
                }
                let bytes = self.read(pid, start, region.end.saturating_sub(start).min(BLOCK));
                self.blocks.push(Block { id, bytes });
                self.blocks.len() - 1
            }
        };
        self.blocks[at..].rotate_left(1);
        self.blocks.last().map_or(&[], |block| &block.bytes)
    }

    fn read(&mut self, pid: i32, start: u64, size: u64) -> Vec<u8> {
        if self.reads >= MAX_READS {
            return Vec::new();
        }
        self.reads += 1;
        let mut bytes = vec![0; size as usize];
        let read = os::read_memory(pid, start, &mut bytes).unwrap_or_default();
        bytes.truncate(read);
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Place;
    use sys::ProcessAddress;

    /// A trampoline as CPython's.
    const CODE: [u8; 11] = [0x48, 0x83, 0xec, 8, 0xff, 0xd1, 0x48, 0x83, 0xc4, 8, 0xc3];

    /// A region of this process that contains `code`.
    fn region(code: &[u8], since: u64) -> Region {
        let start = code.as_ptr() as u64;
        Region { start, end: start + code.len() as u64, since, ..Region::default() }
    }

    fn frame(address: u64) -> Frame {
        let address = ProcessAddress(address);
        let place = Place::Memory { image: 0, address: address.minus(1) };
        Frame { address, kind: AddressKind::Return, place }
    }

    #[test]
    fn code_is_read_from_its_process_once() {
        let pid = std::process::id() as i32;
        let mut code = RunTimeCode::default();
        // More than a block.
        let mut arena = CODE.repeat(8000);
        let here = region(&arena, 1);
        let after_call = |n: u64| frame(here.start + n * 11 + 6);
        let rule = code.rule(pid, &here, after_call(7000));
        assert!(rule.is_some());
        assert_eq!(code.known(&here, after_call(7000)), Some(rule));
        assert_eq!(code.rule(pid, &here, after_call(1)), rule);
        // Another process has nothing there, and is not read for what is known.
        assert_eq!(code.rule(i32::MAX, &here, after_call(2)), rule);
        assert_eq!(code.reads, 2);
        // Not after a call, at the end of the region, and outside of it.
        for elsewhere in [here.start + 10, here.end, here.end + 6, here.start - 6] {
            assert_eq!(code.rule(pid, &here, frame(elsewhere)), None);
        }
        // It is mapped again, with other code.
        arena.fill(0xcc);
        let again = Region { since: 2, ..here.clone() };
        assert_eq!(code.known(&again, after_call(1)), None);
        assert_eq!(code.rule(pid, &again, after_call(1)), None);
    }

    #[test]
    fn code_that_its_process_can_write_to_is_not_read() {
        let arena = CODE.to_vec();
        let writable = Region { writable: true, ..region(&arena, 1) };
        let code = RunTimeCode::default();
        assert_eq!(code.known(&writable, frame(writable.start + 6)), Some(None));
    }

    #[test]
    fn memory_for_code_is_limited() {
        let pid = std::process::id() as i32;
        let arena = CODE.repeat(10);
        let mut code = RunTimeCode::default();
        for since in 0..100 {
            code.rule(pid, &region(&arena, since), frame(arena.as_ptr() as u64 + 6));
        }
        assert_eq!((code.blocks.len(), code.reads), (MAX_BLOCKS, 100));
        code.reads = MAX_READS;
        assert_eq!(code.rule(pid, &region(&arena, 100), frame(arena.as_ptr() as u64 + 6)), None);
    }
}
