//! Distributions: two-sided p-values of the binomial and Student's t distribution.

/// Trials from which on a normal distribution replaces the binomial one.
const MANY: f64 = 20_000.0;

/// Two-sided p-value of `successes` or something less likely among `trials`, each of which
/// succeeds with this probability. Exact for whole numbers, continuous between them.
pub fn binomial(successes: f64, trials: f64, probability: f64) -> f64 {
    if trials <= 0.0 || !(probability > 0.0 && probability < 1.0) {
        return 1.0;
    }
    if trials > MANY {
        let deviation = (trials * probability * (1.0 - probability)).sqrt();
        return normal((successes - trials * probability) / deviation);
    }
    let failures = (trials - successes).max(0.0);
    let at_least = if successes > 0.0 { beta(successes, failures + 1.0, probability) } else { 1.0 };
    let at_most =
        if failures > 0.0 { beta(failures, successes + 1.0, 1.0 - probability) } else { 1.0 };
    (2.0 * at_least.min(at_most)).min(1.0)
}

/// Two-sided p-value of this many standard deviations in a normal distribution.
pub fn normal(deviations: f64) -> f64 {
    erfc(deviations.abs() / std::f64::consts::SQRT_2)
}

/// Two-sided p-value of `t` in Student's distribution with these degrees of freedom.
pub fn student(t: f64, freedom: f64) -> f64 {
    beta(freedom / 2.0, 0.5, freedom / (freedom + t * t))
}

/// Number of standard deviations whose two-sided p-value is `p`, by bisection.
pub fn deviations(p: f64) -> f64 {
    let (mut low, mut high) = (0.0, 40.0);
    for _ in 0..60 {
        let middle: f64 = f64::midpoint(low, high);
        if normal(middle) > p { low = middle } else { high = middle }
    }
    low
}

/// Complementary error function of a number that is not negative; its relative error is below
/// 1.2e-7.
fn erfc(x: f64) -> f64 {
    const TERMS: [f64; 10] = [
        -1.265_512_23,
        1.000_023_68,
        0.374_091_96,
        0.096_784_18,
        -0.186_288_06,
        0.278_868_07,
        -1.135_203_98,
        1.488_515_87,
        -0.822_152_23,
        0.170_872_77,
    ];
    let t = 1.0 / (1.0 + 0.5 * x);
    let sum = TERMS.iter().rev().fold(0.0, |sum, term| sum * t + term);
    (t * (sum - x * x).exp()).min(1.0)
}

/// Regularized incomplete beta function.
fn beta(a: f64, b: f64, x: f64) -> f64 {
    if x <= 0.0 {
        return 0.0;
    }
    if x >= 1.0 {
        return 1.0;
    }
    let front = (ln_gamma(a + b) - ln_gamma(a) - ln_gamma(b) + a * x.ln() + b * (-x).ln_1p()).exp();
    // The fraction converges fast on this side only.
    if x < (a + 1.0) / (a + b + 2.0) {
        front * fraction(a, b, x) / a
    } else {
        1.0 - front * fraction(b, a, 1.0 - x) / b
    }
}

/// Continued fraction of the incomplete beta function, by Lentz's method.
fn fraction(a: f64, b: f64, x: f64) -> f64 {
    const TINY: f64 = 1e-300;
    const STEPS: usize = 2_000;
    let away = |value: f64| if value.abs() < TINY { TINY } else { value };
    let mut c = 1.0;
    let mut d = 1.0 / away(1.0 - (a + b) * x / (a + 1.0));
    let mut result = d;
    for step in 1..STEPS {
        let m = step as f64;
        let even = m * (b - m) * x / ((a + 2.0 * m - 1.0) * (a + 2.0 * m));
        let odd = -(a + m) * (a + b + m) * x / ((a + 2.0 * m) * (a + 2.0 * m + 1.0));
        let mut factor = 1.0;
        for term in [even, odd] {
            d = 1.0 / away(1.0 + term * d);
            c = away(1.0 + term / c);
            factor = c * d;
            result *= factor;
        }
        if (factor - 1.0).abs() < 1e-12 {
            break;
        }
    }
    result
}

/// Logarithm of the gamma function of a positive number, by Lanczos' approximation.
fn ln_gamma(x: f64) -> f64 {
    const TERMS: [f64; 6] = [
        76.180_091_729_471_46,
        -86.505_320_329_416_77,
        24.014_098_240_830_91,
        -1.231_739_572_450_155,
        0.001_208_650_973_866_179,
        -0.000_005_395_239_384_953,
    ];
    let base = x + 5.5 - (x + 0.5) * (x + 5.5).ln();
    let series = TERMS
        .iter()
        .enumerate()
        .fold(1.000_000_000_190_015, |sum, (i, term)| sum + term / (x + 1.0 + i as f64));
    (2.506_628_274_631_000_5 * series / x).ln() - base
}

#[cfg(test)]
mod tests {
    use super::*;

    fn assert_near(got: f64, want: f64) {
        assert!((got - want).abs() <= 1e-6 * want.max(1e-12) + 1e-12, "{got} for {want}");
    }

    #[test]
    fn binomial_tails_are_exact() {
        // Sums of binomial coefficients.
        assert_near(binomial(0.0, 20.0, 0.5), 2.0 / f64::from(1 << 20));
        assert_near(binomial(20.0, 20.0, 0.5), 2.0 / f64::from(1 << 20));
        assert_near(binomial(2.0, 10.0, 0.5), 2.0 * (1.0 + 10.0 + 45.0) / 1024.0);
        assert_near(binomial(5.0, 10.0, 0.5), 1.0);
        // Probability of 3 or more of 4 at 1/4: 4 · 3/256 + 1/256.
        assert_near(binomial(3.0, 4.0, 0.25), 2.0 * 13.0 / 256.0);
        assert_near(binomial(0.0, 0.0, 0.5), 1.0);
    }

    #[test]
    fn both_ways_agree_for_many_trials() {
        for z in [0.5, 1.0, 2.0, 4.0] {
            let trials = MANY;
            let successes = trials / 2.0 + z * (trials / 4.0).sqrt();
            let exact = binomial(successes, trials, 0.5);
            let approximate = binomial(successes * 1.001, trials * 1.001, 0.5);
            assert!((exact / approximate).ln().abs() < 0.05, "{z}: {exact} {approximate}");
        }
    }

    #[test]
    fn tables_of_distributions_agree() {
        assert!((normal(1.959_963_985) - 0.05).abs() < 1e-7);
        assert!((normal(5.0) / 5.733_031_4e-7 - 1.0).abs() < 1e-6);
        assert!((deviations(0.05) - 1.959_964).abs() < 1e-5);
        assert!((student(2.776_445_1, 4.0) - 0.05).abs() < 1e-7);
        assert!((student(12.706_205, 1.0) - 0.05).abs() < 1e-7);
        assert_near(student(0.0, 3.0), 1.0);
    }
}
