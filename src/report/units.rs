//! Human-readable values: `12.3 ms`, `1.50 MiB`, `1,234`.

use profile::Dimension;
use view::query::{Converted, ShownUnit, ValueOptions};

/// A scale step of a unit: smallest magnitude (in the base unit), divisor, name.
struct UnitStep {
    from: f64,
    divisor: f64,
    name: &'static str,
}

const fn step(from: f64, divisor: f64, name: &'static str) -> UnitStep {
    UnitStep { from, divisor, name }
}

const TIME: &[UnitStep] = &[
    step(7.2e12, 3.6e12, "h"),
    step(6e11, 6e10, "min"),
    step(1e9, 1e9, "s"),
    step(1e6, 1e6, "ms"),
    step(1e3, 1e3, "µs"),
    step(0.0, 1.0, "ns"),
];

const BYTES: &[UnitStep] = &[
    step(1099511627776.0, 1099511627776.0, "TiB"),
    step(1073741824.0, 1073741824.0, "GiB"),
    step(1048576.0, 1048576.0, "MiB"),
    step(1024.0, 1024.0, "KiB"),
    step(0.0, 1.0, "B"),
];

/// Scale steps of a pprof unit, and number of base units in it.
fn scale(unit: &str) -> Option<(&'static [UnitStep], f64)> {
    let (dimension, unit) = Dimension::find(unit)?;
    let steps = match dimension {
        Dimension::Time => TIME,
        Dimension::Bytes => BYTES,
        Dimension::Compute => return None,
    };
    Some((steps, unit.factor as f64))
}

/// `value` of a pprof `unit` as a query shows it: divided, in its unit if it fits.
pub fn shown(value: i64, unit: &str, options: &ValueOptions) -> String {
    let value = options.shown(value);
    let converted = options.unit.and_then(|shown| Some((shown, shown.convert(value, unit)?)));
    match converted {
        Some((shown, Converted::Whole(whole))) => format!("{whole} {}", name(shown)),
        Some((shown, Converted::Fraction(number))) => format!("{number:.2} {}", name(shown)),
        None => format(value, unit),
    }
}

/// The name of a unit in prof's texts.
pub fn name(unit: ShownUnit) -> &'static str {
    match unit.name() {
        "us" => "µs",
        "hrs" => "h",
        "kB" => "KiB",
        "MB" => "MiB",
        "GB" => "GiB",
        "TB" => "TiB",
        "PB" => "PiB",
        name => name,
    }
}

/// `value` of a pprof `unit` in a suitable unit; counts are exact, with separators.
pub fn format(value: i64, unit: &str) -> String {
    let Some((steps, factor)) = scale(unit) else {
        return match unit {
            "" | "count" => thousands(value),
            other => format!("{} {other}", thousands(value)),
        };
    };
    let base = value as f64 * factor;
    let fitting = steps.iter().position(|s| base.abs() >= s.from).unwrap_or(steps.len() - 1);
    if let Some(larger) = fitting.checked_sub(1).map(|i| &steps[i]) {
        // Rounding may reach the next unit: 1.00 s, not 1000.0 ms.
        let rounded =
            (base / steps[fitting].divisor * 10.0).round() / 10.0 * steps[fitting].divisor;
        if rounded.abs() >= larger.from {
            return larger.format(rounded);
        }
    }
    steps[fitting].format(base)
}

impl UnitStep {
    /// `base`, in the base unit, as a number of these.
    fn format(&self, base: f64) -> String {
        if self.divisor == 1.0 {
            return format!("{base} {}", self.name);
        }
        let scaled = base / self.divisor;
        let digits = if scaled.abs() < 99.995 { 2 } else { 1 };
        format!("{scaled:.digits$} {}", self.name)
    }
}

/// A number with a comma every three digits.
pub fn thousands(value: i64) -> String {
    let digits = value.unsigned_abs().to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3 + 1);
    if value < 0 {
        out.push('-');
    }
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// Nanoseconds since the Unix epoch as `2026-11-21 07:09:35 UTC`.
pub fn utc(nanos: i64) -> String {
    let seconds = nanos.div_euclid(1_000_000_000);
    let days = seconds.div_euclid(86_400);
    let second = seconds.rem_euclid(86_400);
    // Days to year, month and day in the proleptic Gregorian calendar; years begin in March.
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let day_of_era = shifted.rem_euclid(146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    let hour = second / 3_600;
    let minute = second / 60 % 60;
    let second = second % 60;
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02} UTC")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_get_a_fitting_unit() {
        let cases = [
            (0, "nanoseconds", "0 ns"),
            (999, "nanoseconds", "999 ns"),
            (12_345_678, "nanoseconds", "12.35 ms"),
            (123_456_789, "nanoseconds", "123.5 ms"),
            (999_949_999, "nanoseconds", "999.9 ms"),
            (999_960_000, "nanoseconds", "1.00 s"),
            (-999_999, "nanoseconds", "-1.00 ms"),
            (599_999_999_999, "nanoseconds", "10.00 min"),
            (7_199_999_999_999, "nanoseconds", "2.00 h"),
            (1_048_575, "bytes", "1.00 MiB"),
            (90_000_000_000, "nanoseconds", "90.00 s"),
            (900_000_000_000, "nanoseconds", "15.00 min"),
            (1_500, "microseconds", "1.50 ms"),
            (-2_000_000, "nanoseconds", "-2.00 ms"),
            (1_572_864, "bytes", "1.50 MiB"),
            (1023, "bytes", "1023 B"),
            (1_234_567, "count", "1,234,567"),
            (-1_234, "", "-1,234"),
            (999, "count", "999"),
            (5_000, "objects", "5,000 objects"),
            (i64::MIN, "count", "-9,223,372,036,854,775,808"),
        ];
        for (value, unit, expected) in cases {
            assert_eq!(format(value, unit), expected, "{value} {unit}");
        }
    }

    #[test]
    fn values_are_in_the_unit_of_a_query() {
        let shown = |value: i64, unit: &str, divide_by: f64, name: &str| {
            let unit_shown = ShownUnit::parse(name);
            let options = ValueOptions { divide_by, unit: unit_shown, ..ValueOptions::default() };
            super::shown(value, unit, &options)
        };
        assert_eq!(shown(1_500_000, "nanoseconds", 1.0, "s"), "0.00 s");
        assert_eq!(shown(1_500_000, "nanoseconds", 1.0, "us"), "1500.00 µs");
        assert_eq!(shown(1_500_000, "nanoseconds", 4.0, "ns"), "375000 ns");
        assert_eq!(shown(3 << 20, "bytes", 2.0, "kB"), "1536.00 KiB");
        assert_eq!(shown(2, "megabytes", 1.0, "b"), "2097152 B");
        assert_eq!(shown(1_234_567, "count", 10.0, "ms"), "123,456");
        assert_eq!(shown(1_234_567, "nanoseconds", 1.0, "auto"), "1.23 ms");
    }

    #[test]
    fn times_are_utc() {
        assert_eq!(utc(0), "1970-01-01 00:00:00 UTC");
        assert_eq!(utc(951_827_696_000_000_000), "2000-02-29 12:34:56 UTC");
        assert_eq!(utc(1_795_244_975_123_456_789), "2026-11-21 07:09:35 UTC");
        assert_eq!(utc(-1), "1969-12-31 23:59:59 UTC");
        utc(i64::MAX);
        utc(i64::MIN);
    }
}
