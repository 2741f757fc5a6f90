//! Which evaluation executes which frames.
//!
//! | version | an evaluation executes | its anchor |
//! |---|---|---|
//! | up to 3.9 | one frame | none |
//! | 3.10 | one frame | its C frame; the outermost C frame is in the thread state |
//! | 3.11 | frames up to one with a mark | the same |
//! | 3.12, 3.13 | frames up to one that lies on the C stack | that frame |

use std::ops::Range;

use super::frames::{Link, decode};
use super::{CFrames, Cpython};
use crate::merge::{Merge, NativeStack, Run, Runs, merge as merge_runs};
use crate::walk::{Status, WalkCopy};
use crate::{ChainEnd, Runtime, UserFrame};
use sys::arch;

/// Most bytes of the evaluation function within which it links its frame into the list of frames. 3.11
/// and 3.12 link the C frame first, whose pointer to the innermost frame is garbage until it is set
/// (in GCC's code 48 to 174 bytes after the beginning): it may be a frame that was left long ago.
const PROLOGUE: u64 = 192;

/// Largest evaluation function whose code is read, in bytes; that of 3.12 has 51 KiB.
const MAX_CODE: u64 = 256 << 10;

/// Bytes of the evaluation function before that with which it begins each of its frames, if it is
/// entered or not: the first one to which the rest of the function jumps. That is where calls of a
/// Python function by another one go on, much of the time.
///
/// `code` begins with the function, and may have more.
pub(super) fn prologue(code: &[u8], function: Option<&Range<u64>>) -> u64 {
    let size = function.map_or(0, |function| (function.end - function.start).min(MAX_CODE));
    first_target(arch::jumps(&code[..code.len().min(size as usize)]))
}

fn first_target(jumps: impl Iterator<Item = (usize, i64)>) -> u64 {
    let outside = jumps.filter(|(at, _)| *at as u64 >= PROLOGUE);
    let targets = outside.filter_map(|(_, target)| u64::try_from(target).ok());
    targets.filter(|target| *target > 0).fold(PROLOGUE, u64::min)
}

pub(super) fn merge(
    cpython: &Cpython,
    copies: &[WalkCopy],
    native: &NativeStack,
    frames: &mut Vec<UserFrame>,
) -> Merge {
    let start = frames.len();
    let chain = decode(cpython, copies, frames);
    let frames = &frames[start..];
    let runs = match chain.end {
        ChainEnd::Damaged => None,
        ChainEnd::Nothing => Some(Runs::default()),
        end => {
            let is_complete = end == ChainEnd::Complete;
            match (cpython.offsets.c_frames, cpython.offsets.frame_owner) {
                (Some(c_frames), _) => {
                    let c_frames = CFrameList::new(cpython, copies, c_frames);
                    c_frames.and_then(|list| list.runs(frames, is_complete))
                }
                (None, Some(_)) => Some(runs_by_anchors(&chain.links, frames.len())),
                (None, None) => Some(runs_of_one(frames.len(), is_complete)),
            }
        }
    };
    let Some(mut runs) = runs else { return Merge::Mismatch };
    runs.has_more = !matches!(chain.end, ChainEnd::Complete | ChainEnd::Nothing);
    if cpython.begins_evaluation(native) {
        drop_innermost(&mut runs, native);
    }
    merge_runs(native, &runs, |frame| cpython.evaluates(native.frames[frame].address))
}

/// True if the list of C frames ends in the thread state, or the version has none.
pub(super) fn ends_in_thread_state(cpython: &Cpython, copies: &[WalkCopy]) -> bool {
    cpython.offsets.c_frames.is_none_or(|members| {
        CFrameList::new(cpython, copies, members).is_some_and(|list| list.is_complete)
    })
}

/// True if frames and evaluations of a thread that does not run end at the same places.
pub(super) fn is_consistent(cpython: &Cpython, copies: &[WalkCopy]) -> bool {
    let mut frames = Vec::new();
    let chain = decode(cpython, copies, &mut frames);
    let is_complete = chain.end == ChainEnd::Complete;
    match (cpython.offsets.c_frames, cpython.offsets.frame_owner) {
        (Some(c_frames), _) => {
            let list = CFrameList::new(cpython, copies, c_frames);
            list.is_some_and(|list| {
                let runs = list.runs(&frames, is_complete);
                let covers = runs.is_some_and(|runs| runs.frames() == frames.len());
                !is_complete || list.is_complete && covers
            })
        }
        (None, Some(_)) => !is_complete || matches!(chain.links.last(), Some(Link::Anchor(_))),
        (None, None) => true,
    }
}

impl Cpython {
    /// True if the innermost frame has just begun an evaluation, in versions of which it may have no
    /// valid frame then.
    fn begins_evaluation(&self, native: &NativeStack) -> bool {
        let entry = self.symbols.evaluation.first().map_or(0, |part| part.start);
        let leaf = native.frames.first().map_or(0, |frame| frame.address);
        let is_behind_c_frame = matches!(self.offsets.minor, 11 | 12);
        is_behind_c_frame && leaf.wrapping_sub(entry) < self.symbols.prologue
    }
}

/// Drops the run of the innermost native frame.
fn drop_innermost(runs: &mut Runs, native: &NativeStack) {
    let stack = native.frames.first().map_or(0..0, |frame| frame.stack.clone());
    match runs.whole.first() {
        Some(run) if run.anchor.is_some_and(|anchor| stack.contains(&anchor)) => {
            runs.whole.remove(0);
        }
        Some(_) => {}
        None => runs.open = 0..0,
    }
}

/// Up to 3.9. If frames are missing at the outer end, which evaluation has which is unknown: then there
/// are none.
fn runs_of_one(count: usize, is_complete: bool) -> Runs {
    let run = |frame| Run { frames: frame..frame + 1, anchor: None };
    let count = if is_complete { count } else { 0 };
    Runs { whole: (0..count).map(run).collect(), ..Runs::default() }
}

/// 3.12 and later: frames up to an anchor.
fn runs_by_anchors(links: &[Link], count: usize) -> Runs {
    let mut whole = Vec::new();
    let mut start = 0;
    let mut end = 0;
    for link in links {
        match link {
            Link::User(frame) => end = frame + 1,
            Link::Anchor(address) => {
                whole.push(Run { frames: start..end, anchor: Some(*address) });
                start = end;
            }
        }
    }
    Runs { whole, open: start..count, ..Runs::default() }
}

/// The list of C frames of a sample.
struct CFrameList {
    /// Address of each, and of the innermost frame of its evaluation (3.11), without the outermost
    /// one, which is no evaluation's.
    evaluations: Vec<(u64, Option<u64>)>,
    is_complete: bool,
}

impl CFrameList {
    /// `None` if it does not end in the thread state, or was not copied from there.
    fn new(cpython: &Cpython, copies: &[WalkCopy], members: CFrames) -> Option<CFrameList> {
        /// Larger than a thread state.
        const THREAD_STATE: u64 = 4096;
        let ([frames, copy], walk) = (copies, cpython.walks.get(1)?) else { return None };
        let current = members.current.map(|at| (at - at.min(members.previous)) as usize);
        let all = copy.frames(walk).map(|frame| (frame.address, current.map(|at| frame.word(at))));
        let mut evaluations: Vec<(u64, Option<u64>)> = all.collect();
        // What follows it is undefined in 3.10.
        let is_last = |address: u64| address.wrapping_sub(copy.object) < THREAD_STATE;
        let last = evaluations.iter().position(|(address, _)| is_last(*address));
        evaluations.truncate(last.unwrap_or(evaluations.len()));
        let is_complete = last.is_some();
        if !is_complete && copy.status == Status::Complete {
            return None;
        }
        let is_same = frames.object == copy.object;
        is_same.then_some(CFrameList { evaluations, is_complete })
    }

    fn runs(&self, frames: &[UserFrame], is_complete: bool) -> Option<Runs> {
        let has_current = self.evaluations.first().is_some_and(|(_, current)| current.is_some());
        if has_current {
            self.runs_by_current(frames)
        } else {
            self.runs_by_count(frames, is_complete)
        }
    }

    /// 3.11: each C frame has the innermost frame of its evaluation; the outermost is marked.
    fn runs_by_current(&self, frames: &[UserFrame]) -> Option<Runs> {
        let mut runs = Runs::default();
        let mut start = 0;
        for (address, current) in &self.evaluations {
            if start == frames.len() {
                break;
            }
            if frames[start].address != (*current)? {
                return None;
            }
            let rest = &frames[start..];
            let Some(length) = rest.iter().position(|frame| frame.is_entry) else {
                runs.open = start..frames.len();
                return Some(runs);
            };
            let run: Range<usize> = start..start + length + 1;
            start = run.end;
            runs.whole.push(Run { frames: run, anchor: Some(*address) });
        }
        (start == frames.len() || !self.is_complete).then_some(runs)
    }

    /// 3.10: one frame each. At the beginning of an evaluation, its C frame comes first; at its end,
    /// it goes first.
    fn runs_by_count(&self, frames: &[UserFrame], is_complete: bool) -> Option<Runs> {
        let (count, others) = (frames.len(), self.evaluations.len());
        let (first, first_c) = match (is_complete && self.is_complete, count.abs_diff(others)) {
            (true, 0) | (false, _) => (0, 0),
            (true, 1) if count > others => (1, 0),
            (true, 1) => (0, 1),
            (true, _) => return None,
        };
        let pairs = (first..count).zip(&self.evaluations[first_c..]);
        let run = |(frame, (address, _)): (usize, &(u64, _))| Run {
            frames: frame..frame + 1,
            anchor: Some(*address),
        };
        Some(Runs { whole: pairs.map(run).collect(), ..Runs::default() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prologue_ends_where_the_rest_of_the_function_jumps_to() {
        assert_eq!(first_target([].into_iter()), PROLOGUE);
        // A jump within the prologue, and one out of the function.
        let others = [(30, 20), (400, 0), (500, 600), (700, -5)];
        assert_eq!(first_target(others.into_iter()), PROLOGUE);
        let both = others.into_iter().chain([(300, 118), (310, 135)]);
        assert_eq!(first_target(both), 118);
    }
}
