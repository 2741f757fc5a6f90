//! Code that programs copied at samples, as it may be freed before its names are read.

use interpreters::CodeKey;
use interpreters::walk::CopiedCode;
use rustc_hash::FxHashMap;

/// Most bytes of all copies. Beyond that, all are forgotten: their code is read from memory.
const MOST_BYTES: usize = 32 << 20;

/// Code of a process.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Place {
    pid: i32,
    object: u64,
    context: u64,
}

/// The last copy of each code.
#[derive(Default)]
pub struct CopiedCodes {
    copies: FxHashMap<Place, CopiedCode>,
    bytes: usize,
}

impl CopiedCodes {
    /// Keeps a copy.
    pub fn insert(&mut self, pid: i32, context: u64, copy: CopiedCode) {
        let Some(object) = copy.object() else { return };
        let size = copy.size();
        if self.bytes + size > MOST_BYTES {
            self.copies.clear();
            self.bytes = 0;
        }
        self.bytes += size;
        if let Some(before) = self.copies.insert(Place { pid, object, context }, copy) {
            self.bytes -= before.size();
        }
    }

    /// The code of a key in a process.
    pub fn get(&self, pid: i32, key: &CodeKey) -> Option<&CopiedCode> {
        let CodeKey { object, context, .. } = *key;
        self.copies.get(&Place { pid, object, context })
    }
}
