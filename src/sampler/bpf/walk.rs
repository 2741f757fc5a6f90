//! Walks over frames of interpreters, in the interrupt that takes a sample.
//!
//! The program that runs at a sample ([`deep`](super::deep)), or that writes one
//! ([`stack_parts`](super::stack_parts)), looks up the walks of the process, as data, and copies what
//! they describe into a ring buffer. A copy belongs to the sample with the same time, thread, stack
//! pointer and instruction pointer. A sample that a program writes has a later time than the copy: its
//! record has the copy's. The copy is made while the thread is interrupted, or in the kernel: frames
//! that are read later are other ones.
//!
//! [`interpreters::walk::run`] is the model of the program, and [`interpreters`] has the meaning of
//! the bytes.

mod encoded;
mod forks;
mod new_code;
pub(super) mod program;
mod ring;

use std::io;
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};

use interpreters::walk::{WalkCopy, WalkDescriptor};

use super::btf::Btf;
use super::deep::ring::{CopyRing, Undelivered};
use super::number;
use super::syscall::{EntrySize, Map, MapKind};
use crate::sampler::arch;
use encoded::{WALKS_SIZE, encode};
use forks::WalkForks;
use new_code::SLOTS_SIZE;
use program::{MEMORY_SIZE, WalkProgram};
use ring::WalkRecord;
pub use ring::{read_code, read_copies, walked};
use sys::procfs;
use sys::record::{Sample, UserStack};

/// Limit for the time to walk in a thread that always has this many frames, in nanoseconds per
/// second, and the cost of a frame of which this many blocks are read. A walk with more blocks has fewer
/// frames.
const SHARE: u64 = 30_000_000;
const NANOS_PER_FRAME: u64 = 240;
const BLOCKS: u32 = 3;

/// Largest number of frames of a walk.
pub const MOST_FRAMES: u32 = 4096;

/// Maximum number of processes with walks.
const MAX_PROCESSES: u32 = 1 << 14;

/// Nanoseconds from a copy to the sample that a program writes after it, at most: two walks take less
/// than 2 ms, and a virtual machine's CPU may pause. A sample without its copy has native frames.
const LAG: u64 = 20_000_000;

/// Bytes of the ring for each CPU, and in total.
const RING_OF_CPU: usize = 4 << 20;
const RINGS: std::ops::RangeInclusive<usize> = (8 << 20)..=(64 << 20);

/// Largest number of frames of the walks at events with this sampling rate (0: unknown), at least
/// 16.
pub fn most_frames(hertz: u64) -> u32 {
    let hertz = if hertz == 0 { 4000 } else { hertz };
    (SHARE / NANOS_PER_FRAME / hertz).clamp(16, MOST_FRAMES.into()) as u32
}

/// A walk at a sample.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Walked {
    /// Time of the sample.
    pub time: u64,
    /// Its process, in the kernel's PID namespace.
    pub pid: i32,
    /// Its thread, as well.
    pub tid: i32,
    /// Instruction pointer in user mode.
    pub ip: u64,
    /// Stack pointer in user mode.
    pub sp: u64,
    /// The number that the process's walks were given.
    pub id: u64,
    /// Number of the walk among them.
    pub walk: usize,
    /// Nanoseconds that it took.
    pub took: u64,
    /// What it copied.
    pub copy: WalkCopy,
}

/// Memory of each CPU for programs of which one runs at a time.
#[derive(Debug)]
pub struct CpuMemory(Map);

impl CpuMemory {
    /// Allocates it.
    ///
    /// # Errors
    ///
    /// There is not enough memory, or the user lacks the privilege.
    pub fn new() -> io::Result<CpuMemory> {
        Map::new(MapKind::PerCpuArray, EntrySize::by_number(MEMORY_SIZE), 1).map(CpuMemory)
    }
}

/// The walks of processes, and what the programs use.
#[derive(Debug)]
pub struct WalkMaps {
    processes: Map,
    /// The CPUs' memory of programs at perf events.
    memory: CpuMemory,
    /// Hashes of code that was copied.
    slots: Map,
    lost: Map,
    ring: Map,
    ring_size: usize,
    /// Offset of the frame pointer in `pt_regs`.
    frame_pointer: i16,
    /// Largest number of frames of a walk.
    most: AtomicU32,
    /// Gives walks to forked processes, once a process has had walks; `None`: it cannot.
    forks: OnceLock<Option<WalkForks>>,
}

impl WalkMaps {
    /// For walks of at most this many frames. There are no processes yet.
    ///
    /// # Errors
    ///
    /// This kernel is too old, or the user lacks the privilege.
    pub fn new(most: u32) -> io::Result<WalkMaps> {
        let (field, offset) = arch::FRAME_POINTER;
        let frame_pointer = Btf::running()?.field("pt_regs", &[field])? + offset;
        let size = (RING_OF_CPU * procfs::online_cpus().len()).clamp(*RINGS.start(), *RINGS.end());
        let ring_size = size.next_power_of_two();
        Ok(WalkMaps {
            processes: Map::new(MapKind::Hash, EntrySize::by_number(WALKS_SIZE), MAX_PROCESSES)?,
            memory: CpuMemory::new()?,
            slots: Map::new(MapKind::Mapped, EntrySize::by_number(SLOTS_SIZE), 1)?,
            lost: Map::new(MapKind::PerCpuArray, EntrySize::by_number(8), 1)?,
            ring: Map::new(MapKind::Ring, EntrySize { key: 0, value: 0 }, ring_size as u32)?,
            ring_size,
            frame_pointer,
            most: AtomicU32::new(most.min(MOST_FRAMES)),
            forks: OnceLock::new(),
        })
    }

    /// Walks of processes that are set from now on have at most this many frames.
    pub fn set_most(&self, most: u32) {
        self.most.store(most.min(MOST_FRAMES), Ordering::Relaxed);
    }

    /// Sets the walks of a process, by its PID in the kernel's namespace, and of those that it forks from
    /// then on. Each copy has `id`: an executable that replaces another one has other walks.
    ///
    /// # Errors
    ///
    /// `InvalidInput`: a walk exceeds the limits, or there are too many. `E2BIG`: there are too many
    /// processes.
    pub fn set(&self, pid: i32, id: u64, walks: &[WalkDescriptor]) -> io::Result<()> {
        let value = encode(id, walks, self.most.load(Ordering::Relaxed))
            .ok_or(io::ErrorKind::InvalidInput)?;
        self.processes.set(&pid.to_ne_bytes(), &value)?;
        self.forks.get_or_init(|| WalkForks::follow(&self.processes).ok());
        Ok(())
    }

    /// True if a process had walks.
    pub fn is_used(&self) -> bool {
        self.forks.get().is_some()
    }

    /// Removes the walks of a process.
    pub fn remove(&self, pid: i32) {
        self.processes.remove(&pid.to_ne_bytes());
    }

    /// Number of samples whose copies are missing, at least in part: the ring had no room.
    pub fn lost(&self) -> u64 {
        let cpus = procfs::possible_cpus();
        let mut values = vec![0; 8 * cpus];
        match self.lost.get(&0_u32.to_ne_bytes(), &mut values, cpus) {
            Ok(()) => values.chunks_exact(8).filter_map(|cpu| number(cpu, 0)).sum(),
            Err(_) => 0,
        }
    }

    /// The part of a perf event's program that walks.
    pub(super) fn program(&self) -> WalkProgram<'_> {
        self.program_with(&self.memory)
    }

    /// The part of a program that walks. A perf event may interrupt it, so other programs need
    /// memory of their own.
    pub(super) fn program_with<'a>(&'a self, memory: &'a CpuMemory) -> WalkProgram<'a> {
        WalkProgram {
            processes: &self.processes,
            memory: &memory.0,
            slots: &self.slots,
            lost: &self.lost,
            ring: &self.ring,
            ring_size: self.ring_size as u32,
            frame_pointer: self.frame_pointer,
        }
    }
}

/// The ring with the copies, and their assignment to samples.
#[derive(Debug)]
pub struct Walks {
    maps: Arc<WalkMaps>,
    ring: CopyRing,
    undelivered: Undelivered<WalkRecord>,
    /// Records of the last sample, one behind the other.
    last: Vec<u8>,
}

impl Walks {
    /// Maps the ring.
    ///
    /// # Errors
    ///
    /// There is not enough memory.
    pub fn new(maps: Arc<WalkMaps>) -> io::Result<Walks> {
        let ring = CopyRing::map(&maps.ring, maps.ring_size)?;
        Ok(Walks { maps, ring, undelivered: Undelivered::default(), last: Vec::new() })
    }

    /// What is shared with those who know the processes.
    pub fn maps(&self) -> &Arc<WalkMaps> {
        &self.maps
    }

    /// The ring.
    pub fn fd(&self) -> RawFd {
        self.maps.ring.fd()
    }

    /// True if a quarter or more of the ring is used.
    pub fn is_filling(&self) -> bool {
        self.ring.is_filling()
    }

    /// Reads the positions in the ring. To be called after the samples are in their rings: a copy is
    /// written before its sample.
    pub fn refresh(&mut self) {
        self.undelivered.refresh(&self.ring, WalkRecord::parse);
    }

    /// Releases everything before this time, whose samples were delivered, but copies to which a
    /// sample of a later time may belong.
    pub fn release(&mut self, time: u64) {
        self.undelivered.release(&self.ring, time.saturating_sub(LAG));
    }

    /// The records of a sample, one behind the other; empty if it has none. `copied` is the time at
    /// which the program that wrote the sample has walked; `None`: the kernel wrote it. To be called
    /// in order of the samples' time.
    pub fn records(&mut self, sample: &Sample<'_>, copied: Option<u64>) -> &[u8] {
        self.last.clear();
        self.release(sample.time);
        let UserStack::Native { regs, .. } = sample.user else { return &[] };
        let thread = (sample.tid as u64, regs.sp, regs.ip);
        for record in self.undelivered.at(copied.unwrap_or(sample.time)) {
            if (record.tid, record.sp, record.ip) != thread {
                continue;
            }
            self.last.extend_from_slice(self.ring.bytes(record.at, record.length));
        }
        &self.last
    }

    /// Takes all copies whose interrupts are over, by time and thread, and copies of new code.
    #[cfg(test)]
    pub fn take(&mut self, mut each: impl FnMut(Walked), mut code: impl FnMut(ring::NewCode<'_>)) {
        /// Nanoseconds after which a program that has begun has ended.
        const OVER: u64 = 2_000_000;
        let until = sys::os::monotonic_nanos() - OVER;
        self.refresh();
        let is_same_sample = |a: &WalkRecord, b: &WalkRecord| (a.time, a.tid) == (b.time, b.tid);
        for records in self.undelivered.all().chunk_by(is_same_sample) {
            if records[0].time < until {
                let bytes = records.iter().map(|r| self.ring.bytes(r.at, r.length));
                let bytes = bytes.collect::<Vec<_>>().concat();
                walked(&bytes).for_each(&mut each);
                read_code(&bytes, 0).for_each(&mut code);
            }
        }
        self.release(until + LAG);
    }
}

#[cfg(test)]
mod tests;
