//! From registers and stack bytes (or a frame-pointer chain) to code addresses, and why a stack
//! ended.
//!
//! framehop does the unwinding. Each image has an unwinder of its own, in the address space that
//! its file states, so that all processes share one and starting a process costs nothing.

mod live;
mod memo;
mod module;
#[cfg(test)]
mod tests;

use std::cell::RefCell;

use crate::process::image::{Hit, Images, State};
use crate::process::maps::Regions;
use crate::sampler::record::{Regs, UserStack};

pub use module::{ModuleUnwinder, RuleCaches, Step};

use live::Live;
pub use memo::{Kept, SLOTS};
use memo::{Lead, Memo, Reads, Visited};

/// Most frames of a user stack.
pub const MAX_FRAMES: usize = 4096;

/// Frames that the kernel's walk along frame pointers yields at most
/// (`kernel.perf_event_max_stack`).
const KERNEL_MAX_STACK: usize = 127;

/// Why a stack ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StackEnd {
    /// At the thread's entry.
    Complete,
    /// The stack is deeper than the copy of it.
    DumpTooSmall,
    /// The kernel could copy nothing of the stack (it was paged out, or being taken down).
    Unreadable,
    /// The code has no unwind information, and frame pointers lead nowhere.
    NoUnwindInfo,
    /// Code made at run time that keeps no frame pointers.
    RuntimeCode,
    /// A return address that lies in no executable mapping.
    BadReturnAddress,
    /// The process's mappings are not for this user to read, or it ended before they were.
    HiddenMappings,
    /// Deeper than [`MAX_FRAMES`], or than the kernel walks.
    TooDeep,
    /// A 32-bit process.
    Compat,
}

impl StackEnd {
    /// The reason in words; `None` for a complete stack.
    pub fn reason(self) -> Option<&'static str> {
        Some(match self {
            StackEnd::Complete => return None,
            StackEnd::DumpTooSmall => "dump too small",
            StackEnd::Unreadable => "stack not readable",
            StackEnd::NoUnwindInfo => "no unwind information",
            StackEnd::RuntimeCode => "run-time code without frame pointers",
            StackEnd::BadReturnAddress => "bad return address",
            StackEnd::HiddenMappings => "mappings not readable",
            StackEnd::TooDeep => "too deep",
            StackEnd::Compat => "32-bit process",
        })
    }

    /// All reasons.
    pub const ALL: [StackEnd; 9] = [
        StackEnd::Complete,
        StackEnd::DumpTooSmall,
        StackEnd::Unreadable,
        StackEnd::NoUnwindInfo,
        StackEnd::RuntimeCode,
        StackEnd::BadReturnAddress,
        StackEnd::HiddenMappings,
        StackEnd::TooDeep,
        StackEnd::Compat,
    ];
}

/// Where an address lies: in an image, in a form that is the same for all processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The image; `None`: no executable mapping holds the address.
    pub image: Option<u32>,
    /// Index of the image's executable segment, if it is an ELF file that could be opened.
    pub segment: Option<u16>,
    /// With a segment: the address that the ELF file states. For a file that could not be
    /// opened: the offset in it. Else: the address in the process.
    pub address: u64,
}

/// A frame of a user stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame {
    /// Instruction pointer or return address, in the process's address space.
    pub address: u64,
    /// It is a return address: the call is just before it.
    pub is_return: bool,
    /// Where the instruction lies (the call, for a return address).
    pub place: Place,
}

/// Address of the instruction itself: for a return address, one within the call.
fn lookup(address: u64, is_return: bool) -> u64 {
    address.wrapping_sub(u64::from(is_return))
}

/// Frame of an address, or `None` when no executable mapping holds it.
///
/// The image is opened when this is its first hit.
pub fn locate(
    pid: i32,
    regions: &Regions,
    images: &mut Images,
    address: u64,
    is_return: bool,
) -> Option<Frame> {
    let at = lookup(address, is_return);
    let region = regions.find(at)?;
    let image = images.load(region.image, Hit { pid, start: region.start, end: region.end });
    let offset = at - region.start + region.offset;
    let (segment, at) = match &images.get(image).state {
        State::Elf(loaded) => match loaded.elf.address_of(offset) {
            Some((segment, at)) => (Some(segment as u16), at),
            None => (None, offset),
        },
        State::Anonymous => (None, at),
        _ => (None, offset),
    };
    Some(Frame { address, is_return, place: Place { image: Some(image), segment, address: at } })
}

/// Frame of an address that no mapping holds.
pub fn unmapped(address: u64) -> Frame {
    Frame { address, is_return: false, place: Place { image: None, segment: None, address } }
}

/// The kernel's walk along frame pointers as frames (leaf first; what `frames` holds is cleared).
/// It ends before an address that lies in no executable mapping, unless it is the first.
pub fn chain_frames(
    pid: i32,
    regions: &Regions,
    images: &mut Images,
    chain: &[u64],
    frames: &mut Vec<Frame>,
) -> StackEnd {
    frames.clear();
    for (i, &address) in chain.iter().enumerate() {
        match locate(pid, regions, images, address, i > 0) {
            Some(frame) => frames.push(frame),
            None if i == 0 => frames.push(unmapped(address)),
            None => return StackEnd::BadReturnAddress,
        }
    }
    if chain.len() >= KERNEL_MAX_STACK { StackEnd::TooDeep } else { StackEnd::Complete }
}

/// Where a stack was read from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Source {
    /// All of it from the copy that came with the sample.
    #[default]
    Copy,
    /// Its outer part from the memory of the process, a moment later.
    Memory,
    /// It was tried so, in vain.
    Neither,
}

/// The unwinder: one for a recording.
#[derive(Default)]
pub struct Unwinder {
    /// By image.
    modules: Vec<Option<Box<ModuleUnwinder>>>,
    caches: RuleCaches,
    memo: Memo,
    live: RefCell<Live>,
    /// Where the last stack was read from.
    pub source: Source,
    /// What the last stack has in common with an earlier one, if it was walked along.
    pub kept: Option<Kept>,
    /// Modules made since the caches were empty.
    made: usize,
}

/// framehop tells modules apart by a counter of 16 bits, so all are made anew before it wraps.
const MAX_MODULES: usize = 60_000;

/// How far the DWARF walk of one stack has come.
struct Walk<'a> {
    regions: &'a Regions,
    pid: i32,
    tid: i32,
    stack: Stack<'a>,
    /// What lies beyond the copy.
    live: &'a RefCell<Live>,
}

impl Walk<'_> {
    fn read(&self, address: u64) -> Result<u64, ()> {
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
struct Stack<'a> {
    start: u64,
    bytes: &'a [u8],
    full: bool,
}

impl Stack<'_> {
    fn read(&self, address: u64) -> Result<u64, ()> {
        let at = address.checked_sub(self.start).ok_or(())?;
        let bytes = self.bytes.get(usize::try_from(at).map_err(|_| ())?..).ok_or(())?;
        bytes.first_chunk().map(|b| u64::from_le_bytes(*b)).ok_or(())
    }

    /// The copy ends below this address although the stack goes on.
    fn cut_before(&self, address: u64) -> bool {
        self.full && address.wrapping_add(8) > self.start + self.bytes.len() as u64
    }
}

impl Unwinder {
    /// Unwinds a user stack into `frames` (leaf first; what it holds is cleared).
    ///
    /// `chain` is the kernel's walk along frame pointers, empty when there is none; it is used
    /// where the DWARF walk stops before the thread's entry.
    pub fn unwind(
        &mut self,
        (pid, tid): (i32, i32),
        regions: &Regions,
        images: &mut Images,
        user: UserStack<'_>,
        chain: &[u64],
        frames: &mut Vec<Frame>,
    ) -> StackEnd {
        frames.clear();
        (self.source, self.kept) = (Source::Copy, None);
        let end = match user {
            UserStack::Native { regs, bytes, full } => {
                let stack = Stack { start: regs.sp, bytes, full };
                let live = std::mem::take(&mut self.live);
                live.borrow_mut().begin(pid);
                let walk = Walk { regions, pid, tid, stack, live: &live };
                let end = self.walk(&walk, regs, images, frames);
                self.source = match (live.borrow().was_read(), end) {
                    (false, _) => Source::Copy,
                    (true, StackEnd::Complete) => Source::Memory,
                    (true, _) => Source::Neither,
                };
                self.live = live;
                end
            }
            UserStack::Compat => StackEnd::Compat,
            UserStack::None => StackEnd::Complete,
        };
        if end != StackEnd::Complete && splice(pid, frames, chain, regions, images) {
            return if chain.len() >= KERNEL_MAX_STACK { end } else { StackEnd::Complete };
        }
        end
    }

    fn walk(
        &mut self,
        walk: &Walk<'_>,
        regs: Regs,
        images: &mut Images,
        frames: &mut Vec<Frame>,
    ) -> StackEnd {
        self.memo.begin(walk.tid, walk.regions.version());
        // Frames that follow from the copy alone, once there are others.
        let mut sure = None;
        let end = self.walk_up(walk, regs, images, frames, &mut sure);
        self.memo.finish(end == StackEnd::Complete);
        self.kept = Some(self.memo.kept());
        match sure.filter(|_| end != StackEnd::Complete) {
            Some(sure) => {
                frames.truncate(sure);
                StackEnd::DumpTooSmall
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
                    return StackEnd::DumpTooSmall;
                }
                Step::Unreadable(_) if walk.stack.bytes.is_empty() => return StackEnd::Unreadable,
                Step::Unreadable(_) | Step::Failed => return why(frame, images),
            };
        }
    }

    fn step(
        &mut self,
        walk: &Walk<'_>,
        frame: Frame,
        regs: &mut Regs,
        images: &Images,
        reads: &mut Reads,
    ) -> Step {
        let mut read = |address| {
            let word = walk.read(address);
            reads.note(address, word);
            word
        };
        let Place { image: Some(image), segment: Some(_), address } = frame.place else {
            return module::frame_pointer_step(regs, &mut read);
        };
        let State::Elf(loaded) = &images.get(image).state else {
            return module::frame_pointer_step(regs, &mut read);
        };
        let path = &images.get(image).path;
        let at = image as usize;
        if self.modules.len() <= at {
            self.modules.resize_with(at + 1, || None);
        }
        if self.modules[at].is_none() {
            if self.made >= MAX_MODULES {
                self.modules.iter_mut().for_each(|m| *m = None);
                (self.caches, self.made) = (RuleCaches::default(), 0);
            }
            self.made += 1;
        }
        let module =
            self.modules[at].get_or_insert_with(|| Box::new(ModuleUnwinder::new(path, loaded)));
        let cache = self.caches.of(image, address);
        let address = address + u64::from(frame.is_return);
        module.step(cache, address, frame.is_return, regs, &mut read)
    }
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
    match frame.place.image.map(|i| &images.get(i).state) {
        Some(State::Elf(loaded)) => loaded.elf.is_entry(frame.place.address),
        _ => false,
    }
}

/// Why a walk ends at this frame.
fn why(frame: Frame, images: &Images) -> StackEnd {
    if is_entry(&frame, images) {
        return StackEnd::Complete;
    }
    match frame.place.image.map(|i| &images.get(i).state) {
        Some(State::Elf(loaded)) if loaded.elf.can_unwind() => StackEnd::BadReturnAddress,
        Some(State::Anonymous) => StackEnd::RuntimeCode,
        _ => StackEnd::NoUnwindInfo,
    }
}

/// Continues a stack that the DWARF walk left incomplete with the kernel's frame-pointer chain,
/// from a frame that both have. Returns false when they have none in common or the chain adds
/// nothing.
///
/// Only the last few frames are looked at: what DWARF found beyond the common frame is dropped,
/// and it must not be much.
fn splice(
    pid: i32,
    frames: &mut Vec<Frame>,
    chain: &[u64],
    regions: &Regions,
    images: &mut Images,
) -> bool {
    const LOOK_BACK: usize = 4;
    let first = frames.len().saturating_sub(LOOK_BACK);
    for i in (first..frames.len()).rev() {
        let Some(j) = chain.iter().position(|&a| a == frames[i].address) else { continue };
        let rest = &chain[j + 1..];
        let valid = rest.iter().take_while(|&&a| regions.find(lookup(a, true)).is_some());
        let count = valid.count();
        if i + 1 + count <= frames.len() {
            return false;
        }
        frames.truncate(i + 1);
        frames.extend(rest[..count].iter().filter_map(|&a| locate(pid, regions, images, a, true)));
        return true;
    }
    false
}
