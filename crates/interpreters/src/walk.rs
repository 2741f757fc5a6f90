//! A walk over an interpreter's frames as data, and the copy that it makes of them.
//!
//! The same small program walks every interpreter whose frames are a list or an array; what differs
//! is a [`WalkDescriptor`]. The program runs in the kernel at a sample, and copies blocks of bytes
//! without a look at their meaning. [`run`](crate::walk::run) is its model, over any [`Memory`]:
//!
//! ```text
//! object = the first start that finds one; none: Nothing
//! p = object; for each d of the path: p = *(p + d); 0: Nothing
//! until `most` frames are copied, else TooMany:
//!     copy [p + lo, p + lo + size) of the block
//!     for each block behind it: a = its word in what was copied of the frame so far;
//!         copy [a + lo, a + lo + size), or zeros if a is no address or that cannot be read
//!     p = the word of the block at `next`, in frames with a mark at another place, or p + stride;
//!         0, or the end of an array: Complete
//! another read that fails, or too many behind pointers: Fault, with the frames before it
//! ```
//!
//! [`Memory`]: crate::Memory

mod code;
mod model;

pub use code::{
    CODE_BLOCK_HEAD, CODE_BLOCKS, CODE_SIZE, CODE_WORDS, CodeBlock, CodeDescriptor, CodePointer,
    CopiedCode, POINTER_BLOCK, code_block_at,
};
pub use model::{Thread, run};

/// Most starts of a walk.
pub const MAX_STARTS: usize = 2;
/// Most pointers from the start to the object, and from there to the first frame.
pub const MAX_PATH: usize = 4;
/// Largest block of a frame, in bytes.
pub const MAX_BLOCK: usize = 96;
/// Most blocks behind pointers of what is copied of a frame.
pub const MAX_BEHIND: usize = 4;
/// Largest block behind a pointer, in bytes.
pub const MAX_BEHIND_SIZE: usize = 168;
/// Most blocks behind pointers of a walk that cannot be read: each takes longer than a frame.
pub const MAX_UNREADABLE: u32 = 64;
/// Addresses from here on are not of a process: what is behind them is zeros.
pub const END_OF_ADDRESSES: u64 = 1 << 47;
/// Most objects of a list among which that of the thread is searched.
pub const MAX_LIST: u32 = 1024;

/// Where the object is from which the walk of a thread begins: usually its thread state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Start {
    /// At the end of a path of pointers from the thread pointer (fsbase): `p = *(p + d)` for each
    /// `d`. None if one of them is 0.
    ThreadPointer {
        /// Offsets.
        path: Vec<i32>,
    },
    /// Behind a pointer that all threads share, if the object belongs to this thread.
    Shared {
        /// Address of the pointer.
        pointer: u64,
        /// Offset in the object of the word that is the thread pointer of its thread.
        key: i32,
    },
    /// In a list that all threads share: the first object that belongs to this thread.
    List {
        /// Address of the pointer to the first object.
        pointer: u64,
        /// Offset in an object of the pointer to the next one.
        next: i32,
        /// Offset in an object of the word that is the thread pointer of its thread.
        key: i32,
    },
    /// The thread's frame pointer register.
    FramePointer,
    /// An object of a process whose code one thread executes: its first one. Others have none.
    FirstThread {
        /// Its address.
        object: u64,
    },
}

/// Bytes that are copied: `size` bytes from `lo` behind an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    /// Distance of the first byte.
    pub lo: i32,
    /// Number of bytes.
    pub size: u8,
}

/// A block behind a pointer of a frame's block, or of a block that was copied before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Behind {
    /// Place of the pointer in what was copied of the frame so far: its block, then those behind
    /// pointers.
    pub pointer: u8,
    /// What is copied behind it.
    pub block: Block,
}

/// The way from a frame to its caller's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    /// A pointer in the copied block; 0 after the outermost frame.
    Pointer {
        /// Its place.
        at: u8,
    },
    /// The same, but for frames with a mark: these have the pointer in another place.
    Marked {
        /// Its place in frames without a mark.
        at: u8,
        /// The place of the mark.
        mark: u8,
        /// Its two values.
        marks: [u32; 2],
        /// The place of the pointer in frames with one.
        marked: u8,
    },
    /// The neighbour in an array, up to its end, which the object has: `*(object + base) +
    /// *(object + count) * unit`.
    Array {
        /// Distance to the caller's frame.
        stride: i32,
        /// Offset in the object of the pointer to the array.
        base: i32,
        /// Offset in the object of its number of items.
        count: i32,
        /// Bytes of an item.
        unit: u32,
    },
}

impl Next {
    /// The address of the caller's frame.
    fn of(&self, frame: &Frame) -> u64 {
        let word = |at: u8| frame.word(at.into());
        match *self {
            Next::Pointer { at } => word(at),
            Next::Marked { at, mark, marks, marked } => {
                let is_marked = marks.iter().any(|value| u64::from(*value) == word(mark));
                word(if is_marked { marked } else { at })
            }
            Next::Array { stride, .. } => frame.address.wrapping_add_signed(stride.into()),
        }
    }
}

/// A walk over the frames of a thread, as data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WalkDescriptor {
    /// Tried in order.
    pub starts: Vec<Start>,
    /// From the object to the first frame: `p = *(p + d)` for each.
    pub path: Vec<i32>,
    /// What is copied of each frame.
    pub block: Block,
    /// What is copied behind pointers of that.
    pub behind: Vec<Behind>,
    /// From a frame to its caller's.
    pub next: Next,
    /// Most frames.
    pub most: u32,
    /// What is copied of the code of a frame that is new.
    pub code: Option<CodeDescriptor>,
}

impl WalkDescriptor {
    /// Bytes that are copied for each frame.
    pub fn frame_size(&self) -> usize {
        let behind: usize = self.behind.iter().map(|b| usize::from(b.block.size)).sum();
        usize::from(self.block.size) + behind
    }

    /// True if each block behind a pointer keeps the limits, and its pointer is copied before it.
    fn has_valid_behind(&self) -> bool {
        let mut copied = usize::from(self.block.size);
        self.behind.iter().all(|behind| {
            let size = usize::from(behind.block.size);
            let is_copied = usize::from(behind.pointer) + 8 <= copied;
            copied += size;
            is_copied && (1..=MAX_BEHIND_SIZE).contains(&size)
        })
    }

    /// True if it keeps the limits, and each word that it uses is copied before.
    pub fn is_valid(&self) -> bool {
        let size = usize::from(self.block.size);
        let word = |at: u8| usize::from(at) + 8 <= size;
        let path = |path: &[i32]| path.len() <= MAX_PATH;
        (1..=MAX_STARTS).contains(&self.starts.len())
            && path(&self.path)
            && self.starts.iter().all(|start| match start {
                Start::ThreadPointer { path: pointers } => path(pointers),
                _ => true,
            })
            && (1..=MAX_BLOCK).contains(&size)
            && self.behind.len() <= MAX_BEHIND
            && self.has_valid_behind()
            && match self.next {
                Next::Pointer { at } => word(at),
                Next::Marked { at, mark, marked, .. } => [at, mark, marked].into_iter().all(word),
                Next::Array { stride, .. } => stride != 0,
            }
            && self.code.as_ref().is_none_or(|code| code.is_valid(self.frame_size()))
    }
}

/// The end of a walk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// All frames up to the outermost one were copied.
    Complete,
    /// Memory could not be read; the frames before it were copied.
    Fault,
    /// There are more frames than the walk may copy.
    TooMany,
    /// The thread has no frame: it runs no code of the interpreter at this time.
    Nothing,
}

/// What a walk copied of a thread's frames, the innermost first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WalkCopy {
    /// How it ended.
    pub status: Status,
    /// Address of the object from which it began; 0 if there is none.
    pub object: u64,
    /// Address of the first frame; 0 if there is none.
    pub first: u64,
    /// The copied blocks of all frames: for each frame its block, then those behind its pointers.
    pub bytes: Vec<u8>,
}

impl WalkCopy {
    /// A copy without frames.
    pub fn nothing() -> WalkCopy {
        WalkCopy { status: Status::Nothing, object: 0, first: 0, bytes: Vec::new() }
    }

    /// The copied frames of a walk, with the address of each.
    pub fn frames<'a>(&'a self, walk: &'a WalkDescriptor) -> impl Iterator<Item = Frame<'a>> {
        let mut address = self.first;
        self.bytes.chunks_exact(walk.frame_size().max(1)).map(move |bytes| {
            let frame = Frame { address, bytes };
            address = walk.next.of(&frame);
            frame
        })
    }
}

/// A copied frame.
#[derive(Clone, Copy, Debug)]
pub struct Frame<'a> {
    /// Its address in the process.
    pub address: u64,
    /// Its block, then those behind its pointers.
    pub bytes: &'a [u8],
}

impl Frame<'_> {
    /// The word at a place; 0 outside of the copy.
    pub fn word(&self, at: usize) -> u64 {
        self.bytes.get(at..).and_then(|b| b.first_chunk()).map_or(0, |b| u64::from_le_bytes(*b))
    }

    /// The 32-bit number at a place; 0 outside of the copy.
    pub fn half(&self, at: usize) -> u32 {
        self.bytes.get(at..).and_then(|b| b.first_chunk()).map_or(0, |b| u32::from_le_bytes(*b))
    }

    /// The byte at a place; 0 outside of the copy.
    pub fn byte(&self, at: usize) -> u8 {
        self.bytes.get(at).copied().unwrap_or(0)
    }
}
