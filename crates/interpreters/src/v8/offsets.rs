//! Where V8's structures have their members: constants that V8 exports for debuggers (`v8dbg_*`), and
//! a small table of what is missing there.

use std::collections::BTreeMap;

use super::frames::place;
use super::heap::{Heap, No};

/// Names of constants, without `v8dbg_`. Of several names for one thing, a version has one or two.
const NAMES: &[&str] = &[
    "SmiValueShift",
    "SmiShiftSize",
    "HeapObjectTag",
    "TaggedSize",
    "FirstNonstringType",
    "off_fp_function",
    "off_fp_context_or_frame_type",
    "frametype_EntryFrame",
    "frametype_ConstructEntryFrame",
    "class_HeapObject__map__Map",
    "class_Map__instance_type__uint16_t",
    "class_JSFunction__shared__SharedFunctionInfo",
    "class_Code__instruction_start__Address",
    "class_Code__instruction_start__uintptr_t",
    "class_Code__instruction_size__int",
    "class_Code__flags__uint32_t",
    "CodeKindFieldMask",
    "CodeKindFieldShift",
    "CodeKindBaseline",
    "DeoptimizationDataInlinedFunctionCountIndex",
    "DeoptimizationDataLiteralArrayIndex",
    "DeoptimizationDataSharedFunctionInfoIndex",
    "DeoptimizationDataSharedFunctionInfoWrapperIndex",
    "DeoptimizationDataWrappedSharedFunctionInfoIndex",
    "DeoptimizationDataInliningPositionsIndex",
    "class_SharedFunctionInfo__script_or_debug_info__HeapObject",
    "class_SharedFunctionInfo__script__Tagged_HeapObject_",
    "class_SharedFunctionInfo__name_or_scope_info__Object",
    "class_SharedFunctionInfo__name_or_scope_info__Tagged_Object_",
    "class_SharedFunctionInfo__name_or_scope_info__Tagged_NameOrScopeInfoT_",
    "class_SharedFunctionInfo__flags__int",
    "class_SharedFunctionInfo__internal_formal_parameter_count__uint16_t",
    "class_SharedFunctionInfo__raw_function_token_offset__int16_t",
    "class_Script__name__Object",
    "class_Script__line_ends__Object",
    "class_String__length__int32_t",
    "class_SeqOneByteString__chars__char",
    "class_SeqTwoByteString__chars__char",
    "class_ConsString__first__String",
    "class_ConsString__second__String",
    "class_SlicedString__parent__String",
    "class_SlicedString__offset__SMI",
    "class_ThinString__actual__String",
    "class_ExternalString__resource__Object",
    "class_FixedArrayBase__length__SMI",
    "class_FixedArray__data__uintptr_t",
    "class_BytecodeArray__data__uintptr_t",
    "scopeinfo_idx_first_vars",
    "type_SharedFunctionInfo__SHARED_FUNCTION_INFO_TYPE",
    "type_Script__SCRIPT_TYPE",
    "type_ScopeInfo__SCOPE_INFO_TYPE",
    "type_BytecodeArray__BYTECODE_ARRAY_TYPE",
    "type_Code__CODE_TYPE",
    "type_InterpreterData__INTERPRETER_DATA_TYPE",
    "type_FixedArray__FIXED_ARRAY_TYPE",
    "type_WeakFixedArray__WEAK_FIXED_ARRAY_TYPE",
    "type_WeakArrayList__WEAK_ARRAY_LIST_TYPE",
    "type_ByteArray__BYTE_ARRAY_TYPE",
    "type_TrustedByteArray__TRUSTED_BYTE_ARRAY_TYPE",
    "type_TrustedFixedArray__TRUSTED_FIXED_ARRAY_TYPE",
    "type_ProtectedFixedArray__PROTECTED_FIXED_ARRAY_TYPE",
];

/// What begins the names of these constants as symbols.
pub(super) const PREFIX: &str = "v8dbg_";

/// Names of the symbols of all constants.
pub(super) fn symbols() -> Vec<String> {
    NAMES.iter().map(|name| format!("{PREFIX}{name}")).collect()
}

/// The values of constants, by name without `v8dbg_`.
pub type Constants = BTreeMap<String, i32>;

/// What V8 does not export for debuggers, by version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Unexported {
    /// The version.
    pub version: [u32; 2],
    /// `BytecodeArray`: the source position table.
    pub position_table: u32,
    /// `BytecodeArray`: the first instruction.
    pub bytecode: u32,
    /// `Code`.
    pub code: CodeOffsets,
    /// The bytecode `JumpLoop`, where releases of node have Maglev.
    pub jump_loop: Option<u8>,
}

/// Of `Code`, and of the object with its instructions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CodeOffsets {
    /// The bytecode, if it is not optimized; else the deoptimization data. The table of positions is
    /// behind it.
    pub data: u32,
    /// Address of the first instruction; that instruction itself, if the object has them.
    pub start: u32,
    /// Number of bytes of instructions and of what follows them.
    pub size: u32,
    /// Flags with the kind of the code.
    pub flags: u32,
    /// `JSFunction`: its code, or a number of that.
    pub function_code: u32,
    /// Bytes before the first instruction of the object with the instructions (`InstructionStream`; up
    /// to 10.2 the code itself).
    pub head: u32,
}

impl CodeOffsets {
    /// Offset of the first instruction in a `Code` that has them (10.2); it is no member of others, which
    /// are smaller.
    const INSTRUCTIONS: u32 = 128;

    /// What a function has in place of this code: a pointer to it, or its number before its flags (13.6).
    /// `None` for code that no function has.
    pub(super) fn name(self, heap: Heap<'_>, code: u64) -> Result<Option<u64>, No> {
        if self.flags != CodeOffsets::FLAGS_BEHIND_NUMBER {
            return Ok(Some(code));
        }
        let number = heap.half(code, self.flags - 4)?;
        // Code that was entered in a loop has the place of the loop in its bytecode.
        let is_entered_in_loop = heap.half(code, self.size + 12)? != u32::MAX;
        Ok((number != 0 && !is_entered_in_loop).then_some(number.into()))
    }

    /// See [`CodeOffsets::name`].
    const FLAGS_BEHIND_NUMBER: u32 = 52;

    /// True if the object with the instructions is the `Code` itself.
    pub(super) fn has_instructions(self) -> bool {
        self.start == CodeOffsets::INSTRUCTIONS
    }
}

/// Of `src/objects/bytecode-array.tq` and `code.h`; 11.3 took the instructions out of the code, 12.4
/// turned the array into a trusted object.
pub(super) const TABLE: [Unexported; 6] = [
    unexported(10, 2, [32, 56], [16, 128, 40, 48, 48, 128]),
    unexported(11, 3, [32, 54], [16, 40, 56, 48, 48, 16]),
    unexported(11, 8, [32, 52], [8, 32, 44, 40, 24, 32]),
    unexported(12, 4, [24, 64], [8, 40, 52, 48, 24, 32]),
    unexported(12, 9, [24, 64], [8, 40, 52, 48, 24, 32]),
    Unexported { jump_loop: Some(0x92), ..unexported(13, 6, [24, 64], [8, 40, 56, 52, 24, 32]) },
];

const fn unexported(major: u32, minor: u32, bytecode: [u32; 2], code: [u32; 6]) -> Unexported {
    let [position_table, bytecode] = bytecode;
    let [data, start, size, flags, function_code, head] = code;
    let code = CodeOffsets { data, start, size, flags, function_code, head };
    Unexported { version: [major, minor], position_table, bytecode, code, jump_loop: None }
}

/// Offsets of members from the beginning of their object, and numbers of types.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offsets {
    /// Version of V8: major, minor.
    pub version: [u32; 2],
    /// Of a map: the type of its objects.
    pub map_type: u32,
    /// `JSFunction`: its `SharedFunctionInfo`.
    pub function_shared: u32,
    /// `SharedFunctionInfo`: its bytecode, or what has it.
    pub shared_data: u32,
    /// `SharedFunctionInfo`: a name or a `ScopeInfo`.
    pub shared_name: u32,
    /// `SharedFunctionInfo`: its script.
    pub shared_script: u32,
    /// `Script`: source text, as the name a string.
    pub script_source: u32,
    /// `Script`: name.
    pub script_name: u32,
    /// `Script`: number of the line with which it begins, as a small integer.
    pub script_line: u32,
    /// `Script`: ends of its lines, if V8 has computed them.
    pub script_line_ends: u32,
    /// `Script`: its number.
    pub script_id: u32,
    /// `Script`: its functions.
    pub script_functions: u32,
    /// `BytecodeArray`: source positions.
    pub bytecode_positions: u32,
    /// `BytecodeArray`: the first instruction.
    pub bytecode: u32,
    /// `Code`.
    pub code: CodeOffsets,
    /// The bytecode `JumpLoop`, where it is known.
    pub jump_loop: Option<u8>,
    /// Bits of a code's flags with its kind, and the kind of code that is compiled without
    /// optimization; those of optimized code are larger.
    pub code_kind: u32,
    /// See [`Offsets::code_kind`].
    pub baseline: u32,
    /// Items of deoptimization data.
    pub deoptimization: DeoptimizationItems,
    /// `ScopeInfo`: words of its head.
    pub scope_words: u32,
    /// `String`: number of characters, 32 bits.
    pub string_length: u32,
    /// Characters of a sequential string.
    pub string_chars: u32,
    /// `ConsString`: its parts.
    pub cons: [u32; 2],
    /// `SlicedString`: the string and the offset.
    pub sliced: [u32; 2],
    /// `ThinString`: the string.
    pub thin: u32,
    /// `ExternalString`: address of the characters.
    pub external: u32,
    /// Length and first item of a fixed array.
    pub array: [u32; 2],
    /// Types.
    pub types: Types,
    /// Of the description of V8.
    pub constants: Constants,
}

/// Numbers of items in the array of deoptimization data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeoptimizationItems {
    /// Number of inlined functions, which are the first literals.
    pub inlined: u32,
    /// Literals, an array.
    pub literals: u32,
    /// The function, or an object that has it in the word behind its map.
    pub shared: u32,
    /// Where functions are inlined. Behind it are the beginning of the exits, the numbers of exits in
    /// front of instructions and behind calls, and the exits themselves.
    pub inlining: u32,
}

/// Numbers of types of objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Types {
    /// All types below are strings.
    pub strings: u32,
    /// `SharedFunctionInfo`.
    pub shared: u32,
    /// `Script`.
    pub script: u32,
    /// `ScopeInfo`.
    pub scope: u32,
    /// `BytecodeArray`.
    pub bytecode: u32,
    /// `Code`.
    pub code: u32,
    /// `InterpreterData`.
    pub interpreter_data: u32,
    /// `FixedArray`, and those of trusted objects.
    pub arrays: [u32; 3],
    /// `WeakFixedArray`.
    pub weak_array: u32,
    /// `WeakArrayList`.
    pub weak_list: u32,
    /// `ByteArray`, and that of trusted objects.
    pub bytes: [u32; 2],
}

impl Offsets {
    /// The offsets of a version with these constants; `None` if one is missing, or not in a range that
    /// can be right.
    pub fn new(version: [u32; 2], constants: Constants) -> Option<Offsets> {
        let other = TABLE.iter().find(|other| other.version == version)?;
        let get = |name: &str| {
            let value = u32::try_from(*constants.get(name)?).ok()?;
            (value < 1 << 16).then_some(value)
        };
        let any = |names: &[&str]| names.iter().find_map(|name| get(name));
        let is_64_bit = get("SmiShiftSize")? + get("SmiValueShift")? == 32
            && get("HeapObjectTag")? == 1
            && get("TaggedSize")? == 8
            && get("class_HeapObject__map__Map")? == 0
            && constants.get("off_fp_function") == Some(&-16)
            && constants.get("off_fp_context_or_frame_type") == Some(&-8)
            && get("frametype_EntryFrame")? == 1
            && get("frametype_ConstructEntryFrame")? == 2;
        let script = any(&[
            "class_SharedFunctionInfo__script_or_debug_info__HeapObject",
            "class_SharedFunctionInfo__script__Tagged_HeapObject_",
        ])?;
        let name = any(&[
            "class_SharedFunctionInfo__name_or_scope_info__Object",
            "class_SharedFunctionInfo__name_or_scope_info__Tagged_Object_",
            "class_SharedFunctionInfo__name_or_scope_info__Tagged_NameOrScopeInfoT_",
        ])?;
        let shared = get("class_JSFunction__shared__SharedFunctionInfo")?;
        // What is copied of both, and what of that is compared (`frames.rs`).
        let function = place::FUNCTION_LO..place::FUNCTION_LO + place::FUNCTION_SIZE;
        let is_copied_whole = function.contains(&shared)
            && script >= place::SHARED_LO + 8
            && get("class_SharedFunctionInfo__flags__int")? == script + 16
            && get("class_SharedFunctionInfo__internal_formal_parameter_count__uint16_t")?
                == script + 10
            && get("class_SharedFunctionInfo__raw_function_token_offset__int16_t")? == script + 12;
        let chars = get("class_SeqOneByteString__chars__char")?;
        let is = |names: &[&str], value| any(names).is_none_or(|exported| exported == value);
        let is_right = is_64_bit
            && is_copied_whole
            && get("class_SeqTwoByteString__chars__char")? == chars
            && get("CodeKindFieldShift")? == 0
            && is(&["class_BytecodeArray__data__uintptr_t"], other.bytecode)
            && is(
                &[
                    "class_Code__instruction_start__Address",
                    "class_Code__instruction_start__uintptr_t",
                ],
                other.code.start,
            )
            && is(&["class_Code__instruction_size__int"], other.code.size)
            && is(&["class_Code__flags__uint32_t"], other.code.flags);
        if !is_right {
            return None;
        }
        let bytes = get("type_ByteArray__BYTE_ARRAY_TYPE")?;
        let array = get("type_FixedArray__FIXED_ARRAY_TYPE")?;
        // 10.2 does not export them; the next version has the same.
        let deoptimization = DeoptimizationItems {
            inlined: get("DeoptimizationDataInlinedFunctionCountIndex").unwrap_or(1),
            literals: get("DeoptimizationDataLiteralArrayIndex").unwrap_or(2),
            shared: any(&[
                "DeoptimizationDataSharedFunctionInfoIndex",
                "DeoptimizationDataSharedFunctionInfoWrapperIndex",
                "DeoptimizationDataWrappedSharedFunctionInfoIndex",
            ])
            .unwrap_or(6),
            inlining: get("DeoptimizationDataInliningPositionsIndex").unwrap_or(7),
        };
        let types = Types {
            strings: get("FirstNonstringType")?,
            shared: get("type_SharedFunctionInfo__SHARED_FUNCTION_INFO_TYPE")?,
            script: get("type_Script__SCRIPT_TYPE")?,
            scope: get("type_ScopeInfo__SCOPE_INFO_TYPE")?,
            bytecode: get("type_BytecodeArray__BYTECODE_ARRAY_TYPE")?,
            code: get("type_Code__CODE_TYPE")?,
            interpreter_data: get("type_InterpreterData__INTERPRETER_DATA_TYPE")?,
            arrays: [
                array,
                get("type_TrustedFixedArray__TRUSTED_FIXED_ARRAY_TYPE").unwrap_or(array),
                get("type_ProtectedFixedArray__PROTECTED_FIXED_ARRAY_TYPE").unwrap_or(array),
            ],
            weak_array: get("type_WeakFixedArray__WEAK_FIXED_ARRAY_TYPE")?,
            weak_list: get("type_WeakArrayList__WEAK_ARRAY_LIST_TYPE")?,
            bytes: [bytes, get("type_TrustedByteArray__TRUSTED_BYTE_ARRAY_TYPE").unwrap_or(bytes)],
        };
        Some(Offsets {
            version,
            map_type: get("class_Map__instance_type__uint16_t")?,
            function_shared: shared,
            shared_data: 8,
            shared_name: name,
            shared_script: script,
            script_source: 8,
            script_name: get("class_Script__name__Object")?,
            script_line: 24,
            script_line_ends: get("class_Script__line_ends__Object")?,
            script_id: 64,
            script_functions: 88,
            bytecode_positions: other.position_table,
            bytecode: other.bytecode,
            code: other.code,
            jump_loop: other.jump_loop,
            code_kind: get("CodeKindFieldMask")?,
            baseline: get("CodeKindBaseline")?,
            deoptimization,
            scope_words: get("scopeinfo_idx_first_vars")?,
            string_length: get("class_String__length__int32_t")?,
            string_chars: chars,
            cons: [
                get("class_ConsString__first__String")?,
                get("class_ConsString__second__String")?,
            ],
            sliced: [
                get("class_SlicedString__parent__String")?,
                get("class_SlicedString__offset__SMI")?,
            ],
            thin: get("class_ThinString__actual__String")?,
            external: get("class_ExternalString__resource__Object")? + 8,
            array: [
                get("class_FixedArrayBase__length__SMI")?,
                get("class_FixedArray__data__uintptr_t")?,
            ],
            types,
            constants,
        })
    }

    /// True if the version has a table.
    pub fn has_version(version: [u32; 2]) -> bool {
        TABLE.iter().any(|other| other.version == version)
    }
}
