//! Tests of hypotheses, for profiles that are samples of known distributions.

use std::collections::BTreeMap;

/// Quantiles of the chi-squared distribution for 1 to 10 degrees of freedom: exceeded with a
/// probability of 1 % (NIST/SEMATECH e-Handbook of Statistical Methods, 1.3.6.7.4) ...
const EXCEEDED_BY_1_PERCENT: [f64; 10] =
    [6.635, 9.210, 11.345, 13.277, 15.086, 16.812, 18.475, 20.090, 21.666, 23.209];

/// ... and of 3e-8 (from the incomplete gamma function).
const EXCEEDED_BY_3E_8: [f64; 10] =
    [30.708, 34.644, 37.878, 40.769, 43.446, 45.971, 48.380, 50.698, 52.940, 55.119];

/// The most recordings that are drawn to decide.
const MOST_DRAWS: usize = 5;

/// What the samples of all recordings so far say of a hypothesis.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    /// They may well follow from it.
    Accepted,
    /// They are unlikely; more samples decide.
    Open,
    /// They do not follow from it.
    Refused,
}

/// The samples that were drawn, and what they say.
pub struct Decision<S> {
    pub samples: S,
    /// The number of recordings.
    pub draws: usize,
    pub verdict: Verdict,
}

/// Draws samples until `judge` decides on all that were drawn, [`MOST_DRAWS`] times at most.
///
/// `draw` adds a recording to the samples. A right distribution is refused with at most
/// [`MOST_DRAWS`] times the probability at which `judge` refuses; a wrong one moves further from
/// the limit with each recording.
pub fn draw_until_decided<S: Default>(
    mut draw: impl FnMut(&mut S),
    judge: impl Fn(&S) -> Verdict,
) -> Decision<S> {
    let mut samples = S::default();
    let mut draws = 0;
    loop {
        draw(&mut samples);
        draws += 1;
        let verdict = judge(&samples);
        if verdict != Verdict::Open || draws == MOST_DRAWS {
            return Decision { samples, draws, verdict };
        }
    }
}

/// As [`draw_until_decided`]; fails if the samples are refused. Those that are still open are
/// accepted.
#[track_caller]
pub fn decide<S: Default>(
    what: &str,
    draw: impl FnMut(&mut S),
    judge: impl Fn(&S) -> Verdict,
) -> S {
    let Decision { samples, draws, verdict } = draw_until_decided(draw, judge);
    println!("{what}: {verdict:?} after {draws} recordings");
    assert_ne!(verdict, Verdict::Refused, "{what}: after {draws} recordings, see above");
    samples
}

/// Fails when three recordings in a row are refused, each with its reason. With a chance of 1 in a
/// hundred for a right one, that is 1 in a million.
#[track_caller]
pub fn one_of_three(what: &str, mut record: impl FnMut() -> Result<(), String>) {
    for recording in 1..=3 {
        match record() {
            Ok(()) => return,
            Err(reason) => println!("{what}, recording {recording} of at most 3: {reason}"),
        }
    }
    panic!("{what}: three recordings in a row are refused, see above");
}

/// Pearson's test of counts against known shares.
#[derive(Debug, Clone, Copy)]
pub struct ChiSquared {
    pub statistic: f64,
    /// The limit that a right distribution exceeds once in a hundred times.
    pub open: f64,
    /// The limit that it exceeds three times in a hundred million.
    pub refused: f64,
}

impl ChiSquared {
    /// The test of counts against weights of any scale. Panics when a class is expected to have
    /// fewer than five: the statistic would not have its distribution.
    #[track_caller]
    pub fn new(counts: &[u64], weights: &[f64]) -> ChiSquared {
        assert_eq!(counts.len(), weights.len());
        let samples = counts.iter().sum::<u64>() as f64;
        let weight: f64 = weights.iter().sum();
        let classes = counts.iter().zip(weights).map(|(&n, w)| {
            let expected = samples * w / weight;
            assert!(expected >= 5.0, "too few samples: {counts:?} against {weights:?}");
            (n as f64 - expected).powi(2) / expected
        });
        let freedom = counts.len() - 2;
        ChiSquared {
            statistic: classes.sum(),
            open: EXCEEDED_BY_1_PERCENT[freedom],
            refused: EXCEEDED_BY_3E_8[freedom],
        }
    }

    /// Whether the counts are a sample of that distribution.
    pub fn verdict(&self) -> Verdict {
        if self.statistic <= self.open {
            Verdict::Accepted
        } else if self.statistic <= self.refused {
            Verdict::Open
        } else {
            Verdict::Refused
        }
    }
}

/// A number of events that a Poisson distribution with this mean exceeds at most once in 100 million
/// draws, by Chernoff's bound: P(X >= k) <= exp(k - mean - k ln(k / mean)).
pub fn most_by_chance(mean: f64) -> u64 {
    let bound = |events: f64| events - mean - events * (events / mean).ln();
    let mut events = mean.ceil();
    while mean > 0.0 && bound(events + 1.0) > 1e-8_f64.ln() {
        events += 1.0;
    }
    events as u64
}

/// Fails unless `got` is a likely estimate of the bytes of allocations of these sizes, each sampled
/// with its own chance. Five standard deviations off is once in a million; where hardly any is
/// missed, three that are missed are.
#[track_caller]
pub fn assert_estimate(got: i64, sizes: impl Iterator<Item = u64>, interval: f64) {
    let (mut sum, mut variance, mut largest) = (0.0, 0.0, 0.0f64);
    for size in sizes {
        let size = size as f64;
        largest = largest.max(size);
        let chance = 1.0 - (-size / interval).exp();
        sum += size;
        variance += size * size * (1.0 - chance) / chance;
    }
    let (off, most) = ((got as f64 - sum).abs(), 5.0 * variance.sqrt() + 3.0 * largest);
    // Within a larger bound, a profile without any sample would pass.
    assert!(2.0 * most < sum, "an interval of {interval} bytes is too long for {sum} bytes");
    assert!(off <= most, "{got} of {sum} bytes: {off} off, at most {most}");
}

/// A generator of random numbers with a fixed seed (SplitMix64).
pub struct Random(pub u64);

impl Random {
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// From 0 to 1.
    pub fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Below `n`.
    pub fn below(&mut self, n: usize) -> usize {
        (self.unit() * n as f64) as usize
    }
}

/// Samples by function.
pub type Counts = BTreeMap<String, u64>;

/// Σ|p − q| over the functions of both, from 0 (equal) to 2 (nothing in common): the Manhattan
/// distance of two profiles, by which Google-Wide Profiling judged how stable its own were (Ren
/// et al., IEEE Micro 30(4), 2010).
pub fn manhattan(a: &Counts, b: &Counts) -> f64 {
    let sum = |c: &Counts| c.values().sum::<u64>().max(1) as f64;
    let (all_a, all_b) = (sum(a), sum(b));
    let share = |c: &Counts, f: &String, all: f64| c.get(f).copied().unwrap_or(0) as f64 / all;
    let names: std::collections::BTreeSet<&String> = a.keys().chain(b.keys()).collect();
    names.into_iter().map(|f| (share(a, f, all_a) - share(b, f, all_b)).abs()).sum()
}

/// A permutation test: the distance that two profiles of the same thing exceed once in a thousand
/// times. Their samples are put together and dealt out again, 2,000 times, with a fixed seed.
pub fn distance_of_equals(a: &Counts, b: &Counts) -> f64 {
    const TRIALS: usize = 2000;
    let names: Vec<&String> =
        a.keys().chain(b.keys()).collect::<std::collections::BTreeSet<_>>().into_iter().collect();
    let mut pool = Vec::new();
    for (index, name) in names.iter().enumerate() {
        let count = |c: &Counts| c.get(*name).copied().unwrap_or(0);
        pool.extend(std::iter::repeat_n(index, (count(a) + count(b)) as usize));
    }
    let first = a.values().sum::<u64>() as usize;
    let (of_a, of_b) = (first.max(1) as f64, (pool.len() - first).max(1) as f64);
    let mut random = Random(1);
    let mut distances: Vec<f64> = (0..TRIALS)
        .map(|_| {
            let mut counts = vec![[0.0; 2]; names.len()];
            for i in 0..pool.len() {
                if i < first {
                    let other = i + random.below(pool.len() - i);
                    pool.swap(i, other);
                }
                counts[pool[i]][usize::from(i >= first)] += 1.0;
            }
            counts.iter().map(|[n, m]| (n / of_a - m / of_b).abs()).sum()
        })
        .collect();
    distances.sort_by(f64::total_cmp);
    distances[TRIALS * 999 / 1000]
}

#[test]
fn chance_has_bounds() {
    // Exact quantiles of 1e-8 are 0, 4, 11, 32 and 1,073.
    for (mean, most) in [(0.0, 0), (0.03, 4), (1.2, 12), (10.0, 34), (900.0, 1088)] {
        assert_eq!(most_by_chance(mean), most, "{mean}");
    }
}
