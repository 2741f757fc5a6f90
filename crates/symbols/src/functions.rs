//! From a function's name to its offset in a file.

use std::borrow::Cow;
use std::fs::File;
use std::path::Path;

use object::{Object, ObjectSection, ObjectSymbol, SectionKind, SymbolFlags, elf};

use super::headers::Headers;
use super::source::{Access, find};
use super::{SymbolOptions, demangle};
use profile::Cause;
use sys::catch_panic;
use sys::elf::NameBudget;
use sys::mmap;
use sys::suggest;
use sys::{FileAddress, FileOffset};

/// Most names that are suggested or listed.
const SHOWN: usize = 5;

/// A function of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FunctionRange {
    /// Name in the symbol table.
    pub symbol: String,
    /// Position of its first byte in the file.
    pub offset: FileOffset,
    /// Size in bytes; 0 if unknown.
    pub size: u64,
}

/// Error of a search for a function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoFunction {
    /// The file cannot be read, or has no symbols at all.
    File(String),
    /// No function has this name; these are similar.
    Unknown(Vec<String>),
    /// Several functions have this name; these are their full names.
    Ambiguous(Vec<String>),
    /// The dynamic linker calls it once to choose an implementation (an ifunc).
    Indirect,
}

/// A function symbol.
struct FunctionSymbol {
    name: String,
    address: FileAddress,
    size: u64,
    indirect: bool,
}

/// Functions with a name in the binary at `path` or its debug file: all addresses of a symbol name
/// (versions, local functions of several sources), or the one function with this demangled name,
/// with its parameters or without.
///
/// # Errors
///
/// There is none, or the name is ambiguous.
pub fn functions(path: &Path, name: &str) -> Result<Vec<FunctionRange>, NoFunction> {
    let found = find(&path.to_string_lossy(), "", Access::default(), &SymbolOptions::default())
        .map_err(|why| NoFunction::File(why.to_string()))?;
    let mut symbols = Vec::new();
    for layer in &found.layers {
        // A damaged table that makes its parser panic must not end prof.
        let read = catch_panic(|| read_symbols(&layer.file)).flatten();
        symbols.extend(read.unwrap_or_default());
    }
    if symbols.is_empty() {
        return Err(NoFunction::File(Cause::Stripped.to_string()));
    }
    let chosen = choose(&symbols, name)?;
    let mut functions: Vec<FunctionRange> = Vec::new();
    for symbol in chosen {
        if symbol.indirect {
            return Err(NoFunction::Indirect);
        }
        let Some(offset) = offset_of(&found.headers, symbol.address) else { continue };
        if functions.iter().all(|f| f.offset != offset) {
            functions.push(FunctionRange {
                symbol: symbol.name.clone(),
                offset,
                size: symbol.size,
            });
        }
    }
    if functions.is_empty() { Err(NoFunction::Unknown(Vec::new())) } else { Ok(functions) }
}

/// Offset in the file of the byte at an address.
pub fn offset_of(headers: &Headers, FileAddress(address): FileAddress) -> Option<FileOffset> {
    let inside = |s: &&super::headers::LoadSegment| {
        address.checked_sub(s.address).is_some_and(|into| into < s.size)
    };
    let segment = headers.segments.iter().find(inside)?;
    segment.offset.checked_add(address - segment.address).map(FileOffset)
}

fn choose<'a>(
    symbols: &'a [FunctionSymbol],
    name: &str,
) -> Result<Vec<&'a FunctionSymbol>, NoFunction> {
    let bare = |symbol: &'a FunctionSymbol| symbol.name.split('@').next().unwrap_or_default();
    let same: Vec<&FunctionSymbol> = symbols
        .iter()
        .filter(|s| bare(s) == name || s.name == name || s.name.replacen("@@", "@", 1) == name)
        .collect();
    if !same.is_empty() {
        return Ok(same);
    }
    let readable: Vec<&FunctionSymbol> = symbols
        .iter()
        .filter(|s| demangle::is_mangled(&s.name))
        .filter(|s| is_readable_name(&s.name, name))
        .collect();
    let mut full: Vec<String> = readable.iter().map(|s| full_name(&s.name)).collect();
    full.sort();
    full.dedup();
    match full.len() {
        0 => Err(NoFunction::Unknown(similar(symbols, name))),
        1 => Ok(readable),
        // Constructors of one class share a demangled name and mostly are one function.
        _ if readable.iter().all(|s| s.address == readable[0].address) => Ok(readable),
        _ => {
            full.truncate(SHOWN);
            Err(NoFunction::Ambiguous(full))
        }
    }
}

fn is_readable_name(symbol: &str, name: &str) -> bool {
    // Demangling all symbols of a large program takes a second: a part of the name excludes most.
    let last = name.split('(').next().unwrap_or_default().rsplit("::").next().unwrap_or_default();
    let word: String = last.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
    symbol.contains(&word)
        && (demangle::demangle(symbol).as_deref() == Some(name) || full_name(symbol) == name)
}

fn full_name(symbol: &str) -> String {
    demangle::full(symbol).unwrap_or_else(|| symbol.to_owned())
}

/// Names that are similar to `name`.
fn similar(symbols: &[FunctionSymbol], name: &str) -> Vec<String> {
    let readable: Vec<_> = symbols
        .iter()
        .map(|s| demangle::demangle(&s.name).map_or(Cow::Borrowed(s.name.as_str()), Cow::Owned))
        .collect();
    let names = readable.iter().filter_map(|name| name.split('@').next());
    suggest::similar(name, names, SHOWN).into_iter().map(str::to_owned).collect()
}

fn read_symbols(file: &File) -> Option<Vec<FunctionSymbol>> {
    let map = mmap::map(file).ok()?;
    let file = object::File::parse(&*map).ok()?;
    let mut budget = NameBudget::of(&map);
    let mut symbols = Vec::new();
    for symbol in file.symbols().chain(file.dynamic_symbols()) {
        let SymbolFlags::Elf { st_info, .. } = symbol.flags() else { continue };
        let Some(name) = budget.found(symbol.name_bytes()) else { break };
        let Ok(name) = std::str::from_utf8(name) else { continue };
        let kind = st_info.st_type();
        // Hand-written assembly may omit the type.
        let in_code = || {
            let section = symbol.section_index().and_then(|i| file.section_by_index(i).ok());
            section.is_some_and(|s| s.kind() == SectionKind::Text)
        };
        let is_code = kind == elf::STT_FUNC
            || kind == elf::STT_GNU_IFUNC
            || kind == elf::STT_NOTYPE && in_code();
        if is_code && !symbol.is_undefined() && symbol.address() > 0 && !name.is_empty() {
            symbols.push(FunctionSymbol {
                name: name.to_owned(),
                address: FileAddress(symbol.address()),
                size: symbol.size(),
                indirect: kind == elf::STT_GNU_IFUNC,
            });
        }
    }
    Some(symbols)
}
