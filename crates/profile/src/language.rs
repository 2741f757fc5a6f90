//! Languages whose functions have no addresses.

use super::{Mapping, Profile};

/// A language with an interpreter, whose functions are in a mapping of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Language {
    /// Python, of CPython.
    Python,
}

impl Language {
    /// All of them.
    pub const ALL: [Language; 1] = [Language::Python];

    /// The file of the mapping that has its functions. Part of the file format.
    pub fn mapping(self) -> &'static str {
        match self {
            Language::Python => "[python]",
        }
    }

    /// The language whose functions a mapping has.
    pub fn in_mapping(profile: &Profile, mapping: &Mapping) -> Option<Language> {
        let file = profile.str(mapping.file);
        Language::ALL.into_iter().find(|language| language.mapping() == file)
    }
}
