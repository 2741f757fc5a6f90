//! Times of samples: in a file, labels; in a [`Profile`], a table of their own.
//!
//! A sample of the file with N labels of the key `timestamp` represents N samples of equal values.

use profile::label::{TIMESTAMP, TIMESTAMP_UNIT};
use profile::{Label, LabelSetId, LabelTable, LabelValue, Profile, StrId, TimesId};

/// Datadog's key: nanoseconds since the Unix epoch.
const END_TIMESTAMP: &str = "end_timestamp_ns";

/// Key and unit of the labels of times, as numbers of strings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TimeKey {
    pub key: u32,
    pub unit: u32,
}

impl TimeKey {
    /// Those of a profile; strings that it lacks have the numbers after its own.
    pub(super) fn for_writing(profile: &Profile) -> Option<TimeKey> {
        if profile.times.is_empty() {
            return None;
        }
        let mut next = profile.strings.len() as u32;
        let mut number = |text| match profile.strings.find(text) {
            Some(id) => id.0,
            None => {
                next += 1;
                next - 1
            }
        };
        Some(TimeKey { key: number(TIMESTAMP), unit: number(TIMESTAMP_UNIT) })
    }

    /// The strings that the profile lacks, in the order of their numbers.
    pub(super) fn missing(self, profile: &Profile) -> impl Iterator<Item = &'static str> {
        let len = profile.strings.len() as u32;
        let both = [(self.key, TIMESTAMP), (self.unit, TIMESTAMP_UNIT)];
        both.into_iter().filter(move |(number, _)| *number >= len).map(|(_, text)| text)
    }
}

/// Moves times that were read as labels to the table of times: those of files whose strings follow
/// the samples, and of other tools.
pub(super) fn take_from_labels(p: &mut Profile) {
    let find = |text| p.strings.find(text);
    let own = find(TIMESTAMP).zip(find(TIMESTAMP_UNIT));
    let foreign = find(END_TIMESTAMP).filter(|_| p.time_nanos > 0);
    if own.is_none() && foreign.is_none() {
        return;
    }
    let start = p.time_nanos;
    let time = |label: &Label| match label.value {
        LabelValue::Num { value, unit } if Some((label.key, unit)) == own => {
            u64::try_from(value).ok()
        }
        LabelValue::Num { value, unit } if Some(label.key) == foreign => {
            let is_nanos = unit == StrId::EMPTY || p.strings.get(unit) == "nanoseconds";
            let since = value.checked_sub(start).filter(|_| is_nanos)?;
            u64::try_from(since).ok().map(|nanos| nanos / 1000)
        }
        _ => None,
    };
    let all = || (0..p.labels.len() as u32).map(LabelSetId);
    if !all().any(|set| p.labels.get(set).iter().any(|label| time(label).is_some())) {
        return;
    }
    let mut labels = LabelTable::default();
    let mut rest: Vec<Label> = Vec::new();
    let sets: Vec<(LabelSetId, TimesId)> = all()
        .map(|set| {
            rest.clear();
            rest.extend(p.labels.get(set).iter().filter(|label| time(label).is_none()));
            let times = p.times.push(p.labels.get(set).iter().filter_map(time));
            (labels.intern(&rest), times)
        })
        .collect();
    for sample in &mut p.samples {
        let (set, times) = sets[sample.labels.0 as usize];
        sample.labels = set;
        if times != TimesId::NONE {
            sample.times = times;
        }
    }
    p.labels = labels;
}

#[cfg(test)]
mod tests {
    use super::super::{read, write};
    use super::*;
    use profile::{Builder, Column, TimeLimits};

    fn timed(strings: &[&str]) -> Profile {
        let mut b = Builder::new(&[("samples", "count"), ("cpu", "nanoseconds")]);
        strings.iter().for_each(|text| _ = b.profile.strings.intern(text));
        b.keep_times(TimeLimits { start: 0, max_samples: 9 });
        let key = b.profile.strings.intern("tid");
        let value = LabelValue::Num { value: 7, unit: StrId::EMPTY };
        let labels = b.profile.labels.intern(&[Label { key, value }]);
        for (time, address) in [(0, 1), (5, 2), (1 << 40, 1), (3, 2), (9, 1)] {
            b.set_time(Some(time * 1000));
            let at = b.location(None, address);
            b.add(&[at], labels, 1, &[(Column(1), 10)]);
        }
        b.set_time(None);
        let at = b.location(None, 3);
        b.add(&[at], labels, 1, &[(Column(1), 10)]);
        b.finish(None)
    }

    fn rows(p: &Profile) -> Vec<(Vec<u64>, usize, Vec<i64>)> {
        let row = |(i, row): (usize, &profile::SampleRow)| {
            let labels = p.labels.get(row.labels).len();
            (p.times.get(row.times).to_vec(), labels, p.values_of(i).to_vec())
        };
        p.samples.iter().enumerate().map(row).collect()
    }

    #[test]
    fn times_are_written_and_read_back() {
        let expected = [
            (vec![0, 9, 1 << 40], 1, vec![3, 30]),
            (vec![3, 5], 1, vec![2, 20]),
            (vec![], 1, vec![1, 10]),
        ];
        for strings in [&[][..], &["microseconds"], &["timestamp"], &["microseconds", "timestamp"]]
        {
            let p = timed(strings);
            let mut bytes = Vec::new();
            write(&p, &mut bytes).unwrap();
            let read = read(&bytes[..]).unwrap();
            assert_eq!(rows(&read), expected);
            // Nothing of it is left among the labels.
            assert_eq!(read.labels.keys().len(), 1);
            let mut again = Vec::new();
            write(&read, &mut again).unwrap();
            assert_eq!(again, bytes);
        }
    }

    /// As other tools write them: the strings follow the samples.
    #[test]
    fn times_are_taken_from_labels() {
        let mut p = timed(&[]);
        let [key, unit, end, bytes] =
            [TIMESTAMP, TIMESTAMP_UNIT, END_TIMESTAMP, "bytes"].map(|s| p.strings.intern(s));
        p.times = Default::default();
        p.time_nanos = 1_000_000;
        let number = |key, value, unit| Label { key, value: LabelValue::Num { value, unit } };
        let sets = [
            vec![number(key, 9, unit), number(bytes, 3, bytes), number(key, 4, unit)],
            vec![number(end, 1_007_000, StrId::EMPTY)],
            // None of these is a time.
            vec![number(key, 9, bytes), number(key, -1, unit), number(end, 5, StrId::EMPTY)],
        ];
        for (row, set) in p.samples.iter_mut().zip(sets) {
            row.times = TimesId::NONE;
            row.labels = p.labels.intern(&set);
        }
        let mut bytes = Vec::new();
        write(&p, &mut bytes).unwrap();
        let expected =
            [(vec![4, 9], 1, vec![3, 30]), (vec![7], 0, vec![2, 20]), (vec![], 3, vec![1, 10])];
        assert_eq!(rows(&read(&bytes[..]).unwrap()), expected);
    }
}
