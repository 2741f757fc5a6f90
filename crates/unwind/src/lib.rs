//! From registers and stack bytes (or a frame-pointer chain) to the addresses of the callers, and
//! the cause if a stack is truncated.
//!
//! Each image has one unwinder, in the address space of its file, shared by all processes: a new
//! process costs nothing. gimli reads the unwind information; the derived rules are cached
//! ([`module::RuleCache`]). Frames of code without unwind information are derived from its
//! instructions ([`mod@code`]).
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
use walk::{StackCopy, Walk};

/// Most frames of a user stack.
pub const MAX_FRAMES: usize = 8192;

/// End of a stack, and its cause.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StackEnd {
    /// At the thread's entry.
    Complete,
    /// The stack is deeper than its copy, which was requested smaller than the kernel's largest.
    SmallDump,
    /// The stack is deeper than its copy.
    DumpTooSmall,
    /// The kernel could not copy any of the stack (it was paged out, or being unmapped).
    Unreadable,
    /// The binary has no unwind information, and frame pointers lead nowhere.
    NoUnwindInfo,
    /// The binary has unwind information, but none for this code (mostly assembly), and frame
    /// pointers lead nowhere.
    Uncovered,
    /// The binary's unwind information for this code cannot be read.
    DamagedUnwindInfo,
    /// Code made at run time without frame pointers.
    RuntimeCode,
    /// A return address that lies in no executable mapping.
    BadReturnAddress,
    /// The stack begins here, and its first function is not a thread's entry: it belongs to a
    /// coroutine, for example, or to Go's run-time code.
    NoCaller,
    /// A signal handler runs on an alternate stack, and no copy contains the interrupted one.
    OtherStack,
    /// An exception is being delivered to its handler, whose registers have replaced those that
    /// lead to the caller.
    Delivering,
    /// This user may not read the process's mappings, or it ended before they were read.
    HiddenMappings,
    /// Records about mappings were lost, and the process ended before `/proc` was read again.
    LostMappings,
    /// Deeper than [`MAX_FRAMES`].
    TooDeep,
    /// Deeper than the kernel's walk along frame pointers.
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

/// Location of an address in an image, in a form that is the same for all processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The image; `None` if no executable mapping contains the address.
    pub image: Option<u32>,
    /// Index of the image's executable segment, if it is an ELF file that could be opened.
    pub segment: Option<u16>,
    /// With a segment: the address in the ELF file. For a file that could not be opened: the file
    /// offset. Otherwise: the address in the process.
    pub address: u64,
}

/// A frame of a user stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame {
    /// Instruction pointer or return address, in the process's address space.
    pub address: u64,
    /// Kind of the address.
    pub kind: AddressKind,
    /// Location of the instruction (the call, for a return address).
    pub place: Place,
}

/// Kind of a code address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AddressKind {
    /// The instruction that was about to be executed.
    Instruction,
    /// A return address: the call is just before it.
    Return,
}

impl AddressKind {
    /// True for a return address.
    pub fn is_return(self) -> bool {
        self == AddressKind::Return
    }

    /// Distance from the address that is looked up to such an address.
    pub fn offset(self) -> u64 {
        u64::from(self.is_return())
    }

    /// Address of the instruction itself: for a return address, one within the call.
    pub fn lookup(self, address: u64) -> u64 {
        address.wrapping_sub(self.offset())
    }
}

/// Frame of an address, or `None` if no executable mapping contains it.
///
/// The image is opened at its first sample.
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

/// Frame of an address outside all mappings.
pub fn unmapped(address: u64) -> Frame {
    Frame {
        address,
        kind: AddressKind::Instruction,
        place: Place { image: None, segment: None, address },
    }
}

/// Converts the kernel's walk along frame pointers to frames (leaf first; `frames` is cleared). It
/// ends before an address outside all executable mappings, unless that is the first.
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

/// The unwinder of a recording.
#[derive(Default)]
pub struct Unwinder {
    /// By image.
    modules: Vec<Option<Box<ModuleUnwinder>>>,
    rules: RuleCache,
    memo: Memo,
    /// A caller's frame pointer was unknown in the current walk.
    blind: bool,
    /// The last stack was followed beyond the kernel's own copy of it.
    pub beyond: bool,
    /// The part that the last stack has in common with an earlier one, if it was walked.
    pub kept: Option<Kept>,
}

impl Unwinder {
    /// Unwinds the user stack of a thread into `frames` (leaf first; cleared before). Reads only
    /// data that came with the sample.
    ///
    /// `chain` is the kernel's walk along frame pointers, empty if there is none; it is used where
    /// the DWARF walk stops before the thread's entry.
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
                let stack = StackCopy { start: regs.sp, bytes, full, rest, beyond: &beyond };
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

    /// Number of rules that were found in the cache, and that were looked up in the tables.
    pub fn rule_lookups(&self) -> (u64, u64) {
        (self.rules.hits, self.rules.misses)
    }
}
