//! Extrapolated samples, which represent others that were not taken. Their values are estimates,
//! and are scaled to the known sum for their labels; exact values are not changed.

use rustc_hash::FxHashMap;

use super::StackMaker;
use profile::LabelSetId;

/// Numerator and denominator of the scale of a column, by labels.
pub type Shares = FxHashMap<LabelSetId, (i64, i64)>;

/// Sums of one column for samples with the same labels.
#[derive(Clone, Copy, Default)]
pub struct ColumnSums {
    /// The known sum of the samples.
    pub all: i64,
    /// The sum of the exact values.
    pub exact: i64,
    /// The sum of the estimates.
    pub estimated: i64,
}

impl ColumnSums {
    /// Adds the sums of other samples.
    pub fn add(&mut self, other: ColumnSums) {
        self.all = self.all.saturating_add(other.all);
        self.exact = self.exact.saturating_add(other.exact);
        self.estimated = self.estimated.saturating_add(other.estimated);
    }
}

/// Most label sets of one thread; the samples of further ones count as those of the last.
const MAX_LABEL_SETS: usize = 64;

/// Sums of the samples of one thread in `N` columns, by labels: the thread's name and its program may
/// change, but the kernel's sums are of the thread.
#[derive(Default)]
pub struct SampledSums<const N: usize>(Vec<(LabelSetId, [ColumnSums; N])>);

impl<const N: usize> SampledSums<N> {
    /// The sums of the samples with these labels.
    pub fn get(&mut self, labels: LabelSetId) -> &mut [ColumnSums; N] {
        let found = self.0.iter().rposition(|(known, _)| *known == labels);
        let at = found.unwrap_or_else(|| {
            if self.0.len() < MAX_LABEL_SETS {
                self.0.push((labels, [ColumnSums::default(); N]));
            }
            self.0.len() - 1
        });
        &mut self.0[at].1
    }

    /// True if there are no samples.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Splits the known sums of the thread by what was sampled, and passes on the sums of each label
    /// set.
    pub fn split(mut self, all: [i64; N], mut pass: impl FnMut(LabelSetId, [ColumnSums; N])) {
        for (column, all) in all.into_iter().enumerate() {
            split_column(&mut self.0, column, all);
        }
        self.0.into_iter().for_each(|(labels, sums)| pass(labels, sums));
    }

    /// Passes on the sums of samples whose known sum is missing: they stay as they are.
    pub fn keep(self, mut pass: impl FnMut(LabelSetId, [ColumnSums; N])) {
        for (labels, sums) in self.0 {
            let whole = |sum: ColumnSums| ColumnSums { all: sum.exact + sum.estimated, ..sum };
            pass(labels, sums.map(whole));
        }
    }
}

/// Splits `all` by the estimates, beyond the exact values; without estimates, by the exact values.
fn split_column<const N: usize>(
    sums: &mut [(LabelSetId, [ColumnSums; N])],
    column: usize,
    all: i64,
) {
    let sum_of = |part: fn(&ColumnSums) -> i64| -> i128 {
        sums.iter().map(|(_, sums)| i128::from(part(&sums[column]))).sum()
    };
    let (exact, estimated) = (sum_of(|sum| sum.exact), sum_of(|sum| sum.estimated));
    let mut left = i128::from(all);
    let count = sums.len();
    for (i, (_, sums)) in sums.iter_mut().enumerate() {
        let sum = &mut sums[column];
        let part = match (exact, estimated) {
            _ if i + 1 == count => left,
            (0, 0) => 0,
            (_, 0) => i128::from(all) * i128::from(sum.exact) / exact,
            _ => {
                let beyond = (i128::from(all) - exact) * i128::from(sum.estimated) / estimated;
                i128::from(sum.exact) + beyond
            }
        };
        left -= part;
        sum.all = part as i64;
    }
}

/// Labels that keep extrapolated samples apart from exact ones until they are scaled: equal label
/// sets with other IDs.
#[derive(Default)]
pub struct Extrapolated(FxHashMap<LabelSetId, LabelSetId>);

impl Extrapolated {
    /// The labels of an extrapolated sample, in place of `labels`.
    pub fn labels(&mut self, maker: &mut StackMaker, labels: LabelSetId) -> LabelSetId {
        let table = &mut maker.builder.profile.labels;
        *self.0.entry(labels).or_insert_with(|| table.twin(labels))
    }

    /// Adds the scale of samples with these labels, if any.
    pub fn share(&self, shares: &mut Shares, labels: LabelSetId, known: ColumnSums) {
        let ColumnSums { all, exact, estimated } = known;
        match self.0.get(&labels) {
            Some(&own) if estimated > 0 => {
                shares.insert(own, ((all - exact).max(0), estimated));
            }
            // Nothing was extrapolated: some samples were lost.
            _ if all != exact && exact > 0 => {
                shares.insert(labels, (all, exact));
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn estimates_are_scaled_and_the_rest_stays() {
        let plain = LabelSetId(3);
        let own = LabelSetId(4);
        let labels = Extrapolated([(plain, own)].into_iter().collect());
        let share = |all, exact, estimated| {
            let mut shares = Shares::default();
            labels.share(&mut shares, plain, ColumnSums { all, exact, estimated });
            shares.into_iter().collect::<Vec<_>>()
        };
        assert_eq!(share(100, 40, 30), [(own, (60, 30))]);
        assert_eq!(share(100, 120, 30), [(own, (0, 30))], "the clock is read twice");
        assert_eq!(share(100, 80, 0), [(plain, (100, 80))], "some were lost");
        assert_eq!(share(100, 100, 0), []);
        assert_eq!(share(100, 0, 0), []);
    }

    /// Exact and estimated sums of each label set, and what `all` is split into.
    fn split(all: i64, sums: &[(i64, i64)]) -> Vec<i64> {
        let mut sampled = SampledSums::<1>::default();
        for (i, &(exact, estimated)) in sums.iter().enumerate() {
            let [sum] = sampled.get(LabelSetId(i as u32));
            sum.exact += exact;
            sum.estimated += estimated;
        }
        let mut parts = Vec::new();
        sampled.split([all], |labels, [sum]| {
            assert_eq!(labels, LabelSetId(parts.len() as u32));
            parts.push(sum.all);
        });
        parts
    }

    #[test]
    fn a_thread_s_sum_is_split_by_what_was_sampled_under_each_of_its_names() {
        assert_eq!(split(120, &[(80, 0), (40, 0)]), [80, 40]);
        assert_eq!(split(60, &[(80, 0), (40, 0)]), [40, 20], "the clock is read twice");
        assert_eq!(split(100, &[(30, 0), (10, 20), (0, 40)]), [30, 30, 40], "exact values stay");
        assert_eq!(split(100, &[(1, 0), (1, 0), (1, 0)]), [33, 33, 34], "nothing is lost");
        assert_eq!(split(100, &[(0, 0)]), [100]);
        assert!(split(100, &[]).is_empty());
        let most = i64::MAX;
        assert_eq!(split(most, &[(most / 2, most / 2), (0, most)]).iter().sum::<i64>(), most);
    }

    #[test]
    fn samples_whose_sum_is_missing_stay_as_they_are() {
        let mut sampled = SampledSums::<1>::default();
        sampled.get(LabelSetId(1))[0] = ColumnSums { all: 0, exact: 5, estimated: 7 };
        sampled.keep(|_, [sum]| assert_eq!((sum.all, sum.exact, sum.estimated), (12, 5, 7)));
    }

    #[test]
    fn names_of_a_thread_are_bounded() {
        let mut sampled = SampledSums::<1>::default();
        for i in 0..1000 {
            sampled.get(LabelSetId(i))[0].exact += 1;
        }
        let (mut sets, mut sum) = (0, 0);
        sampled.split([2000], |_, [part]| (sets, sum) = (sets + 1, sum + part.all));
        assert_eq!((sets, sum), (MAX_LABEL_SETS, 2000));
    }
}
