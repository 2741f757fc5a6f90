//! The memory in use at its peak.
//!
//! The memory in use at a moment is an estimate from samples, and the maximum of many estimates is
//! biased upwards: it is taken where chance has added most. Therefore the samples are divided into
//! two independent halves: one determines *when* the peak was, and the other *how high* it was, and
//! vice versa; the result is the mean of both. Chance that shifts the moment does not affect the
//! value.
//!
//! The samples are the points of a Poisson process along the allocated bytes. Each point goes to
//! one half or the other, so each half is what a recording with twice the interval would have
//! sampled, and an allocation of many intervals, which is certain to be sampled, is in both. If
//! each allocation is recorded, both halves are the whole, and the peak is exact.

use super::model::{HeapSum, Live};
use ::heap::weight;

/// Indices of the halves.
const HALVES: [usize; 2] = [0, 1];

/// The peaks of both halves.
#[derive(Default)]
pub struct Peak {
    halves: [Half; 2],
}

#[derive(Default)]
struct Half {
    /// Bytes in use, and their maximum so far.
    bytes: f64,
    most: f64,
    /// Number of peaks so far.
    number: u64,
}

/// The memory of a stack in use: now, and at the peak.
#[derive(Default)]
pub struct Part {
    halves: [HalfPart; 2],
}

#[derive(Default)]
struct HalfPart {
    now: HeapSum,
    /// The value of `now` at the last peak of the other half before its last change. So the cost of
    /// a peak does not depend on the number of stacks.
    then: HeapSum,
    /// Number of that peak; if it is less than the last one's, `now` has not changed since.
    number: u64,
}

impl Peak {
    /// Adds an allocation of a stack to the memory in use, or removes it (`sign` -1).
    pub fn change(&mut self, id: u64, live: Live, sign: f64, part: &mut Part) {
        let Live { size, interval, .. } = live;
        let weight = sign * weight(size, interval.saturating_mul(2 - u64::from(interval <= 1)));
        // Save the values at the last peaks, before this may be another.
        for half in HALVES {
            let mine = &mut part.halves[half];
            let other = self.halves[1 - half].number;
            if mine.number < other {
                (mine.then, mine.number) = (mine.now, other);
            }
        }
        for half in HALVES.into_iter().filter(|&half| is_in(id, size, interval, half)) {
            part.halves[half].now.add(size, weight);
            let all = &mut self.halves[half];
            all.bytes += weight * size as f64;
            if all.bytes > all.most {
                all.most = all.bytes;
                all.number += 1;
            }
        }
    }

    /// The memory of a stack in use at the peak.
    pub fn at_peak(&self, part: &Part) -> HeapSum {
        let then = HALVES.map(|half| {
            let part = &part.halves[half];
            if part.number < self.halves[1 - half].number { part.now } else { part.then }
        });
        let both = then[0].and(then[1]);
        HeapSum { objects: both.objects / 2.0, bytes: both.bytes / 2.0 }
    }
}

/// True if a sampled allocation is in this half, given that it is in one or both.
fn is_in(id: u64, size: u64, interval: u64, half: usize) -> bool {
    if interval <= 1 {
        return true;
    }
    let size = size.max(1) as f64;
    let (share, any) =
        (-(-size / (2.0 * interval as f64)).exp_m1(), -(-size / interval as f64).exp_m1());
    let both = share * share / any;
    let only = share * (1.0 - share) / any;
    let chance = (spread(id) >> 11) as f64 / (1u64 << 53) as f64;
    chance < both || (chance < both + only) == (half == 0)
}

/// Distributes the bits of a number over all of it (the finalizer of splitmix64).
fn spread(mut x: u64) -> u64 {
    x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A program with about constant memory in use, in blocks of 256 bytes to 64 KiB, and
    /// recordings of it with an interval that samples about 25 blocks of it: the mean of their
    /// peaks is the true one. The maximum of all estimates is a tenth higher.
    #[test]
    fn chance_has_no_part_in_the_peak() {
        const INTERVAL: u64 = 64 << 10;
        const RECORDINGS: u64 = 300;
        let mut held = Vec::new();
        let mut most = 0.0;
        let mut now = 0.0;
        let mut steps = Vec::new();
        for i in 0..6000u64 {
            let size = 256 << (spread(i) % 9);
            steps.push((i, size));
            held.push(size);
            now += size as f64;
            if i >= 100 {
                now -= held[i as usize - 100] as f64;
            }
            most = f64::max(most, now);
        }
        let mut sum = 0.0;
        let mut squares = 0.0;
        let mut largest = 0.0;
        for recording in 1..=RECORDINGS {
            let mut peak = Peak::default();
            let mut part = Part::default();
            let mut now = 0.0;
            let mut highest = 0.0;
            let of = |i: u64, size| {
                let chance = -(-(size as f64) / INTERVAL as f64).exp_m1();
                let drawn = (spread(spread(recording) ^ i) >> 11) as f64 / (1u64 << 53) as f64;
                (drawn < chance).then_some(Live { row: 0, size, interval: INTERVAL })
            };
            for &(i, size) in &steps {
                let mut change = |i: u64, size, sign| {
                    if let Some(live) = of(i, size) {
                        peak.change(recording << 32 | i, live, sign, &mut part);
                        now += sign * weight(size, INTERVAL) * size as f64;
                        highest = f64::max(highest, now);
                    }
                };
                change(i, size, 1.0);
                if i >= 100 {
                    change(i - 100, steps[i as usize - 100].1, -1.0);
                }
            }
            let bytes = peak.at_peak(&part).bytes;
            (sum, squares, largest) = (sum + bytes, squares + bytes * bytes, largest + highest);
        }
        let count = RECORDINGS as f64;
        let mean = sum / count;
        let error = ((squares / count - mean * mean) / count).sqrt();
        // The moment that a half selects is not exactly that of the peak.
        assert!(mean < most + 4.0 * error && mean > 0.7 * most, "{mean} ± {error} of {most}");
        assert!(largest / count > 1.05 * most, "{} of {most}", largest / count);
    }
}
