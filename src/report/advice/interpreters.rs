//! Interpreters: programs of which a profile shows the C functions, but not the functions that the
//! user wrote.

use std::fmt;

use rustc_hash::{FxHashMap, FxHashSet};

use super::is_memory;
use profile::{Language, Profile, StrId};
use sys::jit::file_names::is_compilers_file;

/// The share of the samples, in percent, above which hidden functions are reported.
const MATTERS_PERCENT: u64 = 20;

/// An interpreter, by its language.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Interpreter {
    /// CPython, with its minor version.
    Python(Option<u32>),
    Ruby,
    Php,
    Perl,
    Lua,
    /// Lua by LuaJIT.
    LuaJit,
}

impl Interpreter {
    /// The one that a binary is.
    fn for_binary(file: &str) -> Option<Interpreter> {
        let name = file.rsplit('/').next().unwrap_or(file);
        let name = name.strip_suffix(" (deleted)").unwrap_or(name);
        // The version of `python3.11`, `libpython3.11.so.1.0`, `ruby3.1`, `php8.2`, `php-fpm8.2`.
        let version = |rest: &str| {
            let rest = rest.split(".so").next().unwrap_or_default();
            rest.is_empty()
                || rest.starts_with(|c: char| c.is_ascii_digit() || c == '.' || c == '-')
        };
        let after = |names: &[&str]| {
            names.iter().find_map(|begin| name.strip_prefix(begin)).filter(|rest| version(rest))
        };
        if let Some(rest) = after(&["libpython", "python"]) {
            let minor = rest.strip_prefix("3.").map(|minor| {
                minor.bytes().take_while(u8::is_ascii_digit).fold(0, |n: u32, digit| {
                    n.saturating_mul(10).saturating_add(u32::from(digit - b'0'))
                })
            });
            return Some(Interpreter::Python(minor));
        }
        let others: [(&[&str], Interpreter); 5] = [
            (&["libruby-", "libruby", "ruby"], Interpreter::Ruby),
            (&["php-fpm", "php-cgi", "libphp", "php"], Interpreter::Php),
            (&["libperl", "perl"], Interpreter::Perl),
            (&["libluajit-", "libluajit", "luajit"], Interpreter::LuaJit),
            (&["liblua", "lua"], Interpreter::Lua),
        ];
        others.into_iter().find_map(|(names, language)| after(names).map(|_| language))
    }

    fn name(self) -> &'static str {
        match self {
            Interpreter::Python(_) => "Python",
            Interpreter::Ruby => "Ruby",
            Interpreter::Php => "PHP",
            Interpreter::Perl => "Perl",
            Interpreter::Lua | Interpreter::LuaJit => "Lua",
        }
    }

    /// The name of its implementation, as messages have it.
    fn implementation(self) -> &'static str {
        match self {
            Interpreter::Python(_) => "CPython",
            other => other.name(),
        }
    }

    /// Another program that shows its functions.
    fn other_profiler(self) -> Option<&'static str> {
        match self {
            Interpreter::Python(_) => Some("py-spy"),
            Interpreter::Ruby => Some("rbspy"),
            Interpreter::Php => Some("phpspy"),
            Interpreter::Perl => Some("perl -d:NYTProf"),
            Interpreter::LuaJit => Some("luajit -jp=f"),
            Interpreter::Lua => None,
        }
    }

    /// What is missing, and the way to see it.
    fn hidden(self) -> String {
        let name = self.name();
        // Compiled code has no names either.
        let only = if self == Interpreter::LuaJit { "" } else { ", only those of its interpreter" };
        match (self, self.other_profiler()) {
            (Interpreter::Python(_), _) => format!(
                "{name}'s functions are not shown; recordings of CPU time or waits as root have those \
                 of Python 3.8 to 3.13"
            ),
            (Interpreter::Ruby, _) => format!(
                "{name}'s functions are not shown; recordings of CPU time or waits as root have those \
                 of Ruby 3.0 to 3.3"
            ),
            (Interpreter::Php, _) => format!(
                "{name}'s functions are not shown; recordings of CPU time or waits as root have those \
                 of PHP 8.2"
            ),
            (_, Some(other)) => {
                format!("{name}'s functions are not shown{only}; {other} shows them")
            }
            (_, None) => format!("{name}'s functions are not shown{only}"),
        }
    }

    /// True if prof reads the functions of its programs.
    fn is_read(self) -> bool {
        matches!(self, Interpreter::Python(_) | Interpreter::Ruby | Interpreter::Php)
    }
}

/// True if a binary is an interpreter: its debug symbols name no function of the user's program.
pub fn is_interpreter(file: &str) -> bool {
    Interpreter::for_binary(file).is_some()
}

/// The remedy for an interpreter's binary; `None` for any other.
pub fn remedy(file: &str) -> Option<String> {
    Interpreter::for_binary(file).map(Interpreter::hidden)
}

/// Sums of the values of stacks through an interpreter.
#[derive(Clone, Copy, Debug, Default)]
struct Hidden {
    /// Of all.
    all: u64,
    /// Of those without a function of the user's program.
    hidden: u64,
}

/// The sums of a profile, by the file of the interpreter.
fn hidden(profile: &Profile) -> FxHashMap<StrId, Hidden> {
    // Per mapping: the interpreter, and whether it has functions of the user's program: those that
    // were read, and code made at run time.
    let files: Vec<(Option<StrId>, bool)> = profile
        .mappings
        .iter()
        .map(|mapping| {
            let file = profile.str(mapping.file);
            let names = is_compilers_file(file) || Language::in_mapping(profile, mapping).is_some();
            (is_interpreter(file).then_some(mapping.file), names)
        })
        .collect();
    let mut hidden = FxHashMap::default();
    if files.iter().all(|(interpreter, _)| interpreter.is_none()) {
        return hidden;
    }
    for (row, sample) in profile.samples.iter().enumerate() {
        let stack = profile.stacks.get(sample.stack);
        let mappings = stack.iter().filter_map(|l| profile.locations[l.0 as usize].mapping);
        let mut found = None;
        let mut shows = false;
        for mapping in mappings {
            let (interpreter, names) = files[mapping.0 as usize];
            found = found.or(interpreter);
            shows |= names;
        }
        if let Some(file) = found {
            let value = profile.values_of(row).first().copied().unwrap_or_default();
            let value = u64::try_from(value).unwrap_or_default();
            let sums: &mut Hidden = hidden.entry(file).or_default();
            sums.all = sums.all.saturating_add(value);
            sums.hidden = sums.hidden.saturating_add(if shows { 0 } else { value });
        }
    }
    hidden
}

/// An interpreter in which much of the time was spent, whose programs' functions are not in the
/// profile. It is displayed as a sentence.
#[derive(Clone, Debug, PartialEq)]
pub struct HiddenFunctions {
    /// The name of its binary.
    binary: String,
    /// The share of the samples with it in their stacks, in percent.
    pub percent: f64,
    remedy: String,
}

impl fmt::Display for HiddenFunctions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let HiddenFunctions { binary, percent, remedy } = self;
        write!(f, "{percent:.1} % of the samples are in {binary}: {remedy}")
    }
}

/// The interpreter in which most of the time was spent, if that is much. `unread`: why functions of
/// interpreted programs were not read, as far as that is known; the first one that applies counts.
pub fn hidden_functions(profile: &Profile, unread: &[Unread]) -> Option<HiddenFunctions> {
    let all: i64 = (0..profile.samples.len())
        .filter_map(|row| profile.values_of(row).first())
        .fold(0, |sum, value| sum.saturating_add(*value));
    let all = u64::try_from(all).unwrap_or_default();
    let hidden = hidden(profile).into_iter();
    let values = hidden.map(|(file, sums)| (file, sums.hidden));
    let (file, value) = values.max_by_key(|(file, value)| (*value, file.0))?;
    if value == 0 || value.saturating_mul(100) <= all.saturating_mul(MATTERS_PERCENT) {
        return None;
    }
    let file = profile.str(file);
    let binary = file.rsplit('/').next().unwrap_or(file).to_owned();
    let percent = 100.0 * value as f64 / all as f64;
    let interpreter = Interpreter::for_binary(file)?;
    let remedy = match unread.iter().find(|unread| unread.applies_to(interpreter)) {
        Some(unread) => unread.sentence(interpreter),
        None => interpreter.hidden(),
    };
    Some(HiddenFunctions { binary, percent, remedy })
}

/// Why a recording has not read the functions of interpreted programs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unread {
    /// The reason.
    pub why: String,
    /// The interpreter of which prof cannot read those of this version or build; `None`: the reason
    /// is another one, for all.
    pub unsupported: Option<String>,
}

impl Unread {
    fn applies_to(&self, interpreter: Interpreter) -> bool {
        let unsupported = self.unsupported.as_deref();
        interpreter.is_read() && unsupported.is_none_or(|name| name == interpreter.implementation())
    }

    fn sentence(&self, interpreter: Interpreter) -> String {
        let remedy = match interpreter {
            _ if self.unsupported.is_none() => String::new(),
            Interpreter::Python(Some(12..)) => "; start python3 with -X perf".to_owned(),
            other => {
                let other = other.other_profiler();
                other.map(|other| format!("; {other} shows them")).unwrap_or_default()
            }
        };
        format!("{}'s functions are not shown: {}{remedy}", interpreter.name(), self.why)
    }
}

/// The interpreters among these files of whose programs many stacks show no function.
pub fn hiding(profile: &Profile, files: &[&str]) -> FxHashSet<String> {
    let hidden = hidden(profile);
    let hides = |sums: &Hidden| {
        sums.hidden > 0
            && sums.hidden.saturating_mul(100) > sums.all.saturating_mul(MATTERS_PERCENT)
    };
    let is_hiding = |file: &&&str| {
        !is_memory(file)
            && is_interpreter(file)
            && profile.strings.find(file).and_then(|file| hidden.get(&file)).is_some_and(hides)
    };
    files.iter().filter(is_hiding).map(|file| (*file).to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use profile::{Builder, LabelSetId, Mapping};

    #[test]
    fn interpreters_are_recognized_by_their_binaries() {
        for (file, language) in [
            ("/usr/bin/python3.11", Some(Interpreter::Python(Some(11)))),
            ("/usr/lib/libpython3.13.so.1.0", Some(Interpreter::Python(Some(13)))),
            ("/opt/python", Some(Interpreter::Python(None))),
            ("/usr/lib/x86_64-linux-gnu/libruby-3.1.so.3.1.2", Some(Interpreter::Ruby)),
            ("/usr/bin/php8.2", Some(Interpreter::Php)),
            ("/usr/sbin/php-fpm8.2 (deleted)", Some(Interpreter::Php)),
            ("/usr/bin/perl", Some(Interpreter::Perl)),
            ("/usr/bin/lua5.4", Some(Interpreter::Lua)),
            ("/usr/bin/luajit-2.1", Some(Interpreter::LuaJit)),
            ("/usr/lib/x86_64-linux-gnu/libluajit-5.1.so.2.1.0", Some(Interpreter::LuaJit)),
            ("/usr/lib/liblua5.4.so.0", Some(Interpreter::Lua)),
            ("/usr/bin/pythonize", None),
            ("/usr/bin/phpstorm", None),
            ("/usr/bin/node", None),
            ("/usr/lib/jvm/lib/server/libjvm.so", None),
        ] {
            assert_eq!(Interpreter::for_binary(file), language, "{file}");
        }
    }

    /// A profile of these samples: the files of each stack, innermost first.
    fn profile(stacks: &[&[&str]]) -> Profile {
        let mut builder = Builder::new(&[("samples", "count")]);
        for stack in stacks {
            let locations: Vec<_> = stack
                .iter()
                .map(|file| {
                    let file = builder.profile.strings.intern(file);
                    let mapping = Mapping { file, limit: 100, ..Mapping::default() };
                    let mapping = builder.add_mapping(mapping);
                    builder.location(Some(mapping), 1)
                })
                .collect();
            builder.add(&locations, LabelSetId::EMPTY, 1, &[]);
        }
        builder.finish(None)
    }

    #[test]
    fn functions_that_only_an_interpreter_has_are_reported() {
        let python: &[&str] = &["/lib/libc.so.6", "/usr/bin/python3.11"];
        let other: &[&str] = &["/bin/other"];
        let line = hidden_functions(&profile(&[python, other]), &[]).unwrap().to_string();
        assert!(line.starts_with("50.0 % of the samples are in python3.11: Python's"), "{line}");
        assert!(
            line.contains("are not shown; recordings of CPU time or waits as root have"),
            "{line}"
        );
        // They are shown, or do not matter.
        for names in ["/tmp/perf-7.map", "[python]"] {
            let shown: &[&str] = &[names, "/usr/bin/python3.13"];
            assert_eq!(hidden_functions(&profile(&[shown]), &[]), None);
        }
        assert_eq!(
            hidden_functions(&profile(&[python, other, other, other, other, other]), &[]),
            None
        );
        assert_eq!(hidden_functions(&profile(&[other]), &[]), None);
        assert_eq!(hidden_functions(&profile(&[]), &[]), None);
    }

    #[test]
    fn the_reason_for_hidden_functions_is_that_of_the_recording() {
        let line = |file: &str, why: &str, unsupported: Option<&str>| {
            let unsupported = unsupported.map(str::to_owned);
            let unread = Unread { why: why.to_owned(), unsupported };
            hidden_functions(&profile(&[&[file]]), &[unread]).unwrap().to_string()
        };
        let line_of_311 = line("/usr/bin/python3.11", "leave out -g", None);
        assert!(line_of_311.ends_with("functions are not shown: leave out -g"), "{line_of_311}");
        let cpython = Some("CPython");
        let line_of_314 = line("/usr/bin/python3.14", "CPython 3.14 is not supported", cpython);
        assert!(line_of_314.ends_with("is not supported; start python3 with -X perf"));
        assert!(line("/usr/bin/python3.7", "too old", cpython).ends_with("; py-spy shows them"));
        // The reason of another interpreter.
        let ruby = line("/usr/bin/python3.11", "Ruby 2.6 is not supported", Some("Ruby"));
        assert!(ruby.contains("recordings of CPU time or waits as root have"), "{ruby}");
        let ruby = line("/usr/bin/ruby2.7", "Ruby 2.7 is not supported", Some("Ruby"));
        assert!(ruby.ends_with("Ruby 2.7 is not supported; rbspy shows them"), "{ruby}");
        // Functions of a language that is never read have another reason.
        let perl = line("/usr/bin/perl", "leave out -g", None);
        assert!(perl.ends_with("its interpreter; perl -d:NYTProf shows them"), "{perl}");
    }
}
