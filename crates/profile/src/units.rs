//! Units of values and labels, with pprof's names and factors, and profiles in common units.

use std::borrow::BorrowMut;

use rustc_hash::FxHashMap;

use super::{Profile, StrId, ValueType};

/// A unit.
#[derive(Debug, PartialEq, Eq)]
pub struct Unit {
    /// Its name in pprof's texts.
    pub name: &'static str,
    /// The names that it has in files, in lower case and singular.
    aliases: &'static [&'static str],
    /// Base units in it: bytes, nanoseconds, billionths of a Google compute unit.
    pub factor: u128,
}

const fn unit(name: &'static str, aliases: &'static [&'static str], factor: u128) -> Unit {
    Unit { name, aliases, factor }
}

const BYTES: [Unit; 6] = [
    unit("B", &["b", "byte"], 1),
    unit("kB", &["kb", "kib", "kbyte", "kilobyte"], 1 << 10),
    unit("MB", &["mb", "mib", "mbyte", "megabyte"], 1 << 20),
    unit("GB", &["gb", "gib", "gbyte", "gigabyte"], 1 << 30),
    unit("TB", &["tb", "tib", "tbyte", "terabyte"], 1 << 40),
    unit("PB", &["pb", "pib", "pbyte", "petabyte"], 1 << 50),
];

const TIMES: [Unit; 5] = [
    unit("ns", &["ns", "nanosecond"], 1),
    unit("us", &["μs", "µs", "us", "microsecond"], 1_000),
    unit("ms", &["ms", "millisecond"], 1_000_000),
    unit("s", &["s", "sec", "second"], 1_000_000_000),
    unit("hrs", &["hour", "hr", "h"], 3_600_000_000_000),
];

const MINUTES: [Unit; 1] = [unit("min", &["min", "minute"], 60_000_000_000)];

const COMPUTE: [Unit; 9] = [
    unit("n*GCU", &["nanogcu"], 1),
    unit("u*GCU", &["microgcu"], 1_000),
    unit("m*GCU", &["milligcu"], 1_000_000),
    unit("GCU", &["gcu"], 1_000_000_000),
    unit("k*GCU", &["kilogcu"], 1_000_000_000_000),
    unit("M*GCU", &["megagcu"], 1_000_000_000_000_000),
    unit("G*GCU", &["gigagcu"], 1_000_000_000_000_000_000),
    unit("T*GCU", &["teragcu"], 1_000_000_000_000_000_000_000),
    unit("P*GCU", &["petagcu"], 1_000_000_000_000_000_000_000_000),
];

/// What units measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Dimension {
    /// Memory.
    Bytes,
    /// Time.
    Time,
    /// Google compute units.
    Compute,
}

impl Dimension {
    const ALL: [Dimension; 3] = [Dimension::Bytes, Dimension::Time, Dimension::Compute];

    /// The units in which pprof prints it, in ascending order.
    pub fn units(self) -> &'static [Unit] {
        match self {
            Dimension::Bytes => &BYTES,
            Dimension::Time => &TIMES,
            Dimension::Compute => &COMPUTE,
        }
    }

    /// The unit in which pprof prints it if none fits.
    pub fn default_unit(self) -> &'static Unit {
        match self {
            Dimension::Bytes => &BYTES[0],
            Dimension::Time => &TIMES[3],
            Dimension::Compute => &COMPUTE[3],
        }
    }

    /// Its unit of this name, in singular or plural and in any case.
    pub fn unit(self, name: &str) -> Option<&'static Unit> {
        let lower = name.to_lowercase();
        let is_word = lower.chars().count() > 2;
        let name = if is_word { lower.strip_suffix('s').unwrap_or(&lower) } else { &lower };
        // pprof prints no minutes.
        let further: &[Unit] = if self == Dimension::Time { &MINUTES } else { &[] };
        self.units().iter().chain(further).find(|unit| unit.aliases.contains(&name))
    }

    /// The dimension and the unit of this name.
    pub fn find(name: &str) -> Option<(Dimension, &'static Unit)> {
        Dimension::ALL.into_iter().find_map(|all| all.unit(name).map(|unit| (all, unit)))
    }
}

/// Value types that convert into each other: kinds differ in a final `s` at most, as in pprof, and
/// the units are of one dimension, or equal.
#[derive(PartialEq, Eq, Hash)]
struct Class {
    kind: String,
    unit: Result<Dimension, String>,
}

/// The value type into which those of a class are converted.
struct Common {
    /// The kind in the first profile.
    kind: String,
    /// The smallest unit.
    unit: String,
    factor: u128,
    /// A profile has several types of the class, which must stay apart.
    is_ambiguous: bool,
}

/// The class of a value type, and the base units in its unit.
fn class(profile: &Profile, value_type: ValueType) -> (Class, u128) {
    let (kind, unit) = (profile.str(value_type.kind), profile.str(value_type.unit));
    let kind = kind.strip_suffix('s').unwrap_or(kind).to_owned();
    match Dimension::find(unit) {
        Some((dimension, unit)) => (Class { kind, unit: Ok(dimension) }, unit.factor),
        None => (Class { kind, unit: Err(unit.to_owned()) }, 1),
    }
}

impl Common {
    fn new(profile: &Profile, value_type: ValueType, factor: u128) -> Common {
        let (kind, unit) =
            (profile.str(value_type.kind).to_owned(), profile.str(value_type.unit).to_owned());
        Common { kind, unit, factor, is_ambiguous: false }
    }

    fn add(&mut self, profile: &Profile, value_type: ValueType, factor: u128) {
        if factor < self.factor {
            profile.str(value_type.unit).clone_into(&mut self.unit);
            self.factor = factor;
        }
    }

    /// Gives this type to `of`, whose unit has `factor` base units; returns the factor of values.
    fn convert(
        &self,
        profile: &mut Profile,
        value_type: ValueType,
        factor: u128,
    ) -> (ValueType, i64) {
        let kind = profile.strings.intern(&self.kind);
        if profile.default_sample_type == value_type.kind && value_type.kind != StrId::EMPTY {
            profile.default_sample_type = kind;
        }
        let unit = profile.strings.intern(&self.unit);
        // Larger units are multiples of smaller ones.
        let ratio = i64::try_from(factor / self.factor).unwrap_or(i64::MAX);
        (ValueType { kind, unit }, ratio)
    }
}

/// Converts values and periods of several profiles into the smallest unit that one of them has for
/// the same kind, as pprof does before it merges them: milliseconds and nanoseconds become
/// nanoseconds. Sample types of other kinds or dimensions stay as they are. A value beyond 63 bits
/// becomes the largest ([`Profile::exceeds`]).
pub fn align_units<P: BorrowMut<Profile>>(profiles: &mut [P]) {
    if profiles.len() > 1 {
        align_values(profiles);
        align_periods(profiles);
    }
}

fn align_values<P: BorrowMut<Profile>>(profiles: &mut [P]) {
    let mut all: FxHashMap<Class, Common> = FxHashMap::default();
    for profile in profiles.iter() {
        let profile = profile.borrow();
        let mut seen: FxHashMap<Class, ()> = FxHashMap::default();
        for &value_type in &profile.sample_types {
            let (class_of, factor) = class(profile, value_type);
            let common = all.entry(class(profile, value_type).0);
            let common = common.or_insert_with(|| Common::new(profile, value_type, factor));
            common.add(profile, value_type, factor);
            common.is_ambiguous |= seen.insert(class_of, ()).is_some();
        }
    }
    for profile in profiles {
        let profile = profile.borrow_mut();
        for index in 0..profile.sample_types.len() {
            let value_type = profile.sample_types[index];
            let (class, factor) = class(profile, value_type);
            let Some(common) = all.get(&class).filter(|common| !common.is_ambiguous) else {
                continue;
            };
            let (to, ratio) = common.convert(profile, value_type, factor);
            profile.sample_types[index] = to;
            if ratio != 1 {
                let width = profile.sample_types.len();
                let values = profile.values.iter_mut().skip(index).step_by(width);
                values.for_each(|value| *value = value.saturating_mul(ratio));
            }
        }
    }
}

fn align_periods<P: BorrowMut<Profile>>(profiles: &mut [P]) {
    let mut common: Option<(Class, Common)> = None;
    for profile in profiles.iter() {
        let profile = profile.borrow();
        let value_type = profile.period_type;
        if value_type == ValueType::default() {
            continue;
        }
        let (class, factor) = class(profile, value_type);
        match &mut common {
            None => common = Some((class, Common::new(profile, value_type, factor))),
            Some((there, common)) if *there == class => common.add(profile, value_type, factor),
            Some(_) => return,
        }
    }
    let Some((_, common)) = common else { return };
    for profile in profiles {
        let profile = profile.borrow_mut();
        let value_type = profile.period_type;
        if value_type == ValueType::default() {
            continue;
        }
        let (_, factor) = class(profile, value_type);
        let (to, ratio) = common.convert(profile, value_type, factor);
        profile.period_type = to;
        profile.period = profile.period.saturating_mul(ratio);
        profile.least_period = profile.least_period.saturating_mul(ratio);
    }
}

impl Profile {
    /// True if values of type `type_index`, or sums of them, may be beyond 63 bits: then sums are
    /// the largest number, or, of values of both signs, wrong.
    pub fn exceeds(&self, type_index: usize) -> bool {
        let width = self.sample_types.len().max(1);
        let values = self.values.iter().skip(type_index).step_by(width);
        let sum: u128 = values.map(|value| u128::from(value.unsigned_abs())).sum();
        sum >= i64::MAX as u128
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Builder, Column, LabelSetId};
    use super::*;

    fn profile(types: &[(&str, &str)], values: &[i64]) -> Profile {
        let mut b = Builder::new(types);
        let main = b.named_location("main");
        let values: Vec<_> =
            values.iter().enumerate().map(|(at, &value)| (Column(at), value)).collect();
        b.add_stack(&[main], None, LabelSetId::EMPTY, 0, &values);
        b.finish(None)
    }

    fn with_period(kind: &str, unit: &str, period: i64) -> Profile {
        let mut p = profile(&[("cpu", "nanoseconds")], &[1]);
        let (kind, unit) = (p.strings.intern(kind), p.strings.intern(unit));
        p.period_type = ValueType { kind, unit };
        p.period = period;
        p
    }

    fn types(p: &Profile) -> Vec<(&str, &str)> {
        p.sample_types.iter().map(|t| (p.str(t.kind), p.str(t.unit))).collect()
    }

    #[test]
    fn values_of_one_kind_get_the_smallest_unit() {
        let mut all = [
            profile(&[("samples", "count"), ("wall", "microseconds")], &[3, 5]),
            profile(&[("sample", "count"), ("wall", "nanoseconds")], &[4, 7000]),
            profile(&[("wall", "s"), ("space", "KB")], &[1, 2]),
            profile(&[("space", "bytes")], &[100]),
        ];
        align_units(&mut all);
        assert_eq!(types(&all[0]), [("samples", "count"), ("wall", "nanoseconds")]);
        assert_eq!(types(&all[1]), types(&all[0]));
        assert_eq!(types(&all[2]), [("wall", "nanoseconds"), ("space", "bytes")]);
        let values = all.each_ref().map(|p| p.values.as_slice());
        assert_eq!(values, [&[3, 5000][..], &[4, 7000], &[1_000_000_000, 2048], &[100]]);
    }

    #[test]
    fn types_that_do_not_convert_stay() {
        let of = [("cpu", "milliseconds"), ("cpu", "nanoseconds"), ("x", "apples")];
        let mut all = [
            profile(&of, &[1, 2, 3]),
            profile(&[("cpu", "seconds"), ("x", "bytes")], &[4, 5]),
            profile(&[("wall", "ns"), ("x", "pears")], &[6, 7]),
        ];
        let before = all.each_ref().map(|p| p.values.clone());
        align_units(&mut all);
        // Two types of one kind in a profile.
        assert_eq!(types(&all[0]), of);
        assert_eq!(types(&all[1]), [("cpu", "seconds"), ("x", "bytes")]);
        assert_eq!(types(&all[2]), [("wall", "ns"), ("x", "pears")]);
        assert_eq!(all.each_ref().map(|p| p.values.clone()), before);
    }

    #[test]
    fn periods_get_the_smallest_unit() {
        let mut all = [
            with_period("cpu", "microseconds", 10_000),
            with_period("cpu", "nanoseconds", 20_000_000),
            profile(&[("cpu", "nanoseconds")], &[1]),
        ];
        align_units(&mut all);
        assert_eq!(all.each_ref().map(|p| p.period), [10_000_000, 20_000_000, 0]);
        assert_eq!(all[0].str(all[0].period_type.unit), "nanoseconds");
        let mut other = [with_period("cpu", "us", 7), with_period("space", "bytes", 9)];
        align_units(&mut other);
        assert_eq!(other.each_ref().map(|p| p.period), [7, 9]);
    }

    #[test]
    fn a_default_type_is_that_of_the_common_kind() {
        let mut second = profile(&[("alloc", "bytes"), ("wall", "ms")], &[1, 2]);
        second.default_sample_type = second.strings.intern("alloc");
        let mut all = [profile(&[("allocs", "KiB")], &[1]), second];
        align_units(&mut all);
        assert_eq!(all[1].default_type_index(), 0);
        assert_eq!(all[0].values, [1024]);
    }

    #[test]
    fn values_beyond_63_bits_are_noticed() {
        let large = profile(&[("cpu", "hours"), ("n", "count")], &[i64::MAX / 1000, 5]);
        let mut all = [large, profile(&[("cpu", "ns")], &[1])];
        assert!(!all[0].exceeds(0));
        align_units(&mut all);
        assert_eq!(all[0].values[0], i64::MAX);
        assert!(all[0].exceeds(0) && !all[0].exceeds(1) && !all[1].exceeds(0));
        let mut sum = profile(&[("cpu", "ns")], &[1 << 62]);
        sum.samples.push(sum.samples[0]);
        sum.values.push(-(1 << 62));
        assert!(sum.exceeds(0));
        assert!(!sum.exceeds(7));
        assert!(!Profile::default().exceeds(0));
    }

    #[test]
    fn names_of_units_have_many_forms() {
        for (name, factor) in [
            ("nanoseconds", 1),
            ("Milliseconds", 1_000_000),
            ("µs", 1_000),
            ("us", 1_000),
            ("min", 60_000_000_000),
            ("hours", 3_600_000_000_000),
            ("KiB", 1024),
            ("MB", 1 << 20),
            ("bytes", 1),
        ] {
            assert_eq!(Dimension::find(name).map(|(_, unit)| unit.factor), Some(factor), "{name}");
        }
        for name in ["", "s s", "count", "objects", "m"] {
            assert!(Dimension::find(name).is_none(), "{name}");
        }
    }
}
