//! Heap profiles of jemalloc (`prof:true`).
//!
//! ```text
//! heap_v2/524288
//!   t*: 3: 1000 [0: 0]
//!   t0: 3: 1000 [0: 0] worker
//! @ 0x7f0a 0x7f0b
//!   t*: 3: 1000 [0: 0]
//!   t0: 3: 1000 [0: 0]
//!
//! MAPPED_LIBRARIES:
//! ```
//!
//! The numbers are objects and bytes in use, and with `prof_accum:true` in brackets those that were
//! allocated: of all threads, and of each.

use std::collections::HashMap;
use std::io::Read;

use profile::{LabelSetId, Profile, label};

use super::address_samples::AddressSamples;
use super::begins_mappings;
use super::heap::WITH_ALLOCATIONS;
use super::scan::{Scanner, addresses, decimal};
use super::uninteresting::{Subject, set_uninteresting};
use super::unsampled::unsampled;
use crate::error::ReadError;
use crate::lines::Lines;
use crate::unpacked::text;
use crate::{Format, UnnamedFrames};

/// The format of [`mod@self`].
#[derive(Debug)]
pub struct Jemalloc;

/// Its title.
const TITLE: &str = "heap profile of jemalloc";

/// Most frames of a stack and its threads together; one with more is not divided among threads.
const FRAMES: usize = 1 << 18;

impl Format for Jemalloc {
    fn name(&self) -> &'static str {
        "jemalloc"
    }

    fn title(&self) -> &'static str {
        TITLE
    }

    fn extensions(&self) -> &'static [&'static str] {
        &[]
    }

    fn detect(&self, head: &[u8]) -> bool {
        let first = text(head).and_then(|text| text.lines().next());
        first.is_some_and(|line| rate(line).is_some())
    }

    fn unnamed_frames(&self) -> UnnamedFrames {
        UnnamedFrames::Addresses
    }

    fn read(&self, input: &mut dyn Read) -> Result<Profile, ReadError> {
        let mut lines = Lines::new(TITLE, input)?;
        let Some(rate) = lines.next()?.and_then(rate) else {
            return Err(lines.error("it is not heap_v2/RATE, the mean bytes between samples"));
        };
        let mut reader = Reader::new(rate);
        while let Some(line) = lines.next()? {
            reader.line(line).or_else(|what| lines.unless_cut(what))?;
            reader.samples.check(&lines)?;
        }
        reader.end_stack();
        reader.set_types();
        reader.samples.finish(&lines)
    }
}

/// The rate of a profile, by its first line.
fn rate(line: &str) -> Option<i64> {
    let mut scanner = Scanner::new(line.strip_prefix("heap_v2/")?);
    scanner.digits()?.parse().ok()
}

/// Numbers of objects and bytes: those that were allocated, and those in use.
type Sums = [i64; 4];

/// A line about a thread, or all.
#[derive(Debug, PartialEq, Eq)]
struct ThreadLine<'a> {
    /// Its number; `None`: the sums of all.
    thread: Option<u64>,
    sums: Sums,
    name: &'a str,
}

impl<'a> ThreadLine<'a> {
    /// Parses `tNUMBER: COUNT: SIZE [COUNT: SIZE] NAME`.
    fn parse(line: &'a str) -> Result<Option<ThreadLine<'a>>, String> {
        let mut scanner = Scanner::new(line.trim());
        let Some((thread, numbers)) = ThreadLine::parts(&mut scanner) else { return Ok(None) };
        let [count, size, all_count, all_size] = numbers;
        let sums = [decimal(all_count)?, decimal(all_size)?, decimal(count)?, decimal(size)?];
        let thread = match thread {
            "*" => None,
            digits => Some(digits.parse().map_err(|_| format!("there is no thread {digits:.40}"))?),
        };
        Ok(Some(ThreadLine { thread, sums, name: scanner.rest.trim() }))
    }

    fn parts(scanner: &mut Scanner<'a>) -> Option<(&'a str, [&'a str; 4])> {
        let start = scanner.literal("t").then_some(scanner.rest)?;
        let thread = if scanner.literal("*") { &start[..1] } else { scanner.digits()? };
        let mut numbers = [""; 4];
        for (number, before) in numbers.iter_mut().zip([":", ":", "[", ":"]) {
            scanner.blanks();
            *number = scanner.literal(before).then(|| {
                scanner.blanks();
                scanner.digits()
            })??;
        }
        scanner.blanks();
        scanner.literal("]").then_some((thread, numbers))
    }
}

struct Reader {
    samples: AddressSamples,
    rate: i64,
    /// Whether there are numbers of allocations.
    has_allocations: bool,
    /// The labels of threads that have a name. The standard hasher, because numbers come from the
    /// file.
    names: HashMap<u64, LabelSetId>,
    /// The open stack.
    stack: Vec<u64>,
    /// Its sums over all threads.
    all: Sums,
    /// Those of each thread.
    threads: Vec<ThreadSums>,
    part: Part,
}

struct ThreadSums {
    labels: LabelSetId,
    sums: Sums,
}

/// The part of a file.
#[derive(Clone, Copy, PartialEq)]
enum Part {
    /// Sums of threads over all stacks.
    Threads,
    Samples,
    Mappings,
}

impl Reader {
    fn new(rate: i64) -> Reader {
        let mut samples = AddressSamples::new(&[]);
        set_uninteresting(&mut samples.all, Subject::Jemalloc);
        Reader {
            samples,
            rate,
            has_allocations: false,
            names: HashMap::new(),
            stack: Vec::new(),
            all: Sums::default(),
            threads: Vec::new(),
            part: Part::Threads,
        }
    }

    fn line(&mut self, line: &str) -> Result<(), String> {
        if self.part == Part::Mappings {
            let AddressSamples { all, mappings, .. } = &mut self.samples;
            return mappings.line(all, line);
        }
        if begins_mappings(line) {
            self.end_stack();
            self.part = Part::Mappings;
        } else if let Some(stack) = line.trim().strip_prefix('@') {
            self.end_stack();
            self.part = Part::Samples;
            for address in addresses(stack) {
                // The address of the caller's next instruction.
                self.stack.push(address?.wrapping_sub(1));
            }
        } else if let Some(sums) = ThreadLine::parse(line)? {
            self.sums(&sums);
        } else if !line.trim().is_empty() {
            return Err("it is neither a stack (@ ADDRESS...) nor the sums of a thread".into());
        }
        Ok(())
    }

    fn sums(&mut self, line: &ThreadLine<'_>) {
        let all = &mut self.samples.all;
        match (self.part, line.thread) {
            (Part::Threads, None) => {
                self.has_allocations = line.sums[..2] != [0; 2];
            }
            (Part::Threads, Some(thread)) if !line.name.is_empty() => {
                let label = all.text_label(label::THREAD, line.name);
                self.names.insert(thread, all.profile.labels.intern(&[label]));
            }
            (Part::Samples, None) => self.all = line.sums,
            (Part::Samples, Some(thread)) if self.threads.len() < FRAMES => {
                let labels = self.names.get(&thread).copied().unwrap_or_else(|| {
                    let label = all.text_label(label::THREAD, &format!("t{thread}"));
                    all.profile.labels.intern(&[label])
                });
                self.threads.push(ThreadSums { labels, sums: line.sums });
            }
            _ => {}
        }
    }

    /// Sets the sample types, as the sums of all threads decide.
    fn set_types(&mut self) {
        if self.samples.all.profile.sample_types.is_empty() {
            let first = if self.has_allocations { 0 } else { 2 };
            self.samples.set_types(&WITH_ALLOCATIONS[first..]);
            self.samples.set_period("space", "bytes", self.rate);
        }
    }

    /// Ends the open stack, if there is one. Its values are estimates from the sums of all threads,
    /// which are divided among them.
    fn end_stack(&mut self) {
        let sampled = std::mem::take(&mut self.all);
        let mut threads = std::mem::take(&mut self.threads);
        let stack = std::mem::take(&mut self.stack);
        if self.part != Part::Samples {
            return;
        }
        self.set_types();
        let mut sums = Sums::default();
        for thread in &threads {
            for (sum, value) in sums.iter_mut().zip(thread.sums) {
                *sum = sum.saturating_add(value);
            }
        }
        let frames = stack.len().saturating_mul(threads.len());
        // jemalloc rounds each sum.
        let most = |sum: i64| (sum / 16).saturating_add(threads.len() as i64).unsigned_abs();
        let is_other =
            |(&all, sum): (&i64, i64)| all.abs_diff(sum) > most(all) || sum == 0 && all != 0;
        if frames > FRAMES || sampled.iter().zip(sums).any(is_other) {
            threads = vec![ThreadSums { labels: LabelSetId::EMPTY, sums: sampled }];
            sums = sampled;
        }
        let [all_count, all_size, count, size] = sampled;
        let all = unsampled(all_count, all_size, self.rate);
        let in_use = unsampled(count, size, self.rate);
        let unsampled = [all.count, all.size, in_use.count, in_use.size];
        let mut before = Sums::default();
        let mut is_first = true;
        for ThreadSums { labels, sums: own } in threads {
            let mut values = Sums::default();
            for (column, value) in own.into_iter().enumerate() {
                let until = before[column].saturating_add(value);
                let share = |part| share(unsampled[column], part, sums[column]);
                values[column] = share(until) - share(before[column]);
                before[column] = until;
            }
            let values = &values[Sums::default().len() - self.samples.columns()..];
            if values.iter().all(|&value| value == 0) {
                continue;
            }
            if std::mem::take(&mut is_first) {
                stack.iter().for_each(|&address| self.samples.push(address));
                self.samples.end_sample(values, labels);
            } else {
                self.samples.repeat_stack(values, labels);
            }
        }
    }
}

/// The part of a value that is proportional to `part` of `whole`.
fn share(value: i64, part: i64, whole: i64) -> i64 {
    let share = i128::from(value) * i128::from(part) / i128::from(whole.max(1));
    i64::try_from(share).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::legacy::tests::{error, read};

    /// The thread and the values of each sample.
    fn samples(text: &str) -> Vec<(String, Vec<i64>)> {
        let profile = read(&Jemalloc, text);
        let thread = |labels| match profile.labels.get(labels) {
            [label] => match label.value {
                profile::LabelValue::Str(name) => profile.str(name).to_owned(),
                profile::LabelValue::Num { .. } => "a number".to_owned(),
            },
            _ => String::new(),
        };
        let samples = profile.samples.iter().enumerate();
        samples.map(|(n, s)| (thread(s.labels), profile.values_of(n).to_vec())).collect()
    }

    #[test]
    fn estimates_are_divided_among_threads() {
        let text = "heap_v2/524288\n  t*: 3: 27648 [0: 0]\n  t0: 2: 18432 [0: 0] worker 1\n\
                    @ 0x11 0x21\n  t*: 3: 27648 [0: 0]\n  t0: 2: 18432 [0: 0]\n\
                    \x20 t7: 1: 9216 [0: 0]\n@ 0x11\n  t*: 1: 1 [0: 0]\n\n\
                    MAPPED_LIBRARIES:\n10-30 r-xp 00000000 00:00 0 /bin/a\n";
        let all = unsampled(3, 27_648, 524_288);
        let first = [all.count * 2 / 3, all.size * 2 / 3];
        let mut found = samples(text);
        assert_eq!(found.pop().unwrap(), (String::new(), vec![524_288, 524_288]));
        assert_eq!(
            found,
            [
                ("worker 1".to_owned(), first.to_vec()),
                ("t7".to_owned(), vec![all.count - first[0], all.size - first[1]])
            ]
        );
        let profile = read(&Jemalloc, text);
        assert_eq!((profile.mappings.len(), profile.period), (1, 524_288));
        assert_eq!(profile.locations[0].address, 0x10);
    }

    #[test]
    fn allocations_are_read_if_there_are_any() {
        let text = "heap_v2/1\n  t*: 1: 2 [3: 4]\n@ 0x11\n  t*: 1: 2 [3: 4]\n";
        // Sums of a thread that are too large or too small for that of all.
        for thread in ["  t0: 9: 9 [9: 9]\n", "  t0: 0: 0 [0: 0]\n", ""] {
            let text = format!("{text}{thread}");
            assert_eq!(samples(&text), [(String::new(), vec![3, 4, 1, 2])]);
        }
        let profile = read(&Jemalloc, text);
        assert_eq!(profile.str(profile.sample_types[3].kind), "inuse_space");
        assert_eq!(read(&Jemalloc, "heap_v2/1\n").sample_types.len(), 2);
    }

    #[test]
    fn deep_stacks_of_many_threads_are_not_divided() {
        let count = 1000;
        let stack = |frames: usize| (0..frames).map(|n| format!(" 0x{n:x}")).collect::<String>();
        let threads: String = (0..count).map(|n| format!(" t{n}: 1: 1 [0: 0]\n")).collect();
        for (frames, rows) in [(FRAMES / count, count), (FRAMES / count + 1, 1)] {
            let begin = format!("heap_v2/1\n@{}\n t*: {count}: {count} [0: 0]\n", stack(frames));
            assert_eq!(samples(&(begin + &threads)).len(), rows);
        }
    }

    #[test]
    fn other_lines_are_refused() {
        for (line, what) in [
            ("text", "it is neither a stack (@ ADDRESS...) nor the sums of a thread"),
            ("t99999999999999999999: 1: 1 [1: 1]", "there is no thread 99999999999999999999"),
            ("@ 0x11111111111111111", "the address 0x11111111111111111 has more than 64 bits"),
        ] {
            let error = error(&Jemalloc, &format!("heap_v2/1\n{line}\n"));
            assert_eq!(error, format!("not valid heap profile of jemalloc: line 2: {what}"));
        }
        assert!(!Jemalloc.detect(b"heap_v2/x"));
    }
}
