//! From the bytes that were copied at a sample to frames.

use super::{Cpython, Offsets};
use crate::walk::{
    Behind, Block, CODE_BLOCKS, CodeDescriptor, CodePointer, Frame, Status, WalkCopy,
};
use crate::{ChainEnd, CodeKey, UserFrame};

/// Largest position in bytecode; a code object of 16 MiB has none of CPython's compiler.
const MAX_POSITION: u32 = 16 << 20;

/// `FRAME_OWNED_BY_CSTACK` (3.12 and later): a frame without code of the user's, which lies in the
/// native frame of the evaluation that began with it.
const OWNED_BY_C_STACK: u8 = 3;

/// Places of a frame's members in what is copied of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Layout {
    /// What is copied of a frame.
    pub block: Block,
    /// What is copied of its code object.
    pub identity: Behind,
    /// The hash of its name, behind that.
    pub name_hash: Behind,
    /// The caller's frame.
    pub previous: u8,
    code: u8,
    /// The global variables: those of another module are others.
    globals: u8,
    position: u8,
    entry: Option<u8>,
    owner: Option<u8>,
    /// Words of the identity, behind the block: file, name, line table and the name's hash.
    words: [usize; 4],
}

impl Layout {
    pub fn new(offsets: &Offsets) -> Layout {
        let words = offsets.frame_words();
        let bytes = [offsets.frame_entry, offsets.frame_owner];
        let lo = words.iter().min().copied().unwrap_or_default();
        let ends = words.iter().map(|at| at + 8).chain(bytes.iter().flatten().map(|at| at + 1));
        let size = (ends.max().unwrap_or_default() - lo) as u8;
        let place = |at: u32| (at - lo) as u8;
        let start = offsets.identity_at();
        let block = Block { lo: start as i32, size: offsets.identity_size() as u8 };
        let name = offsets.code_qualname.unwrap_or(offsets.code_name);
        let word = |at: u32| usize::from(size) + (at - start) as usize;
        let hash = Block { lo: offsets.str_hash as i32, size: 8 };
        let hash_at = usize::from(size) + usize::from(block.size);
        Layout {
            block: Block { lo: lo as i32, size },
            identity: Behind { pointer: place(offsets.frame_code), block },
            name_hash: Behind { pointer: word(offsets.code_name) as u8, block: hash },
            previous: place(offsets.frame_previous),
            code: place(offsets.frame_code),
            globals: place(offsets.frame_globals),
            position: place(offsets.frame_position),
            entry: offsets.frame_entry.map(place),
            owner: offsets.frame_owner.map(place),
            words: [word(offsets.code_filename), word(name), word(offsets.code_lines), hash_at],
        }
    }

    /// What is copied of new code: the object, its name, that with classes and functions around it, the
    /// file, and lines.
    pub fn code_copy(&self, offsets: &Offsets) -> CodeDescriptor {
        let members = [offsets.code_first_line, offsets.code_filename, offsets.code_lines];
        let last = members.into_iter().max().unwrap_or_default();
        let [file, name, lines, _] = self.words.map(|place| CodePointer::Frame(place as u8));
        let blocks = [
            (CodePointer::Frame(self.code), last as usize + 8),
            (CodePointer::Frame(self.name_hash.pointer), offsets.str_hash as usize + 8),
            (name, CODE_BLOCKS[2]),
            (file, CODE_BLOCKS[3]),
            (lines, CODE_BLOCKS[4]),
        ];
        let words = [self.code.into(), self.words[1] as u16, self.globals.into()];
        CodeDescriptor::new(words, blocks)
    }
}

/// A part of the chain, from inside to outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Link {
    /// A frame of the user's, by its number.
    User(usize),
    /// A frame at this address that lies in the native frame of an evaluation, and ends it.
    Anchor(u64),
}

/// A decoded chain; its frames are in the caller's list.
pub(super) struct Chain {
    /// How it ends.
    pub end: ChainEnd,
    /// Its parts.
    pub links: Vec<Link>,
}

/// Decodes the frames of a sample and adds them to `out`; none if they are damaged.
pub(super) fn decode(cpython: &Cpython, copies: &[WalkCopy], out: &mut Vec<UserFrame>) -> Chain {
    let (Some(copy), Some(walk)) = (copies.first(), cpython.walks.first()) else {
        return Chain { end: ChainEnd::Nothing, links: Vec::new() };
    };
    let start = out.len();
    let count = copy.frames(walk).count();
    out.reserve(count);
    let mut links = Vec::with_capacity(count);
    for frame in copy.frames(walk) {
        if is_anchor(&cpython.layout, &frame) {
            if let Some(Link::User(last)) = links.last() {
                out[start + last].is_entry = true;
            }
            links.push(Link::Anchor(frame.address));
            continue;
        }
        match user_frame(cpython, &frame) {
            Some(frame) if is_helper(cpython, &frame) => {}
            Some(frame) => {
                links.push(Link::User(out.len() - start));
                out.push(frame);
            }
            None => {
                out.truncate(start);
                return Chain { end: ChainEnd::Damaged, links: Vec::new() };
            }
        }
    }
    let end = match copy.status {
        Status::Complete => ChainEnd::Complete,
        Status::TooMany => ChainEnd::TooMany,
        Status::Fault => ChainEnd::Fault,
        Status::Nothing => ChainEnd::Nothing,
    };
    Chain { end, links }
}

/// The outermost frames of a chain, at most `most`, the innermost first; `None` if it does not end as
/// chains do.
pub(super) fn outermost(cpython: &Cpython, copy: &WalkCopy, most: usize) -> Option<Vec<UserFrame>> {
    let walk = cpython.walks.first()?;
    let all: Vec<Frame> = copy.frames(walk).collect();
    let is_right = |last: &Frame| match cpython.layout.owner {
        Some(_) => is_anchor(&cpython.layout, last),
        None => user_frame(cpython, last).is_some_and(|frame| frame.is_entry),
    };
    if copy.status != Status::Complete || !all.last().is_some_and(is_right) {
        return None;
    }
    let mut user = all.iter().filter(|frame| !is_anchor(&cpython.layout, frame));
    let mut found = Vec::new();
    while found.len() < most
        && let Some(frame) = user.next_back()
    {
        found.push(user_frame(cpython, frame)?);
    }
    found.reverse();
    Some(found)
}

fn is_anchor(layout: &Layout, frame: &Frame) -> bool {
    layout.owner.is_some_and(|place| frame.byte(place.into()) == OWNED_BY_C_STACK)
}

/// A frame of the interpreter's own code that makes `__init__` return (3.12 and later). It is a constant
/// of the interpreter, as frozen modules are, but the only one whose file and name are one object.
fn is_helper(cpython: &Cpython, frame: &UserFrame) -> bool {
    let CodeKey { object, identity, .. } = frame.code;
    let is_constant = cpython.symbols.image.contains(&object);
    cpython.offsets.minor >= 12 && is_constant && identity[0] == identity[1]
}

/// `None` if the bytes are no frame.
fn user_frame(cpython: &Cpython, frame: &Frame) -> Option<UserFrame> {
    let layout = &cpython.layout;
    let object = frame.word(layout.code.into());
    if object == 0 || !object.is_multiple_of(8) {
        return None;
    }
    let is_entry = match layout.entry {
        Some(place) => match frame.byte(place.into()) {
            0 => false,
            1 => true,
            _ => return None,
        },
        // Up to 3.10, each frame has an evaluation; later, anchors follow.
        None => layout.owner.is_none(),
    };
    let identity = layout.words.map(|place| frame.word(place));
    let position = position(cpython, frame, object)?;
    let context = frame.word(layout.globals.into());
    let code = CodeKey { object, identity, context, position };
    Some(UserFrame { address: frame.address, code, is_entry })
}

/// The position of a frame in its bytecode, in bytes.
fn position(cpython: &Cpython, frame: &Frame, code: u64) -> Option<u32> {
    /// Bytes of an instruction.
    const UNIT: u32 = 2;
    let place = cpython.layout.position.into();
    let position = match cpython.offsets.minor {
        // The last instruction; -1 before the first one.
        ..=10 => {
            let last = frame.half(place);
            let unit = if cpython.offsets.minor == 10 { UNIT } else { 1 };
            if last == u32::MAX { CodeKey::NOT_BEGUN } else { last.checked_mul(unit)? }
        }
        // A pointer to it; up to 3.12, to the place before the first one.
        _ => {
            let first = code.wrapping_add(cpython.offsets.code_bytecode.into());
            let distance = frame.word(place).wrapping_sub(first);
            if distance == u64::from(UNIT).wrapping_neg() {
                CodeKey::NOT_BEGUN
            } else {
                u32::try_from(distance).ok()?
            }
        }
    };
    (position == CodeKey::NOT_BEGUN || position < MAX_POSITION).then_some(position)
}
