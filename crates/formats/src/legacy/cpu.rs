//! CPU profiles of gperftools, Go before 1.9, and Google's profiler of Java: words of the machine that
//! wrote them, of 32 or 64 bits, then mappings (of Java: names) as text.
//!
//! ```text
//! 0 3 VERSION PERIOD 0        version 0; 1: Java. The period in microseconds.
//! COUNT DEPTH ADDRESS...      for each stack, leaf first
//! 0 1 0                       the end of the stacks
//! ```

use std::io::{BufReader, ErrorKind, Read};

use profile::{LabelSetId, Profile};

use super::address_samples::AddressSamples;
use super::java_names::JavaNames;
use super::uninteresting::{Subject, set_uninteresting};
use crate::error::ReadError;
use crate::lines::Lines;
use crate::unpacked::Unpacked;
use crate::{Format, UnnamedFrames};

/// The format of [`mod@self`].
#[derive(Debug)]
pub struct Cpu;

/// Its title.
const TITLE: &str = "CPU profile of gperftools";

/// Words of the header.
const HEADER: usize = 5;

/// Words after which the memory of the samples is checked.
const CHECKED: u32 = 8192;

impl Format for Cpu {
    fn name(&self) -> &'static str {
        "gperftools-cpu"
    }

    fn title(&self) -> &'static str {
        TITLE
    }

    fn extensions(&self) -> &'static [&'static str] {
        &[]
    }

    fn detect(&self, head: &[u8]) -> bool {
        Header::parse(head).is_some()
    }

    fn unnamed_frames(&self) -> UnnamedFrames {
        UnnamedFrames::Addresses
    }

    fn read(&self, input: &mut dyn Read) -> Result<Profile, ReadError> {
        let mut input = BufReader::with_capacity(64 << 10, Unpacked::new(input)?);
        let mut head = Vec::new();
        // The shorter words first: the rest belongs to the samples.
        let longest = (HEADER * size_of::<u64>()) as u64;
        (&mut input).take(longest / 2).read_to_end(&mut head)?;
        if Header::parse(&head).is_none() {
            (&mut input).take(longest / 2).read_to_end(&mut head)?;
        }
        let header = Header::parse(&head)
            .ok_or_else(|| ReadError::invalid(TITLE, "it has no header with a period"))?;
        let mut samples = AddressSamples::new(&[("samples", "count"), ("cpu", "nanoseconds")]);
        samples.set_period("cpu", "nanoseconds", header.period);
        set_uninteresting(&mut samples.all, Subject::Others);
        read_samples(Words { input: &mut input, order: header.order }, &header, &mut samples)?;
        let mut lines = Lines::rest(TITLE, input);
        if header.is_java {
            let mut names = JavaNames::default();
            while let Some(line) = lines.next()? {
                names.line(&mut samples, line).or_else(|what| lines.unless_cut(what))?;
                samples.check(&lines)?;
            }
            return samples.finish_names(&lines);
        }
        samples.remove_handlers();
        samples.remove_repeated_leaves();
        while let Some(line) = lines.next()? {
            let AddressSamples { all, mappings, .. } = &mut samples;
            mappings.line(all, line).or_else(|what| lines.unless_cut(what))?;
            samples.check(&lines)?;
        }
        samples.finish(&lines)
    }
}

/// The size of words, and the order of their bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WordOrder {
    Little32,
    Big32,
    Little64,
    Big64,
}

impl WordOrder {
    /// Bytes of a word.
    fn size(self) -> usize {
        match self {
            WordOrder::Little32 | WordOrder::Big32 => 4,
            WordOrder::Little64 | WordOrder::Big64 => 8,
        }
    }

    fn parse(self, bytes: &[u8]) -> u64 {
        let number = |n: u64, &byte: &u8| n << 8 | u64::from(byte);
        match self {
            WordOrder::Little32 | WordOrder::Little64 => bytes.iter().rev().fold(0, number),
            WordOrder::Big32 | WordOrder::Big64 => bytes.iter().fold(0, number),
        }
    }
}

struct Header {
    order: WordOrder,
    is_java: bool,
    /// In nanoseconds.
    period: i64,
}

impl Header {
    fn parse(head: &[u8]) -> Option<Header> {
        let orders = [WordOrder::Little32, WordOrder::Big32, WordOrder::Little64, WordOrder::Big64];
        orders.into_iter().find_map(|order| {
            let words = head.chunks_exact(order.size()).map(|word| order.parse(word));
            let words: Vec<_> = words.take(HEADER).collect();
            let [0, 3, version @ 0..=1, period, 0] = *words else { return None };
            if period == 0 {
                return None;
            }
            let period = i64::try_from(period).unwrap_or(i64::MAX).saturating_mul(1000);
            Some(Header { order, is_java: version == 1, period })
        })
    }
}

/// The words of a stream.
struct Words<'w, 'r> {
    input: &'w mut BufReader<Unpacked<'r>>,
    order: WordOrder,
}

impl Words<'_, '_> {
    /// The next word; `None` at the end of the file.
    fn next(&mut self) -> Result<Option<u64>, ReadError> {
        let mut bytes = [0; size_of::<u64>()];
        let word = &mut bytes[..self.order.size()];
        match self.input.read_exact(word) {
            Ok(()) => Ok(Some(self.order.parse(word))),
            Err(e) if e.kind() == ErrorKind::UnexpectedEof && self.is_end() => Ok(None),
            Err(e) => Err(e.into()),
        }
    }

    /// Whether the stream has ended, and not in the middle of its compression.
    fn is_end(&mut self) -> bool {
        self.input.read(&mut [0]).is_ok_and(|read| read == 0)
    }

    fn required(&mut self) -> Result<u64, ReadError> {
        self.next()?.ok_or_else(|| ReadError::invalid(TITLE, "it ends inside a stack"))
    }
}

/// Reads the stacks. A file that ends after any of them, without the end of all, is incomplete.
fn read_samples(
    mut words: Words<'_, '_>,
    header: &Header,
    samples: &mut AddressSamples,
) -> Result<(), ReadError> {
    let mut unchecked = 0;
    while let Some(count) = words.next()? {
        let depth = words.required()?;
        let mut last = 0;
        for frame in 0..depth {
            last = words.required()?;
            // The address of the caller's next instruction; in Java a number.
            let is_return = frame > 0 && !header.is_java;
            samples.push(if is_return { last.wrapping_sub(1) } else { last });
            unchecked += 1;
            if unchecked >= CHECKED {
                unchecked = 0;
                check(samples, words.input.get_ref())?;
            }
        }
        if (count, depth, last) == (0, 1, 0) {
            samples.remove_open();
            return check(samples, words.input.get_ref());
        }
        let count = i64::try_from(count).unwrap_or(i64::MAX);
        let values = [count, count.saturating_mul(header.period)];
        samples.end_sample(&values, LabelSetId::EMPTY);
        unchecked += 2;
        if unchecked >= CHECKED {
            unchecked = 0;
            check(samples, words.input.get_ref())?;
        }
    }
    samples.all.set_incomplete("the end of its stacks is missing");
    check(samples, words.input.get_ref())
}

fn check(samples: &AddressSamples, input: &Unpacked<'_>) -> Result<(), ReadError> {
    let excess = samples.excess(input.memory_allowed());
    excess.map_or(Ok(()), |excess| Err(ReadError::invalid(TITLE, excess)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A profile of two stacks: its words, and the text after them.
    fn file(order: WordOrder, version: u64, text: &str) -> Vec<u8> {
        let words = [
            &[0, 3, version, 10_000, 0][..],
            &[2, 2, 0x40_1000, 0x40_2001],
            &[1, 1, 0x40_1000],
            &[0, 1, 0],
        ];
        let bytes = |&word: &u64| match order {
            WordOrder::Little32 => word.to_le_bytes()[..4].to_vec(),
            WordOrder::Big32 => word.to_be_bytes()[4..].to_vec(),
            WordOrder::Little64 => word.to_le_bytes().to_vec(),
            WordOrder::Big64 => word.to_be_bytes().to_vec(),
        };
        let words = words.concat().iter().flat_map(bytes).collect::<Vec<_>>();
        [words, text.as_bytes().to_vec()].concat()
    }

    const ORDERS: [WordOrder; 4] =
        [WordOrder::Little32, WordOrder::Big32, WordOrder::Little64, WordOrder::Big64];

    #[test]
    fn profiles_of_any_machine_are_read() {
        for order in ORDERS {
            let bytes = file(order, 0, "00400000-00500000 r-xp 00000000 fe:02 9 /bin/a\n");
            assert!(Cpu.detect(&bytes));
            let profile = Cpu.read(&mut &*bytes).unwrap();
            assert_eq!(profile.values, [2, 20_000_000, 1, 10_000_000], "{order:?}");
            assert_eq!(profile.period, 10_000_000);
            let addresses: Vec<_> = profile.locations.iter().map(|l| l.address).collect();
            assert_eq!(addresses, [0x40_1000, 0x40_2000]);
            assert_eq!(profile.str(profile.mappings[0].file), "/bin/a");
        }
    }

    #[test]
    fn profiles_of_java_have_names() {
        let bytes = file(ORDERS[0], 1, " 0x401000 a.b (B.java:7)\n 0x402001 GC\n");
        let profile = Cpu.read(&mut &*bytes).unwrap();
        let names: Vec<_> = profile.functions.iter().map(|f| profile.str(f.name)).collect();
        assert_eq!(names, ["a.b", "GC"]);
        assert!(profile.locations.iter().all(|l| l.address == 0));
    }

    #[test]
    fn cut_files_are_refused_inside_a_stack() {
        let bytes = file(ORDERS[2], 0, "");
        let header = 5 * 8;
        assert_eq!(Cpu.read(&mut &bytes[..header + 4 * 8]).unwrap().samples.len(), 1);
        for end in [header + 8, header + 3 * 8, header + 4 * 8 + 16] {
            let error = Cpu.read(&mut &bytes[..end]).unwrap_err().to_string();
            assert_eq!(error, "not valid CPU profile of gperftools: it ends inside a stack");
        }
        assert!(!Cpu.detect(&bytes[..header - 1]) && !Cpu.detect(&[0; 64]));
    }
}
