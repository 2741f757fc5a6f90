//! The walk up one stack.

use std::cell::RefCell;

use super::cfi::Registers;
use super::code;
use super::live::Live;
use super::memo::{Lead, Reads, Visited};
use super::module::{self, ModuleUnwinder, Step};
use super::{Frame, MAX_FRAMES, Place, StackEnd, Unwinder, locate, unmapped};
use crate::process::image::{Images, Loaded, State};
use crate::process::maps::Regions;
use crate::sampler::MAX_DUMP;
use crate::sampler::record::{AllRegs, Regs};

/// Bytes below the stack pointer that functions may use (System V ABI, AMD64 supplement, 3.2.2).
const RED_ZONE: u64 = 128;

/// The stack that is walked up.
pub(super) struct Walk<'a> {
    pub regions: &'a Regions,
    pub pid: i32,
    pub tid: i32,
    pub stack: Stack<'a>,
    /// The innermost frame's registers.
    pub all: AllRegs<'a>,
    /// The kernel's walk along frame pointers.
    pub chain: &'a [u64],
    /// What lies beyond the copy.
    pub live: &'a RefCell<Live>,
}

impl Walk<'_> {
    pub fn read(&self, address: u64) -> Result<u64, ()> {
        self.stack.read(address).or_else(|()| {
            // Below the stack pointer lies what has been popped, or nothing yet.
            if self.stack.bytes.is_empty() || address < self.stack.start {
                return Err(());
            }
            self.live.borrow_mut().word(address)
        })
    }
}

#[derive(Clone, Copy)]
pub(super) struct Stack<'a> {
    pub start: u64,
    pub bytes: &'a [u8],
    pub full: bool,
}

impl Stack<'_> {
    pub fn read(&self, address: u64) -> Result<u64, ()> {
        let at = address.checked_sub(self.start).ok_or(())?;
        let bytes = self.bytes.get(usize::try_from(at).map_err(|_| ())?..).ok_or(())?;
        bytes.first_chunk().map(|b| u64::from_le_bytes(*b)).ok_or(())
    }

    /// The copy ends below this address although the stack goes on.
    pub fn cut_before(&self, address: u64) -> bool {
        self.full && address.wrapping_add(8) > self.start + self.bytes.len() as u64
    }

    /// Why a stack ends that goes on beyond the copy.
    fn too_small(&self) -> StackEnd {
        // The kernel gives less than the largest where the rest of the record needs room.
        const LARGE: usize = MAX_DUMP as usize / 4 * 3;
        match self.full && self.bytes.len() < LARGE {
            true => StackEnd::SmallDump,
            false => StackEnd::DumpTooSmall,
        }
    }
}

impl Unwinder {
    pub(super) fn walk(
        &mut self,
        walk: &Walk<'_>,
        regs: Regs,
        images: &mut Images,
        frames: &mut Vec<Frame>,
    ) -> StackEnd {
        self.memo.begin(walk.tid, walk.regions.version());
        // Frames that follow from the copy alone, once there are others.
        let mut sure = None;
        self.guessed = false;
        let end = self.walk_up(walk, regs, images, frames, &mut sure);
        let go_on = end != StackEnd::Complete && self.through_go(walk, images, frames);
        self.memo.finish(end == StackEnd::Complete);
        self.kept = Some(self.memo.kept());
        if go_on {
            return StackEnd::Complete;
        }
        if self.guessed && end != StackEnd::Complete {
            frames.truncate(1);
            return StackEnd::Unreadable;
        }
        // Where the copy holds the whole stack, a rule may lead to where nothing is.
        let beyond = walk.stack.full || walk.live.borrow().was_there();
        match sure.filter(|_| end != StackEnd::Complete && beyond) {
            Some(sure) => {
                frames.truncate(sure);
                if end == StackEnd::TooDeep { end } else { walk.stack.too_small() }
            }
            None => end,
        }
    }

    fn walk_up(
        &mut self,
        walk: &Walk<'_>,
        mut regs: Regs,
        images: &mut Images,
        frames: &mut Vec<Frame>,
        sure: &mut Option<usize>,
    ) -> StackEnd {
        let (mut address, mut is_return) = (regs.ip, false);
        loop {
            regs.ip = address;
            if sure.is_none() && walk.live.borrow().was_read() {
                *sure = Some(frames.len());
            }
            let read = |address| walk.read(address);
            let frame = match self.memo.follow(regs, is_return, read, frames, MAX_FRAMES) {
                Lead::Entry => return StackEnd::Complete,
                Lead::To(there, frame) => {
                    regs = there;
                    frame
                }
                Lead::None => match locate(walk.pid, walk.regions, images, address, is_return) {
                    Some(frame) => {
                        frames.push(frame);
                        frame
                    }
                    None => return nowhere(address, images, frames),
                },
            };
            if frames.len() >= MAX_FRAMES {
                return StackEnd::TooDeep;
            }
            let mut reads = Reads::default();
            let here = regs;
            let step = self.step(walk, frame, &mut regs, images, &mut reads);
            self.memo.note(Visited { regs: here, frame, reads });
            match step {
                Step::Caller(caller) => (address, is_return) = (caller, true),
                Step::Interrupted(interrupted) => (address, is_return) = (interrupted, false),
                Step::End => return StackEnd::Complete,
                Step::Unreadable(address) if walk.stack.cut_before(address) => {
                    return walk.stack.too_small();
                }
                Step::Unreadable(_) if walk.stack.bytes.is_empty() => return StackEnd::Unreadable,
                step => return self.why(step, frame, images, frames),
            };
        }
    }

    fn step(
        &mut self,
        walk: &Walk<'_>,
        frame: Frame,
        regs: &mut Regs,
        images: &mut Images,
        reads: &mut Reads,
    ) -> Step {
        let mut read = |address| {
            let word = walk.read(address);
            reads.note(address, word);
            word
        };
        let Some((module, at)) = module_of(&mut self.modules, frame, images) else {
            return module::frame_pointer_step(regs, &mut read);
        };
        match module.step(&mut self.rules, at, frame.is_return, regs, &mut read) {
            Step::Uncovered => uncovered(walk, frame, regs, images, &mut read),
            Step::NeedsRegisters => {
                // What the step depends on is more than the memo knows of.
                reads.void();
                self.step_from_the_leaf(walk, frame, regs, images)
            }
            Step::Unreadable(slot)
                if !frame.is_return && regs.sp.wrapping_sub(slot) <= RED_ZONE =>
            {
                let Some(pointer) = kept_above(walk, regs.sp, images) else {
                    return Step::Unreadable(slot);
                };
                reads.void();
                let mut read = |a| if a == slot { Ok(pointer) } else { walk.read(a) };
                self.guessed = true;
                module_of(&mut self.modules, frame, images).map_or(Step::Failed, |(m, at)| {
                    m.step(&mut self.rules, at, false, regs, &mut read)
                })
            }
            step => step,
        }
    }

    /// A step whose rule names registers that the walk does not carry along: they are followed
    /// from the innermost frame, or the last signal's, where all of them are known.
    fn step_from_the_leaf(
        &mut self,
        walk: &Walk<'_>,
        frame: Frame,
        regs: &mut Regs,
        images: &Images,
    ) -> Step {
        let Unwinder { modules, rules, memo, .. } = self;
        let walked = memo.steps();
        let signal = walked.iter().rposition(|s| !s.frame.is_return).filter(|&i| i > 0);
        let mut registers = Registers::NONE;
        let first = match signal.filter(|_| frame.is_return) {
            Some(interrupted) => interrupted - 1,
            None if !frame.is_return && !walked.is_empty() => walked.len() - 1,
            None => {
                let Some(values) = walk.all.in_dwarf_order() else { return Step::Failed };
                (0..).zip(values).for_each(|(number, value)| registers.set(number, value));
                0
            }
        };
        if registers == Registers::NONE {
            registers.set(super::cfi::SP, walked[first].regs.sp);
        }
        let this = Visited { regs: *regs, frame, reads: Reads::default() };
        let mut last = Step::Failed;
        for at in walked[first..].iter().chain([&this]) {
            registers.set_ip(at.regs.ip);
            let Some((module, address)) = module_of(modules, at.frame, images) else {
                return Step::Failed;
            };
            if registers.get(super::cfi::SP) != Some(at.regs.sp) {
                return Step::Failed;
            }
            let read = &mut |address| walk.read(address);
            last = module.step_with(rules, address, at.frame.is_return, &mut registers, read);
            if !matches!(last, Step::Caller(_) | Step::Interrupted(_)) {
                return if last == Step::NeedsRegisters { Step::Failed } else { last };
            }
        }
        if let (Step::Caller(ip), Some(sp)) = (last, registers.get(super::cfi::SP)) {
            *regs = Regs { ip, sp, bp: registers.get(super::cfi::BP).unwrap_or(0) };
        }
        last
    }

    /// Goes on where C was called by Go: Go's functions call C's on another stack, and its unwind
    /// information does not say so. They all keep frame pointers, which lead to the stack of the
    /// goroutine; that one is in no copy.
    fn through_go(
        &mut self,
        walk: &Walk<'_>,
        images: &mut Images,
        frames: &mut Vec<Frame>,
    ) -> bool {
        let modules = &mut self.modules;
        let mut in_go = |f: &Frame| {
            module_of(modules, *f, images).is_some_and(|(m, at)| m.is_go_code(at, f.is_return))
        };
        let Some(switch) = frames.iter().position(&mut in_go).filter(|&i| i > 0) else {
            return false;
        };
        let Some(&[first, ..]) = self.memo.steps().get(..=switch) else { return false };
        let mut regs = self.memo.steps()[switch].regs;
        // The goroutine's stack may lie below this one.
        (regs.sp, regs.ip) = (0, 0);
        let mut chain = walk.chain.iter().skip(1);
        let same = first.regs.bp == regs.bp;
        let mut read = |a| walk.live.borrow_mut().word(a);
        let mut caller = || match same {
            // C left the frame pointer alone, so the kernel has followed it.
            true => chain.next().copied(),
            false => match module::frame_pointer_step(&mut regs, &mut read) {
                Step::Caller(address) => Some(address),
                _ => None,
            },
        };
        let mut callers = Vec::new();
        while callers.len() < MAX_FRAMES {
            let frame = caller().and_then(|a| locate(walk.pid, walk.regions, images, a, true));
            let Some(frame) = frame else { return false };
            callers.push(frame);
            if self.is_outermost(frame, images) {
                frames.truncate(switch + 1);
                frames.append(&mut callers);
                return true;
            }
        }
        false
    }

    /// The frame is one that nothing calls.
    pub(super) fn is_outermost(&mut self, frame: Frame, images: &Images) -> bool {
        let Unwinder { modules, rules, .. } = self;
        is_entry(&frame, images)
            || module_of(modules, frame, images)
                .is_some_and(|(module, at)| module.is_outermost(rules, at, frame.is_return))
    }

    /// Why a walk ends at this frame, whose step went so.
    fn why(&mut self, step: Step, frame: Frame, images: &Images, frames: &mut [Frame]) -> StackEnd {
        if is_entry(&frame, images) {
            return StackEnd::Complete;
        }
        let Unwinder { modules, rules, .. } = self;
        match frame.place.image.map(|i| &images.get(i).state) {
            Some(State::Elf(loaded)) if loaded.elf.can_unwind() => {
                let by_hand = frame.is_return
                    && module_of(modules, frame, images)
                        .is_some_and(|(module, at)| module.begins_alone(rules, at));
                match (step, frames.last_mut()) {
                    // `makecontext` writes the address of a function where a return address is.
                    (_, Some(last)) if by_hand => {
                        last.is_return = false;
                        last.place.address += 1;
                        StackEnd::NoCaller
                    }
                    (Step::NoCaller, _) => StackEnd::NoCaller,
                    (Step::Uncovered, _) => {
                        let damaged = module_of(modules, frame, images)
                            .is_some_and(|(m, at)| m.is_damaged(rules, at, frame.is_return));
                        match damaged {
                            true => StackEnd::DamagedUnwindInfo,
                            false => StackEnd::Uncovered,
                        }
                    }
                    _ => StackEnd::BadReturnAddress,
                }
            }
            Some(State::Anonymous) => StackEnd::RuntimeCode,
            _ => StackEnd::NoUnwindInfo,
        }
    }
}

/// The unwinder of the image that a frame lies in, and the frame's address there; `None`: the
/// image is no ELF file that could be opened.
fn module_of<'m>(
    modules: &'m mut Vec<Option<Box<ModuleUnwinder>>>,
    frame: Frame,
    images: &Images,
) -> Option<(&'m ModuleUnwinder, u64)> {
    let Place { image: Some(image), segment: Some(_), address } = frame.place else { return None };
    let of = images.get(image);
    let State::Elf(loaded) = &of.state else { return None };
    let at = image as usize;
    if modules.len() <= at {
        modules.resize_with(at + 1, || None);
    }
    let module =
        modules[at].get_or_insert_with(|| Box::new(ModuleUnwinder::new(image, &of.path, loaded)));
    Some((module, address + u64::from(frame.is_return)))
}

/// Most bytes from a call to the end of its function that are looked at.
const MAX_EPILOGUE: usize = 48;

/// Offset of a frame's code in its file: for a return address, of what comes after the call.
fn code_at(frame: &Frame, images: &Images) -> Option<usize> {
    let (image, segment) = (frame.place.image?, frame.place.segment?);
    let State::Elf(loaded) = &images.get(image).state else { return None };
    let segment = loaded.elf.segments.get(usize::from(segment))?;
    let after = frame.place.address + u64::from(frame.is_return);
    let offset = after.checked_sub(segment.address)?.checked_add(segment.offset)?;
    usize::try_from(offset).ok()
}

fn loaded<'i>(frame: &Frame, images: &'i Images) -> Option<&'i Loaded> {
    match &images.get(frame.place.image?).state {
        State::Elf(loaded) => Some(loaded),
        _ => None,
    }
}

/// The frame of a return address that no unwind information vouches for: code has to be there,
/// and, where it can be looked at, a call before it.
pub(super) fn after_call(
    pid: i32,
    regions: &Regions,
    images: &mut Images,
    address: u64,
) -> Option<Frame> {
    let frame = locate(pid, regions, images, address, true)?;
    let Some(loaded) = loaded(&frame, images) else { return Some(frame) };
    let offset = code_at(&frame, images)?;
    let before = loaded.bytes.get(offset.saturating_sub(8)..offset)?;
    code::ends_with_call(before).then_some(frame)
}

/// One step up from code that has no unwind information: assembly, stubs, other compilers.
fn uncovered(
    walk: &Walk<'_>,
    frame: Frame,
    regs: &mut Regs,
    images: &mut Images,
    read: &mut impl FnMut(u64) -> Result<u64, ()>,
) -> Step {
    let called = |images: &mut Images, address: u64| {
        after_call(walk.pid, walk.regions, images, address).is_some()
    };
    // The innermost function may not have touched the stack.
    if !frame.is_return
        && let Ok(caller) = read(regs.sp)
        && called(images, caller)
    {
        *regs = Regs { ip: caller, sp: regs.sp + 8, bp: regs.bp };
        return Step::Caller(caller);
    }
    if let Some(step) = by_epilogue(&frame, regs, images, read) {
        return step;
    }
    if regs.bp == 0 && frame.is_return && ends_the_thread(&frame, images) {
        return Step::End;
    }
    let mut caller = *regs;
    match module::frame_pointer_step(&mut caller, read) {
        Step::Caller(address) if called(images, address) => {
            *regs = caller;
            Step::Caller(address)
        }
        _ => Step::Uncovered,
    }
}

/// One step up by what the code after the call does before it returns: assembly mostly pops what
/// it pushed. `None`: it does something else.
fn by_epilogue(
    frame: &Frame,
    regs: &mut Regs,
    images: &Images,
    read: &mut impl FnMut(u64) -> Result<u64, ()>,
) -> Option<Step> {
    let after = loaded(frame, images).zip(code_at(frame, images)).filter(|_| frame.is_return);
    let (loaded, offset) = after?;
    let after = loaded.bytes.get(offset..offset.saturating_add(MAX_EPILOGUE))?;
    let (size, bp_at) = code::epilogue(after)?;
    let slot = regs.sp.checked_add(size)?;
    let Ok(ip) = read(slot) else { return Some(Step::Unreadable(slot)) };
    let bp = match bp_at {
        Some(at) => read(regs.sp + at).ok()?,
        None => regs.bp,
    };
    *regs = Regs { ip, sp: slot + 8, bp };
    Some(if ip == 0 { Step::NoCaller } else { Step::Caller(ip) })
}

/// Where code in assembly keeps its caller's stack pointer only below its own (OpenSSL's, while
/// it moves its own), a copy of that lies further up in its frame: the first word that points
/// further up still, to a return address. Whether it was right, the walk shows: the thread's entry
/// has to be reached.
fn kept_above(walk: &Walk<'_>, sp: u64, images: &mut Images) -> Option<u64> {
    /// Bytes; the largest such frame is of 2.5 KiB.
    const FRAME: u64 = 4096;
    (sp..sp.checked_add(FRAME)?).step_by(8).find_map(|at| {
        let pointer = walk.stack.read(at).ok()?;
        if pointer <= at || pointer - sp > FRAME || pointer % 8 != 0 {
            return None;
        }
        let caller = walk.stack.read(pointer).ok()?;
        after_call(walk.pid, walk.regions, images, caller).map(|_| pointer)
    })
}

/// What comes after the call is the system call `exit`: this is where a C library's threads
/// begin (musl's `__clone` has no unwind information).
fn ends_the_thread(frame: &Frame, images: &Images) -> bool {
    const SOON: usize = 16;
    const MOV_60_AL_SYSCALL: [u8; 4] = [0xb0, 60, 0x0f, 0x05];
    let Some((loaded, offset)) = loaded(frame, images).zip(code_at(frame, images)) else {
        return false;
    };
    let after = loaded.bytes.get(offset..offset.saturating_add(SOON)).unwrap_or_default();
    after.windows(4).any(|w| w == MOV_60_AL_SYSCALL)
}

/// Why a walk ends that came to an address that no mapping holds.
fn nowhere(address: u64, images: &Images, frames: &mut Vec<Frame>) -> StackEnd {
    match frames.last() {
        // Where the program counter is, is a fact, mapped or not.
        None => frames.push(unmapped(address)),
        Some(last) if is_entry(last, images) => return StackEnd::Complete,
        Some(_) => {}
    }
    StackEnd::BadReturnAddress
}

fn is_entry(frame: &Frame, images: &Images) -> bool {
    loaded(frame, images).is_some_and(|l| l.elf.is_entry(frame.place.address))
}
