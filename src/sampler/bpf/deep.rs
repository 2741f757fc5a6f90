//! Stacks beyond the kernel's own copy, read at the same moment.
//!
//! The kernel copies less than 64 KiB of a stack with a sample, and stops at the first page that is
//! not in memory: a buffer that was never written to is enough. A program that runs in the same
//! interrupt, before the sample is written, copies what follows into a ring buffer. What it copied
//! belongs to the sample with the same time, thread, stack pointer and instruction pointer, and has to
//! equal the kernel's copy where both have the same bytes; else it is not used. There is no other
//! way: memory that is read after the interrupt has changed, and nothing in it says so.

#![allow(unsafe_code)]

mod program;
mod ring;
mod session;

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

use perf_event_open_sys::ioctls;

use super::btf::Btf;
use super::filter::SampleFilter;
use super::number;
use super::syscall::{self, Map, MapKind};
use program::{DeepProgram, Kernel, LoopEnd};
use ring::{Ring, State};
pub use session::DeepStacks;
use sys::procfs;
use sys::record::{Chunk, Rest, Sample, UserStack};

/// Bytes of a stack in one record of the ring.
const CHUNK: u32 = 32 << 10;

/// Bytes of a stack that are copied at most.
///
/// The kernel follows each round of the program's loop when it verifies it: 88 of 32 KiB are accepted,
/// 128 are too many.
const DEEPEST: u32 = 2 << 20;

/// Chunks of a stack at most.
pub const MAX_CHUNKS: usize = (DEEPEST / CHUNK) as usize;

/// Time that copying may take of a thread whose stack is always this deep, in nanoseconds of each
/// second, and what a KiB costs (measured: 0.09 us).
const SHARE: u64 = 25_000_000;
const NANOS_PER_KIB: u64 = 90;

/// Bytes of the ring for each CPU, and in all.
const RING_OF_CPU: usize = 8 << 20;
const RINGS: std::ops::RangeInclusive<usize> = (16 << 20)..=(128 << 20);

/// What a record begins with, in bytes from its beginning.
mod header {
    /// The sample's time.
    pub const TIME: i16 = 0;
    /// Its thread, as the kernel numbers it.
    pub const TID: i16 = 8;
    /// Stack pointer and instruction pointer in user mode.
    pub const SP: i16 = 16;
    pub const IP: i16 = 24;
    /// Address of the first byte, and number of bytes.
    pub const FROM: i16 = 32;
    pub const LENGTH: i16 = 40;
    /// A bit for each page that was not there.
    pub const HOLES: i16 = 48;
    /// Which of the stack's chunks it is.
    pub const INDEX: i16 = 56;
    /// Bytes of all.
    pub const SIZE: usize = 64;
}

/// How much is copied of the stacks of events that are sampled so many times a second (0: nobody
/// knows), or `None`: so often that nothing is.
pub fn cap(hertz: u64) -> Option<u32> {
    let hertz = if hertz == 0 { 4000 } else { hertz };
    let bytes = (SHARE / NANOS_PER_KIB / hertz).saturating_mul(1024);
    let cap = bytes.min(u64::from(DEEPEST)) as u32 / CHUNK * CHUNK;
    (cap > 0).then_some(cap)
}

/// A chunk that is in the ring.
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
    /// Where its record begins in the data.
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

    fn order(&self) -> (u64, u64, u64, u64) {
        (self.time, self.tid, self.sp, self.index)
    }
}

/// What became of deep stacks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeepStackCounts {
    /// The ring had no room for all of them.
    pub lost: u64,
    /// What was copied was not what the kernel copied.
    pub differed: u64,
}

/// The program, and the ring that it writes to.
#[derive(Debug)]
pub struct Deep {
    kernel: Kernel,
    map: Map,
    lost: Map,
    ring: Ring,
    cap: u32,
    /// The program for each size of the kernel's own copy.
    programs: Vec<(u32, OwnedFd)>,
    /// Becomes readable when another quarter of the ring has filled.
    filled: OwnedFd,
    /// Chunks in the ring by time, thread and place, and how many are older than the last sample.
    entries: Vec<DeepEntry>,
    passed: usize,
    /// Where each record ends and its time, in the order of the ring, and how many were released.
    ends: Vec<(u64, u64)>,
    released: usize,
    /// Threads are numbered as samples number them.
    same_numbers: bool,
    counts: DeepStackCounts,
}

impl Deep {
    /// Makes the ring for stacks of this many bytes; programs are loaded as events need them.
    ///
    /// # Errors
    ///
    /// This kernel is too old, or this user may not.
    pub fn new(cap: u32) -> io::Result<Deep> {
        let kernel = Kernel::find(&Btf::of_kernel()?)?;
        let cpus = procfs::online_cpus().len();
        let size = (RING_OF_CPU * cpus).clamp(*RINGS.start(), *RINGS.end()).next_power_of_two();
        let map = Map::new(MapKind::Ring, (0, 0), size as u32)?;
        let lost = Map::new(MapKind::PerCpuArray, (4, 8), 1)?;
        let ring = Ring::map(&map, size)?;
        let filled = watch(map.fd())?;
        Ok(Deep {
            kernel,
            map,
            lost,
            ring,
            cap,
            programs: Vec::new(),
            filled,
            entries: Vec::new(),
            passed: 0,
            ends: Vec::new(),
            released: 0,
            same_numbers: procfs::is_first_pid_namespace(),
            counts: DeepStackCounts::default(),
        })
    }

    /// Lets the program run at the samples of an event that copies `dump` bytes of the stack, and
    /// of those that inherit it; `of`: the same for all. The event must not be enabled yet.
    ///
    /// # Errors
    ///
    /// This user may not, this kernel does not accept the program, or it is no such event.
    pub fn attach(&mut self, event: RawFd, dump: u32, of: Option<&SampleFilter>) -> io::Result<()> {
        let known = self.programs.iter().position(|(of, _)| *of == dump);
        let at = match known {
            Some(at) => at,
            None => {
                let processes = of.map(SampleFilter::processes);
                let load = |end| {
                    syscall::load_for_samples("prof_deep", &self.program(dump, processes, end))
                };
                let program = load(LoopEnd::MayGoto).or_else(|_| load(LoopEnd::Counter))?;
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
        let (ring, ring_size) = (&self.map, self.ring.size() as u32);
        let (lost, kernel, cap) = (&self.lost, &self.kernel, self.cap);
        DeepProgram { ring, ring_size, lost, kernel, dump, cap, processes, end }.program()
    }

    /// Becomes readable when another quarter of the ring has filled.
    pub fn fd(&self) -> RawFd {
        self.filled.as_raw_fd()
    }

    /// Makes [`Deep::fd`] unreadable until the next time.
    pub fn clear(&self) {
        clear(&self.filled);
    }

    /// A quarter or more of the ring is used.
    pub fn is_filling(&self) -> bool {
        (self.ring.written_to() - self.ring.read_to()) as usize * 4 >= self.ring.size()
    }

    /// Bytes of the ring.
    pub fn ring_bytes(&self) -> u64 {
        self.ring.size() as u64
    }

    /// Looks what is in the ring, after it was found out which samples are there: what belongs to
    /// a sample was written before it.
    pub fn refresh(&mut self) {
        (self.passed, self.released) = (0, 0);
        self.entries.clear();
        self.ends.clear();
        let (mut position, end) = (self.ring.read_to(), self.ring.written_to());
        while position < end {
            let (state, at, length, next) = self.ring.record(position);
            let entry = match state {
                State::Done => DeepEntry::parse(self.ring.bytes(at, length), at),
                State::Busy | State::Discarded => None,
            };
            self.entries.extend(entry);
            // What is being written stays, and what lies behind it.
            let busy = if state == State::Busy { u64::MAX } else { 0 };
            self.ends.push((next, entry.map_or(busy, |entry| entry.time)));
            position = next;
        }
        self.entries.sort_unstable_by_key(DeepEntry::order);
    }

    /// Everything before this time has been handled.
    pub fn release(&mut self, time: u64) {
        let older = self.ends[self.released..].iter().take_while(|end| end.1 < time).count();
        if older > 0 {
            self.released += older;
            self.ring.release(self.ends[self.released - 1].0);
        }
        while self.entries.get(self.passed).is_some_and(|entry| entry.time < time) {
            self.passed += 1;
        }
    }

    /// Something was copied besides the stack of a sample; samples come in the order of time.
    pub fn has(&mut self, time: u64) -> bool {
        self.release(time);
        self.entries.get(self.passed).is_some_and(|entry| entry.time == time)
    }

    /// What lies beyond the copy that came with this sample, in `chunks`; nothing, if there is a
    /// doubt whose it is.
    pub fn rest<'s>(
        &'s mut self,
        sample: &Sample<'_>,
        chunks: &'s mut [Chunk<'s>; MAX_CHUNKS],
    ) -> Rest<'s> {
        let UserStack::Native { regs, bytes, .. } = sample.user else { return Rest::default() };
        let is_it = |entry: &DeepEntry| {
            let same = (entry.time, entry.sp, entry.ip) == (sample.time, regs.sp, regs.ip);
            same && (!self.same_numbers || entry.tid == sample.tid as u64)
        };
        let (mut used, mut first, mut tid) = (0, 0, None);
        let now = self.entries[self.passed..].iter().take_while(|e| e.time == sample.time);
        for entry in now.filter(|entry| is_it(entry)) {
            let index = entry.index as usize;
            let begin = entry.from.wrapping_sub(entry.index * u64::from(CHUNK));
            let (tid, first) = (*tid.get_or_insert(entry.tid), {
                if used == 0 {
                    first = begin;
                }
                first
            });
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
        rest
    }

    /// What became of deep stacks so far.
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

/// Loads the program once, to see whether that works here.
///
/// # Errors
///
/// Why it does not.
pub fn check() -> io::Result<()> {
    let deep = Deep::new(DEEPEST)?;
    let load = |end| {
        syscall::load_for_samples("prof_deep", &deep.program(sys::record::MAX_DUMP, None, end))
            .map(drop)
    };
    load(LoopEnd::MayGoto).or_else(|_| load(LoopEnd::Counter))
}

/// A descriptor that becomes readable when the program wakes who waits for the ring; the ring's own
/// is readable as long as there is something in it.
fn watch(ring: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: a new descriptor, which nobody else has.
    let epoll = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
    if epoll < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: as above.
    let epoll = unsafe { OwnedFd::from_raw_fd(epoll) };
    let mut wanted = libc::epoll_event { events: (libc::EPOLLIN | libc::EPOLLET) as u32, u64: 0 };
    // SAFETY: both descriptors are open, and the kernel copies the event within the call.
    match unsafe { libc::epoll_ctl(epoll.as_raw_fd(), libc::EPOLL_CTL_ADD, ring, &mut wanted) } {
        0 => Ok(epoll),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Makes it unreadable until the next time.
fn clear(epoll: &OwnedFd) {
    let mut event = libc::epoll_event { events: 0, u64: 0 };
    // SAFETY: the descriptor is open, and there is room for one event.
    unsafe { libc::epoll_wait(epoll.as_raw_fd(), &mut event, 1, 0) };
}

#[cfg(test)]
mod tests;
