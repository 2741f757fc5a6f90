//! Walks over frames of interpreters, in the interrupt that takes a sample.
//!
//! The program that runs at a sample ([`deep`](super::deep)) looks up the walks of the process, as
//! data, and copies what they describe into a ring buffer. A copy belongs to the sample with the same
//! time, thread, stack pointer and instruction pointer. It is made while the thread is interrupted:
//! frames that are read later are other ones.
//!
//! [`interpreters::walk::run`] is the model of the program, and [`interpreters`] has the meaning of
//! the bytes.

mod encoded;
pub(super) mod program;
mod ring;

use std::io;

use interpreters::walk::{WalkCopy, WalkDescriptor};

use super::btf::Btf;
use super::deep::ring::{CopyRing, SlotState};
use super::number;
use super::syscall::{EntrySize, Map, MapKind};
use crate::sampler::arch;
use encoded::{WALKS_SIZE, encode};
use program::{MEMORY_SIZE, WalkProgram};
use ring::Parts;
use sys::procfs;

/// Limit for the time to walk in a thread that always has this many frames, in nanoseconds per
/// second, and the cost of a frame with a block behind it.
const SHARE: u64 = 25_000_000;
const NANOS_PER_FRAME: u64 = 200;

/// Largest number of frames of a walk.
const MOST_FRAMES: u32 = 4096;

/// Maximum number of processes with walks.
const MAX_PROCESSES: u32 = 1 << 14;

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

/// The walks of processes, and the ring with the copies that are made.
#[derive(Debug)]
pub struct Walks {
    processes: Map,
    memory: Map,
    lost: Map,
    map: Map,
    ring: CopyRing,
    /// Offset of the frame pointer in `pt_regs`.
    frame_pointer: i16,
    most: u32,
    parts: Parts,
}

impl Walks {
    /// Creates the ring, for walks of at most this many frames. There are no processes yet.
    ///
    /// # Errors
    ///
    /// This kernel is too old, or the user lacks the privilege.
    pub fn new(most: u32) -> io::Result<Walks> {
        let (field, offset) = arch::FRAME_POINTER;
        let frame_pointer = Btf::running()?.field("pt_regs", &[field])? + offset;
        let size = (RING_OF_CPU * procfs::online_cpus().len()).clamp(*RINGS.start(), *RINGS.end());
        let size = size.next_power_of_two();
        let map = Map::new(MapKind::Ring, EntrySize { key: 0, value: 0 }, size as u32)?;
        let ring = CopyRing::map(&map, size)?;
        Ok(Walks {
            processes: Map::new(MapKind::Hash, EntrySize::by_number(WALKS_SIZE), MAX_PROCESSES)?,
            memory: Map::new(MapKind::PerCpuArray, EntrySize::by_number(MEMORY_SIZE), 1)?,
            lost: Map::new(MapKind::PerCpuArray, EntrySize::by_number(8), 1)?,
            map,
            ring,
            frame_pointer,
            most: most.min(MOST_FRAMES),
            parts: Parts::default(),
        })
    }

    /// Sets the walks of a process, by its PID in the kernel's namespace. Each copy has `id`: an
    /// executable that replaces another one has other walks.
    ///
    /// # Errors
    ///
    /// `InvalidInput`: a walk exceeds the limits, or there are too many. `E2BIG`: there are too many
    /// processes.
    pub fn set(&self, pid: i32, id: u64, walks: &[WalkDescriptor]) -> io::Result<()> {
        let value = encode(id, walks, self.most).ok_or(io::ErrorKind::InvalidInput)?;
        self.processes.set(&pid.to_ne_bytes(), &value)
    }

    /// Removes the walks of a process.
    pub fn remove(&self, pid: i32) {
        self.processes.remove(&pid.to_ne_bytes());
    }

    /// Takes all copies that are complete from the ring, in the order of its records.
    pub fn take(&mut self, mut each: impl FnMut(Walked)) {
        let mut position = self.ring.read_to();
        let end = self.ring.written_to();
        while position < end {
            let (state, at, length, next) = self.ring.record(position);
            match state {
                SlotState::Busy => break,
                SlotState::Discarded => {}
                SlotState::Done => {
                    self.parts.add(self.ring.bytes(at, length)).into_iter().for_each(&mut each);
                }
            }
            position = next;
        }
        self.ring.release(position);
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

    /// The part of a program that walks.
    pub(super) fn program(&self) -> WalkProgram<'_> {
        WalkProgram {
            processes: &self.processes,
            memory: &self.memory,
            lost: &self.lost,
            ring: &self.map,
            ring_size: self.ring.size() as u32,
            frame_pointer: self.frame_pointer,
        }
    }
}

#[cfg(test)]
mod tests;
