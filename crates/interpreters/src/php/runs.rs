//! Which evaluation executes which frames.
//!
//! An evaluation executes the frames up to one that it began with (`ZEND_CALL_TOP`), with the functions
//! in C that those have called. What calls a function from C code puts its result in a variable of its
//! own, and up to 8.2 has a frame without a function: such an address on the native stack lies in a
//! frame between the evaluation and the one around it. The code of the first file has none: it is in
//! the outermost evaluation. Runs between two whose evaluations are known are counted.
//!
//! An evaluation that leaves its last function has no frame any more, while variables are freed. If
//! that may be any of several, nothing is merged.

use std::ops::Range;

use super::Php;
use super::frames::{Chain, Link, decode};
use crate::merge::{Merge, NativeStack, Run, Runs, lay_out};
use crate::{ChainEnd, Copied, Runtime, UserFrame};

/// The frames of an evaluation.
#[derive(Debug)]
struct Evaluated {
    frames: Range<usize>,
    /// Addresses that may lie on the native stack, in a frame outside of the evaluation.
    outside: Vec<u64>,
    /// It is known to be the outermost one of its native stack.
    is_outermost: bool,
}

/// The runs of a chain.
struct Split {
    /// Those of the native stack.
    own: Vec<Evaluated>,
    /// The first frames of one more, whose rest was not copied.
    open: Range<usize>,
    /// Frames beyond the root of a fiber.
    beyond: Range<usize>,
}

pub(super) fn merge(
    php: &Php,
    copied: Copied<'_>,
    native: &NativeStack,
    frames: &mut Vec<UserFrame>,
) -> Merge {
    let chain = decode(php, copied);
    frames.extend(chain.frames.iter().map(|frame| frame.user));
    if chain.end == ChainEnd::Damaged {
        return Merge::Mismatch;
    }
    let mut split = split(&chain);
    let evaluates = |i: &usize| php.evaluates(native.frames[*i].address);
    let evaluations: Vec<usize> = (0..native.frames.len()).filter(evaluates).collect();
    // A function that is about to be evaluated has a frame, but has done nothing yet.
    let is_about_to_begin = |run: &Evaluated| {
        run.frames.len() == 1 && anchored(run, native, &evaluations) == Anchor::NotBegun
    };
    if split.own.first().is_some_and(is_about_to_begin) {
        split.own.remove(0);
    }
    let Some(owners) = owners(&chain, &split, native, &evaluations) else {
        return Merge::Mismatch;
    };
    let run = |frames: &Range<usize>| Run { frames: frames.clone(), anchor: None };
    let mut whole: Vec<Run> = split.own.iter().map(|own| run(&own.frames)).collect();
    whole.extend(Some(&split.beyond).filter(|frames| !frames.is_empty()).map(run));
    let has_more = !matches!(chain.end, ChainEnd::Complete | ChainEnd::Nothing);
    let runs =
        Runs { whole, open: split.open, has_more, compiled_by: Some(php.symbols.image.clone()) };
    lay_out(native, &runs, &evaluations, owners)
}

/// Splits a chain at the frames that evaluations began with, and at the root of a fiber.
fn split(chain: &Chain) -> Split {
    let count = chain.frames.len();
    let mut own: Vec<Evaluated> = Vec::new();
    let mut start = 0;
    for link in &chain.links {
        match link {
            Link::Function(number) => {
                let frame = &chain.frames[*number];
                if frame.user.is_entry {
                    let frames = start..number + 1;
                    start = frames.end;
                    let outside = vec![frame.result];
                    own.push(Evaluated { frames, outside, is_outermost: frame.is_main });
                }
            }
            // Those inside of an evaluation are calls of functions in C by its functions in C.
            Link::Dummy(address) => {
                if let Some(last) = own.last_mut().filter(|last| last.frames.end == start) {
                    last.outside.push(*address);
                }
            }
            Link::FiberRoot => {
                if let Some(last) = own.last_mut() {
                    last.is_outermost = true;
                }
                return Split { own, open: 0..0, beyond: start..count };
            }
        }
    }
    // Functions in C that nothing has called, such as those at the end of a program, are in none.
    let open = if chain.end == ChainEnd::Complete { 0..0 } else { start..count };
    Split { own, open, beyond: 0..0 }
}

/// The native frames of runs, from the innermost to the last one that has one; `None` if they are not
/// known.
fn owners(
    chain: &Chain,
    split: &Split,
    native: &NativeStack,
    evaluations: &[usize],
) -> Option<Vec<usize>> {
    let mut known: Vec<Option<usize>> = Vec::new();
    for run in &split.own {
        known.push(match anchored(run, native, evaluations) {
            Anchor::Evaluation(place) => Some(place),
            Anchor::Unknown => None,
            Anchor::NotBegun => return None,
        });
    }
    let is_in_evaluation = evaluations.first() == Some(&0);
    if is_in_evaluation && chain.has_registers && known.first() == Some(&None) {
        known[0] = Some(0);
    }
    if let (Some(last), Some(place)) = (split.own.last(), known.last_mut())
        && last.is_outermost
        && native.is_complete
    {
        let outermost = evaluations.len().checked_sub(1)?;
        place.get_or_insert(outermost);
    }
    let mut places: Vec<usize> = Vec::new();
    while places.len() < known.len() {
        let from = places.last().map_or(0, |last| last + 1);
        let rest = &known[places.len()..];
        let open = rest.iter().take_while(|place| place.is_none()).count();
        let is_bounded = open < rest.len() || native.is_complete && split.open.is_empty();
        let to = rest.get(open).copied().flatten().unwrap_or(evaluations.len());
        let gap = to.checked_sub(from)?;
        let is_leaving = places.is_empty() && is_in_evaluation && !chain.has_registers;
        match gap.checked_sub(open) {
            // Those of runs that are known are in between.
            _ if open == 0 => {}
            Some(0) if is_bounded => places.extend(from..to),
            // The innermost one has no frame.
            Some(1) if is_bounded && is_leaving => places.extend(from + 1..to),
            _ if !is_bounded && gap == 0 => break,
            _ => return None,
        }
        if let Some(place) = rest.get(open).copied().flatten() {
            places.push(place);
        }
    }
    let is_in_order = places.windows(2).all(|pair| pair[0] < pair[1]);
    let is_whole = places.len() == split.own.len() || !native.is_complete;
    (is_in_order && is_whole).then(|| places.iter().map(|place| evaluations[*place]).collect())
}

/// What is known of the evaluation of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Anchor {
    /// Its place among the evaluations.
    Evaluation(usize),
    /// No address of the run is on the native stack.
    Unknown,
    /// No evaluation is inside of the frame that has its address.
    NotBegun,
}

/// The evaluation of a run, by an address in a native frame outside of it: the next one inside of that.
fn anchored(run: &Evaluated, native: &NativeStack, evaluations: &[usize]) -> Anchor {
    let holder = |address: &u64| native.frames.iter().position(|f| f.stack.contains(address));
    let Some(holder) = run.outside.iter().find_map(holder) else { return Anchor::Unknown };
    match evaluations.iter().rposition(|evaluation| *evaluation < holder) {
        Some(inside) => Anchor::Evaluation(inside),
        None => Anchor::NotBegun,
    }
}
