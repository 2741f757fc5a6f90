//! Times as they are written in options.

use std::time::Duration;

/// Parses a time: `500ms`, `10s`, `10`, `5m`, `1.5h`.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let factor = match &text[digits.len()..] {
        "ms" => 1e-3,
        "us" => 1e-6,
        "" | "s" => 1.0,
        "m" | "min" => 60.0,
        "h" => 3600.0,
        unit => return Err(format!("unit '{unit}' is unknown; use us, ms, s, m or h")),
    };
    let number: f64 =
        digits.parse().map_err(|_| "not a time; write 500ms, 10s, 5m or 1h".to_owned())?;
    let seconds = number * factor;
    // Longer than any recording, and far from overflow.
    if !(seconds > 0.0 && seconds < 366.0 * 86_400.0) {
        return Err("the time must be more than 0 and less than a year".to_owned());
    }
    Ok(Duration::from_secs_f64(seconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_units() {
        assert_eq!(parse_duration("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(parse_duration("10"), Ok(Duration::from_secs(10)));
        assert_eq!(parse_duration("1.5m"), Ok(Duration::from_secs(90)));
        for bad in ["", "s", "-1s", "0", "1d", "nan", "inf", "1e99", "10 s", "ms"] {
            assert!(parse_duration(bad).is_err(), "{bad}");
        }
    }
}
