//! The target's processes among all, when whole CPUs are sampled on behalf of a few processes.
//!
//! Sampling CPUs and dropping the rest is exact where an event per thread is not: the timer of a
//! thread (and CPU) starts again with each, so a thread that runs shorter than one period would
//! never be sampled, and there may be thousands of those. It also needs no descriptor per thread,
//! and no thread can be missed while attaching.

use rustc_hash::FxHashSet;

use super::Event;
use sys::procfs;
use sys::record::Record;

/// The processes of a target, updated by `FORK` records.
#[derive(Debug, Default)]
pub struct ProcessFilter {
    pids: FxHashSet<i32>,
    /// A command that has not called `execve` yet.
    awaited: Option<i32>,
    /// After records were lost, possibly `FORK` among them: processes that `/proc` showed not to be
    /// the target's. `None`: no records were lost.
    others: Option<FxHashSet<i32>>,
}

impl ProcessFilter {
    /// These processes, and those that they start from now on.
    pub fn for_pids(pids: &[i32]) -> ProcessFilter {
        ProcessFilter { pids: pids.iter().copied().collect(), ..ProcessFilter::default() }
    }

    /// This process after its `execve`, and those that it starts.
    pub fn after_exec(pid: i32) -> ProcessFilter {
        ProcessFilter { awaited: Some(pid), ..ProcessFilter::default() }
    }

    /// True if an event is one of the target's. Has to get all events in order of time.
    pub fn admits(&mut self, event: &Event<'_>) -> bool {
        match *event {
            Event::Sample { ref sample, .. } => {
                self.pids.contains(&sample.pid) || self.is_unrecorded_child(sample.pid)
            }
            Event::Other(Record::Lost(_)) => {
                self.others = Some(FxHashSet::default());
                true
            }
            Event::Other(Record::Fork { pid, parent, .. }) if pid != parent => {
                // A PID can be reused by a child of another process.
                let ours = self.pids.contains(&parent);
                if ours {
                    self.pids.insert(pid)
                } else {
                    self.pids.remove(&pid)
                };
                ours
            }
            Event::Other(Record::Comm { pid, exec: true, .. }) if self.awaited == Some(pid) => {
                self.awaited = None;
                self.pids.insert(pid);
                true
            }
            Event::Other(
                Record::Fork { pid, .. }
                | Record::Comm { pid, .. }
                | Record::Mmap(sys::record::Mmap { pid, .. })
                | Record::Exit { pid, .. }
                | Record::Switch { pid, .. },
            ) => self.pids.contains(&pid),
            Event::Other(_) => true,
        }
    }

    /// True if the process is one of the target's, but its `FORK` record was lost.
    fn is_unrecorded_child(&mut self, pid: i32) -> bool {
        let ProcessFilter { pids, awaited, others: Some(others) } = self else { return false };
        if pid <= 0 || others.contains(&pid) {
            return false;
        }
        let mut line = vec![pid];
        loop {
            let last = line[line.len() - 1];
            if pids.contains(&last) || *awaited == Some(last) {
                *awaited = awaited.filter(|&awaited| awaited != last);
                pids.extend(line);
                return true;
            }
            match procfs::stat(last).map(|stat| stat.parent) {
                Some(parent) if parent > 0 && line.len() < MAX_ANCESTORS => line.push(parent),
                _ => break,
            }
        }
        others.insert(pid);
        false
    }
}

/// Maximum number of ancestors that are read.
const MAX_ANCESTORS: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    fn fork(pid: i32, parent: i32) -> Event<'static> {
        Event::Other(Record::Fork { pid, parent, tid: pid, parent_tid: parent, time: 0 })
    }

    fn comm(pid: i32, exec: bool) -> Event<'static> {
        Event::Other(Record::Comm { pid, tid: pid, exec, name: b"x" })
    }

    #[test]
    fn children_belong_to_the_target() {
        let mut f = ProcessFilter::for_pids(&[10]);
        assert!(f.admits(&fork(11, 10)) && f.admits(&fork(12, 11)) && f.admits(&comm(12, true)));
        assert!(!f.admits(&fork(21, 20)) && !f.admits(&comm(21, true)));
        assert!(!f.admits(&fork(12, 20)), "a PID used again");
        assert!(!f.admits(&comm(12, false)));
    }

    /// The child's `FORK` record is missing.
    #[test]
    fn children_are_asked_for_when_records_were_lost() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let pid = child.id() as i32;
        let lost = Event::Other(Record::Lost(1));
        for mut f in [
            ProcessFilter::for_pids(&[std::process::id() as i32]),
            ProcessFilter::after_exec(std::process::id() as i32),
        ] {
            assert!(!f.is_unrecorded_child(pid), "nothing was lost");
            f.admits(&lost);
            assert!(f.is_unrecorded_child(pid) && f.pids.contains(&pid));
        }
        let mut other = ProcessFilter::for_pids(&[i32::MAX]);
        other.admits(&lost);
        assert!(!other.is_unrecorded_child(pid) && !other.is_unrecorded_child(0));
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn a_command_counts_from_its_exec() {
        let mut f = ProcessFilter::after_exec(10);
        assert!(!f.admits(&comm(10, false)));
        assert!(f.admits(&comm(10, true)) && f.admits(&fork(11, 10)));
    }
}
