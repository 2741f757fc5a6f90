//! Profiles of Go with `debug=1` that are counts of stacks: of goroutines, threads and others.
//!
//! ```text
//! goroutine profile: total 4
//! 2 @ 0x4378b6 0x40619b 0x405cd8 0x4b5e3f
//! ```

use std::io::Read;

use profile::{LabelSetId, Profile};

use super::address_samples::AddressSamples;
use super::go_comments::GoComments;
use super::scan::{Scanner, addresses, decimal};
use super::uninteresting::{Subject, set_uninteresting};
use super::{begins_mappings, is_comment};
use crate::error::ReadError;
use crate::lines::Lines;
use crate::unpacked::text;
use crate::{Format, UnnamedFrames};

/// The format of [`mod@self`].
#[derive(Debug)]
pub struct GoCounts;

/// Its title.
const TITLE: &str = "profile of Go as text";

impl Format for GoCounts {
    fn name(&self) -> &'static str {
        "go-text"
    }

    fn title(&self) -> &'static str {
        TITLE
    }

    fn extensions(&self) -> &'static [&'static str] {
        &[]
    }

    fn detect(&self, head: &[u8]) -> bool {
        let first = text(head).and_then(|text| text.lines().find(|line| !is_comment(line)));
        first.is_some_and(|line| kind(line).is_some())
    }

    fn unnamed_frames(&self) -> UnnamedFrames {
        UnnamedFrames::Addresses
    }

    fn read(&self, input: &mut dyn Read) -> Result<Profile, ReadError> {
        let mut lines = Lines::new(TITLE, input)?;
        let mut reader = Reader::default();
        while let Some(line) = lines.next()? {
            reader.line(line).or_else(|what| lines.unless_cut(what))?;
            if let Some(samples) = &reader.samples {
                samples.check(&lines)?;
            }
        }
        match reader.samples {
            Some(samples) => samples.finish(&lines),
            None => Err(lines.error("it has no line such as `goroutine profile: total 4`")),
        }
    }
}

/// The kind of a profile, by its first line: `goroutine profile: total 4`.
fn kind(line: &str) -> Option<&str> {
    let (kind, total) = line.split_once(" profile: total ")?;
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let is_word = !kind.is_empty() && !kind.contains(char::is_whitespace);
    (is_word && is_number(total)).then_some(kind)
}

#[derive(Default)]
struct Reader {
    /// Of the kind in the first line, when that was read.
    samples: Option<AddressSamples>,
    go: GoComments,
    part: Part,
}

/// The part of a file.
#[derive(Clone, Copy, Default, PartialEq)]
enum Part {
    #[default]
    Samples,
    /// Parts that are not read.
    Others,
    Mappings,
}

impl Reader {
    fn line(&mut self, line: &str) -> Result<(), String> {
        let Some(samples) = &mut self.samples else {
            if !is_comment(line) {
                let kind = kind(line).ok_or("it is not the kind of a profile of Go")?;
                let samples = self.samples.insert(AddressSamples::new(&[(kind, "count")]));
                set_uninteresting(&mut samples.all, Subject::Others);
            }
            return Ok(());
        };
        match self.part {
            Part::Mappings => samples.mappings.line(&mut samples.all, line)?,
            Part::Samples if is_comment(line) => self.go.comment(samples, line),
            Part::Samples if !line.starts_with("---") => {
                self.go.begin_sample();
                sample(samples, line)?;
            }
            Part::Samples | Part::Others => {
                let is_last = begins_mappings(line);
                self.part = if is_last { Part::Mappings } else { Part::Others };
            }
        }
        Ok(())
    }
}

/// Reads `COUNT @ ADDRESS...`.
fn sample(samples: &mut AddressSamples, line: &str) -> Result<(), String> {
    let mut scanner = Scanner::new(line);
    let count = scanner.digits().filter(|_| scanner.literal(" @"));
    let mut words = scanner.rest.split(' ');
    let is_stack = words.next() == Some("") && words.all(|word| word.starts_with("0x"));
    let Some(count) = count.filter(|_| is_stack) else {
        return Err("it is not a stack: COUNT @ ADDRESS...".into());
    };
    for address in addresses(scanner.rest) {
        // The address of the caller's next instruction.
        samples.push(address?.wrapping_sub(1));
    }
    samples.end_sample(&[decimal(count)?], LabelSetId::EMPTY);
    Ok(())
}

#[cfg(test)]
mod tests {
    use profile::LabelValue;

    use super::*;
    use crate::legacy::tests::{error, folded, read};

    const GOROUTINES: &str = "goroutine profile: total 4\n\
        2 @ 0x11 0x21 0x31 0x41\n\
        # labels: {\"a\":\"x\", \"b\":\"y z\"}\n\
        #\t0x20\tmain.inner+0x1e\t/src/main.go:59\n\
        #\t0x30\tmain.outer+0xa2\t/src/main.go:40\n\n\
        1 @ 0x21 0x31 0x41\n\
        1 @\n\
        #\t0x0\n";

    #[test]
    fn names_and_labels_are_those_of_the_comments() {
        let profile = read(&GoCounts, GOROUTINES);
        assert_eq!(
            folded(&profile),
            "[no stack] 1\nruntime.goexit;main.outer;main.inner 1\n\
             runtime.goexit;main.outer;main.inner;runtime.[unnamed] 2\n"
        );
        let keys = profile.labels.get(profile.samples[0].labels);
        let texts: Vec<_> = keys
            .iter()
            .map(|label| match label.value {
                LabelValue::Str(value) => {
                    format!("{}={}", profile.str(label.key), profile.str(value))
                }
                LabelValue::Num { .. } => String::new(),
            })
            .collect();
        assert_eq!(texts, ["a=x", "b=y z"]);
        let line = profile.lines_of(profile::LocationId(1))[0];
        let function = profile.functions[line.function.0 as usize];
        assert_eq!((profile.str(function.filename), line.line), ("/src/main.go", 59));
        assert!(profile.mappings[0].has_functions);
        assert_eq!(profile.str(profile.sample_types[0].kind), "goroutine");
    }

    #[test]
    fn other_parts_are_left_out() {
        let text = "# a comment\n\nthreadcreate profile: total 2\n2 @ 0x11\n--- other\n3\n\
                    --- Memory map: ---\n10-20: /bin/a\n";
        let profile = read(&GoCounts, text);
        assert_eq!((profile.samples.len(), profile.str(profile.mappings[0].file)), (1, "/bin/a"));
        assert!(!profile.mappings[0].has_functions);
    }

    #[test]
    fn other_lines_are_refused() {
        for line in ["2", "2 @ x", "2 @0x1", "a @ 0x1", "2 @ 0x1 a"] {
            let text = format!("goroutine profile: total 4\n{line}\n");
            let what = "line 2: it is not a stack: COUNT @ ADDRESS...";
            assert_eq!(error(&GoCounts, &text), format!("not valid profile of Go as text: {what}"));
        }
        for line in [
            "profile: total 1",
            "a b profile: total 1",
            "a profile: total ",
            "goroutine 1 [running]:",
        ] {
            assert_eq!(kind(line), None, "{line}");
        }
    }
}
