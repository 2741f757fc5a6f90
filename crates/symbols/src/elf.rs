//! Resolves functions, lines and inlined functions of addresses in ELF files through blazesym.

use std::borrow::Cow;
use std::cell::Cell;
use std::ffi::OsStr;
use std::fs::File;
use std::hash::{Hash, Hasher};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::rc::Rc;

use blazesym::symbolize::source::{Elf, Source};
use blazesym::symbolize::{CodeInfo, Input, Sym, Symbolized, Symbolizer};
use rustc_hash::{FxHashMap, FxHashSet};

use profile::{StrId, StringTable};
use sys::catch_panic;

use super::address_frames::{AddressFrames, SymbolFrame, placeholder};
use super::demangle::{self, Demangler};
use super::opener::Opener;
use super::plt::CodeSections;
use super::source::Layer;
use super::{SymbolOptions, aliases, diagnose_dwarf, go, split};
use profile::Cause;
use sys::mmap;

/// Stack size that [`resolve`] needs: debug information nests deeply, and so do its parsers.
pub const STACK: usize = 8 << 20;

/// Number of addresses that are resolved between two progress reports.
const BATCH: usize = 512;

/// Number of batches after which the file's pages are released: debug information is mostly read
/// once, and much of it only by read-ahead.
const RELEASE_EVERY: usize = 32;

/// Resolves `addresses` of a file (sorted for speed) in the files of `layers`.
///
/// `done` is called with the number of further addresses processed.
///
/// # Errors
///
/// None of the files could be read.
pub fn resolve(
    layers: &[Layer],
    addresses: &[u64],
    options: &SymbolOptions,
    opener: &dyn Opener,
    done: &dyn Fn(usize),
) -> Result<AddressFrames, Cause> {
    let reported = Cell::new(0);
    let report = |n: usize| {
        let n = n.min(addresses.len() - reported.get());
        reported.set(reported.get() + n);
        done(n);
    };
    let cut_before = mmap::cut_pages();
    let plain: Vec<Layer> =
        layers.iter().map(|l| Layer { debug_info: false, ..l.clone() }).collect();
    // Damaged debug information can make its parser panic; the symbol table may still be intact.
    let resolved = catch_panic(|| all_layers(layers, addresses, options, opener, &report))
        .or_else(|| {
            let resolved = catch_panic(|| all_layers(&plain, addresses, options, opener, &report))?;
            Some(
                resolved.map(|a| a.marked_incomplete(Cause::Damaged("it cannot be parsed".into()))),
            )
        })
        .unwrap_or_else(|| Err(Cause::Damaged("its symbols cannot be parsed".into())));
    report(addresses.len());
    // Names that come from zeros instead of the file would be wrong.
    if mmap::cut_pages() > cut_before { Err(Cause::Cut) } else { resolved }
}

fn all_layers(
    layers: &[Layer],
    addresses: &[u64],
    options: &SymbolOptions,
    opener: &dyn Opener,
    report: &dyn Fn(usize),
) -> Result<AddressFrames, Cause> {
    let mut resolver = ElfResolver::new(options, opener, addresses);
    let mut resolved = AddressFrames::default();
    let mut missing: Vec<usize> = (0..addresses.len()).collect();
    for layer in layers {
        // The file's symbol table may name addresses that its debug information lacks.
        let passes: &[bool] = if layer.debug_info { &[true, false] } else { &[false] };
        for &debug_info in passes {
            if missing.is_empty() && !resolved.is_empty() {
                break;
            }
            let requested: Vec<u64> = missing.iter().map(|&i| addresses[i]).collect();
            let found = resolver.resolve_in(layer, debug_info, &requested, report);
            resolved = resolved.filled(&missing, found, addresses.len());
            missing.retain(|&i| resolved.get(i).is_empty());
        }
    }
    for layer in layers {
        if missing.is_empty() {
            break;
        }
        let requested: Vec<u64> = missing.iter().map(|&i| addresses[i]).collect();
        if let Some(found) = go::resolve(&layer.file, &requested) {
            resolved = resolved.filled(&missing, found, addresses.len());
            missing.retain(|&i| resolved.get(i).is_empty());
        }
    }
    resolver.name_by_symbols(layers, addresses, &mut resolved);
    resolver.demangle(&mut resolved);
    let incomplete = resolver.incomplete.take();
    match resolver.error {
        Some(error) if missing.len() == addresses.len() => Err(Cause::Damaged(error)),
        Some(error) => Ok(resolved.marked_incomplete(Cause::Damaged(error))),
        None => Ok(match incomplete.or_else(|| flaw(layers, addresses, &resolved)) {
            Some(why) => resolved.marked_incomplete(why),
            None => resolved,
        }),
    }
}

/// Damage in the debug information of these layers, if lines are missing.
fn flaw(layers: &[Layer], addresses: &[u64], resolved: &AddressFrames) -> Option<Cause> {
    let has_line = |i| resolved.get(i).iter().any(|frame| frame.line > 0);
    let bare: Vec<u64> =
        (0..resolved.len()).filter(|&i| !has_line(i)).map(|i| addresses[i]).collect();
    let mut with_debug_info = layers.iter().filter(|layer| layer.debug_info);
    with_debug_info.find_map(|layer| diagnose_dwarf::damage(layer, &bare, addresses.len()))
}

/// A symbol that contains an address.
struct Symbol {
    start: u64,
    name: String,
}

/// True if debug information states where the function is.
fn has_source(frame: &SymbolFrame) -> bool {
    frame.file != StrId::EMPTY || frame.line > 0
}

struct ElfResolver<'a> {
    options: &'a SymbolOptions,
    opener: &'a dyn Opener,
    /// Symbolizer of symbol tables, with those parsed so far.
    plain: Option<Symbolizer>,
    error: Option<String>,
    /// Cause of incomplete input.
    incomplete: Option<Cause>,
    /// All addresses to resolve.
    addresses: &'a [u64],
    /// Code of the files that were used so far.
    code: Vec<(RawFd, Rc<CodeSections>)>,
}

impl<'a> ElfResolver<'a> {
    fn new(
        options: &'a SymbolOptions,
        opener: &'a dyn Opener,
        addresses: &'a [u64],
    ) -> ElfResolver<'a> {
        ElfResolver {
            options,
            opener,
            plain: None,
            error: None,
            incomplete: None,
            addresses,
            code: Vec::new(),
        }
    }

    fn symbolizer(&self) -> Symbolizer {
        Symbolizer::builder()
            .enable_auto_reload(false)
            .enable_inlined_fns(self.options.inlines)
            // Done here, once for each name instead of once for each frame; the mangled name is
            // needed too.
            .enable_demangling(false)
            // Links to other files are followed elsewhere.
            .set_debug_dirs(Some(&[] as &[&Path]))
            .build()
    }

    fn code(&mut self, file: &File) -> Rc<CodeSections> {
        let fd = file.as_raw_fd();
        if let Some((_, code)) = self.code.iter().find(|(other, _)| *other == fd) {
            return code.clone();
        }
        let code = Rc::new(CodeSections::read(file, self.addresses));
        self.code.push((fd, code.clone()));
        code
    }

    fn resolve_in(
        &mut self,
        layer: &Layer,
        debug_info: bool,
        addresses: &[u64],
        report: &dyn Fn(usize),
    ) -> AddressFrames {
        if debug_info && layer.split {
            return self.resolve_split(layer, addresses, report);
        }
        let source = source(layer, debug_info);
        let code = self.code(&layer.file);
        let mut resolved = AddressFrames::default();
        // Parsed debug information takes much memory, and is released at the end.
        let plain = self.plain.take().filter(|_| !debug_info);
        let symbolizer = plain.unwrap_or_else(|| self.symbolizer());
        let mut interner = Interner::default();
        for (n, batch) in addresses.chunks(BATCH).enumerate() {
            match symbolizer.symbolize(&source, Input::VirtOffset(batch)) {
                Ok(symbols) => {
                    if n % RELEASE_EVERY == RELEASE_EVERY - 1 {
                        forget(&symbols, &layer.file);
                    }
                    for (symbol, &address) in symbols.iter().zip(batch) {
                        let good = |s: &&Sym<'_>| may_name(s, address, &code, debug_info);
                        match (code.stub(address), symbol.as_sym().filter(good)) {
                            (Some(stub), _) => resolved.push_name(Some(stub)),
                            (None, Some(symbol)) => interner.push(&mut resolved, symbol),
                            (None, None) => resolved.push([]),
                        }
                    }
                }
                Err(error) => {
                    self.error.get_or_insert_with(|| format!("{error:#}"));
                    batch.iter().for_each(|_| resolved.push([]));
                }
            }
            report(batch.len());
        }
        if !debug_info {
            self.plain = Some(symbolizer);
        }
        resolved
    }

    fn resolve_split(
        &mut self,
        layer: &Layer,
        addresses: &[u64],
        report: &dyn Fn(usize),
    ) -> AddressFrames {
        let found = split::resolve(layer, addresses, self.options, self.opener, report);
        let found = found.inspect(|resolved| self.incomplete.clone_from(&resolved.incomplete));
        found.unwrap_or_else(|error| {
            self.error.get_or_insert(error);
            let mut none = AddressFrames::default();
            addresses.iter().for_each(|_| none.push([]));
            none
        })
    }

    /// Renames functions as the symbol tables of all layers have them.
    ///
    /// Debug information gives functions that are local to a C++ file only their last name
    /// (`helper`, `operator()`); the symbol table has the full one. And of several symbols at one
    /// address, each source of names prefers another ([`aliases`]).
    fn name_by_symbols(
        &mut self,
        layers: &[Layer],
        addresses: &[u64],
        resolved: &mut AddressFrames,
    ) {
        let mut left: Vec<usize> = (0..resolved.len())
            .filter(|&i| {
                let name = |f: &SymbolFrame| resolved.strings.get(f.system_name);
                let outermost = resolved.get(i).last();
                outermost.is_some_and(|f| !has_source(f) || !demangle::is_mangled(name(f)))
            })
            .collect();
        // The address, by index, and the symbol that contains it.
        let mut found: Vec<(usize, Symbol)> = Vec::new();
        for layer in layers {
            let requested: Vec<u64> = left.iter().map(|&i| addresses[i]).collect();
            let symbols = self.symbols_at(layer, &requested);
            let indexed = left.iter().copied().zip(symbols);
            found.extend(indexed.filter_map(|(i, symbol)| Some((i, symbol?))));
            let named: FxHashSet<usize> = found.iter().map(|(i, _)| *i).collect();
            left.retain(|i| !named.contains(i));
        }
        let at = aliases::at(layers, found.iter().map(|(_, symbol)| symbol.start));
        for (i, Symbol { start, name }) in found {
            let Some(frame) = resolved.get(i).last() else { continue };
            let (shown, aliases) = (resolved.strings.get(frame.system_name), at.get(&start));
            let best = aliases.and_then(|names| names.best());
            let chosen = match aliases {
                Some(names) if names.contains(shown) && has_source(frame) => {
                    names.public_form(shown)
                }
                Some(names) if names.contains(shown) => best,
                _ => [best, Some(&*name)].into_iter().flatten().find(|n| demangle::is_mangled(n)),
            };
            if let Some(chosen) = chosen.filter(|&chosen| chosen != shown) {
                resolved.rename_outermost(i, chosen);
            }
        }
    }

    /// The symbols of a layer's table that contain these addresses.
    fn symbols_at(&mut self, layer: &Layer, addresses: &[u64]) -> Vec<Option<Symbol>> {
        let source = source(layer, false);
        let code = self.code(&layer.file);
        let symbolizer = self.plain.take().unwrap_or_else(|| self.symbolizer());
        let mut found = Vec::with_capacity(addresses.len());
        for batch in addresses.chunks(BATCH) {
            match symbolizer.symbolize(&source, Input::VirtOffset(batch)) {
                Ok(symbols) => found.extend(symbols.iter().zip(batch).map(|(symbol, &address)| {
                    let good = |s: &&Sym<'_>| may_name(s, address, &code, false);
                    let symbol = symbol.as_sym().filter(good)?;
                    let (start, name) = (symbol.addr, symbol.name.clone().into_owned());
                    code.stub(address).is_none().then_some(Symbol { start, name })
                })),
                Err(_) => found.extend(batch.iter().map(|_| None)),
            }
        }
        self.plain = Some(symbolizer);
        found
    }

    fn demangle(&self, resolved: &mut AddressFrames) {
        if !self.options.demangle {
            return;
        }
        let mut demangler = Demangler::default();
        let AddressFrames { strings, frames, .. } = resolved;
        for frame in frames {
            frame.name = demangler.readable(strings, frame.system_name);
        }
    }
}

/// True if a symbol may name `address`.
///
/// A symbol of the symbol table without a size must not name the code of another section. A
/// function that debug information places in several ranges (the hot and cold parts of one
/// function) has neither an address (0) nor a size here, but covers `address`.
fn may_name(symbol: &Sym<'_>, address: u64, code: &CodeSections, debug_info: bool) -> bool {
    let in_ranges = || debug_info && symbol.addr == 0 && !code.is_at_zero(&symbol.name);
    let placed = symbol.size.is_some() || code.same_section(symbol.addr, address);
    !symbol.name.is_empty() && (placed || in_ranges())
}

/// Releases the memory of a file, which the symbolizer keeps mapped.
fn forget(symbols: &[Symbolized<'_>], file: &File) {
    let mapped = symbols.iter().find_map(|symbol| match symbol.as_sym()?.name {
        Cow::Borrowed(name) if !name.is_empty() => Some(name),
        _ => None,
    });
    if let (Some(name), Ok(meta)) = (mapped, file.metadata()) {
        mmap::forget_pages(name.as_bytes(), &meta);
    }
}

fn source(layer: &Layer, debug_info: bool) -> Source<'static> {
    // By descriptor: by name, blazesym would open files next to it without any check.
    let mut elf = Elf::new(layer.open_path());
    elf.debug_syms = debug_info;
    Source::Elf(elf)
}

/// A string at a fixed address while its symbolizer lives, compared by address.
#[derive(Clone, Copy)]
struct ByAddress<'s, T: ?Sized>(&'s T);

impl<T: AsRef<[u8]> + ?Sized> ByAddress<'_, T> {
    fn place(&self) -> (usize, usize) {
        let bytes = self.0.as_ref();
        (bytes.as_ptr().addr(), bytes.len())
    }
}

impl<T: AsRef<[u8]> + ?Sized> PartialEq for ByAddress<'_, T> {
    fn eq(&self, other: &Self) -> bool {
        self.place() == other.place()
    }
}

impl<T: AsRef<[u8]> + ?Sized> Eq for ByAddress<'_, T> {}

impl<T: AsRef<[u8]> + ?Sized> Hash for ByAddress<'_, T> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.place().hash(state);
    }
}

/// Interned strings of one symbolizer. Most frames share theirs with many others, and comparing
/// addresses is faster than hashing a long name.
#[derive(Default)]
struct Interner<'s> {
    names: FxHashMap<ByAddress<'s, str>, StrId>,
    files: FxHashMap<[ByAddress<'s, [u8]>; 2], StrId>,
    path: String,
    frames: Vec<SymbolFrame>,
}

impl<'s> Interner<'s> {
    /// blazesym lists the outermost function first, each with the position *in it*: where it calls
    /// the next one, and for the last one that of the address itself. pprof does the same,
    /// innermost first.
    fn push(&mut self, resolved: &mut AddressFrames, symbol: &Sym<'s>) {
        let AddressFrames { strings, .. } = resolved;
        let mut frames = std::mem::take(&mut self.frames);
        for inlined in symbol.inlined.iter().rev() {
            let name = self.name(strings, &inlined.name);
            frames.push(self.frame(strings, name, inlined.code_info.as_ref()));
        }
        let name = self.name(strings, &symbol.name);
        frames.push(self.frame(strings, name, symbol.code_info.as_deref()));
        resolved.push(frames.drain(..));
        self.frames = frames;
    }

    #[allow(clippy::ptr_arg)] // An owned string may be at the address of another one.
    fn name(&mut self, strings: &mut StringTable, name: &Cow<'s, str>) -> StrId {
        match *name {
            Cow::Borrowed(name) => {
                *self.names.entry(ByAddress(name)).or_insert_with(|| strings.intern(name))
            }
            Cow::Owned(ref name) => strings.intern(name),
        }
    }

    fn frame(
        &mut self,
        strings: &mut StringTable,
        name: StrId,
        code: Option<&CodeInfo<'s>>,
    ) -> SymbolFrame {
        let mut frame =
            SymbolFrame { name, system_name: name, file: StrId::EMPTY, line: 0, column: 0 };
        if let Some(code) = code {
            frame.file = self.file(strings, code);
            frame.line = code.line.unwrap_or(0);
            frame.column = code.column.unwrap_or(0).into();
        }
        frame
    }

    fn file(&mut self, strings: &mut StringTable, code: &CodeInfo<'s>) -> StrId {
        let dir = code.dir.as_deref().unwrap_or(Path::new(""));
        let file = &code.file;
        let key = match (&code.dir, &code.file) {
            (Some(Cow::Borrowed(dir)), Cow::Borrowed(file)) => {
                [ByAddress(dir.as_os_str().as_bytes()), ByAddress(file.as_bytes())]
            }
            _ => return join(strings, &mut self.path, dir, file),
        };
        let path = &mut self.path;
        *self.files.entry(key).or_insert_with(|| join(strings, path, dir, file))
    }
}

fn join(strings: &mut StringTable, path: &mut String, dir: &Path, file: &OsStr) -> StrId {
    path.clear();
    let file = file.to_string_lossy();
    if let Some(placeholder) = placeholder(&file) {
        return strings.intern(placeholder);
    }
    if !file.starts_with('/') {
        path.push_str(&dir.to_string_lossy());
        if !path.is_empty() && !path.ends_with('/') {
            path.push('/');
        }
    }
    path.push_str(&file);
    strings.intern(path)
}
