//! Stacks of sleeping threads, read from outside.

use std::io;

use super::{PendingStack, Scratch, StackMaker};
use crate::sampler::interpreters::Origin;
use sys::record::{AllRegs, Regs, Rest, Sample, UserStack};
use sys::{ThreadId, os, procfs};
use unwind::StackEnd;

/// Number of bytes that are copied of the stack of a sleeping thread: the next one if the stack is
/// larger.
const COPIES: [usize; 3] = [64 << 10, 1 << 20, 16 << 20];

/// In place of a stack.
const RUNS_AGAIN: &str = "[stack not known: it went on as the recording ended]";

impl StackMaker {
    /// Builds the stack of a thread that sleeps in the kernel, without disturbing it; false if it
    /// does not sleep there, or may have run while its stack was read.
    ///
    /// # Errors
    ///
    /// The thread has exited, or this user may not read it.
    pub fn make_stack_of_sleeper(&mut self, thread: ThreadId) -> io::Result<bool> {
        let mut scratch = std::mem::take(&mut self.scratch);
        let made = self.try_copies(thread, &mut scratch);
        self.scratch = scratch;
        made
    }

    /// The stack of a thread that waited when the recording ended, and may run again now.
    pub fn stack_of_waiting(&mut self, thread: ThreadId) -> PendingStack {
        match self.make_stack_of_sleeper(thread) {
            Ok(true) => self.last.clone(),
            _ => PendingStack::single(self.builder.named_location(RUNS_AGAIN)),
        }
    }

    /// If its process has an interpreter, the first stack is native: it tells that.
    fn try_copies(&mut self, thread: ThreadId, scratch: &mut Scratch) -> io::Result<bool> {
        let is_known = self.interpreters.has_runtime(thread.pid);
        let counts = (self.counts.user_stacks, self.counts.ends, self.interpreters.counts);
        let made = self.try_sizes(thread, scratch)?;
        if is_known || !made || !self.interpreters.has_runtime(thread.pid) {
            return Ok(made);
        }
        (self.counts.user_stacks, self.counts.ends, self.interpreters.counts) = counts;
        self.try_sizes(thread, scratch)
    }

    fn try_sizes(&mut self, thread: ThreadId, scratch: &mut Scratch) -> io::Result<bool> {
        for (i, size) in COPIES.into_iter().enumerate() {
            let before = (self.counts.user_stacks, self.counts.ends, self.interpreters.counts);
            let copied = self.try_copy(thread, size, scratch)?;
            let cut = self.counts.ends[StackEnd::DumpTooSmall as usize]
                > before.1[StackEnd::DumpTooSmall as usize];
            match copied {
                SleeperCopy::Full if cut && i + 1 < COPIES.len() => {
                    (self.counts.user_stacks, self.counts.ends, self.interpreters.counts) = before;
                }
                SleeperCopy::Full | SleeperCopy::Whole => return Ok(true),
                SleeperCopy::No => return Ok(false),
            }
        }
        Ok(false)
    }

    /// Like [`StackMaker::make_stack_of_sleeper`], with a copy of at most `size` bytes.
    fn try_copy(
        &mut self,
        thread: ThreadId,
        size: usize,
        scratch: &mut Scratch,
    ) -> io::Result<SleeperCopy> {
        // A thread that sleeps before and after, and was not switched out in between, did not run.
        let switches = procfs::switches(thread);
        let Some(asleep) = procfs::asleep_at(thread)? else { return Ok(SleeperCopy::No) };
        let in_kernel = procfs::kernel_stack(thread);
        let procfs::Asleep { ip, sp, .. } = asleep;
        let walked = self.interpreters.walk_sleeper(thread, asleep);
        let mut copy = vec![0; size];
        // A kernel thread has none.
        let length = if sp == 0 { 0 } else { os::read_memory(thread.pid, sp, &mut copy)? };
        let same = procfs::asleep_at(thread)? == Some(asleep);
        if !same || switches.is_none() || procfs::switches(thread) != switches {
            return Ok(SleeperCopy::No);
        }
        let full = length == copy.len();
        let user = match sp {
            0 => UserStack::None,
            _ => UserStack::Native {
                // Other registers are unknown, and most functions that enter the kernel do not need
                // them.
                regs: Regs { ip, sp, bp: 0 },
                all: AllRegs::default(),
                bytes: &copy[..length],
                full,
                rest: Rest::default(),
            },
        };
        let sample = Sample::with_user_stack(thread, os::monotonic_nanos(), ip, user);
        let sample = Sample { walked: &walked, ..sample };
        scratch.split(&sample);
        self.make_from_chain(&sample, Origin::Elsewhere, scratch);
        if !in_kernel.is_empty() {
            self.put_kernel_functions_below(&in_kernel, sp != 0);
        }
        Ok(if full { SleeperCopy::Full } else { SleeperCopy::Whole })
    }

    /// Adds the kernel functions in which a thread sleeps, innermost first, to its user stack, if
    /// it has one.
    fn put_kernel_functions_below(&mut self, functions: &[String], has_user_stack: bool) {
        let innermost = self.last.innermost.take().filter(|_| has_user_stack);
        if let Some((mapping, address)) = innermost {
            self.last.callers.push(self.builder.location(mapping, address));
        }
        let kernel = self.kernel_mapping();
        for name in functions.iter().rev() {
            self.last.callers.push(self.builder.named_location_in(name, Some(kernel)));
        }
    }
}

/// The result of copying a stack.
enum SleeperCopy {
    /// A stack from a full copy: there may be more.
    Full,
    /// A stack from a complete copy.
    Whole,
    /// None: the thread does not sleep, or may have run in the meantime.
    No,
}
