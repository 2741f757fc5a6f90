//! Shares of the value of a view that lack something: the rest of their stack, or a name.

use rustc_hash::FxHashMap;

use super::{View, ViewSample};
use profile::{LocationId, Profile, StrId, Truncation};

/// Values of samples whose stacks are truncated, or whose leaf has no name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Shares {
    /// The value of all samples: the sum of their magnitudes.
    pub all: i64,
    /// The value of those whose stack is truncated, and lacks something.
    pub truncated: i64,
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
        let mut shares = Shares::default();
        let mut nameless: FxHashMap<StrId, i64> = FxHashMap::default();
        let plus = |sum: &mut i64, value: i64| *sum = sum.saturating_add(value);
        for ViewSample { stack, value, .. } in view.samples() {
            let value = value.saturating_abs();
            plus(&mut shares.all, value);
            if truncates && stack.iter().any(|location| ends[location.0 as usize]) {
                plus(&mut shares.truncated, value);
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
        shares.nameless_in = nameless.into_iter().collect();
        let name = |file: StrId| profile.str(file);
        shares.nameless_in.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| name(a.0).cmp(name(b.0))));
        shares
    }

    /// The part of the value in truncated stacks, in percent, if it is at least 1 %.
    pub fn truncated_percent(&self) -> Option<f64> {
        let percent = super::percent(self.truncated, self.all);
        (percent >= 1.0).then_some(percent)
    }
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
            (&[main], 96, 400),
            (&[nameless, end], 1, 300),
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
        assert_eq!((samples.all, samples.truncated, samples.nameless), (100, 1, 4));
        assert_eq!((wall.all, wall.truncated, wall.nameless), (1000, 300, 600));
        let app = p.mappings[0].file;
        assert_eq!(wall.nameless_in, [(app, 500), (StrId::EMPTY, 100)]);
        assert_eq!(samples.truncated_percent(), Some(1.0));
        assert_eq!(wall.truncated_percent(), Some(30.0));
        let small = Shares { all: 1000, truncated: 9, ..Shares::default() };
        assert_eq!(small.truncated_percent(), None);
        assert_eq!(Shares::default().truncated_percent(), None);
    }
}
