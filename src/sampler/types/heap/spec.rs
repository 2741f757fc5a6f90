//! The sample types of a recording of allocations.

use super::super::SampleType;
use super::HeapSettings;

/// The values to record of allocations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HeapSpec {
    /// True to record the memory in use at the end, in addition to all allocations.
    pub in_use: bool,
    /// The requested settings.
    pub settings: HeapSettings,
}

/// A pair of sample types: objects and bytes.
type Pair = [SampleType; 2];

const fn pair(objects: &'static str, space: &'static str) -> Pair {
    [SampleType::count(objects), SampleType::bytes(space)]
}

const ALLOCATED: Pair = pair("alloc_objects", "alloc_space");
const IN_USE: Pair = pair("inuse_objects", "inuse_space");
const PEAK: Pair = pair("peak_objects", "peak_space");
const TEMPORARY: Pair = pair("temporary_objects", "temporary_space");
const LEAKED: Pair = pair("leaked_objects", "leaked_space");

impl HeapSpec {
    /// The sample types, the first four with the names of pprof and Go.
    pub fn sample_types(&self) -> impl Iterator<Item = SampleType> {
        let HeapSettings { peak, temporary, leaks, .. } = self.settings;
        let wanted = [true, self.in_use, peak, temporary, leaks];
        let types = [ALLOCATED, IN_USE, PEAK, TEMPORARY, LEAKED].into_iter().zip(wanted);
        types.filter(|(_, wanted)| *wanted).flat_map(|(types, _)| types)
    }

    /// The default sample type: that of the option that adds one.
    pub fn default_type(&self) -> &'static str {
        let HeapSettings { peak, temporary, leaks, .. } = self.settings;
        let wanted = [leaks, peak, temporary, self.in_use, true];
        let types = [LEAKED, PEAK, TEMPORARY, IN_USE, ALLOCATED].into_iter().zip(wanted);
        let mut wanted = types.filter(|(_, wanted)| *wanted);
        wanted.next().map_or(ALLOCATED[1].kind, |([_, space], _)| space.kind)
    }

    /// True if the lifetime of allocations is needed.
    pub fn follows(&self) -> bool {
        let HeapSettings { peak, temporary, leaks, .. } = self.settings;
        self.in_use || peak || temporary || leaks
    }
}
