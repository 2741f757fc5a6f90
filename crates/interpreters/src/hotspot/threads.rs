//! Threads that execute C++ below Java: where their innermost frames of Java are
//! (`JavaFrameAnchor`).

use super::HotSpot;
#[cfg(any(test, feature = "testing"))]
use super::{Address, FrameShape, Registers, Shape, Times};
#[cfg(any(test, feature = "testing"))]
use crate::CodeKey;
use crate::{Memory, ReadError};

/// Most threads that are looked at.
const MOST: u32 = 1 << 14;

/// The innermost frame of Java of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LastFrame {
    /// The thread's number, as its process sees it.
    pub thread: u32,
    /// The stack pointer.
    pub stack: u64,
    /// The frame pointer; 0: unknown.
    pub frame: u64,
    /// The address at which its code goes on.
    pub address: u64,
}

impl HotSpot {
    /// The innermost frames of Java of threads that execute C++. They may run on while this reads.
    ///
    /// # Errors
    ///
    /// The list of threads cannot be read.
    pub fn last_frames(&self, memory: &dyn Memory) -> Result<Vec<LastFrame>, ReadError> {
        let Some(at) = &self.layout.threads else { return Ok(Vec::new()) };
        let list = memory.word(at.list)?;
        let count = memory.half(list.wrapping_add(at.list_length))?.min(MOST);
        let items = memory.word(list.wrapping_add(at.list_items))?;
        let mut frames = Vec::new();
        for number in 0..u64::from(count) {
            let thread = memory.word(items.wrapping_add(number * 8))?;
            let os_thread = memory.word(thread.wrapping_add(at.os_thread))?;
            let number = memory.half(os_thread.wrapping_add(at.number))?;
            let [stack, frame, address] =
                at.last.map(|place| memory.word(thread.wrapping_add(place)));
            let (stack, frame, address) = (stack?, frame?, address?);
            if stack == 0 {
                continue;
            }
            // A call from compiled code leaves it in the word below the stack pointer.
            let address = match address {
                0 => memory.word(stack.wrapping_sub(8))?,
                address => address,
            };
            frames.push(LastFrame { thread: number, stack, frame, address });
        }
        Ok(frames)
    }
}

#[cfg(any(test, feature = "testing"))]
impl HotSpot {
    /// Walks up from the innermost frame of Java of a thread that waits in C++, to C++. Returns the
    /// methods; `None` if a frame is not known.
    pub fn walk(&self, from: LastFrame, memory: &dyn Memory) -> Option<Vec<CodeKey>> {
        /// Of a sample that was just taken.
        const NOW: Times = Times { sample: 1, now: 2 };
        const MOST_FRAMES: usize = 4096;
        let mut keys = Vec::new();
        let LastFrame { mut stack, mut frame, mut address, .. } = from;
        for _ in 0..MOST_FRAMES {
            let at = Address { address, is_return: true };
            let word = |address| memory.word(address).ok();
            let shape = self.shape(at, NOW, Some(memory));
            if shape == FrameShape::Foreign {
                return Some(keys);
            }
            let registers = Registers { stack, frame, bytecode: None };
            keys.extend(self.methods(at, registers, &word, NOW, Some(memory))?.keys);
            let (slot, link, sender) = match shape {
                FrameShape::Known(Shape::Sized(size)) => {
                    let end = stack.checked_add(size.into())?;
                    (end - 8, end - 16, end)
                }
                FrameShape::Known(Shape::Interpreted) => {
                    let method = word(frame.checked_sub(Shape::METHOD)?)?;
                    self.is_method(method, NOW, Some(memory)).filter(|is_one| *is_one)?;
                    let sender = word(frame.checked_sub(Shape::SENDER)?)?;
                    (frame.checked_add(8)?, frame, sender)
                }
                FrameShape::Known(Shape::Linked) => {
                    (frame.checked_add(8)?, frame, frame.checked_add(16)?)
                }
                _ => return None,
            };
            if sender <= stack {
                return None;
            }
            (address, frame, stack) = (word(slot)?, word(link)?, sender);
        }
        None
    }
}
