//! What threads did, as the label `state` of their samples says.

use rustc_hash::FxHashMap;

use super::View;
use profile::{LabelSetId, LabelValue, ThreadState, label};

/// Index in [`ByState`] of what has no known state.
const OTHER: usize = ThreadState::ALL.len();

/// A value by [`ThreadState`]; that of what has none comes last.
pub type ByState = [i64; OTHER + 1];

/// The state of each set of labels, as an index of [`ByState`].
pub struct States(FxHashMap<LabelSetId, usize>);

impl States {
    /// Of the samples of `view`; `None`: no sample says what its thread did.
    pub fn of(view: &View) -> Option<States> {
        let profile = view.profile;
        let key = profile.strings.find(label::STATE)?;
        let mut states = FxHashMap::default();
        let mut known = false;
        for sample in view.samples() {
            states.entry(sample.labels).or_insert_with(|| {
                let state = match profile.labels.value(sample.labels, key) {
                    Some(LabelValue::Str(name)) => ThreadState::from_name(profile.str(name)),
                    _ => None,
                };
                known |= state.is_some();
                state.map_or(OTHER, |state| state as usize)
            });
        }
        known.then_some(States(states))
    }

    /// The state of samples with these labels.
    pub fn get(&self, labels: LabelSetId) -> usize {
        self.0.get(&labels).copied().unwrap_or(OTHER)
    }

    /// The values of all samples of `view` by state.
    pub fn values(&self, view: &View) -> ByState {
        let mut sums = ByState::default();
        for sample in view.samples() {
            let sum = &mut sums[self.get(sample.labels)];
            *sum = sum.saturating_add(sample.value);
        }
        sums
    }
}
