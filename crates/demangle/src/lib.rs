#![doc = include_str!("../README.md")]

pub mod dlang;
pub mod itanium;
pub mod ocaml;
pub mod rust;

use std::error::Error;
use std::fmt;

/// Longest demangled name in bytes. A mangled name of a few bytes can expand to gigabytes.
pub const MAX_LENGTH: usize = 16 << 10;

/// How much of a name is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Detail {
    /// The name alone: functions lose their parameters and return types, and what compilers add to
    /// distinguish equal names.
    #[default]
    Name,
    /// All of it.
    Full,
}

/// Cause of a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DemangleError {
    /// The name is not mangled, or damaged.
    NotMangled,
    /// The demangled name would be longer than [`MAX_LENGTH`], or take too many steps.
    TooLong,
}

impl fmt::Display for DemangleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            DemangleError::NotMangled => "not a mangled name",
            DemangleError::TooLong => "the demangled name is too long",
        })
    }
}

impl Error for DemangleError {}

/// True if `name` looks like a mangled name of C++, Rust, D or OCaml.
pub fn is_mangled(name: &str) -> bool {
    name.starts_with("_Z")
        || name.starts_with("_R")
        || dlang::is_mangled(name)
        || ocaml::is_mangled(name)
}

/// Demangles a name of any of these languages, which it begins with a sign of.
///
/// # Errors
///
/// The name is not mangled, or its demangled form is too long.
///
/// ```
/// use bounded_demangle::{DemangleError, Detail, demangle};
///
/// assert_eq!(demangle("_ZNSt6thread4joinEv", Detail::Full).unwrap(), "std::thread::join()");
/// assert_eq!(demangle("main", Detail::Full), Err(DemangleError::NotMangled));
/// ```
pub fn demangle(name: &str, detail: Detail) -> Result<String, DemangleError> {
    // A stub that jumps to the function is not the function.
    match name.strip_suffix("@plt") {
        Some(function) => plain(function, detail).map(|readable| readable + "@plt"),
        None => plain(name, detail),
    }
}

fn plain(name: &str, detail: Detail) -> Result<String, DemangleError> {
    if dlang::is_mangled(name) {
        return dlang::demangle(name, detail);
    }
    if ocaml::is_mangled(name) {
        return ocaml::demangle(name, detail);
    }
    if !is_mangled(name) {
        return Err(DemangleError::NotMangled);
    }
    match rust::demangle(name, detail) {
        Err(DemangleError::NotMangled) if name.starts_with("_Z") => itanium::demangle(name, detail),
        done => done,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_all_languages_become_readable() {
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
            assert_eq!(demangle(mangled, Detail::Name).as_deref(), Ok(readable), "{mangled}");
        }
        for plain in ["main", "", "_Z", "_R", "_Z!", "runtime.mallocgc", "_ZN3foo", "@plt"] {
            let found = demangle(plain, Detail::Name);
            assert_eq!(found, Err(DemangleError::NotMangled), "{plain}");
        }
    }

    #[test]
    fn a_long_row_of_suffixes_does_not_overflow_the_stack() {
        for start in ["_Z1fv", "_RNvCs1234_7mycrate3foo", "_D1a1fFZv", "camlA__f_1", "main"] {
            let name = format!("{start}{}", "@plt".repeat(1 << 20));
            let _ = demangle(&name, Detail::Full);
        }
    }
}
