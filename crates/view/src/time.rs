//! A part of a recording: the samples within a range of time.

use std::fmt;

use profile::{Profile, SampleRow, TimeTable, TimesId, share_of_times};

/// A moment of a recording.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum TimePoint {
    /// Microseconds since its start.
    Micros(u64),
    /// A part of its length, from 0 to 1.
    Part(f64),
}

/// A range of time of a recording: from its beginning, which is included, to its end, which is not.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TimeRange {
    /// The beginning.
    pub from: TimePoint,
    /// The end.
    pub until: TimePoint,
}

/// A part of a profile.
#[derive(Clone, Debug)]
pub struct TimePart {
    /// The samples of the range; times are relative to its beginning.
    pub profile: Profile,
    /// The beginning, in microseconds since that of the whole.
    pub from: u64,
    /// The sums of samples without a time, which are in no part, by sample type.
    pub without_time: Vec<i64>,
}

impl TimePoint {
    fn parse(text: &str) -> Option<TimePoint> {
        let text = text.trim();
        let number =
            text.trim_end_matches(|c: char| c.is_ascii_alphabetic() || c == '%' || c == 'µ');
        let factor = match &text[number.len()..] {
            "%" => {
                let part: f64 = number.parse().ok()?;
                return (0.0..=100.0).contains(&part).then_some(TimePoint::Part(part / 100.0));
            }
            "us" | "µs" => 1.0,
            "ms" => 1e3,
            "s" | "" => 1e6,
            "m" | "min" => 60e6,
            "h" => 3600e6,
            _ => return None,
        };
        let micros = number.parse::<f64>().ok()? * factor;
        // Below a million years, so that all sums fit.
        (0.0..3e19).contains(&micros).then_some(TimePoint::Micros(micros.round() as u64))
    }

    fn micros(self, length: u64) -> u64 {
        match self {
            TimePoint::Micros(micros) => micros,
            TimePoint::Part(part) => (length as f64 * part).round() as u64,
        }
    }
}

/// As [`TimeRange::parse`] reads it: `1.5s`, `20ms`, `10%`.
impl fmt::Display for TimePoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            TimePoint::Part(part) => write!(f, "{}%", part * 100.0),
            TimePoint::Micros(n) if n.is_multiple_of(1_000_000) => write!(f, "{}s", n / 1_000_000),
            TimePoint::Micros(n) if n.is_multiple_of(1000) && n < 1_000_000 => {
                write!(f, "{}ms", n / 1000)
            }
            TimePoint::Micros(n) if n < 1000 => write!(f, "{n}us"),
            TimePoint::Micros(n) => {
                let text = format!("{}.{:06}", n / 1_000_000, n % 1_000_000);
                write!(f, "{}s", text.trim_end_matches('0'))
            }
        }
    }
}

/// As [`TimeRange::parse`] reads it, with a beginning.
impl fmt::Display for TimeRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}..", self.from)?;
        if self.until == TimePoint::Micros(u64::MAX) { Ok(()) } else { self.until.fmt(f) }
    }
}

impl TimeRange {
    /// Reads `2s..5s`, `2s..`, `..500ms`, `10%..20%`.
    ///
    /// # Errors
    ///
    /// Anything else; the line states the form.
    pub fn parse(text: &str) -> Result<TimeRange, String> {
        let form = || "write a range such as 2s..5s, 2s.., ..500ms or 10%..20%".to_owned();
        let (from, until) = text.split_once("..").ok_or_else(form)?;
        let point = |text: &str, missing| match text.trim() {
            "" => Ok(missing),
            text => TimePoint::parse(text).ok_or_else(form),
        };
        let from = point(from, TimePoint::Micros(0))?;
        let until = point(until, TimePoint::Micros(u64::MAX))?;
        let order = match (from, until) {
            (TimePoint::Micros(a), TimePoint::Micros(b)) => a < b,
            (TimePoint::Part(a), TimePoint::Part(b)) => a < b,
            _ => true,
        };
        if order { Ok(TimeRange { from, until }) } else { Err("the range is empty".to_owned()) }
    }

    /// Its beginning in a recording, in microseconds since the start of that.
    pub fn start(self, profile: &Profile) -> u64 {
        self.from.micros(length_micros(profile))
    }
}

/// Length of a recording in microseconds; without one, up to its last sample.
pub fn length_micros(profile: &Profile) -> u64 {
    let last = profile.times.bounds().map_or(0, |(_, last)| last.saturating_add(1));
    last.max(u64::try_from(profile.duration_nanos).unwrap_or(0).div_ceil(1000))
}

/// The part of a profile within a range of time. The values of a row are divided among its times:
/// the parts of a partition of time add up to the whole, but for samples without a time.
pub fn select_time(profile: Profile, range: TimeRange) -> TimePart {
    let mut profile = profile;
    let length = length_micros(&profile);
    let from = range.start(&profile);
    let until = range.until.micros(length);
    let width = profile.sample_types.len();
    let times = std::mem::take(&mut profile.times);
    let samples = std::mem::take(&mut profile.samples);
    let values = std::mem::take(&mut profile.values);
    let mut without_time = vec![0i64; width];
    let mut selected = TimeTable::default();
    for (i, sample) in samples.into_iter().enumerate() {
        let row = &values[i * width..(i + 1) * width];
        if sample.times == TimesId::NONE {
            without_time.iter_mut().zip(row).for_each(|(sum, v)| *sum = sum.saturating_add(*v));
            continue;
        }
        let list = times.get(sample.times);
        let first = list.partition_point(|&time| time < from);
        let end = list.partition_point(|&time| time < until).max(first);
        if first < end {
            let times = selected.push(list[first..end].iter().map(|time| time - from));
            profile.samples.push(SampleRow { times, ..sample });
            profile.values.extend(row.iter().map(|&v| share(v, first..end, list.len())));
        }
    }
    profile.times = selected;
    let nanos = |micros: u64| i64::try_from(micros.saturating_mul(1000)).unwrap_or(i64::MAX);
    if profile.time_nanos > 0 {
        profile.time_nanos = profile.time_nanos.saturating_add(nanos(from));
    }
    profile.duration_nanos = nanos(until.min(length).saturating_sub(from));
    TimePart { profile, from, without_time }
}

/// The value of the samples `part` of `count` of equal values with the sum `value`.
pub(crate) fn share(value: i64, part: std::ops::Range<usize>, count: usize) -> i64 {
    let until = share_of_times(value, part.end, count);
    until.wrapping_sub(share_of_times(value, part.start, count))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::phases;

    fn range(text: &str) -> TimeRange {
        TimeRange::parse(text).unwrap()
    }

    #[test]
    fn ranges_are_parsed() {
        use TimePoint::{Micros, Part};
        let cases = [
            ("2s..5s", Micros(2_000_000), Micros(5_000_000)),
            ("2..", Micros(2_000_000), Micros(u64::MAX)),
            ("..500ms", Micros(0), Micros(500_000)),
            ("1.5ms .. 2m", Micros(1500), Micros(120_000_000)),
            ("10%..20%", Part(0.1), Part(0.2)),
            ("7us..50%", Micros(7), Part(0.5)),
            ("..", Micros(0), Micros(u64::MAX)),
        ];
        for (text, from, until) in cases {
            assert_eq!(range(text), TimeRange { from, until }, "{text}");
            assert_eq!(range(&range(text).to_string()), TimeRange { from, until }, "{text}");
        }
        let written = ["..1500ms", "7us..50%", "2s.."].map(|text| range(text).to_string());
        assert_eq!(written, ["0s..1.5s", "7us..50%", "2s.."]);
        for text in ["", "5s", "5s..2s", "1s..1s", "-1s..", "a..b", "101%..", "1e300s..", "1s..NaN"]
        {
            assert!(TimeRange::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_part_has_its_samples() {
        let part = select_time(phases(), range("1s..2s"));
        let p = &part.profile;
        assert_eq!((p.samples.len(), p.total(0), p.total(1)), (1, 10, 1_000_000_000));
        assert_eq!((part.from, &part.without_time[..]), (1_000_000, &[1, 100_000_000][..]));
        assert_eq!((p.time_nanos, p.duration_nanos), (8_000_000_000, 1_000_000_000));
        assert_eq!(p.times.bounds(), Some((0, 900_000)));
        let same = select_time(phases(), range("33.34%..66.67%")).profile;
        assert_eq!(same.total(0), 10);
        assert_eq!(select_time(phases(), range("1h..")).profile.samples.len(), 0);
    }

    #[test]
    fn parts_add_up_to_the_whole() {
        let mut p = phases();
        // Values that do not divide evenly, of both signs.
        for (i, value) in p.values.iter_mut().enumerate() {
            *value = *value / 7 * if i % 3 == 0 { -1 } else { 1 } + i as i64;
        }
        for cuts in [vec![0, 3], vec![0, 1, 2, 3], (0..=30).collect()] {
            let step = 3_000_000 / cuts[cuts.len() - 1];
            let mut sums = [0i64; 2];
            let mut without = Vec::new();
            for pair in cuts.windows(2) {
                let micros = |n: u64| TimePoint::Micros(n * step);
                let part = TimeRange { from: micros(pair[0]), until: micros(pair[1]) };
                let part = select_time(p.clone(), part);
                (0..2).for_each(|column| sums[column] += part.profile.total(column));
                without = part.without_time;
            }
            (0..2).for_each(|column| assert_eq!(sums[column] + without[column], p.total(column)));
        }
    }
}
