//! What the tests of these formats have in common.

use profile::Profile;

use crate::{FORMATS, Format, WriteOptions, collapsed::Collapsed};

/// The profile of a text that only this format detects.
pub(super) fn read(format: &dyn Format, text: &str) -> Profile {
    let found = FORMATS.iter().find(|format| format.detect(text.as_bytes())).unwrap();
    assert_eq!(found.name(), format.name(), "{text}");
    format.read(&mut text.as_bytes()).unwrap()
}

/// The error about a text.
pub(super) fn error(format: &dyn Format, text: &str) -> String {
    format.read(&mut text.as_bytes()).unwrap_err().to_string()
}

/// The stacks of a profile as text, with the values of the default type.
pub(super) fn folded(profile: &Profile) -> String {
    let mut out = Vec::new();
    let options = WriteOptions { type_index: profile.default_type_index() };
    Collapsed.writer().unwrap()(profile, &options, &mut out).unwrap();
    String::from_utf8(out).unwrap()
}
