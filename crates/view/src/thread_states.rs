//! Values of each thread by its state.

use rustc_hash::FxHashMap;

use crate::query::{Column, Order};
use crate::threads::thread;
use crate::{ByState, ListedThread, States, View};

/// A thread with its values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ThreadRow {
    /// The thread; empty names and zeros where samples have no labels of threads.
    pub thread: ListedThread,
    /// Sum of its samples.
    pub total: i64,
    /// The same by state.
    pub by_state: ByState,
}

/// All threads with their values by state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ThreadStates {
    /// The threads, largest total first, then in the order of processes and TIDs.
    pub rows: Vec<ThreadRow>,
    /// Samples have states. If not, all values are those of other states.
    pub has_states: bool,
}

impl ThreadStates {
    /// The threads of a view.
    pub fn new(view: &View) -> ThreadStates {
        let states = States::new(view);
        let other = ByState::default().len() - 1;
        let mut rows: Vec<ThreadRow> = Vec::new();
        let mut numbers: FxHashMap<ListedThread, usize> = FxHashMap::default();
        let mut by_labels = FxHashMap::default();
        for sample in view.samples() {
            let number = *by_labels.entry(sample.labels).or_insert_with(|| {
                let thread = thread(view, sample.labels);
                *numbers.entry(thread).or_insert_with_key(|thread| {
                    let (thread, by_state) = (thread.clone(), ByState::default());
                    rows.push(ThreadRow { thread, total: 0, by_state });
                    rows.len() - 1
                })
            });
            let state = states.as_ref().map_or(other, |states| states.get(sample.labels));
            let ThreadRow { total, by_state, .. } = &mut rows[number];
            *total = total.saturating_add(sample.value);
            by_state[state] = by_state[state].saturating_add(sample.value);
        }
        rows.sort_by(|a, b| {
            let by_total = b.total.unsigned_abs().cmp(&a.total.unsigned_abs());
            let ListedThread { process, pid, name, tid } = &a.thread;
            let other = &b.thread;
            by_total.then_with(|| {
                (pid, tid, process, name).cmp(&(
                    &other.pid,
                    &other.tid,
                    &other.process,
                    &other.name,
                ))
            })
        });
        ThreadStates { rows, has_states: states.is_some() }
    }

    /// Puts the threads, which are in the order of their totals, into another one.
    pub fn sort(&mut self, order: Order) {
        let size = |value: i64| std::cmp::Reverse(value.unsigned_abs());
        match order.column {
            Column::State(state) => self.rows.sort_by_key(|row| size(row.by_state[state])),
            Column::Name => self.sort_by_name(),
            _ => {}
        }
        if order.reversed {
            self.rows.reverse();
        }
    }

    /// Puts the threads into the order of the names of processes and threads.
    fn sort_by_name(&mut self) {
        self.rows.sort_by(|a, b| {
            let ListedThread { process, pid, name, tid } = &a.thread;
            let other = &b.thread;
            (process, name, pid, tid).cmp(&(&other.process, &other.name, &other.pid, &other.tid))
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Granularity;
    use crate::testing::{answers, snapshot, states};
    use profile::Profile;

    fn listed(profile: &Profile) -> Vec<(i64, i64, ByState)> {
        let view = View::new(profile, 0, Granularity::FUNCTION);
        let found = ThreadStates::new(&view);
        let row = |row: &ThreadRow| (row.thread.tid, row.total, row.by_state);
        found.rows.iter().map(row).collect()
    }

    #[test]
    fn values_are_divided_by_state() {
        // Without labels of threads, one row: running, runnable, sleeping.
        assert_eq!(listed(&states()), [(0, 8, [3, 1, 4, 0, 0, 0])]);
        let sleeps = [0, 0, 1, 0, 0, 0];
        let runs = [1, 0, 0, 0, 0, 0];
        let expected = [(10, 1, sleeps), (11, 1, sleeps), (12, 1, sleeps), (13, 1, runs)];
        let found = listed(&snapshot());
        assert_eq!(found[..4], expected);
        assert_eq!(found[4], (21, 1, sleeps));
    }

    #[test]
    fn threads_have_an_order_by_name() {
        let profile = snapshot();
        let mut found = ThreadStates::new(&View::new(&profile, 0, Granularity::FUNCTION));
        found.sort_by_name();
        let tids: Vec<i64> = found.rows.iter().map(|row| row.thread.tid).collect();
        assert_eq!(tids, [21, 10, 11, 12, 13]);
    }

    #[test]
    fn without_states_all_is_other() {
        let profile = answers();
        let view = View::new(&profile, 0, Granularity::FUNCTION);
        let found = ThreadStates::new(&view);
        assert!(!found.has_states);
        assert_eq!(found.rows.len(), 1);
        assert_eq!(found.rows[0].by_state[5], found.rows[0].total);
        let profile = Profile::default();
        assert!(ThreadStates::new(&View::new(&profile, 0, Granularity::FUNCTION)).rows.is_empty());
    }
}
