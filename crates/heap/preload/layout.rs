//! Layout of the memory through which sampled allocations reach prof. This file is part of both the
//! library and prof.
//!
//! A shared file contains a [`Header`], one word for each granule of the ring ([`granule`]), the
//! slots of [`FreeSlot`], and the ring itself, [`GRANULES`] times [`GRANULE`] bytes.
//!
//! **The ring** takes records of different sizes from many writers for one reader. Positions count
//! granules and never decrease; position `p` is at granule `p % granules`. A writer reserves `n`
//! granules at [`Stacks::next`] by writing `p`, `n` and [`granule::RESERVED`] into the word of the
//! first of them, and then advances `next`; any writer that finds a reserved word at `next`
//! advances it on behalf of its owner. So the size of a record is known as soon as it is reserved,
//! and a writer that is killed at any instant blocks no other. A record is published as
//! [`granule::READY`]. A word only ever takes the position that its granule has in a later lap, so
//! a late exchange fails.
//!
//! A writer that does not publish its record in time, because its process was killed, stopped or
//! waits for a CPU, may still write to it. So its granules become [`granule::RETIRED`]: all writers
//! skip them, in all laps, until it returns and marks the record as [`granule::LATE`].
//!
//! **Pace.** The fuller the ring, the longer the mean sampling interval: it doubles with each
//! [`Header::pace`] granules above [`Header::pace_from`]. Each record contains its interval, which
//! determines its weight. The space that records need grows with the logarithm of the allocated
//! bytes, so the ring does not become full.
//!
//! **Ends of allocations** have a separate queue, Dmitry Vyukov's bounded queue: position `p` uses
//! slot `p % n`; a writer may take it if its `turn` is `p`, and publishes it by setting `p + 1`;
//! the reader releases it by setting `p + n`. The reader skips a slot whose writer is still at
//! work. If that takes long, it adds [`OUT_OF_USE`] to the turn: the slot is skipped from then on,
//! and the writer publishes it as `p + 1` with that bit. The queue never contains more records than
//! there are sampled allocations in use, and at most [`LIVE`] of those are tracked at a time, so it
//! does not become full either.
//!
//! **Time.** A writer reads the clock before it takes its place in either queue. An allocation is
//! published before the memory can be freed, so no earlier record in the ring has a later time than
//! its end: a reader that merges both queues by time sees each allocation before its end.
//!
//! No writer waits for another: if there is no space, the record is counted as lost.

use core::sync::atomic::{AtomicI32, AtomicI64, AtomicU32, AtomicU64};

#[cfg_attr(target_arch = "x86_64", path = "layout/x86_64.rs")]
#[cfg_attr(target_arch = "aarch64", path = "layout/aarch64.rs")]
pub mod register;

/// Value of [`Header::magic`], with the version of this layout.
pub const MAGIC: u64 = u64::from_le_bytes(*b"profhp04");

/// Most bytes of stack that are copied: as many as the kernel copies of a sampled thread.
pub const MAX_STACK: usize = 65_528;

/// Bytes of a granule, and largest number of granules; [`Header::granules`] are used.
pub const GRANULE: usize = 256;
/// See [`GRANULE`].
pub const GRANULES: u64 = 1 << 19;

/// Most sampled allocations that are tracked until they end, over all processes; above half of that
/// the sampling interval doubles with each [`LIVE_PACE`].
pub const LIVE: u64 = 1 << 18;
/// See [`LIVE`].
pub const LIVE_PACE: u64 = 4096;

/// Slots for ends of sampled allocations, with a reserve for those that are [`OUT_OF_USE`].
pub const FREES: usize = LIVE as usize + 4096;

/// Bit of a slot's `turn`: only the writer that has the slot still uses it.
pub const OUT_OF_USE: u64 = 1 << 63;

/// Environment variable with the shared file and its largest length: a path, a semicolon, and the
/// number of a descriptor that processes inherit, for those that cannot access the path.
pub const VARIABLE: &str = "PROF_HEAP_RING";
/// See [`VARIABLE`].
pub const MAX_PATH: usize = 256;

/// Prefix of the shared file's name in the kernel (`proc_pid_maps(5)`).
#[allow(dead_code, reason = "the library itself does not")]
pub const FILE_NAME: &str = "prof-heap-ring";

/// A process identifies itself by making a page at the end of the shared file executable for a
/// moment: the kernel reports that to prof (`PERF_RECORD_MMAP2`), with the PID in prof's namespace.
/// The page is determined by the number that the process takes from [`Header::next_process`].
pub const PROCESS_PAGES: usize = 1024;
/// Bytes of a page.
pub const PAGE: usize = 4096;

/// Most ranges of code in a record of kind [`Kind::Process`].
pub const MAX_RANGES: usize = 32;

/// Most processes that can be searched at the same time while they exit.
pub const EXITS: usize = 32;

/// Kind of a [`StackRecord`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Kind {
    /// An allocation.
    Allocation = 0,
    /// An allocation whose end will not be reported, because the library's table is full.
    Untracked = 1,
    /// Sampling of a process begins. `size` is a number of pairs of addresses, begin and end, which
    /// replace the stack: functions that call the allocator for others, such as `operator new`.
    Process = 2,
}

/// The ring of sampled allocations.
#[repr(C, align(64))]
pub struct Stacks {
    /// Position of the next record.
    pub next: AtomicU64,
    /// Number of records without space.
    pub lost: AtomicU64,
    /// Bytes of these allocations.
    pub lost_bytes: AtomicU64,
    _apart: [u64; 5],
    /// Data before this position may be overwritten. Written by the reader.
    pub read: AtomicU64,
}

/// The queue of ends of allocations.
#[repr(C, align(64))]
pub struct Frees {
    /// Position of the next record.
    pub next: AtomicU64,
    /// Number of records without a slot.
    pub lost: AtomicU64,
}

/// The word of a granule: the low half of the position of the record that begins there, its number
/// of granules, and its state.
pub mod granule {
    /// Being written.
    pub const RESERVED: u64 = 1 << 56;
    /// Readable.
    pub const READY: u64 = 2 << 56;
    /// Empty: the ring ends behind it, or the next granules are retired.
    pub const SKIPPED: u64 = 3 << 56;
    /// Its writer has not returned yet, in all laps.
    pub const RETIRED: u64 = 4 << 56;
    /// The same, but readable now.
    pub const LATE: u64 = 5 << 56;
    /// The same, and it has been read. Its granules stay unused: writers that have skipped them,
    /// and others, must agree.
    #[allow(dead_code, reason = "the reader's")]
    pub const DONE: u64 = 6 << 56;
    /// Mask of the states.
    pub const STATE: u64 = 0xff << 56;

    /// The word of a record.
    pub fn word(position: u64, granules: u64, state: u64) -> u64 {
        state | (granules & 0xff_ffff) << 32 | (position & 0xffff_ffff)
    }

    /// Its number of granules.
    pub fn count(word: u64) -> u64 {
        word >> 32 & 0xff_ffff
    }

    /// True if the word is that of a record at a position.
    pub fn is_at(word: u64, position: u64) -> bool {
        (word ^ position) & 0xffff_ffff == 0 && word & STATE != 0
    }

    /// True if these granules are skipped.
    pub fn is_retired(word: u64) -> bool {
        matches!(word & STATE, RETIRED | LATE | DONE)
    }
}

/// The beginning of the shared file.
#[repr(C, align(4096))]
pub struct Header {
    /// [`MAGIC`].
    pub magic: u64,
    /// Mean sampling interval in bytes; 1: each allocation.
    pub interval: u64,
    /// 1 while prof records.
    pub active: AtomicU32,
    /// 1: anonymous mappings count as allocations. Memory that is unmapped in part, other than at
    /// its beginning, or moved (`mremap`), stays in use.
    pub mappings: u32,
    /// Next id of a sampled allocation, over all processes; 0 is none.
    pub next_id: AtomicU64,
    /// Ids up to this are those of an earlier recording.
    pub first_id: u64,
    /// Number of granules in use: a power of two.
    pub granules: u64,
    /// Number of filled granules up to which the sampling interval stays, and with how many more it
    /// doubles each time.
    pub pace_from: u64,
    /// See [`Header::pace_from`].
    pub pace: u64,
    /// Number of tracked sampled allocations whose ends prof has not read.
    pub live: AtomicI64,
    /// Number of the next process that identifies itself; 0 is none.
    pub next_process: AtomicU32,
    /// Number of programs that have loaded the library.
    pub loaded: AtomicU64,
    /// 1: an exiting process waits until prof has searched its memory.
    pub leaks: AtomicU32,
    /// Exiting processes.
    pub exits: [ExitSlot; EXITS],
    /// Allocations.
    pub stacks: Stacks,
    /// Ends of allocations.
    pub frees: Frees,
}

/// An exiting process that waits until prof has searched its memory.
#[repr(C, align(64))]
pub struct ExitSlot {
    /// One of [`exit`]'s states, with the owner's id above [`exit::STATE`].
    pub state: AtomicU64,
    /// Process.
    pub pid: AtomicI32,
    /// The exiting thread; 0: unknown.
    pub tid: AtomicI32,
    /// Its stack pointer; saved registers are above.
    pub sp: AtomicU64,
    /// Address of its control block.
    pub control_block: AtomicU64,
    /// Address of the table of sampled addresses.
    pub table: AtomicU64,
    /// Address of the shared file's mapping.
    pub shared: AtomicU64,
    /// Time of the request: `CLOCK_MONOTONIC`, nanoseconds.
    pub time: AtomicU64,
}

/// Protocol of an exiting process and prof: the process takes a free slot, fills it and requests a
/// search; prof searches, and frees the slot. A process that has waited for [`exit::PATIENCE`]
/// frees it, too, and continues: prof's result is then invalid.
pub mod exit {
    /// Free.
    pub const FREE: u64 = 0;
    /// Being filled.
    pub const TAKEN: u64 = 1;
    /// Requested.
    pub const REQUESTED: u64 = 2;
    /// Prof searches, and the process may sleep.
    pub const SEARCHED: u64 = 3;
    /// Prof searches, but a system call might end the process, which seccomp confines.
    pub const CONFINED: u64 = 4;
    /// Mask of the states.
    pub const STATE: u64 = 7;

    /// Longest wait of a process, in nanoseconds.
    pub const PATIENCE: u64 = 1_000_000_000;
}

/// A sampled allocation; the stack follows, from the stack pointer upwards.
#[repr(C, align(64))]
#[derive(Clone, Copy, Debug, Default)]
pub struct StackRecord {
    /// Unique id of the sampled allocation.
    pub id: u64,
    /// `CLOCK_MONOTONIC`, nanoseconds.
    pub time: u64,
    /// Address of the allocation.
    pub address: u64,
    /// Requested size in bytes.
    pub size: u64,
    /// Mean sampling interval of this record, in bytes; 1: each allocation.
    pub interval: u64,
    /// Number under which the process identified itself; 0: it could not.
    pub process: u32,
    /// PID in the process's own namespace.
    pub pid: i32,
    /// TID in the process's own namespace.
    pub tid: i32,
    /// A [`Kind`].
    pub kind: u32,
    /// Bytes of the stack.
    pub length: u32,
    /// Not used.
    pub rest: u32,
    /// Registers at the call of the allocating function, see [`register`]. `ip` is in the call,
    /// `sp` is its value before the call.
    pub registers: [u64; register::COUNT],
}

/// The end of a sampled allocation.
#[repr(C, align(32))]
pub struct FreeSlot {
    /// Turn of the slot, see above.
    pub turn: AtomicU64,
    /// Id of the allocation.
    pub id: AtomicU64,
    /// `CLOCK_MONOTONIC`, nanoseconds.
    pub time: AtomicU64,
    /// Number under which the process identified itself; the highest bit is [`TEMPORARY`].
    pub process: AtomicU32,
    /// PID in the process's own namespace.
    pub pid: AtomicI32,
}

/// Bit of [`FreeSlot::process`]: freed by the thread that allocated it, before it allocated
/// anything else.
pub const TEMPORARY: u32 = 1 << 31;

/// Offset of the granules' words, in bytes.
pub const WORDS_AT: usize = size_of::<Header>();
/// Offset of the slots of frees.
pub const FREES_AT: usize = WORDS_AT + GRANULES as usize * size_of::<AtomicU64>();
/// Offset of the ring.
pub const RING_AT: usize = FREES_AT + FREES * size_of::<FreeSlot>();
/// Offset of the pages by which processes identify themselves.
pub const PROCESSES_AT: usize = RING_AT + GRANULES as usize * GRANULE;
/// Size of the file in bytes.
pub const FILE_SIZE: usize = PROCESSES_AT + PROCESS_PAGES * PAGE;

const _: () = assert!(size_of::<Header>() == 4096 && size_of::<FreeSlot>() == 32);
const _: () = assert!(size_of::<StackRecord>() == (64 + 8 * register::COUNT).next_multiple_of(64));
const _: () = assert!(RING_AT.is_multiple_of(4096));
