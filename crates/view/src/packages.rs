//! Packages of functions: Go import paths, Rust crates, C++ namespaces, Java packages, Python
//! packages.
//!
//! A package is what the name of a function, its mangled name or its source file states. A function
//! for which none of them does has no package: C has none, and nothing is guessed.

mod rust;

use std::borrow::Cow;

use rustc_hash::{FxHashMap, FxHashSet};

use super::{base_name, is_kernel, is_run_time};
use profile::{Function, MappingId, Profile, StrId};

/// Longest name that is examined, in bytes.
const LONGEST: usize = 64 << 10;

/// Replaces the name of each function by that of its package. Functions without one keep theirs.
pub fn name_packages(profile: &mut Profile) {
    let homes = homes(profile);
    let go = go_mappings(profile, &homes);
    // Many functions may share long texts.
    let mut known: FxHashMap<(Function, StrId, bool), Option<StrId>> = FxHashMap::default();
    let mut has_package = vec![false; profile.functions.len()];
    for (number, home) in homes.iter().enumerate() {
        let function = Function { start_line: 0, ..profile.functions[number] };
        let is_go = home.is_some_and(|mapping| go.contains(&mapping.0));
        let binary = home.map_or(StrId::EMPTY, |home| profile.mappings[home.0 as usize].file);
        let name = known.entry((function, binary, is_go)).or_insert_with(|| {
            let texts = Texts::new(profile, &function, binary);
            let package = texts.package(is_go).map(Cow::into_owned);
            package.map(|package| profile.strings.intern(&package))
        });
        let Some(name) = *name else { continue };
        has_package[number] = true;
        profile.functions[number] = Function { name, ..Function::default() };
    }
    for line in profile.lines.iter_mut().filter(|line| has_package[line.function.0 as usize]) {
        (line.line, line.column) = (0, 0);
    }
}

/// The mapping of one location of each function.
fn homes(profile: &Profile) -> Vec<Option<MappingId>> {
    let mut homes = vec![None; profile.functions.len()];
    for location in &profile.locations {
        let lines =
            location.first_line as usize..(location.first_line + location.line_count) as usize;
        for line in &profile.lines[lines] {
            let home = &mut homes[line.function.0 as usize];
            *home = home.or(location.mapping);
        }
    }
    homes
}

/// Mappings with functions of Go source files: their assembly functions are Go's, too.
fn go_mappings(profile: &Profile, homes: &[Option<MappingId>]) -> FxHashSet<u32> {
    let functions = profile.functions.iter().zip(homes);
    let is_go = |function: &Function| profile.str(function.filename).ends_with(".go");
    functions
        .filter(|(function, _)| is_go(function))
        .filter_map(|(_, home)| Some((*home)?.0))
        .collect()
}

/// The texts that state a package.
struct Texts<'p> {
    name: &'p str,
    system_name: &'p str,
    file: &'p str,
    binary: &'p str,
}

impl<'p> Texts<'p> {
    fn new(profile: &'p Profile, function: &Function, binary: StrId) -> Texts<'p> {
        let name = match function.name {
            StrId::EMPTY => function.system_name,
            name => name,
        };
        Texts {
            name: profile.str(name),
            system_name: profile.str(function.system_name),
            file: profile.str(function.filename),
            binary: profile.str(binary),
        }
    }

    /// The package; `in_go`: the binary has functions of Go source files.
    fn package(&self, in_go: bool) -> Option<Cow<'p, str>> {
        if is_kernel(self.binary) || self.name.len() > LONGEST {
            return None;
        }
        let extension =
            base_name(self.file).rsplit_once('.').map_or("", |(_, extension)| extension);
        let mangled = self.system_name;
        match extension {
            "go" => go(self.name),
            "s" | "" if in_go => go(self.name),
            "py" | "pyx" | "pyi" => python(self.file),
            "java" | "kt" | "scala" | "clj" | "groovy" => java(self.name).map(Cow::Borrowed),
            "rs" => rust::package(self.name, self.file),
            _ if rust::is_mangled(mangled) => rust::package(self.name, self.file),
            "cc" | "cpp" | "cxx" | "c++" | "C" | "hh" | "hpp" | "hxx" | "h" | "tcc" | "ipp"
            | "inl" => cpp(self.name).map(Cow::Borrowed),
            _ if mangled.starts_with("_Z") => cpp(self.name).map(Cow::Borrowed),
            "" if self.name.starts_with("py::") => python(self.name.splitn(4, ':').nth(3)?),
            "" if self.is_java() => java(self.name).map(Cow::Borrowed),
            "" if self.name.contains(".(*") => go(self.name),
            _ => None,
        }
    }

    /// A method as the JVM writes it into a perf map.
    fn is_java(&self) -> bool {
        let in_run_time_code = is_run_time(self.binary);
        let is_signature = self.name.starts_with('L') && self.name.contains(";::");
        let is_method = self.name.ends_with(')') || self.name.contains("::");
        // Names of V8 begin with the kind of the code.
        let kind = self.name.split(':').next().unwrap_or_default();
        let is_v8 = self.name.contains(':') && !kind.contains('.') && !self.name.contains("::");
        is_signature || in_run_time_code && is_method && !is_v8
    }
}

/// The import path of `path/package.Function`, `path/package.(*Type).Method` or
/// `path/package.Function[…]`.
fn go(name: &str) -> Option<Cow<'_, str>> {
    // Functions that the compiler makes for types.
    if ["type..", "type:.", "go.", "go:"].iter().any(|made| name.starts_with(made)) {
        return None;
    }
    let plain = &name[..name.find('[').unwrap_or(name.len())];
    // A receiver has no slash, but types in it may.
    let plain = &plain[..plain.find('(').unwrap_or(plain.len())];
    let last = plain.rfind('/').map_or(0, |slash| slash + 1);
    let dot = plain[last..].find('.').map(|dot| last + dot)?;
    let path = &plain[..dot];
    let is_path = |c: char| c.is_alphanumeric() || "_/.-~%$+@".contains(c);
    if path.is_empty()
        || !path.chars().all(is_path)
        || plain[dot..].len() < 2 && !name.contains('(')
    {
        return None;
    }
    // The linker escapes dots of the last part.
    Some(if path.contains("%2e") { path.replace("%2e", ".").into() } else { path.into() })
}

/// The outermost scope of a C++ name: a namespace, or a class that is in none.
fn cpp(name: &str) -> Option<&str> {
    let name = name.strip_suffix(" [clone]").unwrap_or(name);
    let mut depth = 0i32;
    let mut end = name.len();
    let mut start = 0;
    for (at, c) in name.char_indices() {
        match c {
            '(' if name[at..].starts_with("(anonymous namespace)") => {}
            ')' if name[..at].ends_with("(anonymous namespace") => {}
            ' ' if name[..at].ends_with("(anonymous") => {}
            '(' | '[' if depth == 0 && at > start => {
                end = at;
                break;
            }
            'o' if depth == 0 && is_operator(name, at) => {
                end = at;
                break;
            }
            '<' | '(' | '[' => depth += 1,
            '>' | ')' | ']' => depth -= 1,
            // A type of the result precedes the name.
            ' ' if depth == 0 => start = at + 1,
            _ => {}
        }
    }
    let name = name[start..end.max(start)].trim_start_matches(['*', '&']);
    let scope = &name[..scope_end(name)?];
    let scope = &scope[..scope.find(['<', '[']).unwrap_or(scope.len())];
    (!scope.is_empty()).then_some(scope)
}

/// End of the first scope of a qualified name.
fn scope_end(name: &str) -> Option<usize> {
    let mut depth = 0i32;
    for (at, c) in name.char_indices() {
        match c {
            '<' => depth += 1,
            '>' => depth -= 1,
            ':' if depth == 0 && name[at..].starts_with("::") => return Some(at),
            _ => {}
        }
    }
    None
}

/// `operator` as a word begins at `at`.
fn is_operator(name: &str, at: usize) -> bool {
    let word = |c: char| c.is_alphanumeric() || c == '_';
    let before = name[..at].chars().next_back();
    let after = name[at..].strip_prefix("operator").map(|rest| rest.chars().next());
    !before.is_some_and(word) && after.is_some_and(|next| !next.is_some_and(word))
}

/// The package of `a.b.C.method`, `a/b/C.method`, `La/b/C;::method`, `a.b.C::method` or
/// `int a.b.C.method(int)`.
fn java(name: &str) -> Option<&str> {
    let name = name.split('(').next()?;
    let name = name.rsplit(' ').next()?;
    let class = match name.split_once("::") {
        Some((class, _)) => {
            class.strip_suffix(';').map_or(class, |class| class.strip_prefix('L').unwrap_or(class))
        }
        None => &name[..name.rfind('.')?],
    };
    let package = &class[..class.rfind(['.', '/'])?];
    (!package.is_empty()).then_some(package)
}

/// The package of a module in a directory of libraries; the file of another module.
fn python(file: &str) -> Option<Cow<'_, str>> {
    let file = file.rsplit_once(".py:").map_or(file, |(path, _)| &file[..path.len() + 3]);
    let in_directory =
        |directory: &str| file.rfind(directory).map(|at| &file[at + directory.len()..]);
    let library = in_directory("/site-packages/").or_else(|| in_directory("/dist-packages/"));
    let library = library.or_else(|| {
        let (version, rest) = file.rsplit_once("/lib/python3")?.1.split_once('/')?;
        let is_version = version.chars().all(|c| c.is_ascii_digit() || c == '.');
        is_version.then_some(rest)
    });
    match library.map(|path| path.split_once('/').unwrap_or((path, ""))) {
        Some((module, "")) => Some(module.rsplit_once('.').map_or(module, |(stem, _)| stem).into()),
        Some((package, _)) => Some(package.into()),
        None if file.is_empty() => None,
        None => Some(file.into()),
    }
}

#[cfg(test)]
mod tests;
