//! Machine code without unwind information, as far as all architectures share it: the code and the
//! functions of a file, and results of the analysis of instructions in [`crate::arch`].

#[cfg(feature = "testing")]
mod cost;
mod functions;

#[cfg(feature = "testing")]
pub use cost::{Cost, fuzz_cost};
pub use functions::{FunctionStart, Functions};
use sys::elf::Segment;

/// The machine code of a file.
#[derive(Clone, Copy)]
pub struct Text<'a> {
    pub segments: &'a [Segment],
    pub bytes: &'a [u8],
}

impl<'a> Text<'a> {
    /// Size of its first segments in the file, in bytes.
    pub fn size(&self) -> u64 {
        let segments = self.segments.iter().take(functions::MAX_SEGMENTS);
        let size = segments.fold(0, |sum: u64, s| sum.saturating_add(s.size));
        size.min(self.bytes.len() as u64)
    }

    /// The bytes from an address to the end of its segment.
    pub fn from(&self, address: u64) -> Option<&'a [u8]> {
        let at = |s: &Segment| address.checked_sub(s.address).filter(|&at| at < s.size);
        let (segment, at) = self.segments.iter().find_map(|s| Some((s, at(s)?)))?;
        let offset = |at: u64| usize::try_from(segment.offset.checked_add(at)?).ok();
        let end = offset(segment.size)?.min(self.bytes.len());
        self.bytes.get(offset(at)?..end)
    }

    /// At most `most` bytes before an address.
    pub fn before(&self, address: u64, most: u64) -> Option<&'a [u8]> {
        let at = |s: &Segment| address.checked_sub(s.address).filter(|&at| at <= s.size);
        let most = most.min(self.segments.iter().find_map(at)?);
        self.from(address - most)?.get(..usize::try_from(most).ok()?)
    }
}

/// Result of following a call to a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leads {
    /// It leads to the function.
    There,
    /// It leads elsewhere.
    Elsewhere,
    /// The code leaves it open.
    Somewhere,
}

/// A file with code.
#[derive(Clone, Copy)]
pub struct File<'a> {
    /// The image's number.
    pub image: u32,
    pub text: Text<'a>,
    pub functions: &'a Functions,
    /// Entry point; 0: none.
    pub entry: u64,
}

impl File<'_> {
    /// Size of the code in bytes.
    pub fn size(&self) -> u64 {
        self.text.size()
    }
}

/// Search for a skipped frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Between {
    /// A return address: the function that is called before it is the skipped one.
    pub after: u64,
    /// An address in the function that the skipped one calls.
    pub to: u64,
    /// An address in the function whose address was passed to the skipped one.
    pub argument: Option<u64>,
}

/// A call instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallTarget {
    /// A call of the function at this address.
    Direct(u64),
    /// A call of a function whose address is in a register or in memory.
    Indirect,
}

/// The state where code leaves its function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AtReturn {
    /// The return address.
    pub ip: u64,
    /// The address at which it is then.
    pub slot: u64,
    /// The caller's frame pointer.
    pub bp: u64,
}

/// Certainty of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Proof {
    /// The function's instructions prove it.
    Code,
    /// It requires a direct call to the function.
    Call,
    /// It is the frame of the thread that created a thread or a process, in which the
    /// call's result is not 0. The new one begins here.
    Maker,
    /// The code has moved its return address, and its frame pointer leads there. The caller's stack
    /// pointer is unknown: its frame has to be found by its frame pointer.
    Moved,
}
