//! CPU time: samples of `cycles` or `cpu-clock`, which are counted like those of any event.

use super::{NeededClock, Needs, ProfileType, Registered, SampleCounting, SampleType, ValuesKnown};
use crate::sampler::TypeName;

/// `-T cpu`.
pub const REGISTERED: Registered = Registered {
    name: "cpu",
    help: "CPU time",
    shown_first: &["cpu", "cycles"],
    values: ValuesKnown::WhileRecording,
    options: None,
    clean_up: None,
    new: |selection| selection.has("cpu").then(|| Box::new(CpuTime) as Box<dyn ProfileType>),
};

struct CpuTime;

impl ProfileType for CpuTime {
    fn name(&self) -> TypeName {
        TypeName::Singular("CPU time")
    }

    /// The sample type is the event's.
    fn sample_types(&self) -> Vec<SampleType> {
        Vec::new()
    }

    fn needs(&self) -> Needs {
        let clock = NeededClock::CpuTime;
        Needs { clock, samples: SampleCounting::Always, ..Needs::default() }
    }
}
