//! Offsets of the members of CPython's structures, by minor version.

use super::table::TABLE;
use crate::walk::{MAX_BEHIND_SIZE, MAX_BLOCK};

/// Offsets in bytes. Members that a version does not have are `None`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offsets {
    /// Minor version of Python 3.
    pub minor: u8,
    /// `_PyRuntime`: the number of the pthread key whose values are thread states.
    pub key: u32,
    /// `_PyRuntime`: the thread state that holds the global lock (up to 3.11).
    pub current_thread: Option<u32>,
    /// `_PyRuntime`: the first interpreter.
    pub first_interpreter: u32,
    /// Interpreter: the next one.
    pub next_interpreter: u32,
    /// Interpreter: its first thread state.
    pub first_thread: u32,
    /// Thread state: the next one.
    pub next_thread: u32,
    /// Thread state: its interpreter.
    pub interpreter: u32,
    /// Thread state: `pthread_self()` of its thread, which is the thread pointer with glibc and musl.
    pub thread_id: u32,
    /// Thread state: the number that the kernel gave to its thread (3.11 and later).
    pub native_id: Option<u32>,
    /// Frame: the caller's.
    pub frame_previous: u32,
    /// Frame: its code object.
    pub frame_code: u32,
    /// Frame: its global variables.
    pub frame_globals: u32,
    /// Frame: its position in the code; a number up to 3.10, later a pointer.
    pub frame_position: u32,
    /// Frame: it is the first of an evaluation (3.11).
    pub frame_entry: Option<u32>,
    /// Frame: what owns it (3.12 and later).
    pub frame_owner: Option<u32>,
    /// Code: its first line.
    pub code_first_line: u32,
    /// Code: its file.
    pub code_filename: u32,
    /// Code: its name.
    pub code_name: u32,
    /// Code: its name with classes and functions around it (3.11 and later).
    pub code_qualname: Option<u32>,
    /// Code: its line table.
    pub code_lines: u32,
    /// Code: pointer to its bytecode up to 3.10, later the bytecode itself.
    pub code_bytecode: u32,
    /// Object: its type.
    pub object_type: u32,
    /// Object of variable size: number of items.
    pub object_size: u32,
    /// `bytes`: the first byte.
    pub bytes_data: u32,
    /// `str`: number of characters.
    pub str_length: u32,
    /// `str`: its hash, which names have.
    pub str_hash: u32,
    /// `str`: bits that describe it.
    pub str_state: u32,
    /// `str` of ASCII characters only: the first one.
    pub str_ascii: u32,
    /// Other `str`: the first character.
    pub str_other: u32,
    /// Path of pointers from a thread state to its innermost frame.
    pub frame_path: &'static [u32],
    /// List of structures on the C stack, one for each evaluation (3.10 and 3.11).
    pub c_frames: Option<CFrames>,
}

/// `CFrame` (3.10), `_PyCFrame` (3.11). The last of the list lies in the thread state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CFrames {
    /// Thread state: the innermost one.
    pub first: u32,
    /// The innermost frame of its evaluation.
    pub current: Option<u32>,
    /// That of the evaluation around it.
    pub previous: u32,
}

impl Offsets {
    /// Those of a minor version of Python 3; `None` for versions without a table.
    pub fn for_minor(minor: u8) -> Option<&'static Offsets> {
        TABLE.iter().find(|offsets| offsets.minor == minor)
    }

    /// True if a walk can copy frames and identities with these offsets: they are near each other.
    pub(super) fn is_walkable(&self) -> bool {
        let words = self.frame_words();
        let bytes = [self.frame_entry, self.frame_owner];
        let lo = words.iter().min().copied().unwrap_or_default();
        let block = lo..lo + MAX_BLOCK as u32;
        let name = self.code_qualname.unwrap_or(self.code_name);
        let code = self.code_filename..=self.code_lines;
        words.iter().all(|at| block.contains(&(at + 7)))
            && code.contains(&self.code_name)
            && bytes.iter().flatten().all(|at| block.contains(at))
            && code.contains(&name)
            && self.identity_size() as usize <= MAX_BEHIND_SIZE
    }

    /// Offsets of the words of a frame that are copied.
    pub(super) fn frame_words(&self) -> [u32; 4] {
        [self.frame_previous, self.frame_code, self.frame_position, self.frame_globals]
    }

    /// Bytes of a code object that name it: file, name and line table, which are its identity.
    pub(super) fn identity_at(&self) -> u32 {
        self.code_filename
    }

    /// Size of those bytes.
    pub(super) fn identity_size(&self) -> u32 {
        (self.code_lines + 8).saturating_sub(self.code_filename)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_version_has_a_table() {
        let minors: Vec<u8> = TABLE.iter().map(|offsets| offsets.minor).collect();
        assert_eq!(minors, [8, 9, 10, 11, 12, 13]);
        assert!(Offsets::for_minor(7).is_none() && Offsets::for_minor(14).is_none());
    }

    #[test]
    fn a_walk_can_copy_frames_and_identities_of_each_version() {
        assert!(TABLE.iter().all(Offsets::is_walkable));
    }
}
