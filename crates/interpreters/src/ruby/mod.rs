//! Ruby (MRI) 3.0 to 3.3.
//!
//! Each thread has its execution context in a thread-local variable. Control frames are an array at the
//! end of the context's VM stack, which grows down to the innermost one. A frame leads to its
//! instruction sequence and to its environment, whose last three words are the method entry, the
//! environment around it, and flags. Fibers have contexts of their own: a chain ends at the root of the
//! fiber that runs.
//!
//! The position of a frame is the low half of the address of its next instruction: where its
//! instructions begin is known when its name is read. Compiled code (YJIT) stores it before calls, as
//! the interpreter does before each instruction; so the line of an innermost frame may be that of an
//! earlier call there.

mod check;
mod compiled;
mod detect;
mod frames;
mod names;
mod objects;
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
pub(crate) use detect::{Found, VERSION};
use objects::ClassWords;
use offsets::Layout;
pub use offsets::{ClassNames, Offsets, SymbolOffsets};

use crate::merge::{Merge, NativeStack};
use crate::walk::{Block, Next, Start, WalkDescriptor};
use crate::{ChainEnd, CodeKey, CompiledCode, Copied, Memory, Name, Refusal, Runtime, UserFrame};

/// Most frames of a walk, unless [`Ruby::set_most`] is called.
const MOST: u32 = 1024;

/// Addresses in a process with Ruby.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Symbols {
    /// Path of pointers from a thread pointer to the thread's execution context
    /// (`ruby_current_ec`).
    pub context_path: Vec<i32>,
    /// The pointer to the VM (`ruby_current_vm_ptr`).
    pub vm: u64,
    /// The pointer to the class `Object` (`rb_cObject`).
    pub object_class: u64,
    /// `ruby_global_symbols`, if its address was found.
    pub names: Option<u64>,
    /// The evaluation function, `rb_vm_exec`, and parts of it that the compiler has split off.
    pub evaluation: Vec<Range<u64>>,
    /// The file that has it, as it is mapped: code and data.
    pub image: Range<u64>,
    /// `struct pthread`: the number of the thread, if the C library describes it.
    pub thread_number: Option<u32>,
}

/// Ruby in a process.
#[derive(Clone, Debug)]
pub struct Ruby {
    offsets: Offsets,
    symbols: Symbols,
    layout: Layout,
    walks: Vec<WalkDescriptor>,
    /// Where the names of classes are, if they were found.
    class_words: Option<ClassWords>,
}

impl Ruby {
    /// Ruby with these offsets and symbols. Where the names of classes are is read.
    ///
    /// # Errors
    ///
    /// It has not begun yet.
    pub fn new(offsets: Offsets, symbols: Symbols, memory: &dyn Memory) -> Result<Ruby, Refusal> {
        if memory.word(symbols.vm)? == 0 {
            return Err(Refusal::NotRunning);
        }
        let layout = Layout::new(&offsets);
        let mut ruby = Ruby { offsets, symbols, layout, walks: Vec::new(), class_words: None };
        ruby.walks = ruby.descriptors();
        ruby.class_words = objects::class_words(&ruby, memory);
        Ok(ruby)
    }

    /// Sets the largest number of frames of a walk.
    pub fn set_most(&mut self, most: u32) {
        for walk in &mut self.walks {
            walk.most = most;
        }
    }

    /// The walks: control frames, and tags, which lie on the native stack.
    fn descriptors(&self) -> Vec<WalkDescriptor> {
        let offsets = &self.offsets;
        let starts = vec![Start::ThreadPointer { path: self.symbols.context_path.clone() }];
        let frames = WalkDescriptor {
            starts: starts.clone(),
            path: vec![offsets.context_frame as i32],
            block: self.layout.block,
            behind: self.layout.behind.clone(),
            next: Next::Array {
                stride: offsets.frame_size as i32,
                base: offsets.context_stack as i32,
                count: offsets.context_size as i32,
                unit: 8,
            },
            most: MOST,
            code: None,
        };
        let lo = offsets.tag_resumption();
        let previous = (offsets.tag_previous() - lo) as u8;
        let tags = WalkDescriptor {
            starts,
            path: vec![offsets.context_tag as i32],
            block: Block { lo: lo as i32, size: previous + 8 },
            behind: Vec::new(),
            next: Next::Pointer { at: previous },
            most: MOST,
            code: None,
        };
        vec![frames, tags]
    }
}

impl Runtime for Ruby {
    fn version(&self) -> String {
        format!("Ruby 3.{}", self.offsets.minor)
    }

    fn walks(&self) -> &[WalkDescriptor] {
        &self.walks
    }

    fn frames(&self, copied: Copied<'_>, out: &mut Vec<UserFrame>) -> ChainEnd {
        frames::decode(self, copied.walks, None, out).end
    }

    fn merge(
        &self,
        copied: Copied<'_>,
        native: &NativeStack,
        frames: &mut Vec<UserFrame>,
    ) -> Merge {
        runs::merge(self, copied.walks, native, frames)
    }

    fn evaluation(&self) -> &[Range<u64>] {
        &self.symbols.evaluation
    }

    /// YJIT's code pushes the registers that it uses (`yjit_entry_prologue`), and is called by the
    /// interpreter's functions.
    fn compiled_code(&self) -> Option<CompiledCode> {
        Some(CompiledCode::Called { from: self.symbols.image.clone() })
    }

    fn name(&self, code: &CodeKey, memory: &dyn Memory) -> Name {
        names::name(self, code, memory)
    }
}
