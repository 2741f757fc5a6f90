//! Which of the user's frames a native frame executes.
//!
//! Each call of the evaluation function, `rb_vm_exec`, executes the control frames up to one with the
//! flag FINISH. It has a tag in its native frame, where exceptions return to: these tags are its
//! anchors. Tags are a list, in the order of the native stack; those of other functions (`rb_ensure`,
//! `rb_protect`) go on elsewhere (the address that `__builtin_setjmp` stores). Stripped files have the
//! symbol, too: `rb_vm_exec` is exported, as code of Ruby's C compiler (MJIT) calls it. What it calls to
//! execute instructions (`vm_exec_core`) is inside of it, and has no name there.
//!
//! The innermost evaluation may have no frame yet or any more, as frames are made before the call and
//! left before it returns. If both lists are complete, this shows as a difference of one. If frames
//! are missing at the outer end, it cannot be seen: then native frames are shown up to the innermost
//! evaluation only, and the user's frames behind them.
//!
//! C functions of an evaluation are inside of its Ruby code. One of them has all native frames that
//! are inside of the evaluation. If there are several, which one has which is not known: the outer ones
//! have the inner ones' native frames, too. This would put code of C extensions into the wrong C
//! function; so only the outermost is shown where there is such code.

use super::Ruby;
use super::compiled;
use super::frames::{Chain, Part, decode};
use crate::merge::{Merge, NativeStack, Place, Run, Runs, merge as merge_runs};
use crate::walk::{Status, WalkCopy};
use crate::{ChainEnd, Runtime, UserFrame};

pub(super) fn merge(
    ruby: &Ruby,
    copies: &[WalkCopy],
    native: &NativeStack,
    frames: &mut Vec<UserFrame>,
) -> Merge {
    let chain = decode(ruby, copies, compiled::innermost(ruby, native), frames);
    let tags = tags(ruby, copies);
    let is_same = copies.len() == 2 && copies[0].object == copies[1].object;
    let parts = match chain.end {
        ChainEnd::Damaged => return Merge::Mismatch,
        ChainEnd::Nothing => Vec::new(),
        ChainEnd::Complete if is_same && tags.is_complete => match pair(&chain, &tags) {
            Some(parts) => parts,
            None => return Merge::Mismatch,
        },
        _ => return innermost(ruby, &chain, &tags, native),
    };
    let whole =
        parts.iter().map(|(part, tag)| Run { frames: part.frames.clone(), anchor: Some(*tag) });
    let runs = Runs {
        whole: whole.collect(),
        compiled_by: Some(ruby.symbols.image.clone()),
        ..Runs::default()
    };
    let merged = merge_runs(native, &runs, |frame| evaluates(ruby, &tags, native, frame));
    let Merge::Stack { mut places, unmatched } = merged else { return Merge::Mismatch };
    add_outer_functions(ruby, &chain, native, &mut places);
    for part in parts.iter().map(|(part, _)| *part).chain([&chain.rest]) {
        drop_inner_functions(ruby, part, native, &mut places);
    }
    Merge::Stack { places, unmatched }
}

/// True if frames and evaluations of a thread that does not run fit.
pub(super) fn is_consistent(ruby: &Ruby, copies: &[WalkCopy]) -> bool {
    let chain = decode(ruby, copies, None, &mut Vec::new());
    let tags = tags(ruby, copies);
    chain.end != ChainEnd::Complete
        || !tags.is_complete
        || pair(&chain, &tags).is_some_and(|parts| !parts.is_empty())
}

/// Tags of evaluations, the innermost first.
pub(super) struct Tags {
    /// Their addresses.
    evaluations: Vec<u64>,
    is_complete: bool,
}

fn tags(ruby: &Ruby, copies: &[WalkCopy]) -> Tags {
    let (Some(copy), Some(walk)) = (copies.get(1), ruby.walks.get(1)) else {
        return Tags { evaluations: Vec::new(), is_complete: false };
    };
    let evaluations = copy.frames(walk).filter(|tag| ruby.evaluates(tag.word(0)));
    Tags {
        evaluations: evaluations.map(|tag| tag.address).collect(),
        is_complete: matches!(copy.status, Status::Complete | Status::Nothing),
    }
}

/// The evaluations of a complete chain, each with its tag, the innermost first.
fn pair<'a>(chain: &'a Chain, tags: &Tags) -> Option<Vec<(&'a Part, u64)>> {
    let (mut parts, mut tags) = (&chain.parts[..], &tags.evaluations[..]);
    match (parts, tags) {
        // A frame whose evaluation has not begun.
        ([first, rest @ ..], _) if rest.len() == tags.len() && first.all == 1 => parts = rest,
        // An evaluation that has left its frames.
        (_, [_, rest @ ..]) if rest.len() == parts.len() => tags = rest,
        _ => {}
    }
    (parts.len() == tags.len()).then(|| parts.iter().zip(tags.iter().copied()).collect())
}

/// True for native frames that execute Ruby code.
fn evaluates(ruby: &Ruby, tags: &Tags, native: &NativeStack, frame: usize) -> bool {
    let NativeStack { frames, .. } = native;
    ruby.evaluates(frames[frame].address)
        || tags.evaluations.iter().any(|tag| frames[frame].stack.contains(tag))
}

/// A chain of which callers are missing: native frames up to the innermost evaluation, and the user's.
fn innermost(ruby: &Ruby, chain: &Chain, tags: &Tags, native: &NativeStack) -> Merge {
    let parts = chain.parts.iter().chain([&chain.rest]);
    let tag = tags.evaluations.first();
    let end =
        native.frames.iter().position(|frame| tag.is_some_and(|tag| frame.stack.contains(tag)));
    let end = match end {
        Some(end) => end,
        None if native.is_complete || tag.is_none() => return Merge::Mismatch,
        None => native.frames.len(),
    };
    let inside = |frame: &usize| evaluates(ruby, tags, native, *frame);
    let unmatched = (0..end).filter(inside).count();
    let mut places: Vec<Place> = (0..end).map(Place::Native).collect();
    if end == native.frames.len() {
        places.push(Place::Truncated);
    }
    let first = chain.parts.first().filter(|part| part.all == 1 && unmatched > 0);
    // A frame whose evaluation has begun, but has no tag yet.
    let skipped = first.map_or(0, |part| part.frames.len());
    places
        .extend(parts.clone().flat_map(|part| part.frames.clone()).skip(skipped).map(Place::User));
    places.push(Place::Truncated);
    if let Some(part) = chain.parts.first().or(Some(&chain.rest)) {
        drop_inner_functions(ruby, part, native, &mut places);
    }
    Merge::Stack { places, unmatched }
}

/// Adds the C functions that no evaluation executes: the native code that calls the interpreter has
/// called them.
fn add_outer_functions(ruby: &Ruby, chain: &Chain, native: &NativeStack, places: &mut Vec<Place>) {
    let users = chain.rest.frames.clone().map(Place::User);
    if chain.end != ChainEnd::Complete || users.len() == 0 {
        return;
    }
    let is_own = |place: &Place| match place {
        Place::Native(frame) => ruby.symbols.image.contains(&native.frames[*frame].address),
        Place::Evaluation(_) | Place::Truncated | Place::User(_) => true,
    };
    let at = places.iter().rposition(is_own).map_or(0, |last| last + 1);
    places.splice(at..at, users);
}

/// Drops C functions of an evaluation which may not be callers of the native frames that are inside of
/// them.
fn drop_inner_functions(ruby: &Ruby, part: &Part, native: &NativeStack, places: &mut Vec<Place>) {
    let first = places.iter().position(|place| *place == Place::User(part.frames.start));
    let (Some(first), true) = (first, part.c_frames > 1 && part.c_functions > 0) else { return };
    let inside = places[..first].iter().rev().map_while(|place| match place {
        Place::Native(frame) => Some(&native.frames[*frame]),
        _ => None,
    });
    // From the outermost to the innermost.
    let is_other =
        |frame: &&crate::merge::NativeFrame| !ruby.symbols.image.contains(&frame.address);
    let mut inside = inside.skip_while(|frame| !is_other(frame)).skip_while(is_other);
    if inside.next().is_none() {
        return;
    }
    let kept = usize::from(part.ends_in_c_function);
    let dropped = part.frames.start..part.frames.start + part.c_functions - kept;
    places.retain(|place| !matches!(place, Place::User(frame) if dropped.contains(frame)));
}
