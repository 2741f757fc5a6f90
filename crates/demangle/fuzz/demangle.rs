//! Mangled names of all languages.

use bounded_demangle::{Detail, MAX_LENGTH, demangle, dlang, itanium, ocaml, rust};

/// Takes an input.
pub fn run(data: &[u8]) {
    let name = String::from_utf8_lossy(data);
    let all = [demangle, itanium::demangle, dlang::demangle, ocaml::demangle, rust::demangle];
    for demangle in all {
        for detail in [Detail::Name, Detail::Full] {
            if let Ok(text) = demangle(&name, detail) {
                // `@plt` is added to it.
                assert!(text.len() <= MAX_LENGTH + 4);
            }
        }
    }
}
