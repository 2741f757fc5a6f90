//! Threads as they are at one moment, whatever they do.

use std::io;

use super::{Aggregator, Innermost, Scratch};
use profile::{Column, ThreadState};
use sys::os;
use sys::procfs;
use sys::record::{AllRegs, Regs, Rest, Sample, UserStack};
use unwind::StackEnd;

/// Bytes that are copied of the stack of a thread that sleeps: more, if they turn out to be too few.
const COPIES: [usize; 3] = [64 << 10, 1 << 20, 16 << 20];

/// What came of looking at a thread that seemed to sleep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asleep {
    /// It does, and its stack was taken.
    Taken,
    /// It runs by now, or did in between.
    MovedOn,
}

impl Aggregator {
    /// Takes in a sample of a thread that runs, once in the first column and in `column`.
    pub fn add_running(&mut self, sample: &Sample<'_>, column: Option<Column>) {
        let mut scratch = std::mem::take(&mut self.scratch);
        let leaf = self.stack(sample, &mut scratch);
        let state = Some(ThreadState::Running);
        let labels = self.labels_of(sample.pid, sample.tid, state);
        self.builder.add_stack(&scratch.callers, leaf, labels, column.map(|c| (c, 1)).as_slice());
        self.scratch = scratch;
    }

    /// Takes in a thread that sleeps, without disturbing it.
    ///
    /// # Errors
    ///
    /// It has ended, or is not for this user to look at.
    pub fn add_asleep(
        &mut self,
        pid: i32,
        tid: i32,
        state: ThreadState,
        column: Option<Column>,
    ) -> io::Result<Asleep> {
        let mut scratch = std::mem::take(&mut self.scratch);
        let stack = self.stack_of_sleeper(pid, tid, &mut scratch);
        if let Ok(Some(leaf)) = stack {
            let labels = self.labels_of(pid, tid, Some(state));
            self.builder.add_stack(
                &scratch.callers,
                leaf,
                labels,
                column.map(|c| (c, 1)).as_slice(),
            );
        }
        self.scratch = scratch;
        Ok(if stack?.is_some() { Asleep::Taken } else { Asleep::MovedOn })
    }

    /// Takes in a thread whose stack is not known, for a reason in brackets.
    pub fn add_nowhere(
        &mut self,
        pid: i32,
        tid: i32,
        state: ThreadState,
        why: &str,
        column: Option<Column>,
    ) {
        let labels = self.labels_of(pid, tid, Some(state));
        let nowhere = [self.builder.named_location(why)];
        self.builder.add_stack(&nowhere, None, labels, column.map(|c| (c, 1)).as_slice());
    }

    /// The stack of a thread that sleeps in the kernel, which is read without disturbing it;
    /// `None`: it does not sleep there, or it may have run while its stack was read.
    ///
    /// # Errors
    ///
    /// It has ended, or is not for this user to look at.
    pub(super) fn stack_of_sleeper(
        &mut self,
        pid: i32,
        tid: i32,
        scratch: &mut Scratch,
    ) -> io::Result<Option<Option<Innermost>>> {
        for (i, size) in COPIES.into_iter().enumerate() {
            let before = (self.counts.user_stacks, self.counts.ends);
            let (leaf, full) = self.stack_of_sleeper_within(pid, tid, size, scratch)?;
            let more = self.counts.ends[StackEnd::DumpTooSmall as usize]
                > before.1[StackEnd::DumpTooSmall as usize];
            if leaf.is_none() || !full || !more || i + 1 == COPIES.len() {
                return Ok(leaf);
            }
            (self.counts.user_stacks, self.counts.ends) = before;
        }
        Ok(None)
    }

    /// The same with a copy of at most this many bytes; whether it has that many.
    fn stack_of_sleeper_within(
        &mut self,
        pid: i32,
        tid: i32,
        size: usize,
        scratch: &mut Scratch,
    ) -> io::Result<(Option<Option<Innermost>>, bool)> {
        // A thread that sleeps before and after and was not switched out in between did not run.
        let switches = procfs::switches(pid, tid);
        let Some(asleep) = procfs::asleep_at(pid, tid)? else { return Ok((None, false)) };
        let in_kernel = procfs::kernel_stack(pid, tid);
        let procfs::Asleep { ip, sp, .. } = asleep;
        // No other register is known, nor needed by most functions that enter the kernel.
        let (regs, all) = (Regs { ip, sp, bp: 0 }, AllRegs::default());
        let mut copy = vec![0; size];
        // A thread of the kernel has none.
        let length = if sp == 0 { 0 } else { os::read_memory(pid, sp, &mut copy)? };
        let same = procfs::asleep_at(pid, tid)? == Some(asleep);
        if !same || switches.is_none() || procfs::switches(pid, tid) != switches {
            return Ok((None, false));
        }
        let (bytes, full, rest) = (&copy[..length], length == copy.len(), Rest::default());
        let user = match sp {
            0 => UserStack::None,
            _ => UserStack::Native { regs, all, bytes, full, rest },
        };
        let time = os::monotonic_nanos();
        let ((callchain, raw, group), (id, kernel), period) =
            (Default::default(), (0, false), None);
        let sample = Sample { id, ip, pid, tid, time, period, group, kernel, callchain, raw, user };
        let leaf = self.stack(&sample, scratch);
        if in_kernel.is_empty() {
            return Ok((Some(leaf), full));
        }
        if let Some((mapping, address)) = leaf.filter(|_| sp != 0) {
            scratch.callers.push(self.builder.location(mapping, address));
        }
        let kernel = self.kernel_mapping();
        for name in in_kernel.iter().rev() {
            scratch.callers.push(self.builder.named_location_in(name, Some(kernel)));
        }
        Ok((Some(None), full))
    }
}
