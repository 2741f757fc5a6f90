//! Attaches to all threads of processes.

use std::io;

use rustc_hash::FxHashSet;

use super::{Attacher, Who};
use crate::sampler::permissions::{Wanted, refused};
use crate::sampler::ring::Ring;
use crate::sampler::rings::Rings;
use sys::record::{self, Record};
use sys::{Error, os, procfs};

/// Maximum number of enumerations of a target that starts threads without end from threads that are
/// not attached; each attaches all threads found.
const MAX_ROUNDS: usize = 50;

/// Number of threads that are attached without a pause.
const AT_ONCE: usize = 64;

impl Attacher {
    /// Attaches to all threads of these processes; threads created in the meantime are either
    /// inherited (then a ring contains their `FORK`) or found by the next enumeration.
    ///
    /// Returns the number of threads attached.
    pub fn attach_processes(&mut self, pids: &[i32], rings: &mut Rings) -> Result<usize, Error> {
        let mut known = FxHashSet::default();
        let mut attached = 0;
        for _ in 0..MAX_ROUNDS {
            let mut new: Vec<i32> = pids
                .iter()
                .flat_map(|&pid| procfs::threads(pid).unwrap_or_default())
                .filter(|tid| !known.contains(tid))
                .collect();
            if attached > 0 && !new.is_empty() {
                // A FORK record is written just after the thread becomes visible.
                std::thread::sleep(std::time::Duration::from_millis(1));
                let inherited = forked(rings.sideband());
                known.extend(new.extract_if(.., |tid| inherited.contains(tid)));
            }
            if new.is_empty() {
                break;
            }
            self.reserve_files(new.len())?;
            for (i, tid) in new.into_iter().enumerate() {
                if i % AT_ONCE == AT_ONCE - 1 {
                    os::pause_briefly();
                }
                known.insert(tid);
                let opened = self.open(Who::Thread(tid), rings.outputs());
                attached += usize::from(opened.map_err(|e| self.not_attached(tid, &e))?);
            }
        }
        Ok(attached)
    }

    fn not_attached(&self, tid: i32, error: &io::Error) -> Error {
        let pid = procfs::owner(tid).map_or(tid, |(pid, _)| pid);
        refused(error, Wanted::OtherProcess(pid as u32))
    }
}

/// Threads whose `FORK` record is in the rings, that is: that inherited the events.
fn forked(rings: &mut [Ring]) -> FxHashSet<i32> {
    let mut inherited = FxHashSet::default();
    for ring in rings {
        ring.refresh();
        ring.scan(|header, bytes| {
            if let Some(Record::Fork { tid, .. }) = record::other(header, bytes) {
                inherited.insert(tid);
            }
        });
    }
    inherited
}
