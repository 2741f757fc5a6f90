//! The stacks of a view one by one, as of pprof's `traces`.

use std::cmp::Ordering;

use super::mean::mean;
use super::{View, ViewSample};
use profile::{Label, TimesId};

/// A stack with labels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trace {
    /// Number of its sample in the profile.
    pub row: u32,
    /// Its value.
    pub value: i64,
}

/// Stacks, those of the largest values first, then in the order of the profile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Traces {
    /// The stacks that are shown.
    pub traces: Vec<Trace>,
    /// Their number before the limit.
    pub count: usize,
    /// Sum of the values of those that are shown.
    pub shown: i64,
}

/// The order of two stacks.
fn compare(a: &Trace, b: &Trace) -> Ordering {
    b.value.unsigned_abs().cmp(&a.value.unsigned_abs()).then(a.row.cmp(&b.row))
}

impl Traces {
    /// The first stacks of a view; `limit`: most of them, 0: all. The others are only counted.
    pub fn new(view: &View, limit: usize) -> Traces {
        let has_means = view.has_means();
        let trace = |sample: ViewSample<'_>| {
            let count = || view.profile.values_of(sample.row).first().copied().unwrap_or(0);
            let value = if has_means { mean(sample.value, count()) } else { sample.value };
            Trace { row: sample.row as u32, value }
        };
        let mut traces: Vec<Trace> = view.samples().map(trace).collect();
        let count = traces.len();
        if limit > 0 && limit < count {
            traces.select_nth_unstable_by(limit, compare);
            traces.truncate(limit);
            traces.shrink_to_fit();
        }
        traces.sort_unstable_by(compare);
        let shown = traces.iter().fold(0i64, |sum, trace| sum.saturating_add(trace.value));
        Traces { traces, count, shown }
    }
}

impl Trace {
    /// Its frames, innermost first; calls of a function by itself are one frame if the view has them
    /// so.
    pub fn frames<'v>(self, view: &'v View<'_>) -> impl Iterator<Item = u32> + 'v {
        let stack = view.profile.stacks.get(view.profile.samples[self.row as usize].stack);
        let none = stack.is_empty().then_some(view.frames.no_stack);
        let frames = stack.iter().flat_map(|&location| view.frames.at(location)).copied();
        let mut last = None;
        frames.chain(none).filter(move |&frame| {
            let is_repeated = last.replace(frame) == Some(frame);
            !(is_repeated && view.collapse_recursion)
        })
    }

    /// Its labels, in the order of the profile.
    pub fn labels<'v>(self, view: &'v View<'_>) -> &'v [Label] {
        view.profile.labels.get(view.profile.samples[self.row as usize].labels)
    }

    /// The times among which its value is divided, in microseconds since the begin of the profile;
    /// none if they are not known.
    pub fn times<'v>(self, view: &'v View<'_>) -> &'v [u64] {
        match view.profile.samples[self.row as usize].times {
            TimesId::NONE => &[],
            times => view.profile.times.get(times),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Granularity;
    use crate::testing::{answers, phases, processes};

    #[test]
    fn the_largest_stacks_are_first() {
        let p = answers();
        let view = View::new(&p, 1, Granularity::FUNCTION);
        let all = Traces::new(&view, 0);
        assert!(all.traces.is_sorted_by_key(|trace| std::cmp::Reverse(trace.value)));
        assert_eq!((all.count, all.shown), (all.traces.len(), view.total));
        let first = Traces::new(&view, 2);
        assert_eq!((first.count, &*first.traces), (all.count, &all.traces[..2]));
        let name = |frame: u32| view.frames.get(frame).display(&p).into_owned();
        let stacks = first.traces.iter().map(|trace| trace.frames(&view).map(name).collect());
        let stacks: Vec<Vec<String>> = stacks.collect();
        assert_eq!(stacks, [["bar", "foo1", "main"], ["bar", "foo2", "main"]]);
    }

    #[test]
    fn a_stack_has_its_labels_and_times() {
        let p = processes();
        let view = View::new(&p, 0, Granularity::FUNCTION);
        let traces = Traces::new(&view, 0).traces;
        assert!(traces.iter().any(|trace| !trace.labels(&view).is_empty()));
        assert!(traces.iter().all(|trace| trace.times(&view).is_empty()));
        let p = phases();
        let view = View::new(&p, 1, Granularity::FUNCTION);
        let traces = Traces::new(&view, 0).traces;
        assert!(traces.iter().any(|trace| !trace.times(&view).is_empty()));
    }
}
