//! System calls, timed in the kernel: each call is reported when it is over and its length is
//! known, with the stack of the thread that made it. The number of reports is limited (see
//! [`super::snippets`]).

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
use programs::CallPrograms;
use sys::{ThreadId, procfs};

/// Maximum number of threads.
const MAX_THREADS: u32 = 1 << 17;

/// Maximum number of sums; calls without room for a sum are reported individually.
pub const MAX_SUMS: u32 = 1 << 18;

/// The timed calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TracedCalls {
    /// Calls that wait for a word in memory to change (`futex(2)`).
    Waits,
    /// All calls.
    All,
}

/// Offsets in the value of a thread, in bytes.
mod thread {
    /// Time at which its call began; 0: it is in none.
    pub const SINCE: i16 = 0;
    /// Address of the word that it waits for, or the number of the call.
    pub const OBJECT: i16 = 8;
    /// See [`super::TimedCall::kind`].
    pub const KIND: i16 = 16;
    /// See [`super::super::thread_set`].
    pub const FLAGS: i16 = 24;
    /// Size of the value.
    pub const SIZE: usize = 32;
}

/// Offsets in the sums of a thread's calls with the same object and kind, in bytes.
mod sum {
    /// Number of calls.
    pub const COUNT: i16 = 0;
    /// Nanoseconds.
    pub const NANOS: i16 = 8;
    /// The thread's process ID.
    pub const PROCESS: i16 = 16;
    /// Size of the value.
    pub const SIZE: usize = 24;
    /// Offsets in the key, and its size: thread and kind have half the size of the object.
    pub const OBJECT: i16 = 0;
    pub const THREAD: i16 = 8;
    pub const KIND: i16 = 12;
    pub const KEY: usize = 16;
}

/// The word had the value of a contended mutex; or the call is that of a 32-bit program.
pub const MARKED: u64 = 0x100;

/// Size of the record of a call in bytes, without parts of its stack.
pub const CALL_SIZE: usize = 48;

/// A call that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimedCall {
    /// The address of the word that it waited for, or the number of the call.
    pub object: u64,
    /// The operation of `futex(2)` (or 0), and [`MARKED`].
    pub kind: u64,
    /// Its length in nanoseconds.
    pub lasted: u64,
    /// The kernel will restart it: it is not counted again.
    pub again: bool,
    /// A call that is shorter represents interval / lasted calls.
    pub interval: u64,
}

impl TimedCall {
    /// Decodes the record of a call.
    pub fn parse(raw: &[u8]) -> Option<TimedCall> {
        let number = |at| number(raw, at);
        Some(TimedCall {
            object: number(0)?,
            kind: number(8)?,
            lasted: number(16)?,
            again: number(24)? != 0,
            interval: number(32)?,
        })
    }
}

/// All calls of a thread with the same object and kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallSum {
    /// The process ID.
    pub pid: i32,
    /// The thread ID.
    pub tid: i32,
    /// As of [`TimedCall`].
    pub object: u64,
    /// As of [`TimedCall`].
    pub kind: u64,
    /// Number of ended calls.
    pub count: u64,
    /// Their total length in nanoseconds.
    pub nanos: u64,
}

/// A call in progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenCall {
    /// Its thread.
    pub tid: i32,
    /// Its start (`CLOCK_MONOTONIC`, nanoseconds).
    pub since: u64,
    /// As of [`TimedCall`].
    pub object: u64,
    /// As of [`TimedCall`].
    pub kind: u64,
}

/// The programs and the maps that they share with prof.
#[derive(Debug)]
pub struct SyscallProgram {
    threads: Map,
    control: Map,
    events: Map,
    sums: Map,
    parts: StackParts,
    programs: Mutex<Programs>,
}

impl SyscallProgram {
    /// Loads the programs; they run when they are [attached](KernelProgram::attach). `walks`: they walk
    /// over frames of interpreters.
    ///
    /// # Errors
    ///
    /// This kernel is too old, or the user lacks the privilege.
    pub fn load(
        kernel: &Btf,
        which: TracedCalls,
        scope: ThreadScope,
        walks: Option<&Arc<WalkMaps>>,
    ) -> io::Result<SyscallProgram> {
        let cpus = procfs::possible_cpus() as u32;
        let mut calls = SyscallProgram {
            threads: Map::new(MapKind::Hash, EntrySize::by_number(thread::SIZE), MAX_THREADS)?,
            control: Map::new(MapKind::PerCpuArray, EntrySize::by_number(control::SIZE), 1)?,
            events: Map::new(MapKind::PerfEvents, EntrySize::by_number(4), cpus)?,
            sums: Map::new(MapKind::Hash, EntrySize { key: sum::KEY, value: sum::SIZE }, MAX_SUMS)?,
            parts: StackParts::new(kernel, CALL_SIZE, walks)?,
            programs: Mutex::default(),
        };
        let fields = Fields::find(kernel)?;
        let members = ThreadSet {
            threads: &calls.threads,
            control: &calls.control,
            size: thread::SIZE as i16,
            flags: thread::FLAGS,
            scope,
            fields: &fields,
        };
        let programs = CallPrograms::new(kernel, &calls, members, which)?;
        let load = |mut programs: Vec<(&str, Vec<u64>)>| {
            let alone = usize::from(scope == ThreadScope::Alone);
            programs.truncate(programs.len() - alone);
            Programs::load(kernel, &programs)
        };
        let at_switches = match which {
            TracedCalls::Waits => programs.at_switches(kernel).and_then(load),
            TracedCalls::All => Err(io::ErrorKind::Unsupported.into()),
        };
        let loaded = at_switches.or_else(|_| load(programs.at_calls()))?;
        calls.programs = Mutex::new(loaded);
        Ok(calls)
    }

    /// The calls in progress, after [`KernelProgram::detach`].
    pub fn open(&self) -> Vec<OpenCall> {
        let mut found = Vec::new();
        for (key, value) in self.threads.entries() {
            let tid = i32::from_ne_bytes(*key.first_chunk().expect("a key of the map's size"));
            let number = |at| number(&value, at).expect("a value of the map's size");
            let since = number(thread::SINCE);
            let object = number(thread::OBJECT);
            if since > 0 {
                found.push(OpenCall { tid, since, object, kind: number(thread::KIND) });
            }
        }
        found
    }

    /// The sums, after [`KernelProgram::detach`].
    pub fn sums(&self) -> Vec<CallSum> {
        let mut found = Vec::new();
        for (key, value) in self.sums.entries() {
            let value_at = |at| number(&value, at).expect("a value of the map's size");
            let key_at = |at| number(&key, at).expect("a key of the map's size");
            let kind = key_at(sum::THREAD) >> 32;
            found.push(CallSum {
                pid: value_at(sum::PROCESS) as i32,
                tid: key_at(sum::THREAD) as i32,
                object: key_at(sum::OBJECT),
                kind,
                count: value_at(sum::COUNT),
                nanos: value_at(sum::NANOS),
            });
        }
        found
    }

    /// Threads and samples that the programs could not handle.
    pub fn losses(&self) -> Losses {
        snippets::losses(&self.control)
    }
}

impl KernelProgram for SyscallProgram {
    fn connect(&self, cpu: u32, events: &[RawFd]) -> io::Result<()> {
        // The events that follow are tracepoints of the kernel's own locks.
        events.first().map_or(Ok(()), |&event| self.events.connect(cpu, event))
    }

    fn insert(
        &self,
        thread: ThreadId,
        _state: Option<ThreadState>,
        awaited: bool,
    ) -> io::Result<()> {
        let mut value = [0; thread::SIZE];
        value[thread::FLAGS as usize] = u8::from(awaited) * snippets::AWAITED as u8;
        self.threads.insert(&thread.tid.to_ne_bytes(), &value)
    }

    fn attach(&self) -> io::Result<()> {
        self.programs.lock().unwrap_or_else(PoisonError::into_inner).attach()
    }

    fn walks(&self) -> bool {
        self.parts.walks()
    }

    fn detach(&self) {
        self.programs.lock().unwrap_or_else(PoisonError::into_inner).detach();
    }
}
