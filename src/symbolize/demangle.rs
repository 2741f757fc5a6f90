//! Mangled names made readable, each distinct name once.

use cpp_demangle::{BorrowedSymbol, DemangleOptions, ParseOptions};
use rustc_hash::FxHashMap;

use crate::profile::{StrId, StringTable};

/// Longest readable name. A mangled name of a few bytes can stand for gigabytes.
const MAX_NAME: usize = 16 << 10;

/// Readable names of the strings of one table.
#[derive(Default)]
pub struct Demangler {
    known: FxHashMap<StrId, StrId>,
}

impl Demangler {
    /// Id of the readable form of `name`; `name` itself when it is not mangled.
    pub fn readable(&mut self, strings: &mut StringTable, name: StrId) -> StrId {
        if let Some(&known) = self.known.get(&name) {
            return known;
        }
        let readable = demangle(strings.get(name)).map_or(name, |text| strings.intern(&text));
        self.known.insert(name, readable);
        readable
    }
}

/// Whether `name` looks like a mangled name of C++ or Rust.
pub fn is_mangled(name: &str) -> bool {
    name.starts_with("_Z") || name.starts_with("_R")
}

/// The readable form of a mangled name; `None` when it is not mangled, or damaged.
///
/// Functions lose their parameters and return types, as in pprof: they are in `system_name`.
pub fn demangle(name: &str) -> Option<String> {
    with(name, false)
}

/// As [`demangle`], with parameters, return types and hashes.
pub fn full(name: &str) -> Option<String> {
    with(name, true)
}

fn with(name: &str, all: bool) -> Option<String> {
    if !is_mangled(name) {
        return None;
    }
    // A stub that jumps to the function is not the function.
    if let Some(function) = name.strip_suffix("@plt") {
        return with(function, all).map(|readable| readable + "@plt");
    }
    rust(name, all).or_else(|| cpp(name, all))
}

fn rust(name: &str, all: bool) -> Option<String> {
    // The old scheme is C++'s with a hash as the last part; without it the name is C++'s.
    if name.starts_with("_Z") && !name.contains("17h") {
        return None;
    }
    let demangled = rustc_demangle::try_demangle(name).ok()?;
    let mut out = Bounded::default();
    match all {
        true => std::fmt::write(&mut out, format_args!("{demangled}")),
        false => std::fmt::write(&mut out, format_args!("{demangled:#}")),
    }
    .ok()?;
    Some(out.0)
}

fn cpp(name: &str, all: bool) -> Option<String> {
    let parse = ParseOptions::default().recursion_limit(160);
    let (symbol, suffix) = BorrowedSymbol::with_tail_and_options(name.as_bytes(), &parse).ok()?;
    let options = DemangleOptions::new().recursion_limit(160);
    let options = if all { options } else { options.no_params().no_return_type() };
    let mut out = Bounded::default();
    symbol.structured_demangle(&mut out, &options).ok()?;
    // Compilers add `.constprop.0`, `.cold` and the like, linkers `@VERSION`: still that function.
    let whole = suffix.is_empty() || suffix.starts_with(b".") || suffix.starts_with(b"@");
    // Without parameters, the qualifier behind them means nothing.
    let name = if all { &out.0 } else { out.0.strip_suffix(" const").unwrap_or(&out.0) };
    (whole && !name.is_empty()).then(|| name.to_owned())
}

#[derive(Default)]
struct Bounded(String);

impl std::fmt::Write for Bounded {
    fn write_str(&mut self, s: &str) -> std::fmt::Result {
        if self.0.len() + s.len() > MAX_NAME {
            return Err(std::fmt::Error);
        }
        self.0.push_str(s);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_become_readable() {
        let cases = [
            ("_ZN4core3fmt5Write9write_fmt17h0123456789abcdefE", "core::fmt::Write::write_fmt"),
            ("_RNvCs1234_7mycrate3foo", "mycrate::foo"),
            ("_ZN3foo3barEi", "foo::bar"),
            ("_ZN12_GLOBAL__N_16helperEd", "(anonymous namespace)::helper"),
            ("_ZSt4sortIPiEvT_S1_", "std::sort<int*>"),
            ("_ZNSt6thread4joinEv@GLIBCXX_3.4", "std::thread::join"),
            ("_ZN3foo3barEi.constprop.0", "foo::bar"),
            ("_ZN3foo3barEi@plt", "foo::bar@plt"),
            ("_ZZ4mainENKUlvE_clEv", "main::{lambda()#1}::operator()"),
        ];
        for (mangled, readable) in cases {
            assert_eq!(demangle(mangled).as_deref(), Some(readable), "{mangled}");
        }
        for plain in ["main", "", "_Z", "_R", "_Z!", "runtime.mallocgc", "_ZN3foo"] {
            assert_eq!(demangle(plain), None, "{plain}");
        }
    }

    #[test]
    fn a_name_that_explodes_is_left_alone() {
        // Each substitution doubles the name: 2^60 parts.
        let mut name = String::from("_Z1fI");
        name.push_str("St4pairIiiE");
        for i in 0..30 {
            let s = if i == 0 { "S_".into() } else { format!("S{}_", to_base36(i - 1)) };
            name.push_str(&format!("St4pairI{s}{s}E"));
        }
        name.push_str("EvT_");
        assert!(demangle(&name).is_none_or(|n| n.len() <= MAX_NAME));
    }

    fn to_base36(n: usize) -> char {
        char::from_digit(n as u32, 36).unwrap().to_ascii_uppercase()
    }

    #[test]
    fn each_name_is_demangled_once() {
        let mut strings = StringTable::default();
        let mut demangler = Demangler::default();
        let mangled = strings.intern("_ZN3foo3barEi");
        let plain = strings.intern("main");
        let readable = demangler.readable(&mut strings, mangled);
        assert_eq!(strings.get(readable), "foo::bar");
        assert_eq!(demangler.readable(&mut strings, mangled), readable);
        assert_eq!(demangler.readable(&mut strings, plain), plain);
    }
}
