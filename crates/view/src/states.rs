//! What threads did, as the label `state` of their samples says.

use rustc_hash::FxHashMap;

use super::View;
use profile::{LabelSetId, LabelValue};

/// The states that are told apart, in the order in which they are shown.
pub const STATES: [&str; 5] = ["running", "runnable", "sleeping", "disk", "stopped"];

/// A value by state; what has none of [`STATES`] comes last.
pub type ByState = [i64; STATES.len() + 1];

/// The state of each set of labels, as an index of [`ByState`].
pub struct States(FxHashMap<LabelSetId, usize>);

impl States {
    /// Of the samples of `view`; `None`: no sample says what its thread did.
    pub fn of(view: &View) -> Option<States> {
        let profile = view.profile;
        let key = profile.strings.find("state")?;
        let mut states = FxHashMap::default();
        let mut known = false;
        for sample in view.samples() {
            states.entry(sample.labels).or_insert_with(|| {
                let state = match profile.labels.value(sample.labels, key) {
                    Some(LabelValue::Str(name)) => profile.str(name),
                    _ => "",
                };
                let state = STATES.iter().position(|name| *name == state);
                known |= state.is_some();
                state.unwrap_or(STATES.len())
            });
        }
        known.then_some(States(states))
    }

    /// The state of samples with these labels.
    pub fn get(&self, labels: LabelSetId) -> usize {
        self.0.get(&labels).copied().unwrap_or(STATES.len())
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
