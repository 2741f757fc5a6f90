//! Offsets of the members of Ruby's structures, by minor version.

use super::table::TABLE;
use crate::walk::{Behind, Block};

/// Offsets in bytes. Members that a version does not have are `None`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offsets {
    /// Minor version of Ruby 3.
    pub minor: u8,
    /// VM: the main thread.
    pub vm_main_thread: u32,
    /// Thread: its VM.
    pub thread_vm: u32,
    /// Thread: the execution context that it runs.
    pub thread_context: u32,
    /// Thread: its native thread (3.2 and later).
    pub thread_native: Option<u32>,
    /// Native thread, or thread: `pthread_self()`, which is the thread pointer with glibc.
    pub thread_id: u32,
    /// Execution context: its thread.
    pub context_thread: u32,
    /// Execution context: its VM stack.
    pub context_stack: u32,
    /// Execution context: words of its VM stack.
    pub context_size: u32,
    /// Execution context: the innermost control frame.
    pub context_frame: u32,
    /// Execution context: the innermost tag.
    pub context_tag: u32,
    /// Tag: what `__builtin_setjmp` stores.
    pub tag_buffer: u32,
    /// Size of a control frame; its caller's is behind it.
    pub frame_size: u32,
    /// Control frame: the next instruction.
    pub frame_position: u32,
    /// Control frame: its instruction sequence.
    pub frame_code: u32,
    /// Control frame: the last word of its environment.
    pub frame_environment: u32,
    /// Instruction sequence: its body.
    pub code_body: u32,
    /// Body: number of words of its instructions.
    pub body_size: u32,
    /// Body: its instructions.
    pub body_instructions: u32,
    /// Body: its file.
    pub body_path: u32,
    /// Body: the function in which it lies.
    pub body_base_label: u32,
    /// Body: its name.
    pub body_label: u32,
    /// Body: its first line.
    pub body_first_line: u32,
    /// Body: lines.
    pub body_lines: u32,
    /// Body: number of lines.
    pub body_line_count: u32,
    /// Body: positions of lines.
    pub body_line_index: u32,
    /// Body: the instruction sequence of the method or file in which it lies.
    pub body_local: u32,
    /// The first line is a `VALUE`, not a number.
    pub is_first_line_tagged: bool,
    /// Size of a line's entry, which begins with its number.
    pub line_size: u32,
    /// Method entry: the class in which it was found.
    pub method_class: u32,
    /// Method entry: its definition.
    pub method_definition: u32,
    /// Definition: what it executes.
    pub definition_body: u32,
    /// Definition: the ID of its name.
    pub definition_name: u32,
    /// Names of classes, if they can be read.
    pub class: Option<ClassNames>,
    /// Names of IDs, if they can be read. Without them, C functions are not shown.
    pub symbols: Option<SymbolOffsets>,
}

/// Where the name of a class is, and the object of a singleton class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClassNames {
    /// Among its variables (up to 3.1).
    Variables {
        /// Class: its extension.
        extension: u32,
        /// Extension: its table of variables.
        variables: u32,
    },
    /// Members of the class (3.3).
    Members {
        /// Its name.
        path: u32,
        /// The object of a singleton class.
        attached: u32,
    },
}

/// Offsets of the symbol table (`ruby_global_symbols`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SymbolOffsets {
    /// Array of arrays of names.
    pub names: u32,
    /// The largest ID that is a number itself (`tLAST_OP_ID`).
    pub last_operator: u64,
}

/// Places in what is copied of a control frame: its own words, the pointer to the body of its instruction
/// sequence, the last three words of its environment, the first words of the object that the first of
/// these leads to, and words of the body that name it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Layout {
    /// What is copied of a frame.
    pub block: Block,
    /// What is copied behind its pointers.
    pub behind: Vec<Behind>,
    /// The next instruction.
    pub position: usize,
    /// The instruction sequence.
    pub code: usize,
    /// The environment.
    pub environment: usize,
    /// The body of the instruction sequence.
    pub body: usize,
    /// The method entry of the environment, its class reference, or a wrapper of one of them.
    pub method: usize,
    /// The environment around it, if it is not a method's; else a block.
    pub outer: usize,
    /// Kind and flags of the environment.
    pub flags: usize,
    /// The object that [`Layout::method`] leads to: its flags.
    pub object: usize,
    /// The class of a method entry.
    pub class: usize,
    /// The definition of a method entry.
    pub definition: usize,
    /// Words of the body from its file to its first line: [`NAME_WORDS`].
    pub names: usize,
}

/// Words of a body from its file to its first line: these, and its two labels.
pub(super) const NAME_WORDS: usize = 4;

impl Layout {
    pub fn new(offsets: &Offsets) -> Layout {
        let words = [offsets.frame_position, offsets.frame_code, offsets.frame_environment];
        let lo = words.iter().min().copied().unwrap_or_default();
        let size = words.iter().max().map_or(0, |last| last + 8 - lo);
        let place = |at: u32| (at - lo) as usize;
        let body = size as usize;
        let method = body + 8;
        let object = method + 24;
        let behind = |pointer: usize, lo: i32, size: u8| Behind {
            pointer: pointer as u8,
            block: Block { lo, size },
        };
        let [position, code, environment] = words.map(place);
        Layout {
            block: Block { lo: lo as i32, size: size as u8 },
            behind: vec![
                behind(code, offsets.code_body as i32, 8),
                behind(environment, -16, 24),
                behind(method, 0, 24),
                behind(body, offsets.body_path as i32, 8 * NAME_WORDS as u8),
            ],
            position,
            code,
            environment,
            body,
            method,
            outer: method + 8,
            flags: method + 16,
            object,
            class: object + offsets.method_class as usize,
            definition: object + offsets.method_definition as usize,
            names: object + 24,
        }
    }
}

impl Offsets {
    /// Those of a minor version of Ruby 3; `None` for versions without a table.
    pub fn for_minor(minor: u8) -> Option<&'static Offsets> {
        TABLE.iter().find(|offsets| offsets.minor == minor)
    }

    /// Tag: the address at which its function goes on.
    pub(super) fn tag_resumption(&self) -> u32 {
        // The second word of the buffer (GCC's `expand_builtin_setjmp_setup`).
        self.tag_buffer + 8
    }

    /// Tag: that around it. The buffer of `__builtin_setjmp` has five words.
    pub(super) fn tag_previous(&self) -> u32 {
        self.tag_buffer + 40
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_version_has_a_table() {
        let minors: Vec<u8> = TABLE.iter().map(|offsets| offsets.minor).collect();
        assert_eq!(minors, [0, 1, 2, 3]);
        assert!(Offsets::for_minor(4).is_none());
    }

    #[test]
    fn places_in_a_copy_follow_each_other() {
        for offsets in &TABLE {
            let layout = Layout::new(offsets);
            let words = [layout.position, layout.code, layout.environment, layout.body];
            assert_eq!(words, [0, 16, 32, 40]);
            let words = [layout.method, layout.outer, layout.flags, layout.object];
            assert_eq!(words, [48, 56, 64, 72]);
            assert_eq!([layout.class, layout.definition, layout.names], [80, 88, 96]);
            let first = offsets.body_path;
            let names = [offsets.body_base_label, offsets.body_label, offsets.body_first_line];
            assert_eq!(names.map(|at| at - first), [8, 16, 24]);
        }
    }
}
