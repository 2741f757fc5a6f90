//! Tests whether values differ by more than sampling error.
//!
//! Every value is a sum of samples, so it has an effective number of samples: its square divided by
//! its variance. Of a row with `a` such samples before and `b` after, `b` of `a + b` follows a
//! binomial distribution if the row did not change (two Poisson rates), which gives the p-value,
//! exact for small numbers. Three things make it honest for real recordings:
//!
//! * Rows are tested against the ratio of what did *not* change ([`Judge::common`]), so that
//!   recordings of different lengths, rates or loads compare. It is the ratio of the totals without
//!   the rows that differ significantly from it, removed one by one.
//! * Two runs of one program differ more than two samples of one run: by the places of code and
//!   data in memory, by other programs. Each row may drift by [`DRIFT`] of itself and by
//!   [`SHARE_DRIFT`] of the total, and the variance of all is multiplied by that of the bulk of the rows ([`Judge::dispersion`]), or, with three recordings
//!   or more on a side, by that among these, of each row.
//! * As hundreds of rows are tested at once, p-values are corrected by Holm's method, over the rows
//!   with enough samples to be significant at all (Tarone).

use super::cells::{Cell, Cells};
use super::probability::{binomial, deviations, student};
use super::{Change, DiffRow};

/// Relative standard deviation of a row between two recordings of an unchanged program, apart from
/// sampling error.
const DRIFT: f64 = 0.009;

/// The same as a share of the total. Interrupts that another CPU handles, and code whose branches
/// the CPU predicts worse at other addresses, move a row by that much, however small it is.
const SHARE_DRIFT: f64 = 0.0013;

/// Largest number of samples: values without sampling error have infinitely many.
const MOST: f64 = 1e12;

/// Samples on both sides from which on a row counts in the bulk.
const BULK_SAMPLES: f64 = 20.0;

/// Rows from which on the bulk has a dispersion.
const BULK_ROWS: usize = 10;

/// Largest dispersion of the bulk: rows that vary even more have changed.
const MOST_DISPERSION: f64 = 4.0;

/// Recordings of a side from which on their variance is measured.
const REPLICATES: usize = 3;

/// Degrees of freedom with which the dispersion of all rows counts in that of each.
const PRIOR_FREEDOM: f64 = 4.0;

/// A value before and after, with its variances.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Evidence {
    values: [f64; 2],
    variances: [f64; 2],
}

impl Evidence {
    fn is_negative(&self) -> bool {
        self.values.iter().any(|&value| value < 0.0)
    }

    /// Effective number of samples of a side.
    fn samples(&self, side: usize) -> f64 {
        let value = self.values[side];
        if value <= 0.0 { 0.0 } else { (value * value / self.variances[side]).min(MOST) }
    }

    /// Value of one effective sample of each side; `all` has the sides' own, for values that only
    /// one of them has.
    fn weights(&self, all: &Evidence) -> [f64; 2] {
        let weight = |e: &Evidence, side: usize| {
            Some(e.values[side] / e.samples(side)).filter(|w| w.is_finite() && *w > 0.0)
        };
        let common = [0, 1].map(|side| weight(all, side).unwrap_or(1.0));
        let own = [0, 1].map(|side| weight(self, side));
        [0, 1].map(|side| {
            let from_other = own[1 - side].map(|w| w * common[side] / common[1 - side]);
            own[side].or(from_other).unwrap_or(common[side])
        })
    }

    /// Difference to the `common` ratio in standard deviations; `all` has the sides' totals.
    fn score(&self, common: f64, all: &Evidence) -> f64 {
        let difference = self.values[1] - common * self.values[0];
        let squares = |values: [f64; 2]| values[1].powi(2) + (common * values[0]).powi(2);
        let drift =
            DRIFT * DRIFT * squares(self.values) + SHARE_DRIFT * SHARE_DRIFT * squares(all.values);
        let variance = self.variances[1] + common * common * self.variances[0] + drift;
        if variance > 0.0 { difference / variance.sqrt() } else { 0.0 }
    }
}

/// Sources of variance of a row apart from sampling.
#[derive(Clone, Copy, Debug)]
struct Excess {
    /// Factor of the sampling variance.
    dispersion: f64,
    /// Relative variances of the sides.
    relative: [f64; 2],
    /// Variances of the sides in relation to the squares of their totals.
    share_of_total: [f64; 2],
}

/// What rows are tested against.
pub(super) struct Judge {
    /// Ratio of what did not change, after to before.
    pub(super) common: f64,
    /// Factor of the variance of all rows.
    pub(super) dispersion: f64,
    /// It was measured among recordings of one side.
    pub(super) replicated: bool,
    all: Evidence,
    own: Vec<Evidence>,
    totals: Vec<Evidence>,
    /// The row does not belong to what did not change.
    removed: Vec<bool>,
    /// Relative variance of `common`.
    common_variance: f64,
    runs: [usize; 2],
}

/// A value of a row that is tested.
struct Test {
    row: usize,
    /// 0: the self value, 1: the total.
    which: usize,
    p: f64,
    /// The smallest p-value of that number of samples.
    smallest: f64,
}

impl Judge {
    /// With the ratio `common` if it is given; else it is found.
    pub(super) fn new(cells: &Cells, before: usize, common: Option<f64>) -> Judge {
        let evidence = |cells: &[Cell], which: usize| {
            let mut out = Evidence::default();
            for (run, cell) in cells.iter().enumerate() {
                let side = usize::from(run >= before);
                out.values[side] += cell.values[which] as f64;
                out.variances[side] += cell.variances[which];
            }
            out
        };
        let rows = |which| (0..cells.len()).map(|row| evidence(cells.runs(row), which)).collect();
        let runs = [before, cells.all.len() - before];
        let mut judge = Judge {
            common: 1.0,
            dispersion: 1.0,
            replicated: runs.iter().any(|&n| n >= REPLICATES),
            all: evidence(&cells.all, 0),
            own: rows(0),
            totals: rows(1),
            removed: vec![false; cells.len()],
            common_variance: 0.0,
            runs,
        };
        match common.filter(|ratio| ratio.is_finite() && *ratio > 0.0) {
            Some(ratio) => judge.common = ratio,
            None => judge.find_common(),
        }
        judge.dispersion = if judge.replicated {
            let freedom = judge.freedom();
            judge.dispersion_of(|row| judge.replicate_dispersion(cells, row, 0), freedom)
        } else {
            judge.dispersion_of(|row| judge.own[row].score(judge.common, &judge.all).powi(2), 1.0)
        };
        judge
    }

    /// Effective number of samples of a side.
    pub(super) fn effective(&self, side: usize) -> f64 {
        self.all.samples(side)
    }

    /// Finds the ratio of what did not change.
    fn find_common(&mut self) {
        /// Most rows that are removed.
        const ROUNDS: usize = 100;
        /// Share of the values, and samples, that remain.
        const LEAST_SHARE: f64 = 0.05;
        const LEAST_SAMPLES: f64 = 100.0;
        let mut rest = Evidence::default();
        let counted = |e: &Evidence| !e.is_negative();
        for e in self.own.iter().filter(|e| counted(e)) {
            for side in 0..2 {
                rest.values[side] += e.values[side];
                rest.variances[side] += e.variances[side];
            }
        }
        let whole = rest;
        let rows = self.own.iter().filter(|e| counted(e) && e.values != [0.0; 2]).count();
        let limit = deviations(Change::FAMILY_ERROR / rows.max(1) as f64);
        for _ in 0..ROUNDS {
            let ratio = rest.values[1] / rest.values[0];
            if !(ratio.is_finite() && ratio > 0.0) {
                break;
            }
            self.common = ratio;
            let relative = |side: usize| 1.0 / rest.samples(side);
            self.common_variance = relative(0) + relative(1);
            let score = |row: usize| self.own[row].score(ratio, &self.all).abs();
            let left = (0..self.own.len()).filter(|&r| !self.removed[r] && counted(&self.own[r]));
            // The differences sum to 0: the largest one is more likely the cause of the others.
            let difference = |row: usize| {
                let [before, after] = self.own[row].values;
                (after - ratio * before).abs()
            };
            let differing = left.filter(|&row| score(row) > limit);
            let largest = differing.max_by(|&a, &b| difference(a).total_cmp(&difference(b)));
            let Some(worst) = largest else { break };
            let mut without = rest;
            for side in 0..2 {
                without.values[side] -= self.own[worst].values[side];
                without.variances[side] -= self.own[worst].variances[side];
            }
            let enough = |side: usize| {
                without.values[side] >= LEAST_SHARE * whole.values[side]
                    && without.samples(side) >= LEAST_SAMPLES
            };
            if !(enough(0) && enough(1)) {
                break;
            }
            self.removed[worst] = true;
            rest = without;
        }
    }

    /// The dispersion of the bulk of the rows, whose own is `get` with these degrees of freedom:
    /// its median, as far as it is larger than by chance.
    fn dispersion_of(&self, get: impl Fn(usize) -> f64, freedom: f64) -> f64 {
        // What only one side has did not drift, but changed.
        let many = |e: &Evidence| {
            e.values.iter().all(|&v| v > 0.0) && e.samples(0) + e.samples(1) >= BULK_SAMPLES
        };
        let bulk = (0..self.own.len()).filter(|&row| many(&self.own[row]));
        let mut all: Vec<f64> = bulk.map(get).filter(|d| d.is_finite()).collect();
        if all.len() < BULK_ROWS {
            return 1.0;
        }
        let (rows, middle) = (all.len() as f64, all.len() / 2);
        let (_, median, _) = all.select_nth_unstable_by(middle, f64::total_cmp);
        // Median of a mean of squares of normal deviates, and two standard errors more.
        let expected = (1.0 - 2.0 / (9.0 * freedom)).powi(3);
        let by_chance = expected + 2.5 * (2.0 / freedom / rows).sqrt();
        (*median / by_chance).clamp(1.0, MOST_DISPERSION)
    }

    /// Variance of a row among the recordings of each side, in units of its sampling variance.
    fn replicate_dispersion(&self, cells: &Cells, row: usize, which: usize) -> f64 {
        let mut squares = 0.0;
        for (run, (cell, all)) in cells.runs(row).iter().zip(&cells.all).enumerate() {
            let side = usize::from(run >= self.runs[0]);
            let e = if which == 0 { &self.own[row] } else { &self.totals[row] };
            let share = all.values[0] as f64 / self.all.values[side];
            let expected = e.values[side] * share;
            let variance = e.variances[side] * share + (DRIFT * expected).powi(2);
            if variance > 0.0 {
                squares += (cell.values[which] as f64 - expected).powi(2) / variance;
            }
        }
        squares / self.freedom()
    }

    /// Degrees of freedom of the variance among recordings.
    fn freedom(&self) -> f64 {
        self.runs.iter().map(|&n| n.saturating_sub(1) as f64).sum()
    }

    /// Tests all rows. Returns the number of tests.
    pub(super) fn test(&self, cells: &Cells, rows: &mut [DiffRow]) -> usize {
        let mut tests = Vec::new();
        for row in 0..rows.len() {
            for which in 0..2 {
                // A leaf's total is its self value.
                let is_leaf = which == 1 && self.own[row] == self.totals[row];
                tests.extend(self.test_of(cells, row, which).filter(|_| !is_leaf));
            }
        }
        let count = keep_testable(&mut tests);
        tests.sort_by(|a, b| a.p.total_cmp(&b.p));
        let mut adjusted = 0.0f64;
        for (rank, test) in tests.iter().enumerate() {
            adjusted = adjusted.max(test.p * (count - rank) as f64).min(1.0);
            let row = &mut rows[test.row];
            let change = if test.which == 0 { &mut row.itself } else { &mut row.total };
            (change.p, change.adjusted_p) = (Some(test.p), Some(adjusted));
        }
        for (index, row) in rows.iter_mut().enumerate() {
            if self.own[index] == self.totals[index] {
                (row.total.p, row.total.adjusted_p) = (row.itself.p, row.itself.adjusted_p);
            }
        }
        count
    }

    fn test_of(&self, cells: &Cells, row: usize, which: usize) -> Option<Test> {
        let e = if which == 0 { self.own[row] } else { self.totals[row] };
        if e.is_negative() || e.values == [0.0; 2] || self.all.values.iter().any(|&v| v <= 0.0) {
            return None;
        }
        let drift = |side: usize| DRIFT * DRIFT / self.runs[side].max(1) as f64;
        let share_drift = |side: usize| SHARE_DRIFT * SHARE_DRIFT / self.runs[side].max(1) as f64;
        let removed = if self.removed[row] { self.common_variance } else { 0.0 };
        let mut excess = Excess {
            dispersion: self.dispersion,
            relative: [drift(0), drift(1) + removed],
            share_of_total: [share_drift(0), share_drift(1)],
        };
        if self.replicated {
            let own = self.replicate_dispersion(cells, row, which) * self.freedom();
            let freedom = PRIOR_FREEDOM + self.freedom();
            excess.dispersion = ((PRIOR_FREEDOM * self.dispersion + own) / freedom).max(1.0);
        }
        let Tested { p, smallest } = p_value(&e, &self.all, self.common, excess);
        // A variance that was measured itself has an error.
        let freedom = PRIOR_FREEDOM + self.freedom();
        let heavy_tails =
            |p: f64| if self.replicated { student(deviations(p), freedom).max(p) } else { p };
        Some(Test { row, which, p: heavy_tails(p), smallest: heavy_tails(smallest) })
    }
}

/// Result of a test.
struct Tested {
    p: f64,
    /// The smallest p-value of that number of samples.
    smallest: f64,
}

fn p_value(e: &Evidence, all: &Evidence, common: f64, excess: Excess) -> Tested {
    let mut weights = e.weights(all);
    // The value before if nothing changed, by both sides' samples.
    let inverse = [weights[0].recip(), common / weights[1]];
    let counts = [e.values[0] / weights[0], e.values[1] / weights[1]];
    let unchanged = (counts[0] + counts[1]) / (inverse[0] + inverse[1]);
    let expected = [unchanged / weights[0], unchanged * common / weights[1]];
    for side in 0..2 {
        // An effective sample represents more if there is more variance than that of sampling.
        let total = all.values[side] / weights[side];
        let share_of_total = excess.share_of_total[side] * total * total / expected[side];
        weights[side] *=
            excess.dispersion + expected[side] * excess.relative[side] + share_of_total;
    }
    let counts = [e.values[0] / weights[0], e.values[1] / weights[1]];
    let rates = [weights[0].recip(), common / weights[1]];
    let trials = counts[0] + counts[1];
    let probability = rates[1] / (rates[0] + rates[1]);
    let smallest = binomial(0.0, trials, probability).min(binomial(trials, trials, probability));
    Tested { p: binomial(counts[1], trials, probability), smallest }
}

/// Removes tests that cannot be significant, which then need no correction (Tarone's method).
/// Returns the number of the others.
fn keep_testable(tests: &mut Vec<Test>) -> usize {
    let mut smallest: Vec<f64> = tests.iter().map(|test| test.smallest).collect();
    smallest.sort_by(f64::total_cmp);
    let within = |count: usize| {
        let limit = Change::FAMILY_ERROR / count as f64;
        smallest.partition_point(|&p| p <= limit)
    };
    // The least number that is not exceeded by the tests that can pass its limit.
    let (mut low, mut high) = (1, tests.len().max(1));
    while low < high {
        let middle = usize::midpoint(low, high);
        if within(middle) <= middle { high = middle } else { low = middle + 1 }
    }
    let limit = Change::FAMILY_ERROR / low as f64;
    tests.retain(|test| test.smallest <= limit);
    tests.len()
}
