//! Asks blazesym for the functions, lines and inlined functions of addresses in ELF files.

use std::cell::Cell;
use std::panic::{self, AssertUnwindSafe};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Once;

use blazesym::symbolize::source::{Elf, Source};
use blazesym::symbolize::{CodeInfo, Input, Sym, Symbolizer};

use crate::profile::{StrId, StringTable};

use super::answers::{Answers, Frame};
use super::demangle::{self, Demangler};
use super::plt::Code;
use super::source::Layer;
use super::{Options, Why, split};
use crate::process::cut::cut_pages;

/// Addresses asked at a time: progress is told in between.
const BATCH: usize = 512;

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
) -> Result<Answers, Why> {
    let told = Cell::new(0);
    let tell = |n: usize| {
        let n = n.min(addresses.len() - told.get());
        told.set(told.get() + n);
        done(n);
    };
    let cut_before = cut_pages();
    let plain: Vec<Layer> =
        layers.iter().map(|l| Layer { debug_info: false, ..l.clone() }).collect();
    // Damaged debug information can make its parser panic; the symbol table may still be good.
    let answers = caught(|| all_layers(layers, addresses, options, &tell))
        .or_else(|| caught(|| all_layers(&plain, addresses, options, &tell)))
        .unwrap_or_else(|| Err(Why::Damaged("its symbols cannot be parsed".into())));
    tell(addresses.len());
    // Names that come from zeros instead of the file would be wrong.
    if cut_pages() > cut_before { Err(Why::Cut) } else { answers }
}

/// Runs `f`; `None` if it panicked, about which nothing is printed.
fn caught<T>(f: impl FnOnce() -> T) -> Option<T> {
    thread_local!(static QUIET: Cell<bool> = const { Cell::new(false) });
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            if !QUIET.get() {
                before(info);
            }
        }));
    });
    QUIET.set(true);
    let result = panic::catch_unwind(AssertUnwindSafe(f));
    QUIET.set(false);
    result.ok()
}

fn all_layers(
    layers: &[Layer],
    addresses: &[u64],
    options: &Options,
    tell: &dyn Fn(usize),
) -> Result<Answers, Why> {
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
    asker.name_local_functions(layers, addresses, &mut answers);
    asker.demangle(&mut answers);
    match asker.error {
        Some(error) if missing.len() == addresses.len() => Err(Why::Damaged(error)),
        _ => Ok(answers),
    }
}

struct Asker<'a> {
    options: &'a Options,
    symbolizer: Symbolizer,
    path: String,
    error: Option<String>,
    /// All that will be asked for.
    addresses: &'a [u64],
    /// Code of the files asked so far.
    code: Vec<(PathBuf, Rc<Code>)>,
}

impl<'a> Asker<'a> {
    fn new(options: &'a Options, addresses: &'a [u64]) -> Asker<'a> {
        let symbolizer = Symbolizer::builder()
            .enable_auto_reload(false)
            .enable_inlined_fns(options.inlines)
            // Done here, once a name instead of once a frame; and the mangled name is wanted too.
            .enable_demangling(false)
            .set_debug_dirs(Some(&options.debug_dirs))
            .build();
        let (path, error, code) = (String::new(), None, Vec::new());
        Asker { options, symbolizer, path, error, addresses, code }
    }

    fn code(&mut self, path: &Path) -> Rc<Code> {
        if let Some((_, code)) = self.code.iter().find(|(p, _)| p == path) {
            return code.clone();
        }
        let code = Rc::new(Code::read(path, self.addresses));
        self.code.push((path.to_owned(), code.clone()));
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
        let code = self.code(&layer.path);
        let mut answers = Answers::default();
        for batch in addresses.chunks(BATCH) {
            match self.symbolizer.symbolize(&source, Input::VirtOffset(batch)) {
                Ok(symbols) => {
                    for (symbol, &address) in symbols.iter().zip(batch) {
                        let good = |s: &&Sym<'_>| {
                            !s.name.is_empty()
                                && (s.size.is_some() || code.same_section(s.addr, address))
                        };
                        match (code.stub(address), symbol.as_sym().filter(good)) {
                            (Some(stub), _) => answers.push_name(Some(stub)),
                            (None, Some(symbol)) => push(&mut answers, symbol, &mut self.path),
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
        answers
    }

    fn ask_split(&mut self, layer: &Layer, addresses: &[u64], tell: &dyn Fn(usize)) -> Answers {
        let found = split::resolve(&layer.path, addresses, self.options, tell);
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

fn source(layer: &Layer, debug_info: bool) -> Source<'static> {
    let mut elf = Elf::new(&layer.path);
    elf.debug_syms = debug_info;
    Source::Elf(elf)
}

/// blazesym has the outermost function first, each with the position *in it*: where it calls the
/// next one, and for the last one that of the address itself. So has pprof, innermost first.
fn push(answers: &mut Answers, symbol: &Sym<'_>, path: &mut String) {
    let Answers { strings, .. } = answers;
    let mut frames = Vec::with_capacity(1 + symbol.inlined.len());
    for inlined in symbol.inlined.iter().rev() {
        frames.push(frame(strings, &inlined.name, inlined.code_info.as_ref(), path));
    }
    frames.push(frame(strings, &symbol.name, symbol.code_info.as_deref(), path));
    answers.push(frames);
}

fn frame(
    strings: &mut StringTable,
    name: &str,
    code: Option<&CodeInfo<'_>>,
    path: &mut String,
) -> Frame {
    let name = strings.intern(name);
    let mut frame = Frame { name, system_name: name, file: StrId::EMPTY, line: 0, column: 0 };
    if let Some(code) = code {
        path.clear();
        let file = code.file.to_string_lossy();
        if let Some(dir) = code.dir.as_ref().filter(|_| !file.starts_with('/')) {
            path.push_str(&dir.to_string_lossy());
            if !path.is_empty() && !path.ends_with('/') {
                path.push('/');
            }
        }
        path.push_str(&file);
        frame.file = strings.intern(path);
        frame.line = code.line.unwrap_or(0);
        frame.column = code.column.unwrap_or(0).into();
    }
    frame
}
