//! Profiles of Java as text, of allocations and contention, by Google's profiler of Java.
//!
//! ```text
//! --- heapz 1 ---
//! format = java
//! resolution = bytes
//!      7048     1 @ 0x00000003 0x00000004
//!
//!  0x00000003 com.example.Work.run (Work.java:103)
//! ```

use std::io::Read;

use profile::{LabelSetId, Profile};

use super::address_samples::AddressSamples;
use super::java_names::JavaNames;
use super::scan::{Scanner, address_part, addresses, any_base, decimal, number_starts};
use super::uninteresting::{Subject, set_uninteresting};
use super::unsampled::{Allocations, unsampled};
use crate::Format;
use crate::error::ReadError;
use crate::lines::Lines;
use crate::unpacked::text;

/// The format of [`mod@self`].
#[derive(Debug)]
pub struct Java;

/// Its title.
const TITLE: &str = "profile of Java as text";

/// Mean bytes between two allocations that are sampled.
const RATE: i64 = 512 << 10;

/// The label with the mean size of a sample's objects.
const SIZE: &str = "bytes";

impl Format for Java {
    fn name(&self) -> &'static str {
        "java-text"
    }

    fn title(&self) -> &'static str {
        TITLE
    }

    fn extensions(&self) -> &'static [&'static str] {
        &[]
    }

    /// True if the attributes after the first line are those of Java.
    fn detect(&self, head: &[u8]) -> bool {
        let Some(text) = text(head) else { return false };
        let mut lines = text.lines();
        let is_first = lines.next().is_some_and(|line| Kind::parse(line).is_some());
        let mut lines = lines.filter(|line| !line.trim().is_empty());
        let attributes = std::iter::from_fn(|| lines.next().and_then(attribute));
        is_first && { attributes }.any(|(key, _)| matches!(key, "format" | "resolution"))
    }

    fn read(&self, input: &mut dyn Read) -> Result<Profile, ReadError> {
        let mut lines = Lines::new(TITLE, input)?;
        let Some(kind) = lines.next()?.and_then(Kind::parse) else {
            return Err(lines.error("it is not `--- heapz 1 ---` or `--- contentionz 1 ---`"));
        };
        let mut samples = AddressSamples::new(&[]);
        let subject = match kind {
            Kind::Heap => Subject::Memory,
            Kind::Contention => Subject::Locks,
        };
        set_uninteresting(&mut samples.all, subject);
        let names = JavaNames::default();
        let mut reader = Reader { samples, kind, names, part: Part::Attributes };
        while let Some(line) = lines.next()? {
            reader.line(line).or_else(|what| lines.unless_cut(what))?;
            reader.samples.check(&lines)?;
        }
        if reader.samples.all.profile.sample_types.is_empty() {
            return Err(lines.error("it has no resolution, which is the unit of its values"));
        }
        reader.samples.finish_names(&lines)
    }
}

/// What is profiled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Heap,
    Contention,
}

impl Kind {
    fn parse(line: &str) -> Option<Kind> {
        Some(match line.trim() {
            "--- heapz 1 ---" => Kind::Heap,
            "--- contentionz 1 ---" => Kind::Contention,
            _ => return None,
        })
    }
}

/// Parses `KEY = VALUE`, of letters, digits and blanks.
fn attribute(line: &str) -> Option<(&str, &str)> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | ' ');
    line.match_indices('=').find_map(|(at, _)| {
        let (before, after) = (&line[..at], &line[at + 1..]);
        let key = &before[before.trim_end_matches(is_part).len()..];
        let value = &after[..after.len() - after.trim_start_matches(is_part).len()];
        (!key.is_empty() && !value.is_empty()).then(|| (key.trim(), value.trim()))
    })
}

struct Reader {
    samples: AddressSamples,
    kind: Kind,
    names: JavaNames,
    part: Part,
}

/// The part of a file.
#[derive(Clone, Copy, PartialEq)]
enum Part {
    Attributes,
    Samples,
    Names,
}

impl Reader {
    fn line(&mut self, line: &str) -> Result<(), String> {
        if line.trim().is_empty() {
            return Ok(());
        }
        if self.part == Part::Attributes {
            match attribute(line) {
                Some((key, value)) => return self.attribute(key, value),
                None => self.part = Part::Samples,
            }
        }
        if self.part == Part::Samples {
            match number_starts(line).find_map(stack) {
                Some(stack) => return self.sample(stack),
                None => self.part = Part::Names,
            }
        }
        self.names.line(&mut self.samples, line)
    }

    fn attribute(&mut self, key: &str, value: &str) -> Result<(), String> {
        let number = || any_base(value).ok_or_else(|| format!("{value:.40} is not a number"));
        let samples = &mut self.samples;
        let has_types = !samples.all.profile.sample_types.is_empty();
        match (self.kind, key) {
            (_, "format") if value == "java" => {}
            (_, "format") => return Err(format!("the format {value:.40} is not java")),
            (_, "resolution") if has_types => return Err("it has two resolutions".into()),
            (Kind::Heap, "resolution") => {
                samples.set_types(&[("inuse_objects", "count"), ("inuse_space", value)]);
                samples.set_period("", "", 0);
            }
            (Kind::Contention, "resolution") => {
                let period = samples.all.profile.period;
                samples.set_types(&[("contentions", "count"), ("delay", value)]);
                if period == 0 {
                    samples.set_period("", "", 0);
                } else {
                    samples.set_period("contentions", "count", period);
                }
            }
            (Kind::Contention, "sampling period") => {
                samples.set_period("contentions", "count", number()?);
            }
            (Kind::Contention, "ms since reset") => {
                samples.all.profile.duration_nanos = number()?.saturating_mul(1_000_000);
            }
            _ => return Err(format!("the attribute {key:.40} is not one of such profiles")),
        }
        Ok(())
    }

    fn sample(&mut self, (size, count, stack): (&str, &str, &str)) -> Result<(), String> {
        let samples = &mut self.samples;
        if samples.all.profile.sample_types.is_empty() {
            return Err("it has no resolution, which is the unit of its values".into());
        }
        let (count, size) = (decimal(count)?, decimal(size)?);
        let (values, labels) = match self.kind {
            Kind::Heap => {
                let mean = size.checked_div(count).ok_or("it has no objects")?;
                let label = samples.all.number_label(SIZE, mean);
                let Allocations { count, size } = unsampled(count, size, RATE);
                ([count, size], samples.all.profile.labels.intern(&[label]))
            }
            Kind::Contention => {
                let period = match samples.all.profile.period {
                    0 => 1,
                    period => period,
                };
                let scaled = [count, size].map(|value| value.saturating_mul(period));
                (scaled, LabelSetId::EMPTY)
            }
        };
        for address in addresses(stack) {
            samples.push(address?);
        }
        samples.end_sample(&values, labels);
        Ok(())
    }
}

/// Parses `SIZE COUNT @ ADDRESS...`.
fn stack(mut scanner: Scanner<'_>) -> Option<(&str, &str, &str)> {
    let is_blank = |byte| byte == b' ';
    scanner.literal("-");
    let size = scanner.digits()?;
    let has_blank = !scanner.run(is_blank).is_empty();
    let count = scanner.digits().filter(|_| has_blank)?;
    let has_blank = !scanner.run(is_blank).is_empty();
    let is_stack = has_blank && scanner.literal("@") && !scanner.run(is_blank).is_empty();
    is_stack.then(|| (size, count, address_part(scanner.rest)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::legacy::tests::{error, folded, read};

    #[test]
    fn heaps_are_unsampled() {
        let text = "--- heapz 1 ---\nformat = java\nresolution = bytes\n  9216     1 @ 0x3 0x4 0x5\n\n\
                    \x20 0x00000003 a.B.run (B.java:7)\n 0x04 GC\n";
        let profile = read(&Java, text);
        assert_eq!(profile.values, [57, 528_909]);
        assert_eq!(folded(&profile), "0x0;GC;a.B.run 528909\n");
        assert_eq!(profile.mappings.len(), 1);
    }

    #[test]
    fn contentions_are_scaled_by_their_period() {
        let text = "--- contentionz 1 ---\nformat = java\nresolution = microseconds\n\
                    sampling period = 100\nms since reset = 6\n 14     2 @ 0x3\n 0x3 VM\n";
        let profile = read(&Java, text);
        assert_eq!((&*profile.values, profile.period), (&[200, 1400][..], 100));
        assert_eq!(profile.str(profile.sample_types[1].unit), "microseconds");
        assert_eq!((profile.duration_nanos, profile.mappings.len()), (6_000_000, 0));
    }

    #[test]
    fn other_texts_are_refused() {
        let cases = [
            ("heapz", "format = c\n", "line 2: the format c is not java"),
            ("heapz", "resolution = b\nresolution = c\n", "line 3: it has two resolutions"),
            ("heapz", "resolution = b\n 1 0 @ 0x1\n", "line 3: it has no objects"),
            (
                "heapz",
                "ms since reset = 1\n",
                "line 2: the attribute ms since reset is not one of such profiles",
            ),
            (
                "contentionz",
                " 1 1 @ 0x1\n",
                "line 2: it has no resolution, which is the unit of its values",
            ),
        ];
        for (kind, text, what) in cases {
            let error = error(&Java, &format!("--- {kind} 1 ---\n{text}"));
            assert_eq!(error, format!("not valid profile of Java as text: {what}"));
        }
        assert!(
            !Java.detect(b"--- contentionz 1 ---\ncycles/second = 1\n1 2 @ 0x1\nformat = java\n")
        );
        assert!(Java.detect(b"--- contentionz 1 ---\n\nsampling period = 1\nformat = java\n"));
    }
}
