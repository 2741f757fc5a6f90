//! PHP without threads (NTS).
//!
//! `executor_globals` has the innermost frame of the one thread that executes code, the first one of
//! the process. Frames are a list: functions of the user's, and those that are written in C. A frame
//! has its function and the instruction that it has stored last.
//!
//! The instruction of the innermost frame is in a register, if the interpreter was built with GCC
//! (`ZEND_VM_KIND_HYBRID`); it is stored before calls. So a caller's line is copied at the sample, and
//! that of the innermost frame is found later in its function.

mod check;
mod detect;
mod frames;
mod lines;
mod names;
mod offsets;
#[cfg(any(test, feature = "testing"))]
mod recorded;
mod runs;
mod table;
#[cfg(test)]
mod tests;

use std::ops::Range;

#[cfg(any(test, feature = "testing"))]
pub use detect::detect;
pub(crate) use detect::{EVALUATION, Found};
use frames::Layout;
pub use lines::InstructionLines;
pub use offsets::Offsets;

use crate::merge::{Merge, NativeStack};
use crate::walk::{Next, Start, WalkDescriptor};
use crate::{ChainEnd, CodeKey, CompiledCode, Copied, Memory, Name, Runtime, UserFrame};

/// Most frames of a walk, unless [`Php::set_most`] is called.
const MOST: u32 = 1024;

/// Addresses in a process with PHP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Symbols {
    /// `executor_globals`.
    pub globals: u64,
    /// The evaluation function: its first part, `execute_ex`, and others that the compiler has split
    /// off.
    pub evaluation: Vec<Range<u64>>,
    /// The file that has it, as it is mapped: code and data.
    pub image: Range<u64>,
    /// It has its frame and instruction in registers.
    pub has_registers: bool,
}

/// PHP in a process.
#[derive(Clone, Debug)]
pub struct Php {
    offsets: Offsets,
    symbols: Symbols,
    layout: Layout,
    walks: [WalkDescriptor; 1],
}

impl Php {
    /// PHP with these offsets and symbols.
    pub fn new(offsets: Offsets, symbols: Symbols) -> Php {
        let layout = Layout::new(&offsets);
        let walk = WalkDescriptor {
            starts: vec![Start::FirstThread { object: symbols.globals }],
            path: vec![offsets.current_frame as i32],
            block: layout.block,
            behind: vec![layout.function, layout.instruction, layout.file_hash],
            next: Next::Pointer { at: layout.previous },
            most: MOST,
            code: Some(layout.code_copy(&offsets)),
        };
        Php { offsets, symbols, layout, walks: [walk] }
    }

    /// Sets the largest number of frames of a walk.
    pub fn set_most(&mut self, most: u32) {
        self.walks[0].most = most;
    }
}

impl Runtime for Php {
    fn version(&self) -> String {
        format!("PHP {}", self.offsets.version)
    }

    fn walks(&self) -> &[WalkDescriptor] {
        &self.walks
    }

    fn frames(&self, copied: Copied<'_>, out: &mut Vec<UserFrame>) -> ChainEnd {
        let chain = frames::decode(self, copied);
        out.extend(chain.frames.iter().map(|frame| frame.user));
        chain.end
    }

    fn merge(
        &self,
        copied: Copied<'_>,
        native: &NativeStack,
        frames: &mut Vec<UserFrame>,
    ) -> Merge {
        runs::merge(self, copied, native, frames)
    }

    fn evaluation(&self) -> &[Range<u64>] {
        &self.symbols.evaluation
    }

    /// `zend_jit_x86.dasc`: of the build with GCC, functions are entered by a jump, and keep the
    /// stack pointer of `execute_ex`, which is on its stack.
    fn compiled_code(&self) -> Option<CompiledCode> {
        let main = self.symbols.evaluation.first().filter(|_| self.symbols.has_registers)?;
        Some(CompiledCode::Jumped { from: main.start + (main.end - main.start) / 2 })
    }

    fn name(&self, code: &CodeKey, memory: &dyn Memory) -> Name {
        names::name(self, code, memory)
    }
}
