//! Thread states, from the label `state` of samples.

use rustc_hash::FxHashMap;

use super::View;
use profile::{LabelSetId, LabelValue, ThreadState, label};

/// Index in [`ByState`] for other or missing states.
const OTHER: usize = ThreadState::ALL.len();

/// Values by [`ThreadState`]; the last is for other or missing states.
pub type ByState = [i64; OTHER + 1];

/// The state of each set of labels, as an index of [`ByState`].
pub struct States(FxHashMap<LabelSetId, usize>);

impl States {
    /// States of the samples of `view`; `None` if no sample has one.
    pub fn new(view: &View) -> Option<States> {
        let profile = view.profile;
        let key = profile.strings.find(label::STATE)?;
        let mut states = FxHashMap::default();
        let mut has_states = false;
        for sample in view.samples() {
            states.entry(sample.labels).or_insert_with(|| {
                let state = match profile.labels.value(sample.labels, key) {
                    Some(LabelValue::Str(name)) => ThreadState::from_name(profile.str(name)),
                    _ => None,
                };
                has_states |= state.is_some();
                state.map_or(OTHER, |state| state as usize)
            });
        }
        has_states.then_some(States(states))
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
