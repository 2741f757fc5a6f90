//! What the library and prof share: the layout of the memory through which sampled allocations
//! reach prof. This file is part of both.
//!
//! A shared file holds a [`Header`], then [`STACKS`] slots of [`StackSlot`] and [`FREES`] slots
//! of [`FreeSlot`]. Each kind of slots is a queue of many writers and one reader, as Dmitry
//! Vyukov's bounded queue: position `p` uses slot `p % n`; a writer may take it when its `turn`
//! is `p`, and hands it over by setting `p + 1`; the reader gives it back by setting `p + n`.
//! A writer that never hands over (its process was killed meanwhile) costs one slot: the reader
//! marks it [`LOST`] after a while, and everybody passes over it.
//!
//! Nobody waits for anybody: where no slot is free, the record is not written and counted.

use core::sync::atomic::{AtomicI32, AtomicU32, AtomicU64};

/// What [`Header::magic`] says, with the version of this layout.
pub const MAGIC: u64 = u64::from_le_bytes(*b"profhp02");

/// Bytes of stack that are copied at most: as many as the kernel copies of a sampled thread.
pub const MAX_STACK: usize = 65_528;

/// Slots for sampled allocations.
pub const STACKS: usize = 1024;

/// Slots for the end of those.
pub const FREES: usize = 32 << 10;

/// `turn` of a slot whose writer never came back.
pub const LOST: u64 = u64::MAX;

/// The environment's variable that says where the shared file is, and how long that may be.
pub const VARIABLE: &str = "PROF_HEAP_RING";
/// See [`VARIABLE`].
pub const MAX_PATH: usize = 256;

/// Nanoseconds after which a prof that does not look any more is taken for dead.
pub const DEAD: u64 = 60_000_000_000;

/// Ranges of code in a record of kind [`Kind::Process`] at most.
pub const MAX_RANGES: usize = 32;

/// Processes that can exit at the same time and be looked at.
pub const EXITS: usize = 32;

/// What a [`StackSlot`] tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Kind {
    /// An allocation.
    Allocation = 0,
    /// An allocation whose end will not be told, for want of space in the library's table.
    Untracked = 1,
    /// A process begins to be sampled. `size` is a number of pairs of addresses, begin and end,
    /// which stand in place of the stack: functions that call the allocator for others, such as
    /// `operator new`.
    Process = 2,
}

/// One end of a queue.
#[repr(C, align(64))]
pub struct Head {
    /// Position of the next record.
    pub next: AtomicU64,
    /// Records that found no slot.
    pub lost: AtomicU64,
    /// Bytes of these allocations.
    pub lost_bytes: AtomicU64,
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
    /// When prof looked here last (`CLOCK_MONOTONIC`, nanoseconds).
    pub beat: AtomicU64,
    /// Programs into which the library was loaded.
    pub loaded: AtomicU64,
    /// 1: a process that exits lets prof look at its memory before.
    pub leaks: AtomicU32,
    /// Processes that do.
    pub exits: [ExitSlot; EXITS],
    /// Allocations.
    pub stacks: Head,
    /// Their end.
    pub frees: Head,
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

/// A sampled allocation.
#[repr(C, align(64))]
pub struct StackSlot {
    /// Whose turn it is, see above.
    pub turn: AtomicU64,
    /// Its name.
    pub id: u64,
    /// `CLOCK_MONOTONIC`, nanoseconds.
    pub time: u64,
    /// Address that the program got.
    pub address: u64,
    /// Bytes that it asked for.
    pub size: u64,
    /// Process.
    pub pid: i32,
    /// Thread.
    pub tid: i32,
    /// A [`Kind`].
    pub kind: u32,
    /// Bytes of `stack` that are used, from the stack pointer upwards.
    pub length: u32,
    /// The registers at the call of the allocating function, in the kernel's order: ax, bx, cx,
    /// dx, si, di, bp, sp, ip, r8 to r15; those that a callee may change are 0. `ip` lies in the
    /// call, `sp` is what it is before the call.
    pub registers: [u64; 17],
    /// The stack.
    pub stack: [u8; MAX_STACK],
}

/// The end of a sampled allocation.
#[repr(C, align(32))]
pub struct FreeSlot {
    /// Whose turn it is, see above.
    pub turn: AtomicU64,
    /// Name of the allocation.
    pub id: u64,
    /// `CLOCK_MONOTONIC`, nanoseconds.
    pub time: u64,
    /// Process.
    pub pid: i32,
    /// 1: by the thread that allocated it, before it allocated anything else.
    pub temporary: u32,
}

/// Places in [`StackSlot::registers`].
pub mod register {
    /// `rbx`
    pub const BX: usize = 1;
    /// `rbp`
    pub const BP: usize = 6;
    /// `rsp`
    pub const SP: usize = 7;
    /// `rip`
    pub const IP: usize = 8;
    /// `r12`; `r13` to `r15` follow.
    pub const R12: usize = 13;
}

/// Where the slots of allocations begin, in bytes.
pub const STACKS_AT: usize = size_of::<Header>();
/// Where the slots of frees begin.
pub const FREES_AT: usize = STACKS_AT + STACKS * size_of::<StackSlot>();
/// Bytes of the file.
pub const FILE_SIZE: usize = FREES_AT + FREES * size_of::<FreeSlot>();

const _: () = assert!(size_of::<Header>() == 4096 && size_of::<FreeSlot>() == 32);
