//! Stacks that bpftrace and dtrace print: a map of stacks to counts, each stack with a line for each
//! frame, the leaf first. They are read only.
//!
//! ```text
//! @[                                      libc.so.1`write+0xa
//!     vfs_read+12                         prog`main+0x10
//!     ksys_read+95                        3
//! , cat]: 7
//! ```

use std::io::Read;

use profile::{LabelSetId, Line, LocationId, Profile};

use crate::Format;
use crate::assembly::{AddedSample, Assembly, ColumnValue};
use crate::error::ReadError;
use crate::lines::Lines;
use crate::unpacked::{text, whole_lines};

/// The output of bpftrace.
#[derive(Debug)]
pub struct Bpftrace;

/// The output of dtrace.
#[derive(Debug)]
pub struct Dtrace;

/// Title of [`Bpftrace`].
const BPFTRACE: &str = "stacks of bpftrace";

/// Title of [`Dtrace`].
const DTRACE: &str = "stacks of dtrace";

/// What a line of bpftrace's does to the current stack.
#[derive(Clone, Copy, Debug, PartialEq)]
enum MapLine<'a> {
    /// Begins a stack, with these keys before it.
    Begin(&'a str),
    Frame(&'a str),
    /// Keys between or after stacks.
    Keys(&'a str),
    /// Ends it, with these keys after it.
    End(&'a str, i64),
    /// The whole entry, without a stack.
    Entry(&'a str, i64),
    Other,
}

impl MapLine<'_> {
    fn parse(line: &str, is_open: bool) -> MapLine<'_> {
        let line = line.trim_end();
        let end = || {
            let (keys, count) = line.rsplit_once("]: ")?;
            Some((keys, count.parse().ok()?))
        };
        if is_open {
            return match end() {
                Some((keys, count)) => MapLine::End(keys, count),
                // A histogram.
                None if line.ends_with("]:") => MapLine::Other,
                None if line.starts_with([' ', '\t']) => MapLine::Frame(line.trim()),
                None => MapLine::Keys(line),
            };
        }
        let name = line.strip_prefix('@').and_then(|rest| rest.split_once('['));
        let is_name = |name: &str| name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
        let Some((_, keys)) = name.filter(|(name, _)| is_name(name)) else {
            return MapLine::Other;
        };
        match end() {
            Some((_, count)) => {
                MapLine::Entry(keys.rsplit_once("]: ").map_or("", |(keys, _)| keys), count)
            }
            None if line.ends_with("]:") => MapLine::Other,
            None => MapLine::Begin(keys),
        }
    }
}

impl Format for Bpftrace {
    fn name(&self) -> &'static str {
        "bpftrace"
    }

    fn title(&self) -> &'static str {
        BPFTRACE
    }

    fn extensions(&self) -> &'static [&'static str] {
        &["bpftrace"]
    }

    fn detect(&self, head: &[u8]) -> bool {
        let Some(text) = text(head) else { return false };
        let begins = |line: &str| matches!(MapLine::parse(line, false), MapLine::Begin(_));
        let mut lines = whole_lines(text).skip_while(|line| !begins(line)).skip(1);
        lines.next().is_some_and(|line| line.starts_with([' ', '\t']))
    }

    fn read(&self, input: &mut dyn Read) -> Result<Profile, ReadError> {
        let mut lines = Lines::new(BPFTRACE, input)?;
        let mut reader = Reader::new();
        let mut is_open = false;
        while let Some(line) = lines.next()? {
            let parsed = MapLine::parse(line, is_open);
            is_open = match parsed {
                MapLine::Begin(keys) => {
                    reader.keys(keys);
                    true
                }
                MapLine::Frame(frame) => {
                    reader.frame(frame);
                    true
                }
                MapLine::Keys(keys) => {
                    reader.keys(keys);
                    true
                }
                MapLine::End(keys, count) | MapLine::Entry(keys, count) => {
                    reader.keys(keys);
                    reader.end(count);
                    false
                }
                MapLine::Other => {
                    reader.clear();
                    false
                }
            };
            reader.check(&lines)?;
        }
        if is_open {
            return Err(lines.error("the last stack has no count: ]: 123"));
        }
        Ok(reader.all.finish())
    }
}

impl Format for Dtrace {
    fn name(&self) -> &'static str {
        "dtrace"
    }

    fn title(&self) -> &'static str {
        DTRACE
    }

    fn extensions(&self) -> &'static [&'static str] {
        &["dtrace"]
    }

    /// True if most lines are frames of the form MODULE`FUNCTION, and one is a count.
    fn detect(&self, head: &[u8]) -> bool {
        let Some(text) = text(head) else { return false };
        let lines = whole_lines(text).filter(|line| line.starts_with([' ', '\t']));
        let frames = lines.clone().filter(|line| line.contains('`')).count();
        let counts = lines.filter(|line| line.trim().parse::<i64>().is_ok()).count();
        counts > 0 && 2 * (frames + counts) > whole_lines(text).count() && frames > 0
    }

    fn read(&self, input: &mut dyn Read) -> Result<Profile, ReadError> {
        let mut lines = Lines::new(DTRACE, input)?;
        let mut reader = Reader::new();
        while let Some(line) = lines.next()? {
            match line.trim().parse() {
                Ok(count) => reader.end(count),
                // Other lines are of dtrace itself: CPU ID FUNCTION:NAME.
                Err(_) if !line.starts_with([' ', '\t']) => reader.clear(),
                Err(_) if line.trim().is_empty() => {}
                Err(_) => reader.frame(line.trim()),
            }
            reader.check(&lines)?;
        }
        if !reader.stack.is_empty() {
            return Err(lines.error("the last stack has no count"));
        }
        Ok(reader.all.finish())
    }
}

struct Reader {
    all: Assembly,
    /// Leaf first.
    stack: Vec<LocationId>,
    /// Values of other keys, as the outermost frames.
    keys: Vec<LocationId>,
}

impl Reader {
    fn new() -> Reader {
        let all = Assembly::new(&[("samples", "count")]);
        Reader { all, stack: Vec::new(), keys: Vec::new() }
    }

    fn keys(&mut self, text: &str) {
        for key in text.split(',').map(str::trim).filter(|key| !key.is_empty()) {
            let key = self.location(key, None);
            self.keys.push(key);
        }
    }

    fn frame(&mut self, text: &str) {
        let (binary, name) = match text.split_once('`') {
            Some((binary, name)) if !binary.is_empty() => (Some(binary), name),
            _ => (None, text),
        };
        let offset = name.rsplit_once('+').filter(|(name, offset)| {
            let digits = offset.strip_prefix("0x").unwrap_or(offset);
            !name.is_empty() && u64::from_str_radix(digits, 16).is_ok()
        });
        let location = self.location(offset.map_or(name, |(name, _)| name), binary);
        self.stack.push(location);
    }

    fn location(&mut self, name: &str, binary: Option<&str>) -> LocationId {
        let mapping = binary.map(|binary| self.all.mapping(binary));
        let digits = name.strip_prefix("0x");
        if let Some(address) = digits.and_then(|digits| u64::from_str_radix(digits, 16).ok()) {
            return self.all.location(mapping, address, &[]);
        }
        let function = self.all.function(name, "", 0);
        self.all.location(mapping, 0, &[Line { function, line: 0, column: 0 }])
    }

    /// Ends the stack, if it has a frame.
    fn end(&mut self, value: i64) {
        self.stack.extend(self.keys.iter().rev());
        if !self.stack.is_empty() {
            let values = &[ColumnValue { column: 0, value }];
            let labels = LabelSetId::EMPTY;
            self.all.add(AddedSample { stack: &self.stack, labels, values, time: None });
        }
        self.clear();
    }

    fn clear(&mut self) {
        self.stack.clear();
        self.keys.clear();
    }

    fn check(&self, lines: &Lines<'_>) -> Result<(), ReadError> {
        let excess = || self.all.excess(lines.memory_allowed());
        match lines.is_check_due().then(excess).flatten() {
            Some(excess) => Err(lines.error(excess)),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{WriteOptions, collapsed::Collapsed};

    fn collapsed(format: &dyn Format, text: &str) -> String {
        assert!(format.detect(text.as_bytes()), "{text}");
        let profile = format.read(&mut text.as_bytes()).unwrap();
        let mut out = Vec::new();
        let write = Collapsed.writer().unwrap();
        write(&profile, &WriteOptions { type_index: 0 }, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn maps_of_bpftrace_are_read() {
        let text = "Attaching 1 probe...\n\n@[\n    vfs_read+12\n    ksys_read+95\n]: 7\n@[cat, \n    \
                    vfs_read+1\n]: 2\n@a[\n    kernel+1\n, \n    main+0x10\n    0x7f12\n, b c]: 3\n\
                    @b[bash]: 4\n@sum: 12\n@h[\n    x+1\n]:\n[1] 3 |@@@|\n@[\n]: 9\n";
        assert_eq!(
            collapsed(&Bpftrace, text),
            "b c;0x7f12;main;kernel 3\nbash 4\ncat;vfs_read 2\nksys_read;vfs_read 7\n"
        );
        let error = Bpftrace.read(&mut &b"@[\n    a+1\n"[..]).unwrap_err().to_string();
        assert_eq!(
            error,
            "not valid stacks of bpftrace: line 2: the last stack has no count: ]: 123"
        );
    }

    #[test]
    fn stacks_of_dtrace_are_read() {
        let text = "CPU     ID                    FUNCTION:NAME\n  0  64091  :tick-60s\n\n\n\
                    \x20             libc.so.1`__write+0xa\n              prog`main+0x10\n              3\n\n\
                    \x20             unix`mwait+0xd\n              0xabc\n               12\n";
        let text = text.split_once("\n\n\n").unwrap().1;
        assert_eq!(collapsed(&Dtrace, text), "0xabc;mwait 12\nmain;__write 3\n");
        assert!(Dtrace.read(&mut &b" a`b+0x1\n"[..]).is_err());
    }

    #[test]
    fn other_texts_are_not_taken() {
        for text in ["", "hello\n", "@[x]: 1\n", "  a`b\n", "main;a 1\n", "@ home\n  x\n"] {
            let head = text.as_bytes();
            assert!(!Bpftrace.detect(head) && !Dtrace.detect(head), "{text}");
        }
    }
}
