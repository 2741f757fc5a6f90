//! What the values and percentages of a view are.

use profile::{Dimension, Unit};
use serde::Serialize;

/// What the values and percentages of a view are.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ValueOptions {
    /// The 100 % of all percentages.
    pub percent_of: PercentOf,
    /// What a value is of its samples.
    pub statistic: Statistic,
    /// Values are divided by this, which is larger than 0. Percentages are those before.
    pub divide_by: f64,
    /// The unit in which text has values that it fits; `None`: one that suits each value.
    pub unit: Option<ShownUnit>,
}

/// The 100 % of all percentages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum PercentOf {
    /// The total before the filters.
    #[default]
    Total,
    /// What passes the filters.
    Kept,
}

/// What a value is of its samples.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Statistic {
    /// The sum.
    #[default]
    Sum,
    /// The sum divided by that of the first sample type: the mean of a sample or event, rounded
    /// towards 0. Without a sum of the first type, the sum.
    Mean,
}

/// A unit in which values are shown.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ShownUnit {
    dimension: Dimension,
    unit: &'static Unit,
}

/// A value in another unit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Converted {
    /// In a unit of which that of the profile is a multiple.
    Whole(i128),
    /// In a larger one.
    Fraction(f64),
}

impl Default for ValueOptions {
    /// Sums and their percentages of the total.
    fn default() -> ValueOptions {
        ValueOptions {
            percent_of: PercentOf::Total,
            statistic: Statistic::Sum,
            divide_by: 1.0,
            unit: None,
        }
    }
}

impl ValueOptions {
    /// A value as it is shown: divided, and rounded towards 0.
    pub fn shown(&self, value: i64) -> i64 {
        if self.divide_by == 1.0 { value } else { (value as f64 / self.divide_by) as i64 }
    }
}

impl PercentOf {
    /// The 100 % of values with these totals before and after the filters.
    pub fn whole(self, total: i64, kept: i64) -> i64 {
        match self {
            PercentOf::Total => total,
            PercentOf::Kept => kept,
        }
    }

    /// The other one.
    #[must_use]
    pub fn other(self) -> PercentOf {
        match self {
            PercentOf::Total => PercentOf::Kept,
            PercentOf::Kept => PercentOf::Total,
        }
    }
}

impl ShownUnit {
    /// The unit with one of pprof's names.
    pub fn parse(name: &str) -> Option<ShownUnit> {
        Dimension::find(name).map(|(dimension, unit)| ShownUnit { dimension, unit })
    }

    /// Names of the units that fit values in the unit of a profile; none: only this one.
    pub fn fitting(unit: &str) -> Vec<&'static str> {
        let Some((dimension, _)) = Dimension::find(unit) else { return Vec::new() };
        let minutes = (dimension == Dimension::Time).then_some("min");
        dimension.units().iter().map(|unit| unit.name).chain(minutes).collect()
    }

    /// Its name in pprof's texts.
    pub fn name(self) -> &'static str {
        self.unit.name
    }

    /// A value in a unit of a profile, in this one; `None` if it does not fit.
    pub fn convert(self, value: i64, unit: &str) -> Option<Converted> {
        let (_, from) = Dimension::find(unit).filter(|found| found.0 == self.dimension)?;
        let to = self.unit.factor;
        Some(match i128::try_from(from.factor / to) {
            Ok(ratio) if from.factor.is_multiple_of(to) => {
                Converted::Whole(i128::from(value).saturating_mul(ratio))
            }
            _ => Converted::Fraction(value as f64 * from.factor as f64 / to as f64),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_fit_units_of_their_dimension() {
        let convert = |name: &str, value: i64, unit: &str| {
            ShownUnit::parse(name).and_then(|shown| shown.convert(value, unit))
        };
        assert_eq!(convert("ms", 1500, "microseconds"), Some(Converted::Fraction(1.5)));
        assert_eq!(convert("ns", 1500, "microseconds"), Some(Converted::Whole(1_500_000)));
        assert_eq!(
            convert("KB", i64::MAX, "PB"),
            Some(Converted::Whole((1i128 << 103) - (1 << 40)))
        );
        assert_eq!(convert("min", 90, "seconds"), Some(Converted::Fraction(1.5)));
        assert_eq!(convert("ms", 1, "bytes"), None);
        assert_eq!(convert("ms", 1, "count"), None);
        assert_eq!(ShownUnit::parse("parsec"), None);
        assert_eq!(ShownUnit::fitting("nanoseconds"), ["ns", "us", "ms", "s", "hrs", "min"]);
        assert_eq!(ShownUnit::fitting("count"), [""; 0]);
    }

    #[test]
    fn quotients_are_rounded_towards_0() {
        let shown = |divide_by: f64, value: i64| {
            ValueOptions { divide_by, ..ValueOptions::default() }.shown(value)
        };
        assert_eq!([shown(4.0, 11), shown(4.0, -11), shown(0.5, 3)], [2, -2, 6]);
        assert_eq!([shown(49.0, 49), shown(1.0, i64::MAX)], [1, i64::MAX]);
        assert_eq!([shown(1e-300, 1), shown(1e-300, 0), shown(1e300, 5)], [i64::MAX, 0, 0]);
    }
}
