//! From registers and stack bytes (or a frame-pointer chain) to the addresses of the callers, and
//! the cause if a stack is truncated.
//!
//! Each image has one unwinder, in the address space of its file, shared by all processes: a new
//! process costs nothing. gimli reads the unwind information; the derived rules are cached
//! ([`module::RuleCache`]). Frames of code without unwind information are derived from its
//! instructions ([`arch`]).
//!
//! It never reads memory that was not copied at the moment of the sample, except code that its
//! process cannot write to, never guesses a caller, names no function and opens no perf event.

mod arch;
mod cfi;
mod code;
mod go_frames;
mod go_stacks;
mod managed;
mod memo;
mod module;
mod read_pages;
mod run_time;
mod splice;
#[cfg(test)]
mod tests;
mod uncovered;
mod walk;

use std::cell::Cell;
use std::sync::Arc;

use sys::image::{Hit, Images, State};
use sys::maps::Regions;
use sys::record::UserStack;
use sys::{FileAddress, FileOffset, ProcessAddress, ThreadId};

#[cfg(feature = "testing")]
pub use code::{Cost, fuzz_cost};
use go_stacks::GoPositions;
pub use managed::{ManagedAddress, ManagedBytes, ManagedCode, ManagedShape};
use memo::Memo;
pub use memo::{Kept, SLOTS};
use module::{Modules, RuleCache};
use run_time::RunTimeCode;
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
    /// The same of a sample of the kernel's code: the thread had no user memory of its own.
    NoUserMemory,
    /// The binary could not be opened: see [`sys::image::NotOpened`].
    NotOpened,
    /// Another binary is at its path and its addresses.
    Replaced,
    /// The binary has no unwind information, and frame pointers lead nowhere.
    NoUnwindInfo,
    /// The binary has unwind information, but none for this code (mostly assembly), and frame
    /// pointers lead nowhere.
    Uncovered,
    /// The code has no unwind information, and was not analysed: see [`Unwinder::set_hurried`].
    NotAnalysed,
    /// The binary's unwind information for this code cannot be read.
    DamagedUnwindInfo,
    /// Code made at run time without frame pointers.
    RunTimeCode,
    /// A return address that lies in no executable mapping.
    BadReturnAddress,
    /// A return probe has replaced the return address.
    ReturnProbe,
    /// The stack goes on in another segment (`gcc -fsplit-stack`), which was not copied.
    Segments,
    /// The stack begins here, and its first function is not a thread's entry: it belongs to a
    /// coroutine, for example, or to Go's run-time code.
    NoCaller,
    /// A signal handler runs on an alternate stack, and no copy contains the interrupted one.
    AlternateStack,
    /// An exception is being delivered to its handler, whose registers have replaced those that
    /// lead to the caller.
    ExceptionDelivery,
    /// This user may not read the process's mappings, or it ended before they were read.
    HiddenMappings,
    /// Records about mappings were lost, and the process ended before `/proc` was read again.
    LostMappings,
    /// Deeper than [`MAX_FRAMES`].
    TooDeep,
    /// Deeper than the kernel's walk along frame pointers.
    ChainTooDeep,
    /// The kernel had not saved the user's registers, or no longer had them, at the sample.
    RegistersNotSaved,
    /// The thread slept, its registers were read from outside, and the code leaves open where its
    /// frame pointer is.
    PointerNotKnown,
    /// A 32-bit process.
    Compat,
}

impl StackEnd {
    /// All reasons.
    pub const ALL: [StackEnd; 25] = [
        StackEnd::Complete,
        StackEnd::SmallDump,
        StackEnd::DumpTooSmall,
        StackEnd::Unreadable,
        StackEnd::NoUserMemory,
        StackEnd::NotOpened,
        StackEnd::Replaced,
        StackEnd::NoUnwindInfo,
        StackEnd::Uncovered,
        StackEnd::NotAnalysed,
        StackEnd::DamagedUnwindInfo,
        StackEnd::RunTimeCode,
        StackEnd::BadReturnAddress,
        StackEnd::ReturnProbe,
        StackEnd::Segments,
        StackEnd::NoCaller,
        StackEnd::AlternateStack,
        StackEnd::ExceptionDelivery,
        StackEnd::HiddenMappings,
        StackEnd::LostMappings,
        StackEnd::TooDeep,
        StackEnd::ChainTooDeep,
        StackEnd::RegistersNotSaved,
        StackEnd::PointerNotKnown,
        StackEnd::Compat,
    ];
}

/// Location of an address, in a form that is the same for all processes if it is in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// In an executable segment of an ELF file.
    Elf(ElfPlace),
    /// In a file that could not be opened, or outside of its ELF segments.
    File {
        /// Index of the image.
        image: u32,
        /// Position in the file.
        offset: FileOffset,
    },
    /// In executable memory without a file.
    Memory {
        /// Index of the image.
        image: u32,
        /// The address in the process.
        address: ProcessAddress,
    },
    /// In no executable mapping.
    Unmapped {
        /// The address in the process.
        address: ProcessAddress,
    },
}

impl Place {
    /// Index of the image; `None` if no executable mapping contains the address.
    pub fn image(self) -> Option<u32> {
        match self {
            Place::Elf(ElfPlace { image, .. })
            | Place::File { image, .. }
            | Place::Memory { image, .. } => Some(image),
            Place::Unmapped { .. } => None,
        }
    }

    /// The place in an ELF file, if it is in one.
    pub fn in_elf(self) -> Option<ElfPlace> {
        match self {
            Place::Elf(place) => Some(place),
            _ => None,
        }
    }

    /// The number by which a profile states the place: an address in the ELF file, an offset in
    /// another file, or an address in the process.
    pub fn number(self) -> u64 {
        match self {
            Place::Elf(place) => place.address.0,
            Place::File { offset, .. } => offset.0,
            Place::Memory { address, .. } | Place::Unmapped { address } => address.0,
        }
    }

    /// The place of the next byte.
    fn next(self) -> Place {
        match self {
            Place::Elf(place) => Place::Elf(ElfPlace { address: place.address.plus(1), ..place }),
            Place::File { image, offset } => {
                Place::File { image, offset: FileOffset(offset.0.wrapping_add(1)) }
            }
            Place::Memory { image, address } => Place::Memory { image, address: address.plus(1) },
            Place::Unmapped { address } => Place::Unmapped { address: address.plus(1) },
        }
    }
}

/// A place in an executable segment of an ELF file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ElfPlace {
    /// Index of the image.
    pub image: u32,
    /// Index of the segment among the executable ones.
    pub segment: u16,
    /// The address as the file states it.
    pub address: FileAddress,
}

/// A frame of a user stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame {
    /// Instruction pointer or return address.
    pub address: ProcessAddress,
    /// Kind of the address.
    pub kind: AddressKind,
    /// Location of the instruction (the call, for a return address).
    pub place: Place,
}

impl Frame {
    /// Frame of an address outside all mappings.
    fn unmapped(address: ProcessAddress) -> Frame {
        let place = Place::Unmapped { address };
        Frame { address, kind: AddressKind::Instruction, place }
    }

    /// The instruction itself: for a return address, a byte of the call.
    pub fn instruction(&self) -> ProcessAddress {
        self.address.minus(self.kind.offset())
    }

    /// True if its code is in memory without a file, where it was made at run time.
    pub fn is_run_time_code(&self) -> bool {
        matches!(self.place, Place::Memory { .. })
    }
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
}

/// An instruction pointer or return address in an ELF file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CodeAddress {
    /// The address as the file states it.
    pub address: FileAddress,
    /// Kind of the address.
    pub kind: AddressKind,
}

impl CodeAddress {
    /// Address of the instruction itself: for a return address, a byte of the call.
    pub fn lookup(self) -> FileAddress {
        self.address.minus(self.kind.offset())
    }
}

/// Frame of an address, or `None` if no executable mapping contains it.
///
/// The image is opened at its first sample.
pub fn locate(
    pid: i32,
    regions: &Regions,
    images: &mut Images,
    address: ProcessAddress,
    kind: AddressKind,
) -> Option<Frame> {
    let at = address.minus(kind.offset());
    let region = regions.find(at)?;
    let image = images.load(region.image, Hit { pid, start: region.start, end: region.end });
    let offset = region.offset_of(at);
    let in_file = Place::File { image, offset };
    let place = match &images.get(image).state {
        State::Elf(loaded) => {
            loaded.elf.address_of(offset).map_or(in_file, |(segment, address)| {
                Place::Elf(ElfPlace { image, segment: segment as u16, address })
            })
        }
        State::Anonymous => Place::Memory { image, address: at },
        _ => in_file,
    };
    Some(Frame { address, kind, place })
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
        let address = ProcessAddress(address);
        match locate(pid, regions, images, address, kind) {
            Some(frame) => frames.push(frame),
            None if i == 0 => frames.push(Frame::unmapped(address)),
            None => return,
        }
    }
}

/// The unwinder of a recording.
#[derive(Default)]
pub struct Unwinder {
    modules: Modules,
    rules: RuleCache,
    memo: Memo,
    run_time: RunTimeCode,
    /// See [`Unwinder::set_managed_code`].
    managed: Option<Arc<dyn ManagedCode>>,
    /// The last step was out of code that a run-time system describes.
    is_managed: bool,
    go: GoPositions,
    /// A caller's frame pointer was unknown in the current walk.
    blind: bool,
    /// The last stack was followed beyond the kernel's own copy of it.
    pub beyond: bool,
    /// The part that the last stack has in common with an earlier one, if it was walked.
    pub kept: Option<Kept>,
    /// Number of frames of the last walk that were found by unwind information or code, from the
    /// innermost on.
    walked: usize,
}

impl Unwinder {
    /// Releases half of the memory that has copies of files, of those that were not used for the
    /// longest time.
    pub fn drop_copies(&mut self) {
        self.modules.drop_copies();
    }

    /// Releases the memory of results that can be found again. What they may cost is not changed.
    pub fn drop_caches(&mut self) {
        self.modules.drop_caches();
        self.rules.drop_code();
    }

    /// Unwinds the user stack of a thread into `frames` (leaf first; cleared before). Reads only
    /// data that came with the sample.
    ///
    /// `chain` is the kernel's walk along frame pointers, empty if there is none; it is used where
    /// the DWARF walk stops before the thread's entry.
    pub fn unwind(
        &mut self,
        thread: ThreadId,
        regions: &Regions,
        images: &mut Images,
        user: UserStack<'_>,
        chain: &[u64],
        frames: &mut Vec<Frame>,
    ) -> StackEnd {
        frames.clear();
        self.rules.begin_stack();
        (self.beyond, self.kept) = (false, None);
        match user {
            UserStack::Native { regs, all, bytes, full, rest } => {
                let beyond = Cell::new(false);
                let stack = StackCopy { start: regs.sp, bytes, full, rest, beyond: &beyond };
                let walk = Walk { regions, thread, stack, all, chain };
                self.begin(&walk);
                let end = self.walk(&walk, regs, images, frames);
                let end = self.finish(&walk, regs, end, images, frames);
                self.beyond = beyond.get();
                end
            }
            UserStack::Compat => StackEnd::Compat,
            UserStack::None => StackEnd::Complete,
        }
    }

    /// From now on, code without unwind information is not analysed: only what is known of it is
    /// used. Or again, if `hurried` is false.
    pub fn set_hurried(&mut self, hurried: bool) {
        self.rules.set_hurried(hurried);
    }

    /// From now on, reads no file and analyses no code: what is cached has to do.
    /// [`Unwinder::end_closed`] ends that.
    pub fn begin_closed(&mut self, images: &mut Images) {
        self.rules.begin_closed();
        images.begin_closed();
    }

    /// Reads files again. Returns true if anything was needed in the meantime that is not cached:
    /// stacks that were unwound since are then worthless.
    pub fn end_closed(&mut self, images: &mut Images) -> bool {
        self.rules.end_closed() | images.end_closed()
    }

    /// Stack pointers in the frames of the last stack that was walked, the innermost first. Frames
    /// that only frame pointers have led to, which are the outermost ones, have none.
    pub fn stack_pointers(&self) -> impl Iterator<Item = u64> + '_ {
        let steps = self.memo.last_steps().iter().rev().take(self.walked);
        steps.map(|step| step.regs.sp)
    }

    /// Images whose unwind information or code was not read completely, because that exceeded a
    /// limit of time or memory: stacks may be truncated there. An image may come twice.
    pub fn over_budget(&self) -> impl Iterator<Item = u32> {
        self.rules.over_budget().chain(self.modules.over_budget())
    }

    /// Number of rules that were found in the cache, and that were looked up in the tables.
    pub fn rule_lookups(&self) -> (u64, u64) {
        (self.rules.hits, self.rules.misses)
    }
}
