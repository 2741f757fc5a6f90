//! Where the time of threads goes, added up in the kernel: how long each ran, waited for a CPU,
//! and waited for something else. A wait is told of, with the stack of the thread, when it is over
//! and the thread runs again: then it is known for how long it was, and only as many are told of as
//! can be taken in (see [`super::snippets`]), while each thread's sums are exact.
//!
//! That moment is the tracepoint `sched_exit_tp`, which Linux has since 6.16; older ones tell of
//! switches only before the thread comes back.

mod programs;

use std::cell::RefCell;
use std::io;
use std::os::fd::RawFd;

use super::btf::Btf;
use super::snippets::{self, control};
use super::syscall::{Map, MapKind, Programs};
use super::thread_set::{Fields, ThreadScope, ThreadSet};
use super::{KernelProgram, Losses, number};
use profile::ThreadState;
use programs::WaitPrograms;
use sys::{ThreadId, os, procfs};

/// Most threads whose time is added up.
const MAX_THREADS: u32 = 1 << 17;

/// Stands for a thread's [`ThreadState`] (its number) where nothing has been heard of it, but that it
/// runs or could.
const UNKNOWN: i32 = 5;

/// The state with this number.
fn state_of(number: u64) -> Option<ThreadState> {
    ThreadState::ALL.get(usize::try_from(number).ok()?).copied()
}

/// What the programs know of a thread, in bytes from the beginning of its value.
mod thread {
    /// Since when it does what it does.
    pub const SINCE: i16 = 0;
    /// When it was woken; 0: it was not.
    pub const WOKEN: i16 = 8;
    /// Number of its [`super::ThreadState`], or [`super::UNKNOWN`].
    pub const DOES: i16 = 16;
    /// `BORN`, or [`super::snippets::AWAITED`].
    pub const FLAGS: i16 = 20;
    /// Its process.
    pub const PROCESS: i16 = 24;
    /// Nanoseconds, by [`super::ThreadState`].
    pub const ALL: i16 = 32;
    /// Bytes of all.
    pub const SIZE: usize = 72;
}

/// The idle thread, of which nothing is recorded: its value tells when the recording began.
const NOBODY: ThreadId = ThreadId { pid: 0, tid: 0 };

/// Nanoseconds, by [`ThreadState`].
pub type Sums = [u64; 5];

/// A thread's time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThreadTimes {
    /// The thread.
    pub thread: ThreadId,
    /// Its time.
    pub all: Sums,
}

impl ThreadTimes {
    /// From what is written when a thread ends.
    pub fn parse(raw: &[u8]) -> Option<ThreadTimes> {
        ThreadTimes::of_value(number(raw, 0)? as i32, raw.get(8..)?)
    }

    fn of_value(tid: i32, value: &[u8]) -> Option<ThreadTimes> {
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
    /// What for; [`ThreadState::Runnable`]: it was for a CPU alone.
    pub state: ThreadState,
    /// Nanoseconds that it lasted.
    pub waited: u64,
    /// Nanoseconds that it then waited for a CPU.
    pub queued: u64,
    /// Shorter ones stand for interval / (waited + queued) of them.
    pub interval: u64,
}

impl TimedWait {
    /// From what is told of it.
    pub fn parse(raw: &[u8]) -> Option<TimedWait> {
        let number = |at| number(raw, at);
        Some(TimedWait {
            state: state_of(number(0)?)?,
            waited: number(8)?,
            queued: number(16)?,
            interval: number(24)?,
        })
    }

    /// A part of it, scaled to what it stands for.
    pub fn stands_for(&self, part: u64) -> u64 {
        super::stands_for(part, self.waited + self.queued, self.interval)
    }
}

/// What a thread does at the end of the recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LastState {
    /// What; `None`: it runs or could.
    pub state: Option<ThreadState>,
    /// Since when (`CLOCK_MONOTONIC`, nanoseconds).
    pub since: u64,
    /// When it was woken; 0: it was not.
    pub woken: u64,
}

/// The programs and what they share with prof.
#[derive(Debug)]
pub struct Waits {
    threads: Map,
    control: Map,
    waits: Map,
    ends: Map,
    programs: RefCell<Programs>,
}

impl Waits {
    /// Loads the programs; nothing happens until they are [attached](KernelProgram::attach).
    ///
    /// # Errors
    ///
    /// This kernel is too old, or this user may not.
    pub fn load(kernel: &Btf, scope: ThreadScope) -> io::Result<Waits> {
        let cpus = procfs::possible_cpus() as u32;
        let mut waits = Waits {
            threads: Map::new(MapKind::Hash, (4, thread::SIZE), MAX_THREADS)?,
            control: Map::new(MapKind::PerCpuArray, (4, control::SIZE), 1)?,
            waits: Map::new(MapKind::PerfEvents, (4, 4), cpus)?,
            ends: Map::new(MapKind::PerfEvents, (4, 4), cpus)?,
            programs: RefCell::default(),
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
        *waits.programs.get_mut() = Programs::load(kernel, used)?;
        Ok(waits)
    }

    fn add(
        &self,
        of: ThreadId,
        since: u64,
        state: Option<ThreadState>,
        awaited: bool,
    ) -> io::Result<()> {
        let mut value = [0; thread::SIZE];
        let mut set = |at: i16, bytes: &[u8]| {
            value[at as usize..at as usize + bytes.len()].copy_from_slice(bytes);
        };
        set(thread::SINCE, &since.to_ne_bytes());
        set(thread::DOES, &state.map_or(UNKNOWN, |s| s as i32).to_ne_bytes());
        set(thread::FLAGS, &(i32::from(awaited) * snippets::AWAITED).to_ne_bytes());
        set(thread::PROCESS, &of.pid.to_ne_bytes());
        self.threads.insert(&of.tid.to_ne_bytes(), &value)
    }

    /// The threads that have not ended, after [`KernelProgram::detach`].
    pub fn threads(&self) -> Vec<(ThreadTimes, LastState)> {
        let mut found = Vec::new();
        for (key, value) in self.threads.entries() {
            let tid = i32::from_ne_bytes(*key.first_chunk().expect("so long a key"));
            let times = ThreadTimes::of_value(tid, &value).expect("so long a value");
            let number = |at| number(&value, at).expect("so long a value");
            let (does, flags) = (number(thread::DOES) as u32, number(thread::DOES) >> 32);
            if tid == NOBODY.tid || flags as i32 & snippets::AWAITED != 0 {
                continue;
            }
            let state = state_of(does.into());
            let last =
                LastState { state, since: number(thread::SINCE), woken: number(thread::WOKEN) };
            found.push((times, last));
        }
        found
    }

    /// What was not taken in.
    pub fn losses(&self) -> Losses {
        snippets::losses(&self.control)
    }
}

impl KernelProgram for Waits {
    /// The events of waits, and of threads that end.
    fn connect(&self, cpu: u32, events: &[RawFd]) -> io::Result<()> {
        let &[waits, ends] = events else { return Ok(()) };
        self.waits.connect(cpu, waits)?;
        self.ends.connect(cpu, ends)
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
        self.add(NOBODY, os::monotonic_nanos(), None, false)?;
        self.programs.borrow_mut().attach()
    }

    fn detach(&self) {
        self.programs.borrow_mut().detach();
    }
}
