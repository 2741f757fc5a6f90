//! Offsets of the members of PHP's structures, by version. `scripts/php-offsets` derives them from
//! PHP's headers.

use super::table::TABLE;

/// Offsets in bytes, for builds without threads (NTS).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offsets {
    /// Major and minor version, as in `8.2`.
    pub version: &'static str,
    /// Number of the interface of its extensions (`ZEND_MODULE_API_NO`).
    pub interface: u32,
    /// `executor_globals`: the innermost frame.
    pub current_frame: u32,
    /// Frame: the executed instruction, as far as it was stored.
    pub frame_instruction: u32,
    /// Frame: where its result is put.
    pub frame_result: u32,
    /// Frame: its function.
    pub frame_function: u32,
    /// Frame: bits that tell how it was called.
    pub frame_call: u32,
    /// Frame: the caller's.
    pub frame_previous: u32,
    /// Function: its kind, a byte.
    pub function_kind: u32,
    /// Function: its name.
    pub function_name: u32,
    /// Function: its class.
    pub function_class: u32,
    /// Function of the user's: number of its named variables.
    pub function_variables: u32,
    /// Function of the user's: number of its instructions.
    pub function_size: u32,
    /// Function of the user's: its first instruction.
    pub function_code: u32,
    /// Function of the user's: its file.
    pub function_file: u32,
    /// Function of the user's: its first line.
    pub function_line: u32,
    /// Function of the user's: its last line.
    pub function_end: u32,
    /// Class: its kind, a byte.
    pub class_kind: u32,
    /// Class: its name.
    pub class_name: u32,
    /// String: bits that describe it.
    pub string_info: u32,
    /// String: its hash, which names of files have.
    pub string_hash: u32,
    /// String: number of bytes.
    pub string_length: u32,
    /// String: the first byte.
    pub string_data: u32,
    /// Instruction: a number whose meaning depends on what it does.
    pub instruction_extended: u32,
    /// Instruction: its line.
    pub instruction_line: u32,
    /// Instruction: what it does, a byte.
    pub instruction_kind: u32,
}

impl Offsets {
    /// Those of the version with this interface of extensions; `None` for versions without a table.
    pub fn for_interface(interface: u32) -> Option<&'static Offsets> {
        TABLE.iter().find(|offsets| offsets.interface == interface)
    }
}

/// Size of an instruction in bytes (`zend_op`), in all versions.
pub(super) const INSTRUCTION: u32 = 32;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::walk::{MAX_BEHIND_SIZE, MAX_BLOCK};

    #[test]
    fn versions_without_a_table_have_no_offsets() {
        assert_eq!(Offsets::for_interface(20_220_829).unwrap().version, "8.2");
        assert!([0, 20_180_731, 20_250_925].iter().all(|n| Offsets::for_interface(*n).is_none()));
    }

    #[test]
    fn a_walk_can_copy_frames_and_functions_of_each_version() {
        for offsets in TABLE {
            assert!(offsets.frame_previous as usize + 8 <= MAX_BLOCK, "{}", offsets.version);
            assert!(offsets.function_code as usize + 8 <= MAX_BEHIND_SIZE, "{}", offsets.version);
        }
    }
}
