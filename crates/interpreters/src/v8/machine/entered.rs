//! Frames of code to which functions do not lead, such as that of loops which run. They are read again
//! and again, since other code may come to its address: most of these times, it is the same code.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use super::super::heap::{Heap, No};
use crate::CodeKey;

/// Most keys whose frames are kept.
const MOST: usize = 1 << 14;

/// What other code at the same address does not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Fingerprint {
    /// The `Code`.
    code: u64,
    /// Its deoptimization data and table of places, which are made with it.
    data: [u64; 2],
}

impl Fingerprint {
    /// That of the code whose object with instructions is `stream`.
    fn read(heap: Heap<'_>, stream: u64) -> Result<Fingerprint, No> {
        let code = heap.code_of(stream)?;
        Ok(Fingerprint { code, data: heap.words(code, heap.offsets.code.data)? })
    }
}

#[derive(Clone, Debug)]
struct Kept {
    stream: u64,
    fingerprint: Fingerprint,
    frames: Vec<CodeKey>,
}

/// Frames by the key of the frame that executes them.
#[derive(Clone, Debug, Default)]
pub(in super::super) struct Entered {
    known: Arc<Mutex<HashMap<CodeKey, Kept>>>,
}

impl Entered {
    /// The frames of a key, if its code is still there.
    pub(super) fn frames(&self, heap: Heap<'_>, key: &CodeKey) -> Option<Vec<CodeKey>> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let kept = known.get(key)?;
        let found = Fingerprint::read(heap, kept.stream).ok()?;
        (found == kept.fingerprint).then(|| kept.frames.clone())
    }

    /// Keeps the frames of a key whose code has its instructions in `stream`.
    pub(super) fn keep(
        &self,
        heap: Heap<'_>,
        key: CodeKey,
        stream: u64,
        frames: &[CodeKey],
    ) -> Result<(), No> {
        let fingerprint = Fingerprint::read(heap, stream)?;
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= MOST {
            known.clear();
        }
        known.insert(key, Kept { stream, fingerprint, frames: frames.to_vec() });
        Ok(())
    }
}
