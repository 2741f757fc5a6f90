//! What is copied of the code of a frame when it is seen for the first time: code may be freed before its
//! names are read. That of a module in Python lives as long as the module is imported, and that of a file
//! in PHP as long as a request.

use super::Frame;
use crate::memory::{Memory, ReadError};
use sys::arch::PAGE;

/// Largest size of each block, in bytes.
pub const CODE_BLOCKS: [usize; 6] = [256, 64, 384, 384, 2048, 384];

/// Words by which code is recognized.
pub const CODE_WORDS: usize = 3;

/// The block in which pointers to others may lie.
pub const POINTER_BLOCK: usize = 1;

/// Bytes before each block: its address, and how many bytes of it were read.
pub const CODE_BLOCK_HEAD: usize = 16;

/// Offset of a block's head in the bytes of a copy.
pub const fn code_block_at(number: usize) -> usize {
    let (mut at, mut i) = (0, 0);
    while i < number {
        at += CODE_BLOCK_HEAD + CODE_BLOCKS[i];
        i += 1;
    }
    at
}

/// Bytes of a copy.
pub const CODE_SIZE: usize = code_block_at(CODE_BLOCKS.len());

/// What is copied of code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CodeDescriptor {
    /// Places of words in what is copied of a frame, by which its code is recognized. The last one is the
    /// context of keys ([`CodeKey::context`](crate::CodeKey)).
    pub words: [u16; CODE_WORDS],
    /// The blocks, of which the first begins with the address of the code.
    pub blocks: Vec<CodeBlock>,
}

/// A block behind a pointer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CodeBlock {
    /// Where the pointer is.
    pub pointer: CodePointer,
    /// Bytes from there on.
    pub size: u16,
}

/// The place of a pointer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CodePointer {
    /// In what is copied of the frame.
    Frame(u8),
    /// In the block with the number [`POINTER_BLOCK`].
    Block(u8),
}

impl CodeDescriptor {
    /// Of these words, and blocks of these sizes behind pointers.
    pub(crate) fn new<const N: usize>(
        words: [u16; CODE_WORDS],
        blocks: [(CodePointer, usize); N],
    ) -> CodeDescriptor {
        let block = |(pointer, size)| CodeBlock { pointer, size: size as u16 };
        CodeDescriptor { words, blocks: blocks.map(block).into() }
    }

    /// True if it keeps the limits, and all pointers are copied before.
    pub(super) fn is_valid(&self, frame_size: usize) -> bool {
        let in_frame = |place: u16| usize::from(place) + 8 <= frame_size;
        let is_valid = |(number, block): (usize, &CodeBlock)| {
            let is_copied = match block.pointer {
                CodePointer::Frame(place) => in_frame(place.into()),
                CodePointer::Block(place) => {
                    let size = self.blocks[POINTER_BLOCK].size;
                    number > POINTER_BLOCK && u16::from(place) + 8 <= size
                }
            };
            is_copied && (1..=CODE_BLOCKS[number]).contains(&usize::from(block.size))
        };
        self.words.into_iter().all(in_frame)
            && (1..=CODE_BLOCKS.len()).contains(&self.blocks.len())
            && self.blocks.iter().enumerate().all(is_valid)
    }

    /// The copy of a frame's code, as the program makes it.
    pub fn copy(&self, frame: Frame<'_>, memory: &dyn Memory) -> Vec<u8> {
        let mut bytes = vec![0; CODE_SIZE];
        for (number, block) in self.blocks.iter().enumerate() {
            let address = match block.pointer {
                CodePointer::Frame(place) => frame.word(place.into()),
                CodePointer::Block(place) => {
                    let head = code_block_at(POINTER_BLOCK);
                    let copied = Frame { address: 0, bytes: &bytes };
                    let is_read = copied.word(head + 8) >= u64::from(place) + 8;
                    let at = head + CODE_BLOCK_HEAD + usize::from(place);
                    if is_read { copied.word(at) } else { 0 }
                }
            };
            let size = usize::from(block.size);
            let (head, data) = bytes[code_block_at(number)..].split_at_mut(CODE_BLOCK_HEAD);
            let in_page = (PAGE - address % PAGE) as usize;
            let mut read = |size: usize| {
                let data = data.get_mut(..size).filter(|_| size <= CODE_BLOCKS[number])?;
                memory.read(address, data).ok().map(|()| size)
            };
            let length = if address == 0 { None } else { read(size).or_else(|| read(in_page)) };
            head[..8].copy_from_slice(&address.to_le_bytes());
            head[8..].copy_from_slice(&(length.unwrap_or(0) as u64).to_le_bytes());
        }
        bytes
    }
}

/// What was copied of code: the memory of a process, as far as its name needs it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CopiedCode {
    /// The address of the code.
    object: Option<u64>,
    /// Addresses, and bytes.
    blocks: Vec<(u64, Box<[u8]>)>,
}

impl CopiedCode {
    /// From the bytes of a copy.
    pub fn parse(bytes: &[u8]) -> CopiedCode {
        let block = |number: usize| -> Option<(u64, &[u8])> {
            let at = code_block_at(number);
            let frame = Frame { address: 0, bytes };
            let length = usize::try_from(frame.word(at + 8)).ok()?;
            let length =
                Some(length).filter(|length| (1..=CODE_BLOCKS[number]).contains(length))?;
            let data = bytes.get(at + CODE_BLOCK_HEAD..)?.get(..length)?;
            Some((frame.word(at), data))
        };
        let object = block(0).map(|(address, _)| address);
        let blocks = (0..CODE_BLOCKS.len()).filter_map(block);
        CopiedCode {
            object,
            blocks: blocks.map(|(address, data)| (address, data.into())).collect(),
        }
    }

    /// The address of the code; `None` if it was not copied.
    pub fn object(&self) -> Option<u64> {
        self.object
    }

    /// Its size in bytes.
    pub fn size(&self) -> usize {
        self.blocks.iter().map(|(_, bytes)| bytes.len() + size_of::<(u64, Box<[u8]>)>()).sum()
    }
}

impl Memory for CopiedCode {
    fn read(&self, address: u64, buffer: &mut [u8]) -> Result<(), ReadError> {
        let within = |(start, bytes): &(u64, Box<[u8]>)| {
            let at = usize::try_from(address.checked_sub(*start)?).ok()?;
            Some(at..at.checked_add(buffer.len())?).filter(|part| part.end <= bytes.len())
        };
        let mut parts = self.blocks.iter().filter_map(|block| Some((&block.1, within(block)?)));
        let (bytes, part) = parts.next().ok_or(ReadError::Unmapped)?;
        buffer.copy_from_slice(&bytes[part]);
        Ok(())
    }

    fn is_copy(&self) -> bool {
        true
    }
}
