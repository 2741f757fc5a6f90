//! Samples that stand for others: their values are estimates, and are scaled to what is known of all
//! with the same labels; those that stand for themselves stay as they are.

use rustc_hash::FxHashMap;

use super::{Aggregator, Shares};
use profile::LabelSetId;

/// What samples with the same labels say in one column, and what is known of all.
#[derive(Clone, Copy, Default)]
pub(super) struct Known {
    /// All of it.
    pub all: i64,
    /// Of samples that stand for themselves.
    pub exact: i64,
    /// Of samples that stand for others, too.
    pub estimated: i64,
}

/// The labels of samples that stand for others, by those of the rest.
#[derive(Default)]
pub(super) struct Twins(FxHashMap<LabelSetId, LabelSetId>);

impl Twins {
    /// The labels of samples that stand for others.
    pub fn get(&self, labels: LabelSetId) -> Option<LabelSetId> {
        self.0.get(&labels).copied()
    }

    /// By which fraction the values of samples with these labels are to be scaled.
    pub fn share(&self, shares: &mut Shares, labels: LabelSetId, known: Known) {
        let Known { all, exact, estimated } = known;
        match self.get(labels) {
            Some(twin) if estimated > 0 => {
                shares.insert(twin, ((all - exact).max(0), estimated));
            }
            // Nothing was estimated: some samples were lost.
            _ if all != exact && exact > 0 => {
                shares.insert(labels, (all, exact));
            }
            _ => {}
        }
    }
}

impl Aggregator {
    /// The labels of a sample that stands for others, too, in place of these.
    pub(super) fn twin(&mut self, twins: &mut Twins, labels: LabelSetId) -> LabelSetId {
        let table = &mut self.builder.profile.labels;
        *twins.0.entry(labels).or_insert_with(|| table.twin(labels))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn estimates_are_scaled_and_the_rest_stays() {
        let (plain, twin) = (LabelSetId(3), LabelSetId(4));
        let twins = Twins([(plain, twin)].into_iter().collect());
        let share = |all, exact, estimated| {
            let mut shares = Shares::default();
            twins.share(&mut shares, plain, Known { all, exact, estimated });
            shares.into_iter().collect::<Vec<_>>()
        };
        assert_eq!(share(100, 40, 30), [(twin, (60, 30))]);
        assert_eq!(share(100, 120, 30), [(twin, (0, 30))], "the clock is read twice");
        assert_eq!(share(100, 80, 0), [(plain, (100, 80))], "some were lost");
        assert_eq!(share(100, 100, 0), []);
        assert_eq!(share(100, 0, 0), []);
    }
}
