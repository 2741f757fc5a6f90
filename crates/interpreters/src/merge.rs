//! The user's frames among the native ones of the same sample.
//!
//! A native frame of the interpreter's evaluation function executes a run of the user's frames. An
//! *anchor* of a run lies on the native stack, in the frame of its evaluation: so it is found which
//! run belongs to which native frame, whatever other code has called whatever else in between.

use std::ops::Range;

/// A native frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NativeFrame {
    /// Its instruction pointer, or a return address.
    pub address: u64,
    /// Its part of the stack: from its stack pointer to its caller's.
    pub stack: Range<u64>,
    /// It is of run-time code, which the interpreter may have compiled.
    pub is_run_time: bool,
}

/// The native stack of a sample.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NativeStack {
    /// Frames, the innermost first.
    pub frames: Vec<NativeFrame>,
    /// It ends with the outermost frame; otherwise it is truncated.
    pub is_complete: bool,
    /// Of [`CompiledCode::Called`](crate::CompiledCode::Called): the code of the innermost frame of
    /// run-time code.
    pub code: Option<CodeBefore>,
}

/// Code before the address of a native frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CodeBefore {
    /// The number of the frame.
    pub frame: usize,
    /// Its address is that to which a call returns.
    pub is_return: bool,
    /// Bytes up to the address; `None`: they cannot be read.
    pub bytes: Option<[u8; CodeBefore::SIZE]>,
}

impl CodeBefore {
    /// Bytes that are read.
    pub const SIZE: usize = 128;
}

/// A place in a merged stack. The numbers count from the innermost frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// A native frame.
    Native(usize),
    /// A native frame of the interpreter, which the user's frames before it stand in for.
    Evaluation(usize),
    /// A frame of the user's.
    User(usize),
    /// Callers are missing here. The user's frames after it, if any, are callers of these.
    Truncated,
}

/// How the user's frames and native ones fit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Merge {
    /// All frames, the innermost first.
    Stack {
        /// Native frames and the user's.
        places: Vec<Place>,
        /// Evaluations whose frames are unknown: they remain native. The innermost one may not have
        /// a frame yet, or no frame any more; others belong to another interpreter.
        unmatched: usize,
    },
    /// They are not of the same stack: the native one is to be shown, and that it does not match.
    Mismatch,
}

/// A run of the user's frames that one evaluation executes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    /// The user's frames, by number.
    pub frames: Range<usize>,
    /// Address on the native stack inside of the evaluation's frame; `None` if the interpreter has
    /// none.
    pub anchor: Option<u64>,
}

/// The runs of a sample, the innermost first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Runs {
    /// Whole runs: all with an anchor, or none; then they are counted from the outermost one.
    pub whole: Vec<Run>,
    /// The first frames of one more run, whose rest was not copied. It belongs to the evaluation
    /// around the others.
    pub open: Range<usize>,
    /// There are more runs, which were not copied.
    pub has_more: bool,
    /// Code that the interpreter has compiled is called by its evaluations, or by its own functions in
    /// this range that these call.
    pub compiled_by: Option<Range<u64>>,
}

impl Runs {
    /// Number of frames of whole runs.
    pub fn frames(&self) -> usize {
        self.whole.iter().map(|run| run.frames.len()).sum()
    }
}

/// Merges runs with native frames, both with the innermost first. `evaluates` is true for native
/// frames of the evaluation function, by number.
pub(crate) fn merge(native: &NativeStack, runs: &Runs, evaluates: impl Fn(usize) -> bool) -> Merge {
    let evaluations: Vec<usize> = (0..native.frames.len()).filter(|i| evaluates(*i)).collect();
    let whole = &runs.whole;
    let owners = if whole.iter().all(|run| run.anchor.is_some()) {
        owners_by_anchor(native, whole, &evaluations)
    } else {
        owners_by_count(native, whole, &evaluations)
    };
    match owners {
        Some(owners) => lay_out(native, runs, &evaluations, owners),
        None => Merge::Mismatch,
    }
}

/// Puts runs in the places of their evaluations. `owners` are the native frames of the first runs, in
/// order, among `evaluations`; the other runs lie beyond the end of the native stack.
pub(crate) fn lay_out(
    native: &NativeStack,
    runs: &Runs,
    evaluations: &[usize],
    mut owners: Vec<usize>,
) -> Merge {
    let mut frames: Vec<Range<usize>> = runs.whole.iter().map(|run| run.frames.clone()).collect();
    let mut is_cut = owners.len() < frames.len();
    // Compiled code is inside of its evaluation, where nothing leads on.
    if let Some(last) = native.frames.len().checked_sub(1)
        && runs.compiled_by.is_some()
        && is_cut
        && native.frames[last].is_run_time
        && owners.last().is_none_or(|owner| *owner < last)
    {
        owners.push(last);
        is_cut = owners.len() < frames.len();
    }
    if !runs.open.is_empty() {
        frames.push(runs.open.clone());
        let after = |frame: &&usize| owners.last().is_none_or(|last| *frame > last);
        match evaluations.iter().find(after) {
            Some(frame) if !is_cut => owners.push(*frame),
            _ if native.is_complete => return Merge::Mismatch,
            _ => is_cut = true,
        }
    }
    // Native callers of frames that were not copied have no known place among them.
    let ends = !is_cut && (runs.has_more || !runs.open.is_empty());
    let end = owners.last().filter(|_| ends).map_or(native.frames.len(), |last| last + 1);
    let mut places = Vec::new();
    let mut next = 0;
    for frame in 0..end {
        if owners.get(next) == Some(&frame) {
            places.extend(frames[next].clone().map(Place::User));
            places.push(Place::Evaluation(frame));
            next += 1;
        } else {
            places.push(Place::Native(frame));
        }
    }
    if is_cut || ends {
        places.push(Place::Truncated);
    }
    places.extend(frames[owners.len()..].iter().cloned().flatten().map(Place::User));
    if let Some(callers) = &runs.compiled_by {
        replace_compiled(native, callers, &mut places);
    }
    let is_met = |frame: &&usize| **frame < end && owners.binary_search(frame).is_err();
    Merge::Stack { places, unmatched: evaluations.iter().filter(is_met).count() }
}

/// Puts the user's frames before the compiled code that executes the innermost of them: a function in C
/// that they call is called by that code. `callers` are the interpreter's functions.
fn replace_compiled(native: &NativeStack, callers: &Range<u64>, places: &mut [Place]) {
    /// Most functions of the interpreter between its evaluation and compiled code.
    const MOST_CALLERS: usize = 2;
    let is_caller = |place: &Place| match place {
        Place::Native(frame) => callers.contains(&native.frames[*frame].address),
        _ => false,
    };
    for at in 0..places.len() {
        let Place::Native(frame) = places[at] else { continue };
        if !native.frames[frame].is_run_time {
            continue;
        }
        let rest = &places[at + 1..];
        let between = rest.iter().take(MOST_CALLERS).take_while(|place| is_caller(place)).count();
        let users = rest[between..].iter().take_while(|place| matches!(place, Place::User(_)));
        let users = users.count();
        if users > 0 {
            places[at..=at + between + users].rotate_left(between + 1);
            places[at + users] = Place::Evaluation(frame);
        }
    }
}

/// The native frames of runs, in order, without those of runs that lie beyond a truncated stack.
/// `None`: they are not of one stack.
type Owners = Option<Vec<usize>>;

fn owners_by_anchor(native: &NativeStack, runs: &[Run], evaluations: &[usize]) -> Owners {
    let mut owners = Vec::new();
    let mut candidates = evaluations.iter();
    for (number, run) in runs.iter().enumerate() {
        let anchor = run.anchor?;
        // Runs and frames have the same order.
        match candidates.find(|frame| native.frames[**frame].stack.contains(&anchor)) {
            Some(frame) => owners.push(*frame),
            None => {
                let beyond = runs[number..].iter().map(|run| run.anchor);
                return is_beyond(native, beyond).then_some(owners);
            }
        }
    }
    Some(owners)
}

/// True if the native stack is truncated, and these addresses lie beyond its end, in order.
fn is_beyond(native: &NativeStack, anchors: impl Iterator<Item = Option<u64>>) -> bool {
    let Some(last) = native.frames.last() else { return false };
    let mut end = last.stack.end;
    !native.is_complete
        && anchors.flatten().all(|anchor| {
            let is_outside = anchor >= end;
            end = anchor.saturating_add(1);
            is_outside
        })
}

/// Without anchors, the outermost run belongs to the outermost evaluation, and so on. Only the
/// innermost evaluation may have no frame of the user's.
fn owners_by_count(native: &NativeStack, runs: &[Run], evaluations: &[usize]) -> Owners {
    let extra = evaluations.len().checked_sub(runs.len())?;
    (native.is_complete && extra <= 1).then(|| evaluations[extra..].to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Native frames of 16 bytes each from address 100.
    fn native(count: u64, is_complete: bool) -> NativeStack {
        let frame =
            |i| NativeFrame { address: i, stack: 100 + 16 * i..116 + 16 * i, is_run_time: false };
        NativeStack { frames: (0..count).map(frame).collect(), is_complete, code: None }
    }

    fn run(frames: Range<usize>, anchor: impl Into<Option<u64>>) -> Run {
        Run { frames, anchor: anchor.into() }
    }

    use Place::{Evaluation, Native, Truncated, User};

    fn whole(runs: &[Run]) -> Runs {
        Runs { whole: runs.to_vec(), ..Runs::default() }
    }

    #[test]
    fn each_run_is_in_the_frame_that_holds_its_anchor() {
        let evaluates = |frame| [1, 3, 4].contains(&frame);
        let runs = [run(0..2, 120), run(2..3, 170)];
        let places =
            vec![Native(0), User(0), User(1), Evaluation(1), Native(2), Native(3), User(2)];
        let expected =
            Merge::Stack { places: [places, vec![Evaluation(4)]].concat(), unmatched: 1 };
        assert_eq!(merge(&native(5, true), &whole(&runs), evaluates), expected);
    }

    #[test]
    fn a_run_without_a_frame_is_a_mismatch() {
        let evaluates = |frame| frame % 2 == 1;
        // In a frame that does not evaluate; in the wrong order; outside of the stack.
        for anchors in [[104, 150], [150, 120], [120, 500]] {
            let runs = [run(0..1, anchors[0]), run(1..2, anchors[1])];
            assert_eq!(
                merge(&native(4, true), &whole(&runs), evaluates),
                Merge::Mismatch,
                "{anchors:?}"
            );
        }
    }

    #[test]
    fn callers_beyond_a_truncated_stack_are_kept_if_their_anchors_are() {
        let evaluates = |frame| frame == 1;
        let runs =
            |anchors: [u64; 2]| [run(0..1, 116), run(1..3, anchors[0]), run(3..4, anchors[1])];
        let merged = merge(&native(2, false), &whole(&runs([200, 300])), evaluates);
        let places = vec![Native(0), User(0), Evaluation(1), Truncated, User(1), User(2), User(3)];
        assert_eq!(merged, Merge::Stack { places, unmatched: 0 });
        assert_eq!(merge(&native(2, false), &whole(&runs([300, 200])), evaluates), Merge::Mismatch);
        assert_eq!(merge(&native(2, false), &whole(&runs([120, 200])), evaluates), Merge::Mismatch);
    }

    #[test]
    fn without_anchors_runs_are_counted_from_the_outermost() {
        let evaluates = |frame| frame != 0;
        let runs = [run(0..1, None), run(1..2, None)];
        let places = vec![Native(0), Native(1), User(0), Evaluation(2), User(1), Evaluation(3)];
        let merged = merge(&native(4, true), &whole(&runs), evaluates);
        assert_eq!(merged, Merge::Stack { places, unmatched: 1 });
        let mismatch =
            |native: NativeStack| merge(&native, &whole(&runs), evaluates) == Merge::Mismatch;
        assert!(mismatch(native(5, true)) && mismatch(native(2, true)));
        assert!(mismatch(native(4, false)));
    }

    #[test]
    fn an_open_run_belongs_to_the_evaluation_around_the_others_and_ends_the_stack() {
        let evaluates = |frame| frame % 2 == 1;
        let runs =
            Runs { whole: vec![run(0..1, 120)], open: 1..3, has_more: true, ..Runs::default() };
        let places =
            [User(0), Evaluation(1), Native(2), User(1), User(2), Evaluation(3), Truncated];
        let places = [&[Native(0)], &places[..]].concat();
        let merged = merge(&native(6, true), &runs, evaluates);
        assert_eq!(merged, Merge::Stack { places, unmatched: 0 });
        // Its evaluation is beyond a truncated stack, or missing.
        let places =
            vec![Native(0), User(0), Evaluation(1), Native(2), Truncated, User(1), User(2)];
        let merged = merge(&native(3, false), &runs, evaluates);
        assert_eq!(merged, Merge::Stack { places, unmatched: 0 });
        assert_eq!(merge(&native(3, true), &runs, evaluates), Merge::Mismatch);
    }

    #[test]
    fn compiled_code_is_where_the_functions_are_that_it_executes() {
        let evaluates = |frame| frame == 2;
        let compiled = |count, is_complete| {
            let mut native = native(count, is_complete);
            native.frames[1].is_run_time = true;
            native
        };
        let runs = |runs: &[Run]| Runs { compiled_by: Some(3..4), ..whole(runs) };
        let own = [run(0..2, 132)];
        let merged = merge(&compiled(4, true), &runs(&own), evaluates);
        let places = vec![Native(0), User(0), User(1), Evaluation(1), Evaluation(2), Native(3)];
        assert_eq!(merged, Merge::Stack { places, unmatched: 0 });
        // It is unknown how to leave it: the first run is its own, the rest is beyond.
        let beyond = [run(0..2, 200), run(2..3, 300)];
        let merged = merge(&compiled(2, false), &runs(&beyond), evaluates);
        let places = vec![Native(0), User(0), User(1), Evaluation(1), Truncated, User(2)];
        assert_eq!(merged, Merge::Stack { places, unmatched: 0 });
        // The evaluation has called a function of the interpreter, which has called it.
        let mut native = compiled(5, true);
        native.frames[2].address = 3;
        let merged = merge(&native, &runs(&[run(0..2, 148)]), |frame| frame == 3);
        let places = [User(0), User(1), Evaluation(1), Native(2), Evaluation(3), Native(4)];
        let places = [&[Native(0)], &places[..]].concat();
        assert_eq!(merged, Merge::Stack { places, unmatched: 0 });
        native.frames[2].address = 2;
        let merged = merge(&native, &runs(&[run(0..2, 148)]), |frame| frame == 3);
        let places = [Native(1), Native(2), User(0), User(1), Evaluation(3), Native(4)];
        let places = [&[Native(0)], &places[..]].concat();
        assert_eq!(merged, Merge::Stack { places, unmatched: 0 });
        // Other interpreters call run-time code of others.
        let merged = merge(&compiled(4, true), &whole(&own), evaluates);
        let places = vec![Native(0), Native(1), User(0), User(1), Evaluation(2), Native(3)];
        assert_eq!(merged, Merge::Stack { places, unmatched: 0 });
    }
}
