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

/// The label with the name of an entry's map.
const MAP: &str = "map";

/// Title of [`Dtrace`].
const DTRACE: &str = "stacks of dtrace";

/// What a line of bpftrace's does to the current stack.
#[derive(Clone, Copy, Debug, PartialEq)]
enum MapLine<'a> {
    /// Begins an entry of a map, with these keys before its stack.
    Begin {
        map: &'a str,
        keys: &'a str,
    },
    Frame(&'a str),
    /// Keys between or after stacks.
    Keys(&'a str),
    /// Ends it, with these keys after it.
    End {
        keys: &'a str,
        count: i64,
    },
    /// The whole entry, without a stack.
    Entry {
        map: &'a str,
        keys: &'a str,
        count: i64,
    },
    /// Nothing that is read, such as an entry whose value is no count.
    Other,
}

impl MapLine<'_> {
    fn parse(line: &str, is_open: bool) -> MapLine<'_> {
        let line = line.trim_end();
        let end = line.rsplit_once("]: ").and_then(|(keys, value)| Some((keys, count(value)?)));
        let has_end = line.ends_with("]:") || line.contains("]: ");
        if is_open && !line.starts_with('@') {
            let is_frame = line.starts_with([' ', '\t']);
            return match end {
                Some((keys, count)) => MapLine::End { keys, count },
                None if is_frame => MapLine::Frame(line.trim()),
                // A histogram, or another value.
                None if has_end => MapLine::Other,
                None => MapLine::Keys(line),
            };
        }
        let name = line.strip_prefix('@').and_then(|rest| rest.split_once('['));
        let is_name = |name: &str| name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
        let Some((map, keys)) = name.filter(|(name, _)| is_name(name)) else {
            return MapLine::Other;
        };
        match end {
            Some((_, count)) => {
                let keys = keys.rsplit_once("]: ").map_or("", |(keys, _)| keys);
                MapLine::Entry { map, keys, count }
            }
            None if has_end => MapLine::Other,
            None => MapLine::Begin { map, keys },
        }
    }
}

/// The count of an entry: a number, or that of `count 3, average 5, total 15`.
fn count(value: &str) -> Option<i64> {
    let number = match value.strip_prefix("count ") {
        Some(stats) => stats.split(',').next()?,
        None => value,
    };
    number.parse().ok()
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
        let begins = |line: &str| matches!(MapLine::parse(line, false), MapLine::Begin { .. });
        let mut pairs = whole_lines(text).zip(whole_lines(text).skip(1));
        pairs.any(|(line, next)| begins(line) && next.starts_with([' ', '\t']))
    }

    fn read(&self, input: &mut dyn Read) -> Result<Profile, ReadError> {
        let mut lines = Lines::new(BPFTRACE, input)?;
        let mut reader = Reader::new();
        let mut is_open = false;
        while let Some(line) = lines.next()? {
            let parsed = MapLine::parse(line, is_open);
            if let MapLine::Begin { map, .. } | MapLine::Entry { map, .. } = parsed {
                reader.begin(map);
            }
            is_open = match parsed {
                MapLine::Begin { keys, .. } | MapLine::Keys(keys) => {
                    reader.keys(keys.split(','));
                    true
                }
                MapLine::Frame(frame) => {
                    reader.frame(frame);
                    true
                }
                MapLine::End { keys, count } | MapLine::Entry { keys, count, .. } => {
                    reader.keys(keys.split(','));
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
        if is_open && !reader.has_samples() {
            return Err(lines.error("the last stack has no count: ]: 123"));
        }
        reader.set_end(&lines, is_open);
        Ok(reader.finish())
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
            let text = line.trim();
            let is_first = reader.stack.is_empty();
            match text.parse() {
                Ok(count) => reader.end(count),
                Err(_) if !line.starts_with([' ', '\t']) && !text.is_empty() => reader.clear(),
                Err(_) if is_probe(text) => reader.clear(),
                // Keys are in the line before the stack: those before were an entry without one.
                Err(_) if text.is_empty() && is_first => reader.clear(),
                Err(_) if text.is_empty() => {}
                Err(_) if is_first && !text.contains('`') && !text.starts_with("0x") => {
                    reader.keys(text.split("  "));
                }
                Err(_) => reader.frame(text),
            }
            reader.check(&lines)?;
        }
        let is_open = !reader.stack.is_empty();
        if is_open && !reader.has_samples() {
            return Err(lines.error("the last stack has no count"));
        }
        reader.set_end(&lines, is_open);
        Ok(reader.finish())
    }
}

/// Whether a line is about a probe, as dtrace prints them without `-q`: `CPU ID FUNCTION:NAME`.
fn is_probe(text: &str) -> bool {
    let mut words = text.split_whitespace();
    let mut is_number = || words.next().is_some_and(|word| word.parse::<u32>().is_ok());
    is_number() && is_number() && words.next().is_some_and(|word| word.contains(':'))
}

struct Reader {
    all: Assembly,
    /// Entries without a stack: the profile if there are no others.
    entries: Assembly,
    /// Leaf first.
    stack: Vec<LocationId>,
    /// Values of other keys, as the outermost frames.
    keys: Vec<String>,
    /// The name of the current map.
    map: String,
}

impl Reader {
    fn new() -> Reader {
        let [all, entries] = [(); 2].map(|()| Assembly::new(&[("samples", "count")]));
        Reader { all, entries, stack: Vec::new(), keys: Vec::new(), map: String::new() }
    }

    /// Begins an entry of a map.
    fn begin(&mut self, map: &str) {
        self.clear();
        map.clone_into(&mut self.map);
    }

    fn keys<'k>(&mut self, keys: impl Iterator<Item = &'k str>) {
        let keys = keys.map(str::trim).filter(|key| !key.is_empty());
        self.keys.extend(keys.map(str::to_owned));
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
        let name = offset.map_or(name, |(name, _)| name);
        self.stack.push(location(&mut self.all, name, binary));
    }

    /// Ends the entry.
    fn end(&mut self, value: i64) {
        let has_stack = !self.stack.is_empty();
        let has_others = !self.all.profile.samples.is_empty();
        if has_stack || !self.keys.is_empty() && !has_others {
            let all = if has_stack { &mut self.all } else { &mut self.entries };
            for key in self.keys.iter().rev() {
                self.stack.push(location(all, key, None));
            }
            let labels = match &*self.map {
                "" => LabelSetId::EMPTY,
                map => {
                    let label = all.text_label(MAP, map);
                    all.profile.labels.intern(&[label])
                }
            };
            let values = &[ColumnValue { column: 0, value }];
            all.add(AddedSample { stack: &self.stack, labels, values, time: None });
        }
        self.clear();
    }

    fn clear(&mut self) {
        self.stack.clear();
        self.keys.clear();
    }

    /// Notes that the file was cut off, if it was: in its last line, or in a stack.
    fn set_end(&mut self, lines: &Lines<'_>, is_in_stack: bool) {
        let in_stack = is_in_stack.then_some("its last stack has no count");
        if let Some(why) = lines.cut().or(in_stack) {
            self.all.set_incomplete(why);
            self.entries.set_incomplete(why);
        }
    }

    fn has_samples(&self) -> bool {
        [&self.all, &self.entries].iter().any(|all| !all.profile.samples.is_empty())
    }

    fn finish(self) -> Profile {
        let has_stacks = !self.all.profile.samples.is_empty();
        if has_stacks { self.all.finish() } else { self.entries.finish() }
    }

    fn check(&self, lines: &Lines<'_>) -> Result<(), ReadError> {
        let excess = || {
            let allowed = lines.memory_allowed();
            self.all.excess(allowed).or_else(|| self.entries.excess(allowed))
        };
        match lines.is_check_due().then(excess).flatten() {
            Some(excess) => Err(lines.error(excess)),
            None => Ok(()),
        }
    }
}

/// The location of a frame or key.
fn location(all: &mut Assembly, name: &str, binary: Option<&str>) -> LocationId {
    let mapping = binary.map(|binary| all.mapping(binary));
    let digits = name.strip_prefix("0x");
    if let Some(address) = digits.and_then(|digits| u64::from_str_radix(digits, 16).ok()) {
        return all.location(mapping, address, &[]);
    }
    let function = all.function(name, "", 0);
    all.location(mapping, 0, &[Line { function, line: 0, column: 0 }])
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
            "b c;0x7f12;main;kernel 3\ncat;vfs_read 2\nksys_read;vfs_read 7\n"
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
        assert_eq!(collapsed(&Dtrace, text), "0xabc;mwait 12\nmain;__write 3\n");
        assert!(Dtrace.read(&mut &b" a`b+0x1\n"[..]).is_err());
    }

    #[test]
    fn entries_without_a_stack_do_not_hide_those_with_one() {
        let text = "Attaching 1 probe...\n\n\n@[\n, kworker/0:1]: 1\n@[\n    main+10\n    \
                    __libc_start+5\n, sort]: 7\n@start[4711]: 123456789012345\n";
        assert_eq!(collapsed(&Bpftrace, text), "sort;__libc_start;main 7\n");
        let p = Bpftrace.read(&mut &b"@[bash]: 4\n@[sort]: 5\n"[..]).unwrap();
        assert_eq!(p.total(0), 9);
    }

    #[test]
    fn maps_are_told_apart() {
        let text = "@ns[\n    main+10\n]: count 3, average 5, total 15\n@ns[\n    other+10\n]: \
                    count 4, average 5, total 20\n@[\n    third+1\n]: 3\n@s[\n    main+1\n]: \
                    some text\n@n[\n    main+1\n]: 9\n@t[4711]: 123456789012345\n";
        assert_eq!(collapsed(&Bpftrace, text), "main 12\nother 4\nthird 3\n");
        let p = Bpftrace.read(&mut text.as_bytes()).unwrap();
        let map = p.strings.find(MAP).unwrap();
        let name = |row: usize| match p.labels.value(p.samples[row].labels, map) {
            Some(profile::LabelValue::Str(name)) => p.str(name).to_owned(),
            _ => String::new(),
        };
        let names: Vec<_> = (0..p.samples.len()).map(name).collect();
        assert_eq!(names, ["ns", "ns", "", "n"]);
    }

    #[test]
    fn keys_before_a_stack_of_dtrace_are_its_outermost_frames() {
        let text = "CPU     ID                    FUNCTION:NAME\n  0  64091                    \
                    :tick-60s \n\n\n  mysqld                                            \n\
                    \x20             libc.so.1`__write+0xa\n              mysqld`main+0x10\n\
                    \x20               3\n  4711  sort            \n\
                    \x20             libc.so.1`__read+0xa\n              sort`main+0x10\n\
                    \x20               5\n  cat      7\n\n\
                    \x20             unix`mwait+0xd\n                2\n";
        assert_eq!(
            collapsed(&Dtrace, text),
            "4711;sort;main;__read 5\nmwait 2\nmysqld;main;__write 3\n"
        );
    }

    #[test]
    fn other_texts_are_not_taken() {
        for text in ["", "hello\n", "@[x]: 1\n", "  a`b\n", "main;a 1\n", "@ home\n  x\n"] {
            let head = text.as_bytes();
            assert!(!Bpftrace.detect(head) && !Dtrace.detect(head), "{text}");
        }
    }
}
