//! Shares of the value of a view that lack something: the rest of their stack, or a name.

use std::ops::Range;

use rustc_hash::FxHashMap;

use super::parts::by_parts;
use super::{View, ViewSample};
use profile::{LocationId, Profile, StrId, Truncation};

/// Values of samples whose stacks are truncated, or whose leaf has no name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Shares {
    /// The value of all samples, with that of idle threads that are left out: the sum of their
    /// magnitudes.
    pub all: i64,
    /// The value of those whose stack is truncated, and lacks something.
    pub truncated: i64,
    /// The number of all samples with a value.
    pub samples: i64,
    /// The number of those whose stack is truncated, and lacks something.
    pub truncated_samples: i64,
    /// The value of those whose leaf has no function name.
    pub nameless: i64,
    /// The same by the file of the binary ([`StrId::EMPTY`]: none), most first.
    pub nameless_in: Vec<(StrId, i64)>,
}

impl Shares {
    /// Those of a view.
    pub fn new(view: &View) -> Shares {
        let profile = view.profile;
        let locations = (0..profile.locations.len() as u32).map(LocationId);
        let lacks = |code| !Truncation::from_code(code).is_some_and(Truncation::lacks_nothing);
        let ends: Vec<bool> =
            locations.map(|id| profile.truncation_of(id).is_some_and(lacks)).collect();
        // Most profiles have no such stacks: then theirs need not be searched.
        let truncates = ends.contains(&true);
        let ends = truncates.then_some(ends.as_slice());
        let parts = by_parts(view, |rows| PartShares::new(view, rows, ends));
        let mut sum = PartShares::default();
        parts.into_iter().for_each(|part| sum.add(part));
        let PartShares { mut shares, nameless } = sum;
        shares.all = shares.all.saturating_add(view.idle);
        shares.nameless_in = nameless.into_iter().collect();
        let name = |file: StrId| profile.str(file);
        shares.nameless_in.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| name(a.0).cmp(name(b.0))));
        shares
    }

    /// The part of the value in truncated stacks, in percent, if it is at least 1 %, and more than
    /// chance.
    pub fn truncated_percent(&self) -> Option<f64> {
        let percent = super::percent(self.truncated, self.all);
        (percent >= 1.0 && !self.is_chance()).then_some(percent)
    }

    /// True if the truncated stacks are those of one or two samples among many that are like them:
    /// they say nothing about the others. A single wait can be a large part of all waits, or all.
    fn is_chance(&self) -> bool {
        const FEW: i64 = 2;
        /// Samples for each of them that are many.
        const MANY: i64 = 10;
        /// Multiple of the mean value of a sample up to which it is like the others.
        const ORDINARY: i128 = 2;
        let Shares { all, truncated, samples, truncated_samples, .. } = *self;
        let product = |a: i64, b: i64| i128::from(a) * i128::from(b);
        let is_ordinary = product(truncated, samples) <= ORDINARY * product(all, truncated_samples);
        truncated_samples <= FEW && truncated_samples * MANY <= samples && is_ordinary
    }
}

/// The shares of a part of the samples.
#[derive(Default)]
struct PartShares {
    shares: Shares,
    /// The value of those without a name, by the file of the binary.
    nameless: FxHashMap<StrId, i64>,
}

impl PartShares {
    /// Those of some rows; `ends`: the locations that end a truncated stack, if there are any.
    fn new(view: &View, rows: Range<usize>, ends: Option<&[bool]>) -> PartShares {
        let profile = view.profile;
        let counts = counts_samples(profile);
        let PartShares { mut shares, mut nameless } = PartShares::default();
        for ViewSample { stack, value, row, .. } in view.samples_in(rows) {
            let value = value.saturating_abs();
            let samples = sample_count(profile.values_of(row), counts);
            plus(&mut shares.all, value);
            plus(&mut shares.samples, samples);
            let is_end = |ends: &[bool]| stack.iter().any(|location| ends[location.0 as usize]);
            if ends.is_some_and(is_end) {
                plus(&mut shares.truncated, value);
                plus(&mut shares.truncated_samples, samples);
            }
            if let Some(&leaf) = stack.first()
                && !has_name(profile, leaf)
            {
                let mapping = profile.locations[leaf.0 as usize].mapping;
                let file = mapping.map_or(StrId::EMPTY, |m| profile.mappings[m.0 as usize].file);
                plus(&mut shares.nameless, value);
                plus(nameless.entry(file).or_default(), value);
            }
        }
        PartShares { shares, nameless }
    }

    /// Adds those of the next part.
    fn add(&mut self, part: PartShares) {
        let (sum, shares) = (&mut self.shares, part.shares);
        plus(&mut sum.all, shares.all);
        plus(&mut sum.samples, shares.samples);
        plus(&mut sum.truncated, shares.truncated);
        plus(&mut sum.truncated_samples, shares.truncated_samples);
        plus(&mut sum.nameless, shares.nameless);
        for (file, value) in part.nameless {
            plus(self.nameless.entry(file).or_default(), value);
        }
    }
}

fn plus(sum: &mut i64, value: i64) {
    *sum = sum.saturating_add(value);
}

/// True if the first sample type counts samples.
pub(crate) fn counts_samples(profile: &Profile) -> bool {
    profile.sample_types.first().is_some_and(|t| profile.str(t.unit) == "count")
}

/// The number of samples of a row with these values: the first one if those count samples.
pub(crate) fn sample_count(values: &[i64], counts_samples: bool) -> i64 {
    values.first().copied().filter(|&count| counts_samples && count > 0).unwrap_or(1)
}

fn has_name(profile: &Profile, location: LocationId) -> bool {
    let name = |line: &profile::Line| profile.functions[line.function.0 as usize].name;
    profile.lines_of(location).iter().any(|line| name(line) != StrId::EMPTY)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Granularity;
    use crate::testing::{functions, mapping};
    use profile::{Builder, Column, LabelSetId};

    #[test]
    fn stacks_of_threads_without_user_memory_lack_nothing() {
        let mut b = Builder::new(&[("samples", "count")]);
        let main = functions(&mut b, None, 0x1000, &[("main", "", 0)]);
        for (why, value) in [(Truncation::NoUserMemory, 3), (Truncation::Unreadable, 4)] {
            let end = b.truncation(why);
            b.add_stack(&[end, main], None, LabelSetId::EMPTY, 0, &[(Column(0), value)]);
        }
        let p = b.finish(None);
        let shares = Shares::new(&View::new(&p, 0, Granularity::NONE));
        assert_eq!((shares.all, shares.truncated), (7, 4));
    }

    #[test]
    fn shares_are_those_of_the_shown_value() {
        let mut b = Builder::new(&[("samples", "count"), ("wall", "nanoseconds")]);
        let app = mapping(&mut b, "/bin/app", 0x1000);
        let main = functions(&mut b, Some(app), 0x1000, &[("main", "", 0)]);
        let nameless = b.location(Some(app), 0x1010);
        let nowhere = b.location(None, 0xdead);
        let end = b.truncation(Truncation::BadReturnAddress);
        // Leaf first: many short samples, and few long ones.
        let rows: [(&[LocationId], i64, i64); 4] = [
            (&[main], 196, 400),
            (&[nameless, end], 2, 300),
            (&[nameless, main], 1, 200),
            (&[nowhere], 2, 100),
        ];
        for (stack, samples, wall) in rows {
            let root_first: Vec<_> = stack.iter().rev().copied().collect();
            let values = [(Column(0), samples), (Column(1), wall)];
            b.add_stack(&root_first, None, LabelSetId::EMPTY, 0, &values);
        }
        let p = b.finish(None);
        let shares = |index| Shares::new(&View::new(&p, index, Granularity::NONE));
        let (samples, wall) = (shares(0), shares(1));
        assert_eq!((samples.all, samples.truncated, samples.nameless), (201, 2, 5));
        assert_eq!((wall.all, wall.truncated, wall.nameless), (1000, 300, 600));
        let app = p.mappings[0].file;
        assert_eq!(wall.nameless_in, [(app, 500), (StrId::EMPTY, 100)]);
        assert_eq!(wall.truncated_percent(), Some(30.0));
        let small = Shares { all: 1000, truncated: 9, ..Shares::default() };
        assert_eq!(small.truncated_percent(), None);
        assert_eq!(Shares::default().truncated_percent(), None);
    }

    #[test]
    fn one_or_two_samples_among_many_like_them_are_chance() {
        let percent = |[truncated, all]: [i64; 2], [truncated_samples, samples]: [i64; 2]| {
            let known = Shares::default();
            let shares = Shares { all, truncated, samples, truncated_samples, ..known };
            shares.truncated_percent().map(f64::round)
        };
        assert_eq!(percent([1, 45], [1, 45]), None);
        assert_eq!(percent([20, 450], [2, 45]), None);
        assert_eq!(percent([3, 45], [3, 45]), Some(7.0));
        assert_eq!(percent([9, 45], [2, 45]), Some(20.0), "long waits");
        assert_eq!(percent([45, 45], [1, 1]), Some(100.0), "one wait, as long as the recording");
        assert_eq!(percent([2, 4], [2, 4]), Some(50.0), "two threads of four");
        assert_eq!(percent([3, 300], [3, 300]), Some(1.0));
        assert_eq!(percent([3, 301], [3, 301]), None);
        assert_eq!(percent([i64::MAX, i64::MAX], [i64::MAX, i64::MAX]), Some(100.0));
    }
}
