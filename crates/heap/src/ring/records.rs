//! What the library writes for prof to read.

use super::super::layout::{FILE_NAME, PAGE, PROCESS_PAGES, PROCESSES_AT};
use sys::maps::parse_line;
use sys::record::{Mmap, UserStack};

/// What the library tells.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Record<'a> {
    /// A sampled allocation.
    Allocation(Allocation<'a>),
    /// One has come to its end.
    Free {
        /// Its name.
        id: u64,
        /// Process.
        by: Writer,
        /// It was freed by the thread that allocated it, before that allocated anything else.
        temporary: bool,
    },
    /// A process begins to be sampled, or has become another program.
    Process {
        /// The process.
        by: Writer,
        /// Pairs of addresses, eight bytes each, where functions begin and end that call the
        /// allocator for others.
        wrappers: &'a [u8],
    },
}

/// The process that wrote a record, as it says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Writer {
    /// Number under which the kernel told who it is, see [`Shared::shown`]; 0: it could not.
    pub number: u32,
    /// Its process id, as it sees that in its own namespace.
    pub pid: i32,
}

/// A sampled allocation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Allocation<'a> {
    /// Its name.
    pub id: u64,
    /// `CLOCK_MONOTONIC`, nanoseconds.
    pub time: u64,
    /// Process.
    pub by: Writer,
    /// Thread, as the process sees it.
    pub tid: i32,
    /// Bytes that were asked for.
    pub size: u64,
    /// Mean distance of samples that it was taken with, in bytes; 1: each allocation.
    pub interval: u64,
    /// Its end will be reported.
    pub tracked: bool,
    /// Where: registers and stack of the call of the allocating function.
    pub user: UserStack<'a>,
}

/// What tells the shared file from others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shared {
    pub(super) inode: u64,
}

impl Shared {
    /// The number under which a process says who it is by this mapping of the shared file, as far
    /// as it can be known from that: [`Shared::page`] of it.
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

    /// What a mapping says about a number.
    pub fn page(number: u32) -> u32 {
        number % PROCESS_PAGES as u32
    }

    /// A process has the shared file mapped.
    pub fn is_mapped_by(self, pid: i32) -> bool {
        let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
        let mut lines = maps.lines().filter_map(parse_line);
        lines.any(|line| line.shared && line.file.inode == self.inode)
    }
}
