//! From registers and stack bytes (or a frame-pointer chain) to the addresses of the callers, and why
//! a stack ended.
//!
//! Each image has one unwinder, in the address space that its file states, shared by all processes:
//! a new process costs nothing. gimli reads the unwind information; the rules made of it are cached
//! ([`module::RuleCache`]). Code without unwind information is left by what its instructions do
//! ([`mod@code`]).
//!
//! It never reads memory that was not copied at the moment of the sample, never guesses a caller,
//! names no function and opens no perf event.

mod cfi;
mod code;
mod go;
mod memo;
mod module;
mod splice;
#[cfg(test)]
mod tests;
mod uncovered;
mod walk;

use std::cell::Cell;

use sys::image::{Hit, Images, State};
use sys::maps::Regions;
use sys::record::UserStack;

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
    /// The stack goes on beyond what was copied of it at that moment.
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
    /// A signal handler runs on a stack of its own, and no copy holds the one that it interrupted.
    OtherStack,
    /// An exception is on its way to its handler, whose registers have taken the place of those
    /// that lead to the caller.
    Delivering,
    /// The process's mappings are not for this user to read, or it ended before they were.
    HiddenMappings,
    /// Records about mappings were lost, and the process ended before `/proc` was read again.
    LostMappings,
    /// Deeper than [`MAX_FRAMES`].
    TooDeep,
    /// Deeper than the kernel walks along frame pointers.
    ChainTooDeep,
    /// A 32-bit process.
    Compat,
}

impl StackEnd {
    /// All reasons.
    pub const ALL: [StackEnd; 17] = [
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
        StackEnd::OtherStack,
        StackEnd::Delivering,
        StackEnd::HiddenMappings,
        StackEnd::LostMappings,
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
    /// Which of them it is.
    pub kind: AddressKind,
    /// Where the instruction lies (the call, for a return address).
    pub place: Place,
}

/// What an address in code is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AddressKind {
    /// The instruction that was about to be executed.
    Instruction,
    /// Where a call returns to: the call is just before it.
    Return,
}

impl AddressKind {
    /// It is a return address.
    pub fn is_return(self) -> bool {
        self == AddressKind::Return
    }

    /// How far before such an address the address lies that is looked up.
    pub fn offset(self) -> u64 {
        u64::from(self.is_return())
    }

    /// Address of the instruction itself: for a return address, one within the call.
    pub fn lookup(self, address: u64) -> u64 {
        address.wrapping_sub(self.offset())
    }
}

/// Frame of an address, or `None` when no executable mapping holds it.
///
/// The image is opened when this is its first hit.
pub fn locate(
    pid: i32,
    regions: &Regions,
    images: &mut Images,
    address: u64,
    kind: AddressKind,
) -> Option<Frame> {
    let at = kind.lookup(address);
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
    Some(Frame { address, kind, place: Place { image: Some(image), segment, address: at } })
}

/// Frame of an address that no mapping holds.
pub fn unmapped(address: u64) -> Frame {
    Frame {
        address,
        kind: AddressKind::Instruction,
        place: Place { image: None, segment: None, address },
    }
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
        let kind = if i > 0 { AddressKind::Return } else { AddressKind::Instruction };
        match locate(pid, regions, images, address, kind) {
            Some(frame) => frames.push(frame),
            None if i == 0 => frames.push(unmapped(address)),
            None => return,
        }
    }
}

/// The unwinder: one for a recording.
#[derive(Default)]
pub struct Unwinder {
    /// By image.
    modules: Vec<Option<Box<ModuleUnwinder>>>,
    rules: RuleCache,
    memo: Memo,
    /// In the walk that goes on, a caller's frame pointer could not be known.
    blind: bool,
    /// The last stack was followed beyond the kernel's own copy of it.
    pub beyond: bool,
    /// What the last stack has in common with an earlier one, if it was walked along.
    pub kept: Option<Kept>,
}

impl Unwinder {
    /// Unwinds the user stack of a process's thread into `frames` (leaf first; what it holds is
    /// cleared). Nothing is read but what came with the sample.
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
        (self.beyond, self.kept) = (false, None);
        match user {
            UserStack::Native { regs, all, bytes, full, rest } => {
                let beyond = Cell::new(false);
                let stack = Stack { start: regs.sp, bytes, full, rest, beyond: &beyond };
                let walk = Walk { regions, pid, tid, stack, all, chain };
                let mut end = self.walk(&walk, regs, images, frames);
                // Frame pointers lead on from the same memory.
                if !matches!(end, StackEnd::Complete | StackEnd::Delivering)
                    && self.splice(&walk, regs, frames, images)
                    && frames.last().is_some_and(|&last| self.is_outermost(last, images))
                {
                    end = StackEnd::Complete;
                }
                self.beyond = beyond.get();
                end
            }
            UserStack::Compat => StackEnd::Compat,
            UserStack::None => StackEnd::Complete,
        }
    }

    /// Rules of unwind information that were found among those looked up before, and that were
    /// looked up in the tables.
    pub fn rule_lookups(&self) -> (u64, u64) {
        (self.rules.hits, self.rules.misses)
    }
}
