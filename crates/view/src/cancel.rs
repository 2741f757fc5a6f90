//! An early end of computations.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

#[cfg(any(test, feature = "testing"))]
use std::sync::atomic::AtomicUsize;

/// Samples, frames or nodes between two checks.
pub(crate) const STEPS: usize = if cfg!(test) { 1 } else { 256 };

/// A signal that the result of a computation is no longer needed.
///
/// A [`View`](super::View) carries it to the models that are computed from it. These then end early
/// with a result that is consistent, but incomplete. As a signal is never withdrawn, a result is
/// complete if [`Cancel::is_canceled`] is false after its computation.
#[derive(Clone, Debug, Default)]
pub struct Cancel(Option<Arc<Signal>>);

#[derive(Debug, Default)]
struct Signal {
    is_canceled: AtomicBool,
    #[cfg(any(test, feature = "testing"))]
    counted: Option<Counted>,
}

/// Checks of a signal.
#[cfg(any(test, feature = "testing"))]
#[derive(Debug)]
struct Counted {
    /// Those before it is given.
    before: usize,
    /// Those so far.
    checks: AtomicUsize,
}

impl Cancel {
    /// A signal that can be given. The default one never is.
    pub fn new() -> Cancel {
        Cancel(Some(Arc::default()))
    }

    /// Gives the signal, to all clones of it.
    pub fn cancel(&self) {
        if let Some(signal) = &self.0 {
            signal.is_canceled.store(true, Ordering::Relaxed);
        }
    }

    /// True after the signal.
    #[inline]
    pub fn is_canceled(&self) -> bool {
        let Some(signal) = &self.0 else { return false };
        #[cfg(any(test, feature = "testing"))]
        if let Some(Counted { before, checks }) = &signal.counted
            && checks.fetch_add(1, Ordering::Relaxed) >= *before
        {
            self.cancel();
        }
        signal.is_canceled.load(Ordering::Relaxed)
    }
}

#[cfg(any(test, feature = "testing"))]
impl Cancel {
    /// A signal that gives itself after this many checks.
    pub fn after(checks: usize) -> Cancel {
        let counted = Some(Counted { before: checks, checks: AtomicUsize::new(0) });
        Cancel(Some(Arc::new(Signal { counted, ..Signal::default() })))
    }

    /// The number of checks of a signal that counts them.
    pub fn checks(&self) -> usize {
        self.counted().map_or(0, |counted| counted.checks.load(Ordering::Relaxed))
    }

    /// The number of these after the signal was given.
    pub fn late_checks(&self) -> usize {
        self.counted().map_or(0, |counted| self.checks().saturating_sub(counted.before))
    }

    fn counted(&self) -> Option<&Counted> {
        self.0.as_ref()?.counted.as_ref()
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::*;
    use crate::testing::*;
    use crate::*;
    use profile::{Column, Label, LabelValue, Profile, StrId};

    /// Computes all models of a profile until the signal, and a filter.
    fn compute_all(profile: &Profile, cancel: &Cancel) {
        compute_models(profile, cancel);
        let filter = Filter {
            focus: "a|e".parse().ok(),
            hide: "^f".parse().ok(),
            prune_from: "b".parse().ok(),
            tag_root: vec!["process".to_owned(), "state".to_owned()],
            ..Filter::default()
        };
        filter.apply_until(profile.clone(), cancel);
    }

    /// Computes all models of a profile until the signal.
    fn compute_models(profile: &Profile, cancel: &Cancel) {
        let at = |granularity| View::cancelable(profile, 0, granularity, cancel);
        let labels = vec!["process".to_owned(), "state".to_owned()];
        let by_label = TopOptions { labels: labels.clone(), ..TopOptions::default() };
        let mut view = at(Granularity::FUNCTION);
        for options in [&TopOptions::default(), &by_label] {
            Top::new(&view, options);
            let types: Vec<usize> = (0..profile.sample_types.len()).collect();
            let request = ColumnRequest { types: types.clone(), ..ColumnRequest::default() };
            Columns::new(&view, options, &request);
            let over = OverOptions { interval: 1_000_000, most: 60, top: options.clone() };
            Over::by_type(&view, &over, &types);
        }
        Coverage::new(&view);
        Quality::new(&view, &TopOptions::default());
        Threads::each(&view);
        ThreadStates::new(&view);
        Graph::new(&view, NodeOrder::Drawing, Trim { nodes: 2, ..Trim::NOTHING });
        Peek::new(&view, &[0]);
        let frames: Vec<u32> = (0..view.frames.len() as u32).collect();
        Sandwich::new(&view, &frames[..1], Cut::Nothing);
        let roots: Vec<_> = labels.iter().filter_map(|key| profile.strings.find(key)).collect();
        for direction in [Direction::Callees, Direction::Callers] {
            let states = States::new(&view);
            let tree = match states {
                Some(states) => {
                    Tree::with_states(&mut view, direction, &roots, Cut::Nothing, states)
                }
                None => Tree::new(&mut view, direction, &roots, Cut::Nothing),
            };
            let order = Siblings::Name;
            let ordered = Ordered::cancelable(&tree, &view.frames, profile, order, cancel);
            assert_eq!(ordered.nodes().len(), tree.nodes.len());
            Boxes::new(&view, &tree, &BoxOptions::default());
        }
        let view = at(Granularity::LINES);
        if let Ok(Some(selection)) = source::Selection::find(&view, ".") {
            source::Source::new(&view, &selection);
        }
        let mut sides = [at(Granularity::FUNCTION), at(Granularity::FUNCTION)];
        let [before, after] = &mut sides;
        let (before, after) = (std::slice::from_mut(before), std::slice::from_mut(after));
        Diff::new(before, after, &DiffOptions { labels: labels.clone(), ..DiffOptions::default() });
        DiffTree::new(before, after, Direction::Callees, &labels);
    }

    #[test]
    fn every_model_ends_at_any_check() {
        let profiles = [answers(), phases(), frames_profile(), processes(), snapshot(), states()];
        for (number, profile) in profiles.iter().chain([&Profile::default()]).enumerate() {
            for checks in 0.. {
                let cancel = Cancel::after(checks);
                let result = catch_unwind(AssertUnwindSafe(|| compute_all(profile, &cancel)));
                assert!(result.is_ok(), "profile {number}, after {checks} checks");
                if !cancel.is_canceled() {
                    break;
                }
            }
        }
    }

    /// Samples with many frames, values of two types, labels and times.
    fn many_samples() -> Profile {
        let mut b = profile::Builder::new(&[("samples", "count"), ("cpu", "nanoseconds")]);
        let functions: Vec<_> = (0..97).map(|i| b.named_location(&format!("f{i}"))).collect();
        let keys = ["process", "state"].map(|key| b.profile.strings.intern(key));
        for sample in 0..500 {
            let label = |key| {
                let value = LabelValue::Num { value: sample % 5, unit: StrId::EMPTY };
                Label { key, value }
            };
            let labels = b.profile.labels.intern(&keys.map(label));
            let stack: Vec<_> =
                (0..9).map(|i| functions[(sample as usize * (i + 1)) % 97]).collect();
            b.add(&stack, labels, 1, &[]);
            b.add(&stack, labels, 1, &[(Column(1), 7)]);
        }
        let mut p = b.finish(None);
        for row in 0..p.samples.len() {
            p.samples[row].times = p.times.push([row as u64 * 10_000].into_iter());
        }
        p
    }

    #[test]
    fn few_checks_follow_the_signal() {
        let profile = many_samples();
        for checks in (0..).step_by(997) {
            let cancel = Cancel::after(checks);
            compute_models(&profile, &cancel);
            if !cancel.is_canceled() {
                break;
            }
            assert!(cancel.late_checks() < 100, "{} after {checks}", cancel.late_checks());
        }
    }

    #[test]
    fn a_canceled_view_has_no_further_samples() {
        let profile = answers();
        let cancel = Cancel::new();
        let view = View::cancelable(&profile, 0, Granularity::FUNCTION, &cancel);
        assert_eq!(view.samples().count(), 5);
        assert_eq!(view.samples().inspect(|_| cancel.cancel()).count(), 1);
        assert_eq!(Top::new(&view, &TopOptions::default()).rows, []);
        assert!(cancel.is_canceled() && !Cancel::default().is_canceled());
    }
}
