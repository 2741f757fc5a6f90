//! From a sample to the locations of its stack.

use super::{Aggregator, Innermost, Scratch};
use crate::sampler::Stacks;
use profile::{LocationId, Truncation};
use sys::record::{Sample, UserStack};
use unwind::{self, Frame, StackEnd};

impl Scratch {
    /// The call chain of a sample.
    fn split(&mut self, sample: &Sample<'_>) {
        self.kernel.clear();
        self.chain.clear();
        sample.callchain.split(&mut self.kernel, &mut self.chain);
    }
}

impl Aggregator {
    /// Takes the stack of a sample: puts its callers, outermost first, into `scratch`, and
    /// returns its innermost frame, if it has any.
    pub(super) fn stack(
        &mut self,
        sample: &Sample<'_>,
        scratch: &mut Scratch,
    ) -> Option<Innermost> {
        scratch.split(sample);
        self.stack_of_chain(sample, scratch)
    }

    /// The same of a sample that a program in the kernel took: it and what called it are left out.
    pub(super) fn stack_below_program(
        &mut self,
        sample: &Sample<'_>,
        scratch: &mut Scratch,
    ) -> Option<Innermost> {
        scratch.split(sample);
        if let Some(tracing) = &self.tracing {
            tracing.strip(&mut scratch.kernel);
        }
        self.stack_of_chain(sample, scratch)
    }

    /// The same with the call chain in `scratch`.
    fn stack_of_chain(&mut self, sample: &Sample<'_>, scratch: &mut Scratch) -> Option<Innermost> {
        self.counts.of_process(sample.pid);
        self.now = (sample.pid, sample.time);
        if self.stacks == Stacks::None {
            let addresses = if sample.kernel { &mut scratch.kernel } else { &mut scratch.chain };
            addresses.push(sample.ip);
        }
        let in_kernel = scratch.kernel.len();
        let end = self.user_frames(sample, in_kernel, &scratch.chain, &mut scratch.frames);
        let leaf = self.callers(scratch, end);
        let nothing = scratch.callers.is_empty().then_some((None, sample.ip));
        leaf.or(nothing)
    }

    /// Puts together the callers of the innermost frame, and returns that.
    pub(super) fn callers(&mut self, scratch: &mut Scratch, end: StackEnd) -> Option<Innermost> {
        let Scratch { kernel, frames, callers, trail, .. } = scratch;
        callers.clear();
        if let Some(why) = truncation(end) {
            callers.push(self.builder.truncation(why));
        }
        let user_leaf = frames.first().filter(|_| kernel.is_empty());
        let user_callers = &frames[usize::from(user_leaf.is_some())..];
        self.extend_trail(user_callers, trail, callers);
        if let Some(frame) = user_leaf {
            return Some((self.mapping_of(frame), frame.place.address));
        }
        let (&leaf, kernel_callers) = kernel.split_first()?;
        for &address in kernel_callers.iter().rev() {
            let call = address.wrapping_sub(1);
            let mapping = self.kernel_mapping_of(call);
            callers.push(self.builder.location(Some(mapping), call));
        }
        Some((Some(self.kernel_mapping_of(leaf)), leaf))
    }

    /// Adds the locations of `frames`, innermost first, to `callers`. Those that the stack before
    /// has, too, are known.
    fn extend_trail(
        &mut self,
        frames: &[Frame],
        spare: &mut Vec<LocationId>,
        callers: &mut Vec<LocationId>,
    ) {
        spare.clear();
        let kept = self.unwinder.kept;
        let mut trail = match kept {
            Some(kept) => std::mem::take(&mut self.trails[kept.slot]),
            None => std::mem::take(spare),
        };
        trail.truncate(kept.map_or(0, |k| k.frames).min(frames.len()));
        for frame in frames.iter().rev().skip(trail.len()) {
            let mapping = self.mapping_of(frame);
            trail.push(self.builder.location(mapping, frame.place.address));
        }
        callers.extend_from_slice(&trail);
        match kept {
            Some(kept) => self.trails[kept.slot] = trail,
            None => *spare = trail,
        }
    }

    /// `in_kernel`: so many frames the kernel's walk has besides those of `chain`.
    pub(super) fn user_frames(
        &mut self,
        sample: &Sample<'_>,
        in_kernel: usize,
        chain: &[u64],
        frames: &mut Vec<Frame>,
    ) -> StackEnd {
        frames.clear();
        self.unwinder.kept = None;
        let dumped = matches!(self.stacks, Stacks::Auto { .. } | Stacks::Dwarf { .. });
        if sample.pid < 0 || (chain.is_empty() && sample.user == UserStack::None) {
            return StackEnd::Complete;
        }
        if let UserStack::Native { regs, .. } = sample.user
            && !self.table.is_current(sample.pid, regs.ip, sample.kernel)
        {
            return StackEnd::Complete;
        }
        let pid = sample.pid;
        let mut end = self.unwind(sample, chain, frames, dumped);
        if !dumped && in_kernel + chain.len() >= self.max_chain {
            end = StackEnd::ChainTooDeep;
        }
        let nowhere = |frame: &Frame| frame.place.image.is_none();
        if end == StackEnd::BadReturnAddress || frames.last().is_some_and(nowhere) {
            let process = self.table.process(pid);
            if process.unread {
                end = StackEnd::HiddenMappings;
                self.counts.hidden_mappings |= process.hidden;
            } else if self.table.may_lack_mappings(pid) {
                end = StackEnd::LostMappings;
            }
        }
        if self.stacks == Stacks::None {
            return StackEnd::Complete;
        }
        self.counts.user_stacks += 1;
        self.counts.ends[end as usize] += 1;
        let native = matches!(sample.user, UserStack::Native { .. });
        self.counts.deep += u64::from(native && self.unwinder.beyond);
        end
    }

    fn unwind(
        &mut self,
        sample: &Sample<'_>,
        chain: &[u64],
        frames: &mut Vec<Frame>,
        dumped: bool,
    ) -> StackEnd {
        let (process, images) = self.table.split(sample.pid);
        let (pid, regions) = (sample.pid, &process.regions);
        match sample.user {
            UserStack::Native { .. } => {
                let of = (pid, sample.tid);
                self.unwinder.unwind(of, regions, images, sample.user, chain, frames)
            }
            UserStack::Compat | UserStack::None => {
                unwind::chain_frames(pid, regions, images, chain, frames);
                if dumped { StackEnd::Compat } else { StackEnd::Complete }
            }
        }
    }
}

/// Why a stack with this end is truncated, if it is.
pub fn truncation(end: StackEnd) -> Option<Truncation> {
    Some(match end {
        StackEnd::Complete => return None,
        StackEnd::SmallDump => Truncation::SmallDump,
        StackEnd::DumpTooSmall => Truncation::DumpTooSmall,
        StackEnd::Unreadable => Truncation::Unreadable,
        StackEnd::NoUnwindInfo => Truncation::NoUnwindInfo,
        StackEnd::Uncovered => Truncation::Uncovered,
        StackEnd::DamagedUnwindInfo => Truncation::DamagedUnwindInfo,
        StackEnd::RuntimeCode => Truncation::RunTimeCode,
        StackEnd::BadReturnAddress => Truncation::BadReturnAddress,
        StackEnd::NoCaller => Truncation::NoCaller,
        StackEnd::OtherStack => Truncation::AlternateStack,
        StackEnd::Delivering => Truncation::ExceptionDelivery,
        StackEnd::HiddenMappings => Truncation::HiddenMappings,
        StackEnd::LostMappings => Truncation::LostMappings,
        StackEnd::TooDeep => Truncation::TooDeep,
        StackEnd::ChainTooDeep => Truncation::ChainTooDeep,
        StackEnd::Compat => Truncation::Compat,
    })
}
