//! Asks blazesym for the functions, lines and inlined functions of addresses in ELF files.

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
use rustc_hash::FxHashMap;

use profile::{StrId, StringTable};
use sys::catch_panic;

use super::answers::{Answers, Frame};
use super::demangle::{self, Demangler};
use super::plt::Code;
use super::source::Layer;
use super::{Options, go, intact, split};
use profile::Cause;
use sys::mmap;

/// Addresses asked at a time: progress is told in between.
const BATCH: usize = 512;

/// Batches after which the pages of the file are given back: debug information is read mostly
/// once, and much of it only because it is near.
const FORGET: usize = 32;

/// Names of link-time `addresses` (sorted for speed) in the files of `layers`.
///
/// `done` is told how many addresses more were looked at.
///
/// # Errors
///
/// None of the files could be read.
pub fn resolve(
    layers: &[Layer],
    addresses: &[u64],
    options: &Options,
    done: &dyn Fn(usize),
) -> Result<Answers, Cause> {
    let told = Cell::new(0);
    let tell = |n: usize| {
        let n = n.min(addresses.len() - told.get());
        told.set(told.get() + n);
        done(n);
    };
    let cut_before = mmap::cut_pages();
    let plain: Vec<Layer> =
        layers.iter().map(|l| Layer { debug_info: false, ..l.clone() }).collect();
    // Damaged debug information can make its parser panic; the symbol table may still be good.
    let answers = catch_panic(|| all_layers(layers, addresses, options, &tell))
        .or_else(|| {
            let answers = catch_panic(|| all_layers(&plain, addresses, options, &tell))?;
            Some(answers.map(|a| a.doubted(Cause::Damaged("it cannot be parsed".into()))))
        })
        .unwrap_or_else(|| Err(Cause::Damaged("its symbols cannot be parsed".into())));
    tell(addresses.len());
    // Names that come from zeros instead of the file would be wrong.
    if mmap::cut_pages() > cut_before { Err(Cause::Cut) } else { answers }
}

fn all_layers(
    layers: &[Layer],
    addresses: &[u64],
    options: &Options,
    tell: &dyn Fn(usize),
) -> Result<Answers, Cause> {
    let mut asker = Asker::new(options, addresses);
    let mut answers = Answers::default();
    let mut missing: Vec<usize> = (0..addresses.len()).collect();
    for layer in layers {
        // What the debug information does not know, the same file's symbol table may.
        let passes: &[bool] = if layer.debug_info { &[true, false] } else { &[false] };
        for &debug_info in passes {
            if missing.is_empty() && !answers.is_empty() {
                break;
            }
            let asked: Vec<u64> = missing.iter().map(|&i| addresses[i]).collect();
            let found = asker.ask(layer, debug_info, &asked, tell);
            answers = answers.filled(&missing, found, addresses.len());
            missing.retain(|&i| answers.get(i).is_empty());
        }
    }
    for layer in layers {
        if missing.is_empty() {
            break;
        }
        let asked: Vec<u64> = missing.iter().map(|&i| addresses[i]).collect();
        if let Some(found) = go::resolve(&layer.file, &asked) {
            answers = answers.filled(&missing, found, addresses.len());
            missing.retain(|&i| answers.get(i).is_empty());
        }
    }
    asker.name_local_functions(layers, addresses, &mut answers);
    asker.demangle(&mut answers);
    let doubt = asker.doubt.take();
    match asker.error {
        Some(error) if missing.len() == addresses.len() => Err(Cause::Damaged(error)),
        Some(error) => Ok(answers.doubted(Cause::Damaged(error))),
        None => Ok(match doubt.or_else(|| flaw(layers, addresses, &answers)) {
            Some(why) => answers.doubted(why),
            None => answers,
        }),
    }
}

/// What is wrong with the debug information of these layers, when lines are missing.
fn flaw(layers: &[Layer], addresses: &[u64], answers: &Answers) -> Option<Cause> {
    let has_line = |i| answers.get(i).iter().any(|frame| frame.line > 0);
    let bare: Vec<u64> =
        (0..answers.len()).filter(|&i| !has_line(i)).map(|i| addresses[i]).collect();
    let mut with_debug_info = layers.iter().filter(|layer| layer.debug_info);
    with_debug_info.find_map(|layer| intact::flaw(layer, &bare, addresses.len()))
}

struct Asker<'a> {
    options: &'a Options,
    /// Has parsed the symbol tables that were asked so far.
    plain: Option<Symbolizer>,
    error: Option<String>,
    /// What else was not there.
    doubt: Option<Cause>,
    /// All that will be asked for.
    addresses: &'a [u64],
    /// Code of the files asked so far.
    code: Vec<(RawFd, Rc<Code>)>,
}

impl<'a> Asker<'a> {
    fn new(options: &'a Options, addresses: &'a [u64]) -> Asker<'a> {
        Asker { options, plain: None, error: None, doubt: None, addresses, code: Vec::new() }
    }

    fn symbolizer(&self) -> Symbolizer {
        Symbolizer::builder()
            .enable_auto_reload(false)
            .enable_inlined_fns(self.options.inlines)
            // Done here, once a name instead of once a frame; and the mangled name is wanted too.
            .enable_demangling(false)
            // Links to other files are followed elsewhere.
            .set_debug_dirs(Some(&[] as &[&Path]))
            .build()
    }

    fn code(&mut self, file: &File) -> Rc<Code> {
        let fd = file.as_raw_fd();
        if let Some((_, code)) = self.code.iter().find(|(known, _)| *known == fd) {
            return code.clone();
        }
        let code = Rc::new(Code::read(file, self.addresses));
        self.code.push((fd, code.clone()));
        code
    }

    fn ask(
        &mut self,
        layer: &Layer,
        debug_info: bool,
        addresses: &[u64],
        tell: &dyn Fn(usize),
    ) -> Answers {
        if debug_info && layer.split {
            return self.ask_split(layer, addresses, tell);
        }
        let source = source(layer, debug_info);
        let code = self.code(&layer.file);
        let mut answers = Answers::default();
        // What was parsed of debug information takes much memory, and is given back at the end.
        let plain = self.plain.take().filter(|_| !debug_info);
        let symbolizer = plain.unwrap_or_else(|| self.symbolizer());
        let mut known = Known::default();
        for (n, batch) in addresses.chunks(BATCH).enumerate() {
            match symbolizer.symbolize(&source, Input::VirtOffset(batch)) {
                Ok(symbols) => {
                    if n % FORGET == FORGET - 1 {
                        forget(&symbols, &layer.file);
                    }
                    for (symbol, &address) in symbols.iter().zip(batch) {
                        let good = |s: &&Sym<'_>| is_good(s, address, &code, debug_info);
                        match (code.stub(address), symbol.as_sym().filter(good)) {
                            (Some(stub), _) => answers.push_name(Some(stub)),
                            (None, Some(symbol)) => known.push(&mut answers, symbol),
                            (None, None) => answers.push([]),
                        }
                    }
                }
                Err(error) => {
                    self.error.get_or_insert_with(|| format!("{error:#}"));
                    batch.iter().for_each(|_| answers.push([]));
                }
            }
            tell(batch.len());
        }
        if !debug_info {
            self.plain = Some(symbolizer);
        }
        answers
    }

    fn ask_split(&mut self, layer: &Layer, addresses: &[u64], tell: &dyn Fn(usize)) -> Answers {
        let found = split::resolve(layer, addresses, self.options, tell);
        let found = found.inspect(|answers| self.doubt.clone_from(&answers.doubt));
        found.unwrap_or_else(|error| {
            self.error.get_or_insert(error);
            let mut none = Answers::default();
            addresses.iter().for_each(|_| none.push([]));
            none
        })
    }

    /// Debug information gives functions that are local to a C++ file only their last name
    /// (`helper`, `operator()`); the symbol table has the full one.
    fn name_local_functions(&mut self, layers: &[Layer], addresses: &[u64], answers: &mut Answers) {
        let bare: Vec<usize> = (0..answers.len())
            .filter(|&i| {
                let outermost = answers.get(i).last();
                outermost.is_some_and(|f| !demangle::is_mangled(answers.strings.get(f.system_name)))
            })
            .collect();
        let asked: Vec<u64> = bare.iter().map(|&i| addresses[i]).collect();
        for layer in layers {
            let symbols = self.ask(layer, false, &asked, &|_| {});
            for (n, &i) in bare.iter().enumerate() {
                let Some(symbol) = symbols.get(n).first() else { continue };
                let full = symbols.strings.get(symbol.name);
                if demangle::is_mangled(full) {
                    answers.rename_outermost(i, full);
                }
            }
        }
    }

    fn demangle(&self, answers: &mut Answers) {
        if !self.options.demangle {
            return;
        }
        let mut demangler = Demangler::default();
        let Answers { strings, frames, .. } = answers;
        for frame in frames {
            frame.name = demangler.readable(strings, frame.system_name);
        }
    }
}

/// Whether what was found may name `address`.
///
/// A symbol of the symbol table without a size must not name the code of another section. A
/// function that debug information places in several ranges (the hot and cold parts of one function)
/// has neither an address (0) nor a size here, and covers `address` nevertheless.
fn is_good(symbol: &Sym<'_>, address: u64, code: &Code, debug_info: bool) -> bool {
    let in_ranges = || debug_info && symbol.addr == 0 && !code.is_at_zero(&symbol.name);
    let placed = symbol.size.is_some() || code.same_section(symbol.addr, address);
    !symbol.name.is_empty() && (placed || in_ranges())
}

/// Gives back the memory of a file, which the symbolizer keeps mapped.
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
    // By no name of its own: blazesym would open files that lie beside it, whatever they are.
    let mut elf = Elf::new(layer.open_path());
    elf.debug_syms = debug_info;
    Source::Elf(elf)
}

/// A string that stays where it is while its symbolizer lives: equal when at the same place.
#[derive(Clone, Copy)]
struct At<'s, T: ?Sized>(&'s T);

impl<T: AsRef<[u8]> + ?Sized> At<'_, T> {
    fn place(&self) -> (usize, usize) {
        let bytes = self.0.as_ref();
        (bytes.as_ptr().addr(), bytes.len())
    }
}

impl<T: AsRef<[u8]> + ?Sized> PartialEq for At<'_, T> {
    fn eq(&self, other: &Self) -> bool {
        self.place() == other.place()
    }
}

impl<T: AsRef<[u8]> + ?Sized> Eq for At<'_, T> {}

impl<T: AsRef<[u8]> + ?Sized> Hash for At<'_, T> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.place().hash(state);
    }
}

/// Strings of one symbolizer that were interned before. Most frames share theirs with many
/// others, and to compare where they stand is faster than to hash a long name.
#[derive(Default)]
struct Known<'s> {
    names: FxHashMap<At<'s, str>, StrId>,
    files: FxHashMap<[At<'s, [u8]>; 2], StrId>,
    path: String,
    frames: Vec<Frame>,
}

impl<'s> Known<'s> {
    /// blazesym has the outermost function first, each with the position *in it*: where it calls
    /// the next one, and for the last one that of the address itself. So has pprof, innermost
    /// first.
    fn push(&mut self, answers: &mut Answers, symbol: &Sym<'s>) {
        let Answers { strings, .. } = answers;
        let mut frames = std::mem::take(&mut self.frames);
        for inlined in symbol.inlined.iter().rev() {
            let name = self.name(strings, &inlined.name);
            frames.push(self.frame(strings, name, inlined.code_info.as_ref()));
        }
        let name = self.name(strings, &symbol.name);
        frames.push(self.frame(strings, name, symbol.code_info.as_deref()));
        answers.push(frames.drain(..));
        self.frames = frames;
    }

    #[allow(clippy::ptr_arg)] // What is owned may stand where another string stood.
    fn name(&mut self, strings: &mut StringTable, name: &Cow<'s, str>) -> StrId {
        match *name {
            Cow::Borrowed(name) => {
                *self.names.entry(At(name)).or_insert_with(|| strings.intern(name))
            }
            Cow::Owned(ref name) => strings.intern(name),
        }
    }

    fn frame(
        &mut self,
        strings: &mut StringTable,
        name: StrId,
        code: Option<&CodeInfo<'s>>,
    ) -> Frame {
        let mut frame = Frame { name, system_name: name, file: StrId::EMPTY, line: 0, column: 0 };
        if let Some(code) = code {
            frame.file = self.file(strings, code);
            frame.line = code.line.unwrap_or(0);
            frame.column = code.column.unwrap_or(0).into();
        }
        frame
    }

    fn file(&mut self, strings: &mut StringTable, code: &CodeInfo<'s>) -> StrId {
        let (dir, file) = (code.dir.as_deref().unwrap_or(Path::new("")), &code.file);
        let key = match (&code.dir, &code.file) {
            (Some(Cow::Borrowed(dir)), Cow::Borrowed(file)) => {
                [At(dir.as_os_str().as_bytes()), At(file.as_bytes())]
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
    if !file.starts_with('/') {
        path.push_str(&dir.to_string_lossy());
        if !path.is_empty() && !path.ends_with('/') {
            path.push('/');
        }
    }
    path.push_str(&file);
    strings.intern(path)
}
