//! Demangles names, each distinct name once.

use rustc_hash::FxHashMap;

use super::itanium::{self, MAX_NAME, Mangled};
use super::{dlang, ocaml};
use profile::{Profile, StrId, StringTable};

/// Demangled names of the strings of one table.
#[derive(Default)]
pub struct Demangler {
    demangled: FxHashMap<StrId, StrId>,
}

impl Demangler {
    /// Id of the demangled form of `name`; `name` itself if it is not mangled.
    pub fn readable(&mut self, strings: &mut StringTable, name: StrId) -> StrId {
        if let Some(&id) = self.demangled.get(&name) {
            return id;
        }
        let readable = demangle(strings.get(name)).map_or(name, |text| strings.intern(&text));
        self.demangled.insert(name, readable);
        readable
    }
}

/// True if `name` looks like a mangled name of C++, Rust, D or OCaml.
pub fn is_mangled(name: &str) -> bool {
    name.starts_with("_Z")
        || name.starts_with("_R")
        || dlang::is_mangled(name)
        || ocaml::is_mangled(name)
}

/// Demangles a name; `None` if it is not mangled, or damaged, or its demangled form is too long.
///
/// Functions lose their parameters and return types, as in pprof: they are in `system_name`.
pub fn demangle(name: &str) -> Option<String> {
    with(name, false).ok()
}

/// As [`demangle`], with parameters, return types and hashes.
pub fn full(name: &str) -> Option<String> {
    with(name, true).ok()
}

/// Number of functions of `profile` that stay mangled because their demangled names are too long.
pub fn refused(profile: &Profile) -> usize {
    let refused = |f: &&profile::Function| {
        let name = profile.str(f.name);
        f.name == f.system_name && with(name, false) == Err(Mangled::TooMuch)
    };
    profile.functions.iter().filter(refused).count()
}

fn with(name: &str, all: bool) -> Result<String, Mangled> {
    if !is_mangled(name) {
        return Err(Mangled::Not);
    }
    // A stub that jumps to the function is not the function.
    if let Some(function) = name.strip_suffix("@plt") {
        return with(function, all).map(|readable| readable + "@plt");
    }
    if dlang::is_mangled(name) {
        return dlang::demangle(name, all);
    }
    if ocaml::is_mangled(name) {
        return ocaml::demangle(name, all);
    }
    match rust(name, all) {
        Err(Mangled::Not) if name.starts_with("_Z") => itanium::demangle(name, all),
        done => done,
    }
}

fn rust(name: &str, all: bool) -> Result<String, Mangled> {
    // The legacy scheme is that of C++ with a hash as the last part; without it the name is C++'s.
    if name.starts_with("_Z") && !name.contains("17h") {
        return Err(Mangled::Not);
    }
    let demangled = rustc_demangle::try_demangle(name).map_err(|_| Mangled::Not)?;
    let mut out = Bounded::default();
    let written = if all {
        std::fmt::write(&mut out, format_args!("{demangled}"))
    } else {
        std::fmt::write(&mut out, format_args!("{demangled:#}"))
    };
    written.map(|()| out.text).map_err(|_| Mangled::TooMuch)
}

/// Output of bounded length and number of pieces: some pieces are empty.
#[derive(Default)]
struct Bounded {
    text: String,
    pieces: usize,
}

impl std::fmt::Write for Bounded {
    fn write_str(&mut self, s: &str) -> std::fmt::Result {
        self.pieces += 1;
        if self.text.len() + s.len() > MAX_NAME || self.pieces > MAX_NAME {
            return Err(std::fmt::Error);
        }
        self.text.push_str(s);
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
            ("_D5dlang6Worker3runMFdZv", "dlang.Worker.run"),
            ("_D5dlang6Worker3runMFdZv@plt", "dlang.Worker.run@plt"),
            ("camlStdlib__List__map_123", "Stdlib.List.map"),
        ];
        for (mangled, readable) in cases {
            assert_eq!(demangle(mangled).as_deref(), Some(readable), "{mangled}");
        }
        for plain in ["main", "", "_Z", "_R", "_Z!", "runtime.mallocgc", "_ZN3foo"] {
            assert_eq!(demangle(plain), None, "{plain}");
        }
    }

    /// Back-references of this scheme repeat their target in the output.
    #[test]
    fn a_rust_name_that_expands_too_far_stays_mangled() {
        // Each tuple contains the previous one twice: 2^40 elements.
        let mut name = String::from("_RINvC1a1f");
        let mut last = name.len() - 2;
        name.push_str("TuuE");
        for _ in 0..40 {
            let at = name.len() - 2;
            let back = to_base62(last);
            name.push_str(&format!("TB{back}B{back}E"));
            last = at;
        }
        name.push('E');
        assert_eq!(with(&name, true), Err(Mangled::TooMuch), "{name}");
        assert_eq!(demangle(&name), None);
    }

    /// `_` is 0, `0_` is 1.
    fn to_base62(n: usize) -> String {
        const DIGITS: &[u8] = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
        let Some(mut n) = n.checked_sub(1) else { return "_".into() };
        let mut digits = vec![b'_'];
        loop {
            digits.insert(0, DIGITS[n % 62]);
            n /= 62;
            if n == 0 {
                return String::from_utf8(digits).unwrap();
            }
        }
    }

    #[test]
    fn names_that_expand_too_far_are_counted() {
        let mut p = Profile::default();
        for name in [itanium::explosive(30).as_str(), "_ZN3foo3barEi", "_Z!", "main"] {
            let id = p.strings.intern(name);
            let readable = Demangler::default().readable(&mut p.strings, id);
            let function =
                profile::Function { name: readable, system_name: id, ..Default::default() };
            p.functions.push(function);
        }
        assert_eq!(p.str(p.functions[0].name), itanium::explosive(30));
        assert_eq!(refused(&p), 1);
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
