//! Values of the options of recordings: times, rates, periods, methods of unwinding.

use std::time::Duration;

use crate::sampler::{Rate, parse_duration};
use sys::record::MAX_DUMP;

/// A method of `-g`; the rate decides the default size of the copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StacksArg {
    /// Copies and frame pointers.
    Auto,
    /// Frame pointers.
    FramePointer,
    /// Copies, of this many bytes if given.
    Dwarf(Option<u32>),
    /// No stacks.
    None,
}

/// Parses a time as [`parse_duration`] does, but a number without a unit is milliseconds.
pub fn parse_delay(text: &str) -> Result<Duration, String> {
    match text.parse::<u32>() {
        Ok(_) => parse_duration(&format!("{text}ms")),
        Err(_) => parse_duration(text),
    }
}

/// Parses a rate in samples per second: a number or `max`.
pub fn parse_frequency(text: &str) -> Result<Rate, String> {
    if text == "max" {
        return Ok(Rate::Max);
    }
    match text.parse::<u64>() {
        Ok(0) => Err("the rate must be at least 1".to_owned()),
        Ok(hz) => Ok(Rate::Frequency(hz)),
        Err(_) => Err("not a number of samples per second; write 99 or max".to_owned()),
    }
}

/// Parses a number of events between two samples.
pub fn parse_period(text: &str) -> Result<u64, String> {
    match text.parse() {
        Ok(0) | Err(_) => Err("not a number of events; give 1 or more".to_owned()),
        Ok(period) => Ok(period),
    }
}

/// True for a word after `-g` that is a method, right or wrong, and does not begin a COMMAND.
pub fn is_stack_method(word: &str) -> bool {
    let method = word.split(',').next().unwrap_or_default();
    matches!(method, "auto" | "fp" | "dwarf" | "none" | "no" | "lbr")
}

/// Parses a method of `-g`.
pub fn parse_stacks(text: &str) -> Result<StacksArg, String> {
    let (method, bytes) = text.split_once(',').map_or((text, None), |(h, b)| (h, Some(b)));
    let bytes = match bytes {
        None => None,
        Some(b) => match b.parse::<u32>() {
            // The kernel copies whole words.
            Ok(n) if (8..=MAX_DUMP).contains(&n) => Some(n.next_multiple_of(8)),
            _ => return Err(format!("'{b}' is not a number of bytes from 8 to {MAX_DUMP}")),
        },
    };
    match (method, bytes) {
        ("auto", None) => Ok(StacksArg::Auto),
        ("fp", None) => Ok(StacksArg::FramePointer),
        ("none" | "no", None) => Ok(StacksArg::None),
        ("dwarf", bytes) => Ok(StacksArg::Dwarf(bytes)),
        ("lbr", _) => Err("prof does not read the CPU's branch records; auto finds callers \
                           without frame pointers, too"
            .to_owned()),
        _ => Err("use auto, fp, dwarf, dwarf,BYTES or none".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_delay_without_a_unit_is_milliseconds() {
        assert_eq!(parse_delay("300"), Ok(Duration::from_millis(300)));
        assert_eq!(parse_delay("2s"), Ok(Duration::from_secs(2)));
    }

    #[test]
    fn frequencies_and_stacks_have_limits() {
        assert_eq!(parse_frequency("max"), Ok(Rate::Max));
        for bad in ["0", "-1", "x", ""] {
            assert!(parse_frequency(bad).is_err(), "{bad}");
        }
        assert_eq!(parse_stacks("dwarf,65528"), Ok(StacksArg::Dwarf(Some(MAX_DUMP))));
        assert_eq!(parse_stacks("dwarf,1001"), Ok(StacksArg::Dwarf(Some(1008))));
        for bad in ["dwarf,x", "fp,8", "lbr", "dwarf,0", "dwarf,65529", "dwarf,999999"] {
            assert!(parse_stacks(bad).is_err(), "{bad}");
        }
    }
}
