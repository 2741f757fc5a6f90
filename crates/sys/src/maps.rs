//! Executable mappings of a process, from `/proc/PID/maps` and from `PERF_RECORD_MMAP2`.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::record::FileId;
use crate::{FileOffset, ProcessAddress};

/// An executable region of a process's address space.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Region {
    /// First address.
    pub start: u64,
    /// First address after it.
    pub end: u64,
    /// Offset in the file of the byte at `start`.
    pub offset: u64,
    /// Image that is mapped: an index into the table of the owner.
    pub image: u32,
    /// The process may write to it.
    pub writable: bool,
    /// Version of the regions when it was inserted: mapped again, or made executable again, it has
    /// another one. Set by [`Regions::insert`].
    pub since: u64,
}

impl Region {
    /// The offset in the file at which an address of the region is.
    pub fn offset_of(&self, address: ProcessAddress) -> FileOffset {
        FileOffset(address.0.wrapping_sub(self.start).wrapping_add(self.offset))
    }
}

/// Executable regions, sorted and without overlap.
#[derive(Clone, Debug, Default)]
pub struct Regions {
    sorted: Vec<Region>,
    version: u64,
}

/// The last version that was assigned.
static VERSION: AtomicU64 = AtomicU64::new(0);

impl Regions {
    /// Adds a region; it replaces what it overlaps, as `mmap(2)` with `MAP_FIXED` does.
    pub fn insert(&mut self, mut new: Region) {
        if new.start >= new.end {
            return;
        }
        let first = self.sorted.partition_point(|r| r.end <= new.start);
        let last = self.sorted.partition_point(|r| r.start < new.end);
        let mut kept = Vec::with_capacity(3);
        if let Some(r) = self.sorted[first..last].first().filter(|r| r.start < new.start) {
            kept.push(Region { end: new.start, ..r.clone() });
        }
        let tail = self.sorted[first..last].last().filter(|r| r.end > new.end).map(|r| Region {
            start: new.end,
            offset: r.offset.wrapping_add(new.end - r.start),
            ..r.clone()
        });
        self.version = VERSION.fetch_add(1, Ordering::Relaxed) + 1;
        new.since = self.version;
        kept.push(new);
        kept.extend(tail);
        self.sorted.splice(first..last, kept);
    }

    /// Version of these regions; only unchanged copies share it.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// The region that contains an address.
    pub fn find(&self, ProcessAddress(address): ProcessAddress) -> Option<&Region> {
        let i = self.sorted.partition_point(|r| r.end <= address);
        self.sorted.get(i).filter(|r| r.start <= address)
    }

    /// Number of regions.
    pub fn len(&self) -> usize {
        self.sorted.len()
    }

    /// True if nothing is mapped.
    pub fn is_empty(&self) -> bool {
        self.sorted.is_empty()
    }

    /// All regions, by address.
    pub fn iter(&self) -> impl Iterator<Item = &Region> {
        self.sorted.iter()
    }
}

/// A line of `/proc/PID/maps`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MapsLine<'a> {
    /// First address.
    pub start: u64,
    /// First address after it.
    pub end: u64,
    /// Readable.
    pub readable: bool,
    /// Writable.
    pub writable: bool,
    /// Executable.
    pub executable: bool,
    /// Writes are visible to all processes that map it.
    pub shared: bool,
    /// Offset in the file.
    pub offset: u64,
    /// The file; inode 0 for anonymous memory.
    pub file: FileId,
    /// Path or name (`[vdso]`), empty for anonymous memory; without ` (deleted)`.
    pub path: &'a str,
    /// The file has been deleted.
    pub deleted: bool,
}

/// Parses a line of `/proc/PID/maps`.
pub fn parse_line(line: &str) -> Option<MapsLine<'_>> {
    let mut rest = line;
    let mut field = || {
        let trimmed = rest.trim_start_matches(' ');
        let (field, tail) = trimmed.split_once(' ').unwrap_or((trimmed, ""));
        rest = tail;
        (!field.is_empty()).then_some(field)
    };
    let range = field()?;
    let mode = field()?;
    let offset = field()?;
    let (major, minor) = field()?.split_once(':')?;
    let inode = field()?.parse().ok()?;
    let (start, end) = range.split_once('-')?;
    let hex = |text| u64::from_str_radix(text, 16).ok();
    let device = libc::makedev(hex(major)? as u32, hex(minor)? as u32);
    let has = |place: usize, right: u8| mode.as_bytes().get(place) == Some(&right);
    let name = rest.trim_start_matches(' ');
    let path = name.strip_suffix(" (deleted)").unwrap_or(name);
    Some(MapsLine {
        start: hex(start)?,
        end: hex(end)?,
        readable: has(0, b'r'),
        writable: has(1, b'w'),
        executable: has(2, b'x'),
        shared: has(3, b's'),
        offset: hex(offset)?,
        file: FileId { device, inode },
        path,
        deleted: path.len() != name.len(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn region(start: u64, end: u64, image: u32) -> Region {
        Region { start, end, offset: start, image, ..Region::default() }
    }

    #[test]
    fn a_line_with_spaces_in_its_path() {
        let l =
            "7f00-7f10 r-xp 00002000 fe:01 1234                    /opt/my app/lib.so (deleted)";
        let m = parse_line(l).unwrap();
        assert_eq!((m.start, m.end, m.offset), (0x7f00, 0x7f10, 0x2000));
        assert_eq!(m.file, FileId { device: libc::makedev(0xfe, 1), inode: 1234 });
        assert_eq!((m.path, m.deleted, m.executable), ("/opt/my app/lib.so", true, true));
        let anon = parse_line("0-10 rw-p 00000000 00:00 0").unwrap();
        assert_eq!((anon.path, anon.executable), ("", false));
        assert_eq!((anon.readable, anon.writable, anon.shared), (true, true, false));
    }

    #[test]
    fn later_mappings_cover_earlier_ones() {
        let mut r = Regions::default();
        r.insert(region(0, 100, 1));
        r.insert(region(40, 60, 2));
        assert_eq!(r.find(ProcessAddress(39)).unwrap().image, 1);
        assert_eq!(r.find(ProcessAddress(40)).unwrap().image, 2);
        let tail = r.find(ProcessAddress(60)).unwrap();
        assert_eq!((tail.image, tail.offset), (1, 60));
        r.insert(region(30, 200, 3));
        assert_eq!(r.iter().map(|x| x.image).collect::<Vec<_>>(), [1, 3]);
        assert_eq!(r.find(ProcessAddress(200)), None);
    }

    #[test]
    fn a_region_that_is_mapped_again_is_distinguished() {
        let mut r = Regions::default();
        let since = |r: &Regions, at| r.find(ProcessAddress(at)).map(|found| found.since);
        r.insert(region(0, 100, 1));
        let first = since(&r, 10);
        r.insert(region(40, 60, 1));
        assert_eq!((since(&r, 10), since(&r, 70)), (first, first));
        assert!(since(&r, 50) > first);
    }

    proptest! {
        #[test]
        fn regions_agree_with_an_array(
            inserts in proptest::collection::vec((0u64..64, 0u64..64), 0..30),
        ) {
            let mut regions = Regions::default();
            let mut array = [None; 64];
            for (image, (a, b)) in inserts.into_iter().enumerate() {
                let start = a.min(b);
                let end = a.max(b);
                regions.insert(region(start, end, image as u32));
                array[start as usize..end as usize].fill(Some(image as u32));
            }
            for address in 0..64 {
                let found = regions.find(ProcessAddress(address));
                prop_assert_eq!(found.map(|r| r.image), array[address as usize]);
                if let Some(r) = found {
                    prop_assert_eq!(r.offset + (address - r.start), address);
                }
            }
        }

        #[test]
        fn any_line_parses_without_panic(line in "\\PC{0,120}|[0-9a-f rwxp:-]{0,120}") {
            let _ = parse_line(&line);
        }
    }
}
