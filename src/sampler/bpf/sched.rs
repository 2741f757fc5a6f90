//! Time of threads by state, aggregated in the kernel: how long each ran, waited for a CPU, and
//! waited for something else. A wait is reported, with the stack of the thread, when it is over and
//! the thread runs again: its length is known then. The number of reports is limited (see
//! [`super::snippets`]), while each thread's sums are exact.
//!
//! That moment is the tracepoint `sched_exit_tp` of Linux 6.16; older kernels report switches only
//! before the thread continues.

mod programs;

use std::io;
use std::os::fd::RawFd;
use std::sync::{Arc, Mutex, PoisonError};

use super::btf::Btf;
use super::snippets::{self, control};
use super::stack_parts::StackParts;
use super::syscall::{EntrySize, Map, MapKind, Programs};
use super::thread_set::{Fields, ThreadScope, ThreadSet};
use super::walk::WalkMaps;
use super::{KernelProgram, Losses, number};
use profile::ThreadState;
use programs::WaitPrograms;
use sys::{ThreadId, os, procfs};

/// Maximum number of threads.
const MAX_THREADS: u32 = 1 << 17;

/// Number of the [`ThreadState`] of a thread without any record, which runs or is runnable.
const UNKNOWN: i32 = 5;

/// The state with this number.
fn state_of(number: u64) -> Option<ThreadState> {
    ThreadState::ALL.get(usize::try_from(number).ok()?).copied()
}

/// Size of the record of a wait in bytes, without parts of its stack.
pub const WAIT_SIZE: usize = 40;

/// Nanoseconds from which on a wait is long. These are of most time, and usually few, so that larger
/// copies of their stacks fit into the rings.
const LONG_WAIT: i32 = 10_000_000;

/// Number of samples of a burst from which on a long wait is written as a short one: there are many
/// of them then, as when thousands of threads sleep for a moment each.
const LONG_COPIES: i32 = 16;

/// Offsets in the value of a thread, in bytes.
mod thread {
    /// Time at which its state began.
    pub const SINCE: i16 = 0;
    /// Time at which it was woken; 0: it was not.
    pub const WOKEN: i16 = 8;
    /// Number of its [`super::ThreadState`], or [`super::UNKNOWN`].
    pub const STATE: i16 = 16;
    /// `NEW`, or [`super::snippets::AWAITED`].
    pub const FLAGS: i16 = 20;
    /// Its process ID.
    pub const PROCESS: i16 = 24;
    /// Nanoseconds by [`super::ThreadState`].
    pub const ALL: i16 = 32;
    /// Size of the value.
    pub const SIZE: usize = 72;
}

/// The idle thread, which is not recorded: its value has the start time of the recording.
const IDLE: ThreadId = ThreadId { pid: 0, tid: 0 };

/// Nanoseconds by [`ThreadState`].
pub type Sums = [u64; 5];

/// A thread's time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThreadTimes {
    /// The thread.
    pub thread: ThreadId,
    /// Its time by state.
    pub all: Sums,
}

impl ThreadTimes {
    /// Decodes the record of a thread's exit.
    pub fn parse(raw: &[u8]) -> Option<ThreadTimes> {
        ThreadTimes::from_value(number(raw, 0)? as i32, raw.get(8..)?)
    }

    fn from_value(tid: i32, value: &[u8]) -> Option<ThreadTimes> {
        let mut all = Sums::default();
        for (i, nanos) in all.iter_mut().enumerate() {
            *nanos = number(value, thread::ALL + i as i16 * 8)?;
        }
        let pid = number(value, thread::PROCESS)? as i32;
        Some(ThreadTimes { thread: ThreadId { pid, tid }, all })
    }
}

/// A wait that is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimedWait {
    /// The state; [`ThreadState::Runnable`]: it waited only for a CPU.
    pub state: ThreadState,
    /// Its length in nanoseconds.
    pub waited: u64,
    /// Nanoseconds for which it then waited for a CPU.
    pub queued: u64,
    /// A wait that is shorter represents interval / (waited + queued) waits.
    pub interval: u64,
}

impl TimedWait {
    /// Decodes the record of a wait.
    pub fn parse(raw: &[u8]) -> Option<TimedWait> {
        let number = |at| number(raw, at);
        Some(TimedWait {
            state: state_of(number(0)?)?,
            waited: number(8)?,
            queued: number(16)?,
            interval: number(24)?,
        })
    }

    /// The extrapolated value of a part of it.
    pub fn extrapolate(&self, part: u64) -> u64 {
        super::extrapolate(part, self.waited + self.queued, self.interval)
    }
}

/// The state of a thread at the end of the recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LastState {
    /// The state; `None`: it runs or is runnable.
    pub state: Option<ThreadState>,
    /// Its start (`CLOCK_MONOTONIC`, nanoseconds).
    pub since: u64,
    /// Time at which it was woken; 0: it was not.
    pub woken: u64,
}

/// The programs and the maps that they share with prof.
#[derive(Debug)]
pub struct SchedProgram {
    threads: Map,
    control: Map,
    /// The events of each CPU for short waits, then those for long ones.
    waits: Map,
    ends: Map,
    /// Number of possible CPUs.
    cpus: u32,
    parts: StackParts,
    programs: Mutex<Programs>,
}

impl SchedProgram {
    /// Loads the programs; they run when they are [attached](KernelProgram::attach). `walks`: they walk
    /// over frames of interpreters.
    ///
    /// # Errors
    ///
    /// This kernel is too old, or the user lacks the privilege.
    pub fn load(
        kernel: &Btf,
        scope: ThreadScope,
        walks: Option<&Arc<WalkMaps>>,
    ) -> io::Result<SchedProgram> {
        let cpus = procfs::possible_cpus() as u32;
        let mut waits = SchedProgram {
            threads: Map::new(MapKind::Hash, EntrySize::by_number(thread::SIZE), MAX_THREADS)?,
            control: Map::new(MapKind::PerCpuArray, EntrySize::by_number(control::SIZE), 1)?,
            waits: Map::new(MapKind::PerfEvents, EntrySize::by_number(4), 2 * cpus)?,
            ends: Map::new(MapKind::PerfEvents, EntrySize::by_number(4), cpus)?,
            cpus,
            parts: StackParts::new(kernel, WAIT_SIZE, walks)?,
            programs: Mutex::default(),
        };
        let fields = Fields::find(kernel)?;
        let members = ThreadSet {
            threads: &waits.threads,
            control: &waits.control,
            size: thread::SIZE as i16,
            flags: thread::FLAGS,
            scope,
            fields: &fields,
        };
        let programs = WaitPrograms { maps: &waits, members }.all();
        let alone = usize::from(scope == ThreadScope::Alone);
        let used = &programs[..programs.len() - alone];
        waits.programs = Mutex::new(Programs::load(kernel, used)?);
        Ok(waits)
    }

    fn add(
        &self,
        thread_id: ThreadId,
        since: u64,
        state: Option<ThreadState>,
        awaited: bool,
    ) -> io::Result<()> {
        let mut value = [0; thread::SIZE];
        let mut set = |at: i16, bytes: &[u8]| {
            value[at as usize..at as usize + bytes.len()].copy_from_slice(bytes);
        };
        set(thread::SINCE, &since.to_ne_bytes());
        set(thread::STATE, &state.map_or(UNKNOWN, |s| s as i32).to_ne_bytes());
        set(thread::FLAGS, &(i32::from(awaited) * snippets::AWAITED).to_ne_bytes());
        set(thread::PROCESS, &thread_id.pid.to_ne_bytes());
        self.threads.insert(&thread_id.tid.to_ne_bytes(), &value)
    }

    /// The threads that have not exited, after [`KernelProgram::detach`].
    pub fn threads(&self) -> Vec<(ThreadTimes, LastState)> {
        let mut found = Vec::new();
        for (key, value) in self.threads.entries() {
            let tid = i32::from_ne_bytes(*key.first_chunk().expect("a key of the map's size"));
            let times = ThreadTimes::from_value(tid, &value).expect("a value of the map's size");
            let number = |at| number(&value, at).expect("a value of the map's size");
            let state = number(thread::STATE) as u32;
            let flags = number(thread::STATE) >> 32;
            if tid == IDLE.tid || flags as i32 & snippets::AWAITED != 0 {
                continue;
            }
            let state = state_of(state.into());
            let last =
                LastState { state, since: number(thread::SINCE), woken: number(thread::WOKEN) };
            found.push((times, last));
        }
        found
    }

    /// Threads and samples that the programs could not handle.
    pub fn losses(&self) -> Losses {
        snippets::losses(&self.control)
    }
}

impl KernelProgram for SchedProgram {
    /// The events of short waits, of threads that exit, and of long waits.
    fn connect(&self, cpu: u32, events: &[RawFd]) -> io::Result<()> {
        let &[short, ends, long] = events else { return Ok(()) };
        self.waits.connect(cpu, short)?;
        self.ends.connect(cpu, ends)?;
        self.waits.connect(self.cpus + cpu, long)
    }

    fn insert(
        &self,
        thread: ThreadId,
        state: Option<ThreadState>,
        awaited: bool,
    ) -> io::Result<()> {
        self.add(thread, os::monotonic_nanos(), state, awaited)
    }

    fn attach(&self) -> io::Result<()> {
        self.add(IDLE, os::monotonic_nanos(), None, false)?;
        self.programs.lock().unwrap_or_else(PoisonError::into_inner).attach()
    }

    fn walks(&self) -> bool {
        self.parts.walks()
    }

    fn detach(&self) {
        self.programs.lock().unwrap_or_else(PoisonError::into_inner).detach();
    }
}
