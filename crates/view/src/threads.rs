//! Threads of a snapshot, grouped by stack and state.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;

use crate::{View, label_text};
use profile::{LabelSetId, LabelValue, ThreadState, label};

/// A thread.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct ListedThread {
    /// Name of its process.
    pub process: String,
    /// PID of its process.
    pub pid: i64,
    /// Its name.
    pub name: String,
    /// Its TID.
    pub tid: i64,
}

/// Threads with the same stack and state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ThreadGroup {
    /// Their state, from the label `state`.
    pub state: String,
    /// Their frames in [`View::frames`], innermost first.
    pub frames: Vec<u32>,
    /// The threads, sorted by process and TID.
    pub threads: Vec<ListedThread>,
}

/// The threads of a profile of type `threads`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Threads {
    /// The groups in their order.
    pub groups: Vec<ThreadGroup>,
}

impl Threads {
    /// Threads with equal stacks and states in one group: the largest groups first, and running
    /// ones first among equals.
    pub fn by_stack(view: &View) -> Threads {
        let mut found: FxHashMap<(String, Vec<u32>), Vec<ListedThread>> = FxHashMap::default();
        for sample in view.samples() {
            let frames = sample.stack.iter().flat_map(|&l| view.frames.at(l)).copied().collect();
            let state = text(view, sample.labels, label::STATE);
            found.entry((state, frames)).or_default().push(thread(view, sample.labels));
        }
        let mut groups: Vec<ThreadGroup> = found
            .into_iter()
            .map(|((state, frames), mut threads)| {
                threads
                    .sort_unstable_by(|a, b| (a.pid, a.tid, &a.name).cmp(&(b.pid, b.tid, &b.name)));
                ThreadGroup { state, frames, threads }
            })
            .collect();
        let waits = |group: &ThreadGroup| group.state != ThreadState::Running.name();
        let first = |group: &ThreadGroup| group.threads.first().map(|t| (t.pid, t.tid));
        groups.sort_by(|a, b| {
            let largest = b.threads.len().cmp(&a.threads.len());
            largest.then(waits(a).cmp(&waits(b))).then_with(|| first(a).cmp(&first(b)))
        });
        Threads { groups }
    }

    /// Each thread in a group of its own, in the order of processes and TIDs.
    pub fn each(view: &View) -> Threads {
        let alone = |ThreadGroup { state, frames, threads }: ThreadGroup| {
            threads.into_iter().map(move |thread| ThreadGroup {
                state: state.clone(),
                frames: frames.clone(),
                threads: vec![thread],
            })
        };
        let mut groups: Vec<_> =
            Threads::by_stack(view).groups.into_iter().flat_map(alone).collect();
        groups.sort_by_key(|group| (group.threads[0].pid, group.threads[0].tid));
        Threads { groups }
    }

    /// The number of threads.
    pub fn count(&self) -> usize {
        self.groups.iter().map(|group| group.threads.len()).sum()
    }

    /// The names of the processes, by PID.
    pub fn processes(&self) -> BTreeMap<i64, &str> {
        let threads = self.groups.iter().flat_map(|group| &group.threads);
        threads.map(|thread| (thread.pid, thread.process.as_str())).collect()
    }
}

fn value(view: &View, labels: LabelSetId, key: &str) -> Option<LabelValue> {
    view.profile.labels.value(labels, view.profile.strings.find(key)?)
}

fn text(view: &View, labels: LabelSetId, key: &str) -> String {
    value(view, labels, key).map_or(String::new(), |v| label_text(view.profile, v))
}

pub(crate) fn thread(view: &View, labels: LabelSetId) -> ListedThread {
    let number = |key| match value(view, labels, key) {
        Some(LabelValue::Num { value, .. }) => value,
        _ => 0,
    };
    ListedThread {
        process: text(view, labels, label::PROCESS),
        pid: number(label::PID),
        name: text(view, labels, label::THREAD),
        tid: number(label::TID),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Granularity;
    use crate::testing::snapshot;

    /// The state, the frames and the TIDs of each group.
    fn drawn(view: &View, threads: &Threads) -> Vec<String> {
        let group = |group: &ThreadGroup| {
            let frames = group.frames.iter().map(|&f| view.frames.get(f).display(view.profile));
            let frames: Vec<String> = frames.map(|name| name.into_owned()).collect();
            let tids: Vec<String> = group.threads.iter().map(|t| t.tid.to_string()).collect();
            format!("{} {}: {}", group.state, frames.join("<"), tids.join(" "))
        };
        threads.groups.iter().map(group).collect()
    }

    #[test]
    fn threads_with_equal_stacks_and_states_are_one_group() {
        let profile = snapshot();
        let view = View::new(&profile, 0, Granularity::FUNCTION);
        let threads = Threads::by_stack(&view);
        assert_eq!(
            drawn(&view, &threads),
            ["sleeping wait<main: 11 12 21", "running work<main: 13", "sleeping work<main: 10"]
        );
        assert_eq!(threads.count(), 5);
        let processes: Vec<_> = threads.processes().into_iter().collect();
        assert_eq!(processes, [(10, "server"), (20, "client")]);
    }

    #[test]
    fn each_thread_is_a_group_in_the_order_of_tids() {
        let profile = snapshot();
        let view = View::new(&profile, 0, Granularity::FUNCTION);
        let threads = Threads::each(&view);
        let tids: Vec<i64> = threads.groups.iter().map(|group| group.threads[0].tid).collect();
        assert_eq!(tids, [10, 11, 12, 13, 21]);
        assert!(threads.groups.iter().all(|group| group.threads.len() == 1));
        assert_eq!(threads.groups[3].state, "running");
    }
}
