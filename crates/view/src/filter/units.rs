//! Numbers of labels in units, as pprof writes them.

use profile::{Dimension, Unit};

/// A number and its unit.
#[derive(Clone, Debug, PartialEq)]
pub struct Scaled {
    /// The number.
    pub value: f64,
    /// Its unit; empty if it has none, or one that is not shown.
    pub unit: String,
}

/// The largest unit in which `value`, in base units, is at least 1.
fn largest(dimension: Dimension, value: f64) -> &'static Unit {
    let fits = |unit: &&Unit| value / unit.factor as f64 >= 1.0;
    dimension.units().iter().rev().find(fits).unwrap_or(dimension.default_unit())
}

/// `value` in another unit; `minimum` is the largest unit in which it is at least 1. Without a
/// conversion, the value is unchanged and in the unit `to`.
pub fn scale(value: i64, from: &str, to: &str) -> Scaled {
    if value < 0 && value != i64::MIN {
        let Scaled { value, unit } = scale(-value, from, to);
        return Scaled { value: -value, unit };
    }
    if let Some((dimension, unit)) = Dimension::find(from) {
        let value = value as f64 * unit.factor as f64;
        let unit = match to {
            "minimum" | "auto" => largest(dimension, value),
            _ => dimension.unit(to).unwrap_or(dimension.default_unit()),
        };
        return Scaled { value: value / unit.factor as f64, unit: unit.name.to_owned() };
    }
    let hidden = ["count", "sample", "unit", "minimum", "auto"].contains(&to);
    Scaled { value: value as f64, unit: if hidden { String::new() } else { to.to_owned() } }
}

/// A number with its unit, in the largest unit in which it is at least 1.
pub fn text(value: i64, unit: &str) -> String {
    let Scaled { value, unit } = scale(value, unit, "minimum");
    let number = format!("{value:.2}");
    match number.strip_suffix(".00").unwrap_or(&number) {
        "0" | "-0" => "0".to_owned(),
        number => format!("{number}{unit}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_pprof_s_units() {
        for (value, unit, shown) in [
            (8192, "bytes", "8kB"),
            (1536, "bytes", "1.50kB"),
            (0, "bytes", "0"),
            (-2048, "bytes", "-2kB"),
            (1500, "ms", "1.50s"),
            (5, "", "5"),
            (7, "widgets", "7"),
            (i64::MIN, "ns", "-9223372036.85s"),
        ] {
            assert_eq!(text(value, unit), shown);
        }
        assert_eq!(scale(1, "GB", "mb"), Scaled { value: 1024.0, unit: "MB".into() });
        assert_eq!(scale(3, "pid", ""), Scaled { value: 3.0, unit: String::new() });
    }
}
