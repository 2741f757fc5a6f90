//! The profile types of a recording.

use super::{ALL, NeededClock, ProfileType, Settings};

/// Which profile type an event belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EventOwner {
    /// Its index in [`ProfileTypes`].
    pub of: usize,
    /// The number of the event among those of the type.
    pub event: usize,
}

/// Profile types that are recorded together. Each keeps its index when others are left out.
#[derive(Default)]
pub struct ProfileTypes(Vec<Option<Box<dyn ProfileType>>>);

impl ProfileTypes {
    /// Those that the settings ask for.
    pub fn new(settings: &Settings) -> ProfileTypes {
        ProfileTypes(ALL.iter().filter_map(|known| (known.new)(settings)).map(Some).collect())
    }

    /// These.
    pub fn of(types: Vec<Box<dyn ProfileType>>) -> ProfileTypes {
        ProfileTypes(types.into_iter().map(Some).collect())
    }

    /// Those that are not left out, with their indexes.
    pub fn iter(&self) -> impl Iterator<Item = (usize, &dyn ProfileType)> {
        self.0.iter().enumerate().filter_map(|(of, one)| Some((of, one.as_deref()?)))
    }

    /// The same, to be changed.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (usize, &mut Box<dyn ProfileType>)> {
        self.0.iter_mut().enumerate().filter_map(|(of, one)| Some((of, one.as_mut()?)))
    }

    /// The type with this index, unless it was left out.
    pub fn get_mut(&mut self, of: usize) -> Option<&mut Box<dyn ProfileType>> {
        self.0.get_mut(of)?.as_mut()
    }

    /// Leaves out the type with this index.
    pub fn leave_out(&mut self, of: usize) {
        self.0[of] = None;
    }

    /// The number of types.
    pub fn len(&self) -> usize {
        self.iter().count()
    }

    /// Nothing is recorded but events.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The clock that serves all of them.
    pub fn clock(&self) -> NeededClock {
        self.iter().map(|(_, one)| one.clock()).max().unwrap_or_default()
    }

    /// Whether one of them records CPU time.
    pub fn has_cpu_time(&self) -> bool {
        self.iter().any(|(_, one)| one.clock() == NeededClock::CpuTime)
    }

    /// Whether one of them needs what the target's processes do even if no event is sampled.
    pub fn need_processes(&self) -> bool {
        self.iter().any(|(_, one)| one.needs_processes())
    }

    /// Whether the stacks of one of them are samples of the sample type `samples`; nothing else is
    /// recorded if they are `alone`.
    pub fn count_samples(&self, alone: bool) -> bool {
        let alone = alone && self.len() == 1;
        self.iter().any(|(_, one)| one.counts_samples(alone))
    }

    /// The arguments of `prof record` with which they record a process that runs.
    pub fn arguments_for_process(&self) -> String {
        self.iter().map(|(_, one)| one.arguments_for_process()).collect()
    }
}
