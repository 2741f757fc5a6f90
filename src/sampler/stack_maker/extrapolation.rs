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
}
