//! Code that interpreters have compiled, before the addresses of native frames.

use rustc_hash::FxHashMap;

use super::budgeted::BudgetedMemory;
use interpreters::merge::{CodeBefore, NativeStack};
use interpreters::{Budget, CompiledCode, Memory, Runtime};
use unwind::Frame;

/// What is read of a process in each second of samples.
const BUDGET: Budget = Budget { bytes: 1 << 20, calls: 4000 };

/// Code of a process, for at most a second: it may be replaced.
pub struct CodeCache {
    memory: BudgetedMemory,
    known: FxHashMap<u64, Option<[u8; CodeBefore::SIZE]>>,
}

impl CodeCache {
    /// That of a process.
    pub fn new(pid: i32) -> CodeCache {
        CodeCache { memory: BudgetedMemory::new(pid, BUDGET), known: FxHashMap::default() }
    }

    /// Sets the code of the innermost frame of run-time code at a time, in nanoseconds, if the runtime
    /// needs it. False: it would have to be read, and may not.
    pub fn fill(
        &mut self,
        runtime: &dyn Runtime,
        frames: &[Frame],
        native: &mut NativeStack,
        time: u64,
        may_read: bool,
    ) -> bool {
        native.code = None;
        let Some(frame) = native.frames.iter().position(|frame| frame.is_run_time) else {
            return true;
        };
        if !matches!(runtime.compiled_code(), Some(CompiledCode::Called { .. })) {
            return true;
        }
        let is_due = self.memory.is_due(time);
        let address = native.frames[frame].address;
        let known = self.known.get(&address).filter(|_| !is_due).copied();
        if known.is_none() && !may_read {
            return false;
        }
        let bytes = known.unwrap_or_else(|| self.read(address, time));
        let is_return = frames[frame].kind.is_return();
        native.code = Some(CodeBefore { frame, is_return, bytes });
        true
    }

    fn read(&mut self, address: u64, time: u64) -> Option<[u8; CodeBefore::SIZE]> {
        if self.memory.refill(time) {
            self.known.clear();
        }
        let mut bytes = [0; CodeBefore::SIZE];
        let start = address.checked_sub(CodeBefore::SIZE as u64);
        let read = start.is_some_and(|start| self.memory.memory().read(start, &mut bytes).is_ok());
        let bytes = read.then_some(bytes);
        self.known.insert(address, bytes);
        bytes
    }
}
