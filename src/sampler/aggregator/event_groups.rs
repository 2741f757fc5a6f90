//! Events that are counted as a group: the counts since the last sample of a thread are attributed
//! to the stack of the current one.

use rustc_hash::FxHashMap;

use profile::Column;
use sys::record::GroupCounts;

/// The counts at the last sample of each thread.
#[derive(Debug, Default)]
pub struct EventGroups {
    /// Sample type of each event, by its identifier.
    columns: FxHashMap<u64, Column>,
    /// Counts of each thread, by identifier; of each CPU if whole CPUs are sampled.
    last: FxHashMap<u64, Vec<(u64, u64)>>,
    /// True if whole CPUs are sampled.
    cpu_wide: bool,
    /// The increment of each sample type.
    deltas: Vec<(Column, i64)>,
}

impl EventGroups {
    /// For the events with these identifiers.
    pub fn new(columns: FxHashMap<u64, Column>, cpu_wide: bool) -> EventGroups {
        EventGroups { columns, cpu_wide, ..EventGroups::default() }
    }

    /// The counts since the thread's last sample; the full counts, if it is the first.
    pub fn since_last(&mut self, tid: i32, counts: GroupCounts<'_>) -> &[(Column, i64)] {
        self.deltas.clear();
        // A CPU is identified by its first event.
        let first = counts.iter().next().map_or(0, |(id, _)| id);
        let last = self.last.entry(if self.cpu_wide { first } else { tid as u64 }).or_default();
        for (id, count) in counts.iter() {
            let Some(&column) = self.columns.get(&id) else { continue };
            let before = match last.iter_mut().find(|(known, _)| *known == id) {
                Some((_, before)) => std::mem::replace(before, count),
                None => {
                    last.push((id, count));
                    0
                }
            };
            // Less than before: another thread has the ID now, and the exit of the first was not
            // recorded.
            let delta = count.checked_sub(before).unwrap_or(count);
            self.deltas.push((column, i64::try_from(delta).unwrap_or(i64::MAX)));
        }
        &self.deltas
    }

    /// Removes a thread that has exited.
    pub fn forget(&mut self, tid: i32) {
        if !self.cpu_wide {
            self.last.remove(&(tid as u64));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(cycles: u64, instructions: u64) -> Vec<u8> {
        let words = [cycles, 42, 0, instructions, 43, 0];
        words.iter().flat_map(|w| w.to_ne_bytes()).collect()
    }

    fn groups(cpu_wide: bool) -> EventGroups {
        EventGroups::new([(42, Column(1)), (43, Column(2))].into_iter().collect(), cpu_wide)
    }

    fn take(groups: &mut EventGroups, tid: i32, cycles: u64, instructions: u64) -> Vec<i64> {
        let bytes = counts(cycles, instructions);
        let deltas = groups.since_last(tid, GroupCounts::new(&bytes));
        assert!(deltas.iter().map(|d| d.0.0).eq([1, 2]));
        deltas.iter().map(|d| d.1).collect()
    }

    #[test]
    fn a_sample_gets_what_its_thread_counted_since_the_last() {
        let mut g = groups(false);
        assert_eq!(take(&mut g, 7, 1000, 2500), [1000, 2500]);
        assert_eq!(take(&mut g, 8, 300, 100), [300, 100], "another thread");
        assert_eq!(take(&mut g, 7, 1500, 2600), [500, 100]);
        assert_eq!(take(&mut g, 8, 300, 100), [0, 0]);
        g.forget(7);
        assert_eq!(take(&mut g, 7, 2000, 3000), [2000, 3000], "a new thread");
        assert_eq!(take(&mut g, 7, 10, 20), [10, 20], "a new thread without a record");
    }

    #[test]
    fn a_cpu_counts_for_all_its_threads() {
        let mut g = groups(true);
        assert_eq!(take(&mut g, 7, 1000, 2500), [1000, 2500]);
        assert_eq!(take(&mut g, 8, 1200, 2600), [200, 100]);
        g.forget(8);
        assert_eq!(take(&mut g, 7, 1300, 2700), [100, 100]);
    }
}
