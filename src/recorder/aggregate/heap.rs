//! What the library in the program says of its heap.

use rustc_hash::FxHashMap;

use super::{Aggregator, Scratch};
use crate::recorder::exits::Looked;
use crate::recorder::heap::{Allocated, Heap};
use crate::recorder::writers::Writers;
use crate::sampler::Stacks;
use heap::{Allocation, Record, Shared};
use profile::LocationId;
use sys::record;
use sys::record::{Sample, UserStack};
use unwind::Frame;

/// Processes whose functions that call the allocator are known at most.
const MAX_PROCESSES: usize = 4096;

/// What the heap's samples need besides what all need.
#[derive(Default)]
pub struct HeapTaker {
    heap: Option<Heap>,
    writers: Writers,
    /// Functions that call the allocator for others, by process: where each begins and ends.
    wrappers: FxHashMap<i32, Vec<(u64, u64)>>,
    /// The whole stack, outermost first.
    stack: Vec<LocationId>,
}

impl HeapTaker {
    /// Takes in a record of the kernel's; true if it only tells which process it is that writes
    /// to the shared memory.
    pub fn shows(&mut self, record: &record::Record<'_>) -> bool {
        self.heap.is_some() && self.writers.record(record)
    }

    /// Takes in that a process has ended or become another program.
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
        if let Some(heap) = &mut self.heap {
            heap.ended(ended);
        }
    }

    /// An address, of the call for a return address, lies in a function that calls the allocator
    /// for another.
    fn is_wrapper(&self, pid: i32, frame: &Frame) -> bool {
        let at = frame.kind.lookup(frame.address);
        let wrappers = self.wrappers.get(&pid).map_or(&[][..], Vec::as_slice);
        wrappers.iter().any(|&(begin, end)| (begin..end).contains(&at))
    }
}

impl Aggregator {
    /// What is allocated is wanted.
    pub fn set_heap(&mut self, heap: Heap) {
        self.heap.heap = Some(heap);
    }

    /// Takes in what was seen of a process that exits.
    pub fn looked_at_exit(&mut self, pid: i32, looked: Looked) {
        if let Some(heap) = &mut self.heap.heap {
            heap.exits(pid, looked);
        }
    }

    /// What was allocated, if that was wanted.
    pub fn heap(&self) -> Option<&Heap> {
        self.heap.heap.as_ref()
    }

    /// The library writes to this memory.
    pub fn set_shared(&mut self, shared: Shared) {
        self.heap.writers.share(shared);
    }

    /// Programs that were started.
    pub fn programs(&self) -> u64 {
        self.heap.writers.programs
    }

    /// How many sampled allocations are not tracked any more since this was asked last.
    pub fn take_ended(&mut self) -> u64 {
        self.heap.heap.as_mut().map_or(0, Heap::take_ended)
    }

    /// Takes in what the library says.
    pub fn heap_record(&mut self, record: &Record<'_>) {
        match record {
            Record::Allocation(allocation) => self.allocation(allocation),
            Record::Free { id, by, temporary } => {
                let pid = self.heap.writers.process(*by).unwrap_or(0);
                if let Some(heap) = &mut self.heap.heap {
                    heap.freed(*id, pid, *temporary);
                }
            }
            Record::Process { by, wrappers } => {
                let Some(pid) = self.heap.writers.process(*by) else { return };
                if self.heap.wrappers.len() < MAX_PROCESSES {
                    let words = wrappers.as_chunks::<8>().0.iter().map(|w| u64::from_ne_bytes(*w));
                    let words: Vec<u64> = words.collect();
                    let pairs = words.as_chunks::<2>().0.iter().map(|&[begin, end]| (begin, end));
                    self.heap.wrappers.insert(pid, pairs.collect());
                }
            }
        }
    }

    fn allocation(&mut self, allocation: &Allocation<'_>) {
        let Some(mut heap) = self.heap.heap.take() else { return };
        let mut scratch = std::mem::take(&mut self.scratch);
        let mut stack = std::mem::take(&mut self.heap.stack);
        let Allocation { id, by, tid, size, interval, tracked, .. } = *allocation;
        let writer = self.heap.writers.process(by);
        heap.counts.unknown += u64::from(writer.is_none());
        let pid = writer.unwrap_or(0);
        let tid = self.heap.writers.thread(by, pid, tid);
        self.stack_of_allocation(allocation, (pid, tid), &mut scratch, &mut stack);
        let labels = self.labels(pid, tid);
        let allocated = Allocated { id, pid, size, interval, tracked };
        heap.allocated(&allocated, &stack, labels, &mut self.builder);
        (self.heap.heap, self.heap.stack, self.scratch) = (Some(heap), stack, scratch);
    }

    /// The stack, outermost first.
    fn stack_of_allocation(
        &mut self,
        allocation: &Allocation<'_>,
        (pid, tid): (i32, i32),
        scratch: &mut Scratch,
        stack: &mut Vec<LocationId>,
    ) {
        let Allocation { time, user, .. } = *allocation;
        let ip = if let UserStack::Native { regs, .. } = user { regs.ip } else { 0 };
        self.counts.of_process(pid);
        self.now = (pid, time);
        scratch.kernel.clear();
        let (callchain, raw, group, id, kernel, period) = Default::default();
        let sample = Sample { id, ip, pid, tid, time, period, group, kernel, callchain, raw, user };
        let end = self.user_frames(&sample, 0, &[], &mut scratch.frames);
        let inner = scratch.frames.iter().take_while(|f| self.heap.is_wrapper(pid, f)).count();
        scratch.frames.drain(..inner.min(scratch.frames.len().saturating_sub(1)));
        if self.stacks == Stacks::None {
            scratch.frames.truncate(1);
        }
        let leaf = self.callers(scratch, end).unwrap_or((None, ip));
        stack.clear();
        stack.extend_from_slice(&scratch.callers);
        stack.push(self.builder.location(leaf.0, leaf.1));
    }

    /// Puts what was allocated into the profile; returns what the user should know.
    pub fn end_of_heap(&mut self) -> Vec<String> {
        let heap = self.heap.heap.take();
        heap.map(|heap| heap.finish(&mut self.builder)).unwrap_or_default()
    }
}
