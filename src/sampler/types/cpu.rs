//! CPU time: samples of `cycles` or `cpu-clock`, which are counted like those of any event.

use super::{End, NeededClock, ProfileType, Registered, SampleType, TypeStart, ValuesKnown};
use crate::sampler::stack_maker::StackMaker;
use crate::sampler::{Note, TypeName};

/// `-T cpu`.
pub const REGISTERED: Registered = Registered {
    name: "cpu",
    help: "CPU time",
    values: ValuesKnown::WhileRecording,
    options: None,
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

    fn clock(&self) -> NeededClock {
        NeededClock::CpuTime
    }

    fn counts_samples(&self, _alone: bool) -> bool {
        true
    }

    fn start(&mut self, _maker: &mut StackMaker, _start: &TypeStart<'_>) {}

    fn end(&mut self, _maker: &mut StackMaker, _end: &End) -> Vec<Note> {
        Vec::new()
    }
}
