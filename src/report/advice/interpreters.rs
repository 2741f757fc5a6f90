//! Interpreters: programs of which a profile shows the C functions, but not the functions that the
//! user wrote.

use std::fmt;

use rustc_hash::{FxHashMap, FxHashSet};

use super::is_memory;
use profile::{Profile, StrId};
use sys::jit::file_names::is_compilers_file;

/// The share of the samples, in percent, above which hidden functions are reported.
const MATTERS_PERCENT: u64 = 20;

/// A language whose functions run in an interpreter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Language {
    /// CPython, with its minor version.
    Python(Option<u32>),
    Ruby,
    Php,
    Perl,
    Lua,
    /// Lua by LuaJIT.
    LuaJit,
}

impl Language {
    /// The one whose interpreter a binary is.
    fn for_binary(file: &str) -> Option<Language> {
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
            return Some(Language::Python(minor));
        }
        let others: [(&[&str], Language); 5] = [
            (&["libruby-", "libruby", "ruby"], Language::Ruby),
            (&["php-fpm", "php-cgi", "libphp", "php"], Language::Php),
            (&["libperl", "perl"], Language::Perl),
            (&["libluajit-", "libluajit", "luajit"], Language::LuaJit),
            (&["liblua", "lua"], Language::Lua),
        ];
        others.into_iter().find_map(|(names, language)| after(names).map(|_| language))
    }

    fn name(self) -> &'static str {
        match self {
            Language::Python(_) => "Python",
            Language::Ruby => "Ruby",
            Language::Php => "PHP",
            Language::Perl => "Perl",
            Language::Lua | Language::LuaJit => "Lua",
        }
    }

    /// What is missing, and the way to see it.
    fn hidden(self) -> String {
        let name = self.name();
        match self {
            Language::Python(Some(12..)) => {
                format!("for {name}'s functions, start python3 with -X perf")
            }
            Language::Python(_) => format!(
                "{name}'s functions are not shown, only those of its interpreter; Python 3.12 or \
                 newer shows them with -X perf, py-spy those of older ones"
            ),
            Language::Ruby => format!(
                "{name}'s functions are not shown, only those of its interpreter; rbspy shows them"
            ),
            Language::Php => format!(
                "{name}'s functions are not shown, only those of its interpreter; phpspy shows them"
            ),
            Language::Perl => format!(
                "{name}'s functions are not shown, only those of its interpreter; perl -d:NYTProf \
                 shows them"
            ),
            Language::Lua => {
                format!("{name}'s functions are not shown, only those of its interpreter")
            }
            // Compiled code has no names either.
            Language::LuaJit => {
                format!("{name}'s functions are not shown; luajit -jp=f shows them")
            }
        }
    }
}

/// True if a binary is an interpreter: its debug symbols name no function of the user's program.
pub fn is_interpreter(file: &str) -> bool {
    Language::for_binary(file).is_some()
}

/// The remedy for an interpreter's binary; `None` for any other.
pub fn remedy(file: &str) -> Option<String> {
    Language::for_binary(file).map(Language::hidden)
}

/// The interpreters of a profile in whose stacks no function of the user's program is, by file,
/// with the sum of the values of these stacks.
fn hidden(profile: &Profile) -> FxHashMap<StrId, u64> {
    // Per mapping: the interpreter, and whether it is code made at run time, which has names.
    let files: Vec<(Option<StrId>, bool)> = profile
        .mappings
        .iter()
        .map(|mapping| {
            let file = profile.str(mapping.file);
            (is_interpreter(file).then_some(mapping.file), is_compilers_file(file))
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
            let (interpreter, run_time) = files[mapping.0 as usize];
            found = found.or(interpreter);
            shows |= run_time;
        }
        if let Some(file) = found.filter(|_| !shows) {
            let value = profile.values_of(row).first().copied().unwrap_or_default();
            *hidden.entry(file).or_default() += u64::try_from(value).unwrap_or_default();
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

/// The interpreter in which most of the time was spent, if that is much.
pub fn hidden_functions(profile: &Profile) -> Option<HiddenFunctions> {
    let all: i64 = (0..profile.samples.len())
        .filter_map(|row| profile.values_of(row).first())
        .fold(0, |sum, value| sum.saturating_add(*value));
    let all = u64::try_from(all).unwrap_or_default();
    let hidden = hidden(profile).into_iter();
    let (file, value) = hidden.max_by_key(|(file, value)| (*value, file.0))?;
    if value == 0 || value.saturating_mul(100) <= all.saturating_mul(MATTERS_PERCENT) {
        return None;
    }
    let file = profile.str(file);
    let binary = file.rsplit('/').next().unwrap_or(file).to_owned();
    let percent = 100.0 * value as f64 / all as f64;
    Some(HiddenFunctions { binary, percent, remedy: remedy(file)? })
}

/// The interpreters among these files of whose programs some stacks show no function.
pub fn hiding(profile: &Profile, files: &[&str]) -> FxHashSet<String> {
    let hidden = hidden(profile);
    let hides = |file: &&&str| {
        !is_memory(file)
            && is_interpreter(file)
            && profile.strings.find(file).is_some_and(|file| hidden.contains_key(&file))
    };
    files.iter().filter(hides).map(|file| (*file).to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use profile::{Builder, LabelSetId, Mapping};

    #[test]
    fn interpreters_are_recognized_by_their_binaries() {
        for (file, language) in [
            ("/usr/bin/python3.11", Some(Language::Python(Some(11)))),
            ("/usr/lib/libpython3.13.so.1.0", Some(Language::Python(Some(13)))),
            ("/opt/python", Some(Language::Python(None))),
            ("/usr/lib/x86_64-linux-gnu/libruby-3.1.so.3.1.2", Some(Language::Ruby)),
            ("/usr/bin/php8.2", Some(Language::Php)),
            ("/usr/sbin/php-fpm8.2 (deleted)", Some(Language::Php)),
            ("/usr/bin/perl", Some(Language::Perl)),
            ("/usr/bin/lua5.4", Some(Language::Lua)),
            ("/usr/bin/luajit-2.1", Some(Language::LuaJit)),
            ("/usr/lib/x86_64-linux-gnu/libluajit-5.1.so.2.1.0", Some(Language::LuaJit)),
            ("/usr/lib/liblua5.4.so.0", Some(Language::Lua)),
            ("/usr/bin/pythonize", None),
            ("/usr/bin/phpstorm", None),
            ("/usr/bin/node", None),
            ("/usr/lib/jvm/lib/server/libjvm.so", None),
        ] {
            assert_eq!(Language::for_binary(file), language, "{file}");
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
        let line = hidden_functions(&profile(&[python, other])).unwrap().to_string();
        assert!(line.starts_with("50.0 % of the samples are in python3.11: Python's"), "{line}");
        assert!(line.contains("are not shown") && line.contains("py-spy"), "{line}");
        let new: &[&str] = &["/usr/bin/python3.13"];
        let line = hidden_functions(&profile(&[new])).unwrap().to_string();
        assert!(line.ends_with("start python3 with -X perf"), "{line}");
        // They are shown, or do not matter.
        let shown: &[&str] = &["/tmp/perf-7.map", "/usr/bin/python3.13"];
        assert_eq!(hidden_functions(&profile(&[shown])), None);
        assert_eq!(hidden_functions(&profile(&[python, other, other, other, other, other])), None);
        assert_eq!(hidden_functions(&profile(&[other])), None);
        assert_eq!(hidden_functions(&profile(&[])), None);
    }
}
