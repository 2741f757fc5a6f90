//! Processes that started while recording.

use rustc_hash::FxHashMap;

use crate::os;
use crate::record::Record;

/// Number of processes above which those are forgotten whose end was not recorded.
const MANY: usize = 1 << 14;

/// The processes that started while recording and have not ended.
#[derive(Debug, Default)]
pub struct BornProcesses {
    /// Threads that started minus those that ended, by process.
    threads: FxHashMap<i32, i64>,
    /// Number of processes above which ended ones are searched for.
    many: usize,
}

impl BornProcesses {
    /// Applies a record.
    pub fn apply(&mut self, record: &Record<'_>) {
        match *record {
            Record::Fork { pid, parent, .. } => {
                if pid != parent {
                    self.threads.insert(pid, 0);
                    self.forget_gone();
                }
                if let Some(threads) = self.threads.get_mut(&pid) {
                    *threads += 1;
                }
            }
            Record::Exit { pid, .. } => {
                if let Some(threads) = self.threads.get_mut(&pid) {
                    *threads -= 1;
                    if *threads <= 0 {
                        self.threads.remove(&pid);
                    }
                }
            }
            _ => {}
        }
    }

    /// The processes.
    pub fn alive(&self) -> impl Iterator<Item = i32> + '_ {
        self.threads.iter().filter(|&(_, &n)| n > 0).map(|(&pid, _)| pid)
    }

    /// Forgets those whose end was not recorded, when there are many.
    fn forget_gone(&mut self) {
        if self.threads.len() >= self.many.max(MANY) {
            self.threads.retain(|&pid, _| os::exists(pid));
            self.many = self.threads.len() * 2;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_lives_as_long_as_one_of_its_threads() {
        let mut born = BornProcesses::default();
        let fork =
            |pid, parent, tid| Record::Fork { pid, parent, tid, parent_tid: parent, time: 1 };
        let exit = |pid, tid| Record::Exit { pid, tid, time: 2 };
        born.apply(&fork(7, 7, 8));
        assert_eq!(born.alive().count(), 0, "a thread of a process from before");
        born.apply(&fork(10, 7, 10));
        born.apply(&fork(10, 10, 11));
        born.apply(&exit(10, 10));
        assert_eq!(born.alive().collect::<Vec<_>>(), [10]);
        born.apply(&exit(10, 11));
        assert_eq!(born.alive().count(), 0);
    }
}
