//! Identifies the process that wrote a record to the memory shared with prof.
//!
//! A process can write any PID there, and sees another one than prof if it is in a PID namespace of
//! its own. So a record carries a number under which the kernel has reported the process to prof;
//! without that, only a process that has mapped the memory is accepted.

use rustc_hash::{FxHashMap, FxHashSet};

use heap::{Shared, Writer};
use sys::procfs;
use sys::record::Record;

/// Maximum number of cached processes and threads.
const MAX: usize = 1 << 16;

/// A thread whose process has a PID namespace of its own.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct InnerThread {
    /// The process in prof's PID namespace.
    pid: i32,
    /// The thread in the PID namespace of the process.
    inner_tid: i32,
}

/// The processes that write.
#[derive(Default)]
pub struct Writers {
    shared: Option<Shared>,
    /// The process that last mapped each identifying page.
    shown: FxHashMap<u32, i32>,
    /// The process of each writer; `None`: unknown.
    known: FxHashMap<Writer, Option<i32>>,
    /// Processes in the kernel's records: the target and its descendants.
    named: FxHashSet<i32>,
    /// Threads in PID namespaces of their own, with their TIDs in prof's.
    threads: FxHashMap<InnerThread, i32>,
    /// Number of programs started.
    pub programs: u64,
}

impl Writers {
    /// Sets the shared memory.
    pub fn share(&mut self, shared: Shared) {
        self.shared = Some(shared);
    }

    /// Handles a record of the kernel; true if it only identified a process.
    pub fn record(&mut self, record: &Record<'_>) -> bool {
        match *record {
            Record::Mmap(ref mmap) => {
                let page = self.shared.and_then(|shared| shared.shown(mmap));
                page.map(|page| self.shown.insert(page, mmap.pid)).is_some()
            }
            Record::Fork { pid, .. } => {
                self.name(pid);
                false
            }
            Record::Comm { pid, exec: true, .. } => {
                self.programs += 1;
                self.name(pid);
                false
            }
            _ => false,
        }
    }

    fn name(&mut self, pid: i32) {
        if self.shared.is_some() && self.named.len() < MAX {
            self.named.insert(pid);
        }
    }

    /// The process in prof's PID namespace.
    pub fn process(&mut self, by: Writer) -> Option<i32> {
        if let Some(&known) = self.known.get(&by) {
            return known;
        }
        let shared = self.shared?;
        let shown = self.shown.get(&Shared::page(by.number)).filter(|_| by.number != 0);
        let process = match shown {
            Some(&pid) => Some(pid),
            None if shared.is_mapped_by(by.pid) || self.named.contains(&by.pid) => Some(by.pid),
            None => procfs::processes()
                .into_iter()
                .find(|&pid| procfs::inner_pid(pid) == Some(by.pid) && shared.is_mapped_by(pid)),
        };
        if self.known.len() < MAX {
            self.known.insert(by, process);
        }
        process
    }

    /// The thread of process `pid` that has this TID in the writer's PID namespace, in prof's PID
    /// namespace; 0: unknown.
    pub fn thread(&mut self, by: Writer, pid: i32, inner_tid: i32) -> i32 {
        if by.pid == pid {
            return inner_tid;
        }
        if by.pid == inner_tid {
            return pid;
        }
        let thread = InnerThread { pid, inner_tid };
        if let Some(&known) = self.threads.get(&thread) {
            return known;
        }
        let known = procfs::outer_tid(pid, inner_tid).unwrap_or(0);
        if self.threads.len() < MAX {
            self.threads.insert(thread, known);
        }
        known
    }

    /// Handles the end of a process or its `execve`.
    pub fn ended(&mut self, pid: i32) {
        self.named.remove(&pid);
        self.threads.retain(|thread, _| thread.pid != pid);
    }
}
