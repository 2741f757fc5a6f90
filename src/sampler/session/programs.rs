//! BPF programs that aggregate events of profile types in the kernel.

use std::io;
use std::os::fd::RawFd;
use std::sync::Arc;

use rustc_hash::FxHashSet;

use crate::sampler::attach::Attacher;
use crate::sampler::bpf::btf::Btf;
use crate::sampler::bpf::walk::WalkMaps;
use crate::sampler::bpf::{KernelProgram, ThreadScope};
use crate::sampler::permissions::{Wanted, refused};
use crate::sampler::ring::Ring;
use crate::sampler::types::{ProfileTypes, ProgramLoad};
use crate::sampler::{Options, Target, thread_state};
use sys::{Error, ThreadId, os, procfs};

/// Number of threads that are read without a pause.
const AT_ONCE: usize = 256;

/// The programs of a recording.
#[derive(Default)]
pub struct KernelPrograms {
    /// Each with the index of its profile type.
    programs: Vec<(usize, Arc<dyn KernelProgram>)>,
    /// The walks over frames of interpreters that they make.
    walks: Option<Arc<WalkMaps>>,
}

impl KernelPrograms {
    /// Loads the programs of the profile types, if this kernel and user allow them. Programs cannot
    /// be limited to cgroups or to some CPUs.
    pub fn load(options: &Options, types: &mut ProfileTypes) -> KernelPrograms {
        let scope = match options.target {
            Target::Cgroup(_) => return KernelPrograms::default(),
            _ if options.cpus.is_some() => return KernelPrograms::default(),
            Target::Everything => ThreadScope::Everyone,
            _ if options.inherit => ThreadScope::WithChildren,
            _ => ThreadScope::Alone,
        };
        let mut kernel = None;
        let mut loaded = KernelPrograms::default();
        for (index, kind) in types.iter_mut().filter(|(_, kind)| kind.program_needs().thread_events)
        {
            // Read when the first type requires it.
            if kernel.is_none() {
                // Without memory for them, stacks are native.
                let walks = options.stacks.has_copies().then(|| WalkMaps::new(0).ok());
                loaded.walks = walks.flatten().map(Arc::new);
            }
            let kernel = kernel.get_or_insert_with(Btf::running);
            let Ok(kernel) = kernel else { break };
            let load = ProgramLoad { kernel, scope, walks: loaded.walks.as_ref() };
            loaded.programs.extend(kind.load_program(&load).map(|program| (index, program)));
        }
        loaded.walks =
            loaded.walks.filter(|_| loaded.programs.iter().any(|(_, program)| program.walks()));
        loaded
    }

    /// The walks over frames of interpreters that they make.
    pub fn walks(&self) -> Option<&Arc<WalkMaps>> {
        self.walks.as_ref()
    }

    /// True if there are no programs.
    pub fn is_empty(&self) -> bool {
        self.programs.is_empty()
    }

    /// Removes the programs of a profile type.
    pub fn leave_out(&mut self, index: usize) {
        self.programs.retain(|(known, _)| *known != index);
    }

    /// Attaches the programs, with the threads of the target. `command`: pid of a command that is
    /// not started yet.
    ///
    /// # Errors
    ///
    /// One line that states the obstacle.
    pub fn begin(
        &mut self,
        attacher: &Attacher,
        rings: &[Ring],
        options: &Options,
        pids: &[i32],
        command: Option<i32>,
    ) -> Result<(), Error> {
        if self.is_empty() {
            return Ok(());
        }
        let refused = |e| refused(&e, Wanted::WholeMachine);
        self.connect(attacher, rings).map_err(refused)?;
        let mut known = FxHashSet::default();
        self.insert(options, pids, command, &mut known);
        for (_, program) in &self.programs {
            program.attach().map_err(refused)?;
        }
        // Threads created since; inserting all again would take longer than the rings last.
        self.insert(options, pids, None, &mut known);
        Ok(())
    }

    /// Directs the output of the programs to the events of each CPU.
    ///
    /// # Errors
    ///
    /// The events are not of a kind that programs can write to.
    pub fn connect(&self, attacher: &Attacher, rings: &[Ring]) -> io::Result<()> {
        for (index, program) in &self.programs {
            let written = |&event: &usize| attacher.events[event].is_written_by_programs();
            let events = attacher.events_of(*index).filter(written);
            let by_event: Vec<Vec<RawFd>> = events.map(|e| attacher.descriptors(e)).collect();
            for (at, ring) in rings.iter().enumerate() {
                let by_cpu: Option<Vec<RawFd>> =
                    by_event.iter().map(|cpus| cpus.get(at).copied()).collect();
                if let Some(by_cpu) = by_cpu {
                    program.connect(ring.cpu(), &by_cpu)?;
                }
            }
        }
        Ok(())
    }

    /// Inserts the threads of the target that are not in `known`.
    fn insert(
        &self,
        options: &Options,
        pids: &[i32],
        command: Option<i32>,
        known: &mut FxHashSet<i32>,
    ) {
        let mut threads = options.target.threads(pids);
        threads.extend(command.map(ThreadId::main_thread));
        threads.retain(|thread| known.insert(thread.tid));
        for (i, thread) in threads.into_iter().enumerate() {
            if i % AT_ONCE == AT_ONCE - 1 {
                os::pause_briefly();
            }
            let Some(stat) = procfs::stat(thread.tid) else { continue };
            let state = match stat.state {
                // Runnable or running.
                'R' => None,
                'Z' | 'X' => continue,
                letter => Some(thread_state::from_letter(letter)),
            };
            for (_, program) in &self.programs {
                // The programs count threads for which the map has no room.
                let _ = program.insert(thread, state, command.is_some());
            }
        }
    }

    /// Stops the programs.
    pub fn end(&self) {
        self.programs.iter().for_each(|(_, program)| program.detach());
    }
}
