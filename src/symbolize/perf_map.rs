//! Perf maps: what a JIT compiler says about its code, one `START SIZE NAME` a line, in
//! `/tmp/perf-PID.map`.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;

use crate::profile::{StrId, StringTable};

use super::Why;
use super::answers::Answers;

/// Largest perf map that is read; Node and Java write some megabytes.
const MAX_BYTES: u64 = 1 << 30;

/// Longest line that is looked at; the rest of a longer one is skipped.
const MAX_LINE: u64 = 16 << 10;

#[derive(Clone, Copy, Debug)]
struct Entry {
    start: u64,
    end: u64,
    name: StrId,
}

/// The functions of a perf map.
#[derive(Default)]
pub struct PerfMap {
    strings: StringTable,
    /// Disjoint, by address.
    entries: Vec<Entry>,
    /// Lines that could not be understood.
    pub bad_lines: usize,
}

impl PerfMap {
    /// Reads the perf map at `path`.
    ///
    /// # Errors
    ///
    /// It is missing, unreadable, no regular file, or larger than 1 GiB.
    pub fn open(path: &Path) -> Result<PerfMap, Why> {
        let unreadable = |e: io::Error| match e.kind() {
            io::ErrorKind::NotFound => Why::PerfMapMissing,
            _ => Why::Unreadable(e.to_string()),
        };
        let metadata = fs::metadata(path).map_err(unreadable)?;
        if !metadata.is_file() {
            return Err(Why::Unreadable("it is no regular file".into()));
        }
        if metadata.len() > MAX_BYTES {
            return Err(Why::Unreadable("the perf map is larger than 1 GiB".into()));
        }
        let file = File::open(path).map_err(unreadable)?;
        PerfMap::read(file.take(MAX_BYTES)).map_err(unreadable)
    }

    /// Reads a perf map. Where entries overlap, the last one counts: JIT compilers use freed
    /// code memory again.
    ///
    /// # Errors
    ///
    /// Only those of `input`; lines that cannot be understood are counted.
    pub fn read(input: impl Read) -> io::Result<PerfMap> {
        let mut map = PerfMap::default();
        let mut input = BufReader::with_capacity(1 << 16, input);
        let mut entries = Vec::new();
        let mut line = Vec::new();
        loop {
            line.clear();
            if (&mut input).take(MAX_LINE).read_until(b'\n', &mut line)? == 0 {
                break;
            }
            if line.len() as u64 == MAX_LINE && line.last() != Some(&b'\n') {
                input.skip_until(b'\n')?;
            }
            let text = String::from_utf8_lossy(&line);
            match parse_line(text.trim_ascii()) {
                Some((start, end, name)) => {
                    let name = map.strings.intern(name);
                    entries.push(Entry { start, end, name });
                }
                None if text.trim_ascii().is_empty() => {}
                None => map.bad_lines += 1,
            }
        }
        map.entries = flatten(&entries);
        Ok(map)
    }

    /// Name of the function at `address`.
    pub fn name(&self, address: u64) -> Option<&str> {
        let i = self.entries.partition_point(|e| e.start <= address).checked_sub(1)?;
        let entry = self.entries[i];
        (address < entry.end).then(|| self.strings.get(entry.name))
    }

    /// Names of `addresses`.
    pub fn resolve(&self, addresses: &[u64]) -> Answers {
        let mut answers = Answers::default();
        for &address in addresses {
            answers.push_name(self.name(address));
        }
        answers
    }
}

fn parse_line(line: &str) -> Option<(u64, u64, &str)> {
    let (start, rest) = line.split_once(|c: char| c.is_ascii_whitespace())?;
    let (size, name) = rest.trim_ascii_start().split_once(|c: char| c.is_ascii_whitespace())?;
    let (start, size) = (number(start)?, number(size)?);
    let name = name.trim_ascii();
    // Some compilers write size 0 for stubs: their first byte at least is theirs.
    (!name.is_empty()).then(|| (start, start.saturating_add(size.max(1)), name))
}

fn number(digits: &str) -> Option<u64> {
    let digits = digits.strip_prefix("0x").or(digits.strip_prefix("0X")).unwrap_or(digits);
    // from_str_radix would take a sign.
    digits.starts_with(|c: char| c.is_ascii_hexdigit()).then_some(())?;
    u64::from_str_radix(digits, 16).ok()
}

/// Makes overlapping entries disjoint: of those that cover an address the last one stays.
fn flatten(entries: &[Entry]) -> Vec<Entry> {
    // Sweep over the addresses where an entry begins or ends; the heap's top is the last
    // written entry that is still open there.
    let mut order: Vec<u32> = (0..entries.len() as u32).collect();
    order.sort_by_key(|&i| entries[i as usize].start);
    let mut out: Vec<Entry> = Vec::with_capacity(entries.len());
    let mut open = std::collections::BinaryHeap::new();
    let mut next = order.iter().copied().peekable();
    let mut at = 0;
    loop {
        while open.peek().is_some_and(|&i: &u32| entries[i as usize].end <= at) {
            open.pop();
        }
        if open.is_empty() {
            let Some(&i) = next.peek() else { return out };
            at = entries[i as usize].start;
        }
        while let Some(i) = next.next_if(|&i| entries[i as usize].start <= at) {
            open.push(i);
        }
        let Some(&top) = open.peek() else { continue };
        let top = entries[top as usize];
        let boundary = next.peek().map_or(u64::MAX, |&i| entries[i as usize].start);
        let end = top.end.min(boundary);
        match out.last_mut() {
            Some(last) if last.end == at && last.name == top.name => last.end = end,
            _ => out.push(Entry { start: at, end, name: top.name }),
        }
        at = end;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(text: &str) -> PerfMap {
        PerfMap::read(text.as_bytes()).unwrap()
    }

    #[test]
    fn lines_of_all_compilers_are_understood() {
        let m = map("1000 10 LazyCompile:~foo /a b.js:1:2\n\
             0x2000 0x20 java.lang.String::hashCode\n\
             \n3000  8\tpy::f:/x.py\r\n\
             not a line\nzzzz 10 x\n4000 10\n+5000 10 sign\n6000 0 stub\n");
        assert_eq!(m.name(0x1000), Some("LazyCompile:~foo /a b.js:1:2"));
        assert_eq!(m.name(0x100f), Some("LazyCompile:~foo /a b.js:1:2"));
        assert_eq!(m.name(0x1010), None);
        assert_eq!(m.name(0x0fff), None);
        assert_eq!(m.name(0x201f), Some("java.lang.String::hashCode"));
        assert_eq!(m.name(0x3007), Some("py::f:/x.py"));
        assert_eq!((m.name(0x6000), m.name(0x6001)), (Some("stub"), None));
        assert_eq!(m.bad_lines, 4);
    }

    #[test]
    fn the_last_of_overlapping_entries_counts() {
        let m = map("1000 100 old\n1040 20 new\n0f80 90 before\n5000 10 a\n5000 10 b\n");
        let at = |a| m.name(a);
        assert_eq!(at(0xf80), Some("before"));
        assert_eq!(at(0x100f), Some("before"));
        assert_eq!(at(0x1010), Some("old"));
        assert_eq!(at(0x1040), Some("new"));
        assert_eq!(at(0x105f), Some("new"));
        assert_eq!(at(0x1060), Some("old"));
        assert_eq!(at(0x1100), None);
        assert_eq!(at(0x5000), Some("b"));
    }

    #[test]
    fn it_agrees_with_a_search_from_the_end() {
        let mut seed = 7u64;
        let mut random = move |n: u64| {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (seed >> 33) % n
        };
        let entries: Vec<(u64, u64)> = (0..200).map(|_| (random(500), 1 + random(60))).collect();
        let text: String =
            entries.iter().enumerate().map(|(i, (s, n))| format!("{s:x} {n:x} f{i}\n")).collect();
        let m = map(&text);
        for address in 0..600 {
            let expected = entries.iter().rposition(|&(s, n)| address >= s && address < s + n);
            let expected = expected.map(|i| format!("f{i}"));
            assert_eq!(m.name(address), expected.as_deref(), "{address:#x}");
        }
    }

    #[test]
    fn extreme_numbers_and_lines_do_no_harm() {
        let long = "x".repeat(100_000);
        let m = map(&format!(
            "ffffffffffffffff ffffffffffffffff top\n10 10 {long}\n99999999999999999 1 big\n20 10 next\n"
        ));
        assert_eq!(m.name(u64::MAX - 1), None);
        assert!(m.name(0x10).unwrap().len() < 20_000);
        assert_eq!(m.name(0x20), Some("next"));
        assert_eq!(m.bad_lines, 1);
        let bytes: &[u8] = b"1000 10 \xff\xfe\n";
        assert!(PerfMap::read(bytes).unwrap().name(0x1000).is_some());
    }
}
