//! The files in which JIT compilers say what their code is, while they grow.

use std::fs::{File, Metadata};
use std::io::{self, BufReader, Read};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use super::file_names::{number_of_dump, number_of_map};
use super::{Made, jitdump, perf_map};
use crate::foreign::{self, Links, Root};
use crate::os;
use crate::{binaries, procfs};

/// Most that is read of a file in one look: what is more counts as unknown.
const MAX_LOOK: u64 = 1 << 20;

/// Most that is read of all files in one look.
pub(super) const MAX_OF_ALL: u64 = 32 << 20;

/// A record of a jitdump takes as long as two to the power of so many bytes of a perf map.
const RECORD: u32 = 7;

/// Most marks of a perf map; when there are more, every other is dropped.
const MAX_MARKS: usize = 1024;

/// A file's time of change lags so many nanoseconds behind at most (a tick of the kernel's clock,
/// ten milliseconds at `CONFIG_HZ=100`).
const TICK: u64 = 10_000_000;

/// When the recording began, in both clocks.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    began: SystemTime,
    /// Nanoseconds of `CLOCK_REALTIME` minus `CLOCK_MONOTONIC`.
    offset: i128,
}

impl Default for Clock {
    fn default() -> Clock {
        let began = SystemTime::now();
        let offset = nanos(began) - i128::from(os::monotonic_nanos());
        Clock { began, offset }
    }
}

impl Clock {
    /// A time of the wall's clock in nanoseconds of `CLOCK_MONOTONIC`.
    fn monotonic(self, time: SystemTime) -> u64 {
        u64::try_from((nanos(time) - self.offset).max(0)).unwrap_or(u64::MAX)
    }
}

fn nanos(time: SystemTime) -> i128 {
    time.duration_since(UNIX_EPOCH).map_or(0, |d| d.as_nanos() as i128)
}

/// What was seen of a perf map that grows: of its first `size` bytes all were there `by` then,
/// and the others were not there yet when it was `seen`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    /// Bytes.
    pub size: u64,
    /// `CLOCK_MONOTONIC`, nanoseconds.
    pub by: u64,
    /// `CLOCK_MONOTONIC`, nanoseconds.
    pub seen: u64,
}

/// The files of one program.
#[derive(Debug, Default)]
pub struct Sources {
    /// Its perf map.
    pub map: Option<File>,
    /// What was seen of that, in the order of time.
    pub marks: Vec<Mark>,
    /// In the place of the perf map stands something that is no regular file, and is not opened.
    pub refused: bool,
    /// Its jitdump.
    pub dump: Option<File>,
    /// Path of that as the program sees it.
    pub dump_path: String,
    /// Where the next record of it begins; 0: behind the header.
    pub dump_offset: u64,
}

/// What a look at the files has found.
pub(super) enum Look {
    /// Nothing new.
    Nothing,
    /// So much that it was not read; it came between these times.
    Unread {
        /// After this.
        after: u64,
        /// By this.
        by: u64,
    },
    /// Code at these addresses.
    New(Vec<Made>),
}

impl Sources {
    /// There are none.
    pub fn is_empty(&self) -> bool {
        self.map.is_none() && self.dump.is_none()
    }

    /// Takes a perf map, all of which is new.
    pub fn set_map(&mut self, map: File) {
        self.map = Some(map);
        self.marks = vec![Mark { size: 0, by: 0, seen: 0 }];
    }

    /// Takes a jitdump file.
    pub fn set_dump(&mut self, dump: File, path: &str) {
        // Its header may be written later.
        self.dump_offset = 0;
        self.dump = Some(dump);
        path.clone_into(&mut self.dump_path);
    }

    /// Looks at the size of the perf map; returns that of the time before, if it has changed.
    fn mark(&mut self, clock: Clock) -> Option<Mark> {
        let metadata = self.map.as_ref()?.metadata().ok()?;
        let (size, now) = (metadata.len(), os::monotonic_nanos());
        let by = metadata.modified().map_or(now, |m| clock.monotonic(m).saturating_add(TICK));
        let by = by.min(now);
        let last = self.marks.last().copied();
        match self.marks.last_mut() {
            Some(last) if last.size == size => last.seen = now,
            Some(last) if last.size > size => {
                // It is written anew: of what it says now nobody knows since when.
                self.marks.clear();
                self.marks.push(Mark { size, by, seen: now });
            }
            _ => {
                if self.marks.len() >= MAX_MARKS {
                    let mut n = 0;
                    self.marks.retain(|_| (n += 1, n % 2 == 0).1);
                }
                self.marks.push(Mark { size, by, seen: now });
            }
        }
        last.filter(|last| last.size != size)
    }

    /// Looks at what is new in the files; `left` are the bytes that may still be read.
    pub(super) fn look(&mut self, clock: Clock, left: &mut u64) -> Look {
        let mut made = Vec::new();
        if let Some(before) = self.mark(clock) {
            let by = self.marks.last().map_or(before.seen, |mark| mark.by);
            if !self.new_in_map(before, &mut made, left) {
                return Look::Unread { after: before.seen, by };
            }
        }
        if *left > 0 {
            self.new_in_dump(&mut made, left);
        }
        if made.is_empty() { Look::Nothing } else { Look::New(made) }
    }

    /// Adds what came after `before`; returns false when that is not known.
    fn new_in_map(&self, before: Mark, made: &mut Vec<Made>, left: &mut u64) -> bool {
        let (Some(map), Some(now)) = (&self.map, self.marks.last()) else { return true };
        if now.size < before.size || now.size - before.size > MAX_LOOK {
            return false;
        }
        let Some(after_this) = left.checked_sub(now.size - before.size) else { return false };
        *left = after_this;
        // From where the line begins that may have been written in two parts.
        let Some(start) = line_start(map, before.size) else { return false };
        let (after, by) = (before.seen, now.by);
        let input = At { file: map, offset: start }.take(now.size - start);
        let read = perf_map::read(&mut BufReader::new(input), start, &mut |entry| {
            made.push(Made { start: entry.start, end: entry.end, after, by });
            true
        });
        read.is_ok()
    }

    /// The same for the jitdump, which tells times exactly.
    fn new_in_dump(&mut self, made: &mut Vec<Made>, budget: &mut u64) {
        let Some(dump) = &self.dump else { return };
        if self.dump_offset == 0 {
            let Ok(header) = jitdump::header(dump) else { return };
            self.dump_offset = header.size;
        }
        let size = dump.metadata().map_or(0, |m| m.len());
        if size <= self.dump_offset {
            return;
        }
        let mut left = MAX_RECORDS;
        let read = jitdump::read(dump, self.dump_offset..size, &mut |time, record| {
            match record {
                jitdump::Record::Load { address: start, size, .. }
                | jitdump::Record::Move { to: start, size, .. } => {
                    let end = start.saturating_add(size);
                    made.push(Made { start, end, after: time, by: time });
                }
                _ => {}
            }
            left -= 1;
            left > 0
        });
        *budget = budget.saturating_sub(((MAX_RECORDS - left) as u64) << RECORD);
        if let Ok(progress) = read {
            self.dump_offset = progress.offset;
        }
    }
}

/// Records of a jitdump that are read in one look; those beyond wait for the next.
const MAX_RECORDS: usize = 4096;

/// Where the line begins that holds the byte before `offset`, or `offset` when that ends a line.
fn line_start(file: &File, offset: u64) -> Option<u64> {
    let mut bytes = [0; 4096];
    let from = offset.saturating_sub(bytes.len() as u64);
    let part = &mut bytes[..(offset - from) as usize];
    file.read_exact_at(part, from).ok()?;
    match part.iter().rposition(|&b| b == b'\n') {
        Some(end) => Some(from + end as u64 + 1),
        None => (from == 0).then_some(0),
    }
}

/// Reads a file from an offset on, whatever others do with the descriptor.
pub struct At<'a> {
    /// The file.
    pub file: &'a File,
    /// Where the next byte is read.
    pub offset: u64,
}

impl Read for At<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let n = self.file.read_at(buffer, self.offset)?;
        self.offset += n as u64;
        Ok(n)
    }
}

/// What stands in the place of a perf map.
pub(super) enum Found {
    /// A map of the process's.
    Map(File),
    /// Something that is no regular file.
    Refused,
    /// Nothing, or what does not belong to the process.
    Nothing,
}

/// The jitdump file that a process has mapped.
pub(super) fn open_dump(pid: i32, start: u64, end: u64, path: &str) -> Option<File> {
    // This leads to the very file that is mapped; it is no place where links are planted.
    let exact = Path::new("/proc").join(format!("{pid}/map_files/{start:x}-{end:x}"));
    let exact = foreign::look_through(&exact).and_then(|found| found.open());
    let path = Path::new(path.strip_suffix(" (deleted)").unwrap_or(path));
    let named = |root: io::Result<Root>| root?.open(path, Links::Refuse);
    exact.or_else(|_| named(Root::of(pid))).or_else(|_| named(Root::at(Path::new("/")))).ok()
}

/// `/tmp/perf-PID.map` of a process, as the process itself sees `/tmp` and its PID; else the
/// one that tools leave for it outside of its container.
pub(super) fn open_perf_map(pid: i32, clock: Clock) -> Found {
    let inner = procfs::inner_pid(pid).unwrap_or(pid);
    let same_files = binaries::same_root(pid);
    let ours = std::process::id() as i32;
    let places = [(pid, inner, same_files), (ours, pid, true)];
    let mut refused = false;
    for (of, number, same_files) in places {
        let path = format!("/tmp/perf-{number}.map");
        let found = Root::of(of).and_then(|root| root.look(Path::new(&path), Links::Refuse));
        let Ok(found) = found else { continue };
        if is_of(&found.metadata, pid, same_files, clock)
            && let Ok(map) = found.open()
        {
            return Found::Map(map);
        }
        refused |= !found.metadata.is_file();
    }
    if refused { Found::Refused } else { Found::Nothing }
}

/// The perf map is the process's: not left by one that had its number before, nor planted by
/// another user.
///
/// A process may show any file as its map that lies in its own mount namespace, by mounting that
/// file there, which takes no right to read it. So there a map must belong to the user of the
/// process. Where `same_files` says that it sees prof's files, nobody can put a file of root's
/// into `/tmp`, except by a second name, and what root's tools write there is taken as well.
fn is_of(metadata: &Metadata, pid: i32, same_files: bool, clock: Clock) -> bool {
    let user = |pid: i32| procfs::owner(pid).map(|(_, uid)| uid);
    let own = user(std::process::id() as i32).unwrap_or(0);
    let planted = !same_files || metadata.nlink() != 1;
    let of_tools = [0, own].contains(&metadata.uid()) && !planted;
    let Ok(changed) = metadata.modified() else { return false };
    // Of a process that has ended only what was written since the recording began.
    let began = procfs::start_time(pid).unwrap_or(clock.began);
    (of_tools || user(pid) == Some(metadata.uid()))
        && nanos(changed) + 1_000_000_000 >= nanos(began)
}

/// The file is that of a recording that ended at this time (nanoseconds since the Unix epoch): it
/// has not changed since, or the process that it is of still runs and was there before. A later
/// process with the same number writes the file anew, and leaves it as old as it was.
pub fn is_as_recorded(path: &Path, metadata: &Metadata, end: i64) -> bool {
    let after = |time: SystemTime| nanos(time) > i128::from(end);
    let changed = metadata.modified().map_or(true, after);
    let made = metadata.created().is_ok_and(after);
    !made && (!changed || writer(path, metadata).is_some_and(|began| !after(began)))
}

/// When the process began that a file is named after, if it sees that very file under this path.
fn writer(path: &Path, metadata: &Metadata) -> Option<SystemTime> {
    let path = path.to_str()?;
    let pid = number_of_map(path).or_else(|| number_of_dump(path.as_bytes()))?;
    let pid = i32::try_from(pid).ok()?;
    let seen = Root::of(pid).and_then(|root| root.look(Path::new(path), Links::Refuse));
    let seen = seen.ok()?.metadata;
    let same = (seen.dev(), seen.ino()) == (metadata.dev(), metadata.ino());
    procfs::start_time(pid).filter(|_| same)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn starts(look: Look) -> Option<Vec<u64>> {
        match look {
            Look::Nothing => Some(Vec::new()),
            Look::New(made) => Some(made.iter().map(|m| m.start).collect()),
            Look::Unread { .. } => None,
        }
    }

    #[test]
    fn what_a_map_grows_by_is_found_once() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(b"1000 10 a\n2000 10 b").unwrap();
        let clock = Clock::default();
        let mut sources = Sources::default();
        sources.set_map(file.reopen().unwrap());
        // What is there is new at the first look.
        assert_eq!(starts(sources.look(clock, &mut MAX_OF_ALL.clone())).unwrap(), [0x1000]);
        assert!(starts(sources.look(clock, &mut MAX_OF_ALL.clone())).unwrap().is_empty());
        // The line that was not whole is read from its beginning.
        file.write_all(b"bb\n3000 10 c\n4000").unwrap();
        assert_eq!(starts(sources.look(clock, &mut MAX_OF_ALL.clone())).unwrap(), [0x2000, 0x3000]);
        assert!(starts(sources.look(clock, &mut MAX_OF_ALL.clone())).unwrap().is_empty());
        assert_eq!(sources.marks.len(), 3);
        assert!(sources.marks.iter().all(|m| m.by <= m.seen));
        // Too much, or written anew: what it says now nobody knows since when.
        file.as_file().set_len(5 << 20).unwrap();
        assert_eq!(starts(sources.look(clock, &mut MAX_OF_ALL.clone())), None);
        file.as_file().set_len(3).unwrap();
        assert_eq!(starts(sources.look(clock, &mut MAX_OF_ALL.clone())), None);
        assert_eq!(sources.marks.len(), 1);
    }

    #[test]
    fn what_a_jitdump_grows_by_is_found_with_its_time() {
        use super::jitdump::writer;
        let mut file = tempfile::NamedTempFile::new().unwrap();
        let mut sources = Sources::default();
        sources.set_dump(file.reopen().unwrap(), "jit-77.dump");
        let clock = Clock::default();
        assert!(starts(sources.look(clock, &mut MAX_OF_ALL.clone())).unwrap().is_empty());
        // The header comes late, and a record in two parts.
        file.write_all(&writer::header(0)).unwrap();
        let load = writer::load(5, 0x1000, 0x20, "f");
        file.write_all(&load[..50]).unwrap();
        assert!(starts(sources.look(clock, &mut MAX_OF_ALL.clone())).unwrap().is_empty());
        file.write_all(&load[50..]).unwrap();
        file.write_all(&writer::moved(6, 0x1000, 0x2000, 0x20)).unwrap();
        assert_eq!(starts(sources.look(clock, &mut MAX_OF_ALL.clone())).unwrap(), [0x1000, 0x2000]);
        assert!(starts(sources.look(clock, &mut MAX_OF_ALL.clone())).unwrap().is_empty());
    }
}
