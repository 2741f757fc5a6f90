//! Classifies a process's memory: data of the program, or possibly an allocator's.

use std::io;

use super::memory::ProcessMemory;
use super::threads::ThreadMemory;
use super::{Failure, memory::PAGE};
use crate::arch::{DATA_ABOVE, DATA_BELOW, RED_ZONE, SELF_POINTERS, THREAD_SIZE, VECTOR};
use sys::maps::{MapsLine, parse_line};

/// Meaning of pointers in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AreaKind {
    /// Their targets are reachable.
    Root,
    /// They may be left over from freed memory.
    Unknown,
}

/// A part of the memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Area {
    /// First address.
    pub start: u64,
    /// First address after it.
    pub end: u64,
    /// Meaning of its pointers.
    pub kind: AreaKind,
}

/// Contents of a mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Contents {
    /// Data of a program or a library, the first thread's stack, shared memory.
    Data,
    /// Memory without a file, usually an allocator's.
    Anonymous,
}

#[derive(Clone, Copy, Debug)]
struct Mapped {
    start: u64,
    end: u64,
    contents: Contents,
    /// The memory below cannot be accessed, or, for the first thread's stack, does not exist.
    guarded: bool,
}

/// All memory of a process that may contain pointers.
pub struct Areas {
    mapped: Vec<Mapped>,
    /// The kernel's heap (`brk(2)`), if there is one.
    pub brk: Option<(u64, u64)>,
    /// Ranges whose pointers are ignored.
    holes: Vec<(u64, u64)>,
    /// Ranges of anonymous memory that are data.
    data: Vec<(u64, u64)>,
    /// Some blocks are not the C library's.
    another_allocator: bool,
}

impl Areas {
    /// The memory of a process.
    ///
    /// # Errors
    ///
    /// It has ended, or may not be inspected.
    pub fn read(pid: i32) -> io::Result<Areas> {
        let maps = std::fs::read_to_string(format!("/proc/{pid}/maps"))?;
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
        let lines: Vec<MapsLine<'_>> = maps.lines().filter_map(parse_line).collect();
        let mut mapped = Vec::new();
        for (i, line) in lines.iter().enumerate() {
            let before = i.checked_sub(1).map(|i| &lines[i]).filter(|b| b.end == line.start);
            let Some(contents) = contents(line, before) else { continue };
            let guard = |b: &MapsLine<'_>| !b.readable && !b.writable && !b.executable;
            let guarded = line.path == "[stack]" || before.is_some_and(guard);
            mapped.push(Mapped { start: line.start, end: line.end, contents, guarded });
        }
        let brk = brk_start(&stat).and_then(|start| {
            let heap = lines.iter().find(|l| (l.start..l.end).contains(&start))?;
            Some((start, heap.end))
        });
        let (holes, data) = Default::default();
        Ok(Areas { mapped, brk, holes, data, another_allocator: false })
    }

    /// Excludes the pointers in a range.
    pub fn leave_out(&mut self, start: u64, end: u64) {
        self.holes.push((start, end));
    }

    /// Excludes unused memory below the threads' stack pointers, and stacks that the C library
    /// keeps of threads that have ended.
    pub fn stacks(
        &mut self,
        threads: &[ThreadMemory],
        memory: &mut ProcessMemory,
    ) -> Result<(), Failure> {
        for i in 0..self.mapped.len() {
            let Mapped { start, end, guarded, .. } = self.mapped[i];
            let inside = |address: u64| (start..end).contains(&address);
            for thread in threads.iter().filter(|t| inside(t.control_block)) {
                let first = thread.control_block.saturating_sub(DATA_BELOW).max(start);
                let limit = thread.control_block.saturating_add(DATA_ABOVE).min(end);
                self.data.push((first, limit));
            }
            if !guarded {
                continue;
            }
            if let Some(sp) = threads.iter().map(|t| t.sp).filter(|sp| inside(*sp)).min() {
                self.holes.push((start, sp.saturating_sub(RED_ZONE)));
                self.data.push((sp, end));
            } else if let Some(block) = thread_block(start, end, memory)?
                && !threads.iter().any(|t| t.control_block == block)
            {
                // The C library keeps the dynamic linker's allocations for the next thread there.
                self.holes.push((start, block + VECTOR));
                self.holes.push((block + VECTOR + 8, (block + THREAD_SIZE).min(end)));
            }
        }
        Ok(())
    }

    /// Some blocks are not the C library's, so anonymous memory may be another allocator's.
    pub fn are_of_another_allocator(&mut self) {
        self.another_allocator = true;
    }

    /// Ranges of anonymous memory.
    pub fn anonymous(&self) -> impl Iterator<Item = (u64, u64)> {
        let mapped = self.mapped.iter().filter(|m| m.contents == Contents::Anonymous);
        mapped.map(|m| (m.start, m.end))
    }

    /// All memory whose pointers count, except these ranges.
    pub fn without(&self, ranges: impl Iterator<Item = (u64, u64)>) -> Vec<Area> {
        let holes = merged(self.holes.iter().copied().chain(ranges));
        let data = merged(self.data.iter().copied());
        let mut areas = Vec::new();
        for &Mapped { start, end, contents, .. } in &self.mapped {
            let is_data = contents == Contents::Data || !self.another_allocator;
            for (start, end) in outside(start, end, &holes) {
                if is_data {
                    areas.push(Area { start, end, kind: AreaKind::Root });
                    continue;
                }
                let unknown = outside(start, end, &data);
                let inside = outside(start, end, &unknown);
                let area = |kind| move |(start, end)| Area { start, end, kind };
                areas.extend(unknown.iter().copied().map(area(AreaKind::Unknown)));
                areas.extend(inside.into_iter().map(area(AreaKind::Root)));
            }
        }
        areas
    }
}

/// Contents of a mapping, if it may contain pointers to blocks.
fn contents(line: &MapsLine<'_>, before: Option<&MapsLine<'_>>) -> Option<Contents> {
    /// Files that are only in memory: `memfd_create(2)`, `shmget(2)`, `shm_open(3)`, shared
    /// anonymous memory.
    const IN_MEMORY: [&str; 4] = ["/memfd:", "/SYSV", "/dev/shm/", "/dev/zero"];
    if !line.readable {
        return None;
    }
    let has_file = line.file.inode != 0;
    let anonymous = !has_file && (line.path.is_empty() || line.path.starts_with("[anon"));
    if line.shared {
        // A pointer in a file that outlives the process is meaningless.
        let in_memory = IN_MEMORY.iter().any(|name| line.path.starts_with(name));
        return (line.writable && in_memory).then_some(Contents::Data);
    }
    if has_file || line.path == "[stack]" {
        return line.writable.then_some(Contents::Data);
    }
    // Zeroed data of a file follows its mapping.
    let follows = before.is_some_and(|b| b.file.inode != 0 && b.writable && !b.shared);
    match line.path {
        "[heap]" => Some(Contents::Anonymous),
        _ if anonymous && follows => Some(Contents::Data),
        _ => anonymous.then_some(Contents::Anonymous),
    }
}

/// Start of `brk`'s memory: field 47 of `/proc/PID/stat`.
fn brk_start(stat: &str) -> Option<u64> {
    let fields = stat.get(stat.rfind(')')? + 1..)?;
    fields.split_ascii_whitespace().nth(47 - 3)?.parse().ok().filter(|&start| start != 0)
}

/// The control block of a glibc thread with its stack here, which is recognized by its pointers to
/// itself.
fn thread_block(start: u64, end: u64, memory: &mut ProcessMemory) -> Result<Option<u64>, Failure> {
    let [first, others @ ..] = SELF_POINTERS else { return Ok(None) };
    let mut candidates = Vec::new();
    memory.each_word(start, end, |at, word| {
        if word.checked_add(*first) == Some(at) && word.is_multiple_of(64) {
            candidates.push(word);
        }
    })?;
    for at in candidates {
        let mut all = true;
        for offset in others {
            all = all && memory.word(at + offset)? == Some(at);
        }
        if all {
            return Ok(Some(at));
        }
    }
    Ok(None)
}

/// The same ranges, sorted and without overlap.
fn merged(ranges: impl Iterator<Item = (u64, u64)>) -> Vec<(u64, u64)> {
    let mut sorted: Vec<(u64, u64)> = ranges.filter(|(start, end)| start < end).collect();
    sorted.sort_unstable();
    let mut merged: Vec<(u64, u64)> = Vec::with_capacity(sorted.len());
    for (start, end) in sorted {
        match merged.last_mut() {
            Some(last) if start <= last.1 => last.1 = last.1.max(end),
            _ => merged.push((start, end)),
        }
    }
    merged
}

/// The parts of a range outside these holes, which are sorted and do not overlap.
fn outside(start: u64, end: u64, holes: &[(u64, u64)]) -> Vec<(u64, u64)> {
    let mut parts = Vec::new();
    let mut at = start;
    let first = holes.partition_point(|hole| hole.1 <= start);
    for &(from, to) in holes[first..].iter().take_while(|hole| hole.0 < end) {
        if at < from {
            parts.push((at, from));
        }
        at = at.max(to);
    }
    if at < end {
        parts.push((at, end));
    }
    parts
}

/// Start of the page that contains an address.
pub fn page_of(address: u64) -> u64 {
    address & !(PAGE - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_without_others() {
        let holes = merged([(30, 40), (10, 20), (15, 25), (40, 50), (60, 60)].into_iter());
        assert_eq!(holes, [(10, 25), (30, 50)]);
        assert_eq!(outside(0, 100, &holes), [(0, 10), (25, 30), (50, 100)]);
        assert_eq!(outside(12, 35, &holes), [(25, 30)]);
        assert_eq!(outside(30, 50, &holes), []);
        assert_eq!(outside(0, 5, &[]), [(0, 5)]);
    }

    #[test]
    fn mappings_that_may_hold_pointers() {
        let line = |text: &'static str| parse_line(text).unwrap();
        let data = line("1000-2000 rw-p 00001000 fe:01 12 /usr/bin/a");
        let zeros = line("2000-3000 rw-p 00000000 00:00 0");
        assert_eq!(contents(&data, None), Some(Contents::Data));
        assert_eq!(contents(&zeros, Some(&data)), Some(Contents::Data));
        assert_eq!(contents(&zeros, None), Some(Contents::Anonymous));
        let others = [
            ("0-10 rw-p 00000000 00:00 0 [heap]", Some(Contents::Anonymous)),
            ("0-10 rw-p 00000000 00:00 0 [anon: glibc: malloc]", Some(Contents::Anonymous)),
            ("0-10 r--p 00000000 00:00 0", Some(Contents::Anonymous)),
            ("0-10 rw-p 00000000 00:00 0 [stack]", Some(Contents::Data)),
            ("0-10 rw-s 00000000 00:05 9 /memfd:x (deleted)", Some(Contents::Data)),
            ("0-10 rw-s 00000000 fe:01 9 /var/db", None),
            ("0-10 r-xp 00000000 fe:01 9 /usr/bin/a", None),
            ("0-10 r--p 00000000 00:00 0 [vvar]", None),
            ("0-10 ---p 00000000 00:00 0", None),
        ];
        for (text, expected) in others {
            assert_eq!(contents(&line(text), None), expected, "{text}");
        }
    }

    #[test]
    fn the_beginning_of_the_heap() {
        let fields: String = (3..=52).map(|i| format!(" {}", i * 1000)).collect();
        assert_eq!(brk_start(&format!("7 (a) b){fields}\n")), Some(47_000));
        assert_eq!(brk_start("7 (a) S 1"), None);
    }
}
