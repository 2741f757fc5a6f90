//! Statistical confidence of a profile: its samples are a random subset.

use super::query::PercentOf;
use super::shares::{counts_samples, sample_count};
use super::{Row, Top, TopOptions, View};
use profile::{Profile, comment};

/// Standard deviations on each side of an interval of 95 %.
const Z: f64 = 1.959_963_985;

/// A share and the interval that contains the true one with 95 % confidence; all from 0 to 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Share {
    /// As measured.
    pub measured: f64,
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

impl Share {
    /// Interval of a share that was measured with this number of samples of equal weight (Wilson's
    /// interval, which stays within 0 and 1 and is accurate for rare functions, too).
    pub fn new(measured: f64, samples: f64) -> Share {
        if samples <= 0.0 {
            return Share { measured, low: 0.0, high: 1.0 };
        }
        let z2 = Z * Z / samples;
        let middle = (measured + z2 / 2.0) / (1.0 + z2);
        let spread = measured * (1.0 - measured) / samples + z2 / (4.0 * samples);
        let half = Z * spread.max(0.0).sqrt() / (1.0 + z2);
        // At 0 and 1 one end is the measured share itself, which rounding may miss.
        let low = middle - half;
        let high = middle + half;
        Share { measured, low: low.min(measured).max(0.0), high: high.max(measured).min(1.0) }
    }
}

/// A function with its confidence intervals.
#[derive(Clone, Debug)]
pub struct FunctionShares {
    /// Its row in the table of functions.
    pub row: Row,
    /// Share of its self value.
    pub itself: Share,
    /// Share of its total.
    pub total: Share,
}

/// Statistical confidence of a view.
#[derive(Clone, Debug)]
pub struct Quality {
    /// Samples of the profile.
    pub samples: f64,
    /// Number of samples of equal weight with the same confidence: lower if few samples have most
    /// of the value; higher if a large part of the events was sampled (of the heap), infinite if
    /// all were.
    pub effective: f64,
    /// Functions with a self value.
    pub functions: usize,
    /// Shannon entropy of the self values of all functions, in bits: 0 if one function has all,
    /// log2(n) if n have equal shares.
    pub entropy: f64,
    /// The requested functions.
    pub rows: Vec<FunctionShares>,
}

impl Quality {
    /// Confidence of a view whose frames are functions, with the rows of `options`; its labels are
    /// ignored.
    pub fn new(view: &View, options: &TopOptions) -> Quality {
        // The samples among which the shares are.
        let all = view.unfiltered().filter(|_| view.value_options.percent_of == PercentOf::Total);
        let (samples, effective) = match all {
            Some(all) => (all.events, all.effective),
            None => sample_sizes(view.profile, view.type_index),
        };
        let top = Top::new(view, &TopOptions::default());
        let part = |value: i64| (value.max(0) as f64 / view.whole().max(1) as f64).min(1.0);
        let own: Vec<f64> =
            top.rows.iter().map(|r| part(r.self_value)).filter(|&p| p > 0.0).collect();
        // Filtered samples count as one more function.
        let rest = 1.0 - own.iter().sum::<f64>();
        let rest = (rest > 1e-9).then_some(rest);
        let entropy = own.iter().copied().chain(rest).map(|p| -p * p.log2()).sum::<f64>().max(0.0);
        let sure = |row: &Row| FunctionShares {
            itself: Share::new(part(row.self_value), effective),
            total: Share::new(part(row.total), effective),
            row: row.clone(),
        };
        let shown = Top::new(view, &TopOptions { labels: Vec::new(), ..options.clone() });
        let rows = shown.rows.iter().map(sure).collect();
        Quality { samples, effective, functions: own.len(), entropy, rows }
    }

    /// Number of additional samples that would halve the intervals, which shrink with the square
    /// root.
    pub fn to_halve(&self) -> f64 {
        3.0 * self.samples
    }
}

/// Variances of sampled values.
pub(super) struct Variances {
    heap: Option<HeapSampling>,
    type_index: usize,
    /// The first sample type counts samples.
    counted: bool,
}

impl Variances {
    /// Those of the values of this type.
    pub(super) fn new(profile: &Profile, type_index: usize) -> Variances {
        let counted = counts_samples(profile);
        Variances { heap: HeapSampling::find(profile, type_index), type_index, counted }
    }

    /// The variance of the value in a row of n samples: v²/n, less if many events were sampled.
    pub(super) fn get(&self, values: &[i64]) -> f64 {
        let value = values.get(self.type_index).map_or(0.0, |&v| (v as f64).abs());
        match &self.heap {
            Some(heap) => match heap.sampled(values) {
                Some((chance, sampled)) => value * value * (1.0 - chance) / sampled,
                None => 0.0,
            },
            None => value * value / sample_count(values, self.counted) as f64,
        }
    }
}

/// Sampling of the heap: allocations of n bytes with the probability 1 - exp(-n / interval).
struct HeapSampling {
    /// Columns of the objects and bytes of the type's pair.
    objects: usize,
    space: usize,
    /// In bytes.
    interval: f64,
}

impl HeapSampling {
    /// For a type such as `alloc_space` or `inuse_objects`, of prof's or Go's heap profiles.
    fn find(profile: &Profile, type_index: usize) -> Option<HeapSampling> {
        let kind = profile.str(profile.sample_types.get(type_index)?.kind);
        let stem = kind.strip_suffix("_space").or_else(|| kind.strip_suffix("_objects"))?;
        let column = |end: &str| {
            let is_it = |name: &str| name.strip_prefix(stem) == Some(end);
            profile.sample_types.iter().position(|t| is_it(profile.str(t.kind)))
        };
        let objects = column("_objects")?;
        let space = column("_space")?;
        let period_type = profile.period_type;
        let own = profile.str(period_type.kind) == "space";
        let own = (own && profile.str(period_type.unit) == "bytes").then_some(profile.period);
        // With other types in the file, the period is theirs.
        let commented =
            || comment::values(profile, comment::HEAP_INTERVAL).find_map(|v| v.parse().ok());
        let interval = own.or_else(commented).filter(|&n: &i64| n > 0)?;
        Some(HeapSampling { objects, space, interval: interval as f64 })
    }

    /// Probability with which each allocation of a row was sampled, and number of sampled ones.
    fn sampled(&self, values: &[i64]) -> Option<(f64, f64)> {
        let objects = *values.get(self.objects)? as f64;
        let space = *values.get(self.space)? as f64;
        if objects <= 0.0 || space <= 0.0 {
            return None;
        }
        let chance =
            if self.interval <= 1.0 { 1.0 } else { -(-space / objects / self.interval).exp_m1() };
        Some((chance, objects * chance))
    }
}

/// Number of sampled allocations, and of samples of equal weight with the same confidence: the
/// variance of a row with the value v of n sampled allocations is v²(1 - probability)/n.
fn heap_sizes(profile: &Profile, type_index: usize, heap: &HeapSampling) -> (f64, f64) {
    let mut samples = 0.0;
    let mut sum = 0.0;
    let mut variance = 0.0;
    for row in 0..profile.samples.len() {
        let values = profile.values_of(row);
        if let Some((chance, sampled)) = heap.sampled(values) {
            let value = values.get(type_index).map_or(0.0, |&v| (v as f64).abs());
            samples += sampled;
            sum += value;
            variance += value * value * (1.0 - chance) / sampled;
        }
    }
    (samples, if sum > 0.0 { sum * sum / variance } else { 0.0 })
}

/// Number of samples, and Kish's effective number for values that differ: (Σv)²/Σv².
pub(crate) fn sample_sizes(profile: &Profile, type_index: usize) -> (f64, f64) {
    if let Some(heap) = HeapSampling::find(profile, type_index) {
        return heap_sizes(profile, type_index, &heap);
    }
    let counted = counts_samples(profile);
    let mut samples = 0.0;
    let mut sum = 0.0;
    let mut squares = 0.0;
    for row in 0..profile.samples.len() {
        let values = profile.values_of(row);
        let value = values.get(type_index).map_or(0.0, |&v| (v as f64).abs());
        let count = sample_count(values, counted) as f64;
        if value > 0.0 {
            samples += count;
            sum += value;
            squares += value * value / count;
        }
    }
    (samples, if squares > 0.0 { sum * sum / squares } else { 0.0 })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::answers;
    use crate::{Filter, Granularity, Sort};
    use profile::{LabelSetId, SampleRow, StackId, ValueType};

    #[test]
    fn heap_intervals_follow_the_sampling_probabilities() {
        let mut profile = Profile::default();
        let mut intern = |kind: &str, unit: &str| {
            let strings = &mut profile.strings;
            ValueType { kind: strings.intern(kind), unit: strings.intern(unit) }
        };
        let types = [intern("inuse_objects", "count"), intern("inuse_space", "bytes")];
        profile.period_type = intern("space", "bytes");
        profile.sample_types = types.to_vec();
        let sizes = |profile: &mut Profile, period, objects: i64, space| {
            profile.samples = vec![SampleRow {
                stack: StackId(0),
                labels: LabelSetId::EMPTY,
                times: Default::default(),
            }];
            profile.values = vec![objects, space];
            profile.period = period;
            sample_sizes(profile, 1)
        };
        // 1,000 of 1 KiB, each with a probability of 1 - exp(-1/16).
        let chance = 1.0 - (-1.0f64 / 16.0).exp();
        let (samples, effective) = sizes(&mut profile, 16 << 10, 1000, 1000 << 10);
        assert!((samples - 1000.0 * chance).abs() < 1e-6, "{samples}");
        assert!((effective - 1000.0 * chance / (1.0 - chance)).abs() < 1e-6, "{effective}");
        // All of them.
        let (samples, effective) = sizes(&mut profile, 1, 1000, 1000 << 10);
        assert_eq!((samples, effective), (1000.0, f64::INFINITY));
        let all = Share::new(0.25, effective);
        assert_eq!((all.low, all.high), (0.25, 0.25));
    }

    #[test]
    fn intervals_are_wilson_s() {
        // Newcombe (1998), table I: 81 of 263, and 0 of 20.
        let s = Share::new(81.0 / 263.0, 263.0);
        assert!((s.low - 0.2553).abs() < 5e-5 && (s.high - 0.3662).abs() < 5e-5, "{s:?}");
        let s = Share::new(0.0, 20.0);
        assert!(s.low == 0.0 && (s.high - 0.1611).abs() < 5e-5, "{s:?}");
        assert_eq!(Share::new(0.3, 0.0), Share { measured: 0.3, low: 0.0, high: 1.0 });
    }

    #[test]
    fn intervals_contain_the_measured_share() {
        for samples in 1..5000 {
            for share in [0.0, 1.0 / f64::from(samples), 1.0] {
                let s = Share::new(share, f64::from(samples));
                assert!(
                    0.0 <= s.low && s.low <= share && share <= s.high && s.high <= 1.0,
                    "{s:?}"
                );
            }
        }
    }

    #[test]
    fn entropy_and_samples_of_a_known_profile() {
        let p = answers();
        let view = View::new(&p, 1, Granularity::FUNCTION);
        let two = TopOptions { limit: 2, ..TopOptions::default() };
        let quality = Quality::new(&view, &two);
        // bar 5, main 2, foo1 1.5, foo2 0.5 of 9.
        let expected: f64 =
            [5.0, 2.0, 1.5, 0.5].iter().map(|x: &f64| -x / 9.0 * (x / 9.0).log2()).sum();
        assert!((quality.entropy - expected).abs() < 1e-9, "{}", quality.entropy);
        assert_eq!((quality.samples, quality.effective.round()), (18.0, 18.0));
        assert_eq!((quality.functions, quality.rows.len()), (4, 2));
        assert!((quality.rows[0].itself.measured - 5.0 / 9.0).abs() < 1e-9);
        assert_eq!(quality.to_halve(), 54.0);
    }

    #[test]
    fn rows_are_those_of_the_table() {
        let p = answers();
        let view = View::new(&p, 1, Granularity::FUNCTION);
        let names = |options: &TopOptions| -> Vec<String> {
            let quality = Quality::new(&view, options);
            let name = |r: &FunctionShares| view.frames.get(r.row.frame).display(&p).into_owned();
            quality.rows.iter().map(name).collect()
        };
        let by_self = TopOptions { min_percent: 20.0, self_only: true, ..TopOptions::default() };
        assert_eq!(names(&by_self), ["bar", "main"]);
        let by_total = TopOptions { sort: Sort::Total, limit: 3, ..TopOptions::default() };
        assert_eq!(names(&by_total), ["main", "bar", "foo1"]);
    }

    /// Filtered samples are one class, and shares refer to the whole.
    #[test]
    fn filtered_samples_are_one_class() {
        let p = answers();
        let filter = Filter { focus: Some("foo2".parse().unwrap()), ..Filter::default() };
        let p = filter.apply(p).profile;
        let view = View::new(&p, 1, Granularity::FUNCTION);
        let quality = Quality::new(&view, &TopOptions::default());
        // bar 2.5 and foo2 0.5 of 9; the rest 6.
        let expected: f64 = [2.5, 0.5, 6.0].iter().map(|x: &f64| -x / 9.0 * (x / 9.0).log2()).sum();
        assert!((quality.entropy - expected).abs() < 1e-9, "{}", quality.entropy);
        let bar = quality.rows[0].itself;
        assert!((bar.measured - 2.5 / 9.0).abs() < 1e-9 && bar.low < bar.measured, "{bar:?}");
    }

    #[test]
    fn a_profile_without_samples_has_no_confidence() {
        let p = profile::Builder::new(&[("samples", "count")]).finish(None);
        let view = View::new(&p, 0, Granularity::FUNCTION);
        let quality = Quality::new(&view, &TopOptions::default());
        assert_eq!((quality.samples, quality.effective, quality.entropy), (0.0, 0.0, 0.0));
        assert!(quality.rows.is_empty());
    }

    #[test]
    fn a_few_heavy_samples_count_as_few() {
        let mut p = answers();
        // Of 18 samples, four have nearly all of the value.
        p.values[1] *= 1_000_000;
        let (samples, effective) = sample_sizes(&p, 1);
        assert_eq!(samples, 18.0);
        assert!((effective - 4.0).abs() < 0.01, "{effective}");
    }

    /// Of many draws from a known share, about 95 % contain it in their interval.
    #[test]
    fn intervals_contain_the_true_share_as_often_as_stated() {
        let mut seed = 7u64;
        let mut random = move || {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (seed >> 11) as f64 / (1u64 << 53) as f64
        };
        for truth in [0.02, 0.2, 0.5] {
            let draws = 2000;
            let samples = 400;
            let held = (0..draws)
                .filter(|_| {
                    let hits = (0..samples).filter(|_| random() < truth).count();
                    let share = Share::new(hits as f64 / samples as f64, samples as f64);
                    share.low <= truth && truth <= share.high
                })
                .count();
            let held = held as f64 / draws as f64;
            assert!((0.93..0.98).contains(&held), "{truth}: {held}");
        }
    }
}
