//! Names and lines of a function, read from the process.

use super::Php;
use super::frames::{Function, Kind, Origin, function_size};
use super::lines::InstructionLines;
use super::offsets::INSTRUCTION;
use crate::memory::{Memory, ReadError};
use crate::walk::{CODE_BLOCKS, Frame};
use crate::{Code, CodeKey, Lines, Name};

/// Longest name of a function or class that is kept, in bytes; longer ones are cut and end with `...`.
const MAX_NAME: usize = 512;

/// Longest name of a file, in bytes (`PATH_MAX`, and what `eval` adds).
const MAX_FILE: usize = 4096 + 64;

/// Most instructions of a function whose lines are read: 256 KiB.
const MAX_INSTRUCTIONS: u32 = 8192;

/// Most instructions that are copied at a sample.
const COPIED_INSTRUCTIONS: u32 = CODE_BLOCKS[4] as u32 / INSTRUCTION;

/// `IS_STRING`, in the lowest bits of what describes a string.
const STRING: u32 = 6;

/// What a statement includes (`ZEND_EVAL`, `ZEND_INCLUDE`, …), as PHP's backtraces name it.
const INCLUDES: [(u8, &str); 5] =
    [(EVAL, "eval"), (2, "include"), (4, "include_once"), (8, "require"), (16, "require_once")];
const EVAL: u8 = 1;

/// The reason why there is no name.
pub(super) enum No {
    Memory(ReadError),
    /// What is there is no function, or another one.
    Other,
}

impl From<ReadError> for No {
    fn from(error: ReadError) -> No {
        match error {
            // Memory that was freed may be unmapped.
            ReadError::Unmapped => No::Other,
            error => No::Memory(error),
        }
    }
}

/// Names a function. Its identity is compared before and after the reading: it may be freed and its
/// memory used again at any moment.
pub(super) fn name(php: &Php, key: &CodeKey, memory: &dyn Memory) -> Name {
    match read(php, key, memory) {
        Ok(code) => Name::Found(code),
        Err(No::Other) => Name::Gone,
        Err(No::Memory(error)) => Name::Unreadable(error),
    }
}

fn read(php: &Php, key: &CodeKey, memory: &dyn Memory) -> Result<Code, No> {
    let function = same_function(php, key, memory)?;
    let (mut name, origin) = match Origin::of_word(key.identity[0]) {
        Some(origin) => {
            let known = INCLUDES.iter().find(|(include, _)| *include == origin.include);
            (known.map_or("{main}", |(_, name)| *name).to_owned(), Some(origin))
        }
        None => (text(php, function.name, MAX_NAME, memory)?.name()?, None),
    };
    if function.class != 0 {
        let class = class(php, function.class, memory)?;
        name = format!("{class}::{name}");
    }
    let mut code = Code {
        function: name,
        file: String::new(),
        first_line: function.line,
        lines: Lines::Instructions(InstructionLines::default()),
    };
    if function.kind == Kind::User {
        let hash = memory.word(at(function.file, php.offsets.string_hash))?;
        if key.context != 0 && hash != key.context {
            return Err(No::Other);
        }
        let file = text(php, function.file, MAX_FILE, memory)?;
        code.file = if file.is_cut { String::new() } else { file.name()? };
        match origin {
            // The file's name is that of the place of the `eval`, whose code and name may be freed,
            // and used for those of another one.
            Some(origin) if !is_from(&code.file, origin) => return Err(No::Other),
            Some(Origin { include: EVAL, .. }) => {}
            _ => code.lines = Lines::Instructions(lines(php, &function, memory)?),
        }
    }
    same_function(php, key, memory)?;
    Ok(code)
}

/// True if a file can be what a statement includes: `eval`s are named by the place of the statement.
fn is_from(file: &str, origin: Origin) -> bool {
    let line = file.strip_suffix(") : eval()'d code").and_then(|file| file.rsplit_once('('));
    match (line, origin.include) {
        (Some((_, line)), EVAL) => line.parse() == Ok(origin.line),
        (line, include) => line.is_none() && include != EVAL,
    }
}

/// The function of a key, if it is still the same.
pub(super) fn same_function(php: &Php, key: &CodeKey, memory: &dyn Memory) -> Result<Function, No> {
    let mut bytes = vec![0; function_size(&php.offsets)];
    memory.read(key.object, &mut bytes)?;
    let function = Function::parse(&php.offsets, &bytes).ok_or(No::Other)?;
    let origin = Origin::of_word(key.identity[0]).unwrap_or(Origin { include: 0, line: 0 });
    if function.identity(|| origin) == key.identity { Ok(function) } else { Err(No::Other) }
}

/// The name of a class; that of an anonymous one without the place of its declaration, which follows
/// a NUL.
fn class(php: &Php, address: u64, memory: &dyn Memory) -> Result<String, No> {
    let offsets = &php.offsets;
    let mut kind = [0];
    memory.read(at(address, offsets.class_kind), &mut kind)?;
    // `ZEND_INTERNAL_CLASS`, `ZEND_USER_CLASS`.
    if ![1, 2].contains(&kind[0]) {
        return Err(No::Other);
    }
    let name = memory.word(at(address, offsets.class_name))?;
    let mut name = text(php, name, MAX_NAME, memory)?;
    if let Some(end) = name.bytes.iter().position(|byte| *byte == 0) {
        name = Text { bytes: name.bytes[..end].to_vec(), is_cut: false };
    }
    name.name()
}

/// The bytes of a string.
struct Text {
    bytes: Vec<u8>,
    is_cut: bool,
}

impl Text {
    /// As the name of something.
    fn name(self) -> Result<String, No> {
        // Neither names nor files are empty or contain it; memory that is no text does.
        if self.bytes.is_empty() || self.bytes.contains(&0) {
            return Err(No::Other);
        }
        let mut text = String::from_utf8_lossy(&self.bytes).into_owned();
        if self.is_cut {
            text.push_str("...");
        }
        Ok(text)
    }
}

/// The text of a string of at most `most` bytes.
fn text(php: &Php, string: u64, most: usize, memory: &dyn Memory) -> Result<Text, No> {
    let offsets = &php.offsets;
    let info = memory.half(at(string, offsets.string_info))?;
    let length = memory.word(at(string, offsets.string_length))?;
    if string == 0 || info & 15 != STRING {
        return Err(No::Other);
    }
    let kept = usize::try_from(length).unwrap_or(usize::MAX).min(most);
    let is_cut = length > kept as u64;
    // A NUL follows the text.
    let mut bytes = vec![0; kept + usize::from(!is_cut)];
    memory.read(at(string, offsets.string_data), &mut bytes)?;
    if !is_cut && bytes.pop() != Some(0) {
        return Err(No::Other);
    }
    Ok(Text { bytes, is_cut })
}

/// An instruction of a function.
#[derive(Clone, Copy, Debug)]
pub(super) struct Instruction {
    /// It is executed by code of the interpreter, not by machine code that was made for it.
    pub is_interpreted: bool,
    pub line: u32,
    /// What it does.
    pub kind: u8,
}

/// The instructions of a function; none if there are too many: then it has only the lines of calls.
pub(super) fn instructions(
    php: &Php,
    function: &Function,
    memory: &dyn Memory,
) -> Result<Vec<Instruction>, ReadError> {
    let size = if function.size <= MAX_INSTRUCTIONS { function.size } else { 0 };
    let size = if memory.is_copy() && size > COPIED_INSTRUCTIONS { 0 } else { size };
    let mut bytes = vec![0; (size * INSTRUCTION) as usize];
    memory.read(function.code, &mut bytes)?;
    let offsets = &php.offsets;
    let instruction = |bytes| {
        let copy = Frame { address: 0, bytes };
        Instruction {
            // Its first word is the address of the code that executes it.
            is_interpreted: php.symbols.image.contains(&copy.word(0)),
            line: copy.half(offsets.instruction_line as usize),
            kind: copy.byte(offsets.instruction_kind as usize),
        }
    };
    Ok(bytes.chunks_exact(INSTRUCTION as usize).map(instruction).collect())
}

/// What the last instruction of a function does.
pub(super) fn last_kind(
    php: &Php,
    function: &Function,
    memory: &dyn Memory,
) -> Result<u8, ReadError> {
    let distance = u64::from(function.size).wrapping_sub(1).wrapping_mul(INSTRUCTION.into());
    let mut kind = [0];
    let last = function.code.wrapping_add(distance);
    memory.read(at(last, php.offsets.instruction_kind), &mut kind)?;
    Ok(kind[0])
}

fn lines(php: &Php, function: &Function, memory: &dyn Memory) -> Result<InstructionLines, No> {
    let all = instructions(php, function, memory)?;
    let is_compiled = all.iter().any(|instruction| !instruction.is_interpreted);
    Ok(InstructionLines::new(
        all.iter().map(|instruction| (instruction.line, instruction.kind)),
        is_compiled,
    ))
}

fn at(address: u64, offset: u32) -> u64 {
    address.wrapping_add(offset.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_of_an_eval_is_that_of_its_statement() {
        let is_from = |file: &str, include, line| is_from(file, Origin { include, line });
        assert!(is_from("/a.php(12) : eval()'d code", EVAL, 12));
        assert!(!is_from("/a.php(12) : eval()'d code", EVAL, 13));
        assert!(!is_from("/a.php(12) : eval()'d code", 2, 12) && !is_from("/a.php", EVAL, 12));
        assert!(is_from("/a.php", 2, 12) && is_from("/a.php", 0, 0));
        assert!(is_from("/a.php(3) : eval()'d code(4) : eval()'d code", EVAL, 4));
    }
}
