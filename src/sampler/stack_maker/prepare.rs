//! Stacks that are unwound in advance, from what is known.

use super::stack::Known;
use super::{Scratch, StackMaker};
use sys::ThreadId;
use sys::record::Sample;
use unwind::{Place, StackEnd};

/// Result of unwinding the user stack of a sample.
#[derive(Clone, Copy, Debug)]
pub(super) struct Unwound {
    /// Its end.
    pub end: StackEnd,
    /// The sample has a user stack.
    pub is_counted: bool,
    /// This user may not read the mappings of the process.
    pub hidden: bool,
}

impl Default for Unwound {
    fn default() -> Unwound {
        Unwound { end: StackEnd::Complete, is_counted: false, hidden: false }
    }
}

/// A user stack that was unwound in advance.
#[derive(Clone, Copy, Debug)]
pub(super) struct Prepared {
    thread: ThreadId,
    time: u64,
    unwound: Unwound,
}

impl StackMaker {
    /// Unwinds the stack of a sample in advance, without reading a file, analysing code or waiting.
    /// False if that is not possible; then nothing has changed.
    pub fn prepare(&mut self, sample: &Sample<'_>) -> bool {
        self.forget_unused();
        let thread = sample.thread();
        if sample.pid >= 0 && (self.table.known(sample.pid).is_none() || !self.has_labels(thread)) {
            return false;
        }
        let mut scratch = std::mem::take(&mut self.scratch);
        scratch.split(sample);
        scratch.add_address(sample, self.stacks);
        let (in_kernel, frames) = (scratch.kernel.len(), &mut scratch.frames);
        let unwound = self.unwind(sample, in_kernel, &scratch.chain, frames, Known::Cached);
        let jit_known = scratch.frames.iter().all(|frame| match frame.place {
            Place::Memory { image, .. } => {
                self.table.jit.knows(sample.pid, self.table.images.get(image).pid)
            }
            _ => true,
        });
        let is_known = jit_known
            && unwound.is_none_or(|unwound| {
                let Scratch { frames, merge, .. } = &mut scratch;
                self.knows_interpreter(sample, frames, unwound.end, merge)
            });
        self.scratch = scratch;
        match unwound.filter(|_| is_known) {
            Some(unwound) => {
                self.prepared = Some(Prepared { thread, time: sample.time, unwound });
                true
            }
            None => {
                self.forget_trail();
                false
            }
        }
    }

    /// The stack of this sample, if it was prepared; its frames are in the scratch buffer.
    pub(super) fn take_prepared(&mut self, sample: &Sample<'_>) -> Option<Unwound> {
        let is_of = |p: &Prepared| (p.thread, p.time) == (sample.thread(), sample.time);
        let found = self.prepared.take_if(|prepared| is_of(prepared));
        self.forget_unused();
        found.map(|prepared| prepared.unwound)
    }

    /// Forgets a stack that was prepared, but not used.
    pub(super) fn forget_unused(&mut self) {
        if self.prepared.take().is_some() {
            self.forget_trail();
        }
    }

    /// The last walk of its thread is that of a stack without a trail.
    pub(super) fn forget_trail(&mut self) {
        if let Some(kept) = self.unwinder.kept {
            self.trails[kept.slot].clear();
        }
    }
}
