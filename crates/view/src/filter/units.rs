//! Units of numeric labels, with pprof's names and factors.

/// A number and its unit.
#[derive(Clone, Debug, PartialEq)]
pub struct Scaled {
    /// The number.
    pub value: f64,
    /// Its unit; empty if it has none, or one that is not shown.
    pub unit: String,
}

struct Unit {
    name: &'static str,
    aliases: &'static [&'static str],
    factor: f64,
}

const fn unit(name: &'static str, aliases: &'static [&'static str], factor: f64) -> Unit {
    Unit { name, aliases, factor }
}

const KI: f64 = 1024.0;

const BYTES: [Unit; 6] = [
    unit("B", &["b", "byte"], 1.0),
    unit("kB", &["kb", "kbyte", "kilobyte"], KI),
    unit("MB", &["mb", "mbyte", "megabyte"], KI * KI),
    unit("GB", &["gb", "gbyte", "gigabyte"], KI * KI * KI),
    unit("TB", &["tb", "tbyte", "terabyte"], KI * KI * KI * KI),
    unit("PB", &["pb", "pbyte", "petabyte"], KI * KI * KI * KI * KI),
];

const TIMES: [Unit; 5] = [
    unit("ns", &["ns", "nanosecond"], 1.0),
    unit("us", &["μs", "us", "microsecond"], 1e3),
    unit("ms", &["ms", "millisecond"], 1e6),
    unit("s", &["s", "sec", "second"], 1e9),
    unit("hrs", &["hour", "hr"], 3600e9),
];

const COMPUTE: [Unit; 9] = [
    unit("n*GCU", &["nanogcu"], 1e-9),
    unit("u*GCU", &["microgcu"], 1e-6),
    unit("m*GCU", &["milligcu"], 1e-3),
    unit("GCU", &["gcu"], 1.0),
    unit("k*GCU", &["kilogcu"], 1e3),
    unit("M*GCU", &["megagcu"], 1e6),
    unit("G*GCU", &["gigagcu"], 1e9),
    unit("T*GCU", &["teragcu"], 1e12),
    unit("P*GCU", &["petagcu"], 1e15),
];

/// Units that convert into each other.
struct Family {
    units: &'static [Unit],
    default: &'static Unit,
}

const FAMILIES: [Family; 3] = [
    Family { units: &BYTES, default: &BYTES[0] },
    Family { units: &TIMES, default: &TIMES[3] },
    Family { units: &COMPUTE, default: &COMPUTE[3] },
];

impl Family {
    fn find(&self, name: &str) -> Option<&'static Unit> {
        let lower = name.to_lowercase();
        let name = if lower.len() > 2 { lower.strip_suffix('s').unwrap_or(&lower) } else { &lower };
        self.units.iter().find(|unit| unit.aliases.contains(&name))
    }

    /// The largest unit in which `value`, in base units, is at least 1.
    fn largest(&self, value: f64) -> &'static Unit {
        let fits = |unit: &&Unit| value / unit.factor >= 1.0;
        self.units.iter().rev().find(fits).unwrap_or(self.default)
    }
}

/// `value` in another unit; `minimum` is the largest unit in which it is at least 1. Without a
/// conversion, the value is unchanged and in the unit `to`.
pub fn scale(value: i64, from: &str, to: &str) -> Scaled {
    if value < 0 && value != i64::MIN {
        let Scaled { value, unit } = scale(-value, from, to);
        return Scaled { value: -value, unit };
    }
    for family in &FAMILIES {
        let Some(unit) = family.find(from) else { continue };
        let value = value as f64 * unit.factor;
        let unit = match to {
            "minimum" | "auto" => family.largest(value),
            _ => family.find(to).unwrap_or(family.default),
        };
        return Scaled { value: value / unit.factor, unit: unit.name.to_owned() };
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
