//! V8 of node 18 to 24 (10.2 to 13.6), without compressed pointers, on x86-64.
//!
//! Frames of JavaScript are a chain by frame pointers. A frame of a function has the function, whose
//! `SharedFunctionInfo` is what the collector does not move often: it identifies the code. The chain
//! begins at the frame pointer while JavaScript runs, and at the frame of the call out of it
//! (`c_entry_fp` of the isolate) while functions of C++ that it called run. Where C++ called JavaScript,
//! the frame has the value that this had before, from where the chain goes on. Code that calls a function
//! of C++ which never calls JavaScript, such as one that hashes a string, makes no frame for that: it
//! stores its own (`fast_c_call_caller_fp`), and removes it after the call.
//!
//! A frame of machine code has the address at which it goes on. What it executes is read later, from
//! tables of that code: the position in bytecode, and which functions are inlined there.

mod check;
mod detect;
mod frames;
mod heap;
mod machine;
mod names;
mod offsets;
#[cfg(any(test, feature = "testing"))]
mod recorded;
mod source;
#[cfg(test)]
mod tests;

#[cfg(any(test, feature = "testing"))]
pub use detect::detect;
pub(crate) use detect::{EXPORTED, Found};
pub use offsets::{Constants, Offsets};

use source::Sources;

use crate::memory::Blocks;
use crate::merge::{Merge, NativeStack};
use crate::walk::{Behind, Block, Next, Start, WalkDescriptor};
use crate::{ChainEnd, CodeKey, Copied, Executed, Memory, Name, Runtime, UserFrame};

/// Most frames of a walk, unless [`V8::set_most`] is called.
const MOST: u32 = 1024;

/// Ways and addresses in a process with V8.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Symbols {
    /// The path from a thread pointer to its isolate; empty if it is unknown.
    pub isolate: Vec<i32>,
    /// Offset in an isolate of the frame pointer of the innermost call out of JavaScript.
    pub exit_frame: Option<i32>,
    /// Offset in an isolate of the frame pointer of code that calls C++ without such a frame; 0 is there
    /// at other times.
    pub direct_caller: Option<i32>,
    /// The address at which the interpreter goes on after an instruction.
    pub interpreter: Option<u64>,
    /// The first address of V8's built-in code, which is mapped at other addresses as well.
    pub builtins: Option<u64>,
    /// The size in bytes of each bytecode, then with operands of twice and four times the size; empty if
    /// unknown.
    pub bytecodes: Vec<u8>,
}

/// V8 in a process.
#[derive(Clone, Debug)]
pub struct V8 {
    offsets: Offsets,
    symbols: Symbols,
    walks: Vec<WalkDescriptor>,
    sources: Sources,
    entered: machine::Entered,
}

impl V8 {
    /// V8 with these offsets and symbols.
    pub fn new(offsets: Offsets, symbols: Symbols) -> V8 {
        let mut v8 = V8 {
            offsets,
            symbols,
            walks: Vec::new(),
            sources: Sources::default(),
            entered: machine::Entered::default(),
        };
        v8.walks = v8.descriptors();
        v8
    }

    /// Sets the largest number of frames of a walk.
    pub fn set_most(&mut self, most: u32) {
        for walk in &mut self.walks {
            walk.most = most;
        }
    }

    /// The walks from the frame pointer, and from the innermost call out of JavaScript. A call without a
    /// frame of its own is inside of those with one.
    fn descriptors(&self) -> Vec<WalkDescriptor> {
        use frames::place;
        let block = |from: u32, size: u32| Block { lo: from as i32 - heap::TAG, size: size as u8 };
        let function = block(place::FUNCTION_LO, place::FUNCTION_SIZE);
        let shared_place = self.offsets.function_shared - place::FUNCTION_LO;
        let shared = block(place::SHARED_LO, self.offsets.shared_script + 24 - place::SHARED_LO);
        let walk = |starts| WalkDescriptor {
            starts,
            path: Vec::new(),
            block: Block { lo: place::LO, size: place::BEHIND as u8 },
            behind: vec![
                Behind { pointer: place::FUNCTION as u8, block: function },
                Behind { pointer: place::BEHIND as u8 + shared_place as u8, block: shared },
            ],
            next: Next::Marked {
                at: place::CALLER as u8,
                mark: place::CONTEXT as u8,
                marks: frames::ENTRIES,
                marked: place::EXIT as u8,
            },
            most: MOST,
            code: None,
        };
        let mut walks = vec![walk(vec![Start::FramePointer])];
        let Symbols { isolate, exit_frame, direct_caller, .. } = &self.symbols;
        if let (Some(exit), false) = (*exit_frame, isolate.is_empty()) {
            let start = |frame| Start::ThreadPointer { path: [&isolate[..], &[frame]].concat() };
            walks.push(walk(direct_caller.iter().copied().chain([exit]).map(start).collect()));
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
        let start = frames.len();
        let merge = frames::merge(self, copied, native, frames);
        machine::locate(&mut frames[start..], native);
        merge
    }

    fn executed(&self, code: &CodeKey, memory: &dyn Memory) -> Executed {
        machine::executed(self, code, memory)
    }

    fn name(&self, code: &CodeKey, memory: &dyn Memory) -> Name {
        names::name(self, code, &Blocks::new(memory))
    }
}
