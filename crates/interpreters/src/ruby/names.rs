//! Names and lines of methods and blocks, read from the process.

use super::Ruby;
use super::frames::mix;
use super::objects::{ImemoKind, No, at, class_name, id_name, imemo_kind, item, string};
use super::offsets::NAME_WORDS;
use crate::lines::IndexedLines;
use crate::memory::Memory;
use crate::{Code, CodeKey, Lines, Name};

/// Longest name of a function that is kept, in bytes; longer ones are cut and end with `...`.
pub(super) const MAX_FUNCTION: usize = 512;
/// Longest name of a file, in bytes (`PATH_MAX`).
const MAX_FILE: usize = 4096;
/// Most lines of an instruction sequence.
const MAX_LINES: usize = 16 << 10;
/// Most words of an instruction sequence.
const MAX_INSTRUCTIONS: u32 = 1 << 18;

/// Kinds of method definitions (`rb_method_type_t`), whose bits are the lowest of a definition.
const DEFINED_IN_RUBY: u64 = 0;
const DEFINED_IN_C: u64 = 1;

/// Names code. Its identity is compared before and after the reading: it may be freed and its memory
/// used again at any moment.
pub(super) fn name(ruby: &Ruby, key: &CodeKey, memory: &dyn Memory) -> Name {
    let is_c = key.identity[0] == 0;
    let read = if is_c { c_function(ruby, key, memory) } else { ruby_code(ruby, key, memory) };
    match read {
        Ok(code) => Name::Found(code),
        Err(No::Other) => Name::Gone,
        Err(No::Memory(error)) => Name::Unreadable(error),
    }
}

fn c_function(ruby: &Ruby, key: &CodeKey, memory: &dyn Memory) -> Result<Code, No> {
    let [_, _, class, definition] = key.identity;
    let method = Method { entry: key.object, class, definition };
    check_method(ruby, method, memory)?;
    if memory.word(definition)? & 15 != DEFINED_IN_C {
        return Err(No::Other);
    }
    let id = memory.word(at(definition, ruby.offsets.definition_name))?;
    let name = id_name(ruby, id, memory)?;
    let class = class_name(ruby, class, memory)?.unwrap_or_default();
    check_method(ruby, method, memory)?;
    if name.is_empty() {
        return Err(No::Other);
    }
    let lines = Lines::Indexed(IndexedLines::default());
    Ok(Code { function: format!("{class}{name}"), file: String::new(), first_line: 0, lines })
}

fn ruby_code(ruby: &Ruby, key: &CodeKey, memory: &dyn Memory) -> Result<Code, No> {
    let offsets = &ruby.offsets;
    check_code(ruby, key, memory)?;
    let body = key.identity[0];
    let word = |offset: u32| memory.word(at(body, offset));
    let lines = lines(ruby, body, memory)?;
    if !lines.contains(key.position) {
        return Err(No::Other);
    }
    let (label, is_cut) = string(ruby, word(offsets.body_label)?, MAX_FUNCTION, memory)?;
    let (base, _) = string(ruby, word(offsets.body_base_label)?, MAX_FUNCTION, memory)?;
    if label.is_empty() {
        return Err(No::Other);
    }
    let class = class_of(ruby, key, memory)?;
    // `block in ` and others before the name of the method.
    let mut function = match label.strip_suffix(&base) {
        Some(prefix) if !is_cut => format!("{prefix}{class}{base}"),
        _ => label,
    };
    if is_cut {
        function.push_str("...");
    }
    let file = path(ruby, word(offsets.body_path)?, memory)?;
    let line = word(offsets.body_first_line)?;
    let line = if offsets.is_first_line_tagged { line >> 1 } else { line };
    check_code(ruby, key, memory)?;
    Ok(Code { function, file, first_line: line as u32, lines: Lines::Indexed(lines) })
}

/// The path of a file: a string, or an array of the path and the absolute one.
fn path(ruby: &Ruby, object: u64, memory: &dyn Memory) -> Result<String, No> {
    let found = match item(ruby, object, 0, memory) {
        Ok(path) => string(ruby, path, MAX_FILE, memory)?,
        Err(No::Other) => string(ruby, object, MAX_FILE, memory)?,
        Err(error) => return Err(error),
    };
    Ok(if found.1 { String::new() } else { found.0 })
}

/// The class of a method with the mark behind it; empty if it is unknown.
fn class_of(ruby: &Ruby, key: &CodeKey, memory: &dyn Memory) -> Result<String, No> {
    let [body, entry, words, _] = key.identity;
    let unknown = |error| match error {
        No::Other => Ok(String::new()),
        error => Err(error),
    };
    if entry == 0 {
        return Ok(String::new());
    }
    let read = || {
        let class = memory.word(at(entry, ruby.offsets.method_class))?;
        let definition = memory.word(at(entry, ruby.offsets.method_definition))?;
        // They may not have been copied.
        if ![mix(&[class, definition]), mix(&[0, 0])].contains(&words) {
            return Err(No::Other);
        }
        let method = Method { entry, class, definition };
        check_method(ruby, method, memory)?;
        let kind = memory.word(method.definition)? & 15;
        let code = memory.word(at(method.definition, ruby.offsets.definition_body))?;
        let own = memory.word(at(body, ruby.offsets.body_local))?;
        // Of methods that blocks define, Ruby itself names the block.
        if kind != DEFINED_IN_RUBY || code != own {
            return Ok(String::new());
        }
        let name = class_name(ruby, method.class, memory)?.unwrap_or_default();
        check_method(ruby, method, memory)?;
        Ok(name)
    };
    read().or_else(unknown)
}

/// A method entry and words of it.
#[derive(Clone, Copy)]
struct Method {
    entry: u64,
    class: u64,
    definition: u64,
}

fn check_method(ruby: &Ruby, method: Method, memory: &dyn Memory) -> Result<(), No> {
    let kind = imemo_kind(memory.word(method.entry)?);
    let word = |offset| memory.word(at(method.entry, offset));
    let is_same = kind == Some(ImemoKind::Method)
        && word(ruby.offsets.method_class)? == method.class
        && word(ruby.offsets.method_definition)? == method.definition;
    if is_same { Ok(()) } else { Err(No::Other) }
}

/// Checks that an instruction sequence is the one of a sample.
fn check_code(ruby: &Ruby, key: &CodeKey, memory: &dyn Memory) -> Result<(), No> {
    let kind = imemo_kind(memory.word(key.object)?);
    let body = memory.word(at(key.object, ruby.offsets.code_body))?;
    if kind != Some(ImemoKind::Code) || body != key.identity[0] {
        return Err(No::Other);
    }
    let mut bytes = [0; 8 * NAME_WORDS];
    memory.read(at(body, ruby.offsets.body_path), &mut bytes)?;
    let word = |word: &[u8]| word.first_chunk().map_or(0, |word| u64::from_le_bytes(*word));
    let names: Vec<u64> = bytes.chunks_exact(8).map(word).collect();
    if mix(&names) == key.identity[3] { Ok(()) } else { Err(No::Other) }
}

/// The lines of a body; none if there are too many.
fn lines(ruby: &Ruby, body: u64, memory: &dyn Memory) -> Result<IndexedLines, No> {
    let offsets = &ruby.offsets;
    let size = memory.half(at(body, offsets.body_size))?;
    let start = memory.word(at(body, offsets.body_instructions))?;
    let count = memory.half(at(body, offsets.body_line_count))? as usize;
    let mut found = IndexedLines { start: start as u32, size, ..IndexedLines::default() };
    if count > MAX_LINES || size > MAX_INSTRUCTIONS {
        return Ok(found);
    }
    let entry = offsets.line_size as usize;
    let mut bytes = vec![0; count * entry];
    memory.read(memory.word(at(body, offsets.body_lines))?, &mut bytes)?;
    let line = |entry: &[u8]| entry.first_chunk().map_or(0, |line| u32::from_le_bytes(*line));
    found.lines = bytes.chunks_exact(entry.max(4)).map(line).collect();
    // A single line has no index.
    if count > 1 {
        let mut index = vec![0; IndexedLines::index_size(size)];
        memory.read(memory.word(at(body, offsets.body_line_index))?, &mut index)?;
        found.index = index.into();
    }
    if !found.is_whole() {
        return Err(No::Other);
    }
    Ok(found)
}
