//! Removal of callees: `prune_from`, and the frames that a profile itself drops.

use profile::{LocationId, Profile, StrId};
use regex::{Regex, RegexBuilder};

use super::matcher::Matcher;
use super::{Cancel, edit};

/// Largest compiled size of an expression in a file.
const MAX_FOREIGN_REGEX: usize = 1 << 20;

/// Removes callees of the innermost frame whose function matches. Returns whether one does.
pub fn from(profile: &mut Profile, regex: &Regex, cancel: &Cancel) -> bool {
    let mut matcher = Matcher::for_part(regex, profile, without_parameters, cancel);
    let mut matched = vec![false; profile.locations.len()];
    edit::cut_lines(profile, |profile, id| {
        let lines = profile.lines_of(id);
        let first = lines.iter().position(|line| matcher.part_of_name(profile, line))?;
        matched[id.0 as usize] = true;
        Some(first..lines.len())
    });
    if !matched.contains(&true) {
        return false;
    }
    edit::edit_stacks(profile, |stack, out| {
        if cancel.is_canceled() {
            return false;
        }
        let first = stack.iter().position(|l| matched[l.0 as usize]).unwrap_or(0);
        out.extend_from_slice(&stack[first..]);
        true
    });
    true
}

/// A location with a dropped frame.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Dropped {
    No,
    /// All of its frames.
    Whole,
    /// Not its outermost frames.
    Inner,
}

/// Removes frames that match the profile's [`drop_frames`](Profile::drop_frames) and not its
/// `keep_frames`, with their callees, below the first frame that does not match, and both
/// expressions: what a filter puts below the root must not make them match again. As in pprof,
/// expressions that are none are ignored.
pub fn drop_uninteresting(profile: &mut Profile, cancel: &Cancel) {
    let whole = |id: StrId| {
        let text = format!("^({})$", profile.str(id));
        RegexBuilder::new(&text).size_limit(MAX_FOREIGN_REGEX).build()
    };
    if profile.drop_frames == StrId::EMPTY {
        return;
    }
    let Ok(drop) = whole(profile.drop_frames) else { return };
    let keep = match profile.keep_frames {
        StrId::EMPTY => None,
        keep => match whole(keep) {
            Ok(keep) => Some(keep),
            Err(_) => return,
        },
    };
    let mut drop = Matcher::for_part(&drop, profile, without_parameters, cancel);
    let mut keep = keep.as_ref().map(|r| Matcher::for_part(r, profile, without_parameters, cancel));
    let mut dropped = vec![Dropped::No; profile.locations.len()];
    edit::cut_lines(profile, |profile, id| {
        let lines = profile.lines_of(id);
        let outermost = lines.iter().rposition(|line| {
            drop.part_of_name(profile, line)
                && !keep.as_mut().is_some_and(|keep| keep.part_of_name(profile, line))
        })?;
        if outermost + 1 == lines.len() {
            dropped[id.0 as usize] = Dropped::Whole;
            return None;
        }
        dropped[id.0 as usize] = Dropped::Inner;
        Some(outermost + 1..lines.len())
    });
    (profile.drop_frames, profile.keep_frames) = (StrId::EMPTY, StrId::EMPTY);
    if dropped.iter().all(|&d| d == Dropped::No) {
        return;
    }
    edit::edit_stacks(profile, |stack, out| {
        if cancel.is_canceled() {
            return false;
        }
        out.extend_from_slice(&stack[first_kept(stack, &dropped)..]);
        true
    });
    edit::add_up(profile);
}

/// Index of the innermost frame of a stack that is not dropped. Frames before the first one that is
/// not dropped, counted from the root, remain, so that no stack loses all.
fn first_kept(stack: &[LocationId], dropped: &[Dropped]) -> usize {
    let class = |l: &LocationId| dropped[l.0 as usize];
    let Some(user) = stack.iter().rposition(|l| class(l) == Dropped::No) else { return 0 };
    match stack[..user].iter().rposition(|l| class(l) != Dropped::No) {
        Some(i) if class(&stack[i]) == Dropped::Whole => i + 1,
        Some(i) => i,
        None => 0,
    }
}

/// A function's name without its parameters, as pprof simplifies it.
pub(crate) fn without_parameters(name: &str) -> &str {
    const RESERVED: [&str; 2] = ["(anonymous namespace)", "operator()"];
    // The entry points of PowerPC begin with a dot.
    let name = name.strip_prefix('.').unwrap_or(name);
    let mut at = 0;
    while let Some(found) = name[at..].find(['(', 'o']) {
        at += found;
        match RESERVED.iter().find(|reserved| name[at..].starts_with(**reserved)) {
            Some(reserved) => at += reserved.len(),
            None if name[at..].starts_with('(') => return &name[..at],
            None => at += 1,
        }
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_cut_off() {
        for (name, part) in [
            ("main", "main"),
            (".main", "main"),
            ("f(int)", "f"),
            ("(anonymous namespace)::f(int)", "(anonymous namespace)::f"),
            ("A::operator()(int) const", "A::operator()"),
            ("foo(anonymous namespace)(x)", "foo(anonymous namespace)"),
            ("main.(*T).Run", "main."),
            ("", ""),
        ] {
            assert_eq!(without_parameters(name), part);
        }
    }
}
