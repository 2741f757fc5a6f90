//! Symbols of addresses by `llvm-symbolizer`, next to those by prof.

use std::collections::{HashMap, HashSet};
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use iced_x86::{Decoder, DecoderOptions};
use object::{Object, ObjectSection, ObjectSymbol, SectionKind, SymbolKind};
use profile::{Line, LocationId, Profile};
use symbols::SymbolOptions;

/// A function at an address: its linkage name, file and line.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Frame {
    /// Mangled, where the function has such a name.
    pub function: String,
    /// Source file; empty when unknown.
    pub file: String,
    /// 0 when unknown.
    pub line: i64,
}

/// The addresses of all instructions in the code sections of a program, without the stubs of the
/// procedure linkage table, in ascending order.
pub fn instructions(program: &Path) -> Vec<u64> {
    let data = std::fs::read(program).unwrap();
    let elf = object::File::parse(&*data).unwrap();
    let mut addresses = Vec::new();
    for section in elf.sections().filter(|s| s.kind() == SectionKind::Text) {
        if section.name().unwrap().starts_with(".plt") {
            continue;
        }
        let code = section.data().unwrap();
        let decoder = Decoder::with_ip(64, code, section.address(), DecoderOptions::NONE);
        addresses.extend(decoder.into_iter().map(|instruction| instruction.ip()));
    }
    addresses.sort_unstable();
    addresses
}

/// The frames that `llvm-symbolizer` finds at each address, innermost first.
pub fn theirs(program: &Path, addresses: &[u64]) -> Vec<Vec<Frame>> {
    let input: String = addresses.iter().map(|a| format!("{a:#x}\n")).collect();
    let mut command = Command::new("llvm-symbolizer");
    command.args(["--functions=linkage", "--no-demangle", "--inlines", "--output-style=JSON"]);
    command.arg("--obj").arg(program).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let writer = std::thread::spawn(move || stdin.write_all(input.as_bytes()));
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap().unwrap();
    assert!(output.status.success(), "llvm-symbolizer: {:?}", output.status);
    let text = String::from_utf8(output.stdout).unwrap();
    let answers: Vec<Vec<Frame>> = text.lines().map(answer).collect();
    assert_eq!(answers.len(), addresses.len(), "one line for each address");
    answers
}

/// One line of its JSON.
fn answer(line: &str) -> Vec<Frame> {
    let json: serde_json::Value = serde_json::from_str(line).unwrap();
    let frames = json["Symbol"].as_array().cloned().unwrap_or_default();
    let frame = |json: &serde_json::Value| Frame {
        function: json["FunctionName"].as_str().unwrap_or_default().to_owned(),
        file: json["FileName"].as_str().unwrap_or_default().to_owned(),
        line: json["Line"].as_i64().unwrap_or(0),
    };
    let frames: Vec<Frame> = frames.iter().map(frame).collect();
    // For code without information it prints an empty frame.
    frames.into_iter().filter(|f| !f.function.is_empty() || f.line > 0).collect()
}

/// The frames that prof finds at each address, innermost first, with mangled names.
pub fn ours(program: &Path, addresses: &[u64]) -> Vec<Vec<Frame>> {
    let mut profile = super::unnamed(program, addresses);
    symbols::symbolize(&mut profile, &SymbolOptions::default(), &|_, _| {});
    (0..addresses.len() as u32).map(|i| frames(&profile, LocationId(i))).collect()
}

fn frames(profile: &Profile, location: LocationId) -> Vec<Frame> {
    let frame = |line: &Line| {
        let function = &profile.functions[line.function.0 as usize];
        Frame {
            function: profile.str(function.system_name).to_owned(),
            file: profile.str(function.filename).to_owned(),
            line: line.line,
        }
    };
    profile.lines_of(location).iter().map(frame).collect()
}

/// The beginnings of the functions of a program, by their names in the symbol table.
pub struct Symbols {
    functions: HashMap<String, HashSet<u64>>,
    /// Names of symbols that are no functions.
    others: HashSet<String>,
}

impl Symbols {
    /// Reads the symbol table of a program.
    pub fn of(program: &Path) -> Symbols {
        let data = std::fs::read(program).unwrap();
        let elf = object::File::parse(&*data).unwrap();
        let mut functions: HashMap<String, HashSet<u64>> = HashMap::new();
        let mut others = HashSet::new();
        for symbol in elf.symbols() {
            let name = symbol.name().unwrap().to_owned();
            if symbol.kind() == SymbolKind::Text && symbol.is_definition() {
                functions.entry(name).or_default().insert(symbol.address());
            } else {
                others.insert(name);
            }
        }
        Symbols { functions, others }
    }

    /// Number of functions of which a compiler moved a part elsewhere.
    pub fn in_parts(&self) -> usize {
        self.functions.keys().filter(|name| name.ends_with(".cold")).count()
    }

    /// Whether both names belong to one function.
    fn are_one(&self, ours: &str, theirs: &str) -> bool {
        let no_function = self.others.contains(theirs);
        let (ours, theirs) = (whole(ours), whole(theirs));
        let places = |name: &str| -> HashSet<u64> {
            let spelled = spellings(name).into_iter();
            spelled.filter_map(|name| self.functions.get(&name)).flatten().copied().collect()
        };
        no_function
            || spellings(ours).iter().any(|name| name == theirs)
            || !places(ours).is_disjoint(&places(theirs))
    }

    /// Whether both tools report the same of an address. They differ, by intention, in these
    /// points:
    ///
    /// - `llvm-symbolizer` takes the outermost function's name from the symbol table. Where one
    ///   function has several names there (constructors that are alike, functions that the compiler
    ///   found to be equal), or its parts have names of their own (`main.cold`), that is another
    ///   one than debug information has. The linker's marks, which are no functions, come first
    ///   there. Lines and inlined functions are the same.
    /// - If no line is known, it takes the file from the symbol table, too.
    /// - prof gives no line to an address that is in no function (the code after a call that does
    ///   not return, between two functions).
    pub fn agree(&self, ours: &[Frame], theirs: &[Frame]) -> bool {
        if ours.is_empty() {
            return theirs.iter().all(|f| f.function.is_empty());
        }
        let place = |f: &Frame| (f.line > 0).then(|| (f.file.clone(), f.line));
        let last = ours.len() - 1;
        let same = |i: usize, ours: &Frame, theirs: &Frame| {
            let named = ours.function == theirs.function
                || i == last && self.are_one(&ours.function, &theirs.function);
            named && place(ours) == place(theirs)
        };
        ours.len() == theirs.len()
            && ours.iter().zip(theirs).enumerate().all(|(i, (a, b))| same(i, a, b))
    }
}

/// A function's name without the suffix that compilers add for a copy or a part of it.
fn whole(name: &str) -> &str {
    let added = [".cold", ".part.", ".constprop.", ".isra.", ".lto_priv."];
    let ends = added.iter().filter_map(|what| name.find(what));
    &name[..ends.min().unwrap_or(name.len())]
}

/// Debug information has one name (`C4`, `D4`) for several constructors or destructors of the
/// symbol table.
fn spellings(name: &str) -> Vec<String> {
    let kinds = [("C4", ["C1", "C2", "C3"]), ("D4", ["D0", "D1", "D2"])];
    let mut all = vec![name.to_owned()];
    for (any, kinds) in kinds {
        if name.contains(any) {
            all.extend(kinds.map(|kind| name.replace(any, kind)));
        }
    }
    all
}
