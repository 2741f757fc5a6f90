//! Selection of a thread, a process or a binary.

use profile::{LabelSetId, LabelValue, Mapping, Profile};
use regex::Regex;

use crate::binaries::base_name;

/// A name, an id, or a regular expression for names, if nothing has this name or id.
#[derive(Clone, Debug)]
pub struct Selector {
    text: String,
    /// `None`: the text is not a regular expression.
    regex: Option<Regex>,
}

impl Selector {
    /// The selector of this text.
    pub fn new(text: &str) -> Selector {
        Selector { text: text.to_owned(), regex: Regex::new(text).ok() }
    }

    /// The text.
    pub fn text(&self) -> &str {
        &self.text
    }

    fn matches(&self, name: &str) -> bool {
        self.regex.as_ref().is_some_and(|regex| regex.is_match(name))
    }

    /// For each set of labels, whether it is selected by the labels `name` and `id`.
    pub(super) fn label_sets(&self, profile: &Profile, name: &str, id: &str) -> Vec<bool> {
        let name = profile.strings.find(name);
        let id = profile.strings.find(id);
        let sets = || (0..profile.labels.len() as u32).map(LabelSetId);
        let value = |set, key: Option<_>| key.and_then(|key| profile.labels.value(set, key));
        let is_it = |value| match value {
            Some(LabelValue::Str(text)) => profile.str(text) == self.text,
            Some(LabelValue::Num { value, .. }) => value.to_string() == self.text,
            None => false,
        };
        let exact: Vec<bool> =
            sets().map(|set| is_it(value(set, name)) || is_it(value(set, id))).collect();
        if exact.contains(&true) {
            return exact;
        }
        let by_name = |set| match value(set, name) {
            Some(LabelValue::Str(text)) => self.matches(profile.str(text)),
            _ => false,
        };
        sets().map(by_name).collect()
    }

    /// For each location, whether it is in a selected binary.
    pub(super) fn locations(&self, profile: &Profile) -> Vec<bool> {
        let is_it = |mapping: &Mapping| {
            let file = profile.str(mapping.file);
            [file, base_name(file), profile.str(mapping.build_id)].contains(&self.text.as_str())
        };
        let mut mappings: Vec<bool> = profile.mappings.iter().map(is_it).collect();
        if !mappings.contains(&true) {
            let by_name = |mapping: &Mapping| self.matches(profile.str(mapping.file));
            mappings = profile.mappings.iter().map(by_name).collect();
        }
        let selected = |mapping: Option<profile::MappingId>| {
            mapping.is_some_and(|mapping| mappings[mapping.0 as usize])
        };
        profile.locations.iter().map(|location| selected(location.mapping)).collect()
    }
}
