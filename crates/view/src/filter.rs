//! pprof's filters: samples by `focus` and `ignore`, frames by `show` and `hide`.

use regex::Regex;

use super::Frames;
use profile::{Line, MappingId, Profile, StrId};

/// Selection of a profile's samples and frames. A frame matches a regular expression if its
/// function's name, its source file or its binary's path does.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    /// Only samples with a frame that matches.
    pub focus: Option<Regex>,
    /// No samples with a frame that matches.
    pub ignore: Option<Regex>,
    /// Only frames that match.
    pub show: Option<Regex>,
    /// No frames that match.
    pub hide: Option<Regex>,
}

/// Matches interned strings, each only once.
struct Matcher<'a> {
    regex: &'a Regex,
    matches: Vec<Option<bool>>,
}

impl<'a> Matcher<'a> {
    fn new(regex: &'a Regex, profile: &Profile) -> Matcher<'a> {
        Matcher { regex, matches: vec![None; profile.strings.len()] }
    }

    fn string(&mut self, profile: &Profile, id: StrId) -> bool {
        let regex = self.regex;
        id != StrId::EMPTY
            && *self.matches[id.0 as usize].get_or_insert_with(|| regex.is_match(profile.str(id)))
    }

    fn line(&mut self, profile: &Profile, line: &Line) -> bool {
        let function = &profile.functions[line.function.0 as usize];
        let name = if function.name == StrId::EMPTY { function.system_name } else { function.name };
        self.string(profile, name) || self.string(profile, function.filename)
    }

    fn mapping(&mut self, profile: &Profile, mapping: Option<MappingId>) -> bool {
        mapping.is_some_and(|m| self.string(profile, profile.mappings[m.0 as usize].file))
    }

    /// For each location, true if one of its frames matches.
    fn locations(&mut self, profile: &Profile) -> Vec<bool> {
        let mut matches = |i: usize| {
            let lines = profile.lines_of(profile::LocationId(i as u32));
            self.mapping(profile, profile.locations[i].mapping)
                || lines.iter().any(|l| self.line(profile, l))
        };
        (0..profile.locations.len()).map(&mut matches).collect()
    }
}

impl Filter {
    /// True if it can hide frames.
    pub fn hides(&self) -> bool {
        self.show.is_some() || self.hide.is_some()
    }

    /// For each line of a location (or the location itself, if it has none), true if it is hidden.
    pub(super) fn hidden_lines<'a>(
        &'a self,
        profile: &'a Profile,
    ) -> impl FnMut(Option<MappingId>, Option<&Line>) -> bool + 'a {
        let mut show = self.show.as_ref().map(|r| Matcher::new(r, profile));
        let mut hide = self.hide.as_ref().map(|r| Matcher::new(r, profile));
        move |mapping, line| {
            let mut matches = |m: &mut Matcher| {
                m.mapping(profile, mapping) || line.is_some_and(|l| m.line(profile, l))
            };
            hide.as_mut().is_some_and(&mut matches) || !show.as_mut().is_none_or(&mut matches)
        }
    }

    /// For each stack, true if it is shown; `None`: all are.
    pub(super) fn keep_stacks(&self, profile: &Profile, frames: &Frames) -> Option<Vec<bool>> {
        if self.focus.is_none() && self.ignore.is_none() && !self.hides() {
            return None;
        }
        let locations = |r: &Regex| Matcher::new(r, profile).locations(profile);
        let focus = self.focus.as_ref().map(locations);
        let ignore = self.ignore.as_ref().map(locations);
        let keep = |i: usize| {
            let stack = profile.stacks.get(profile::StackId(i as u32));
            let any = |set: &Vec<bool>| stack.iter().any(|l| set[l.0 as usize]);
            focus.as_ref().is_none_or(any)
                && !ignore.as_ref().is_some_and(any)
                && (!self.hides() || stack.iter().any(|&l| !frames.of(l).is_empty()))
        };
        Some((0..profile.stacks.len()).map(keep).collect())
    }
}
