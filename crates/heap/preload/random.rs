//! Sampling intervals.

/// A step of a xorshift64* generator (Vigna, "An experimental exploration of Marsaglia's xorshift
/// generators, scrambled"). `state` must not be 0, and never becomes it.
pub fn next(state: &mut u64) -> u64 {
    *state ^= *state >> 12;
    *state ^= *state << 25;
    *state ^= *state >> 27;
    state.wrapping_mul(0x2545_f491_4f6c_dd1d)
}

/// Spreads the bits of a number over all of it (the finalizer of splitmix64); never 0.
pub fn spread(mut x: u64) -> u64 {
    x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (x ^ (x >> 31)) | 1
}

/// An interval from an exponential distribution with this mean, in whole bytes.
///
/// An allocation of `n` bytes is sampled if the rest of the interval is smaller than `n`: the
/// probability is exactly 1 - exp(-n / mean), although the interval is rounded down.
pub fn distance(state: &mut u64, mean: u64) -> u64 {
    if mean <= 1 {
        return 0;
    }
    (-ln(unit(state)) * mean as f64) as u64
}

/// From 2^-53 to 1.
fn unit(state: &mut u64) -> f64 {
    ((next(state) >> 11) + 1) as f64 / (1u64 << 53) as f64
}

/// True if an allocation of `size` bytes, sampled with the mean interval `short`, is also sampled
/// with the interval `long`: it is one or more of the points of a Poisson process, of which only a
/// fraction is kept.
pub fn stays(state: &mut u64, size: u64, short: u64, long: u64) -> bool {
    long <= short || unit(state) * chance(size, short) <= chance(size, long)
}

/// Probability that an allocation is sampled: 1 - exp(-size / mean).
pub fn chance(size: u64, mean: u64) -> f64 {
    if mean <= 1 {
        return 1.0;
    }
    let x = size as f64 / mean as f64;
    if x > 64.0 {
        return 1.0;
    }
    // exp(-x / 64) - 1 by its series, and then six times (1 + y)^2 - 1 = y (y + 2).
    let small = x / -64.0;
    let (mut term, mut y, mut n) = (1.0, 0.0, 1.0);
    while n < 16.0 {
        term *= small / n;
        y += term;
        n += 1.0;
    }
    let mut times = 0;
    while times < 6 {
        y *= y + 2.0;
        times += 1;
    }
    -y
}

/// Natural logarithm of a positive, normal number; `core` has none.
pub fn ln(x: f64) -> f64 {
    const MANTISSA: u64 = (1 << 52) - 1;
    let bits = x.to_bits();
    let exponent = (bits >> 52) as i64 - 1023;
    let m = f64::from_bits((bits & MANTISSA) | (1023 << 52));
    // ln m = 2 artanh((m - 1) / (m + 1)), which is at most 1/3.
    let s = (m - 1.0) / (m + 1.0);
    let (mut power, mut sum, mut n) = (s, 0.0, 1.0);
    while n < 33.0 {
        sum += power / n;
        power *= s * s;
        n += 2.0;
    }
    exponent as f64 * core::f64::consts::LN_2 + 2.0 * sum
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logarithms() {
        for x in [f64::MIN_POSITIVE, 1e-300, 1.0 / (1u64 << 53) as f64, 0.1, 0.5, 1.0, 2.0, 1e300] {
            assert!((ln(x) - x.ln()).abs() <= 4e-16 * x.ln().abs().max(1.0), "{x}: {}", ln(x));
        }
    }

    #[test]
    fn chances() {
        for (size, mean) in [(1, 2), (1, 1 << 40), (100, 64), (1 << 20, 512 << 10), (1 << 40, 99)] {
            let expected = -(-(size as f64) / mean as f64).exp_m1();
            let got = chance(size, mean);
            assert!((got - expected).abs() <= 1e-12 * expected, "{size}, {mean}: {got}");
        }
        assert_eq!((chance(0, 1), chance(0, 2)), (1.0, 0.0));
    }

    /// Sampled with an interval and kept with a longer one equals sampled with the longer one.
    #[test]
    fn kept_samples_have_the_probability_of_the_longer_interval() {
        let (mut state, count) = (spread(7), 1 << 18);
        for (size, short, long) in [(100, 1, 64), (100, 64, 4096), (5000, 1000, 4000)] {
            let sampled = (0..count).filter(|_| distance(&mut state, short) < size).count();
            let kept = (0..sampled).filter(|_| stays(&mut state, size, short, long)).count();
            let chance = -(-(size as f64) / long as f64).exp_m1();
            let deviation = (f64::from(count) * chance * (1.0 - chance)).sqrt();
            let off = (kept as f64 - f64::from(count) * chance).abs();
            assert!(off < 5.0 * deviation, "{size}, {short}, {long}: {off} of {deviation}");
        }
    }

    #[test]
    fn numbers_are_never_zero() {
        assert!((0..1000).all(|x| spread(x) != 0) && spread(0) != spread(1));
        let mut state = spread(3);
        assert!((0..1000).all(|_| {
            next(&mut state);
            state != 0
        }));
    }

    /// The probability that an allocation of `n` bytes is sampled is 1 - exp(-n / mean).
    #[test]
    fn distances_are_exponential() {
        let (mut state, count) = (spread(1), 1 << 20);
        assert_eq!(distance(&mut state, 1), 0);
        for mean in [64u64, 512 << 10] {
            let drawn: Vec<u64> = (0..count).map(|_| distance(&mut state, mean)).collect();
            for part in [0.01, 0.5, 1.0, 3.0] {
                let n = (mean as f64 * part).ceil();
                let chance = -(-n / mean as f64).exp_m1();
                let seen = drawn.iter().filter(|&&d| d < n as u64).count() as f64;
                let deviation = (f64::from(count) * chance * (1.0 - chance)).sqrt();
                let off = (seen - f64::from(count) * chance).abs();
                assert!(off < 5.0 * deviation, "{mean}, {part}: {off} of {deviation}");
            }
        }
    }
}
