//! CPython 3.8 to 3.13.
//!
//! The frames of a thread are a list, which begins in its thread state. The thread state is the
//! value of a pthread key, whose number is in `_PyRuntime`; up to 3.11, that of a thread which holds
//! the global lock is there, too. Line numbers and names are behind the code object of a frame.

mod check;
mod debug_offsets;
mod detect;
mod frames;
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
pub use offsets::{CFrames, Offsets};

use crate::glibc::ThreadLayout;
use crate::merge::{Merge, NativeStack};
use crate::walk::{Block, Next, Start, WalkDescriptor};
use crate::{ChainEnd, CodeKey, Copied, Memory, Name, Refusal, Runtime, UserFrame};

/// Most frames of a walk, unless [`Cpython::set_most`] is called.
const MOST: u32 = 1024;

/// Addresses in a process with CPython.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Symbols {
    /// `_PyRuntime`.
    pub runtime: u64,
    /// `PyCode_Type`.
    pub code_type: u64,
    /// `PyUnicode_Type`.
    pub str_type: u64,
    /// The evaluation function: its first part, `_PyEval_EvalFrameDefault`, and others that the
    /// compiler has split off.
    pub evaluation: Vec<Range<u64>>,
    /// Bytes of its first part in which a thread may have no valid frame.
    pub prologue: u64,
    /// The file that has it, as it is mapped: code and data.
    pub image: Range<u64>,
}

/// CPython in a process.
#[derive(Clone, Debug)]
pub struct Cpython {
    offsets: Offsets,
    symbols: Symbols,
    layout: Layout,
    walks: Vec<WalkDescriptor>,
    /// Layout of the C library's threads, if it describes it.
    threads: Option<ThreadLayout>,
    /// Path from a thread pointer to the thread state.
    key_path: Option<Vec<i32>>,
}

impl Cpython {
    /// CPython with these offsets and symbols. The number of its pthread key is read.
    ///
    /// # Errors
    ///
    /// Memory cannot be read; it has no key yet.
    pub fn new(
        offsets: Offsets,
        symbols: Symbols,
        threads: Option<ThreadLayout>,
        memory: &dyn Memory,
    ) -> Result<Cpython, Refusal> {
        // `Py_tss_t`: whether the key exists, and the key.
        let key_at = symbols.runtime.wrapping_add(u64::from(offsets.key));
        if memory.half(key_at.wrapping_sub(4))? == 0 {
            return Err(Refusal::NotRunning);
        }
        let key = memory.half(key_at)?;
        let key_path = match threads {
            Some(layout) => {
                let path = layout.path_to(key);
                Some(path.ok_or(Refusal::Layout("the number of its pthread key is too large"))?)
            }
            None => None,
        };
        let layout = Layout::new(&offsets);
        let mut cpython =
            Cpython { offsets, symbols, layout, walks: Vec::new(), threads, key_path };
        cpython.walks = cpython.descriptors(memory)?;
        Ok(cpython)
    }

    /// Sets the largest number of frames of a walk.
    pub fn set_most(&mut self, most: u32) {
        for walk in &mut self.walks {
            walk.most = most;
        }
    }

    /// The walks: frames, and the list of C frames if the version has one.
    fn descriptors(&self, memory: &dyn Memory) -> Result<Vec<WalkDescriptor>, Refusal> {
        let starts = self.starts(memory)?;
        let offsets = &self.offsets;
        let mut walks = vec![WalkDescriptor {
            starts: starts.clone(),
            path: offsets.frame_path.iter().map(|offset| *offset as i32).collect(),
            block: self.layout.block,
            behind: vec![self.layout.identity, self.layout.name_hash],
            next: Next::Pointer { at: self.layout.previous },
            most: MOST,
            code: Some(self.layout.code_copy(offsets)),
        }];
        if let Some(c_frames) = offsets.c_frames {
            let members = [Some(c_frames.previous), c_frames.current];
            let lo = members.iter().flatten().min().copied().unwrap_or_default();
            let hi = members.iter().flatten().max().copied().unwrap_or_default() + 8;
            walks.push(WalkDescriptor {
                starts,
                path: vec![c_frames.first as i32],
                block: Block { lo: lo as i32, size: (hi - lo) as u8 },
                behind: Vec::new(),
                next: Next::Pointer { at: (c_frames.previous - lo) as u8 },
                most: MOST,
                code: None,
            });
        }
        Ok(walks)
    }

    /// Ways to a thread's state. Up to 3.11, the key has the first state of a thread that runs
    /// several interpreters; the one that holds the global lock is that of the innermost.
    fn starts(&self, memory: &dyn Memory) -> Result<Vec<Start>, Refusal> {
        let offsets = &self.offsets;
        let runtime = self.symbols.runtime;
        let id = offsets.thread_id as i32;
        let current = offsets
            .current_thread
            .map(|offset| Start::Shared { pointer: runtime.wrapping_add(offset.into()), key: id });
        let other = match &self.key_path {
            Some(path) => Start::ThreadPointer { path: path.clone() },
            None => {
                let interpreter =
                    memory.word(runtime.wrapping_add(offsets.first_interpreter.into()))?;
                let pointer = interpreter.wrapping_add(offsets.first_thread.into());
                Start::List { pointer, next: offsets.next_thread as i32, key: id }
            }
        };
        Ok(current.into_iter().chain([other]).collect())
    }
}

impl Runtime for Cpython {
    fn version(&self) -> String {
        format!("CPython 3.{}", self.offsets.minor)
    }

    fn walks(&self) -> &[WalkDescriptor] {
        &self.walks
    }

    fn frames(&self, copied: Copied<'_>, out: &mut Vec<UserFrame>) -> ChainEnd {
        frames::decode(self, copied.walks, out).end
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

    fn name(&self, code: &CodeKey, memory: &dyn Memory) -> Name {
        names::name(self, code, memory)
    }
}
