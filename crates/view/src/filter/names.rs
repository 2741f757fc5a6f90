//! Filters by the names of frames: `focus`, `ignore`, `hide`, `show`, `show_from`, `binary`.

use profile::{LocationId, Profile};
use regex::Regex;

use super::matcher::Matcher;
use super::{Cancel, Condition, Filter, edit};

/// Applies the conditions on names, except `prune_from`.
pub fn filter(
    profile: &mut Profile,
    filter: &Filter,
    unmatched: &mut Vec<Condition>,
    cancel: &Cancel,
) {
    let locations = |regex: &Regex| Matcher::new(regex, profile, cancel).locations(profile);
    let focus = filter.focus.as_ref().map(locations);
    let ignore = filter.ignore.as_ref().map(locations);
    let binary = filter.binary.as_ref().map(|selector| selector.locations(profile));
    let hidden = hide_lines(profile, filter, unmatched, cancel);
    let show_from = filter.show_from.as_ref().map(|regex| cut_callers(profile, regex, cancel));
    let masks = [
        (&focus, Condition::Focus),
        (&ignore, Condition::Ignore),
        (&show_from, Condition::ShowFrom),
        (&binary, Condition::Binary),
    ];
    let missing =
        masks.into_iter().filter(|(mask, _)| misses(mask)).map(|(_, condition)| condition);
    unmatched.extend(missing);
    if cancel.is_canceled() {
        return;
    }

    let selected = |stack: &[LocationId]| {
        let any = |mask: &Vec<bool>| stack.iter().any(|l| mask[l.0 as usize]);
        focus.as_ref().is_none_or(any)
            && binary.as_ref().is_none_or(any)
            && !ignore.as_ref().is_some_and(any)
    };
    if hidden.is_none() && show_from.is_none() {
        let keep: Vec<bool> = (0..profile.stacks.len() as u32)
            .map(|i| selected(profile.stacks.get(profile::StackId(i))))
            .collect();
        edit::retain(profile, |sample| keep[sample.stack.0 as usize]);
        return;
    }
    edit::edit_stacks(profile, |stack, out| {
        if cancel.is_canceled() || !selected(stack) {
            return false;
        }
        let is_shown = |l: &LocationId| !hidden.as_ref().is_some_and(|mask| mask[l.0 as usize]);
        out.extend(stack.iter().copied().filter(is_shown));
        if out.is_empty() && (!stack.is_empty() || filter.show.is_some()) {
            return false;
        }
        let Some(mask) = &show_from else { return true };
        let outermost = out.iter().rposition(|l| mask[l.0 as usize]);
        outermost.is_some_and(|last| {
            out.truncate(last + 1);
            true
        })
    });
}

fn misses(mask: &Option<Vec<bool>>) -> bool {
    mask.as_ref().is_some_and(|mask| !mask.contains(&true))
}

/// Removes the lines that `hide` and `show` hide. For each location, whether none remained; `None`
/// without these conditions.
///
/// As in pprof, `show` hides a location without lines, even in a binary that matches.
fn hide_lines(
    profile: &mut Profile,
    filter: &Filter,
    unmatched: &mut Vec<Condition>,
    cancel: &Cancel,
) -> Option<Vec<bool>> {
    if filter.hide.is_none() && filter.show.is_none() {
        return None;
    }
    let mut hide = filter.hide.as_ref().map(|regex| Matcher::new(regex, profile, cancel));
    let mut show = filter.show.as_ref().map(|regex| Matcher::new(regex, profile, cancel));
    let mut all_lines = Vec::with_capacity(profile.lines.len());
    let mut hidden = vec![false; profile.locations.len()];
    let mut found_hidden = false;
    let mut found_shown = false;
    for (i, hidden) in hidden.iter_mut().enumerate() {
        let id = LocationId(i as u32);
        let first = all_lines.len();
        all_lines.extend_from_slice(profile.lines_of(id));
        if let Some(hide) = &mut hide
            && hide.location(profile, id)
        {
            found_hidden = true;
            if hide.binary(profile, id) {
                all_lines.truncate(first);
            } else {
                keep_lines(&mut all_lines, first, |line| !hide.line(profile, line));
            }
            *hidden = all_lines.len() == first;
        }
        if let Some(show) = &mut show {
            if !show.binary(profile, id) {
                keep_lines(&mut all_lines, first, |line| show.line(profile, line));
            }
            *hidden = all_lines.len() == first;
            found_shown |= !*hidden;
        }
        let location = &mut profile.locations[i];
        location.first_line = first as u32;
        location.line_count = (all_lines.len() - first) as u32;
    }
    profile.lines = all_lines;
    unmatched.extend((hide.is_some() && !found_hidden).then_some(Condition::Hide));
    unmatched.extend((show.is_some() && !found_shown).then_some(Condition::Show));
    Some(hidden)
}

/// Keeps the lines from `first` on for which `keep` is true.
fn keep_lines(
    lines: &mut Vec<profile::Line>,
    first: usize,
    mut keep: impl FnMut(&profile::Line) -> bool,
) {
    let mut end = first;
    for i in first..lines.len() {
        if keep(&lines[i]) {
            lines[end] = lines[i];
            end += 1;
        }
    }
    lines.truncate(end);
}

/// Removes the lines of callers of the outermost line that matches. For each location, whether one
/// does; all lines of a binary that matches remain.
fn cut_callers(profile: &mut Profile, regex: &Regex, cancel: &Cancel) -> Vec<bool> {
    let mut matcher = Matcher::new(regex, profile, cancel);
    let mut matched = vec![false; profile.locations.len()];
    edit::cut_lines(profile, |profile, id| {
        if matcher.binary(profile, id) {
            matched[id.0 as usize] = true;
            return None;
        }
        let lines = profile.lines_of(id);
        let last = lines.iter().rposition(|line| matcher.line(profile, line))?;
        matched[id.0 as usize] = true;
        Some(0..last + 1)
    });
    matched
}
