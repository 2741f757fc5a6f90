//! Code blobs: what HotSpot states of a piece of its code.

use std::ops::Range;
use std::sync::{Arc, OnceLock};

use super::debug::DebugInfo;
use super::layout::{Layout, Stated};
use crate::{Memory, ReadError};

/// Largest blob, in bytes.
const LARGEST: u64 = 64 << 20;

/// Largest frame, in words.
const LARGEST_FRAME: u64 = 1 << 16;

/// Longest name of a blob that is kept, in bytes.
const LONGEST: usize = 64;

/// Largest code that is copied, in bytes.
const LARGEST_CODE: u64 = 1 << 20;

/// A piece of code.
#[derive(Debug)]
pub struct Blob {
    /// Its block in the heap.
    pub block: u64,
    /// Its address, behind the block's header.
    pub address: u64,
    /// The address behind it.
    pub end: u64,
    pub kind: Kind,
    /// Its name.
    pub name: Box<str>,
    /// The addresses of instructions.
    pub code: Range<u64>,
    /// Size of a frame in bytes; 0: unknown.
    pub frame_size: u32,
    /// The first instruction behind those that make the frame.
    pub complete: Option<u64>,
    pub compiled: Option<Compiled>,
    pub identity: Identity,
    /// The bytes of the code, if they were needed.
    bytes: OnceLock<Arc<[u8]>>,
    /// Debug information, if it was needed.
    debug: OnceLock<DebugInfo>,
}

/// What a blob is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The code of a method.
    Compiled,
    /// The code around a call of a native method.
    Native,
    /// The interpreter.
    Interpreter,
    /// Anything else.
    Stub,
}

impl Kind {
    /// The kind of a blob with a name (`nmethod.cpp`, `interpreter.cpp`).
    fn named(name: &str) -> Kind {
        match name {
            "nmethod" => Kind::Compiled,
            "native nmethod" => Kind::Native,
            "Interpreter" => Kind::Interpreter,
            _ => Kind::Stub,
        }
    }

    /// True if it has a method.
    fn has_method(self) -> bool {
        matches!(self, Kind::Compiled | Kind::Native)
    }

    /// What identifies a blob of this kind, of the words of a header.
    fn identity(self, header: Identity) -> Identity {
        if self.has_method() {
            return header;
        }
        // Other blobs are smaller: what lies there is not theirs.
        Identity { compile_id: 0, method: 0, ..header }
    }
}

/// The words by which two blobs at the same address differ: a compilation has a number of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    first: u64,
    name: u64,
    size: u32,
    /// The number of the compilation in its process.
    pub compile_id: u32,
    code: u64,
    method: u64,
}

/// An `nmethod`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Compiled {
    pub method: u64,
    /// Distance from the stack pointer of a frame to the address from which it was deoptimized.
    pub original_pc: u32,
    /// Return addresses of frames that were deoptimized.
    pub deoptimized: [u64; 2],
    /// The first instruction of stubs behind the method.
    pub stubs: u64,
    /// Places of debug information: of metadata, scopes and positions.
    pub places: DebugPlaces,
}

/// Addresses of debug information.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DebugPlaces {
    pub metadata: Range<u64>,
    pub scopes: Range<u64>,
    pub positions: Range<u64>,
}

/// The header of a block and of its blob.
pub struct Header {
    block: u64,
    address: u64,
    /// Those of the block's header, and of the blob.
    bytes: Vec<u8>,
    /// Size of the block's header.
    blob: usize,
}

impl Header {
    /// The header of a block.
    pub fn read(block: u64, layout: &Layout, memory: &dyn Memory) -> Result<Header, ReadError> {
        let mut bytes = vec![0; Header::size(layout)];
        memory.read(block, &mut bytes)?;
        Ok(Header::new(block, bytes, layout))
    }

    /// Bytes from the beginning of a block that it may have.
    pub fn size(layout: &Layout) -> usize {
        (layout.heap.block_size + layout.compiled.size) as usize
    }

    /// The header of a block that begins with these bytes.
    pub fn new(block: u64, bytes: Vec<u8>, layout: &Layout) -> Header {
        let address = block.wrapping_add(layout.heap.block_size);
        Header { block, address, bytes, blob: layout.heap.block_size as usize }
    }

    /// The blob's address.
    pub fn address(&self) -> u64 {
        self.address
    }

    /// True if the block is not free.
    pub fn is_used(&self, layout: &Layout) -> bool {
        self.bytes.get(layout.heap.block_used as usize).is_some_and(|used| *used != 0)
    }

    /// The length of the block in segments.
    pub fn length(&self, layout: &Layout) -> u64 {
        let bytes = self.bytes.get(layout.heap.block_length as usize..);
        let length = bytes.and_then(|bytes| bytes.first_chunk());
        length.map_or(0, |length| u32::from_le_bytes(*length).into())
    }

    fn word(&self, at: u64) -> u64 {
        let bytes = self.bytes.get(self.blob + at as usize..).and_then(|bytes| bytes.first_chunk());
        bytes.map_or(0, |bytes| u64::from_le_bytes(*bytes))
    }

    fn half(&self, at: u64) -> u32 {
        let bytes = self.bytes.get(self.blob + at as usize..).and_then(|bytes| bytes.first_chunk());
        bytes.map_or(0, |bytes| u32::from_le_bytes(*bytes))
    }

    fn stated(&self, place: Stated) -> u64 {
        match place {
            Stated::Pointer(at) => self.word(at),
            Stated::Distance(at) => self.address.wrapping_add(self.half(at).into()),
        }
    }

    /// Words that identify a method's code; `None` if the block is free.
    fn identity(&self, layout: &Layout) -> Option<Identity> {
        self.is_used(layout).then(|| Identity {
            first: self.word(0),
            name: self.word(layout.blob.name),
            size: self.half(layout.blob.size),
            compile_id: self.half(layout.compiled.compile_id),
            code: self.stated(layout.blob.code_begin),
            method: self.word(layout.compiled.method),
        })
    }

    /// The blob; `None` if the block is free, or has another form.
    pub fn blob(&self, layout: &Layout, memory: &dyn Memory) -> Result<Option<Blob>, ReadError> {
        let Some(identity) = self.identity(layout) else { return Ok(None) };
        let size = u64::from(identity.size);
        let end = self.address.wrapping_add(size);
        let code = identity.code..self.stated(layout.blob.code_end);
        // -1: it has no frames of a known size (`CodeOffsets::no_frame_size`, and `no_frame_size` of C1).
        let frame_size = match self.half(layout.blob.frame_size) {
            u32::MAX => 0,
            size => u64::from(size),
        };
        let is_whole = size <= LARGEST
            && self.address <= code.start
            && code.start <= code.end
            && code.end <= end
            && frame_size <= LARGEST_FRAME;
        if !is_whole {
            return Ok(None);
        }
        let name = name(identity.name, memory)?;
        let kind = Kind::named(&name);
        let complete = match layout.blob.frame_complete {
            (at, 2) => i64::from(self.half(at) as i16),
            (at, _) => i64::from(self.half(at).cast_signed()),
        };
        let complete = u64::try_from(complete).ok().and_then(|at| code.start.checked_add(at));
        Ok(Some(Blob {
            block: self.block,
            address: self.address,
            end,
            kind,
            name: name.into(),
            complete: complete.filter(|at| *at < code.end),
            code,
            frame_size: frame_size as u32 * 8,
            compiled: kind.has_method().then(|| self.compiled(layout, end)),
            identity: kind.identity(identity),
            bytes: OnceLock::new(),
            debug: OnceLock::new(),
        }))
    }

    fn compiled(&self, layout: &Layout, end: u64) -> Compiled {
        use super::layout::DebugLayout::{Inside, Outside};
        let compiled = &layout.compiled;
        let from = |base: u64, at: u64| base.wrapping_add(self.half(at).into());
        let places = match compiled.debug {
            Inside { metadata, scopes, pcs, pcs_end } => {
                let scopes = self.word(scopes);
                let positions = from(self.address, pcs)..from(self.address, pcs_end);
                DebugPlaces {
                    metadata: from(self.address, metadata)..scopes,
                    scopes: scopes..positions.start,
                    positions,
                }
            }
            Outside {
                mutable,
                mutable_size,
                relocations,
                immutable,
                immutable_size,
                pcs,
                scopes,
            } => {
                let mutable = self.word(mutable);
                let immutable = self.word(immutable);
                let positions = from(immutable, pcs)..from(immutable, scopes);
                DebugPlaces {
                    metadata: from(mutable, relocations)..from(mutable, mutable_size),
                    scopes: positions.end..from(immutable, immutable_size),
                    positions,
                }
            }
        };
        Compiled {
            method: self.word(compiled.method),
            original_pc: self.half(compiled.original_pc),
            deoptimized: compiled.deoptimized.map(|place| self.stated(place)),
            stubs: from(self.address, compiled.stubs).min(end),
            places,
        }
    }
}

/// The name of a blob.
fn name(address: u64, memory: &dyn Memory) -> Result<String, ReadError> {
    let mut bytes = [0; LONGEST];
    // It may end with its page, which may be the last one.
    let in_page = (4096 - address % 4096).min(LONGEST as u64) as usize;
    let (first, rest) = bytes.split_at_mut(in_page);
    memory.read(address, first)?;
    if !first.contains(&0) && !rest.is_empty() {
        memory.read(address.wrapping_add(in_page as u64), rest)?;
    }
    let name = bytes.iter().take_while(|byte| **byte != 0);
    let is_plain = |byte: u8| byte.is_ascii_graphic() || byte == b' ';
    Ok(name.map(|byte| if is_plain(*byte) { char::from(*byte) } else { '?' }).collect())
}

impl Blob {
    /// Its debug information, if it is a method that has some and it can be read; without memory, if it
    /// was read before.
    pub fn debug(&self, layout: &Layout, memory: Option<&dyn Memory>) -> Option<&DebugInfo> {
        let compiled = self.compiled.as_ref().filter(|_| self.kind == Kind::Compiled)?;
        if self.debug.get().is_none() {
            let memory = memory?;
            let read = DebugInfo::read(&compiled.places, layout.excludes_zero, memory).ok()?;
            if self.is_there(layout, memory) {
                let _ = self.debug.set(read);
            }
        }
        self.debug.get()
    }

    /// True if it is there as long as its process. HotSpot frees others, such as the buffers of its
    /// compilers' threads and what calls Java from C.
    pub fn is_permanent(&self) -> bool {
        const NAMES: [&str; 4] =
            ["StubRoutines", "RuntimeStub", "I2C/C2I adapters", "vtable chunks"];
        let is_named = |name: &&str| self.name.starts_with(*name);
        match self.kind {
            Kind::Interpreter => true,
            Kind::Stub => NAMES.iter().any(is_named),
            Kind::Compiled | Kind::Native => false,
        }
    }

    /// True if a header is that of this blob.
    pub fn has(&self, header: &Header, layout: &Layout) -> bool {
        header.identity(layout).is_some_and(|found| self.kind.identity(found) == self.identity)
    }

    /// True if the blob is still there.
    fn is_there(&self, layout: &Layout, memory: &dyn Memory) -> bool {
        Header::read(self.block, layout, memory).is_ok_and(|header| self.has(&header, layout))
    }

    /// True if code is added to it.
    pub fn grows(&self) -> bool {
        &*self.name == "vtable chunks"
    }

    /// True if it prepares calls from the interpreter to compiled code, and the other way.
    pub fn is_adapter(&self) -> bool {
        &*self.name == "I2C/C2I adapters"
    }

    /// The bytes of its code, if they can be read; `None` without memory unless they were read before.
    pub fn bytes(&self, layout: &Layout, memory: Option<&dyn Memory>) -> Option<Arc<[u8]>> {
        if self.bytes.get().is_none() {
            let memory = memory?;
            let size = (self.code.end - self.code.start).min(LARGEST_CODE);
            let mut bytes = vec![0; size as usize];
            memory.read(self.code.start, &mut bytes).ok()?;
            if self.is_there(layout, memory) {
                let _ = self.bytes.set(bytes.into());
            }
        }
        self.bytes.get().cloned()
    }

    /// True if its debug information was read.
    pub fn has_debug(&self) -> bool {
        self.debug.get().is_some()
    }

    /// True if its bytes were read.
    pub fn has_bytes(&self) -> bool {
        self.bytes.get().is_some()
    }

    /// Bytes of memory that it takes.
    pub fn cost(&self) -> usize {
        let code = self.bytes.get().map_or(0, |bytes| bytes.len());
        let debug = self.debug.get().map_or(0, DebugInfo::cost);
        512 + code + debug
    }
}
