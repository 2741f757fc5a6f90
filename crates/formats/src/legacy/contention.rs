//! Profiles of contention as text: of C++ programs, and of Go with `debug=1` (mutexes, blocking).
//!
//! ```text
//! --- contentionz 1 ---
//! cycles/second = 3201000000
//! sampling period = 100
//! 2688 1 @ 0xbccc97 0xc61202 0x42ed5f
//! --- Memory map: ---
//! ```
//!
//! The numbers are cycles and contentions.

use std::io::Read;

use profile::{LabelSetId, Profile};

use super::address_samples::AddressSamples;
use super::go_comments::GoComments;
use super::scan::{Scanner, address_part, addresses, any_base, decimal, number_starts};
use super::uninteresting::{Subject, set_uninteresting};
use super::{begins_mappings, is_comment};
use crate::error::ReadError;
use crate::lines::Lines;
use crate::unpacked::text;
use crate::{Format, UnnamedFrames};

/// The format of [`mod@self`]. That of Java, which begins with the same line, is
/// [`Java`](super::Java).
#[derive(Debug)]
pub struct Contention;

/// Its title.
const TITLE: &str = "contention profile as text";

/// Beginnings of the first line.
const BEGINNINGS: [&str; 3] = ["--- contentionz ", "--- mutex:", "--- contention:"];

impl Format for Contention {
    fn name(&self) -> &'static str {
        "contention-text"
    }

    fn title(&self) -> &'static str {
        TITLE
    }

    fn extensions(&self) -> &'static [&'static str] {
        &[]
    }

    fn detect(&self, head: &[u8]) -> bool {
        text(head).is_some_and(|text| BEGINNINGS.iter().any(|begin| text.starts_with(begin)))
    }

    fn unnamed_frames(&self) -> UnnamedFrames {
        UnnamedFrames::Addresses
    }

    fn read(&self, input: &mut dyn Read) -> Result<Profile, ReadError> {
        let mut lines = Lines::new(TITLE, input)?;
        let first = lines.next()?.unwrap_or_default();
        if !BEGINNINGS.iter().any(|begin| first.starts_with(begin)) {
            return Err(
                lines.error("it is not `--- contentionz`, `--- mutex:` or `--- contention:`")
            );
        }
        let mut reader = Reader::new();
        while let Some(line) = lines.next()? {
            reader.line(line).or_else(|what| lines.unless_cut(what))?;
            reader.samples.check(&lines)?;
        }
        reader.samples.finish(&lines)
    }
}

struct Reader {
    samples: AddressSamples,
    go: GoComments,
    /// Cycles per second; 0: the delays are in nanoseconds.
    frequency: i64,
    part: Part,
}

/// The part of a file.
#[derive(Clone, Copy, PartialEq)]
enum Part {
    Attributes,
    Samples,
    /// Parts that are not read.
    Others,
    Mappings,
}

impl Reader {
    fn new() -> Reader {
        let mut samples =
            AddressSamples::new(&[("contentions", "count"), ("delay", "nanoseconds")]);
        set_uninteresting(&mut samples.all, Subject::Locks);
        Reader { samples, go: GoComments::default(), frequency: 0, part: Part::Attributes }
    }

    fn line(&mut self, line: &str) -> Result<(), String> {
        if self.part == Part::Mappings {
            let AddressSamples { all, mappings, .. } = &mut self.samples;
            return mappings.line(all, line);
        }
        let line = line.trim();
        let is_sample_part = matches!(self.part, Part::Attributes | Part::Samples);
        if is_sample_part && is_comment(line) {
            self.go.comment(&mut self.samples, line);
            return Ok(());
        }
        if !is_sample_part || line.starts_with("---") {
            let is_last = begins_mappings(line);
            self.part = if is_last { Part::Mappings } else { Part::Others };
            return Ok(());
        }
        match line.split_once('=').filter(|_| self.part == Part::Attributes) {
            Some((key, value)) => self.attribute(key.trim(), value.trim()),
            None => {
                self.part = Part::Samples;
                self.sample(line)
            }
        }
    }

    fn attribute(&mut self, key: &str, value: &str) -> Result<(), String> {
        let number = || any_base(value).ok_or_else(|| format!("{value:.40} is not a number"));
        let profile = &mut self.samples.all.profile;
        match key {
            "cycles/second" => self.frequency = number()?,
            "sampling period" => profile.period = number()?,
            "ms since reset" => profile.duration_nanos = number()?.saturating_mul(1_000_000),
            "discarded samples" => {}
            _ => return Err(format!("the attribute {key:.40} is not one of such profiles")),
        }
        Ok(())
    }

    fn sample(&mut self, line: &str) -> Result<(), String> {
        let Some((delay, count, stack)) = number_starts(line).find_map(stack) else {
            return Err("it is not a stack: CYCLES COUNT @ ADDRESS...".into());
        };
        let (mut delay, mut count) = (decimal(delay)?, decimal(count)?);
        let period = self.samples.all.profile.period;
        if period > 0 {
            if self.frequency > 0 {
                let cycles_per_nanosecond = self.frequency as f64 / 1e9;
                delay = (delay as f64 * period as f64 / cycles_per_nanosecond) as i64;
            }
            count = count.saturating_mul(period);
        }
        self.go.begin_sample();
        for address in addresses(stack) {
            // The address of the caller's next instruction.
            self.samples.push(address?.wrapping_sub(1));
        }
        self.samples.end_sample(&[count, delay], LabelSetId::EMPTY);
        Ok(())
    }
}

/// Parses `CYCLES COUNT @ ADDRESS...`.
fn stack(mut scanner: Scanner<'_>) -> Option<(&str, &str, &str)> {
    scanner.literal("-");
    let first = scanner.digits()?;
    let mut after = scanner;
    after.blanks();
    let second = after.digits();
    if let Some(second) = second.filter(|_| after.literal(" @")) {
        return Some((first, second, address_part(after.rest)));
    }
    // Two numbers that nothing separates.
    let (first, second) = first.split_at(first.len() - 1);
    let is_stack = scanner.literal(" @") && !first.is_empty();
    is_stack.then(|| (first, second, address_part(scanner.rest)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::legacy::tests::{error, folded, read};

    #[test]
    fn cycles_are_scaled_to_nanoseconds() {
        let text = "--- contentionz 1 ---\ncycles/second = 2000000000\nsampling period = 10\n\
                    ms since reset = 7\ndiscarded samples = 3\n  300  2 @ 0x11 0x21\n12 @ 0x31\n\
                    --- other\n1\n--- Memory map: ---\n10-40: /bin/a\n";
        let profile = read(&Contention, text);
        assert_eq!(profile.values, [20, 1500, 20, 5]);
        assert_eq!((profile.period, profile.duration_nanos), (10, 7_000_000));
        assert_eq!(profile.mappings.len(), 1);
        let kinds: Vec<_> = profile.sample_types.iter().map(|t| profile.str(t.kind)).collect();
        assert_eq!(kinds, ["contentions", "delay"]);
    }

    #[test]
    fn profiles_of_go_have_names() {
        let text = "--- mutex:\ncycles/second=1000000000\nsampling period=1\n\
                    90 1 @ 0x11 0x21 0x31\n#\t0x10\tsync.(*Mutex).Unlock+0x84\t/src/mutex.go:223\n\
                    #\t0x20\tmain.work+0x67\t\t/src/a.go:37\n";
        assert_eq!(
            folded(&read(&Contention, text)),
            "runtime.goexit;main.work;sync.(*Mutex).Unlock 90\n"
        );
    }

    #[test]
    fn other_lines_are_refused() {
        for (line, what) in [
            ("a b", "it is not a stack: CYCLES COUNT @ ADDRESS..."),
            ("1 @ 0x1", "it is not a stack: CYCLES COUNT @ ADDRESS..."),
            ("color = 1", "the attribute color is not one of such profiles"),
            ("sampling period = x", "x is not a number"),
        ] {
            let text = format!("--- contention:\n{line}\n");
            let expected = format!("not valid contention profile as text: line 2: {what}");
            assert_eq!(error(&Contention, &text), expected);
        }
    }
}
