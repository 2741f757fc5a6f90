//! The library in a process that ran already, over the length of a recording.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use super::super::HeapSettings;
use crate::sampler::stack_maker::StackMaker;
use crate::sampler::stops::KernelEvents;
use heap::inject::{Injection, Inside, Library};
use heap::{BYTES, Ring};
use sys::{Error, procfs};

/// How often it is looked whether the process has loaded something.
const LOOK: Duration = Duration::from_millis(250);

/// How long a thread is sought for that, before prof goes on with other things.
const SHORTLY: Duration = Duration::from_millis(50);

/// What the target knows the files as.
const LIBRARY: Library<'static> = Library { name: "prof-heap", bytes: BYTES };
const RING: &str = "prof-heap-ring";

/// The library in a process.
pub struct Injected {
    pid: i32,
    injection: Injection<'static>,
    /// What it writes.
    pub ring: Ring,
    /// Slots that point to the library.
    slots: u64,
    /// The process's mappings were of this version, and these binaries were among them.
    version: u64,
    binaries: Vec<u64>,
    looked: Instant,
    /// It could not be looked for more.
    missed: bool,
}

impl Injected {
    /// Puts the library into a process; nothing is sampled yet.
    ///
    /// Errors: one line that says what is in the way; the process goes on as it was.
    pub fn load(pid: i32, settings: HeapSettings) -> Result<Injected, Error> {
        let HeapSettings { interval, mappings, .. } = settings;
        let failed = |e: Error| {
            Error::failed(format!(
                "prof's library cannot be put into process {pid}, which goes on as it was: {e}"
            ))
        };
        let mut shared = None;
        let load = Injection::new(pid, LIBRARY, &KernelEvents, |inside| {
            let (fd, file) = inside.visit.memory_file(RING, &[])?;
            let path = format!("/proc/self/fd/{fd}");
            let ring = Ring::on(file, PathBuf::from(&path), interval, mappings);
            let ring = ring.map_err(|e| Error::failed(e.to_string()))?;
            let path = inside.visit.text(&path)?;
            let started = inside.call("prof_heap_start", &[path])? as i32;
            inside.visit.close()?;
            if started != 0 {
                let error = std::io::Error::from_raw_os_error(-started);
                return Err(Error::failed(format!("it cannot map the shared memory: {error}")));
            }
            shared = Some(ring);
            Ok(())
        });
        let injection = load.map_err(failed)?;
        let ring = shared.expect("it was made");
        Ok(Injected {
            pid,
            injection,
            ring,
            slots: 0,
            version: 0,
            binaries: binaries(pid),
            looked: Instant::now(),
            missed: false,
        })
    }

    /// Sampling begins.
    ///
    /// Errors: one line that says what is in the way; the process goes on as it was.
    pub fn begin(&mut self) -> Result<(), Error> {
        // Before the first allocation comes: a thread that finds nothing to do looks again late.
        self.ring.set_active(true);
        let slots = &mut self.slots;
        let begun = self.injection.again(None, |inside| {
            *slots = u64::from(inside.call("prof_heap_patch", &[])? as u32);
            Ok(())
        });
        begun.map_err(|e| {
            Error::failed(format!("allocations of process {} cannot be sampled: {e}", self.pid))
        })
    }

    /// The hooks are put into what the process has loaded meanwhile.
    pub fn look(&mut self, maker: &mut StackMaker) {
        if self.looked.elapsed() < LOOK {
            return;
        }
        self.looked = Instant::now();
        let version = maker.table.process(self.pid).regions.version();
        if version == self.version {
            return;
        }
        let now = binaries(self.pid);
        if now != self.binaries {
            let slots = &mut self.slots;
            let again = self.injection.again(Some(SHORTLY), |inside| {
                *slots += u64::from(inside.call("prof_heap_patch", &[])? as u32);
                Ok(())
            });
            self.missed = again.is_err();
            if self.missed {
                // Soon again: what it allocates until then is not seen.
                self.looked = Instant::now() - (LOOK - SHORTLY);
                return;
            }
        }
        (self.version, self.binaries) = (version, now);
    }

    /// Takes the hooks out. Returns what the user should know.
    pub fn end(&mut self) -> Vec<String> {
        let out = self.injection.again(None, |inside: &mut Inside<'_, '_>| {
            inside.call("prof_heap_unpatch", &[])?;
            inside.call("prof_heap_stop", &[]).map(|_| ())
        });
        let mut notes = Vec::new();
        // What a prof that was killed has redirected is not counted again.
        if self.slots == 0 && !self.injection.was_there {
            notes.push(format!(
                "nothing in process {} calls malloc in a way that could be redirected",
                self.pid
            ));
        }
        if self.missed {
            notes.push(
                "what the process has loaded last is not among what was sampled: no thread came to \
                 a point where that could be looked for"
                    .to_owned(),
            );
        }
        let (pid, still) = (self.pid, 1e3 * self.injection.stood_still.as_secs_f64());
        let lives = procfs::stat(pid).is_some_and(|stat| stat.state != 'Z');
        notes.push(match out {
            Ok(()) => format!(
                "allocations of process {pid} were seen since prof's library was put into it, which \
                 stays there without effect; one thread stood still for {still:.1} ms at most \
                 besides waiting for a CPU, the others not at all"
            ),
            Err(_) if !lives => format!(
                "allocations of process {pid} were seen since prof's library was put into it; one \
                 thread stood still for {still:.1} ms at most besides waiting for a CPU"
            ),
            Err(error) => format!(
                "prof's library is still called by process {pid}, without recording anything, \
                 because it could not be taken out: {error}; the next prof record --inject tries \
                 again"
            ),
        });
        notes
    }
}

/// What tells binaries that are mapped executable from others: device, inode, and where they are.
fn binaries(pid: i32) -> Vec<u64> {
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
    let lines = maps.lines().filter_map(sys::maps::parse_line);
    let files = lines.filter(|l| l.executable && l.file.inode != 0);
    files.flat_map(|l| [l.file.device, l.file.inode, l.start]).collect()
}
