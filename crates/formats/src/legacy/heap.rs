//! Heap profiles as text: of gperftools and tcmalloc (heap, growth, fragmentation), and of Go with
//! `debug=1`.
//!
//! ```text
//! heap profile:    85: 178257920 [   100: 188257920] @ heap_v2/524288
//!      1:  2097152 [     1:  2097152] @ 0xb83003 0xb87d50 0xc635f0
//! MAPPED_LIBRARIES:
//! ```
//!
//! The numbers are objects and bytes in use, and in brackets those that were allocated.

use std::io::Read;

use profile::{LabelSetId, Profile};

use super::address_samples::AddressSamples;
use super::go_comments::GoComments;
use super::scan::{Scanner, address_part, addresses, decimal, number_starts};
use super::uninteresting::{Subject, set_uninteresting};
use super::unsampled::{Allocations, unsampled};
use super::{begins_mappings, is_comment};
use crate::error::ReadError;
use crate::lines::Lines;
use crate::unpacked::text;
use crate::{Format, UnnamedFrames};

/// The format of [`mod@self`].
#[derive(Debug)]
pub struct Heap;

/// Its title.
const TITLE: &str = "heap profile as text";

/// The label with the mean size of a sample's objects.
const SIZE: &str = "bytes";

/// The sample types of a profile with allocations; those in use are last, as the default.
pub(super) const WITH_ALLOCATIONS: [(&str, &str); 4] = [
    ("alloc_objects", "count"),
    ("alloc_space", "bytes"),
    ("inuse_objects", "count"),
    ("inuse_space", "bytes"),
];

impl Format for Heap {
    fn name(&self) -> &'static str {
        "heap-text"
    }

    fn title(&self) -> &'static str {
        TITLE
    }

    fn extensions(&self) -> &'static [&'static str] {
        &[]
    }

    fn detect(&self, head: &[u8]) -> bool {
        let first = text(head).and_then(|text| text.lines().next());
        first.is_some_and(|line| Header::parse(line).is_some())
    }

    fn unnamed_frames(&self) -> UnnamedFrames {
        UnnamedFrames::Addresses
    }

    fn read(&self, input: &mut dyn Read) -> Result<Profile, ReadError> {
        let mut lines = Lines::new(TITLE, input)?;
        let header = lines.next()?.and_then(Header::parse);
        let header = header.ok_or_else(|| {
            lines.error("it is not `heap profile:` with the sums and the kind of the profile")
        })?;
        let mut reader = Reader::new(header);
        while let Some(line) = lines.next()? {
            reader.line(line).or_else(|what| lines.unless_cut(what))?;
            reader.samples.check(&lines)?;
        }
        reader.samples.finish(&lines)
    }
}

/// The first line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Header {
    /// Mean bytes between samples; 1: all allocations are in the profile. 0: unknown.
    period: i64,
    is_sampled: bool,
    has_allocations: bool,
}

impl Header {
    fn parse(line: &str) -> Option<Header> {
        const BEGIN: &str = "heap profile:";
        line.match_indices(BEGIN).find_map(|(at, _)| {
            let mut scanner = Scanner::new(&line[at + BEGIN.len()..]);
            let sums = Sums::parse(&mut scanner)?;
            let is_more = |all, in_use| all != in_use && all != "0";
            let has_allocations =
                is_more(sums.all_count, sums.count) || is_more(sums.all_size, sums.size);
            let mut kind = scanner;
            if kind.literal(" @ growth") || kind.literal(" @ fragmentation") {
                return Some(Header { period: 1, is_sampled: false, has_allocations: false });
            }
            scanner.blanks();
            let is_kind = scanner.literal("@");
            scanner.blanks();
            let kind = scanner.run(|byte| matches!(byte, b'_' | b'a'..=b'z' | b'0'..=b'9'));
            scanner.literal("/");
            let rate = match scanner.digits() {
                Some(digits) => digits.parse().ok()?,
                None => 0,
            };
            let (period, is_sampled) = match kind {
                "heapz_v2" | "heap_v2" => (rate, true),
                "heapprofile" => (1, false),
                // Go writes twice its rate.
                "heap" => (rate / 2, true),
                _ => return None,
            };
            is_kind.then_some(Header { period, is_sampled, has_allocations })
        })
    }
}

/// The numbers of a line: those in use, and those of all allocations.
struct Sums<'a> {
    count: &'a str,
    size: &'a str,
    all_count: &'a str,
    all_size: &'a str,
}

impl<'a> Sums<'a> {
    /// Parses `COUNT: SIZE [COUNT: SIZE]`; numbers in use are negative if more was freed.
    fn parse(scanner: &mut Scanner<'a>) -> Option<Sums<'a>> {
        scanner.blanks();
        let count = scanner.signed()?;
        let size = scanner.literal(":").then(|| {
            scanner.blanks();
            scanner.signed()
        })??;
        scanner.blanks();
        let all_count = scanner.literal("[").then(|| {
            scanner.blanks();
            scanner.digits()
        })??;
        let all_size = scanner.literal(":").then(|| {
            scanner.blanks();
            scanner.digits()
        })??;
        scanner.blanks();
        scanner.literal("]").then_some(Sums { count, size, all_count, all_size })
    }
}

struct Reader {
    samples: AddressSamples,
    header: Header,
    go: GoComments,
    part: Part,
}

/// The part of a file.
#[derive(Clone, Copy, PartialEq)]
enum Part {
    Samples,
    Mappings,
}

impl Reader {
    fn new(header: Header) -> Reader {
        let in_use = [("objects", "count"), ("space", "bytes")];
        let types = if header.has_allocations { &WITH_ALLOCATIONS[..] } else { &in_use };
        let mut samples = AddressSamples::new(types);
        samples.set_period("space", "bytes", header.period);
        set_uninteresting(&mut samples.all, Subject::Memory);
        Reader { samples, header, go: GoComments::default(), part: Part::Samples }
    }

    fn line(&mut self, line: &str) -> Result<(), String> {
        if self.part == Part::Mappings {
            let AddressSamples { all, mappings, .. } = &mut self.samples;
            return mappings.line(all, line);
        }
        let line = line.trim();
        if is_comment(line) {
            self.go.comment(&mut self.samples, line);
            return Ok(());
        }
        if begins_mappings(line) {
            self.part = Part::Mappings;
            return Ok(());
        }
        self.sample(line)
    }

    fn sample(&mut self, line: &str) -> Result<(), String> {
        let parsed = number_starts(line).find_map(|mut scanner| {
            let sums = Sums::parse(&mut scanner)?;
            scanner.literal(" @").then_some((sums, address_part(scanner.rest)))
        });
        let Some((sums, stack)) = parsed else {
            return Err("it is not a stack: COUNT: SIZE [COUNT: SIZE] @ ADDRESS...".into());
        };
        let Header { period, is_sampled, has_allocations } = self.header;
        let mut mean = 0;
        let mut values = Vec::with_capacity(4);
        let mut add = |count, size| {
            let sampled = Allocations { count: decimal(count)?, size: decimal(size)? };
            if sampled.count == 0 && sampled.size != 0 {
                return Err(format!("it has {size} bytes of 0 objects"));
            }
            if sampled.count != 0 {
                mean = sampled.size.wrapping_div(sampled.count);
            }
            let Allocations { count, size } = sampled;
            let all = if is_sampled { unsampled(count, size, period) } else { sampled };
            values.extend([all.count, all.size]);
            Ok(())
        };
        if has_allocations {
            add(sums.all_count, sums.all_size)?;
        }
        add(sums.count, sums.size)?;
        self.go.begin_sample();
        for address in addresses(stack) {
            // The address of the caller's next instruction.
            self.samples.push(address?.wrapping_sub(1));
        }
        let label = self.samples.all.number_label(SIZE, mean);
        let labels: LabelSetId = self.samples.all.profile.labels.intern(&[label]);
        self.samples.end_sample(&values, labels);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::legacy::tests::{error, read};

    #[test]
    fn the_kind_decides_how_allocations_were_sampled() {
        let header = |end: &str| Header::parse(&format!("heap profile:  1: 2 [ 3: 4] {end}"));
        let kind = |period, is_sampled| Some(Header { period, is_sampled, has_allocations: true });
        assert_eq!(header("@ heap_v2/524288"), kind(524_288, true));
        assert_eq!(header("@heapz_v2/5"), kind(5, true));
        assert_eq!(header("@ heapprofile"), kind(1, false));
        assert_eq!(header("@ heap/1048576"), kind(524_288, true));
        assert_eq!(header("@ heap_v2"), kind(0, true));
        for end in ["@ growthz", "@ growth", "@ fragmentationz"] {
            assert!(header(end).is_some_and(|h| !h.has_allocations && h.period == 1), "{end}");
        }
        for end in ["@ other", "heap_v2/1", "", "@ heap_v2/99999999999999999999"] {
            assert_eq!(header(end), None, "{end}");
        }
        let same = Header::parse("heap profile: 1: 2 [1: 2] @ heapprofile").unwrap();
        assert!(!same.has_allocations);
    }

    #[test]
    fn samples_have_values_and_a_size() {
        let text = "heap profile: 3: 30 [5: 70] @ heapprofile\n  3: 30 [ 5: 70] @ 0x11 0x21\n\
                    -1: -8 [0: 0] @ 0x11\n# comment\nMAPPED_LIBRARIES:\n10-20 r-xp 0 0:0 0 /bin/a\n";
        let profile = read(&Heap, text);
        assert_eq!(profile.values, [5, 70, 3, 30, 0, 0, -1, -8]);
        let sizes: Vec<_> = (0..2).map(|n| profile.labels.get(profile.samples[n].labels)).collect();
        let label = |value| profile::LabelValue::Num { value, unit: profile::StrId::EMPTY };
        assert_eq!((sizes[0][0].value, sizes[1][0].value), (label(10), label(8)));
        let addresses: Vec<_> = profile.locations.iter().map(|l| (l.address, l.mapping)).collect();
        let mapping = |n| Some(profile::MappingId(n));
        assert_eq!(addresses, [(0x10, mapping(0)), (0x20, mapping(1))]);
    }

    #[test]
    fn other_lines_are_refused() {
        let begin = "heap profile: 3: 30 [3: 30] @ heapprofile\n";
        for (line, what) in [
            ("3: 30 [3: 30]", "it is not a stack: COUNT: SIZE [COUNT: SIZE] @ ADDRESS..."),
            ("0: 30 [3: 30] @ 0x1", "it has 30 bytes of 0 objects"),
            ("3: 99999999999999999999 [3: 30] @", "the number 99999999999999999999 is too large"),
        ] {
            let expected = format!("not valid heap profile as text: line 2: {what}");
            assert_eq!(error(&Heap, &format!("{begin}{line}\n")), expected);
        }
    }
}
