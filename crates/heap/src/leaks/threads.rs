//! The other threads of a process that exits: held while it is looked at, and let go.

use std::time::{Duration, Instant};

use super::Failure;
use crate::inject::restart::for_the_kernel;
use crate::inject::trace::{Registers, Stop, Tracee};
use sys::procfs;

/// Threads that start others meanwhile are looked for so often.
const ROUNDS: usize = 8;

/// How long a thread may take to stop: one that waits for a disk does not.
const TO_STOP: Duration = Duration::from_millis(300);

/// What is known of a thread.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    /// Its stack pointer.
    pub sp: u64,
    /// Where its control block is.
    pub fs: u64,
    /// All that is in its registers.
    pub words: Vec<u64>,
}

/// Threads that stand still until this is dropped.
pub struct Held {
    tracees: Vec<Tracee>,
    seen: Vec<Seen>,
}

impl Held {
    /// Holds all threads of a process but the one that exits: its number, if that is known, and where
    /// its control block is.
    ///
    /// # Errors
    ///
    /// They may not be held, or do not stop in time.
    pub fn hold(pid: i32, exits: i32, fs: u64, until: Instant) -> Result<Held, Failure> {
        let mut held = Held { tracees: Vec::new(), seen: Vec::new() };
        let until = until.min(Instant::now() + TO_STOP);
        let mut known = Vec::new();
        for _ in 0..ROUNDS {
            let mut tids = procfs::threads(pid)?;
            if tids.len() == 1 {
                return Ok(held);
            }
            tids.retain(|tid| *tid != exits && !known.contains(tid));
            if tids.is_empty() {
                return Ok(held);
            }
            known.extend(&tids);
            held.stop(&tids, fs, until)?;
        }
        Err(Failure::Thread)
    }

    /// What is known of them.
    pub fn seen(&self) -> &[Seen] {
        &self.seen
    }

    fn stop(&mut self, tids: &[i32], fs: u64, until: Instant) -> Result<(), Failure> {
        let mut asked = Vec::new();
        for &tid in tids {
            match Tracee::seize(tid) {
                Ok(mut tracee) => {
                    let interrupted = tracee.interrupt().is_ok();
                    asked.extend(interrupted.then_some(tracee));
                }
                Err(e) if e.raw_os_error() != Some(libc::ESRCH) => return Err(e.into()),
                // It has ended.
                _ => {}
            }
        }
        for mut tracee in asked {
            let stop = loop {
                match tracee.wait(until) {
                    // It gets the signal, and is asked still.
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
            // A call that would fail because it was stopped is made again when it goes on.
            tracee.set_registers(&for_the_kernel(&registers)).ok();
            // The one that exits: it goes on to wait.
            if registers.fs_base != fs {
                self.seen.push(seen(&registers, &tracee.xstate().unwrap_or_default()));
                self.tracees.push(tracee);
            }
        }
        Ok(())
    }
}

fn seen(registers: &Registers, others: &[u8]) -> Seen {
    let r = registers;
    let mut words = vec![
        r.rax, r.rbx, r.rcx, r.rdx, r.rsi, r.rdi, r.rbp, r.r8, r.r9, r.r10, r.r11, r.r12, r.r13,
        r.r14, r.r15,
    ];
    words.extend(others.as_chunks::<8>().0.iter().map(|word| u64::from_ne_bytes(*word)));
    Seen { sp: r.rsp, fs: r.fs_base, words }
}
