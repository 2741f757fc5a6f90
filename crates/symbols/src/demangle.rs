//! Demangles names, each distinct name once.

use rustc_hash::FxHashMap;

pub use bounded_demangle::is_mangled;
use bounded_demangle::{DemangleError, Detail};
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

/// Demangles a name; `None` if it is not mangled, or damaged, or its demangled form is too long.
///
/// Functions lose their parameters and return types, as in pprof: they are in `system_name`.
pub fn demangle(name: &str) -> Option<String> {
    bounded_demangle::demangle(name, Detail::Name).ok()
}

/// As [`demangle`], with parameters, return types and hashes.
pub fn full(name: &str) -> Option<String> {
    bounded_demangle::demangle(name, Detail::Full).ok()
}

/// Number of functions of `profile` that stay mangled because their demangled names are too long.
pub fn refused(profile: &Profile) -> usize {
    let refused = |f: &&profile::Function| {
        let demangled = || bounded_demangle::demangle(profile.str(f.name), Detail::Name);
        f.name == f.system_name && demangled() == Err(DemangleError::TooLong)
    };
    profile.functions.iter().filter(refused).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_expand_too_far_are_counted() {
        let mut p = Profile::default();
        let long = format!("camlA__{}", "f".repeat(bounded_demangle::MAX_LENGTH));
        for name in [long.as_str(), "_ZN3foo3barEi", "_Z!", "main"] {
            let id = p.strings.intern(name);
            let readable = Demangler::default().readable(&mut p.strings, id);
            let function =
                profile::Function { name: readable, system_name: id, ..Default::default() };
            p.functions.push(function);
        }
        assert_eq!(p.str(p.functions[0].name), long);
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
