//! Builds the stacks of allocations from the library's records.

use rustc_hash::FxHashMap;

use super::model::{Allocated, HeapModel};
use super::writers::Writers;
use crate::sampler::stack_maker::StackMaker;
use heap::{Allocation, AllocationRecord};
use profile::LocationId;
use sys::record::{Sample, UserStack};
use sys::{ProcessAddress, ThreadId, record};
use unwind::Frame;

/// Maximum number of processes whose allocator wrappers are cached.
const MAX_PROCESSES: usize = 4096;

/// Addresses of a function in a process, end exclusive.
type FunctionRange = std::ops::Range<u64>;

/// Builds the stacks of allocations.
pub struct HeapStacks {
    /// The model to which the stacks are added.
    pub model: HeapModel,
    /// Identifies the writers of the shared memory.
    pub writers: Writers,
    /// Functions that call the allocator on behalf of others, by process.
    wrappers: FxHashMap<i32, Vec<FunctionRange>>,
    /// The complete stack, outermost first.
    stack: Vec<LocationId>,
}

impl HeapStacks {
    /// For this model.
    pub fn new(model: HeapModel) -> HeapStacks {
        HeapStacks {
            model,
            writers: Writers::default(),
            wrappers: FxHashMap::default(),
            stack: Vec::new(),
        }
    }

    /// Handles the end of a process or its `execve`.
    pub fn record(&mut self, record: &record::Record<'_>) {
        let ended = match *record {
            record::Record::Exit { pid, tid, .. } if pid == tid => pid,
            record::Record::Comm { pid, exec: true, .. } => pid,
            _ => return,
        };
        self.wrappers.remove(&ended);
        if matches!(record, record::Record::Exit { .. }) {
            self.writers.ended(ended);
        }
        self.model.ended(ended);
    }

    /// Adds a record of the library.
    pub fn take_in(&mut self, maker: &mut StackMaker, record: &AllocationRecord<'_>) {
        match record {
            AllocationRecord::Allocation(allocation) => self.allocation(maker, allocation),
            AllocationRecord::Free { id, by, temporary } => {
                let pid = self.writers.process(*by).unwrap_or(0);
                self.model.freed(*id, pid, *temporary);
            }
            AllocationRecord::Process { by, wrappers } => {
                let Some(pid) = self.writers.process(*by) else { return };
                if self.wrappers.len() < MAX_PROCESSES {
                    let words = wrappers.as_chunks::<8>().0.iter().map(|w| u64::from_ne_bytes(*w));
                    let words: Vec<u64> = words.collect();
                    let pairs = words.as_chunks::<2>().0.iter();
                    self.wrappers.insert(pid, pairs.map(|&[begin, end]| begin..end).collect());
                }
            }
        }
    }

    fn allocation(&mut self, maker: &mut StackMaker, allocation: &Allocation<'_>) {
        let Allocation { id, by, tid, size, interval, tracked, .. } = *allocation;
        let writer = self.writers.process(by);
        self.model.counts.unknown += u64::from(writer.is_none());
        let pid = writer.unwrap_or(0);
        let thread = ThreadId { pid, tid: self.writers.thread(by, pid, tid) };
        self.make_stack(maker, allocation, thread);
        let labels = maker.labels(thread);
        let allocated = Allocated { id, pid, size, interval, tracked };
        self.model.allocated(&allocated, &self.stack, labels, &mut maker.builder);
    }

    /// Removes the frames of allocator wrappers.
    fn make_stack(
        &mut self,
        maker: &mut StackMaker,
        allocation: &Allocation<'_>,
        thread: ThreadId,
    ) {
        let Allocation { time, user, .. } = *allocation;
        let ip = if let UserStack::Native { regs, .. } = user { regs.ip } else { 0 };
        let wrappers = self.wrappers.get(&thread.pid).map_or(&[][..], Vec::as_slice);
        let is_wrapper = |frame: &Frame| {
            let ProcessAddress(at) = frame.instruction();
            wrappers.iter().any(|function| function.contains(&at))
        };
        maker.make_stack_without(&Sample::with_user_stack(thread, time, ip, user), is_wrapper);
        maker.last_locations(&mut self.stack);
    }
}
