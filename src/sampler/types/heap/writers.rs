//! Which process wrote a record into the memory that it shares with prof.
//!
//! A process can write any number there, and sees another one than prof does if it is in a PID
//! namespace of its own. So a record carries a number under which the kernel has told prof of the
//! process; without that, only a process that has the memory mapped is believed.

use rustc_hash::{FxHashMap, FxHashSet};

use heap::{Shared, Writer};
use sys::procfs;
use sys::record::Record;

/// Processes and threads that are known at most.
const MAX: usize = 1 << 16;

/// The processes that write.
#[derive(Default)]
pub struct Writers {
    shared: Option<Shared>,
    /// Who has shown a page last.
    shown: FxHashMap<u32, i32>,
    /// Those whose records were taken in; `None`: nobody knows who it is.
    known: FxHashMap<Writer, Option<i32>>,
    /// Processes that the kernel's records have named: the target and its descendants.
    named: FxHashSet<i32>,
    /// Threads by the numbers that they have in a namespace of their own.
    threads: FxHashMap<(i32, i32), i32>,
    /// Programs that were started.
    pub programs: u64,
}

impl Writers {
    /// The memory is this.
    pub fn share(&mut self, shared: Shared) {
        self.shared = Some(shared);
    }

    /// Takes in a record of the kernel's; true if it only told who a process is.
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

    /// The process as prof sees it.
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

    /// The thread of a process as prof sees it; 0: nobody knows.
    pub fn thread(&mut self, by: Writer, pid: i32, tid: i32) -> i32 {
        if by.pid == pid {
            return tid;
        }
        if by.pid == tid {
            return pid;
        }
        if let Some(&known) = self.threads.get(&(pid, tid)) {
            return known;
        }
        let known = procfs::outer_tid(pid, tid).unwrap_or(0);
        if self.threads.len() < MAX {
            self.threads.insert((pid, tid), known);
        }
        known
    }

    /// A process has ended, or become another program.
    pub fn ended(&mut self, pid: i32) {
        self.named.remove(&pid);
        self.threads.retain(|thread, _| thread.0 != pid);
    }
}
