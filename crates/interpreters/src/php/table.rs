//! Made by `scripts/php-offsets`.

use super::Offsets;

pub(super) const TABLE: &[Offsets] = &[Offsets {
    version: "8.2",
    interface: 20_220_829,
    current_frame: 488,
    frame_instruction: 0,
    frame_result: 16,
    frame_function: 24,
    frame_call: 40,
    frame_previous: 48,
    function_kind: 0,
    function_name: 8,
    function_class: 16,
    function_variables: 76,
    function_size: 80,
    function_code: 88,
    function_file: 152,
    function_line: 160,
    function_end: 164,
    class_kind: 0,
    class_name: 8,
    string_info: 4,
    string_hash: 8,
    string_length: 16,
    string_data: 24,
    instruction_extended: 20,
    instruction_line: 24,
    instruction_kind: 28,
}];
