//! Stacks beyond the kernel's copy, read in the same interrupt.
//!
//! The kernel copies less than 64 KiB of a stack with a sample, and stops at the first page that is
//! not present: a buffer that was never written to is enough. A BPF program that runs in the same
//! interrupt, before the sample is written, copies the rest into a ring buffer. A copy belongs to
//! the sample with the same time, thread, stack pointer and instruction pointer, and has to equal
//! the kernel's copy where both overlap; otherwise it is not used. There is no other way: memory
//! that is read after the interrupt has changed undetectably.

#![allow(unsafe_code)]

mod program;
pub(super) mod ring;
mod session;

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::Arc;

use perf_event_open_sys::ioctls;

use super::btf::Btf;
use super::filter::SampleFilter;
use super::number;
use super::syscall::{self, EntrySize, Map, MapKind};
use super::walk::WalkMaps;
use program::{DeepProgram, Kernel, LoopEnd};
use ring::{CopyRecord, CopyRing, Undelivered};
pub use session::DeepStacks;
use sys::procfs;
use sys::record::{Chunk, GoStacks, Rest, Sample, UserStack};

/// Bytes of a stack in one record of the ring.
const CHUNK: u32 = 32 << 10;

/// Maximum number of bytes that are copied of a stack.
///
/// The verifier follows each iteration of the program's loop: 88 of 32 KiB are accepted, 128 are
/// too many.
const DEEPEST: u32 = 2 << 20;

/// Maximum number of chunks of a stack.
const MAX_CHUNKS: usize = (DEEPEST / CHUNK) as usize;

/// Memory for the chunks of a stack; `None`: there are none so far.
pub type StackChunks<'a> = Option<[Chunk<'a>; MAX_CHUNKS]>;

/// Index of a record that has replaced return addresses instead of a chunk.
const REPLACED: u64 = 1 << 16;

/// Index of a record that has the other stack of a thread of Go.
const GO_STACK: u64 = 1 << 17;

/// Maximum number of replaced return addresses of a stack.
const MAX_REPLACED: usize = 16;

/// Limit for the time to copy the stacks of a thread that are always this deep, in nanoseconds per
/// second, and the cost of a KiB (measured: 0.09 µs).
const SHARE: u64 = 25_000_000;
const NANOS_PER_KIB: u64 = 90;

/// Bytes of the ring for each CPU, and in total.
const RING_OF_CPU: usize = 8 << 20;
const RINGS: std::ops::RangeInclusive<usize> = (16 << 20)..=(128 << 20);

/// Offsets in the header of a record, in bytes.
mod header {
    /// The time of the sample.
    pub const TIME: i16 = 0;
    /// Its thread, in the kernel's PID namespace.
    pub const TID: i16 = 8;
    /// Stack pointer and instruction pointer in user mode.
    pub const SP: i16 = 16;
    pub const IP: i16 = 24;
    /// Address of the first byte, and number of bytes.
    pub const FROM: i16 = 32;
    pub const LENGTH: i16 = 40;
    /// A bit for each page that was not present.
    pub const HOLES: i16 = 48;
    /// Index of the chunk in its stack.
    pub const INDEX: i16 = 56;
    /// Size of the header.
    pub const SIZE: usize = 64;
}

/// Maximum number of bytes to copy of the stacks of events with this sampling rate (0: unknown), or
/// `None` if the rate is too high to copy any.
pub fn cap(hertz: u64) -> Option<u32> {
    let hertz = if hertz == 0 { 4000 } else { hertz };
    let bytes = (SHARE / NANOS_PER_KIB / hertz).saturating_mul(1024);
    let cap = bytes.min(u64::from(DEEPEST)) as u32 / CHUNK * CHUNK;
    (cap > 0).then_some(cap)
}

/// A chunk in the ring.
#[derive(Clone, Copy, Debug)]
struct DeepEntry {
    time: u64,
    tid: u64,
    sp: u64,
    ip: u64,
    from: u64,
    index: u64,
    length: usize,
    holes: u8,
    /// Offset of its record in the data.
    at: usize,
}

impl DeepEntry {
    fn parse(record: &[u8], at: usize) -> Option<DeepEntry> {
        let number = |field| number(record, field);
        Some(DeepEntry {
            time: number(header::TIME)?,
            tid: number(header::TID)?,
            sp: number(header::SP)?,
            ip: number(header::IP)?,
            from: number(header::FROM)?,
            index: number(header::INDEX)?,
            length: number(header::LENGTH)? as usize,
            holes: number(header::HOLES)? as u8,
            at,
        })
    }
}

impl CopyRecord for DeepEntry {
    type Order = (u64, u64, u64, u64);

    fn time(&self) -> u64 {
        self.time
    }

    fn order(&self) -> Self::Order {
        (self.time, self.tid, self.sp, self.index)
    }
}

/// Counts of deep stacks that were not completed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeepStackCounts {
    /// Because the ring had no room for them.
    pub lost: u64,
    /// Because the copy differed from the kernel's copy.
    pub differed: u64,
}

/// The programs, and the ring that they write to.
#[derive(Debug)]
pub struct Deep {
    kernel: Kernel,
    map: Map,
    lost: Map,
    ring: CopyRing,
    cap: u32,
    /// The program for each size of the kernel's copy.
    programs: Vec<(u32, OwnedFd)>,
    /// Chunks in the ring by time, thread and index.
    entries: Undelivered<DeepEntry>,
    /// True if samples use the thread IDs of the kernel's PID namespace.
    same_numbers: bool,
    counts: DeepStackCounts,
    /// Walks over frames of interpreters at the same samples.
    walks: Option<Arc<WalkMaps>>,
    /// Programs may have the loops that walks need.
    has_may_goto: bool,
}

impl Deep {
    /// Creates the ring for stacks of this size; programs are loaded when events need them.
    ///
    /// # Errors
    ///
    /// This kernel is too old, or the user lacks the privilege.
    pub fn new(cap: u32) -> io::Result<Deep> {
        let kernel = Kernel::find(Btf::running()?.as_ref())?;
        let cpus = procfs::online_cpus().len();
        let size = (RING_OF_CPU * cpus).clamp(*RINGS.start(), *RINGS.end()).next_power_of_two();
        let map = Map::new(MapKind::Ring, EntrySize { key: 0, value: 0 }, size as u32)?;
        let lost = Map::new(MapKind::PerCpuArray, EntrySize::by_number(8), 1)?;
        let ring = CopyRing::map(&map, size)?;
        Ok(Deep {
            kernel,
            map,
            lost,
            ring,
            cap,
            programs: Vec::new(),
            entries: Undelivered::default(),
            same_numbers: procfs::is_first_pid_namespace(),
            counts: DeepStackCounts::default(),
            walks: None,
            has_may_goto: true,
        })
    }

    /// Programs that are attached from now on walk over frames of interpreters, too, if the kernel
    /// has what limits their loops (Linux 6.9).
    pub fn set_walks(&mut self, walks: Arc<WalkMaps>) {
        self.walks = Some(walks);
    }

    /// Attaches the program to an event that copies `dump` bytes of the stack, and to those that
    /// inherit it; `of`: for samples of these processes only, the same for all events. The event
    /// must not be enabled yet.
    ///
    /// # Errors
    ///
    /// The user lacks the privilege, this kernel rejects the program, or the event does not support
    /// programs.
    pub fn attach(
        &mut self,
        event: RawFd,
        dump: u32,
        filter: Option<&SampleFilter>,
    ) -> io::Result<()> {
        let known = self.programs.iter().position(|(size, _)| *size == dump);
        let at = match known {
            Some(at) => at,
            None => {
                let processes = filter.map(SampleFilter::processes);
                let load = |end| {
                    syscall::load_for_samples("prof_deep", &self.program(dump, processes, end))
                };
                let newest = load(LoopEnd::MayGoto);
                let has_may_goto = newest.is_ok();
                let program = newest.or_else(|_| load(LoopEnd::Counter))?;
                self.has_may_goto &= has_may_goto;
                self.programs.push((dump, program));
                self.programs.len() - 1
            }
        };
        let program = self.programs[at].1.as_raw_fd();
        // SAFETY: both descriptors are open; the call only links them.
        match unsafe { ioctls::SET_BPF(event, program as u32) } {
            0.. => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    fn program(&self, dump: u32, processes: Option<&Map>, end: LoopEnd) -> Vec<u64> {
        let ring = &self.map;
        let ring_size = self.ring.size() as u32;
        let lost = &self.lost;
        let kernel = &self.kernel;
        let cap = self.cap;
        // The verifier would follow each round of their loops.
        let walks = self.walks.as_ref().filter(|_| end == LoopEnd::MayGoto);
        let walks = walks.map(|maps| maps.program());
        DeepProgram { ring, ring_size, lost, kernel, dump, cap, processes, walks, end }.program()
    }

    /// The ring.
    pub fn ring(&self) -> RawFd {
        self.map.fd()
    }

    /// True if the programs that are attached walk over frames of interpreters.
    pub fn walks(&self) -> bool {
        self.walks.is_some() && self.has_may_goto
    }

    /// True if a quarter or more of the ring is used.
    pub fn is_filling(&self) -> bool {
        self.ring.is_filling()
    }

    /// Reads the positions in the ring. To be called after the samples are in their rings: a chunk
    /// is written before its sample.
    pub fn refresh(&mut self) {
        self.entries.refresh(&self.ring, DeepEntry::parse);
    }

    /// Releases everything before this time, whose samples were delivered.
    pub fn release(&mut self, time: u64) {
        self.entries.release(&self.ring, time);
    }

    /// True if a chunk exists for a sample of this time; to be called in order of time.
    pub fn has(&mut self, time: u64) -> bool {
        self.release(time);
        self.entries.at(time).next().is_some()
    }

    /// The part of the stack beyond the copy in this sample, in `chunks`; empty if the match is not
    /// certain.
    pub fn rest<'s>(
        &'s mut self,
        sample: &Sample<'_>,
        chunks: &'s mut StackChunks<'s>,
    ) -> Rest<'s> {
        let chunks = chunks.insert([Chunk::default(); MAX_CHUNKS]);
        let UserStack::Native { regs, bytes, .. } = sample.user else { return Rest::default() };
        let is_it = |entry: &DeepEntry| {
            let same = (entry.time, entry.sp, entry.ip) == (sample.time, regs.sp, regs.ip);
            same && (!self.same_numbers || entry.tid == sample.tid as u64)
        };
        let mut replaced: &[u8] = &[];
        let mut go = GoStacks::default();
        let mut used = 0;
        let mut first = 0;
        let mut tid = None;
        for entry in self.entries.at(sample.time).filter(|entry| is_it(entry)) {
            let tid = *tid.get_or_insert(entry.tid);
            if entry.index == REPLACED && entry.tid == tid {
                let length = entry.length.min(MAX_REPLACED * 16);
                replaced = self.ring.bytes(entry.at + header::SIZE, length);
                continue;
            }
            if entry.index == GO_STACK && entry.tid == tid {
                go = GoStacks::new(self.ring.bytes(entry.at + header::SIZE, entry.length));
                continue;
            }
            let index = entry.index as usize;
            let begin = entry.from.wrapping_sub(entry.index * u64::from(CHUNK));
            let first = {
                if used == 0 {
                    first = begin;
                }
                first
            };
            if tid != entry.tid || first != begin || index >= chunks.len() {
                // Of two threads, or damaged.
                return Rest::default();
            }
            let bytes = self.ring.bytes(entry.at + header::SIZE, entry.length.min(CHUNK as usize));
            chunks[index] = Chunk::new(bytes, entry.holes);
            used = used.max(index + 1);
        }
        let rest = Rest::new(first, &chunks[..used]);
        if !rest.agrees(regs.sp, bytes) {
            self.counts.differed += 1;
            return Rest::default();
        }
        rest.with_replaced(replaced).with_go(go)
    }

    /// The counts so far.
    pub fn counts(&self) -> DeepStackCounts {
        let cpus = procfs::possible_cpus();
        let mut values = vec![0; 8 * cpus];
        let lost = match self.lost.get(&0_u32.to_ne_bytes(), &mut values, cpus) {
            Ok(()) => values.chunks_exact(8).filter_map(|cpu| number(cpu, 0)).sum(),
            Err(_) => 0,
        };
        DeepStackCounts { lost, ..self.counts }
    }
}

/// Loads the program once, to test whether that works here.
///
/// # Errors
///
/// The reason why it does not.
pub fn check() -> io::Result<()> {
    let deep = Deep::new(DEEPEST)?;
    let load = |end| {
        syscall::load_for_samples("prof_deep", &deep.program(sys::record::MAX_DUMP, None, end))
            .map(drop)
    };
    load(LoopEnd::MayGoto).or_else(|_| load(LoopEnd::Counter))
}

/// A descriptor that becomes readable when the program sends a wake-up for one of the rings; a
/// ring's own descriptor is readable as long as the ring is not empty.
fn watch(rings: &[RawFd]) -> io::Result<OwnedFd> {
    // SAFETY: a new descriptor, which has no other owner.
    let epoll = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
    if epoll < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: as above.
    let epoll = unsafe { OwnedFd::from_raw_fd(epoll) };
    let mut wanted = libc::epoll_event { events: (libc::EPOLLIN | libc::EPOLLET) as u32, u64: 0 };
    for &ring in rings {
        // SAFETY: both descriptors are open, and the kernel copies the event within the call.
        if unsafe { libc::epoll_ctl(epoll.as_raw_fd(), libc::EPOLL_CTL_ADD, ring, &mut wanted) }
            != 0
        {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(epoll)
}

/// Makes it unreadable until the next wake-up.
fn clear(epoll: &OwnedFd) {
    let mut events = [libc::epoll_event { events: 0, u64: 0 }; 2];
    // SAFETY: the descriptor is open, and there is room for the events.
    unsafe { libc::epoll_wait(epoll.as_raw_fd(), events.as_mut_ptr(), events.len() as i32, 0) };
}

#[cfg(test)]
mod tests;
