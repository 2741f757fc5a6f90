//! The library in a process that was already running, during a recording.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use super::HeapSettings;
use crate::sampler::stack_maker::StackMaker;
use crate::sampler::stops::KernelEvents;
use heap::inject::{InjectedLibrary, Injection, Inside};
use heap::{AllocationRing, BYTES};
use messages::Message;
use sys::{Error, procfs};

/// Interval at which the process is checked for newly loaded binaries.
const CHECK_INTERVAL: Duration = Duration::from_millis(250);

/// Maximum time to search for a thread for that, before prof continues.
const SHORTLY: Duration = Duration::from_millis(50);

/// Names of the files in the target.
const LIBRARY: InjectedLibrary<'static> = InjectedLibrary { name: "prof-heap", bytes: BYTES };
const RING: &str = "prof-heap-ring";

/// The library in a process.
pub struct Injected {
    pid: i32,
    injection: Injection<'static>,
    /// The ring buffer to which the library writes.
    pub ring: AllocationRing,
    /// Number of slots that point to the library.
    slots: u64,
    /// Version of the process's mappings, and the binaries among them.
    version: u64,
    binaries: Vec<u64>,
    last_check: Instant,
    /// True if newly loaded binaries could not be hooked.
    missed: bool,
}

impl Injected {
    /// Injects the library into a process; nothing is sampled yet.
    ///
    /// # Errors
    ///
    /// One line that states the obstacle; the process continues unchanged.
    pub fn load(pid: i32, settings: HeapSettings) -> Result<Injected, Error> {
        let HeapSettings { interval, mappings, .. } = settings;
        let failed = |e: Error| {
            Error::failed(format!(
                "prof's library cannot be injected into process {pid}, which continues unchanged: {e}"
            ))
        };
        let mut shared = None;
        let load = Injection::new(pid, LIBRARY, &KernelEvents, |inside| {
            let (fd, file) = inside.visit.memory_file(RING, &[])?;
            let path = format!("/proc/self/fd/{fd}");
            let ring = AllocationRing::on(file, PathBuf::from(&path), interval, mappings);
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
            last_check: Instant::now(),
            missed: false,
        })
    }

    /// Starts sampling.
    ///
    /// # Errors
    ///
    /// One line that states the obstacle; the process continues unchanged.
    pub fn begin(&mut self) -> Result<(), Error> {
        // Before the first allocation: a thread that finds sampling off checks again late.
        self.ring.set_active(true);
        let slots = &mut self.slots;
        let begun = self.injection.borrow(None, |inside| {
            *slots = u64::from(inside.call("prof_heap_patch", &[])? as u32);
            Ok(())
        });
        begun.map_err(|e| {
            Error::failed(format!("allocations of process {} cannot be sampled: {e}", self.pid))
        })
    }

    /// Hooks the binaries that the process has loaded since.
    pub fn hook_new_binaries(&mut self, maker: &mut StackMaker) {
        if self.last_check.elapsed() < CHECK_INTERVAL {
            return;
        }
        self.last_check = Instant::now();
        let version = maker.table.process(self.pid).regions.version();
        if version == self.version {
            return;
        }
        let now = binaries(self.pid);
        if now != self.binaries {
            let slots = &mut self.slots;
            let patched = self.injection.borrow(Some(SHORTLY), |inside| {
                *slots += u64::from(inside.call("prof_heap_patch", &[])? as u32);
                Ok(())
            });
            self.missed = patched.is_err();
            if self.missed {
                // Check again soon: allocations until then are not sampled.
                self.last_check = Instant::now() - (CHECK_INTERVAL - SHORTLY);
                return;
            }
        }
        (self.version, self.binaries) = (version, now);
    }

    /// Removes the hooks. Returns notes for the user.
    pub fn end(&mut self) -> Vec<Message> {
        let out = self.injection.borrow(None, |inside: &mut Inside<'_, '_>| {
            inside.call("prof_heap_unpatch", &[])?;
            inside.call("prof_heap_stop", &[]).map(|_| ())
        });
        let mut notes = Vec::new();
        // Slots that a killed prof has redirected are not counted again.
        if self.slots == 0 && !self.injection.was_there {
            notes.push(Message::NothingRedirected { pid: self.pid });
        }
        if self.missed {
            notes.push(Message::BinariesMissed);
        }
        let pid = self.pid;
        let stopped_ms = 1e3 * self.injection.stood_still.as_secs_f64();
        let lives = procfs::stat(pid).is_some_and(|stat| stat.state != 'Z');
        notes.push(match out {
            Err(error) if lives => Message::StillCalled { pid, why: error.to_string() },
            out => Message::Injected { pid, stopped_ms, lives: out.is_ok() },
        });
        notes
    }
}

/// Identities of the executable mapped binaries: device, inode and address.
fn binaries(pid: i32) -> Vec<u64> {
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
    let lines = maps.lines().filter_map(sys::maps::parse_line);
    let files = lines.filter(|l| l.executable && l.file.inode != 0);
    files.flat_map(|l| [l.file.device, l.file.inode, l.start]).collect()
}
