//! Converts samples to the locations of their stacks.

use super::user_frames::{Merged, NativeFrames};
use super::{Innermost, Moment, Scratch, StackMaker, Unwound};
use crate::sampler::StackMethod;
use crate::sampler::interpreters::Origin;
use interpreters::merge;
use profile::{LocationId, Truncation};
use sys::record::{Sample, UserStack};
use unwind::{self, Frame, Place, StackEnd};

impl Scratch {
    /// Splits the call chain of a sample.
    pub(super) fn split(&mut self, sample: &Sample<'_>) {
        self.kernel.clear();
        self.chain.clear();
        sample.callchain.split(&mut self.kernel, &mut self.chain);
    }

    /// Adds the sampled address, which is all that is recorded without stacks.
    pub(super) fn add_address(&mut self, sample: &Sample<'_>, stacks: StackMethod) {
        if stacks == StackMethod::None {
            let addresses = if sample.kernel { &mut self.kernel } else { &mut self.chain };
            addresses.push(sample.ip);
        }
    }
}

/// What may be used to unwind a stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Known {
    /// Files, and analysis of their code.
    Anything,
    /// What is cached.
    Cached,
}

impl StackMaker {
    /// Builds the stack of a sample, which becomes the [last one](StackMaker::last_stack).
    pub fn make_stack(&mut self, sample: &Sample<'_>) {
        self.make_stack_from(sample, Origin::Event);
    }

    /// Like [`StackMaker::make_stack`], for a sample of a tracepoint.
    pub fn make_stack_at_tracepoint(&mut self, sample: &Sample<'_>) {
        self.make_stack_from(sample, Origin::Elsewhere);
    }

    fn make_stack_from(&mut self, sample: &Sample<'_>, origin: Origin) {
        let mut scratch = std::mem::take(&mut self.scratch);
        scratch.split(sample);
        self.make_from_chain(sample, origin, &mut scratch);
        self.scratch = scratch;
    }

    /// Like [`StackMaker::make_stack`], for a sample that one of prof's BPF programs took: the
    /// program's own frames are removed.
    pub fn make_stack_below_program(&mut self, sample: &Sample<'_>) {
        let mut scratch = std::mem::take(&mut self.scratch);
        scratch.split(sample);
        self.bpf_frames.strip(&mut scratch.kernel);
        self.make_from_chain(sample, Origin::Event, &mut scratch);
        self.scratch = scratch;
    }

    /// Like [`StackMaker::make_stack`], for a sample with registers and a copy of the stack that is
    /// not from the kernel. The innermost `skipped` frames are removed, except for the outermost
    /// frame.
    pub fn make_stack_without(
        &mut self,
        sample: &Sample<'_>,
        mut skipped: impl FnMut(&Frame) -> bool,
    ) {
        let mut scratch = std::mem::take(&mut self.scratch);
        self.begin_stack(sample, Origin::Elsewhere);
        scratch.kernel.clear();
        self.forget_unused();
        let end = self.user_frames(sample, 0, &[], &mut scratch.frames);
        let frames = &mut scratch.frames;
        let inner = frames.iter().take_while(|frame| skipped(frame)).count();
        frames.drain(..inner.min(frames.len().saturating_sub(1)));
        if self.stacks == StackMethod::None {
            frames.truncate(1);
        }
        let innermost = self.assemble(sample, &mut scratch, end);
        self.last.innermost = Some(innermost.unwrap_or((None, sample.ip)));
        self.scratch = scratch;
    }

    fn begin_stack(&mut self, sample: &Sample<'_>, origin: Origin) {
        self.counts.add_process(sample.pid);
        self.now = Moment { pid: sample.pid, time: sample.time, origin };
    }

    /// Builds the stack of a sample whose call chain is in `scratch`.
    pub(super) fn make_from_chain(
        &mut self,
        sample: &Sample<'_>,
        origin: Origin,
        scratch: &mut Scratch,
    ) {
        self.begin_stack(sample, origin);
        scratch.add_address(sample, self.stacks);
        let in_kernel = scratch.kernel.len();
        let end = self.user_frames(sample, in_kernel, &scratch.chain, &mut scratch.frames);
        let innermost = self.assemble(sample, scratch, end);
        let nothing = self.last.callers.is_empty().then_some((None, sample.ip));
        self.last.innermost = innermost.or(nothing);
    }

    /// Assembles the callers of the innermost frame, and returns that frame.
    fn assemble(
        &mut self,
        sample: &Sample<'_>,
        scratch: &mut Scratch,
        end: StackEnd,
    ) -> Option<Innermost> {
        let Scratch { kernel, frames, merge, trail, .. } = scratch;
        let mut callers = std::mem::take(&mut self.last.callers);
        callers.clear();
        let merged = self.merge(sample, frames, end, merge);
        match (&merged, truncation(end)) {
            (Merged::Places(places), why) if places.contains(&merge::Place::Truncated) => {
                // The copy of the user's frames ends before the native stack.
                let cut = u64::from(why.is_none());
                self.counts.ends[end as usize] -= cut;
                self.counts.ends[StackEnd::TooDeep as usize] += cut;
            }
            (_, Some(why)) => callers.push(self.builder.truncation(why)),
            (Merged::Mismatch, None) => callers.push(self.mismatch()),
            _ => {}
        }
        let user_leaf = frames.first().filter(|_| kernel.is_empty());
        let user_callers = &frames[usize::from(user_leaf.is_some())..];
        let first = callers.len();
        self.extend_trail(user_callers, trail, &mut callers);
        let is_users = match &merged {
            Merged::Places(places) => {
                let native = NativeFrames { frames, has_leaf: user_leaf.is_some(), end };
                self.interleave(places, native, first, &mut callers, merge)
            }
            Merged::Managed(places) => {
                let native = NativeFrames { frames, has_leaf: user_leaf.is_some(), end };
                self.replace_managed(places, native, first, &mut callers, merge)
            }
            Merged::Native | Merged::Mismatch => false,
        };
        let innermost = match (user_leaf, kernel.split_first()) {
            (Some(_), _) if is_users => None,
            (Some(frame), _) => Some((self.mapping_of(frame.place), frame.place.number())),
            (None, Some((&leaf, kernel_callers))) => {
                for &address in kernel_callers.iter().rev() {
                    let call = address.wrapping_sub(1);
                    let mapping = self.kernel_mapping_of(call);
                    callers.push(self.builder.location(Some(mapping), call));
                }
                Some((Some(self.kernel_mapping_of(leaf)), leaf))
            }
            (None, None) => None,
        };
        self.last.callers = callers;
        innermost
    }

    /// Adds the locations of `frames`, innermost first, to `callers`. Those shared with the
    /// previous stack are reused.
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
            let mapping = self.mapping_of(frame.place);
            trail.push(self.builder.location(mapping, frame.place.number()));
        }
        callers.extend_from_slice(&trail);
        match kept {
            Some(kept) => self.trails[kept.slot] = trail,
            None => *spare = trail,
        }
    }

    /// The user frames. The kernel's walk has `in_kernel` frames in addition to `chain`.
    fn user_frames(
        &mut self,
        sample: &Sample<'_>,
        in_kernel: usize,
        chain: &[u64],
        frames: &mut Vec<Frame>,
    ) -> StackEnd {
        let mut unwound = match self.take_prepared(sample) {
            Some(unwound) => unwound,
            None if self.is_frugal => self.unwind_frugally(sample, in_kernel, chain, frames),
            None => {
                let unwound = self.unwind(sample, in_kernel, chain, frames, Known::Anything);
                unwound.unwrap_or_default()
            }
        };
        if !self.is_frugal {
            let was_described = self.interpreters.describes_code(sample.pid);
            self.look_at_interpreter(sample, frames);
            if !was_described && self.interpreters.describes_code(sample.pid) {
                // Its frames lead on now.
                self.forget_trail();
                let again = self.unwind(sample, in_kernel, chain, frames, Known::Anything);
                unwound = again.unwrap_or_default();
            }
        }
        let Unwound { end, is_counted, hidden } = unwound;
        self.counts.hidden_mappings |= hidden;
        if self.stacks == StackMethod::None || !is_counted {
            return StackEnd::Complete;
        }
        self.counts.user_stacks += 1;
        self.counts.ends[end as usize] += 1;
        let native = matches!(sample.user, UserStack::Native { .. });
        self.counts.deep += u64::from(native && self.unwinder.beyond);
        end
    }

    /// Unwinds the user stack if cached results suffice for it; else only its innermost frame.
    fn unwind_frugally(
        &mut self,
        sample: &Sample<'_>,
        in_kernel: usize,
        chain: &[u64],
        frames: &mut Vec<Frame>,
    ) -> Unwound {
        if let Some(unwound) = self.unwind(sample, in_kernel, chain, frames, Known::Cached) {
            return unwound;
        }
        self.forget_trail();
        self.unwinder.kept = None;
        let leaf = match sample.user {
            UserStack::Native { regs, .. } => Some(regs.ip),
            UserStack::None if self.stacks.has_copies() => None,
            UserStack::Compat | UserStack::None => chain.first().copied(),
        };
        let (process, images) = self.table.split(sample.pid);
        unwind::chain_frames(sample.pid, &process.regions, images, leaf.as_slice(), frames);
        Unwound { end: StackEnd::NotAnalysed, is_counted: true, hidden: false }
    }

    /// Unwinds the user stack; `None` if that needs more than is `known`.
    pub(super) fn unwind(
        &mut self,
        sample: &Sample<'_>,
        in_kernel: usize,
        chain: &[u64],
        frames: &mut Vec<Frame>,
        known: Known,
    ) -> Option<Unwound> {
        let Sample { pid, user, .. } = *sample;
        frames.clear();
        self.unwinder.kept = None;
        if pid < 0 || (chain.is_empty() && user == UserStack::None) {
            return Some(Unwound::default());
        }
        if let UserStack::Native { regs, .. } = user
            && !self.table.is_current(pid, regs.ip, sample.kernel)
        {
            return Some(Unwound::default());
        }
        self.unwinder.set_managed_code(self.interpreters.managed_code(sample.time));
        let (process, images) = self.table.split(pid);
        let regions = &process.regions;
        if known == Known::Cached {
            self.unwinder.begin_closed(images);
        }
        let end = match user {
            UserStack::Native { .. } => {
                self.unwinder.unwind(sample.thread(), regions, images, user, chain, frames)
            }
            // The interrupt came while the kernel saved or restored the registers: it gives none
            // then (`perf_get_regs_user`), but walks from what lies in their place.
            UserStack::None if self.stacks.has_copies() => StackEnd::RegistersNotSaved,
            UserStack::Compat | UserStack::None => {
                unwind::chain_frames(pid, regions, images, chain, frames);
                if self.stacks.has_copies() { StackEnd::Compat } else { StackEnd::Complete }
            }
        };
        if self.unwinder.end_closed(images) {
            return None;
        }
        let end = match end {
            _ if !self.stacks.has_copies() && in_kernel + chain.len() >= self.max_chain => {
                StackEnd::ChainTooDeep
            }
            StackEnd::Unreadable if sample.kernel => StackEnd::NoUserMemory,
            end => end,
        };
        Some(self.explain(pid, end, frames.last()))
    }

    /// The end of a stack whose outermost frame is `last`; of one that led to no mapping, the reason
    /// for which the mapping may be unknown.
    fn explain(&mut self, pid: i32, end: StackEnd, last: Option<&Frame>) -> Unwound {
        let unwound = Unwound { end, is_counted: true, hidden: false };
        let nowhere = |frame: &Frame| matches!(frame.place, Place::Unmapped { .. });
        if end != StackEnd::BadReturnAddress && !last.is_some_and(nowhere) {
            return unwound;
        }
        let process = self.table.process(pid);
        if process.unread {
            Unwound { end: StackEnd::HiddenMappings, hidden: process.hidden, ..unwound }
        } else if self.table.may_lack_mappings(pid) {
            Unwound { end: StackEnd::LostMappings, ..unwound }
        } else {
            unwound
        }
    }
}

/// The [`Truncation`] with the name of an end; `None` for [`StackEnd::Complete`]. It does not
/// compile unless all ends are listed, and have a truncation of the same name.
macro_rules! truncation_named_as {
    ($end:expr, [$($name:ident),* $(,)?]) => {
        match $end {
            StackEnd::Complete => None,
            $(StackEnd::$name => Some(Truncation::$name),)*
        }
    };
}

/// The reason why a stack with this end is truncated, if it is.
pub fn truncation(end: StackEnd) -> Option<Truncation> {
    truncation_named_as!(
        end,
        [
            SmallDump,
            DumpTooSmall,
            Unreadable,
            NoUserMemory,
            NotOpened,
            Replaced,
            NoUnwindInfo,
            Uncovered,
            NotAnalysed,
            DamagedUnwindInfo,
            RunTimeCode,
            BadReturnAddress,
            ReturnProbe,
            Segments,
            NoCaller,
            AlternateStack,
            ExceptionDelivery,
            HiddenMappings,
            LostMappings,
            TooDeep,
            ChainTooDeep,
            RegistersNotSaved,
            PointerNotKnown,
            Compat,
        ]
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use sys::ThreadId;
    use sys::record::{AllRegs, Regs, Rest};

    #[test]
    fn without_saved_registers_there_are_no_user_frames() {
        let thread = ThreadId { pid: 1, tid: 1 };
        let sample = Sample::with_user_stack(thread, 1, 0x1000, UserStack::None);
        let unwind = |stacks: StackMethod| {
            let mut maker = StackMaker::new(profile::Builder::new(&[("samples", "count")]), stacks);
            let mut frames = Vec::new();
            let chain = [0x1000, 0x2000];
            let unwound = maker.unwind(&sample, 0, &chain, &mut frames, Known::Anything).unwrap();
            (unwound.end, frames.len())
        };
        let copies = StackMethod::Auto { dump: 65_528 };
        assert_eq!(unwind(copies), (StackEnd::RegistersNotSaved, 0));
        // The event never has them: the leaf is shown, and its caller lies in no mapping.
        assert_eq!(unwind(StackMethod::FramePointer).1, 1);
    }

    #[test]
    fn without_a_copy_a_sample_of_the_kernel_had_no_user_memory() {
        // In code that is mapped.
        let thread = ThreadId::main_thread(std::process::id() as i32);
        let regs = Regs { ip: truncation as *const () as u64, sp: 0x7fff_0000, bp: 0 };
        let (all, rest) = (AllRegs::default(), Rest::default());
        let user = UserStack::Native { regs, all, bytes: &[], full: false, rest };
        let end = |kernel| {
            let sample = Sample { kernel, ..Sample::with_user_stack(thread, 1, regs.ip, user) };
            let stacks = StackMethod::Auto { dump: 65_528 };
            let mut maker = StackMaker::new(profile::Builder::new(&[("samples", "count")]), stacks);
            let mut frames = Vec::new();
            maker.unwind(&sample, 0, &[], &mut frames, Known::Anything).unwrap().end
        };
        assert_eq!(end(true), StackEnd::NoUserMemory);
        assert_eq!(end(false), StackEnd::Unreadable);
    }

    #[test]
    fn each_end_but_a_complete_one_is_a_truncation_and_vice_versa() {
        let truncations: Vec<Truncation> =
            StackEnd::ALL.into_iter().filter_map(truncation).collect();
        assert_eq!(truncations, Truncation::ALL);
        assert_eq!(StackEnd::ALL.len(), truncations.len() + 1);
    }
}
