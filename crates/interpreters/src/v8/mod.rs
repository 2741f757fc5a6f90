//! V8 of node 18 to 24 (10.2 to 13.6), without compressed pointers, on x86-64.
//!
//! Frames of JavaScript are a chain by frame pointers. A frame of a function has the function, whose
//! `SharedFunctionInfo` is what the collector does not move often: it identifies the code. The chain
//! begins at the frame pointer while JavaScript runs, and at the frame of the call out of it
//! (`c_entry_fp` of the isolate) while functions of C++ that it called run. It ends where
//! C++ called JavaScript; frames of JavaScript around that remain native.
//!
//! Functions that the optimizing compilers have inlined have no frames, and are not shown.

mod check;
mod detect;
mod frames;
mod heap;
mod names;
mod offsets;
#[cfg(any(test, feature = "testing"))]
mod recorded;
mod source;
#[cfg(test)]
mod tests;

pub(crate) use detect::EXPORTED;
pub use detect::detect;
pub use offsets::{Constants, Offsets};

use source::Sources;

use crate::merge::{Merge, NativeStack};
use crate::walk::{Behind, Block, Next, Start, WalkDescriptor};
use crate::{ChainEnd, CodeKey, Copied, Memory, Name, Runtime, UserFrame};

/// Most frames of a walk, unless [`V8::set_most`] is called.
const MOST: u32 = 1024;

/// Ways and addresses in a process with V8.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Symbols {
    /// The path from a thread pointer to its isolate; empty if it is unknown.
    pub isolate: Vec<i32>,
    /// Offset in an isolate of the frame pointer of the innermost call out of JavaScript.
    pub exit_frame: Option<i32>,
    /// The address at which the interpreter goes on after an instruction.
    pub interpreter: Option<u64>,
    /// The first address of V8's built-in code, which is mapped at other addresses as well.
    pub builtins: Option<u64>,
}

/// V8 in a process.
#[derive(Clone, Debug)]
pub struct V8 {
    offsets: Offsets,
    symbols: Symbols,
    walks: Vec<WalkDescriptor>,
    sources: Sources,
}

impl V8 {
    /// V8 with these offsets and symbols.
    pub fn new(offsets: Offsets, symbols: Symbols) -> V8 {
        let mut v8 = V8 { offsets, symbols, walks: Vec::new(), sources: Sources::default() };
        v8.walks = v8.descriptors();
        v8
    }

    /// Sets the largest number of frames of a walk.
    pub fn set_most(&mut self, most: u32) {
        for walk in &mut self.walks {
            walk.most = most;
        }
    }

    /// The walks from the frame pointer, and from the innermost call out of JavaScript.
    fn descriptors(&self) -> Vec<WalkDescriptor> {
        use frames::place;
        let function = Block { lo: self.offsets.function_shared as i32 - heap::TAG, size: 8 };
        let shared = Block { lo: self.offsets.shared_script as i32 - 8 - heap::TAG, size: 32 };
        let walk = |start, path| WalkDescriptor {
            starts: vec![start],
            path,
            block: Block { lo: place::LO, size: place::BEHIND as u8 },
            behind: vec![
                Behind { pointer: place::FUNCTION as u8, block: function },
                Behind { pointer: place::BEHIND as u8, block: shared },
            ],
            next: Next::Pointer { at: place::CALLER as u8 },
            most: MOST,
        };
        let mut walks = vec![walk(Start::FramePointer, Vec::new())];
        if let (Some(exit), false) = (self.symbols.exit_frame, self.symbols.isolate.is_empty()) {
            let path = self.symbols.isolate.clone();
            walks.push(walk(Start::ThreadPointer { path }, vec![exit]));
        }
        walks
    }
}

impl Runtime for V8 {
    fn version(&self) -> String {
        let [major, minor] = self.offsets.version;
        format!("V8 {major}.{minor}")
    }

    fn walks(&self) -> &[WalkDescriptor] {
        &self.walks
    }

    fn frames(&self, copied: Copied<'_>, out: &mut Vec<UserFrame>) -> ChainEnd {
        frames::decode(self, copied, out).end
    }

    fn merge(
        &self,
        copied: Copied<'_>,
        native: &NativeStack,
        frames: &mut Vec<UserFrame>,
    ) -> Merge {
        frames::merge(self, copied, native, frames)
    }

    fn name(&self, code: &CodeKey, memory: &dyn Memory) -> Name {
        names::name(self, code, memory)
    }
}
