//! From the bytes that were copied at a sample to frames.

use std::cell::LazyCell;
use std::ops::Range;

use super::Ruby;
use super::compiled::{is_entering, key};
use super::objects::{ImemoKind, imemo_kind};
use crate::merge::CodeBefore;
use crate::walk::{Frame, Status, WalkCopy};
use crate::{ChainEnd, CodeKey, UserFrame};

/// Kinds of frames (`VM_FRAME_MAGIC_*`, `vm_core.h`).
const KIND: u64 = 0x7fff_0001;
const KIND_C_FUNCTION: u64 = 0x5555_0001;
const KIND_C_BLOCK: u64 = 0x6666_0001;
const KIND_DUMMY: u64 = 0x7999_0001;

/// `VM_FRAME_FLAG_FINISH`: the evaluation that executes the frame ends with it.
const FINISH: u64 = 0x20;
/// `VM_ENV_FLAG_LOCAL`: the environment is that of a method, not of a block.
const LOCAL: u64 = 2;
/// Flags have no other bits.
const FLAGS: u64 = 0x7fff_ffff;

/// A part of the chain that one evaluation executes, or that lies outside of the outermost one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Part {
    /// The user's frames, by number.
    pub frames: Range<usize>,
    /// Innermost ones of them that are C functions.
    pub c_functions: usize,
    /// Frames of C code, also those that are not the user's.
    pub c_frames: usize,
    /// All frames.
    pub all: usize,
    /// The outermost frame of C code is one of the user's.
    pub ends_in_c_function: bool,
}

/// A decoded chain; its frames are in the caller's list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Chain {
    /// How it ends.
    pub end: ChainEnd,
    /// Parts of evaluations, the innermost first.
    pub parts: Vec<Part>,
    /// Frames after the last part: those of an evaluation that was not copied whole; if the chain is
    /// complete, C functions that no evaluation executes.
    pub rest: Part,
}

impl Chain {
    fn without_parts(end: ChainEnd) -> Chain {
        Chain { end, parts: Vec::new(), rest: Part::default() }
    }
}

/// What a control frame is.
enum Kind {
    Ruby,
    CFunction,
    CBlock,
    /// The root of a thread or fiber.
    Root,
    /// A frame of Ruby code that has no instruction.
    Other,
}

/// Decodes the frames of a sample and adds them to `out`; none if they are damaged. `compiled` is the
/// code that executes the innermost one.
pub(super) fn decode(
    ruby: &Ruby,
    copies: &[WalkCopy],
    compiled: Option<&CodeBefore>,
    out: &mut Vec<UserFrame>,
) -> Chain {
    let (Some(copy), Some(walk)) = (copies.first(), ruby.walks.first()) else {
        return Chain::without_parts(ChainEnd::Nothing);
    };
    let end = match copy.status {
        Status::Complete => ChainEnd::Complete,
        Status::TooMany => ChainEnd::TooMany,
        // A thread that has no variables of Ruby's yet.
        Status::Fault if copy.first == 0 => ChainEnd::Nothing,
        Status::Fault => ChainEnd::Fault,
        Status::Nothing => ChainEnd::Nothing,
    };
    let is_entering = compiled.is_some_and(|code| is_entering(code, &ruby.offsets));
    let frames: Vec<Frame> = copy.frames(walk).skip(usize::from(is_entering)).collect();
    let start = out.len();
    let is_open = end != ChainEnd::Complete;
    match parts(ruby, &frames, compiled.filter(|_| !is_entering), out)
        .filter(|(_, has_root)| *has_root || is_open)
    {
        Some((chain, _)) => Chain { end, ..chain },
        None => {
            out.truncate(start);
            let end = if end == ChainEnd::Nothing { end } else { ChainEnd::Damaged };
            Chain::without_parts(end)
        }
    }
}

/// The chain of all frames, and whether its last one is a root. `None`: they are no frames.
fn parts(
    ruby: &Ruby,
    frames: &[Frame],
    compiled: Option<&CodeBefore>,
    out: &mut Vec<UserFrame>,
) -> Option<(Chain, bool)> {
    let methods = methods(ruby, frames);
    let start = out.len();
    let mut chain = Chain::without_parts(ChainEnd::Complete);
    let mut part = Part::default();
    let mut has_root = false;
    for (number, frame) in frames.iter().enumerate() {
        // Nothing is outside of a root.
        let compiled = compiled.filter(|_| number == 0);
        let kind = if has_root { None } else { kind(ruby, frame, compiled.is_some()) }?;
        part.all += 1;
        let is_user = match kind {
            Kind::Ruby => {
                out.push(ruby_frame(ruby, frame, methods[number], compiled));
                true
            }
            Kind::CFunction => {
                let user = c_function(ruby, frame);
                out.extend(user);
                part.c_functions += usize::from(user.is_some());
                user.is_some()
            }
            Kind::CBlock | Kind::Other => false,
            Kind::Root => {
                has_root = true;
                break;
            }
        };
        if matches!(kind, Kind::CFunction | Kind::CBlock) {
            part.c_frames += 1;
            part.ends_in_c_function = is_user;
        }
        part.frames.end = out.len() - start;
        if frame.word(ruby.layout.flags) & FINISH != 0 {
            if let Some(last) = out[start + part.frames.start..].last_mut() {
                last.is_entry = true;
            }
            let next = part.frames.end..part.frames.end;
            chain.parts.push(std::mem::take(&mut part));
            part.frames = next;
        }
    }
    chain.rest = part;
    Some((chain, has_root))
}

/// `None` if it is no frame. Of compiled code, the position is not known.
fn kind(ruby: &Ruby, frame: &Frame, is_compiled: bool) -> Option<Kind> {
    let layout = &ruby.layout;
    let flags = frame.word(layout.flags);
    let (position, code) = (frame.word(layout.position), frame.word(layout.code));
    if flags & !FLAGS != 0 || flags & 1 == 0 || flags & KIND == 1 {
        return None;
    }
    match flags & KIND {
        KIND_C_FUNCTION => (code == 0).then_some(Kind::CFunction),
        KIND_C_BLOCK => Some(Kind::CBlock),
        KIND_DUMMY => Some(Kind::Root),
        _ if code == 0 || position == 0 && !is_compiled => Some(Kind::Other),
        _ => {
            let position = if is_compiled { code } else { position };
            let words = [code, position, frame.word(layout.body)];
            let are_pointers = words.iter().all(|word| word.is_multiple_of(8) && *word > 4096);
            are_pointers.then_some(Kind::Ruby)
        }
    }
}

/// A method entry, as far as it was copied at the sample.
#[derive(Clone, Copy, Debug, Default)]
struct Method {
    entry: u64,
    class: u64,
    definition: u64,
}

/// The method entries of frames, by their numbers. That of a block is in the environment of its method,
/// if that is still executing: environments that no frame has are not copied.
fn methods(ruby: &Ruby, frames: &[Frame]) -> Vec<Method> {
    let layout = &ruby.layout;
    // Of equal ones, the outermost counts.
    let environments = LazyCell::new(|| {
        let environment = |number: usize| (frames[number].word(layout.environment), number);
        let mut all: Vec<(u64, usize)> = (0..frames.len()).map(environment).collect();
        all.sort_unstable();
        all
    });
    let with_environment = |address: u64| {
        let after = environments.partition_point(|(other, _)| *other <= address);
        let (found, number) = *environments[..after].last()?;
        (found == address).then_some(number)
    };
    let mut methods = vec![Method::default(); frames.len()];
    for (number, frame) in frames.iter().enumerate().rev() {
        methods[number] = own_method(ruby, frame).unwrap_or_else(|| {
            // Tags of a pointer to an environment (`GC_GUARDED_PTR_REF`).
            let outer = frame.word(layout.outer) & !3;
            // Callers are further outside.
            let caller = with_environment(outer).filter(|caller| *caller > number);
            caller.map_or_else(Method::default, |caller| methods[caller])
        });
    }
    methods
}

/// The method entry in a frame's own environment; `None` if it is in that around it.
fn own_method(ruby: &Ruby, frame: &Frame) -> Option<Method> {
    let layout = &ruby.layout;
    let is_local = frame.word(layout.flags) & LOCAL != 0;
    let method = frame.word(layout.method);
    match imemo_kind(frame.word(layout.object)).filter(|_| method != 0) {
        Some(ImemoKind::Method) => {
            let (class, definition) = (frame.word(layout.class), frame.word(layout.definition));
            Some(Method { entry: method, class, definition })
        }
        // A wrapper with special variables (`$~`): its first word leads to the entry.
        Some(ImemoKind::Variables) if is_local => {
            Some(Method { entry: frame.word(layout.object + 8), ..Method::default() })
        }
        _ => is_local.then(Method::default),
    }
}

/// Several words as one. Others have another one, but for one in 2^64.
pub(super) fn mix(words: &[u64]) -> u64 {
    words.iter().fold(0xcbf2_9ce4_8422_2325, |mixed, word| {
        let product = (mixed ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        product ^ (product >> 32)
    })
}

/// The identity of Ruby code: its body, the method entry, the class and definition of this, and the
/// words with the names of the body. Memory of code that was freed is often used for similar code.
fn ruby_frame(
    ruby: &Ruby,
    frame: &Frame,
    method: Method,
    compiled: Option<&CodeBefore>,
) -> UserFrame {
    let layout = &ruby.layout;
    let names = [0, 1, 2, 3].map(|n| frame.word(layout.names + 8 * n));
    let method_words = mix(&[method.class, method.definition]);
    let identity = [frame.word(layout.body), method.entry, method_words, mix(&names)];
    let instruction = frame.word(layout.position);
    let code = CodeKey {
        object: frame.word(layout.code),
        identity,
        context: 0,
        position: instruction as u32,
    };
    let code = compiled.map_or(code, |compiled| key(compiled, code, instruction, &ruby.offsets));
    UserFrame { address: frame.address, code, is_entry: false }
}

/// The frame of a C function, if names of C functions can be read.
fn c_function(ruby: &Ruby, frame: &Frame) -> Option<UserFrame> {
    let layout = &ruby.layout;
    ruby.symbols.names?;
    ruby.offsets.symbols?;
    let is_method = imemo_kind(frame.word(layout.object)) == Some(ImemoKind::Method);
    let object = frame.word(layout.method);
    let identity = [0, 0, frame.word(layout.class), frame.word(layout.definition)];
    let code = CodeKey { object, identity, context: 0, position: 0 };
    let is_found = is_method && object != 0;
    is_found.then_some(UserFrame { address: frame.address, code, is_entry: false })
}
