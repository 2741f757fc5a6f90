//! What `/proc` says of processes when sampling starts, for those that end before they are first
//! looked at: no record names their mappings.

use std::io;
use std::time::{Duration, Instant};

use rustc_hash::FxHashMap;

use crate::procfs::{self, Cgroup};
use crate::{ThreadId, loader};

/// Longest time for which processes are read.
const MAX_TIME: Duration = Duration::from_millis(50);

/// Most bytes of mappings and names that are kept.
const MAX_BYTES: usize = 16 << 20;

/// The state of a process, as `/proc` has it.
pub struct ProcState {
    /// Name of its leader.
    pub name: String,
    /// Its cgroup.
    pub cgroup: Cgroup,
    /// Its executable.
    pub executable: Option<String>,
    /// The program that its executable has loaded, if that is a dynamic linker.
    pub loaded: Option<String>,
    /// The lines of `/proc/PID/maps`, or why they could not be read.
    pub maps: io::Result<Vec<u8>>,
}

impl ProcState {
    /// Reads it now.
    pub fn read(pid: i32) -> ProcState {
        let executable = procfs::executable(pid);
        let executable = executable.and_then(|path| path.into_os_string().into_string().ok());
        ProcState {
            name: procfs::comm(ThreadId::main_thread(pid)).unwrap_or_default(),
            cgroup: procfs::cgroup(pid).unwrap_or_default(),
            loaded: executable.as_deref().and_then(|path| loader::program_of(pid, path)),
            executable,
            maps: procfs::maps(pid),
        }
    }
}

/// Processes and threads at the start of a recording.
#[derive(Default)]
pub struct AtStart {
    processes: FxHashMap<i32, ProcState>,
    names: FxHashMap<i32, String>,
}

impl AtStart {
    /// Reads these processes, the last ones first, for at most 50 ms and up to 16 MiB.
    pub fn read(pids: &[i32]) -> AtStart {
        let began = Instant::now();
        let mut start = AtStart::default();
        let mut bytes = 0;
        for &pid in pids.iter().rev() {
            if began.elapsed() > MAX_TIME || bytes > MAX_BYTES {
                break;
            }
            let state = ProcState::read(pid);
            // Threads of the kernel have no mappings.
            if let Ok(maps) = &state.maps
                && !maps.is_empty()
            {
                bytes += maps.len();
                start.processes.insert(pid, state);
            }
            for tid in procfs::threads(pid).unwrap_or_default() {
                if began.elapsed() > MAX_TIME || bytes > MAX_BYTES {
                    break;
                }
                if let Some(name) = procfs::comm(ThreadId { pid, tid }) {
                    bytes += name.len();
                    start.names.insert(tid, name);
                }
            }
        }
        start
    }

    /// Takes the state of a process.
    pub fn take(&mut self, pid: i32) -> Option<ProcState> {
        self.processes.remove(&pid)
    }

    /// Takes the name that a thread had.
    pub fn take_name(&mut self, tid: i32) -> Option<String> {
        self.names.remove(&tid)
    }

    /// Forgets a process or a thread that is another one now: a new one has its number, or another
    /// program is executed.
    pub fn forget(&mut self, id: i32) {
        self.processes.remove(&id);
        self.names.remove(&id);
    }
}
