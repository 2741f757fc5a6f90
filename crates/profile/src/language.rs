//! Languages whose functions have no addresses.

use super::{Mapping, Profile};

/// A language with an interpreter, whose functions are in a mapping of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Language {
    /// Python, of CPython.
    Python,
    /// Ruby, of MRI.
    Ruby,
    /// PHP.
    Php,
    /// JavaScript, of V8.
    JavaScript,
    /// Java and other languages, of HotSpot.
    Java,
}

impl Language {
    /// All of them.
    pub const ALL: [Language; 5] =
        [Language::Python, Language::Ruby, Language::Php, Language::JavaScript, Language::Java];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Language::Python => "Python",
            Language::Ruby => "Ruby",
            Language::Php => "PHP",
            Language::JavaScript => "JavaScript",
            Language::Java => "Java",
        }
    }

    /// The file of the mapping that has its functions. Part of the file format.
    pub fn mapping(self) -> &'static str {
        match self {
            Language::Python => "[python]",
            Language::Ruby => "[ruby]",
            Language::Php => "[php]",
            Language::JavaScript => "[javascript]",
            Language::Java => "[java]",
        }
    }

    /// The language whose functions a mapping has.
    pub fn in_mapping(profile: &Profile, mapping: &Mapping) -> Option<Language> {
        let file = profile.str(mapping.file);
        Language::ALL.into_iter().find(|language| language.mapping() == file)
    }
}
