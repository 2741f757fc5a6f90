//! Recognizes CPython by exported symbols of a file that a process has mapped: an executable or
//! `libpython`, also a stripped one.

use std::collections::{HashMap, HashSet};

use super::debug_offsets::DebugOffsets;
use super::{Cpython, Offsets, Symbols, check, runs};
use crate::candidate::Kind;
use crate::glibc::ThreadLayout;
use crate::images::Symbol;
use crate::{LoadedImage, Memory, Process, Refusal};

const RUNTIME: &str = "_PyRuntime";
const CODE_TYPE: &str = "PyCode_Type";
const STR_TYPE: &str = "PyUnicode_Type";
pub(crate) const EVALUATION: &str = "_PyEval_EvalFrameDefault";
/// The version as a number (3.11 and later).
const VERSION: &str = "Py_Version";

/// Functions that a minor version of Python 3 has added, the latest first.
const ADDED: [(&str, u8); 3] =
    [("Py_NewRef", 10), ("PyFrame_GetCode", 9), ("PyCode_NewWithPosOnlyArgs", 8)];

/// CPython among the files of a process.
pub(crate) struct Found {
    minor: u8,
    symbols: Symbols,
    threads: Option<ThreadLayout>,
    /// Thread states with frames that were right in one of the tries.
    right: HashSet<u64>,
}

impl Kind for Found {
    type Checked = Cpython;

    fn find(process: &Process) -> Result<Option<Found>, Refusal> {
        let names = [RUNTIME, CODE_TYPE, STR_TYPE, EVALUATION, VERSION];
        let names = [&names[..], &ADDED.map(|(name, _)| name)].concat();
        let all: Vec<_> = process.images.iter().map(|image| image.symbols(&names)).collect();
        let Some(own) = all.iter().position(|symbols| symbols.contains_key(EVALUATION)) else {
            return Ok(None);
        };
        // An executable that is not position-independent may have the library's data (copy relocations).
        let data = |name| {
            let copied = |symbols: &&HashMap<&str, Symbol>| !symbols.contains_key(EVALUATION);
            let mut copies = all.iter().filter(copied);
            copies.find_map(|symbols| symbols.get(name)).or(all[own].get(name)).map(|p| p.address)
        };
        let (Some(runtime), Some(code_type), Some(str_type)) =
            (data(RUNTIME), data(CODE_TYPE), data(STR_TYPE))
        else {
            // 3.6 and earlier have no `_PyRuntime`.
            return Err(Refusal::Version("CPython 3.6 or earlier".to_owned()));
        };
        let image = &process.images[own];
        let minor = minor_version(image, &all[own])?;
        let evaluation = image.code(EVALUATION, all[own][EVALUATION]);
        let code = evaluation.first().and_then(|function| image.bytes(function.start));
        let prologue = runs::prologue(code.unwrap_or_default(), evaluation.first());
        let image = image.extent();
        let symbols = Symbols { runtime, code_type, str_type, evaluation, prologue, image };
        let threads = ThreadLayout::find(process.images);
        Ok(Some(Found { minor, symbols, threads, right: HashSet::new() }))
    }

    fn check(&mut self, threads: &[i32], memory: &dyn Memory) -> Result<Cpython, Refusal> {
        let offsets = offsets(self.minor, self.symbols.runtime, memory)?;
        let cpython = Cpython::new(offsets, self.symbols.clone(), self.threads, memory)?;
        check::try_once(&cpython, threads, memory, &mut self.right)?;
        Ok(cpython)
    }
}

/// CPython in a process, if there is one: its check is repeated, with pauses.
///
/// # Errors
///
/// There is CPython of a version or kind that is not supported, it runs no code yet, or its
/// structures are not as expected.
#[cfg(any(test, feature = "testing"))]
pub fn detect(process: &Process) -> Result<Option<Cpython>, Refusal> {
    crate::candidate::detect::<Found>(process)
}

/// The minor version, of those that have a table.
fn minor_version(image: &LoadedImage, symbols: &HashMap<&str, Symbol>) -> Result<u8, Refusal> {
    let refused = |version: &str| Err(Refusal::Version(format!("CPython {version}")));
    let minor = match symbols.get(VERSION).and_then(|symbol| image.constant(symbol.address)) {
        Some(bytes) => {
            // `PY_VERSION_HEX`.
            let [_, _, minor, major] = u32::to_le_bytes(u32::from_le_bytes(bytes));
            if major != 3 {
                return refused(&format!("{major}.{minor}"));
            }
            minor
        }
        None => match ADDED.iter().find(|(name, _)| symbols.contains_key(name)) {
            Some((_, minor)) => *minor,
            None => return refused("3.7"),
        },
    };
    match Offsets::for_minor(minor) {
        Some(_) => Ok(minor),
        None => refused(&format!("3.{minor}")),
    }
}

/// The offsets of a version: of its table, or what the process itself describes.
pub(super) fn offsets(minor: u8, runtime: u64, memory: &dyn Memory) -> Result<Offsets, Refusal> {
    let name = format!("CPython 3.{minor}");
    let Some(table) = Offsets::for_minor(minor) else { return Err(Refusal::Version(name)) };
    if minor < 13 {
        return Ok(table.clone());
    }
    let Some(described) = DebugOffsets::read(runtime, memory)? else {
        return Err(Refusal::Layout("its own description of its structures is missing"));
    };
    if described.is_free_threaded() {
        return Err(Refusal::FreeThreaded(name));
    }
    if described.version() != (3, minor) {
        return Err(Refusal::Layout("its own description is of another version"));
    }
    let applied = described.applied_to(table);
    applied.ok_or(Refusal::Layout("its own description is not that of its version"))
}
