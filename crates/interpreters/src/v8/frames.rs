//! From the bytes that were copied at a sample to frames, and their places among native ones.

use super::heap::is_object;
use super::{V8, machine};
use crate::merge::{Merge, NativeStack, Place};
use crate::walk::{Frame, Status, WalkCopy, WalkDescriptor};
use crate::{ChainEnd, CodeKey, Copied, UserFrame};
use sys::arch::PAGE;

/// Places of words in what is copied of a frame (`src/execution/frame-constants.h`, and the constants
/// `v8dbg_off_fp_*`).
pub(super) mod place {
    /// Offset of the first byte from the frame pointer.
    pub const LO: i32 = -64;
    /// The frame of the call out of JavaScript around a call from C++, or 0, if the frame is that of such
    /// a call: behind five registers (`Generate_JSEntryVariant`).
    pub const EXIT: usize = 0;
    /// Position in the bytecode, if it is interpreted.
    pub const POSITION: usize = 24;
    /// Bytecode, if it is interpreted or compiled without optimization.
    pub const BYTECODE: usize = 32;
    /// The function.
    pub const FUNCTION: usize = 48;
    /// The function's context, or the kind of a frame of V8's own.
    pub const CONTEXT: usize = 56;
    /// The caller's frame pointer.
    pub const CALLER: usize = 64;
    /// The address at which the caller goes on.
    pub const RETURN: usize = 72;
    /// What is copied of the function, from its first word that is its own.
    pub const BEHIND: usize = 80;
    /// Offset of that word in the function.
    pub const FUNCTION_LO: u32 = 24;
    /// Bytes that are copied of the function.
    pub const FUNCTION_SIZE: u32 = 32;
    /// What is copied of its `SharedFunctionInfo`, from its first word on.
    pub const SHARED: usize = BEHIND + FUNCTION_SIZE as usize;
    /// Offset of that word.
    pub const SHARED_LO: u32 = 8;
}

/// Largest position in bytecode.
const MAX_POSITION: u32 = 16 << 20;

/// Frames of calls from C++ have one of these words in the place of a context: numbers of kinds, twice.
pub(super) const ENTRIES: [u32; 2] = [2, 4];

/// Numbers of kinds of frames are below; those of C++ have other words in their place.
const KINDS: u64 = 64;

/// Numbers of registers in DWARF's order: the stack pointer, and what the interpreter keeps in others.
mod register {
    pub const STACK: usize = 7;
    pub const OFFSET: usize = 9;
    pub const BYTECODE: usize = 12;
}

/// The position of a frame.
enum Position {
    /// In bytecode, as in a key.
    Bytecode(u32),
    /// In machine code.
    Machine(machine::CodeAddress),
}

/// A frame of the chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Link {
    /// Its frame pointer.
    pub address: u64,
    /// The number of the user's frame; `None` for one of V8's own.
    pub user: Option<usize>,
}

/// A decoded chain; the user's frames are in the caller's list.
pub(super) struct Chain {
    /// How it ends.
    pub end: ChainEnd,
    /// Its frames, up to the outermost call into JavaScript.
    pub links: Vec<Link>,
}

impl Chain {
    fn without_frames(end: ChainEnd) -> Chain {
        Chain { end, links: Vec::new() }
    }
}

/// The kind of a frame.
enum Kind {
    /// It executes JavaScript, or a function of V8's that has a `JSFunction`.
    Function,
    /// C++ called JavaScript.
    Entry,
    /// Another one of V8's own.
    Own,
}

/// Decodes the frames of a sample and adds them to `out`; none if they are damaged.
pub(super) fn decode(v8: &V8, copied: Copied<'_>, out: &mut Vec<UserFrame>) -> Chain {
    let start = out.len();
    let [own, called_out] = [0, 1].map(|number| {
        let copy = copied.walks.get(number).filter(|copy| copy.first != 0);
        copy.zip(v8.walks.get(number))
    });
    // A call out of JavaScript comes first: the frame pointer is another function's then.
    if let Some((copy, walk)) = called_out {
        let own = own.filter(|(own, _)| own.first != copy.first);
        if let Some(chain) = own.and_then(|own| chain(v8, copied, own, true, out)) {
            if has_user_frames_before(&chain, copy.first) {
                return chain;
            }
            out.truncate(start);
        }
        return chain(v8, copied, (copy, walk), false, out)
            .unwrap_or_else(|| Chain::without_frames(ChainEnd::Damaged));
    }
    // The frame pointer of a thread that does not execute JavaScript is no frame's.
    own.and_then(|own| chain(v8, copied, own, true, out))
        .unwrap_or_else(|| Chain::without_frames(ChainEnd::Nothing))
}

/// True if a chain leads through functions to this frame: then these were called after the call that this
/// frame has made, which has ended.
fn has_user_frames_before(chain: &Chain, frame: u64) -> bool {
    let place = chain.links.iter().position(|link| link.address == frame);
    place.is_some_and(|place| chain.links[..place].iter().any(|link| link.user.is_some()))
}

/// The chain of a copy; `None`, and no frames, if it is none of V8's. `is_executing`: the thread executes
/// the innermost frame itself.
fn chain(
    v8: &V8,
    copied: Copied<'_>,
    (copy, walk): (&WalkCopy, &WalkDescriptor),
    is_executing: bool,
    out: &mut Vec<UserFrame>,
) -> Option<Chain> {
    let registers = copied.registers.in_dwarf_order();
    let sp = registers.map_or(0, |all| all[register::STACK]);
    let start = out.len();
    let registers = registers.filter(|_| is_executing);
    let ip = copied.registers.instruction_pointer();
    let chain = Decoder { v8, walk, registers, ip, is_executing }.chain(copy, sp, out);
    if chain.is_none() {
        out.truncate(start);
    }
    chain
}

struct Decoder<'a> {
    v8: &'a V8,
    walk: &'a WalkDescriptor,
    /// Those of the innermost frame, if the thread executes it.
    registers: Option<[u64; sys::arch::DWARF_ORDER.len()]>,
    /// The instruction that is executing.
    ip: Option<u64>,
    is_executing: bool,
}

impl Decoder<'_> {
    /// `None` if the frames are no chain of V8's.
    fn chain(&self, copy: &WalkCopy, sp: u64, out: &mut Vec<UserFrame>) -> Option<Chain> {
        let start = out.len();
        let mut links: Vec<Link> = Vec::new();
        // The address at which the frame goes on.
        let mut pc = None;
        let mut inner = sp;
        for frame in copy.frames(self.walk) {
            if frame.address < inner || !frame.address.is_multiple_of(8) {
                return None;
            }
            inner = frame.address + 1;
            let mut user = None;
            match kind(&frame)? {
                Kind::Entry if frame.word(place::EXIT) == 0 => {
                    links.push(Link { address: frame.address, user });
                    return Some(Chain { end: ChainEnd::Complete, links });
                }
                Kind::Entry => {
                    links.push(Link { address: frame.address, user });
                    // The next frame is not its caller's.
                    pc = Some(0);
                    continue;
                }
                Kind::Own => {}
                Kind::Function => {
                    if let Some(code) = self.code(&frame, pc)? {
                        user = Some(out.len() - start);
                        out.push(UserFrame { address: frame.address, code, is_entry: true });
                    }
                }
            }
            links.push(Link { address: frame.address, user });
            pc = Some(frame.word(place::RETURN));
        }
        let end = match copy.status {
            Status::TooMany => ChainEnd::TooMany,
            Status::Fault if !links.is_empty() => ChainEnd::Fault,
            // There is no call into JavaScript.
            _ => return None,
        };
        // Only the rest of a chain that is known to be one may be missing.
        let is_known = self.registers.is_none() || links.iter().any(|link| link.user.is_some());
        is_known.then_some(Chain { end, links })
    }

    /// The user's code of a frame: `Some(None)` if it has none, `None` if it is no frame of V8's.
    fn code(&self, frame: &Frame, pc: Option<u64>) -> Option<Option<CodeKey>> {
        let offsets = &self.v8.offsets;
        let function = frame.word(place::FUNCTION);
        let function_word =
            |at: u32| frame.word(place::BEHIND + (at - place::FUNCTION_LO) as usize);
        let object = function_word(offsets.function_shared);
        if !is_object(function) || !is_object(object) {
            return None;
        }
        let shared_word = |at: u32| frame.word(place::SHARED + (at - place::SHARED_LO) as usize);
        let first = offsets.shared_script - 8;
        let words = [0, 8, 16, 24].map(|at| shared_word(first + at));
        let Some([script, scope, number]) = identity(words) else { return Some(None) };
        let (word, position) = match self.position(frame, pc) {
            Position::Bytecode(position) => (0, position),
            Position::Machine(place) => {
                let code = [offsets.code.function_code, offsets.shared_data];
                place.encode([function_word(code[0]), shared_word(code[1])])
            }
        };
        Some(Some(CodeKey {
            object,
            identity: [script, scope, number, word],
            context: 0,
            position,
        }))
    }

    /// The position of a frame in bytecode, or in the code that V8 made of it.
    fn position(&self, frame: &Frame, pc: Option<u64>) -> Position {
        let first = self.v8.offsets.bytecode - 1;
        let bytecode = frame.word(place::BYTECODE);
        let in_bytecode = |offset: u64| match offset.checked_sub(u64::from(first)) {
            Some(position) if position < MAX_POSITION.into() => position as u32,
            None if offset.wrapping_add(1) == u64::from(first) => CodeKey::NOT_BEGUN,
            _ => CodeKey::UNKNOWN,
        };
        Position::Bytecode(match (pc, self.registers) {
            (Some(pc), _) if self.v8.is_interpreter(pc) && is_object(bytecode) => {
                let position = frame.word(place::POSITION);
                let is_number = position as u32 == 0;
                if is_number { in_bytecode(position >> 32) } else { CodeKey::UNKNOWN }
            }
            // The interpreter keeps both in registers; the frame has the position of the last call.
            // Baseline code has another word in the place of a position, which is no number.
            (None, Some(all))
                if all[register::BYTECODE] == bytecode
                    && is_object(bytecode)
                    && frame.word(place::POSITION) as u32 == 0 =>
            {
                in_bytecode(all[register::OFFSET])
            }
            (Some(pc), _) => {
                return Position::Machine(machine::CodeAddress { pc, is_innermost: false });
            }
            (None, Some(_)) if let Some(pc) = self.ip => {
                return Position::Machine(machine::CodeAddress { pc, is_innermost: true });
            }
            // It has called C++ directly; the native stack shows where.
            (None, _) if !self.is_executing => {
                return Position::Machine(machine::CodeAddress::UNKNOWN);
            }
            _ => CodeKey::UNKNOWN,
        })
    }
}

impl V8 {
    /// True for addresses of V8's own code, as far as its file has it.
    pub(super) fn is_built_in(&self, pc: u64) -> bool {
        /// Larger than built-in code.
        const MOST: u64 = 8 << 20;
        self.symbols.builtins.is_some_and(|first| pc.wrapping_sub(first) < MOST)
    }

    /// True for the address at which the interpreter goes on, wherever its code is mapped: pages keep
    /// their contents.
    fn is_interpreter(&self, pc: u64) -> bool {
        let Some(address) = self.symbols.interpreter else { return false };
        let is_copy = |first: u64| pc.wrapping_sub(address - first).is_multiple_of(PAGE);
        pc == address || self.symbols.builtins.is_some_and(is_copy)
    }
}

/// `None` if it is no frame of V8's.
fn kind(frame: &Frame) -> Option<Kind> {
    let context = frame.word(place::CONTEXT);
    match context >> 1 {
        _ if context & 1 != 0 => is_object(context).then_some(Kind::Function),
        1 | 2 => Some(Kind::Entry),
        kind => (1..KINDS).contains(&kind).then_some(Kind::Own),
    }
}

/// The words of a key, from four words of a `SharedFunctionInfo` before and from its script; `None` if
/// it is no function of a script. Those that V8 changes are left out.
pub(super) fn identity([scope, script, counts, flags]: [u64; 4]) -> Option<[u64; 3]> {
    // Number of the function in its script; -1 for V8's own.
    let number = (flags >> 32) as i32;
    if !is_object(script) || number < 0 {
        return None;
    }
    // Number of parameters, and distance of its name.
    let counts = (counts >> 16) as u32;
    Some([script, scope, u64::from(counts) << 32 | flags >> 32])
}

/// A native frame whose part of the stack has the frame pointer of a function is that function; one
/// with that of V8's own code belongs to V8, which executes the functions.
pub(super) fn merge(
    v8: &V8,
    copied: Copied<'_>,
    native: &NativeStack,
    frames: &mut Vec<UserFrame>,
) -> Merge {
    let chain = decode(v8, copied, frames);
    if chain.end == ChainEnd::Damaged {
        return Merge::Mismatch;
    }
    let mut places = Vec::new();
    let mut links = chain.links.iter().peekable();
    let is_cut = matches!(chain.end, ChainEnd::TooMany | ChainEnd::Fault);
    for (number, frame) in native.frames.iter().enumerate() {
        let mut is_own = false;
        while let Some(link) = links.next_if(|link| frame.stack.contains(&link.address)) {
            is_own = true;
            places.extend(link.user.map(Place::User));
        }
        places.push(if is_own { Place::Evaluation(number) } else { Place::Native(number) });
        if is_own && is_cut && links.peek().is_none() {
            // Native callers of frames that were not copied have no known place among them.
            places.push(Place::Truncated);
            return Merge::Stack { places, unmatched: 0 };
        }
    }
    let end = native.frames.last().map_or(0, |frame| frame.stack.end);
    if let Some(link) = links.peek() {
        if native.is_complete || link.address < end {
            return Merge::Mismatch;
        }
        places.push(Place::Truncated);
        places.extend(links.filter_map(|link| link.user).map(Place::User));
    } else if !native.is_complete {
        places.push(Place::Truncated);
    }
    Merge::Stack { places, unmatched: 0 }
}
