//! The last walk of each thread, so that the part of a stack that has not changed since is not
//! walked again.
//!
//! A step up a stack depends on nothing but the registers, the words that it reads and the code
//! that is mapped. So when a walk arrives at registers at which the walk before was too, and all
//! words that its further steps read are what they were, those steps lead where they led. To
//! compare a word costs a nanosecond or two, a step a hundred.

use super::Frame;
use crate::AddressKind;
use sys::record::Regs;

/// Threads remembered.
pub const SLOTS: usize = 16;

/// Steps remembered in all; one takes 120 bytes.
const MAX_STEPS: usize = SLOTS * 4096;

/// Words remembered of a step. Frame pointers and DWARF's usual rules read two, a signal's frame
/// three; a step that reads more is not taken over.
const READS: usize = 3;

/// What a step read, in order.
#[derive(Clone, Copy, Debug, Default)]
pub struct Reads {
    /// Address and word.
    words: [(u64, u64); READS],
    count: u8,
    /// It read more than fits, or something that is not there.
    void: bool,
}

impl Reads {
    /// Notes what was read.
    pub fn note(&mut self, address: u64, word: Result<u64, ()>) {
        match (word, self.words.get_mut(usize::from(self.count))) {
            (Ok(word), Some(slot)) => {
                *slot = (address, word);
                self.count += 1;
            }
            _ => self.void = true,
        }
    }

    /// The step depends on more than what it read.
    pub fn void(&mut self) {
        self.void = true;
    }

    /// All words are what they were.
    fn hold(&self, read: &impl Fn(u64) -> Result<u64, ()>) -> bool {
        let words = &self.words[..usize::from(self.count)];
        !self.void && words.iter().all(|&(address, word)| read(address) == Ok(word))
    }
}

/// A step of a walk: where it was and what it read to get to the next.
#[derive(Clone, Copy, Debug)]
pub struct Visited {
    /// Registers in this frame.
    pub regs: Regs,
    /// The frame.
    pub frame: Frame,
    /// What the step to the caller read.
    pub reads: Reads,
}

/// The last walk of a thread.
#[derive(Default)]
struct Last {
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
    last: [Last; SLOTS],
    /// The walk that goes on, innermost frame first.
    steps: Vec<Visited>,
    slot: usize,
    /// Steps of the last walk, from the outermost on, that the current one may still meet.
    left: usize,
    /// Steps of the last walk, from the outermost on, that are the current one's, too.
    kept: usize,
}

/// What a stack has in common with the one before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kept {
    /// Which stack is before it: the last one with this number, below [`SLOTS`].
    pub slot: usize,
    /// So many frames, from the outermost on, are the same; 0 unless both are complete.
    pub frames: usize,
}

/// How far the last walk leads.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Lead {
    /// Not at all: go on walking.
    None,
    /// To this frame, which has been added; its own step is still to be made.
    To(Regs, Frame),
    /// To the thread's entry.
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

    /// Looks whether the last walk was here, and follows it as far as memory is what it was;
    /// at most to `max` frames in all.
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

    /// What the walk that is over took over from the last one.
    pub fn kept(&self) -> Kept {
        Kept { slot: self.slot, frames: self.kept }
    }

    /// Steps of the current walk so far, innermost frame first.
    pub fn steps(&self) -> &[Visited] {
        &self.steps
    }

    /// Steps of the walk that was made last, outermost frame first.
    pub fn last_steps(&self) -> &[Visited] {
        &self.last[self.slot].steps
    }

    /// Notes a step.
    pub fn note(&mut self, step: Visited) {
        self.steps.push(step);
    }

    /// The walk is over; `whole`: at the thread's entry.
    pub fn finish(&mut self, whole: bool) {
        let last = &mut self.last[self.slot];
        last.steps.truncate(self.kept);
        last.steps.extend(self.steps.drain(..).rev());
        last.whole = whole;
        // Only many very deep stacks are too much, and what this one is will be asked for next.
        let room = |last: &Last| last.steps.capacity();
        if room(&self.last[self.slot]) > MAX_STEPS / SLOTS
            && self.last.iter().map(room).sum::<usize>() > MAX_STEPS
        {
            let others = self.last.iter_mut().enumerate().filter(|(i, _)| *i != self.slot);
            others.for_each(|(_, last)| last.steps = Vec::new());
        }
    }
}
