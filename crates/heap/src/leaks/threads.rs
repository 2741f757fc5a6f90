//! Stops the other threads of an exiting process during the search.

use std::time::{Duration, Instant};

use super::Failure;
use crate::arch::{self, Registers, for_the_kernel};
use crate::inject::trace::{Stop, Tracee};
use sys::procfs;

/// Most rounds of searching for threads that others have started.
const ROUNDS: usize = 8;

/// Time limit for a thread to stop: one that waits for a disk does not.
const TO_STOP: Duration = Duration::from_millis(300);

/// State of a thread.
#[derive(Clone, Debug, Default)]
pub struct ThreadMemory {
    /// Its stack pointer.
    pub sp: u64,
    /// Address of its control block.
    pub control_block: u64,
    /// All values in its registers.
    pub words: Vec<u64>,
}

/// Threads that are stopped until this is dropped.
pub struct StoppedThreads {
    tracees: Vec<Tracee>,
    threads: Vec<ThreadMemory>,
}

impl StoppedThreads {
    /// Stops all threads of a process except the exiting one: its TID, if known, and the address of
    /// its control block.
    ///
    /// # Errors
    ///
    /// They may not be stopped, or do not stop in time.
    pub fn hold(
        pid: i32,
        exits: i32,
        control_block: u64,
        until: Instant,
    ) -> Result<StoppedThreads, Failure> {
        let mut held = StoppedThreads { tracees: Vec::new(), threads: Vec::new() };
        let until = until.min(Instant::now() + TO_STOP);
        let mut stopped_tids = Vec::new();
        for _ in 0..ROUNDS {
            let mut tids = procfs::threads(pid)?;
            if tids.len() == 1 {
                return Ok(held);
            }
            tids.retain(|tid| *tid != exits && !stopped_tids.contains(tid));
            if tids.is_empty() {
                return Ok(held);
            }
            stopped_tids.extend(&tids);
            held.stop(&tids, control_block, until)?;
        }
        Err(Failure::Thread)
    }

    /// Their states.
    pub fn threads(&self) -> &[ThreadMemory] {
        &self.threads
    }

    fn stop(&mut self, tids: &[i32], control_block: u64, until: Instant) -> Result<(), Failure> {
        let mut interrupted_threads = Vec::new();
        for &tid in tids {
            match Tracee::seize(tid) {
                Ok(mut tracee) => {
                    let interrupted = tracee.interrupt().is_ok();
                    interrupted_threads.extend(interrupted.then_some(tracee));
                }
                Err(e) if e.raw_os_error() != Some(libc::ESRCH) => return Err(e.into()),
                // It has ended.
                _ => {}
            }
        }
        for mut tracee in interrupted_threads {
            let stop = loop {
                match tracee.wait(until) {
                    // It receives the signal; the stop is still pending.
                    Ok(Some(Stop::Signal(signal))) => tracee.go(signal).ok(),
                    stop => break stop,
                };
            };
            match stop {
                Ok(Some(Stop::Interrupt | Stop::Group)) => {}
                Ok(_) => return Err(Failure::Thread),
                Err(_) => continue,
            }
            let Ok(registers) = tracee.registers() else { continue };
            // A call that would fail because it was stopped is restarted when it continues.
            tracee.set_registers(&for_the_kernel(&registers)).ok();
            // The exiting thread: it continues to wait.
            if arch::thread_pointer(&registers) != control_block {
                let others = tracee.other_registers().unwrap_or_default();
                self.threads.push(thread_memory(&registers, &others));
                self.tracees.push(tracee);
            }
        }
        Ok(())
    }
}

fn thread_memory(registers: &Registers, others: &[u8]) -> ThreadMemory {
    let mut words = arch::values(registers);
    words.extend(others.as_chunks::<8>().0.iter().map(|word| u64::from_ne_bytes(*word)));
    let control_block = arch::thread_pointer(registers);
    ThreadMemory { sp: arch::unwound(registers).sp, control_block, words }
}
