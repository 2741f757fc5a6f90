//! What is read of interpreters without a sample: which ones run as the recording begins, and the
//! frames of threads that sleep.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::search::{Found, Patience, Search};
use super::{InProcess, Interpreters, names_its_code};
use crate::sampler::bpf::thread_pointers::ThreadPointers;
use crate::sampler::bpf::walk::{WalkMaps, Walked};
use interpreters::walk;
use interpreters::{Budget, Interpreter, ProcessMemory};
use sys::ThreadId;
use sys::procfs::{self, Asleep};

/// A part of the path of a file that most processes with an interpreter have mapped. Others are
/// recognized at their first sample.
fn part_of_path(interpreter: Interpreter) -> &'static str {
    match interpreter {
        Interpreter::Cpython => "python",
        Interpreter::Ruby => "ruby",
        Interpreter::Php => "php",
        Interpreter::V8 => "node",
        Interpreter::HotSpot => "libjvm",
    }
}

/// Limit for the time in which interpreters are looked for before the recording begins.
const LONGEST_LOOK: Duration = Duration::from_millis(300);

/// What is read of a thread that sleeps.
const OF_SLEEPER: Budget = Budget { bytes: 1 << 20, calls: 10_000 };

impl Interpreters {
    /// Those that run in these processes: a wait may last for all of the recording, and the first samples
    /// are all of a short one.
    pub fn running_in(processes: &[i32]) -> Interpreters {
        let mut interpreters = Interpreters::default();
        let begun = Instant::now();
        for &pid in processes {
            let maps = procfs::maps(pid).unwrap_or_default();
            let is_mapped = |interpreter: &Interpreter| {
                memchr::memmem::find(&maps, part_of_path(*interpreter).as_bytes()).is_some()
            };
            for interpreter in Interpreter::ALL.into_iter().filter(is_mapped) {
                if begun.elapsed() > LONGEST_LOOK {
                    return interpreters;
                }
                interpreters.find(pid, interpreter);
            }
        }
        interpreters
    }

    /// Recognizes an interpreter that a process may have. A search that is not at its end goes on at
    /// samples.
    fn find(&mut self, pid: i32, interpreter: Interpreter) {
        let is_found = matches!(self.processes.get(&pid), Some(InProcess::Found(_)));
        if is_found || interpreter == Interpreter::V8 && names_its_code(pid) {
            return;
        }
        let mut search = Box::new(Search::new(pid, interpreter));
        let found = match search.look(self.patience) {
            Found::Runtime(runtime) => self.begin(pid, interpreter, runtime, search),
            Found::Nothing if search.has_candidate() => InProcess::Searched(search),
            // A sample repeats that, and counts it.
            Found::Nothing | Found::Refused(_) => return,
        };
        self.processes.insert(pid, found);
    }

    /// Lets programs walk as these maps say.
    pub fn set_maps(&mut self, maps: Option<Arc<WalkMaps>>) {
        // Maps have the PIDs of the kernel's namespace.
        self.maps = maps.filter(|_| procfs::is_first_pid_namespace());
        let (maps, managed) = (self.maps.as_deref(), &self.managed);
        self.processes.retain(|pid, process| {
            let is_kept = match (maps, process) {
                (_, InProcess::Found(found)) if found.runtime.walks().is_empty() => true,
                (Some(maps), InProcess::Found(found)) => {
                    maps.set(*pid, found.id, found.runtime.walks()).is_ok()
                }
                (Some(_), InProcess::Searched(_)) => true,
                _ => false,
            };
            if !is_kept {
                managed.remove(*pid);
            }
            is_kept
        });
    }

    /// For threads that sleep, of which no program takes samples.
    pub fn of_sleepers() -> Interpreters {
        let interpreters = Interpreters { patience: Patience::Waits, ..Interpreters::default() };
        interpreters.pointers();
        interpreters
    }

    fn pointers(&self) -> Option<&ThreadPointers> {
        self.pointers.get_or_init(|| ThreadPointers::load().ok()).as_ref()
    }

    /// True if frames of sleepers are read.
    pub(super) fn reads_sleepers(&self) -> bool {
        self.pointers.get().is_some_and(Option::is_some)
    }

    /// What a program would copy of a thread that sleeps, in records: reads its memory. The caller has
    /// to make sure that the thread does not run in the meantime. Empty if its process has no known
    /// interpreter.
    pub fn walk_sleeper(&self, thread: ThreadId, asleep: Asleep) -> Vec<u8> {
        let Some(InProcess::Found(found)) = self.processes.get(&thread.pid) else {
            return Vec::new();
        };
        let walks = found.runtime.walks();
        let Some(pointer) = self.pointers().and_then(|pointers| pointers.of(thread)) else {
            return Vec::new();
        };
        let memory = ProcessMemory::new(thread.pid, OF_SLEEPER);
        let record = |(walk, descriptor)| {
            let (ThreadId { pid, tid }, Asleep { ip, sp, .. }) = (thread, asleep);
            // Nothing tells its frame pointer: a walk from there finds nothing.
            let at = walk::Thread { pointer, frame: 0, is_first: pid == tid };
            let copy = walk::run(descriptor, at, &memory);
            Walked { time: 0, pid, tid, ip, sp, id: found.id, walk, took: 0, copy }.record()
        };
        walks.iter().enumerate().flat_map(record).collect()
    }
}
