//! Frames of an interpreter's programs in the stacks of samples.
//!
//! The trails of native frames are kept without them: two stacks of Python over the same native one
//! share its locations, and each has its own functions.

use super::StackMaker;
use super::stack::truncation;
use crate::sampler::interpreters::{ManagedFrames, Need};
use interpreters::merge::{Merge, NativeFrame, NativeStack, Place};
use profile::{LocationId, Truncation};
use sys::record::{Regs, Sample};
use unwind::{Frame, StackEnd, Unwinder};

/// The root of stacks in which the user's frames fit nowhere.
const MISMATCH: &str = "[interpreter stack does not match]";

/// Buffers for the frames of a sample.
#[derive(Default)]
pub(super) struct MergeBuffers {
    native: NativeStack,
    /// Locations of native callers, outermost first.
    callers: Vec<LocationId>,
    /// Locations of the user's frames, the innermost first.
    user: Vec<LocationId>,
}

/// The native frames of a sample.
#[derive(Clone, Copy)]
pub(super) struct NativeFrames<'f> {
    /// The frames, the innermost first.
    pub frames: &'f [Frame],
    /// The innermost one is no caller: it has the instruction pointer.
    pub has_leaf: bool,
    /// How they end.
    pub end: StackEnd,
}

/// What a stack has besides native frames.
pub(super) enum Merged {
    /// Nothing.
    Native,
    /// The user's frames, in these places.
    Places(Vec<Place>),
    /// Locations in place of native frames.
    Managed(ManagedFrames),
    /// A mark that they fit nowhere.
    Mismatch,
}

impl StackMaker {
    /// True if the user's frames of a sample, if there are any, can be shown without reading files
    /// or memory.
    pub(super) fn knows_interpreter(
        &mut self,
        sample: &Sample<'_>,
        frames: &[Frame],
        end: StackEnd,
        buffers: &mut MergeBuffers,
    ) -> bool {
        if self.interpreters.is_managed(sample.pid) {
            let registers = walked_registers(&self.unwinder);
            return self.interpreters.knows_managed(sample, frames, registers);
        }
        let new = self.new_frames(frames);
        let has_copies = !sample.walked.is_empty();
        if self.interpreters.need(sample.pid, sample.time, new, has_copies) != Need::Nothing {
            return false;
        }
        if !has_copies || frames.is_empty() || !self.interpreters.has_runtime(sample.pid) {
            return true;
        }
        self.fill_native(frames, end, &mut buffers.native);
        self.interpreters.prepare(sample, frames, &mut buffers.native)
    }

    /// Looks at the interpreter to which a stack leads, if it is not known.
    pub(super) fn look_at_interpreter(&mut self, sample: &Sample<'_>, frames: &[Frame]) {
        let new = self.new_frames(frames);
        let has_copies = !sample.walked.is_empty();
        if self.interpreters.need(sample.pid, sample.time, new, has_copies) == Need::Look {
            self.interpreters.look(sample.pid, sample.time, new, &self.table.images);
        }
    }

    /// The innermost frames, which the last stack of the thread had not.
    fn new_frames<'f>(&self, frames: &'f [Frame]) -> &'f [Frame] {
        let kept = self.unwinder.kept.map_or(0, |kept| kept.frames);
        &frames[..frames.len().saturating_sub(kept)]
    }

    /// Merges the user's frames of a sample with native ones; their locations are in the buffers.
    pub(super) fn merge(
        &mut self,
        sample: &Sample<'_>,
        frames: &[Frame],
        end: StackEnd,
        buffers: &mut MergeBuffers,
    ) -> Merged {
        if !self.interpreters.has_runtime(sample.pid) {
            self.interpreters.count_native(sample.pid, frames, self.now.origin);
            return Merged::Native;
        }
        if frames.is_empty() {
            return Merged::Native;
        }
        if self.interpreters.is_managed(sample.pid) {
            let registers = walked_registers(&self.unwinder);
            let (interpreters, builder) = (&mut self.interpreters, &mut self.builder);
            return Merged::Managed(interpreters.managed_stack(sample, frames, registers, builder));
        }
        self.fill_native(frames, end, &mut buffers.native);
        let MergeBuffers { native, user, .. } = buffers;
        let (origin, builder) = (self.now.origin, &mut self.builder);
        let Some(found) =
            self.interpreters.user_stack(sample, origin, frames, native, builder, user)
        else {
            return Merged::Native;
        };
        match found {
            Merge::Stack { places, .. } => Merged::Places(places),
            Merge::Mismatch => Merged::Mismatch,
        }
    }

    /// The native stack of the last unwinding, with the part of the stack that each frame has.
    fn fill_native(&self, frames: &[Frame], end: StackEnd, native: &mut NativeStack) {
        native.is_complete = end == StackEnd::Complete;
        native.frames.clear();
        let walked = self.unwinder.kept.is_some();
        let mut pointers = self.unwinder.stack_pointers().take(if walked { usize::MAX } else { 0 });
        let mut next = pointers.next();
        for frame in frames {
            let from = next;
            next = pointers.next();
            let last = if native.is_complete { Some(u64::MAX) } else { from };
            let stack = from.map_or(0..0, |from| from..next.or(last).unwrap_or(from));
            let is_run_time = frame.is_run_time_code();
            native.frames.push(NativeFrame { address: frame.address.0, stack, is_run_time });
        }
    }

    /// Puts the user's frames between native callers, which `callers` has from `first` on, outermost
    /// first. Returns true if the innermost frame of the thread's code is one of the user's.
    pub(super) fn interleave(
        &mut self,
        places: &[Place],
        unwound: NativeFrames<'_>,
        first: usize,
        callers: &mut Vec<LocationId>,
        buffers: &mut MergeBuffers,
    ) -> bool {
        let MergeBuffers { callers: native, user, .. } = buffers;
        native.clear();
        native.extend(callers.drain(first..));
        let NativeFrames { frames, has_leaf, end } = unwound;
        let skipped = usize::from(has_leaf);
        for (at, place) in places.iter().enumerate().rev() {
            match *place {
                Place::Evaluation(frame) if is_compiled(&places[..at], &frames[frame]) => {}
                Place::Evaluation(frame)
                    if is_user(last_but_compiled(&places[..at], frames))
                        && let Some(start) = self.evaluation(&frames[frame]) =>
                {
                    callers.push(start);
                }
                Place::Native(0) | Place::Evaluation(0) if has_leaf => {
                    if at > 0 {
                        let place = frames[0].place;
                        let mapping = self.mapping_of(place);
                        callers.push(self.builder.location(mapping, place.number()));
                    }
                }
                Place::Native(frame) | Place::Evaluation(frame) => {
                    // Native frames are numbered from the innermost one.
                    let from_outermost = native.len() + skipped - 1 - frame;
                    callers.push(native[from_outermost]);
                }
                Place::User(frame) => callers.extend(user.get(frame)),
                Place::Truncated => {
                    let why = truncation(end).unwrap_or(Truncation::TooDeep);
                    callers.push(self.builder.truncation(why));
                }
            }
        }
        is_user(places.first())
    }

    /// The location of the beginning of a function that executes the user's functions, if a frame is of
    /// one. Stacks with the same functions of the user's would differ by its instructions.
    fn evaluation(&mut self, frame: &Frame) -> Option<LocationId> {
        let instruction = frame.instruction().0;
        let start = self.interpreters.evaluation(self.now.pid, instruction)?;
        let number = frame.place.number().wrapping_sub(instruction.wrapping_sub(start));
        let mapping = self.mapping_of(frame.place);
        Some(self.builder.location(mapping, number))
    }

    /// Puts locations in the places of managed frames among native callers, which `callers` has from
    /// `first` on, outermost first. Returns true if the innermost frame of the thread's code is managed.
    pub(super) fn replace_managed(
        &mut self,
        places: &[Option<Vec<LocationId>>],
        unwound: NativeFrames<'_>,
        first: usize,
        callers: &mut Vec<LocationId>,
        buffers: &mut MergeBuffers,
    ) -> bool {
        let MergeBuffers { callers: native, .. } = buffers;
        native.clear();
        native.extend(callers.drain(first..));
        let skipped = usize::from(unwound.has_leaf);
        for (frame, place) in places.iter().enumerate().rev() {
            match place {
                Some(locations) => callers.extend(locations),
                None if frame < skipped => {}
                // Native frames are numbered from the innermost one.
                None => callers.push(native[native.len() + skipped - 1 - frame]),
            }
        }
        unwound.has_leaf && matches!(places.first(), Some(Some(_)))
    }

    /// The location that marks a stack in which the user's frames fit nowhere.
    pub(super) fn mismatch(&mut self) -> LocationId {
        self.builder.named_location(MISMATCH)
    }
}

/// Registers in the frames of the last stack; none if it was not walked.
fn walked_registers(unwinder: &Unwinder) -> impl Iterator<Item = Regs> + '_ {
    let walked = if unwinder.kept.is_some() { usize::MAX } else { 0 };
    unwinder.registers().take(walked)
}

/// True if a native frame is that of code which the interpreter made of the user's function before it:
/// one frame, of which the native one has no name.
fn is_compiled(before: &[Place], frame: &Frame) -> bool {
    frame.is_run_time_code() && is_user(before.last())
}

/// The last place before others of compiled code.
fn last_but_compiled<'p>(places: &'p [Place], frames: &[Frame]) -> Option<&'p Place> {
    let is_compiled = |place: &&Place| match place {
        Place::Evaluation(frame) => frames[*frame].is_run_time_code(),
        _ => false,
    };
    places.iter().rev().find(|place| !is_compiled(place))
}

fn is_user(place: Option<&Place>) -> bool {
    matches!(place, Some(Place::User(_)))
}
