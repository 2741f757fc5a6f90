//! From registers and stack bytes (or a frame-pointer chain) to code addresses, and why a stack
//! ended.
//!
//! Each image has an unwinder of its own, in the address space that its file states, so that all
//! processes share one and starting a process costs nothing. gimli reads the unwind information;
//! the rules that it gives are kept ([`module::RuleCache`]).

mod cfi;
mod code;
mod go;
mod live;
mod memo;
mod module;
#[cfg(test)]
mod tests;
mod walk;

use std::cell::RefCell;

use crate::process::image::{Hit, Images, State};
use crate::process::maps::Regions;
use crate::sampler::record::UserStack;

use live::Live;
use memo::Memo;
pub use memo::{Kept, SLOTS};
use module::{ModuleUnwinder, RuleCache};
use walk::{Stack, Walk};

/// Most frames of a user stack.
pub const MAX_FRAMES: usize = 8192;

/// Why a stack ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StackEnd {
    /// At the thread's entry.
    Complete,
    /// The stack is deeper than the copy of it, which was asked to be smaller than the kernel's
    /// largest.
    SmallDump,
    /// The stack is deeper than the largest copy, and the rest was no longer there, or no longer
    /// what it was, when it was read.
    DumpTooSmall,
    /// The kernel could copy nothing of the stack (it was paged out, or being taken down).
    Unreadable,
    /// The binary has no unwind information, and frame pointers lead nowhere.
    NoUnwindInfo,
    /// The binary has unwind information, but none for this code (assembly, mostly), and frame
    /// pointers lead nowhere.
    Uncovered,
    /// The binary's unwind information for this code cannot be read.
    DamagedUnwindInfo,
    /// Code made at run time that keeps no frame pointers.
    RuntimeCode,
    /// A return address that lies in no executable mapping.
    BadReturnAddress,
    /// The stack begins here, and its first function is no thread's entry: somebody made the
    /// stack, for a coroutine, say, or Go's run-time code runs on a stack of its own.
    NoCaller,
    /// The process's mappings are not for this user to read, or it ended before they were.
    HiddenMappings,
    /// Deeper than [`MAX_FRAMES`].
    TooDeep,
    /// Deeper than the kernel walks along frame pointers.
    ChainTooDeep,
    /// A 32-bit process.
    Compat,
}

impl StackEnd {
    /// The reason in words; `None` for a complete stack.
    pub fn reason(self) -> Option<&'static str> {
        Some(match self {
            StackEnd::Complete => return None,
            StackEnd::SmallDump => "dump smaller than 65528 bytes",
            StackEnd::DumpTooSmall => "dump too small",
            StackEnd::Unreadable => "stack not readable",
            StackEnd::NoUnwindInfo => "no unwind information",
            StackEnd::Uncovered => "no unwind information for this address",
            StackEnd::DamagedUnwindInfo => "damaged unwind information",
            StackEnd::RuntimeCode => "run-time code without frame pointers",
            StackEnd::BadReturnAddress => "bad return address",
            StackEnd::NoCaller => "no caller on this stack",
            StackEnd::HiddenMappings => "mappings not readable",
            StackEnd::TooDeep => "too deep",
            StackEnd::ChainTooDeep => "deeper than kernel.perf_event_max_stack",
            StackEnd::Compat => "32-bit process",
        })
    }

    /// All reasons.
    pub const ALL: [StackEnd; 14] = [
        StackEnd::Complete,
        StackEnd::SmallDump,
        StackEnd::DumpTooSmall,
        StackEnd::Unreadable,
        StackEnd::NoUnwindInfo,
        StackEnd::Uncovered,
        StackEnd::DamagedUnwindInfo,
        StackEnd::RuntimeCode,
        StackEnd::BadReturnAddress,
        StackEnd::NoCaller,
        StackEnd::HiddenMappings,
        StackEnd::TooDeep,
        StackEnd::ChainTooDeep,
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
) {
    frames.clear();
    for (i, &address) in chain.iter().enumerate() {
        match locate(pid, regions, images, address, i > 0) {
            Some(frame) => frames.push(frame),
            None if i == 0 => frames.push(unmapped(address)),
            None => return,
        }
    }
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
    rules: RuleCache,
    memo: Memo,
    live: RefCell<Live>,
    /// A step of the current walk was a guess, which its end has to prove.
    guessed: bool,
    /// Where the last stack was read from.
    pub source: Source,
    /// What the last stack has in common with an earlier one, if it was walked along.
    pub kept: Option<Kept>,
}

impl Unwinder {
    /// Unwinds the user stack of a process's thread at a time (`CLOCK_MONOTONIC`, nanoseconds)
    /// into `frames` (leaf first; what it holds is cleared).
    ///
    /// `chain` is the kernel's walk along frame pointers, empty when there is none; it is used
    /// where the DWARF walk stops before the thread's entry.
    pub fn unwind(
        &mut self,
        (pid, tid, time): (i32, i32, u64),
        regions: &Regions,
        images: &mut Images,
        user: UserStack<'_>,
        chain: &[u64],
        frames: &mut Vec<Frame>,
    ) -> StackEnd {
        frames.clear();
        (self.source, self.kept) = (Source::Copy, None);
        let end = match user {
            UserStack::Native { regs, all, bytes, full } => {
                let stack = Stack { start: regs.sp, bytes, full };
                let live = std::mem::take(&mut self.live);
                live.borrow_mut().begin(pid, time);
                let walk = Walk { regions, pid, tid, stack, all, chain, live: &live };
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
        if end != StackEnd::Complete
            && self.splice(pid, frames, chain, regions, images)
            && frames.last().is_some_and(|&last| self.is_outermost(last, images))
        {
            return StackEnd::Complete;
        }
        end
    }

    /// The rings are looked at, and it is `now` (`CLOCK_MONOTONIC`, nanoseconds).
    pub fn look(&mut self, now: u64) {
        self.live.get_mut().look(now);
    }

    /// Rules of unwind information that were found among those looked up before, and that were
    /// looked up in the tables.
    pub fn rule_lookups(&self) -> (u64, u64) {
        (self.rules.hits, self.rules.misses)
    }

    /// Continues a stack that the DWARF walk left incomplete with the kernel's frame-pointer
    /// chain, from a frame that both have. Returns false when they have none in common or the
    /// chain adds nothing.
    ///
    /// Only the last few frames are looked at: what DWARF found beyond the common frame is
    /// dropped, and it must not be much.
    fn splice(
        &mut self,
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
            // Code without frame pointers leaves anything in the register.
            let kept = frames.len();
            for &address in &chain[j + 1..] {
                let called = walk::after_call(pid, regions, images, address).or_else(|| {
                    let frame = locate(pid, regions, images, address, true)?;
                    self.is_outermost(frame, images).then_some(frame)
                });
                let Some(frame) = called else { break };
                frames.push(frame);
            }
            if i + 1 + (frames.len() - kept) <= kept {
                frames.truncate(kept);
                return false;
            }
            frames.drain(i + 1..kept);
            return true;
        }
        false
    }
}
