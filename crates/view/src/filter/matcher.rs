//! Regular expressions on the strings of a profile, each of which is matched only once.

use profile::{Function, Line, LocationId, Profile, StrId};
use regex::Regex;

use super::Cancel;

/// A regular expression, and its results.
pub struct Matcher<'r> {
    regex: &'r Regex,
    matches: Vec<Option<bool>>,
    part: fn(&str) -> &str,
    simplified: Vec<Option<bool>>,
    /// After it, no further string matches.
    cancel: &'r Cancel,
}

impl<'r> Matcher<'r> {
    /// A matcher for the strings of `profile`.
    pub fn new(regex: &'r Regex, profile: &Profile, cancel: &'r Cancel) -> Matcher<'r> {
        let matches = vec![None; profile.strings.len()];
        Matcher { regex, matches, part: |name| name, simplified: Vec::new(), cancel }
    }

    /// The same for function names of which only the part that `part` returns is matched.
    pub fn for_part(
        regex: &'r Regex,
        profile: &Profile,
        part: fn(&str) -> &str,
        cancel: &'r Cancel,
    ) -> Matcher<'r> {
        let simplified = vec![None; profile.strings.len()];
        Matcher { regex, matches: Vec::new(), part, simplified, cancel }
    }

    /// Whether a string matches.
    pub fn string(&mut self, profile: &Profile, id: StrId) -> bool {
        let Matcher { regex, cancel, .. } = *self;
        let matches = || !cancel.is_canceled() && regex.is_match(profile.str(id));
        *self.matches[id.0 as usize].get_or_insert_with(matches)
    }

    /// Whether the function of a line has a name and its part matches.
    pub fn part_of_name(&mut self, profile: &Profile, line: &Line) -> bool {
        let name = name(&profile.functions[line.function.0 as usize]);
        let Matcher { regex, cancel, part, .. } = *self;
        let matches = || !cancel.is_canceled() && regex.is_match(part(profile.str(name)));
        name != StrId::EMPTY && *self.simplified[name.0 as usize].get_or_insert_with(matches)
    }

    /// Whether the function or source file of a line matches.
    pub fn line(&mut self, profile: &Profile, line: &Line) -> bool {
        let function = &profile.functions[line.function.0 as usize];
        self.string(profile, name(function)) || self.string(profile, function.filename)
    }

    /// Whether the binary of a location matches.
    pub fn binary(&mut self, profile: &Profile, location: LocationId) -> bool {
        let mapping = profile.locations[location.0 as usize].mapping;
        mapping.is_some_and(|m| self.string(profile, profile.mappings[m.0 as usize].file))
    }

    /// Whether the binary or a line of a location matches.
    pub fn location(&mut self, profile: &Profile, location: LocationId) -> bool {
        profile.lines_of(location).iter().any(|line| self.line(profile, line))
            || self.binary(profile, location)
    }

    /// For each location, whether it matches.
    pub fn locations(&mut self, profile: &Profile) -> Vec<bool> {
        let ids = (0..profile.locations.len() as u32).map(LocationId);
        ids.map(|id| self.location(profile, id)).collect()
    }
}

/// The name of a function, mangled if there is no other.
fn name(function: &Function) -> StrId {
    if function.name == StrId::EMPTY { function.system_name } else { function.name }
}
