//! A record of an allocation, copied out of the ring and checked.

#![allow(unsafe_code)]

use std::sync::atomic::Ordering::Relaxed;

use memmap2::MmapRaw;

use super::super::layout::granule;
use super::super::layout::{GRANULE, Kind, MAX_STACK, StackRecord, register};
use super::memory::{Damaged, bytes_of, ring};
use super::records::{Allocation, AllocationRecord, Writer};
use super::stacks::StackQueue;
use super::times::ReadBounds;
use sys::arch::REGISTERS;
use sys::record::{AllRegs, Regs, Rest, UserStack};

/// A record that was copied out of the ring.
pub struct Copied {
    record: StackRecord,
    stack: Vec<u64>,
}

impl Copied {
    /// Without a record.
    pub fn new() -> Copied {
        Copied { record: StackRecord::default(), stack: vec![0; MAX_STACK / 8 + 1] }
    }

    /// Copies a record of `count` granules from the first on.
    pub fn take(&mut self, memory: &MmapRaw, first: usize, count: u64) -> Result<(), Damaged> {
        const WORDS: usize = size_of::<StackRecord>() / 8;
        let first = first * (GRANULE / 8);
        let from = ring(memory).get(first..first + count as usize * (GRANULE / 8));
        let (head, stack) = from.unwrap_or_default().split_at_checked(WORDS).unwrap_or_default();
        let mut words = [0; WORDS];
        words.iter_mut().zip(head).for_each(|(to, from)| *to = from.load(Relaxed));
        // SAFETY: the same number of bytes, of plain numbers, for which any bits are valid.
        self.record = unsafe { std::mem::transmute::<[u64; WORDS], StackRecord>(words) };
        let length = self.record.length as usize;
        if head.len() < WORDS || length > (8 * stack.len()).min(MAX_STACK) {
            return Err("a stack is longer than its record");
        }
        let pairs = self.stack.iter_mut().zip(&stack[..length.div_ceil(8)]);
        pairs.for_each(|(to, from)| *to = from.load(Relaxed));
        Ok(())
    }

    /// Passes on late records that are complete now, if it is time for that.
    pub fn take_late(
        &mut self,
        stacks: &mut StackQueue,
        memory: &MmapRaw,
        times: ReadBounds,
        over: bool,
        consume: &mut impl FnMut(AllocationRecord<'_>),
    ) -> Result<(), Damaged> {
        while let Some((position, word)) = stacks.late(memory, times, over) {
            self.take(memory, stacks.place(position), granule::count(word))?;
            stacks.pass_late(memory, position, word);
            self.pass_on(consume)?;
        }
        Ok(())
    }

    /// Passes the record on.
    pub fn pass_on(&self, consume: &mut impl FnMut(AllocationRecord<'_>)) -> Result<(), Damaged> {
        const ALLOCATION: u32 = Kind::Allocation as u32;
        const UNTRACKED: u32 = Kind::Untracked as u32;
        const PROCESS: u32 = Kind::Process as u32;
        let record = &self.record;
        let stack = &bytes_of(&self.stack)[..record.length as usize];
        let by = Writer { number: record.process, pid: record.pid };
        match record.kind {
            ALLOCATION | UNTRACKED => {
                let registers = all_registers(&record.registers);
                let all = AllRegs::new(bytes_of(&registers));
                let [ip, sp, bp] = [register::IP, register::SP, register::BP];
                let [ip, sp, bp] = [ip, sp, bp].map(|i| record.registers[i]);
                let full = stack.len() == MAX_STACK;
                let user = UserStack::Native {
                    regs: Regs { ip, sp, bp },
                    all,
                    bytes: stack,
                    full,
                    rest: Rest::default(),
                };
                consume(AllocationRecord::Allocation(Allocation {
                    id: record.id,
                    time: record.time,
                    by,
                    tid: record.tid,
                    size: record.size,
                    interval: record.interval,
                    tracked: record.kind == ALLOCATION,
                    user,
                }));
            }
            PROCESS => consume(AllocationRecord::Process { by, wrappers: stack }),
            _ => return Err("a record is of an unknown kind"),
        }
        Ok(())
    }
}

/// In the kernel's order; registers that a callee may change are 0.
fn all_registers(kept: &[u64; register::COUNT]) -> [u64; REGISTERS] {
    let mut all = [0; REGISTERS];
    register::IN_SAMPLES.into_iter().zip(kept).for_each(|(at, value)| all[at] = *value);
    all
}
