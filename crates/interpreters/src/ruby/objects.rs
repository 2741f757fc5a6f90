//! Ruby's objects in the memory of a process: strings, arrays, classes and IDs.

use super::Ruby;
use super::offsets::ClassNames;
use crate::memory::{Memory, ReadError};

/// Bits of an object's first word with its type (`RUBY_T_MASK`).
const TYPE: u64 = 0x1f;
const TYPE_CLASS: u64 = 2;
const TYPE_MODULE: u64 = 3;
const TYPE_STRING: u64 = 5;
const TYPE_ARRAY: u64 = 7;
const TYPE_IMEMO: u64 = 0x1a;
const TYPE_INCLUDED: u64 = 0x1c;

/// The first of the bits whose meaning depends on the type (`FL_USHIFT`).
const USER: u32 = 12;

/// Longest name of a class or method, in bytes.
const MAX_NAME: usize = 512;
/// Most variables of a class that are searched for its name.
const MAX_VARIABLES: u64 = 256;
/// IDs in one of the arrays of names (`ID_ENTRY_UNIT`), each with two values (`ID_ENTRY_SIZE`).
const NAMES_IN_ARRAY: u64 = 512;

/// The reason why an object could not be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum No {
    Memory(ReadError),
    /// What is there is another object, or none.
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

/// Internal objects (`enum imemo_type`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ImemoKind {
    Reference,
    Variables,
    Method,
    Code,
}

/// The kind of an internal object, by its first word; `None` for those that are not used here.
pub(super) fn imemo_kind(flags: u64) -> Option<ImemoKind> {
    match (flags & TYPE, (flags >> USER) & 15) {
        (TYPE_IMEMO, 1) => Some(ImemoKind::Reference),
        (TYPE_IMEMO, 2) => Some(ImemoKind::Variables),
        (TYPE_IMEMO, 6) => Some(ImemoKind::Method),
        (TYPE_IMEMO, 7) => Some(ImemoKind::Code),
        _ => None,
    }
}

pub(super) fn at(address: u64, offset: u32) -> u64 {
    address.wrapping_add(offset.into())
}

/// The text of a string of at most `most` bytes, and whether it was cut.
pub(super) fn string(
    ruby: &Ruby,
    object: u64,
    most: usize,
    memory: &dyn Memory,
) -> Result<(String, bool), No> {
    let flags = memory.word(object)?;
    if flags & TYPE != TYPE_STRING {
        return Err(No::Other);
    }
    let is_outside = flags & (1 << (USER + 1)) != 0;
    // `struct RString`: from 3.2 on, all have a length in front of their bytes.
    let has_length = is_outside || ruby.offsets.minor >= 2;
    let length = if has_length { memory.word(at(object, 16))? } else { (flags >> (USER + 2)) & 31 };
    let start = match (is_outside, has_length) {
        (true, _) => memory.word(at(object, 24))?,
        (false, true) => at(object, 24),
        (false, false) => at(object, 16),
    };
    let kept = usize::try_from(length).unwrap_or(usize::MAX).min(most);
    let mut bytes = vec![0; kept];
    memory.read(start, &mut bytes)?;
    // Neither names nor files contain it; memory that is no text does.
    if bytes.contains(&0) {
        return Err(No::Other);
    }
    Ok((text(&bytes, length > kept as u64), length > kept as u64))
}

/// Text of bytes, of which the last character may be cut.
fn text(bytes: &[u8], is_cut: bool) -> String {
    let whole = match std::str::from_utf8(bytes) {
        Err(error) if is_cut && error.error_len().is_none() => &bytes[..error.valid_up_to()],
        _ => bytes,
    };
    String::from_utf8_lossy(whole).into_owned()
}

/// An item of an array.
pub(super) fn item(ruby: &Ruby, array: u64, index: u64, memory: &dyn Memory) -> Result<u64, No> {
    let flags = memory.word(array)?;
    if flags & TYPE != TYPE_ARRAY {
        return Err(No::Other);
    }
    // `struct RArray`: few items lie in the object itself; their number has more bits from 3.2 on.
    let is_inside = flags & (1 << (USER + 1)) != 0;
    let mask = if ruby.offsets.minor >= 2 { 127 } else { 3 };
    let (length, start) = if is_inside {
        ((flags >> (USER + 3)) & mask, at(array, 16))
    } else {
        (memory.word(at(array, 16))?, memory.word(at(array, 32))?)
    };
    if index >= length {
        return Err(No::Other);
    }
    Ok(memory.word(start.wrapping_add(index.wrapping_mul(8)))?)
}

/// The name of an ID.
pub(super) fn id_name(ruby: &Ruby, id: u64, memory: &dyn Memory) -> Result<String, No> {
    let (Some(offsets), Some(table)) = (ruby.offsets.symbols, ruby.symbols.names) else {
        return Err(No::Other);
    };
    // `rb_id_to_serial`; the lowest bits of others are their scope.
    let number = if id > offsets.last_operator { id >> 4 } else { id };
    let arrays = memory.word(at(table, offsets.names))?;
    let array = item(ruby, arrays, number / NAMES_IN_ARRAY, memory)?;
    let name = item(ruby, array, number % NAMES_IN_ARRAY * 2, memory)?;
    Ok(string(ruby, name, MAX_NAME, memory)?.0)
}

/// How the name of a class is found, and the object of a singleton class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ClassWords {
    /// IDs of its variables.
    Variables {
        /// The name.
        path: u64,
        /// The object.
        attached: u64,
    },
    /// Offsets of its members.
    Members {
        /// The name.
        path: u32,
        /// The object.
        attached: u32,
    },
}

impl ClassWords {
    fn path(self, ruby: &Ruby, class: u64, memory: &dyn Memory) -> Result<Option<u64>, No> {
        match self {
            ClassWords::Variables { path, .. } => variable(ruby, class, path, memory),
            ClassWords::Members { path, .. } => Ok(Some(memory.word(at(class, path))?)),
        }
    }

    fn attached(self, ruby: &Ruby, class: u64, memory: &dyn Memory) -> Result<Option<u64>, No> {
        match self {
            ClassWords::Variables { attached, .. } => variable(ruby, class, attached, memory),
            ClassWords::Members { attached, .. } => Ok(Some(memory.word(at(class, attached))?)),
        }
    }
}

/// Finds them in the class `Object`, whose name is known, and its singleton class, whose object it is.
/// `None` if these have other ones.
pub(super) fn class_words(ruby: &Ruby, memory: &dyn Memory) -> Option<ClassWords> {
    let class = memory.word(ruby.symbols.object_class).ok()?;
    let is_name = |value| string(ruby, value, MAX_NAME, memory).is_ok_and(|s| s.0 == "Object");
    let singleton = memory.word(at(class, 8)).ok()?;
    match ruby.offsets.class? {
        ClassNames::Variables { .. } => {
            let all = |class| variables(ruby, class, memory).ok();
            let path = all(class)?.into_iter().find(|(_, value)| is_name(*value))?.0;
            let attached = all(singleton)?.into_iter().find(|(_, value)| *value == class)?.0;
            Some(ClassWords::Variables { path, attached })
        }
        ClassNames::Members { path, attached } => {
            let words = ClassWords::Members { path, attached };
            let is_right = is_name(words.path(ruby, class, memory).ok()??)
                && words.attached(ruby, singleton, memory) == Ok(Some(class));
            is_right.then_some(words)
        }
    }
}

/// The variable of a class with an ID.
fn variable(ruby: &Ruby, class: u64, id: u64, memory: &dyn Memory) -> Result<Option<u64>, No> {
    let all = variables(ruby, class, memory)?;
    Ok(all.into_iter().find(|(key, _)| *key == id).map(|(_, value)| value))
}

/// The variables of a class: IDs and values (`struct st_table`, `st.h`).
fn variables(ruby: &Ruby, class: u64, memory: &dyn Memory) -> Result<Vec<(u64, u64)>, No> {
    let Some(ClassNames::Variables { extension, variables }) = ruby.offsets.class else {
        return Err(No::Other);
    };
    let extension = memory.word(at(class, extension))?;
    let table = memory.word(at(extension, variables))?;
    let [start, end, entries] = [32, 40, 48].map(|offset| memory.word(at(table, offset)));
    let (start, end, entries) = (start?, end?, entries?);
    let count = end.saturating_sub(start).min(MAX_VARIABLES);
    let mut bytes = vec![0; count as usize * 24];
    memory.read(entries.wrapping_add(start.wrapping_mul(24)), &mut bytes)?;
    // Hash, key and value; the hash of a deleted entry is -1.
    let entry = |at: usize| {
        let word = |n: usize| {
            bytes[24 * at + 8 * n..].first_chunk().map_or(0, |word| u64::from_le_bytes(*word))
        };
        (word(0) != u64::MAX).then(|| (word(1), word(2)))
    };
    Ok((0..count as usize).filter_map(entry).collect())
}

/// The name of the class of a method, with the mark before the method's name; `None` if it has no
/// name.
pub(super) fn class_name(
    ruby: &Ruby,
    class: u64,
    memory: &dyn Memory,
) -> Result<Option<String>, No> {
    let Some(words) = ruby.class_words else { return Ok(None) };
    let mut class = class;
    let mut flags = memory.word(class)?;
    if flags & TYPE == TYPE_INCLUDED {
        // An included module: its class is the module.
        class = memory.word(at(class, 8))?;
        flags = memory.word(class)?;
    }
    let is_singleton = flags & TYPE == TYPE_CLASS && flags & (1 << USER) != 0;
    if is_singleton {
        let Some(object) = words.attached(ruby, class, memory)? else { return Ok(None) };
        // An object, which is a number or has an address.
        if !object.is_multiple_of(8) || object <= 32 {
            return Ok(None);
        }
        class = object;
        flags = memory.word(class)?;
    }
    if ![TYPE_CLASS, TYPE_MODULE].contains(&(flags & TYPE)) {
        return Ok(None);
    }
    let path = words.path(ruby, class, memory)?;
    // A class without a name has `nil` or nothing.
    let Some(path) = path.filter(|path| path.is_multiple_of(8) && *path > 32) else {
        return Ok(None);
    };
    let (name, is_cut) = string(ruby, path, MAX_NAME, memory)?;
    let mark = if is_singleton { '.' } else { '#' };
    Ok((!is_cut).then(|| format!("{name}{mark}")))
}
