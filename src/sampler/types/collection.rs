//! The profile types of a recording.

use super::{ALL, NeededClock, Needs, ProfileType, SampleCounting, Selection};

/// The profile type that an event belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EventOwner {
    /// Its index in [`ProfileTypes`].
    pub index: usize,
    /// The index of the event among those of the type.
    pub event: usize,
}

/// The profile types of a recording. Each keeps its index when others are left out.
#[derive(Default)]
pub struct ProfileTypes(Vec<Option<Box<dyn ProfileType>>>);

impl ProfileTypes {
    /// The selected types.
    pub fn new(selection: &Selection) -> ProfileTypes {
        ProfileTypes(ALL.iter().filter_map(|known| (known.new)(selection)).map(Some).collect())
    }

    /// These types.
    pub fn from_types(types: Vec<Box<dyn ProfileType>>) -> ProfileTypes {
        ProfileTypes(types.into_iter().map(Some).collect())
    }

    /// The types that are not left out, with their indices.
    pub fn iter(&self) -> impl Iterator<Item = (usize, &dyn ProfileType)> {
        self.0.iter().enumerate().filter_map(|(index, kind)| Some((index, kind.as_deref()?)))
    }

    /// Like [`ProfileTypes::iter`], mutable.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (usize, &mut Box<dyn ProfileType>)> {
        self.0.iter_mut().enumerate().filter_map(|(index, kind)| Some((index, kind.as_mut()?)))
    }

    /// The type with this index, unless it was left out.
    pub fn get_mut(&mut self, index: usize) -> Option<&mut Box<dyn ProfileType>> {
        self.0.get_mut(index)?.as_mut()
    }

    /// Leaves out the type with this index.
    pub fn leave_out(&mut self, index: usize) {
        self.0[index] = None;
    }

    /// The number of types.
    pub fn len(&self) -> usize {
        self.iter().count()
    }

    /// True if only events are recorded.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The requirements of each.
    fn needs(&self) -> impl Iterator<Item = Needs> {
        self.iter().map(|(_, kind)| kind.needs())
    }

    /// True if one of them records every event, regardless of `-F`.
    pub fn count_every_event(&self) -> bool {
        self.needs().any(|needs| needs.every_event)
    }

    /// The clock that all of them can use.
    pub fn clock(&self) -> NeededClock {
        self.needs().map(|needs| needs.clock).max().unwrap_or_default()
    }

    /// True if one of them records CPU time.
    pub fn has_cpu_time(&self) -> bool {
        self.needs().any(|needs| needs.clock == NeededClock::CpuTime)
    }

    /// True if one of them needs records about the target's processes even if no event is sampled.
    pub fn need_processes(&self) -> bool {
        self.needs().any(|needs| needs.processes)
    }

    /// True if the stacks of one of them are samples of the sample type `samples`; `alone`: nothing
    /// else is recorded.
    pub fn count_samples(&self, alone: bool) -> bool {
        let alone = alone && self.len() == 1;
        self.needs().any(|needs| match needs.samples {
            SampleCounting::Never => false,
            SampleCounting::WithOthers => !alone,
            SampleCounting::Always => true,
        })
    }

    /// The arguments of `prof record` that record these types of a running process.
    pub fn arguments_for_process(&self) -> String {
        self.iter().map(|(_, kind)| kind.arguments_for_process()).collect()
    }
}
