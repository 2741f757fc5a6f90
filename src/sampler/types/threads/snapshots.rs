//! Periodic snapshots of all threads during a recording.

use std::time::Duration;

use super::now::note_missing;
use super::round::{Round, ThreadCounting, ThreadsSeen};
use crate::sampler::stack_maker::StackMaker;
use crate::sampler::types::{Periodic, Poll};
use crate::sampler::{Target, cgroup_directory, cgroup_processes};
use messages::Message;
use profile::Column;
use sys::{ThreadId, procfs};

/// Interval between two snapshots of a recording of unknown length.
const EVERY: Duration = Duration::from_secs(1);

/// Takes snapshots of all threads, evenly spaced over the window of a recording.
pub struct Snapshots {
    target: Target,
    column: Column,
    /// The number of snapshots; `None`: until the end.
    wanted: Option<u32>,
    every: Duration,
    begun: u32,
    round: Option<Round>,
    seen: ThreadsSeen,
    notes: Vec<Message>,
}

impl Snapshots {
    /// Takes `snapshots` snapshots of the threads of `target` in a recording of length `window`.
    pub fn new(snapshots: u32, window: Option<Duration>, target: Target) -> Snapshots {
        Snapshots {
            target,
            column: Column::default(),
            wanted: window.map(|_| snapshots),
            every: window.map_or(EVERY, |window| window / snapshots.max(1)),
            begun: 0,
            round: None,
            seen: ThreadsSeen::default(),
            notes: Vec::new(),
        }
    }

    /// Sets the column that counts threads.
    pub fn set_column(&mut self, column: Column) {
        self.column = column;
    }

    /// Number of threads found, summed over all snapshots.
    pub fn found(&self) -> u64 {
        self.seen.found as u64
    }

    /// Time of the next snapshot: in the middle of its part of the window.
    fn due(&self) -> Option<Duration> {
        let left = self.wanted.is_none_or(|wanted| self.begun < wanted);
        left.then(|| self.every * self.begun + self.every / 2)
    }

    /// Milliseconds until the next step is due.
    fn ms_until_due(&self, elapsed: Duration) -> i64 {
        match (&self.round, self.due()) {
            // Threads that are waited for are sampled every 100 µs.
            (Some(_), _) => 1,
            (None, Some(due)) => due.saturating_sub(elapsed).as_micros().div_ceil(1000) as i64,
            (None, None) => i64::MAX,
        }
    }

    /// Continues the snapshot in progress, or starts one that is due. The target's processes are
    /// `pids`, and those that they started.
    fn step(&mut self, maker: &mut StackMaker, pids: &[i32], elapsed: Duration) {
        if let Some(round) = &mut self.round {
            if round.step(maker, 0) {
                self.done();
            }
        } else if self.due().is_some_and(|due| due <= elapsed) {
            self.begun += 1;
            let threads = self.threads(maker, pids);
            self.round = Some(Round::begin(maker, threads, ThreadCounting::Recorded(self.column)));
            self.step(maker, pids, elapsed);
        }
    }

    /// All live threads of the target, with their processes.
    fn threads(&self, maker: &StackMaker, pids: &[i32]) -> Vec<ThreadId> {
        let mut pids = pids.to_vec();
        match &self.target {
            Target::Everything => {
                // prof would only observe its own snapshot.
                let own = std::process::id() as i32;
                pids = procfs::processes().into_iter().filter(|&pid| pid != own).collect();
            }
            Target::Cgroup(path) => {
                pids = cgroup_directory(path).map_or_else(|_| Vec::new(), |f| cgroup_processes(&f));
            }
            _ => pids.extend(maker.table.born_alive()),
        }
        pids.sort_unstable();
        pids.dedup();
        let target = match &self.target {
            // The command runs now.
            Target::Command(_) => &Target::Processes { pids: Vec::new(), tree: false },
            target => target,
        };
        target.threads(&pids)
    }

    fn done(&mut self) {
        let Some(round) = self.round.take() else { return };
        self.seen.gone += round.seen.gone;
        self.seen.refused += round.seen.refused;
        self.seen.found += round.seen.found;
        for note in round.notes {
            let sentence = note.to_string();
            if !self.notes.iter().any(|known| known.to_string() == sentence) {
                self.notes.push(note);
            }
        }
    }

    /// The recording has ended: scales threads to their average number. Returns notes for the user.
    pub fn end(&mut self, maker: &mut StackMaker) -> Vec<Message> {
        if let Some(round) = &mut self.round {
            round.end(maker);
        }
        self.done();
        if self.begun == 0 {
            self.notes.push(Message::NoSnapshot);
        }
        if self.begun > 1 {
            let all = self.seen.found + self.seen.refused;
            let snapshots = self.begun as usize;
            maker.builder.scale_to(self.column, ((all + snapshots / 2) / snapshots) as i64);
            self.notes.push(Message::Snapshots { snapshots: u64::from(self.begun) });
        }
        let mut notes = std::mem::take(&mut self.notes);
        notes.extend(note_missing(&self.seen));
        notes
    }
}

impl Periodic for Snapshots {
    fn is_due(&self, _thinned: bool) -> bool {
        true
    }

    fn idle_ms(&mut self, elapsed: Duration) -> i64 {
        self.ms_until_due(elapsed)
    }

    fn is_busy(&self, elapsed: Duration) -> bool {
        self.wanted.is_some() && self.ms_until_due(elapsed) <= 1
    }

    fn poll(&mut self, maker: &mut StackMaker, now: &Poll<'_>) {
        self.step(maker, now.pids, now.elapsed);
    }
}
