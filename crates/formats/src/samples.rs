//! The samples of a profile for formats in which each has its time.

use profile::{LabelSetId, LabelValue, Profile, StrId, label, share_of_times};

/// The column that counts samples.
pub(crate) fn samples_column(profile: &Profile) -> Option<usize> {
    profile.sample_types.iter().position(|t| profile.str(t.kind) == "samples")
}

/// The keys of the labels of a thread; `None`: no sample has it.
pub(crate) struct ThreadKeys {
    pid: Option<StrId>,
    tid: Option<StrId>,
    process: Option<StrId>,
    thread: Option<StrId>,
}

/// The labels of a thread.
pub(crate) struct ThreadLabels {
    pub pid: Option<i64>,
    pub tid: Option<i64>,
    pub process: Option<LabelValue>,
    pub thread: Option<LabelValue>,
}

impl ThreadKeys {
    pub(crate) fn new(profile: &Profile) -> ThreadKeys {
        let key = |name| profile.strings.find(name);
        ThreadKeys {
            pid: key(label::PID),
            tid: key(label::TID),
            process: key(label::PROCESS),
            thread: key(label::THREAD),
        }
    }

    /// The labels in a set that say which thread it is.
    pub(crate) fn labels(&self, profile: &Profile, set: LabelSetId) -> ThreadLabels {
        let value = |key: Option<StrId>| profile.labels.value(set, key?);
        let number = |key| match value(key) {
            Some(LabelValue::Num { value, .. }) => Some(value),
            _ => None,
        };
        ThreadLabels {
            pid: number(self.pid),
            tid: number(self.tid),
            process: value(self.process),
            thread: value(self.thread),
        }
    }
}

/// Number `number` of the `count` samples of equal values that a row represents.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct RowPart {
    /// In microseconds since the start of the recording.
    pub time: Option<u64>,
    pub row: usize,
    pub number: usize,
    pub count: usize,
}

impl RowPart {
    /// Its value of sample type number `column`.
    pub(crate) fn value(&self, profile: &Profile, column: usize) -> i64 {
        let value = profile.values_of(self.row)[column];
        let until = |number| share_of_times(value, number, self.count);
        until(self.number + 1).saturating_sub(until(self.number))
    }
}

/// All samples: those without a time, each row as `count` of it says, then those with one in their
/// order.
pub(crate) fn in_order(
    profile: &Profile,
    count: impl Fn(usize) -> usize,
) -> impl Iterator<Item = RowPart> {
    let mut timed = Vec::with_capacity(profile.times.len());
    for (row, sample) in profile.samples.iter().enumerate() {
        let times = profile.times.get(sample.times);
        let part = |(number, &time)| RowPart { time: Some(time), row, number, count: times.len() };
        timed.extend(times.iter().enumerate().map(part));
    }
    timed.sort_unstable();
    let without = profile.samples.iter().enumerate();
    let without = without.filter(|(_, sample)| profile.times.get(sample.times).is_empty());
    let parts = without.flat_map(move |(row, _)| {
        let count = count(row).max(1);
        (0..count).map(move |number| RowPart { time: None, row, number, count })
    });
    parts.chain(timed)
}
