//! Stacks of all threads of a C++ program, as text.
//!
//! ```text
//! --- threadz 1 ---
//!
//! --- Thread 7eff063d9940 (name: main/25376) stack: ---
//!   PC: 0xbc8f1c 0xbcae55 0xbcb5f5
//! --- Thread 7eff04b95700 (name: thread1/25380) stack: ---
//!   --- same as previous thread ---
//! --- Memory map: ---
//! ```

use std::io::Read;

use profile::{LabelSetId, Profile};

use super::address_samples::AddressSamples;
use super::scan::{Scanner, addresses};
use super::uninteresting::{Subject, set_uninteresting};
use super::{begins_mappings, is_comment};
use crate::error::ReadError;
use crate::lines::Lines;
use crate::unpacked::text;
use crate::{Format, UnnamedFrames};

/// The format of [`mod@self`].
#[derive(Debug)]
pub struct Threads;

/// Its title.
const TITLE: &str = "profile of threads as text";

impl Format for Threads {
    fn name(&self) -> &'static str {
        "threads-text"
    }

    fn title(&self) -> &'static str {
        TITLE
    }

    fn extensions(&self) -> &'static [&'static str] {
        &[]
    }

    fn detect(&self, head: &[u8]) -> bool {
        let first = text(head).and_then(|text| text.lines().find(|line| !is_comment(line)));
        first.is_some_and(|line| begins_file(line) || begins_thread(line))
    }

    fn unnamed_frames(&self) -> UnnamedFrames {
        UnnamedFrames::Addresses
    }

    fn read(&self, input: &mut dyn Read) -> Result<Profile, ReadError> {
        let mut lines = Lines::new(TITLE, input)?;
        let mut samples = AddressSamples::new(&[("thread", "count")]);
        set_uninteresting(&mut samples.all, Subject::Others);
        let mut reader = Reader { samples, part: Part::Begin };
        while let Some(line) = lines.next()? {
            reader.line(line).or_else(|what| lines.unless_cut(what))?;
            reader.samples.check(&lines)?;
        }
        reader.end_thread();
        let mut samples = reader.samples;
        samples.remove_repeated_leaves();
        samples.finish(&lines)
    }
}

/// Whether a line contains `--- threadz NUMBER ---`.
fn begins_file(line: &str) -> bool {
    const BEGIN: &str = "--- threadz ";
    line.match_indices(BEGIN).any(|(at, _)| {
        let mut scanner = Scanner::new(&line[at + BEGIN.len()..]);
        scanner.digits().is_some() && scanner.literal(" ---")
    })
}

/// Whether a line contains `--- Thread NUMBER (name: NAME/NUMBER) stack: ---`.
fn begins_thread(line: &str) -> bool {
    let Some((_, thread)) = line.split_once("--- Thread ") else { return false };
    let mut scanner = Scanner::new(thread);
    let has_number = !scanner.run(|byte| byte.is_ascii_hexdigit()).is_empty();
    let has_name = scanner.literal(" (name: ");
    let end = scanner.rest.rsplit_once(") stack: ---").and_then(|(name, _)| name.rsplit_once('/'));
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    has_number && has_name && end.is_some_and(|(_, number)| is_number(number))
}

struct Reader {
    samples: AddressSamples,
    part: Part,
}

/// The part of a file.
#[derive(Clone, Copy, PartialEq)]
enum Part {
    /// Before the first thread.
    Begin,
    Thread {
        /// Whether its stack is that of the thread before.
        is_same: bool,
    },
    /// Parts that are not read.
    Others,
    Mappings,
}

impl Reader {
    fn line(&mut self, line: &str) -> Result<(), String> {
        if self.part == Part::Mappings {
            let AddressSamples { all, mappings, .. } = &mut self.samples;
            return mappings.line(all, line);
        }
        if begins_mappings(line) {
            self.end_thread();
            self.part = Part::Mappings;
            return Ok(());
        }
        let line = line.trim();
        match self.part {
            Part::Begin if is_comment(line) || begins_file(line) || !line.starts_with('-') => {}
            Part::Begin => self.header(line)?,
            Part::Thread { .. } if line.contains("same as previous thread") => {
                self.part = Part::Thread { is_same: true };
            }
            Part::Thread { .. } if line.starts_with("---") => {
                self.end_thread();
                self.header(line)?;
            }
            Part::Thread { .. } => {
                for address in addresses(line) {
                    let is_leaf = self.samples.open_frames() == 0;
                    // That of a caller is the address of its next instruction.
                    let return_length = u64::from(!is_leaf);
                    self.samples.push(address?.wrapping_sub(return_length));
                }
            }
            Part::Others | Part::Mappings => {}
        }
        Ok(())
    }

    /// Reads the line that begins a thread, or ends all.
    fn header(&mut self, line: &str) -> Result<(), String> {
        self.part = if line.starts_with("---- no stack trace for") {
            Part::Others
        } else if begins_thread(line) {
            Part::Thread { is_same: false }
        } else {
            return Err("it is not a thread: --- Thread ID (name: NAME/ID) stack: ---".into());
        };
        Ok(())
    }

    /// Ends the thread, if there is one: its stack, or the last one if it has none.
    fn end_thread(&mut self) {
        let Part::Thread { is_same } = self.part else { return };
        if is_same || self.samples.open_frames() == 0 {
            self.samples.remove_open();
            self.samples.repeat_last();
        } else {
            self.samples.end_sample(&[1], LabelSetId::EMPTY);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::legacy::tests::{error, read};

    #[test]
    fn equal_threads_are_counted() {
        let text = "--- threadz 1 ---\n\n--- Thread 7eff (name: main/12) stack: ---\n  PC: 0x12 0x22\n\
                    \x20     creator: 0x33\n--- Thread 7f (name: a (b)/c/13) stack: ---\n\
                    \x20 --- same as previous thread ---\n\
                    --- Thread 80 (name: x/14) stack: ---\n 0x12 0x12 0x22\n\
                    ---- no stack trace for 3 threads\n--- Memory map: ---\n 10-20: /bin/a\n";
        let profile = read(&Threads, text);
        assert_eq!(profile.values, [2, 1]);
        let addresses: Vec<_> = profile.locations.iter().map(|l| l.address).collect();
        assert_eq!(addresses, [0x12, 0x21, 0x32]);
        assert_eq!(profile.mappings.len(), 2);
    }

    #[test]
    fn other_lines_are_refused() {
        let text = "--- Thread 7f (name: main/12) stack: ---\n 0x12\n--- Thread 7f ---\n";
        assert_eq!(
            error(&Threads, text),
            "not valid profile of threads as text: line 3: it is not a thread: \
             --- Thread ID (name: NAME/ID) stack: ---"
        );
        for line in ["--- Thread 7f (name: main) stack: ---", "--- threadz ---", "--- Thread"] {
            assert!(!Threads.detect(line.as_bytes()), "{line}");
        }
    }
}
