//! The walk up one stack.

use std::cell::Cell;

use super::arch::{BP, RED_ZONE, SP, removed_slot};
use super::cfi::KnownRegisters;
use super::go_stacks::GoPositions;
use super::memo::{Lead, Reads, Visited};
use super::module::{self, GoRole, ModuleUnwinder, Modules, Step};
use super::{ElfPlace, Frame, MAX_FRAMES, StackEnd, Unwinder, locate};
use crate::{AddressKind, CodeAddress};
use sys::arch::PAGE;
use sys::image::{Images, Loaded, NotOpened, State};
use sys::maps::Regions;
use sys::record::MAX_DUMP;
use sys::record::{AllRegs, Regs, Rest};
use sys::{ProcessAddress, ThreadId};

/// The stack that is walked up.
pub(super) struct Walk<'a> {
    pub regions: &'a Regions,
    pub thread: ThreadId,
    pub stack: StackCopy<'a>,
    /// The innermost frame's registers.
    pub all: AllRegs<'a>,
    /// The kernel's walk along frame pointers.
    pub chain: &'a [u64],
}

/// A process whose code is looked up.
#[derive(Clone, Copy)]
pub(super) struct Process<'a> {
    pub pid: i32,
    pub regions: &'a Regions,
}

impl<'a> Walk<'a> {
    pub fn process(&self) -> Process<'a> {
        Process { pid: self.thread.pid, regions: self.regions }
    }

    pub fn read(&self, address: u64) -> Result<u64, ()> {
        self.stack.read(address)
    }

    /// Reads a word for a step, which depends on it from then on.
    pub fn read_noted(&self, address: u64, reads: &mut Reads) -> Result<u64, ()> {
        let word = self.read(address);
        reads.note(address, word);
        word
    }
}

/// A stack at one moment.
#[derive(Clone, Copy)]
pub(super) struct StackCopy<'a> {
    pub start: u64,
    /// The kernel's own copy, which ends before the first page that was not in memory.
    pub bytes: &'a [u8],
    pub full: bool,
    /// Stack bytes beyond it.
    pub rest: Rest<'a>,
    /// Set when any of those are read.
    pub beyond: &'a Cell<bool>,
}

/// Largest distance above the stack pointer that counts as stack, in bytes.
const FARTHEST: u64 = 64 << 20;

impl StackCopy<'_> {
    pub fn read(&self, address: u64) -> Result<u64, ()> {
        // Below the stack pointer are popped or unused words, unless they are of another stack.
        let Some(at) = address.checked_sub(self.start) else {
            return self.rest.go().word(address).ok_or(());
        };
        let bytes = usize::try_from(at).ok().and_then(|at| self.bytes.get(at..));
        if let Some(word) = bytes.and_then(|bytes| bytes.first_chunk()) {
            return Ok(u64::from_le_bytes(*word));
        }
        match self.rest.word(address) {
            Some(word) => {
                self.beyond.set(true);
                Ok(word)
            }
            None => self.rest.go().word(address).ok_or(()),
        }
    }

    /// True if the address was not copied and may be part of the stack.
    pub fn cut_before(&self, address: u64) -> bool {
        let end = self.start.saturating_add(self.bytes.len() as u64);
        let farthest = self.start.saturating_add(FARTHEST);
        !self.bytes.is_empty() && address.saturating_add(8) > end && address < farthest
    }

    /// Cause of truncation for a stack that is deeper than its copy.
    pub fn too_small(&self) -> StackEnd {
        // The kernel copies less than the largest size if the rest of the record needs room.
        const LARGE: usize = MAX_DUMP as usize / 4 * 3;
        if self.full && self.bytes.len() < LARGE {
            StackEnd::SmallDump
        } else {
            StackEnd::DumpTooSmall
        }
    }
}

impl Unwinder {
    /// Prepares for a walk.
    pub(super) fn begin(&mut self, walk: &Walk<'_>) {
        self.memo.begin(walk.thread.tid, walk.regions.version());
        self.blind = false;
        self.is_managed = false;
        self.go = GoPositions::of(walk.stack.rest.go());
    }

    /// Walks up from a frame with these registers, as far as unwind information and code lead.
    pub(super) fn walk(
        &mut self,
        walk: &Walk<'_>,
        mut regs: Regs,
        images: &mut Images,
        frames: &mut Vec<Frame>,
    ) -> StackEnd {
        let mut address = regs.ip;
        let mut kind = AddressKind::Instruction;
        loop {
            regs.ip = address;
            let read = |address| walk.read(address);
            let frame = match self.memo.follow(regs, kind, read, frames, MAX_FRAMES) {
                Lead::Entry => return StackEnd::Complete,
                Lead::To(there, frame) => {
                    regs = there;
                    frame
                }
                Lead::None => {
                    let address = ProcessAddress(address);
                    if kind.is_return() && is_return_probe(walk.regions, images, address) {
                        return StackEnd::ReturnProbe;
                    }
                    match locate(walk.thread.pid, walk.regions, images, address, kind) {
                        Some(frame) => {
                            frames.push(frame);
                            frame
                        }
                        None => return at_unmapped(address, images, frames),
                    }
                }
            };
            if frames.len() >= MAX_FRAMES {
                return StackEnd::TooDeep;
            }
            if self.rules.is_lacking() || images.is_lacking() {
                return StackEnd::Uncovered;
            }
            let mut reads = Reads::default();
            let here = regs;
            let step = self.step(walk, frame, &mut regs, images, &mut reads);
            let step = past_probe(walk, step, regs, images, &mut reads);
            let frame = match step {
                Step::Interrupted(_) => put_by_the_kernel(frames, frame),
                _ => frame,
            };
            self.memo.note(Visited { regs: here, frame, reads });
            match step {
                Step::Caller(caller) => {
                    (address, kind) = (caller, self.kind_of_caller(frame, images));
                }
                Step::CallerOnly(caller) => {
                    self.blind = true;
                    (address, kind) = (caller, AddressKind::Return);
                }
                Step::Interrupted(interrupted) => {
                    (address, kind) = (interrupted, AddressKind::Instruction);
                }
                Step::End => return StackEnd::Complete,
                Step::Delivering => return StackEnd::ExceptionDelivery,
                Step::Failed if self.is_in_segments(&[frame], images) => return StackEnd::Segments,
                Step::Unreadable(_) if self.is_in_segments(frames, images) => {
                    return StackEnd::Segments;
                }
                Step::Unreadable(address) if walk.stack.cut_before(address) => {
                    return walk.stack.too_small();
                }
                Step::Unreadable(_) if walk.stack.bytes.is_empty() => return StackEnd::Unreadable,
                step => return self.why(walk, step, frame, images, frames),
            };
        }
    }

    /// Continues the stack of a walk that ended early where frame pointers lead on, and notes the
    /// walk. Returns the stack's end.
    pub(super) fn finish(
        &mut self,
        walk: &Walk<'_>,
        regs: Regs,
        end: StackEnd,
        images: &mut Images,
        frames: &mut Vec<Frame>,
    ) -> StackEnd {
        self.walked = frames.len();
        let is_complete = end == StackEnd::Complete;
        let goes_on = !is_complete && self.through_go(walk, images, frames);
        self.memo.finish(is_complete);
        self.kept = Some(self.memo.kept());
        if is_complete || goes_on {
            return StackEnd::Complete;
        }
        if self.blind || end == StackEnd::ExceptionDelivery {
            return StackEnd::ExceptionDelivery;
        }
        // Its callers have no frame pointers.
        if self.is_managed {
            return end;
        }
        // Frame pointers lead on from the same memory.
        if self.splice(walk, regs, frames, images)
            && frames.last().is_some_and(|&last| self.is_outermost(last, images))
        {
            return StackEnd::Complete;
        }
        let is_uncovered =
            matches!(end, StackEnd::Uncovered | StackEnd::NoUnwindInfo | StackEnd::PointerNotKnown);
        if is_uncovered && self.rules.has_skipped() { StackEnd::NotAnalysed } else { end }
    }

    /// Kind of the address that a frame leads to: functions that Go's handlers of signals make
    /// interrupted code call return to the instruction that was interrupted.
    fn kind_of_caller(&mut self, frame: Frame, images: &Images) -> AddressKind {
        let Unwinder { modules, rules, .. } = self;
        let interrupts = module_of(modules, frame, images)
            .is_some_and(|(module, at)| module.has_go_role(rules, at, GoRole::Interrupts));
        if interrupts { AddressKind::Instruction } else { AddressKind::Return }
    }

    fn step(
        &mut self,
        walk: &Walk<'_>,
        frame: Frame,
        regs: &mut Regs,
        images: &mut Images,
        reads: &mut Reads,
    ) -> Step {
        self.is_managed = false;
        if let Some(step) = self.across_go_stacks(walk, frame, regs, images, reads) {
            return step;
        }
        let mut read = |address| walk.read_noted(address, reads);
        let Some((module, at)) = module_of(&mut self.modules, frame, images) else {
            // An unreadable file provides no information.
            return if is_of_probes(frame.place.image(), images) {
                reads.void();
                out_of_probe(walk, regs)
            } else if frame.is_run_time_code() {
                self.by_run_time_code(walk, frame, regs, images, &mut read)
            } else {
                Step::Uncovered
            };
        };
        match module.step(&mut self.rules, at, regs, &mut read) {
            Step::Uncovered => self.by_code(walk, frame, regs, images, reads),
            Step::NeedsPointer => self.by_found_pointer(walk, frame, regs, images, reads),
            Step::NoCaller => self.beyond_go_stack(walk, frame, regs, images, reads),
            Step::NeedsRegisters => {
                // The step depends on more than the memo records.
                reads.void();
                self.step_from_the_leaf(walk, frame, regs, images)
            }
            Step::Unreadable(slot)
                if !frame.kind.is_return() && regs.sp.wrapping_sub(slot) <= RED_ZONE =>
            {
                self.by_moved(walk, frame, slot, regs, images, reads)
            }
            step => step,
        }
    }

    /// A step whose rule needs registers that the walk does not track: they are restored from the
    /// innermost frame, or the last signal's, where all are known.
    pub(super) fn step_from_the_leaf(
        &mut self,
        walk: &Walk<'_>,
        frame: Frame,
        regs: &mut Regs,
        images: &Images,
    ) -> Step {
        let Unwinder { modules, rules, memo, run_time, .. } = self;
        let walked = memo.steps();
        let signal = walked.iter().rposition(|s| !s.frame.kind.is_return()).filter(|&i| i > 0);
        let mut registers = KnownRegisters::NONE;
        let first = match signal.filter(|_| frame.kind.is_return()) {
            Some(interrupted) => interrupted - 1,
            None if !frame.kind.is_return() && !walked.is_empty() => walked.len() - 1,
            None => {
                let Some(values) = walk.all.in_dwarf_order() else { return Step::Failed };
                (0..).zip(values).for_each(|(number, value)| registers.set(number, value));
                0
            }
        };
        if registers == KnownRegisters::NONE {
            registers.set(SP, walked[first].regs.sp);
        }
        let this = Visited { regs: *regs, frame, reads: Reads::default() };
        let mut last = Step::Failed;
        for at in walked[first..].iter().chain([&this]) {
            registers.set_ip(at.regs.ip);
            if registers.get(SP) != Some(at.regs.sp) {
                return Step::Failed;
            }
            let read = &mut |address| walk.read(address);
            last = match module_of(modules, at.frame, images) {
                Some((module, address)) => module.step_with(rules, address, &mut registers, read),
                None => {
                    let rule = run_time.known_rule(walk.regions, at.frame);
                    let Some(rule) = rule else { return Step::Failed };
                    module::by_rule_in(rule, at.frame.kind, &mut registers, read)
                }
            };
            if !matches!(last, Step::Caller(_) | Step::Interrupted(_)) {
                return if last == Step::NeedsRegisters { Step::Failed } else { last };
            }
        }
        if let (Step::Caller(ip), Some(sp)) = (last, registers.get(SP)) {
            *regs = Regs { ip, sp, bp: registers.get(BP).unwrap_or(0) };
        }
        last
    }

    /// True if the frame has no caller.
    pub(super) fn is_outermost(&mut self, frame: Frame, images: &Images) -> bool {
        let Unwinder { modules, rules, .. } = self;
        is_entry(&frame, images)
            || module_of(modules, frame, images)
                .is_some_and(|(module, at)| module.is_outermost(rules, at))
    }

    /// True if one of the outermost frames is on another segment of the stack than its caller.
    fn is_in_segments(&mut self, frames: &[Frame], images: &Images) -> bool {
        /// Segments are small.
        const MOST: usize = 256;
        let Unwinder { modules, rules, .. } = self;
        frames.iter().rev().take(MOST).any(|&frame| {
            module_of(modules, frame, images).is_some_and(|(m, at)| m.switches_segment(rules, at))
        })
    }

    /// Cause for which a walk ends at this frame, given the result of its step.
    fn why(
        &mut self,
        walk: &Walk<'_>,
        step: Step,
        frame: Frame,
        images: &Images,
        frames: &mut [Frame],
    ) -> StackEnd {
        if is_entry(&frame, images) {
            return StackEnd::Complete;
        }
        let Unwinder { modules, rules, .. } = self;
        match frame.place.image().map(|i| &images.get(i).state) {
            Some(State::Elf(loaded)) if loaded.elf.can_unwind() => {
                let by_hand = frame.kind.is_return()
                    && module_of(modules, frame, images).is_some_and(|(module, at)| {
                        module.begins_alone(rules, at.address)
                            || (step == Step::Uncovered && module.is_stored(rules, at.address))
                    });
                let handler = frames.iter().skip(1).any(|f| !f.kind.is_return());
                match (step, frames.last_mut()) {
                    // The stack that a signal handler interrupted was not copied.
                    (Step::Unreadable(_), _) if handler => StackEnd::AlternateStack,
                    // `makecontext` stores a function's address as a return address, boost's
                    // `make_fcontext` that of other code.
                    (_, Some(last)) if by_hand => {
                        last.kind = AddressKind::Instruction;
                        last.place = last.place.next();
                        StackEnd::NoCaller
                    }
                    (Step::NoCaller, _) => StackEnd::NoCaller,
                    (Step::NeedsPointer, _) if walk.all.in_dwarf_order().is_none() => {
                        StackEnd::PointerNotKnown
                    }
                    (Step::Uncovered, _) => {
                        let damaged = module_of(modules, frame, images)
                            .is_some_and(|(m, at)| m.is_damaged(rules, at));
                        if damaged { StackEnd::DamagedUnwindInfo } else { StackEnd::Uncovered }
                    }
                    _ => StackEnd::BadReturnAddress,
                }
            }
            Some(State::Anonymous) if is_of_probes(frame.place.image(), images) => {
                StackEnd::ReturnProbe
            }
            Some(State::Anonymous) => StackEnd::RunTimeCode,
            Some(State::Unreadable(NotOpened::Replaced)) => StackEnd::Replaced,
            Some(State::Unreadable(_)) => StackEnd::NotOpened,
            _ => StackEnd::NoUnwindInfo,
        }
    }
}

/// Adjusts a signal handler's return address, which the kernel chose: the code is at the address
/// itself, not in a call before it.
fn put_by_the_kernel(frames: &mut [Frame], mut frame: Frame) -> Frame {
    if frame.kind.is_return() {
        frame.kind = AddressKind::Instruction;
        frame.place = frame.place.next();
        frames.last_mut().into_iter().for_each(|last| *last = frame);
    }
    frame
}

/// The unwinder of the image that contains a frame, and the frame's address in the image; `None` if
/// that is not an ELF file that could be opened.
pub(super) fn module_of<'m>(
    modules: &'m mut Modules,
    frame: Frame,
    images: &Images,
) -> Option<(&'m ModuleUnwinder, CodeAddress)> {
    let ElfPlace { image, address, .. } = frame.place.in_elf()?;
    let file = images.get(image);
    let State::Elf(loaded) = &file.state else { return None };
    if !modules.has(image) && images.lacks() {
        return None;
    }
    let module = modules.get(image, &file.path, loaded);
    Some((module, CodeAddress { address: address.plus(frame.kind.offset()), kind: frame.kind }))
}

pub(super) fn loaded<'i>(frame: &Frame, images: &'i Images) -> Option<&'i Loaded> {
    match &images.get(frame.place.image()?).state {
        State::Elf(loaded) => Some(loaded),
        _ => None,
    }
}

/// True for the mapping in which the kernel puts code for probes.
fn is_of_probes(image: Option<u32>, images: &Images) -> bool {
    image.is_some_and(|image| images.get(image).path == "[uprobes]")
}

/// True for the address that the kernel puts in place of a return address for a return probe: the
/// first one of its mapping (`uprobe_get_trampoline_vaddr`).
pub(super) fn is_return_probe(regions: &Regions, images: &Images, address: ProcessAddress) -> bool {
    let region = address.0.is_multiple_of(PAGE).then(|| regions.find(address)).flatten();
    region.is_some_and(|region| is_of_probes(Some(region.image), images))
}

/// The same step to the return address that was there before the kernel replaced it for a return
/// probe, if that is known.
pub(super) fn past_probe(
    walk: &Walk<'_>,
    step: Step,
    caller: Regs,
    images: &Images,
    reads: &mut Reads,
) -> Step {
    let (Step::Caller(address) | Step::CallerOnly(address)) = step else { return step };
    if !is_return_probe(walk.regions, images, ProcessAddress(address)) {
        return step;
    }
    let original = removed_slot(caller.sp).and_then(|slot| walk.stack.rest.original(slot));
    let Some(original) = original else { return step };
    // The step depends on more than the memo records.
    reads.void();
    match step {
        Step::Caller(_) => Step::Caller(original),
        _ => Step::CallerOnly(original),
    }
}

/// One step up from the kernel's code for return probes, which has pushed a few words onto the stack
/// after the return (`arch_uretprobe_trampoline`); or from an instruction at the beginning of a
/// function with such a probe, which is executed there.
fn out_of_probe(walk: &Walk<'_>, regs: &mut Regs) -> Step {
    const MOST_PUSHED: u64 = 3;
    let Some(removed) = removed_slot(regs.sp) else { return Step::Failed };
    let mut slots = (0..=MOST_PUSHED).map(|words| removed.saturating_add(words * 8));
    let found = slots.find_map(|slot| Some((slot, walk.stack.rest.original(slot)?)));
    let Some((slot, ip)) = found else { return Step::Failed };
    *regs = Regs { ip, sp: slot.saturating_add(8), ..*regs };
    Step::Caller(ip)
}

/// Cause for which a walk ends that came to an unmapped address.
fn at_unmapped(address: ProcessAddress, images: &Images, frames: &mut Vec<Frame>) -> StackEnd {
    match frames.last() {
        // The instruction pointer is a fact, mapped or not.
        None => frames.push(Frame::unmapped(address)),
        Some(last) if is_entry(last, images) => return StackEnd::Complete,
        Some(_) => {}
    }
    StackEnd::BadReturnAddress
}

fn is_entry(frame: &Frame, images: &Images) -> bool {
    let address = frame.place.in_elf().map(|place| place.address);
    loaded(frame, images).zip(address).is_some_and(|(l, address)| l.elf.is_entry(address))
}
