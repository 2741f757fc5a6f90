//! CPython's own description of its structures: `_Py_DebugOffsets` at the start of `_PyRuntime`, in
//! 3.13 and later (`Include/internal/pycore_runtime.h`).

use super::Offsets;
use crate::memory::{Memory, ReadError};

/// Size of the part that is read.
const SIZE: usize = 568;

/// What it begins with.
const COOKIE: &[u8; 8] = b"xdebugpy";

/// The description of a process.
pub(super) struct DebugOffsets {
    bytes: [u8; SIZE],
}

impl DebugOffsets {
    /// Reads it; `None` if there is none.
    pub fn read(runtime: u64, memory: &dyn Memory) -> Result<Option<DebugOffsets>, ReadError> {
        let mut bytes = [0; SIZE];
        memory.read(runtime, &mut bytes)?;
        let found = bytes.starts_with(COOKIE);
        Ok(found.then_some(DebugOffsets { bytes }))
    }

    fn word(&self, at: usize) -> u64 {
        self.bytes[at..].first_chunk().map_or(0, |word| u64::from_le_bytes(*word))
    }

    /// Major and minor version of Python.
    pub fn version(&self) -> (u8, u8) {
        let version = self.word(8);
        ((version >> 24) as u8, (version >> 16) as u8)
    }

    /// The build has no global lock.
    pub fn is_free_threaded(&self) -> bool {
        self.word(16) != 0
    }

    /// The offsets of a table, with those that are described here in their place; `None` if one of
    /// them is too large. Only for 3.13: others have other descriptions.
    pub fn applied_to(&self, table: &Offsets) -> Option<Offsets> {
        /// `PyInterpreterState` has 280 KB, other structures below 1 KB.
        const LARGEST: u64 = 1 << 20;
        let offset = |at| u32::try_from(self.word(at)).ok().filter(|_| self.word(at) < LARGEST);
        let in_frame = |at| offset(at).filter(|offset| *offset < 80);
        let in_code = |at| offset(at).filter(|offset| *offset < 1024);
        let mut offsets = table.clone();
        offsets.first_interpreter = offset(40)?;
        offsets.next_interpreter = offset(64)?;
        offsets.first_thread = offset(72)?;
        offsets.next_thread = offset(168)?;
        offsets.interpreter = offset(176)?;
        offsets.thread_id = offset(192)?;
        offsets.native_id = Some(offset(200)?);
        offsets.frame_previous = in_frame(232)?;
        offsets.frame_code = in_frame(240)?;
        offsets.frame_position = in_frame(248)?;
        offsets.frame_owner = Some(in_frame(264)?);
        offsets.code_filename = in_code(280)?;
        offsets.code_name = in_code(288)?;
        offsets.code_qualname = Some(in_code(296)?);
        offsets.code_lines = in_code(304)?;
        offsets.code_first_line = in_code(312)?;
        offsets.code_bytecode = in_code(344)?;
        offsets.object_type = in_code(360)?;
        offsets.bytes_data = in_code(528)?;
        offsets.str_state = in_code(544)?;
        offsets.str_length = in_code(552)?;
        offsets.str_ascii = in_code(560)?;
        // The path from a thread state has one step in the table of 3.13.
        let same_path = offsets.frame_path.first().is_some_and(|at| Some(*at) == offset(184));
        (same_path && offsets.is_walkable()).then_some(offsets)
    }
}
