//! A [`WalkDescriptor`] as the program reads it: words of eight bytes.

use super::BLOCKS;
use interpreters::walk::{
    Behind, CODE_BLOCKS, CodeDescriptor, CodePointer, MAX_BEHIND, MAX_LIST, MAX_PATH, MAX_STARTS,
    Next, Start, WalkDescriptor,
};

/// Maximum number of walks of a process.
pub const MAX_WALKS: usize = 2;

/// Offsets of the words of a descriptor, in bytes.
pub mod word {
    /// Chosen by prof, returned with each copy.
    pub const ID: i16 = 0;
    /// Largest number of frames; 0 in what is no descriptor.
    pub const MOST: i16 = 8;
    /// What is copied of a frame: distance, and number of bytes.
    pub const LO: i16 = 16;
    /// See [`LO`].
    pub const SIZE: i16 = 24;
    /// Number of bytes that are copied for a frame.
    pub const FRAME_SIZE: i16 = 32;
    /// Each block behind a pointer: place of the pointer in what is copied of the frame, distance,
    /// number of bytes (0: none).
    pub const BEHIND: [i16; 4] = [40, 64, 88, 112];
    /// The distance to the caller's frame; 0: it is behind a pointer, in this place.
    pub const STRIDE: i16 = 136;
    /// See [`STRIDE`].
    pub const NEXT: i16 = 144;
    /// The end of an array: offsets of its pointer and of its number of items, and bytes of an item.
    pub const BASE: i16 = 152;
    /// See [`BASE`].
    pub const COUNT: i16 = 160;
    /// See [`BASE`].
    pub const UNIT: i16 = 168;
    /// The path from the object to the first frame: number of offsets, and the offsets.
    pub const PATH: i16 = 176;
    /// The place of a mark, its values, and the place of the pointer in frames with one.
    pub const MARK: i16 = 216;
    /// See [`MARK`].
    pub const MARKS: [i16; 2] = [224, 232];
    /// See [`MARK`].
    pub const MARKED: i16 = 240;
    /// The first start.
    pub const STARTS: i16 = 256;
    /// Binary logarithm of the size of a descriptor.
    pub const SHIFT: i32 = 10;
    /// Places of the words by which new code is known.
    pub const CODE_WORDS: [i16; 3] = [512, 520, 528];
    /// The first block that is copied of new code.
    pub const CODE_BLOCKS: i16 = 536;
}

/// Offsets of the words of a block of new code, in bytes.
pub mod code_block {
    /// The place of its pointer.
    pub const PLACE_AT: i16 = 0;
    /// 1: that is in a block, 0: in what is copied of the frame.
    pub const IN_BLOCK_AT: i16 = 8;
    /// Number of bytes; 0: there is no block.
    pub const SIZE_AT: i16 = 16;
    /// The size of the first block.
    pub const SIZE: i16 = at(0) + SIZE_AT;

    /// The offset of a block in the descriptor.
    pub const fn at(number: usize) -> i16 {
        super::word::CODE_BLOCKS + 24 * number as i16
    }
}

/// Offsets of the words of a start, in bytes.
pub mod start {
    /// What it begins with: [`NONE`], [`ADDRESS`], [`THREAD_POINTER`], [`FRAME_POINTER`] or
    /// [`FIRST_THREAD`].
    pub const KIND: i16 = 0;
    /// Value of [`ADDRESS`] and [`FIRST_THREAD`].
    pub const BEGIN: i16 = 8;
    /// The path to the object, or to the first one of a list.
    pub const PATH: i16 = 16;
    /// Number of objects among which that of the thread is searched; 0: it is the thread's.
    pub const ROUNDS: i16 = 56;
    /// Offset of the thread pointer in an object.
    pub const KEY: i16 = 64;
    /// Offset of the pointer to the next object.
    pub const NEXT: i16 = 72;
    /// Binary logarithm of the size of a start.
    pub const SHIFT: i32 = 7;

    /// There is no such start.
    pub const NONE: i32 = 0;
    /// It begins with an address.
    pub const ADDRESS: i32 = 1;
    /// It begins with the thread pointer.
    pub const THREAD_POINTER: i32 = 2;
    /// It begins with the frame pointer.
    pub const FRAME_POINTER: i32 = 3;
    /// It begins with an address, in the first thread of a process.
    pub const FIRST_THREAD: i32 = 4;
}

/// Size of a descriptor in bytes.
const SIZE: usize = 1 << word::SHIFT;

const _: () = assert!(
    word::CODE_WORDS[0] as usize >= word::STARTS as usize + (MAX_STARTS << start::SHIFT)
        && SIZE >= code_block::at(CODE_BLOCKS.len()) as usize
        && word::BEHIND.len() == MAX_BEHIND
        && word::PATH as usize + 8 * (1 + MAX_PATH) <= word::MARK as usize
        && start::PATH as usize + 8 * (1 + MAX_PATH) <= start::ROUNDS as usize
);

/// Size of the walks of a process in bytes.
pub const WALKS_SIZE: usize = MAX_WALKS * SIZE;

/// The walks of a process, each with at most `most` frames of [`BLOCKS`] blocks; `None` if one of them, or their number,
/// exceeds the limits.
pub fn encode(id: u64, walks: &[WalkDescriptor], most: u32) -> Option<[u8; WALKS_SIZE]> {
    let mut bytes = [0; WALKS_SIZE];
    if walks.is_empty() || walks.len() > MAX_WALKS || !walks.iter().all(WalkDescriptor::is_valid) {
        return None;
    }
    for (walk, bytes) in walks.iter().zip(bytes.chunks_exact_mut(SIZE)) {
        encode_walk(id, walk, most, bytes);
    }
    Some(bytes)
}

fn encode_walk(id: u64, walk: &WalkDescriptor, most: u32, bytes: &mut [u8]) {
    let mut put = |at: i16, value: i64| put(bytes, at, value);
    put(word::ID, id as i64);
    let blocks = 1 + walk.behind.len() as u32;
    let most = if blocks > BLOCKS { most * BLOCKS / blocks } else { most };
    put(word::MOST, walk.most.clamp(1, most.max(1)).into());
    put(word::LO, walk.block.lo.into());
    put(word::SIZE, walk.block.size.into());
    put(word::FRAME_SIZE, walk.frame_size() as i64);
    for (Behind { pointer, block }, at) in walk.behind.iter().zip(word::BEHIND) {
        put(at, (*pointer).into());
        put(at + 8, block.lo.into());
        put(at + 16, block.size.into());
    }
    match walk.next {
        // Whether its word is one of the values or not, it is the pointer.
        Next::Pointer { at } => {
            for place in [word::NEXT, word::MARK, word::MARKED] {
                put(place, at.into());
            }
        }
        Next::Marked { at, mark, marks, marked } => {
            put(word::NEXT, at.into());
            put(word::MARK, mark.into());
            put(word::MARKED, marked.into());
            for (place, value) in word::MARKS.into_iter().zip(marks) {
                put(place, value.into());
            }
        }
        Next::Array { stride, base, count, unit } => {
            put(word::STRIDE, stride.into());
            put(word::BASE, base.into());
            put(word::COUNT, count.into());
            put(word::UNIT, unit.into());
        }
    }
    put_path(bytes, word::PATH, &walk.path);
    if let Some(code) = &walk.code {
        encode_code(code, bytes);
    }
    for (i, start) in walk.starts.iter().enumerate() {
        encode_start(start, &mut bytes[word::STARTS as usize + (i << start::SHIFT)..]);
    }
}

fn encode_code(code: &CodeDescriptor, bytes: &mut [u8]) {
    for (place, at) in code.words.into_iter().zip(word::CODE_WORDS) {
        put(bytes, at, place.into());
    }
    for (number, block) in code.blocks.iter().enumerate() {
        let at = code_block::at(number);
        let (is_in_block, place) = match block.pointer {
            CodePointer::Frame(place) => (0, place),
            CodePointer::Block(place) => (1, place),
        };
        put(bytes, at + code_block::PLACE_AT, place.into());
        put(bytes, at + code_block::IN_BLOCK_AT, is_in_block);
        put(bytes, at + code_block::SIZE_AT, block.size.into());
    }
}

fn encode_start(start: &Start, bytes: &mut [u8]) {
    let (kind, begin, path): (_, u64, &[i32]) = match start {
        Start::FramePointer => (start::FRAME_POINTER, 0, &[]),
        Start::ThreadPointer { path } => (start::THREAD_POINTER, 0, path),
        Start::FirstThread { object } => (start::FIRST_THREAD, *object, &[]),
        Start::Shared { pointer, .. } | Start::List { pointer, .. } => {
            (start::ADDRESS, *pointer, &[0])
        }
    };
    put(bytes, start::KIND, kind.into());
    put(bytes, start::BEGIN, begin as i64);
    put_path(bytes, start::PATH, path);
    match *start {
        Start::Shared { key, .. } => {
            put(bytes, start::ROUNDS, 1);
            put(bytes, start::KEY, key.into());
        }
        Start::List { next, key, .. } => {
            put(bytes, start::ROUNDS, MAX_LIST.into());
            put(bytes, start::KEY, key.into());
            put(bytes, start::NEXT, next.into());
        }
        Start::FramePointer | Start::ThreadPointer { .. } | Start::FirstThread { .. } => {}
    }
}

fn put_path(bytes: &mut [u8], at: i16, path: &[i32]) {
    put(bytes, at, path.len() as i64);
    for (i, offset) in path.iter().enumerate() {
        put(bytes, at + 8 * (i as i16 + 1), (*offset).into());
    }
}

fn put(bytes: &mut [u8], at: i16, value: i64) {
    bytes[at as usize..][..8].copy_from_slice(&value.to_ne_bytes());
}
