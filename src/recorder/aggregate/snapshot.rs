//! Threads as they are at one moment, whatever they do.

use std::io;

use super::{Aggregator, Innermost, Scratch, ThreadState};
use crate::os;
use crate::process::procfs;
use crate::profile::Column;
use crate::sampler::record::{AllRegs, Regs, Sample, UserStack};

/// Bytes that are copied at once of the stack of a thread that sleeps.
const SNAPSHOT: usize = 64 << 10;

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
        let (leaf, later) = self.stack(sample, &mut scratch);
        let state = Some(ThreadState::Running);
        let labels = self.labels_of(sample.pid, sample.tid, later, state);
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
        if let Ok(Some((leaf, later))) = stack {
            let labels = self.labels_of(pid, tid, later, Some(state));
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
        let labels = self.labels_of(pid, tid, false, Some(state));
        let nowhere = [self.builder.named_location(why)];
        self.builder.add_stack(&nowhere, None, labels, column.map(|c| (c, 1)).as_slice());
    }

    /// The stack of a thread that sleeps in the kernel, which is read without disturbing it;
    /// `None`: it does not sleep there, or not any more.
    ///
    /// # Errors
    ///
    /// It has ended, or is not for this user to look at.
    pub(super) fn stack_of_sleeper(
        &mut self,
        pid: i32,
        tid: i32,
        scratch: &mut Scratch,
    ) -> io::Result<Option<(Option<Innermost>, bool)>> {
        let Some(asleep) = procfs::asleep_at(pid, tid)? else { return Ok(None) };
        let in_kernel = procfs::kernel_stack(pid, tid);
        let procfs::Asleep { ip, sp, .. } = asleep;
        // No other register is known, nor needed by most functions that enter the kernel.
        let (regs, all) = (Regs { ip, sp, bp: 0 }, AllRegs::default());
        let mut copy = vec![0; SNAPSHOT];
        // A thread of the kernel has none.
        let length = if sp == 0 { 0 } else { os::read_memory(pid, sp, &mut copy)? };
        if procfs::asleep_at(pid, tid)? != Some(asleep) {
            return Ok(None);
        }
        let (bytes, full) = (&copy[..length], length == copy.len());
        let user =
            if sp == 0 { UserStack::None } else { UserStack::Native { regs, all, bytes, full } };
        let time = os::monotonic_nanos();
        let ((callchain, raw, group), (id, kernel), period) =
            (Default::default(), (0, false), None);
        let sample = Sample { id, ip, pid, tid, time, period, group, kernel, callchain, raw, user };
        let (leaf, later) = self.stack(&sample, scratch);
        if in_kernel.is_empty() {
            return Ok(Some((leaf, later)));
        }
        if let Some((mapping, address)) = leaf.filter(|_| sp != 0) {
            scratch.callers.push(self.builder.location(mapping, address));
        }
        let kernel = self.kernel_mapping();
        for name in in_kernel.iter().rev() {
            scratch.callers.push(self.builder.named_location_in(name, Some(kernel)));
        }
        Ok(Some((None, later)))
    }
}
