//! Records that the library writes for prof.

use super::super::layout::{FILE_NAME, PAGE, PROCESS_PAGES, PROCESSES_AT};
use sys::maps::parse_line;
use sys::record::{Mmap, UserStack};

/// A record of the library.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum AllocationRecord<'a> {
    /// A sampled allocation.
    Allocation(Allocation<'a>),
    /// The end of one.
    Free {
        /// Id of the allocation.
        id: u64,
        /// Process.
        by: Writer,
        /// It was freed by the thread that allocated it, before that allocated anything else.
        temporary: bool,
    },
    /// Sampling of a process begins, or it has called `execve`.
    Process {
        /// The process.
        by: Writer,
        /// Pairs of addresses, eight bytes each: start and end of functions that call the allocator
        /// for others.
        wrappers: &'a [u8],
    },
}

/// The process that wrote a record, by its own statement.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Writer {
    /// Number under which the kernel reported it, see [`Shared::shown`]; 0: it could not.
    pub number: u32,
    /// PID in its own namespace.
    pub pid: i32,
}

/// A sampled allocation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Allocation<'a> {
    /// Its unique id.
    pub id: u64,
    /// `CLOCK_MONOTONIC`, nanoseconds.
    pub time: u64,
    /// Process.
    pub by: Writer,
    /// TID in the process's own namespace.
    pub tid: i32,
    /// Requested size in bytes.
    pub size: u64,
    /// Mean sampling interval of this record, in bytes; 1: each allocation.
    pub interval: u64,
    /// Its end will be reported.
    pub tracked: bool,
    /// Registers and stack at the call of the allocating function.
    pub user: UserStack<'a>,
}

/// Identification of the shared file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shared {
    pub(super) inode: u64,
}

impl Shared {
    /// The number by which a process identifies itself with this mapping of the shared file, as far
    /// as the mapping determines it: [`Shared::page`] of it.
    pub fn shown(self, mmap: &Mmap<'_>) -> Option<u32> {
        let name = mmap.path.strip_prefix(b"/memfd:")?;
        let inode = mmap.file.inode;
        let page = mmap.offset.checked_sub(PROCESSES_AT as u64)? / PAGE as u64;
        let is_it = name.starts_with(FILE_NAME.as_bytes())
            && (inode == 0 || inode == self.inode)
            && mmap.len == PAGE as u64
            && page < PROCESS_PAGES as u64;
        is_it.then_some(page as u32)
    }

    /// The part of a number that a mapping shows.
    pub fn page(number: u32) -> u32 {
        number % PROCESS_PAGES as u32
    }

    /// True if a process has mapped the shared file.
    pub fn is_mapped_by(self, pid: i32) -> bool {
        let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
        let mut lines = maps.lines().filter_map(parse_line);
        lines.any(|line| line.shared && line.file.inode == self.inode)
    }
}
