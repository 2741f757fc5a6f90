//! Frames of HotSpot's code: how they lead to their callers, and the methods that they execute.

use std::collections::HashMap;
use std::sync::Arc;

use super::blob::{Blob, Kind};
use super::debug::Scope;
use super::layout::Layout;
use super::methods::{Method, No};
use super::mirror::{Found, Times};
use super::{HotSpot, State};
use crate::{CodeKey, Memory};

/// Most instructions whose methods are kept.
const MOST_KEYS: usize = 1 << 16;

/// Most methods that are kept.
const MOST_METHODS: usize = 1 << 16;

/// Words of an interpreter's frame, by their distance from the frame pointer (`frame_x86.hpp`, the same
/// from 9 to 25).
mod place {
    pub const METHOD: u64 = 24;
    pub const BYTECODE: u64 = 64;
}

/// The address of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Address {
    /// Instruction pointer or return address.
    pub address: u64,
    /// It is a return address: the call is just before it.
    pub is_return: bool,
}

impl Address {
    /// The address at which its code is looked up.
    fn lookup(self) -> u64 {
        self.address - u64::from(self.is_return && self.address > 0)
    }
}

/// What is known of a frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FrameShape {
    /// It is not of HotSpot's code, or frame pointers lead on from there.
    Foreign,
    /// Memory of the process has to be read.
    Unread,
    /// Its code was replaced, or cannot be read.
    Unknown,
    /// It has this shape.
    Known(Shape),
}

/// How a frame leads to its caller's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Shape {
    /// It has a size in bytes: the return address is below the caller's stack pointer, and the caller's
    /// frame pointer below that.
    Sized(u32),
    /// Of the interpreter: the frame pointer leads to the return address and the caller's frame pointer,
    /// and the word [`Shape::SENDER`] below it is the caller's stack pointer, if the word
    /// [`Shape::METHOD`] below it is a method.
    Interpreted,
    /// The frame pointer leads to the caller's.
    Linked,
    /// Of an adapter between interpreted and compiled code, which moves the return address; it is the
    /// innermost frame.
    Adapter {
        /// Instructions.
        bytes: Arc<[u8]>,
        /// The address of the first one.
        start: u64,
    },
    /// By the instructions.
    Code {
        /// Instructions.
        bytes: Arc<[u8]>,
        /// The address of the first one.
        start: u64,
        /// The part in which the frame has a known size.
        body: Option<Body>,
    },
}

impl Shape {
    /// See [`Shape::Interpreted`].
    pub const SENDER: u64 = 8;
    /// See [`Shape::Interpreted`].
    pub const METHOD: u64 = place::METHOD;
}

/// Instructions with a frame of a size, but where they make and remove it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Body {
    /// The first one.
    pub start: u64,
    /// The address behind the last one.
    pub end: u64,
    /// Size of the frame in bytes.
    pub size: u32,
}

/// Registers in a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Registers {
    /// The stack pointer.
    pub stack: u64,
    /// The frame pointer.
    pub frame: u64,
    /// `r13`, of the innermost frame.
    pub bytecode: Option<u64>,
}

/// What a frame of HotSpot's code executes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MethodFrames {
    /// Methods, the innermost first.
    pub keys: Vec<CodeKey>,
    /// The name of code that is no method: a stub, or the interpreter.
    pub stub: Option<Box<str>>,
}

/// A method and the interval in which it was seen.
#[derive(Clone, Copy, Debug)]
pub struct SeenMethod {
    method: Method,
    first: u64,
    last: u64,
}

/// Methods by address.
pub type KnownMethods = HashMap<u64, SeenMethod>;

/// The methods of instructions: by blob, number of the compilation, and distance from its first instruction.
pub type KnownKeys = HashMap<(u64, u32, u64), Arc<[CodeKey]>>;

/// Why frames of methods are not known.
enum Missing {
    Unread,
    Unknown,
}

impl HotSpot {
    /// How a frame of a sample leads to its caller. Without memory, only what is known counts.
    pub fn shape(&self, at: Address, times: Times, memory: Option<&dyn Memory>) -> FrameShape {
        if at.is_return && at.address == self.call_stub_return {
            return FrameShape::Known(Shape::Linked);
        }
        let found = self.state().mirror.find(at.lookup(), times, &self.layout, memory);
        let blob = match found {
            Found::Blob(blob) => blob,
            Found::Nothing => return FrameShape::Foreign,
            Found::Unread => return FrameShape::Unread,
            Found::Replaced | Found::Unreadable if self.has_frame_pointers => {
                return FrameShape::Foreign;
            }
            Found::Replaced | Found::Unreadable => return FrameShape::Unknown,
        };
        let sized = FrameShape::Known(Shape::Sized(blob.frame_size));
        if blob.kind == Kind::Compiled && at.is_return && memory.is_none() && !blob.has_debug() {
            return FrameShape::Unread;
        }
        // Calls without debug information are those of stubs, before which words may be pushed.
        let is_described = match &blob.compiled {
            Some(compiled) if blob.kind == Kind::Compiled => {
                let distance = at.address.wrapping_sub(blob.code.start);
                compiled.deoptimized.contains(&at.address)
                    || blob.debug(&self.layout, memory).is_some_and(|d| d.describes(distance))
            }
            _ => true,
        };
        match blob.kind {
            Kind::Interpreter => FrameShape::Known(Shape::Interpreted),
            _ if blob.frame_size >= 16 && at.is_return && is_described => sized,
            _ if blob.grows() => match (memory, at.is_return) {
                (_, true) => FrameShape::Unknown,
                (None, _) => FrameShape::Unread,
                (Some(memory), _) => window(&blob, at.address, memory),
            },
            _ if memory.is_none() && !blob.has_bytes() => FrameShape::Unread,
            _ => match blob.bytes(&self.layout, memory) {
                Some(bytes) => {
                    let start = blob.code.start;
                    if blob.is_adapter() {
                        return if at.is_return {
                            FrameShape::Unknown
                        } else {
                            FrameShape::Known(Shape::Adapter { bytes, start })
                        };
                    }
                    FrameShape::Known(Shape::Code { bytes, start, body: body(&blob) })
                }
                None => FrameShape::Unknown,
            },
        }
    }

    /// True if there is a method at an address at the time of a sample; `None` if memory has to be read
    /// for it.
    pub fn is_method(
        &self,
        address: u64,
        times: Times,
        memory: Option<&dyn Memory>,
    ) -> Option<bool> {
        match self.state().method(address, times, &self.layout, memory) {
            Ok(_) => Some(true),
            Err(Missing::Unknown) => Some(false),
            Err(Missing::Unread) => None,
        }
    }

    /// The methods that a frame of a sample executes; `None` if that is not known. `word` is the stack
    /// at the sample.
    pub fn methods(
        &self,
        at: Address,
        registers: Registers,
        word: &dyn Fn(u64) -> Option<u64>,
        times: Times,
        memory: Option<&dyn Memory>,
    ) -> Option<MethodFrames> {
        let mut state = self.state();
        let Found::Blob(blob) = state.mirror.find(at.lookup(), times, &self.layout, memory) else {
            return None;
        };
        match blob.kind {
            Kind::Stub => Some(MethodFrames { keys: Vec::new(), stub: Some(blob.name.clone()) }),
            Kind::Interpreter => {
                let method = word(registers.frame.checked_sub(place::METHOD)?)?;
                let method = state.method(method, times, &self.layout, memory);
                let method = method.ok()?;
                let saved = || word(registers.frame.checked_sub(place::BYTECODE)?);
                let own = registers.bytecode.and_then(|at| method.position(at));
                let bci = own.or_else(|| method.position(saved()?));
                let stub = Some(blob.name.clone());
                Some(MethodFrames { keys: vec![method.key(bci)], stub })
            }
            Kind::Compiled | Kind::Native => {
                let at = original(&blob, at, registers, word);
                let keys = state.keys(&blob, at?, &self.layout, memory).ok()?;
                Some(MethodFrames { keys: keys.to_vec(), stub: None })
            }
        }
    }
}

/// Code from an address on, of a blob to which code is added.
fn window(blob: &Blob, address: u64, memory: &dyn Memory) -> FrameShape {
    /// Longest code of a stub, in bytes.
    const LONGEST: u64 = 256;
    let size = blob.code.end.saturating_sub(address).min(LONGEST);
    let mut bytes = vec![0; size as usize];
    match memory.read(address, &mut bytes) {
        Ok(()) => {
            let shape = Shape::Code { bytes: bytes.into(), start: address, body: None };
            FrameShape::Known(shape)
        }
        Err(_) => FrameShape::Unknown,
    }
}

/// The part of a method's code in which its frame has its size.
fn body(blob: &Blob) -> Option<Body> {
    let compiled = blob.compiled.as_ref()?;
    let start = blob.complete?;
    let is_whole = blob.frame_size >= 16 && start < compiled.stubs;
    is_whole.then_some(Body { start, end: compiled.stubs, size: blob.frame_size })
}

/// The address of a frame before it was deoptimized; `None` if it is none of its code.
fn original(
    blob: &Blob,
    at: Address,
    registers: Registers,
    word: &dyn Fn(u64) -> Option<u64>,
) -> Option<Address> {
    let compiled = blob.compiled.as_ref()?;
    if !at.is_return || !compiled.deoptimized.contains(&at.address) {
        return Some(at);
    }
    let address = word(registers.stack.checked_add(compiled.original_pc.into())?)?;
    let is_inside = blob.code.start < address && address < blob.code.end;
    is_inside.then_some(Address { address, ..at })
}

impl State {
    /// The method at an address at the time of a sample.
    fn method(
        &mut self,
        address: u64,
        times: Times,
        layout: &Layout,
        memory: Option<&dyn Memory>,
    ) -> Result<Method, Missing> {
        let known = self.methods.get(&address).copied();
        if let Some(seen) = known
            && seen.first <= times.sample
            && times.is_fresh(seen.last)
        {
            return Ok(seen.method);
        }
        let memory = memory.ok_or(Missing::Unread)?;
        let method = match Method::read(address, layout, memory) {
            Ok(method) => method,
            Err(No::Other) => {
                self.methods.remove(&address);
                return Err(Missing::Unknown);
            }
            // Its process has ended, or too much was read.
            Err(No::Memory(_)) => {
                let soon = known
                    .filter(|seen| seen.first <= times.sample && times.is_soon_after(seen.last));
                return soon.map(|seen| seen.method).ok_or(Missing::Unknown);
            }
        };
        let known = known.filter(|seen| seen.method == method);
        let mut first = known.map_or(times.now, |seen| seen.first);
        // Methods are removed with their classes.
        if first > times.sample
            && let Some(unloaded) = &mut self.unloaded
            && unloaded.is_unchanged(times.sample, times.now, memory) == Some(true)
        {
            first = times.sample;
        }
        if self.methods.len() >= MOST_METHODS {
            self.methods.clear();
        }
        self.methods.insert(address, SeenMethod { method, first, last: times.now });
        let is_same = first <= times.sample || times.is_soon(first);
        if is_same { Ok(method) } else { Err(Missing::Unknown) }
    }

    /// The methods at an address in a blob that was there at the sample. Its methods are there as long
    /// as it is.
    fn keys(
        &mut self,
        blob: &Blob,
        at: Address,
        layout: &Layout,
        memory: Option<&dyn Memory>,
    ) -> Result<Arc<[CodeKey]>, Missing> {
        let distance = at.address.wrapping_sub(blob.code.start) + u64::from(!at.is_return);
        let key = (blob.address, blob.identity.compile_id, distance);
        if let Some(keys) = self.keys.get(&key) {
            return Ok(keys.clone());
        }
        let memory = memory.ok_or(Missing::Unread)?;
        let keys = read_keys(blob, distance, layout, memory);
        let keys = keys.ok_or(Missing::Unknown)?;
        let is_same = super::blob::Header::read(blob.block, layout, memory)
            .is_ok_and(|header| blob.has(&header, layout));
        if !is_same {
            return Err(Missing::Unknown);
        }
        let keys: Arc<[CodeKey]> = keys.into();
        if self.keys.len() >= MOST_KEYS {
            self.keys.clear();
        }
        self.keys.insert(key, keys.clone());
        Ok(keys)
    }
}

/// The methods of an instruction, the innermost first.
fn read_keys(
    blob: &Blob,
    distance: u64,
    layout: &Layout,
    memory: &dyn Memory,
) -> Option<Vec<CodeKey>> {
    let compiled = blob.compiled.as_ref()?;
    let own = |scopes: Vec<Scope>| {
        let keys = scopes.into_iter().map(|scope| {
            let method = Method::read(scope.method, layout, memory).ok()?;
            Some(method.key(Some(scope.bci)))
        });
        keys.collect::<Option<Vec<CodeKey>>>()
    };
    if blob.kind == Kind::Compiled {
        let debug = blob.debug(layout, Some(memory))?;
        let scopes = debug.scopes(u32::try_from(distance).ok()?);
        let is_own = scopes.last().is_some_and(|scope| scope.method == compiled.method);
        if is_own {
            return own(scopes);
        }
    }
    let method = Method::read(compiled.method, layout, memory).ok()?;
    Some(vec![method.key(None)])
}
