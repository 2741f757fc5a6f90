//! The last walk of each thread, so that the unchanged part of a stack is not walked again.
//!
//! A step up a stack depends only on the registers, the words that it reads and the mapped code. So
//! when a walk arrives at registers of the previous walk, and all words that its further steps read
//! are unchanged, those steps have the same results. Comparing a word costs 1 ns to 2 ns, a step
//! 100 ns.

use super::Frame;
use crate::AddressKind;
use sys::record::Regs;

/// Number of threads that are remembered.
pub const SLOTS: usize = 16;

/// Most steps that are remembered in all; one takes 120 bytes.
const MAX_STEPS: usize = SLOTS * 4096;

/// Most words that are remembered of a step. Frame pointers and DWARF's usual rules read two, a
/// signal's frame three; a step that reads more is not reused.
const READS: usize = 3;

/// Words that a step read, in order.
#[derive(Clone, Copy, Debug, Default)]
pub struct Reads {
    /// Address and word.
    words: [(u64, u64); READS],
    count: u8,
    /// It read more words than fit, or an unavailable one.
    void: bool,
}

impl Reads {
    /// Records a word.
    pub fn note(&mut self, address: u64, word: Result<u64, ()>) {
        match (word, self.words.get_mut(usize::from(self.count))) {
            (Ok(word), Some(slot)) => {
                *slot = (address, word);
                self.count += 1;
            }
            _ => self.void = true,
        }
    }

    /// Marks the step as dependent on more than the words.
    pub fn void(&mut self) {
        self.void = true;
    }

    /// True if all words are unchanged.
    fn hold(&self, read: &impl Fn(u64) -> Result<u64, ()>) -> bool {
        let words = &self.words[..usize::from(self.count)];
        !self.void && words.iter().all(|&(address, word)| read(address) == Ok(word))
    }
}

/// A step of a walk: its frame, and the words read for the next.
#[derive(Clone, Copy, Debug)]
pub struct Visited {
    /// Registers in this frame.
    pub regs: Regs,
    /// The frame.
    pub frame: Frame,
    /// Words that the step to the caller read.
    pub reads: Reads,
}

/// The last walk of a thread.
#[derive(Default)]
struct LastWalk {
    tid: i32,
    /// [`sys::maps::Regions::version`] at that time.
    version: u64,
    /// Outermost frame first.
    steps: Vec<Visited>,
    /// The outermost frame is the thread's entry.
    whole: bool,
}

/// The last walks of a few threads.
#[derive(Default)]
pub struct Memo {
    last: [LastWalk; SLOTS],
    /// The current walk, innermost frame first.
    steps: Vec<Visited>,
    slot: usize,
    /// Number of steps of the last walk, from the outermost on, that the current one may still
    /// meet.
    left: usize,
    /// Number of steps of the last walk, from the outermost on, that the current one shares.
    kept: usize,
}

/// Common part of a stack and the previous one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kept {
    /// Slot of the previous stack: the last one with this number, below [`SLOTS`].
    pub slot: usize,
    /// Number of equal frames, from the outermost on; 0 unless both stacks are complete.
    pub frames: usize,
}

/// Result of following the last walk.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Lead {
    /// Nothing in common: go on walking.
    None,
    /// Up to this frame, which has been added; its own step is still to be made.
    To(Regs, Frame),
    /// Up to the thread's entry.
    Entry,
}

impl Memo {
    /// Begins a walk.
    pub fn begin(&mut self, tid: i32, version: u64) {
        self.steps.clear();
        self.slot = tid as usize % SLOTS;
        let last = &mut self.last[self.slot];
        if (last.tid, last.version) != (tid, version) {
            (last.tid, last.version) = (tid, version);
            last.steps.clear();
        }
        (self.left, self.kept) = (last.steps.len(), 0);
    }

    /// Follows the last walk from these registers, as long as memory is unchanged; at most to `max`
    /// frames in all.
    pub fn follow(
        &mut self,
        regs: Regs,
        kind: AddressKind,
        read: impl Fn(u64) -> Result<u64, ()>,
        frames: &mut Vec<Frame>,
        max: usize,
    ) -> Lead {
        let last = &self.last[self.slot];
        // The stack grows downwards, so both walks go up.
        while self.left > 0 && last.steps[self.left - 1].regs.sp < regs.sp {
            self.left -= 1;
        }
        let Some(met) = self.left.checked_sub(1) else { return Lead::None };
        let here = &last.steps[met];
        if here.regs != regs || here.frame.kind != kind || frames.len() + met >= max {
            return Lead::None;
        }
        // The step of the outermost frame led nowhere, unless that is the thread's entry.
        let met_steps = &last.steps[usize::from(!last.whole)..=met];
        let changed = met_steps.iter().rposition(|s| !s.reads.hold(&read));
        let changed = changed.map(|i| i + usize::from(!last.whole)).or((!last.whole).then_some(0));
        let first = changed.unwrap_or(0);
        frames.extend(last.steps[first..=met].iter().rev().map(|s| s.frame));
        self.left = first;
        match changed {
            None => {
                self.kept = met + 1;
                Lead::Entry
            }
            Some(i) => {
                self.steps.extend(last.steps[i + 1..=met].iter().rev());
                Lead::To(last.steps[i].regs, last.steps[i].frame)
            }
        }
    }

    /// Part that the finished walk took over from the last one.
    pub fn kept(&self) -> Kept {
        Kept { slot: self.slot, frames: self.kept }
    }

    /// Steps of the current walk so far, innermost frame first.
    pub fn steps(&self) -> &[Visited] {
        &self.steps
    }

    /// Steps of the previous walk, outermost frame first.
    pub fn last_steps(&self) -> &[Visited] {
        &self.last[self.slot].steps
    }

    /// Adds a step.
    pub fn note(&mut self, step: Visited) {
        self.steps.push(step);
    }

    /// Ends the walk; `whole`: at the thread's entry.
    pub fn finish(&mut self, whole: bool) {
        let last = &mut self.last[self.slot];
        last.steps.truncate(self.kept);
        last.steps.extend(self.steps.drain(..).rev());
        last.whole = whole;
        // Only many very deep stacks exceed the limit; the stack of this walk is needed next.
        let room = |last: &LastWalk| last.steps.capacity();
        if room(&self.last[self.slot]) > MAX_STEPS / SLOTS
            && self.last.iter().map(room).sum::<usize>() > MAX_STEPS
        {
            let others = self.last.iter_mut().enumerate().filter(|(i, _)| *i != self.slot);
            others.for_each(|(_, last)| last.steps = Vec::new());
        }
    }
}
