//! Files in which JIT compilers describe their code, read while they grow.

use std::fs::{File, Metadata};
use std::io::{self, BufReader, Read};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use super::file_names::{number_of_dump, number_of_map};
use super::{Made, jitdump, perf_map};
use crate::foreign::{self, Links, Resolved, Root};
use crate::image;
use crate::os;
use crate::record::FileId;
use crate::{binaries, procfs};

/// Most bytes of a file that are read at a time; code in larger additions counts as unknown.
const MAX_LOOK: u64 = 1 << 20;

/// Most bytes of all files that are read at a time.
pub(super) const MAX_OF_ALL: u64 = 32 << 20;

/// Log2 of the bytes of a perf map that take as long to read as one record of a jitdump.
const RECORD: u32 = 7;

/// Most marks of a perf map; above that, every other one is dropped.
const MAX_MARKS: usize = 1024;

/// Largest delay of a file's time of change, in nanoseconds (a tick of the kernel's clock, 10 ms at
/// `CONFIG_HZ=100`).
const TICK: u64 = 10_000_000;

/// Start of the recording, in both clocks.
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
    /// Converts a wall-clock time to nanoseconds of `CLOCK_MONOTONIC`.
    fn monotonic(self, time: SystemTime) -> u64 {
        u64::try_from((nanos(time) - self.offset).max(0)).unwrap_or(u64::MAX)
    }
}

fn nanos(time: SystemTime) -> i128 {
    time.duration_since(UNIX_EPOCH).map_or(0, |d| d.as_nanos() as i128)
}

/// A size of a growing perf map: its first `size` bytes existed at time `by`, and later ones did
/// not exist yet when it was `seen`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SizeMark {
    /// Size in bytes.
    pub size: u64,
    /// `CLOCK_MONOTONIC`, nanoseconds.
    pub by: u64,
    /// `CLOCK_MONOTONIC`, nanoseconds.
    pub seen: u64,
}

/// JIT files of one program.
#[derive(Debug, Default)]
pub struct Sources {
    /// Its perf map.
    pub map: Option<File>,
    /// Sizes of the perf map over time, in the order of time.
    pub marks: Vec<SizeMark>,
    /// The path of the perf map leads to something other than a regular file, which is not opened.
    pub refused: bool,
    /// Its jitdump.
    pub dump: Option<File>,
    /// Path of the jitdump in the program's mount namespace.
    pub dump_path: String,
    /// Offset of its next record; 0: after the header.
    pub dump_offset: u64,
}

/// Changes of the files since they were last read.
pub(super) enum Changes {
    /// Nothing new.
    Nothing,
    /// Too much to read; it was added between these times.
    Unread {
        /// Start of the range.
        after: u64,
        /// End of the range.
        by: u64,
    },
    /// Code at these addresses.
    New(Vec<Made>),
}

impl Sources {
    /// True if there are none.
    pub fn is_empty(&self) -> bool {
        self.map.is_none() && self.dump.is_none()
    }

    /// Sets the perf map; all of it counts as new.
    pub fn set_map(&mut self, map: File) {
        self.map = Some(map);
        self.marks = vec![SizeMark { size: 0, by: 0, seen: 0 }];
    }

    /// Sets the jitdump file.
    pub fn set_dump(&mut self, dump: File, path: &str) {
        // Its header may be written later.
        self.dump_offset = 0;
        self.dump = Some(dump);
        path.clone_into(&mut self.dump_path);
    }

    /// Reads the size of the perf map; returns the previous mark if it has changed.
    fn mark(&mut self, clock: Clock) -> Option<SizeMark> {
        // The file may grow while this thread does not run: it was not larger before, and is as large
        // after.
        let seen = os::monotonic_nanos();
        let metadata = self.map.as_ref()?.metadata().ok()?;
        let size = metadata.len();
        let after = os::monotonic_nanos();
        let by = metadata.modified().map_or(after, |m| clock.monotonic(m).saturating_add(TICK));
        let by = by.min(after);
        let last = self.marks.last().copied();
        match self.marks.last_mut() {
            Some(last) if last.size == size => last.seen = seen,
            Some(last) if last.size > size => {
                // It was rewritten: the age of its present contents is unknown.
                self.marks.clear();
                self.marks.push(SizeMark { size, by, seen });
            }
            _ => {
                if self.marks.len() >= MAX_MARKS {
                    let mut n = 0;
                    self.marks.retain(|_| (n += 1, n % 2 == 0).1);
                }
                self.marks.push(SizeMark { size, by, seen });
            }
        }
        last.filter(|last| last.size != size)
    }

    /// Reads what was added to the files; `left` is the number of bytes that may still be read.
    pub(super) fn read_changes(&mut self, clock: Clock, left: &mut u64) -> Changes {
        let mut made = Vec::new();
        if let Some(before) = self.mark(clock) {
            let by = self.marks.last().map_or(before.seen, |mark| mark.by);
            if !self.new_in_map(before, &mut made, left) {
                return Changes::Unread { after: before.seen, by };
            }
        }
        if *left > 0 {
            self.new_in_dump(&mut made, left);
        }
        if made.is_empty() { Changes::Nothing } else { Changes::New(made) }
    }

    /// Adds the code that was added after `before`; returns false if that is unknown.
    fn new_in_map(&self, before: SizeMark, made: &mut Vec<Made>, left: &mut u64) -> bool {
        let (Some(map), Some(now)) = (&self.map, self.marks.last()) else { return true };
        if now.size < before.size || now.size - before.size > MAX_LOOK {
            return false;
        }
        let Some(after_this) = left.checked_sub(now.size - before.size) else { return false };
        *left = after_this;
        // Starts at the beginning of the line, which may have been written in two parts.
        let Some(start) = line_start(map, before.size) else { return false };
        let after = before.seen;
        let by = now.by;
        let input = FileReader { file: map, offset: start }.take(now.size - start);
        let read = perf_map::read(&mut BufReader::new(input), start, &mut |entry| {
            made.push(Made { start: entry.start, end: entry.end, after, by });
            true
        });
        read.is_ok()
    }

    /// Adds new code from the jitdump, which contains exact times.
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
                jitdump::JitRecord::Load { address: start, size, .. }
                | jitdump::JitRecord::Move { to: start, size, .. } => {
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

/// Most records of a jitdump that are read at a time; the rest is read the next time.
const MAX_RECORDS: usize = 4096;

/// Start of the line that contains the byte before `offset`, or `offset` if that ends a line.
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

/// Reads a file from an offset, independent of the descriptor's position.
pub struct FileReader<'a> {
    /// The file.
    pub file: &'a File,
    /// Offset of the next byte.
    pub offset: u64,
}

impl Read for FileReader<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let n = self.file.read_at(buffer, self.offset)?;
        self.offset += n as u64;
        Ok(n)
    }
}

/// The mapping by which a compiler announces its jitdump.
#[derive(Clone, Copy, Debug)]
pub(super) struct DumpMapping<'a> {
    /// Process.
    pub pid: i32,
    /// First address.
    pub start: u64,
    /// First address after it.
    pub end: u64,
    /// Path in the process's mount namespace.
    pub path: &'a str,
    /// The mapped file.
    pub id: FileId,
}

/// The file at the path of a perf map.
pub(super) enum PerfMapFile {
    /// A map of this process.
    Map(File),
    /// Something other than a regular file.
    Refused,
    /// Nothing, or a file of another process.
    Nothing,
}

/// The jitdump file that a process has mapped. Another file may be mapped at these addresses, or be
/// at this path, by now.
pub(super) fn open_dump(dump: &DumpMapping<'_>) -> Option<File> {
    let DumpMapping { pid, start, end, path, id } = *dump;
    // This leads to the mapped file itself; no other user can place links there.
    let exact = Path::new("/proc").join(format!("{pid}/map_files/{start:x}-{end:x}"));
    let path = Path::new(path.strip_suffix(" (deleted)").unwrap_or(path));
    let named = |root: io::Result<Root>| root?.resolve(path, Links::Refuse);
    let open = |found: io::Result<Resolved>| {
        let found = found.ok()?;
        let file = found.open().ok()?;
        image::is_file(&file, &found.metadata, id).then_some(file)
    };
    open(foreign::resolve_link(&exact))
        .or_else(|| open(named(Root::for_process(pid))))
        .or_else(|| open(named(Root::at(Path::new("/")))))
}

/// `/tmp/perf-PID.map` of a process, with its own `/tmp` and PID; else the one that tools write for
/// it outside its container.
pub(super) fn open_perf_map(pid: i32, clock: Clock) -> PerfMapFile {
    let inner = procfs::inner_pid(pid).unwrap_or(pid);
    let same_files = binaries::same_root(pid);
    let ours = std::process::id() as i32;
    let places = [(pid, inner, same_files), (ours, pid, true)];
    let mut refused = false;
    for (root_of, number, same_files) in places {
        let path = format!("/tmp/perf-{number}.map");
        let found = Root::for_process(root_of)
            .and_then(|root| root.resolve(Path::new(&path), Links::Refuse));
        let Ok(found) = found else { continue };
        if belongs_to(&found.metadata, pid, same_files, clock)
            && let Ok(map) = found.open()
        {
            return PerfMapFile::Map(map);
        }
        refused |= !found.metadata.is_file();
    }
    if refused { PerfMapFile::Refused } else { PerfMapFile::Nothing }
}

/// True if the perf map belongs to the process: neither left by an earlier process with the same
/// PID, nor planted by another user.
///
/// A process can show any file in its own mount namespace as its map by mounting the file there,
/// without the right to read it. So there a map must belong to the user of the process. With
/// `same_files` (the process sees prof's files), only root can put a file of root's into `/tmp`,
/// except by a hard link, and maps written by root's tools are accepted as well.
fn belongs_to(metadata: &Metadata, pid: i32, same_files: bool, clock: Clock) -> bool {
    let user = |pid: i32| procfs::owner(pid).map(|(_, uid)| uid);
    let own = user(std::process::id() as i32).unwrap_or(0);
    let planted = !same_files || metadata.nlink() != 1;
    let written_by_tool = [0, own].contains(&metadata.uid()) && !planted;
    let Ok(changed) = metadata.modified() else { return false };
    // Of a process that has ended, only a map that was written since the recording began.
    let began = procfs::start_time(pid).unwrap_or(clock.began);
    (written_by_tool || user(pid) == Some(metadata.uid()))
        && nanos(changed) + 1_000_000_000 >= nanos(began)
}

/// True if the file is still that of a recording that ended at this time (nanoseconds since the
/// Unix epoch): it has not changed since, or its process still runs and was there before. A later
/// process with the same PID rewrites the file, which keeps its age.
pub fn is_as_recorded(path: &Path, metadata: &Metadata, end: i64) -> bool {
    let after = |time: SystemTime| nanos(time) > i128::from(end);
    let changed = metadata.modified().map_or(true, after);
    let made = metadata.created().is_ok_and(after);
    !made && (!changed || writer(path, metadata).is_some_and(|began| !after(began)))
}

/// Start time of the process that a file is named after, if the process sees that very file under
/// this path.
fn writer(path: &Path, metadata: &Metadata) -> Option<SystemTime> {
    let path = path.to_str()?;
    let pid = number_of_map(path).or_else(|| number_of_dump(path.as_bytes()))?;
    let pid = i32::try_from(pid).ok()?;
    let seen = Root::for_process(pid).and_then(|root| root.resolve(Path::new(path), Links::Refuse));
    let seen = seen.ok()?.metadata;
    let same = (seen.dev(), seen.ino()) == (metadata.dev(), metadata.ino());
    procfs::start_time(pid).filter(|_| same)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn starts(changes: Changes) -> Option<Vec<u64>> {
        match changes {
            Changes::Nothing => Some(Vec::new()),
            Changes::New(made) => Some(made.iter().map(|m| m.start).collect()),
            Changes::Unread { .. } => None,
        }
    }

    #[test]
    fn another_file_at_the_path_of_a_jitdump_is_not_taken_for_it() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let path = file.path().to_str().unwrap();
        let id = image::id_of(&file.as_file().metadata().unwrap());
        let opens = |id| {
            let pid = std::process::id() as i32;
            open_dump(&DumpMapping { pid, start: 0, end: 0, path, id }).is_some()
        };
        assert!(opens(id) && opens(FileId::default()));
        assert!(!opens(FileId { inode: id.inode + 1, ..id }));
        assert!(!opens(FileId { device: id.device + 1, ..id }));
    }

    #[test]
    fn additions_to_a_map_are_found_once() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(b"1000 10 a\n2000 10 b").unwrap();
        let clock = Clock::default();
        let mut sources = Sources::default();
        sources.set_map(file.reopen().unwrap());
        // All contents are new at first.
        assert_eq!(starts(sources.read_changes(clock, &mut MAX_OF_ALL.clone())).unwrap(), [0x1000]);
        assert!(starts(sources.read_changes(clock, &mut MAX_OF_ALL.clone())).unwrap().is_empty());
        // An incomplete line is read again from its beginning.
        file.write_all(b"bb\n3000 10 c\n4000").unwrap();
        assert_eq!(
            starts(sources.read_changes(clock, &mut MAX_OF_ALL.clone())).unwrap(),
            [0x2000, 0x3000]
        );
        assert!(starts(sources.read_changes(clock, &mut MAX_OF_ALL.clone())).unwrap().is_empty());
        assert_eq!(sources.marks.len(), 3);
        let ascending =
            |pair: &[SizeMark]| pair[0].seen <= pair[1].seen && pair[0].by <= pair[1].by;
        assert!(sources.marks.windows(2).all(ascending));
        // Too much, or rewritten: the age of the contents is unknown.
        file.as_file().set_len(5 << 20).unwrap();
        assert_eq!(starts(sources.read_changes(clock, &mut MAX_OF_ALL.clone())), None);
        file.as_file().set_len(3).unwrap();
        assert_eq!(starts(sources.read_changes(clock, &mut MAX_OF_ALL.clone())), None);
        assert_eq!(sources.marks.len(), 1);
    }

    #[test]
    fn additions_to_a_jitdump_are_found_with_their_times() {
        use super::jitdump::writer;
        let mut file = tempfile::NamedTempFile::new().unwrap();
        let mut sources = Sources::default();
        sources.set_dump(file.reopen().unwrap(), "jit-77.dump");
        let clock = Clock::default();
        assert!(starts(sources.read_changes(clock, &mut MAX_OF_ALL.clone())).unwrap().is_empty());
        // The header comes late, and a record in two parts.
        file.write_all(&writer::header(0)).unwrap();
        let load = writer::load(5, 0x1000, 0x20, "f");
        file.write_all(&load[..50]).unwrap();
        assert!(starts(sources.read_changes(clock, &mut MAX_OF_ALL.clone())).unwrap().is_empty());
        file.write_all(&load[50..]).unwrap();
        file.write_all(&writer::moved(6, 0x1000, 0x2000, 0x20)).unwrap();
        assert_eq!(
            starts(sources.read_changes(clock, &mut MAX_OF_ALL.clone())).unwrap(),
            [0x1000, 0x2000]
        );
        assert!(starts(sources.read_changes(clock, &mut MAX_OF_ALL.clone())).unwrap().is_empty());
    }
}
