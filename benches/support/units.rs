//! Figures as text: two significant digits, with a unit.

/// The text of a figure that was not measured.
pub const NOT_MEASURED: &str = "n/a";

/// A unit, and its size in the base unit.
struct Unit {
    size: f64,
    name: &'static str,
}

/// From the smallest.
const TIMES: &[Unit] = &[
    Unit { size: 1e-9, name: "ns" },
    Unit { size: 1e-6, name: "µs" },
    Unit { size: 1e-3, name: "ms" },
    Unit { size: 1.0, name: "s" },
];

/// From the smallest.
const BYTES: &[Unit] = &[
    Unit { size: 1.0, name: "B" },
    Unit { size: 1024.0, name: "KiB" },
    Unit { size: 1_048_576.0, name: "MiB" },
    Unit { size: 1_073_741_824.0, name: "GiB" },
];

/// The value rounded to two significant digits.
fn rounded(value: f64) -> f64 {
    if value == 0.0 {
        return 0.0;
    }
    let step = 10_f64.powi(value.abs().log10().floor() as i32 - 1);
    (value / step).round() * step
}

/// A number with two significant digits: `0.41`, `7.7`, `23`, `1,300`.
pub fn number(value: f64) -> String {
    if !value.is_finite() {
        return NOT_MEASURED.to_owned();
    }
    let value = rounded(value);
    // A little more: the logarithm of 10 may come out below 1.
    let digits = if value == 0.0 { 1 } else { (value.abs().log10() + 1e-9).floor() as i32 };
    let text = format!("{value:.*}", (1 - digits).max(0) as usize);
    thousands(&text)
}

/// A whole number: `1,000`.
pub fn count(value: u64) -> String {
    thousands(&value.to_string())
}

/// A decimal number with commas between thousands.
fn thousands(text: &str) -> String {
    let (whole, rest) = text.split_at(text.find('.').unwrap_or(text.len()));
    let mut grouped = String::new();
    for (i, c) in whole.chars().enumerate() {
        let behind = whole.len() - i;
        if behind.is_multiple_of(3) && grouped.ends_with(|c: char| c.is_ascii_digit()) {
            grouped.push(',');
        }
        grouped.push(c);
    }
    grouped + rest
}

/// The value in the largest unit that it reaches.
fn scaled(value: f64, units: &[Unit]) -> String {
    if !value.is_finite() {
        return NOT_MEASURED.to_owned();
    }
    let reached = |unit: &&Unit| rounded(value / unit.size).abs() >= 1.0;
    let unit = units.iter().rev().find(reached).unwrap_or(&units[0]);
    format!("{} {}", number(value / unit.size), unit.name)
}

/// A time in seconds: `25 ns`, `0.41 ns`, `13 µs`, `86 s`.
pub fn time(seconds: f64) -> String {
    scaled(seconds, TIMES)
}

/// A time that is added to another, in seconds: `1.5 ns more`, `12 ns less`.
pub fn added(seconds: f64) -> String {
    match seconds.is_finite() {
        true if seconds < 0.0 => format!("{} less", time(-seconds)),
        true => format!("{} more", time(seconds)),
        false => NOT_MEASURED.to_owned(),
    }
}

/// A size in bytes: `23 KiB`, `5.1 GiB`.
pub fn size(bytes: f64) -> String {
    scaled(bytes, BYTES)
}

/// `0.41 %`.
pub fn percent(value: f64) -> String {
    if value.is_finite() { format!("{} %", number(value)) } else { NOT_MEASURED.to_owned() }
}

/// A share in percent of which the rest to 100 matters: `100 %`, `99.97 %`, `99.2 %`, `58 %`.
pub fn share(value: f64) -> String {
    let rest = 100.0 - value;
    if !rest.is_finite() || rest >= 1.0 || rest <= 0.0 {
        return percent(value);
    }
    let digits = -rest.log10().floor() as usize;
    format!("{value:.digits$} %")
}
