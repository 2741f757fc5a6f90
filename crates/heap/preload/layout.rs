//! What the library and prof share: the layout of the memory through which sampled allocations
//! reach prof. This file is part of both.
//!
//! A shared file holds a [`Header`], one word for each granule of the ring ([`granule`]), the slots
//! of [`FreeSlot`], and the ring itself, [`GRANULES`] times [`GRANULE`] bytes.
//!
//! **The ring** takes records of different sizes from many writers for one reader. Positions count
//! granules and never go back; position `p` is at granule `p % granules`. A writer reserves `n`
//! granules at [`Stacks::next`] by writing `p`, `n` and [`granule::RESERVED`] into the word of the
//! first of them, and then moves `next` on; whoever finds a reserved word at `next` moves it on for
//! the one who reserved it. So the size of a record is known as soon as it is reserved, and a writer
//! that is killed at any instant stops nobody. A record is handed over as [`granule::READY`]. A word
//! only ever takes the position that its granule has in a later lap, so an exchange that comes late
//! fails.
//!
//! A writer that does not hand over its record in time, as its process was killed, stopped or has to
//! wait for a CPU, may still write to it. So its granules are [`granule::RETIRED`]: everybody passes
//! over them, in all laps, until it comes back and says that it is [`granule::LATE`].
//!
//! **Pace.** The fuller the ring, the longer the mean distance of samples: it doubles with each
//! [`Header::pace`] granules beyond [`Header::pace_from`]. Each record says which distance it was taken
//! with, so it is known what it stands for. The space that records need grows with the logarithm
//! of what is allocated, so the ring does not become full.
//!
//! **Ends of allocations** have a queue of their own, as Dmitry Vyukov's bounded queue: position `p`
//! uses slot `p % n`; a writer may take it when its `turn` is `p`, and hands it over by setting
//! `p + 1`; the reader gives it back by setting `p + n`. The reader passes over a slot whose writer is
//! still at work. If that takes long, it adds [`OUT_OF_USE`] to the turn: everybody passes over that
//! slot from then on, and the writer hands it over as `p + 1` with that bit. There are never more
//! records in it than sampled allocations that prof takes to be in use, and no more than [`LIVE`] of
//! those are tracked at a time, so it does not become full either.
//!
//! **Time.** A writer asks for the time before it takes its place in either queue. An allocation is
//! handed over before the memory can be freed, so no record that comes before it in the ring has a
//! time later than that of its end: a reader that merges both queues by time sees each allocation
//! before its end.
//!
//! Nobody waits for anybody: where there is no space after all, the record is counted as lost.

use core::sync::atomic::{AtomicI32, AtomicI64, AtomicU32, AtomicU64};

/// What [`Header::magic`] says, with the version of this layout.
pub const MAGIC: u64 = u64::from_le_bytes(*b"profhp04");

/// Bytes of stack that are copied at most: as many as the kernel copies of a sampled thread.
pub const MAX_STACK: usize = 65_528;

/// Bytes of a granule, and how many the ring has at most; [`Header::granules`] are used.
pub const GRANULE: usize = 256;
/// See [`GRANULE`].
pub const GRANULES: u64 = 1 << 19;

/// Sampled allocations that are tracked until they end, over all processes; from half of them on the
/// distance of samples doubles with each [`LIVE_PACE`].
pub const LIVE: u64 = 1 << 18;
/// See [`LIVE`].
pub const LIVE_PACE: u64 = 4096;

/// Slots for the end of sampled allocations, with some to spare for those that are [`OUT_OF_USE`].
pub const FREES: usize = LIVE as usize + 4096;

/// The bit of a slot's `turn` that says that the slot is used no more, but by the writer that has it.
pub const OUT_OF_USE: u64 = 1 << 63;

/// The environment's variable that says where the shared file is, and how long that may be: a path,
/// a semicolon, and the number of a descriptor that processes inherit, for those that do not see
/// the path.
pub const VARIABLE: &str = "PROF_HEAP_RING";
/// See [`VARIABLE`].
pub const MAX_PATH: usize = 256;

/// What the kernel calls the shared file begins with this (`proc_pid_maps(5)`).
#[allow(dead_code, reason = "the library itself does not")]
pub const FILE_NAME: &str = "prof-heap-ring";

/// A process says who it is by making a page at the end of the shared file executable for a moment:
/// the kernel tells prof of that (`PERF_RECORD_MMAP2`), with the process as prof knows it, whatever
/// namespace it is in. Which page goes by the number that the process takes from
/// [`Header::next_process`].
pub const PROCESS_PAGES: usize = 1024;
/// Bytes of a page.
pub const PAGE: usize = 4096;

/// Ranges of code in a record of kind [`Kind::Process`] at most.
pub const MAX_RANGES: usize = 32;

/// Processes that can exit at the same time and be looked at.
pub const EXITS: usize = 32;

/// What a [`StackRecord`] tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Kind {
    /// An allocation.
    Allocation = 0,
    /// An allocation whose end will not be reported, for want of space in the library's table.
    Untracked = 1,
    /// A process begins to be sampled. `size` is a number of pairs of addresses, begin and end,
    /// which stand in place of the stack: functions that call the allocator for others, such as
    /// `operator new`.
    Process = 2,
}

/// The ring of sampled allocations.
#[repr(C, align(64))]
pub struct Stacks {
    /// Position of the next record.
    pub next: AtomicU64,
    /// Records that found no space.
    pub lost: AtomicU64,
    /// Bytes of these allocations.
    pub lost_bytes: AtomicU64,
    _apart: [u64; 5],
    /// What is before this position may be written over. The reader's.
    pub read: AtomicU64,
}

/// The queue of ends of allocations.
#[repr(C, align(64))]
pub struct Frees {
    /// Position of the next record.
    pub next: AtomicU64,
    /// Records that found no slot.
    pub lost: AtomicU64,
}

/// What the word of a granule says: the low half of the position of the record that begins there,
/// how many granules it has, and its state.
pub mod granule {
    /// Its writer is at work.
    pub const RESERVED: u64 = 1 << 56;
    /// It can be read.
    pub const READY: u64 = 2 << 56;
    /// There is nothing in it: the ring ends behind it, or what follows is retired.
    pub const SKIPPED: u64 = 3 << 56;
    /// Its writer has not come back yet. This holds for all laps.
    pub const RETIRED: u64 = 4 << 56;
    /// The same, but it can be read by now.
    pub const LATE: u64 = 5 << 56;
    /// The same, and it has been read. Its granules stay unused: a writer that has passed over them,
    /// and one that has not, must agree.
    #[allow(dead_code, reason = "the reader's")]
    pub const DONE: u64 = 6 << 56;
    /// The bits of these.
    pub const STATE: u64 = 0xff << 56;

    /// The word of a record.
    pub fn word(position: u64, granules: u64, state: u64) -> u64 {
        state | (granules & 0xff_ffff) << 32 | (position & 0xffff_ffff)
    }

    /// How many granules it has.
    pub fn count(word: u64) -> u64 {
        word >> 32 & 0xff_ffff
    }

    /// The word is that of a record at a position.
    pub fn is_at(word: u64, position: u64) -> bool {
        (word ^ position) & 0xffff_ffff == 0 && word & STATE != 0
    }

    /// Others pass over these granules.
    pub fn is_retired(word: u64) -> bool {
        matches!(word & STATE, RETIRED | LATE | DONE)
    }
}

/// The beginning of the shared file.
#[repr(C, align(4096))]
pub struct Header {
    /// [`MAGIC`].
    pub magic: u64,
    /// Mean distance of samples, in bytes; 1: each allocation.
    pub interval: u64,
    /// 1 as long as prof records.
    pub active: AtomicU32,
    /// 1: anonymous mappings count as allocations. What is unmapped in part, other than at its
    /// beginning, or moved (`mremap`), stays in use.
    pub mappings: u32,
    /// Names of sampled allocations, over all processes; 0 is none.
    pub next_id: AtomicU64,
    /// Names up to this are those of an earlier recording.
    pub first_id: u64,
    /// Granules of the ring that are used: a power of two.
    pub granules: u64,
    /// Granules in use up to which the distance of samples is the interval, and with each how many
    /// more it doubles.
    pub pace_from: u64,
    /// See [`Header::pace_from`].
    pub pace: u64,
    /// Sampled allocations that are tracked and that prof has not seen the end of.
    pub live: AtomicI64,
    /// Number of the next process that says who it is; 0 is none.
    pub next_process: AtomicU32,
    /// Programs into which the library was loaded.
    pub loaded: AtomicU64,
    /// 1: a process that exits lets prof look at its memory before.
    pub leaks: AtomicU32,
    /// Processes that do.
    pub exits: [ExitSlot; EXITS],
    /// Allocations.
    pub stacks: Stacks,
    /// Their end.
    pub frees: Frees,
}

/// A process that exits, and waits for prof to have looked at its memory.
#[repr(C, align(64))]
pub struct ExitSlot {
    /// One of [`exit`]'s states, with the asker's name above [`exit::STATE`].
    pub state: AtomicU64,
    /// Process.
    pub pid: AtomicI32,
    /// The thread that exits; 0: not known.
    pub tid: AtomicI32,
    /// Its stack pointer; what it keeps in registers lies above.
    pub sp: AtomicU64,
    /// Where its control block is (`fs`).
    pub fs: AtomicU64,
    /// Where the table of sampled addresses is.
    pub table: AtomicU64,
    /// Where the shared file is mapped.
    pub shared: AtomicU64,
    /// When it asked: `CLOCK_MONOTONIC`, nanoseconds.
    pub time: AtomicU64,
}

/// How a process that exits and prof speak: the process takes a free slot, fills it and asks; prof
/// looks, and frees it. Who has waited for [`exit::PATIENCE`] frees it, too, and goes on: what prof
/// has found by then counts for nothing.
pub mod exit {
    /// Nobody's.
    pub const FREE: u64 = 0;
    /// Being filled.
    pub const TAKEN: u64 = 1;
    /// Prof has not seen it yet.
    pub const ASKED: u64 = 2;
    /// Prof looks, and the process may sleep meanwhile.
    pub const LOOKED_AT: u64 = 3;
    /// Prof looks, but to make a system call might end the process, as seccomp confines it.
    pub const CONFINED: u64 = 4;
    /// The bits of these.
    pub const STATE: u64 = 7;

    /// Nanoseconds that a process waits at most.
    pub const PATIENCE: u64 = 1_000_000_000;
}

/// A sampled allocation; the stack follows, from the stack pointer upwards.
#[repr(C, align(64))]
#[derive(Clone, Copy, Debug, Default)]
pub struct StackRecord {
    /// Its name.
    pub id: u64,
    /// `CLOCK_MONOTONIC`, nanoseconds.
    pub time: u64,
    /// Address that the program got.
    pub address: u64,
    /// Bytes that it asked for.
    pub size: u64,
    /// Mean distance of samples that it was taken with, in bytes; 1: each allocation.
    pub interval: u64,
    /// Number under which the process said who it is; 0: it could not.
    pub process: u32,
    /// Process, as it sees itself.
    pub pid: i32,
    /// Thread, as it sees itself.
    pub tid: i32,
    /// A [`Kind`].
    pub kind: u32,
    /// Bytes of the stack.
    pub length: u32,
    /// Not used.
    pub rest: u32,
    /// The registers at the call of the allocating function, see [`register`]. `ip` lies in the
    /// call, `sp` is what it is before the call.
    pub registers: [u64; 8],
}

/// The end of a sampled allocation.
#[repr(C, align(32))]
pub struct FreeSlot {
    /// Whose turn it is, see above.
    pub turn: AtomicU64,
    /// Name of the allocation.
    pub id: AtomicU64,
    /// `CLOCK_MONOTONIC`, nanoseconds.
    pub time: AtomicU64,
    /// Number under which the process said who it is, and above 1: by the thread that allocated it,
    /// before it allocated anything else.
    pub process: AtomicU32,
    /// Process, as it sees itself.
    pub pid: AtomicI32,
}

/// The bit of [`FreeSlot::process`] that says that the allocation was temporary.
pub const TEMPORARY: u32 = 1 << 31;

/// Places in [`StackRecord::registers`].
pub mod register {
    /// `rbx`
    pub const BX: usize = 0;
    /// `rbp`
    pub const BP: usize = 1;
    /// `rsp`
    pub const SP: usize = 2;
    /// `rip`
    pub const IP: usize = 3;
    /// `r12`; `r13` to `r15` follow.
    pub const R12: usize = 4;
}

/// Where the words of the granules begin, in bytes.
pub const WORDS_AT: usize = size_of::<Header>();
/// Where the slots of frees begin.
pub const FREES_AT: usize = WORDS_AT + GRANULES as usize * size_of::<AtomicU64>();
/// Where the ring begins.
pub const RING_AT: usize = FREES_AT + FREES * size_of::<FreeSlot>();
/// Where the pages begin by which processes say who they are.
pub const PROCESSES_AT: usize = RING_AT + GRANULES as usize * GRANULE;
/// Bytes of the file.
pub const FILE_SIZE: usize = PROCESSES_AT + PROCESS_PAGES * PAGE;

const _: () = assert!(size_of::<Header>() == 4096 && size_of::<FreeSlot>() == 32);
const _: () = assert!(size_of::<StackRecord>() == 128 && RING_AT.is_multiple_of(4096));
