//! The labels of samples.

use rustc_hash::FxHashMap;

use super::StackMaker;
use profile::{Detail, Label, LabelSetId, LabelValue, StrId, StringTable, ThreadState, label};
use sys::ThreadId;

/// Keys of labels.
pub(super) struct Keys {
    pid: StrId,
    tid: StrId,
    process: StrId,
    thread: StrId,
    cgroup: StrId,
    container: StrId,
    container_id: StrId,
    pub state: StrId,
}

impl Keys {
    pub fn new(strings: &mut StringTable) -> Keys {
        Keys {
            pid: strings.intern(label::PID),
            tid: strings.intern(label::TID),
            process: strings.intern(label::PROCESS),
            thread: strings.intern(label::THREAD),
            cgroup: strings.intern(label::CGROUP),
            container: strings.intern(label::CONTAINER),
            container_id: strings.intern(label::CONTAINER_ID),
            state: strings.intern(label::STATE),
        }
    }
}

/// Number of label sets of a thread: one without a state, and one for each state.
const SETS: usize = 1 + ThreadState::ALL.len();

/// Maximum number of threads whose label sets are cached. Ended threads are not removed: beyond
/// this, the cache is cleared and filled again on demand.
const MAX_THREADS: usize = 1 << 16;

/// A cache of the label sets of threads.
#[derive(Default)]
pub(super) struct LabelCache {
    threads: FxHashMap<i32, Cached>,
}

struct Cached {
    /// [`Thread::version`](sys::processes::Thread::version) at the time of caching.
    version: u64,
    sets: [Option<LabelSetId>; SETS],
}

impl LabelCache {
    /// The entry of one of a thread's sets; empty if the thread has changed since.
    fn slot(&mut self, tid: i32, version: u64, set: usize) -> &mut Option<LabelSetId> {
        if self.threads.len() >= MAX_THREADS && !self.threads.contains_key(&tid) {
            self.threads.clear();
        }
        let cached =
            self.threads.entry(tid).or_insert_with(|| Cached { version, sets: [None; SETS] });
        if cached.version != version {
            *cached = Cached { version, sets: [None; SETS] };
        }
        &mut cached.sets[set]
    }
}

impl StackMaker {
    /// True if labels of a thread were made before: no file is read for them.
    pub(super) fn has_labels(&self, thread: ThreadId) -> bool {
        let cached = self.label_cache.threads.get(&thread.tid);
        let version = self.table.known_version(thread);
        cached.is_some_and(|cached| Some(cached.version) == version)
    }

    /// Forgets the labels of all threads.
    pub fn forget_labels(&mut self) {
        self.last_labels = None;
        self.label_cache = LabelCache::default();
    }

    /// The labels of a thread.
    pub fn labels(&mut self, thread: ThreadId) -> LabelSetId {
        match self.last_labels {
            Some((last, labels)) if last == thread => labels,
            _ => {
                let labels = self.labels_in_state(thread, None);
                self.last_labels = Some((thread, labels));
                labels
            }
        }
    }

    /// The labels of a thread, with the state in which it was.
    pub fn labels_in_state(&mut self, thread: ThreadId, state: Option<ThreadState>) -> LabelSetId {
        let ThreadId { pid, tid } = thread;
        let set = state.map_or(0, |s| s as usize + 1);
        let thread = self.table.thread_mut(thread);
        let slot = self.label_cache.slot(tid, thread.version, set);
        if let Some(labels) = *slot {
            return labels;
        }
        let detail = self.builder.detail();
        let thread = thread.name.clone();
        let name = self.table.process(pid).name.clone();
        let cgroup = self.table.cgroup(pid);
        let container = cgroup.container.as_ref().map(|c| self.table.container(pid, c));
        let profile = &mut self.builder.profile;
        let number = |key, value: i32| Label {
            key,
            value: LabelValue::Num { value: i64::from(value), unit: StrId::EMPTY },
        };
        let mut set = Vec::with_capacity(9);
        let mut texts = [
            (self.keys.process, Some(&*name)),
            (self.keys.thread, Some(&*thread)),
            (self.keys.cgroup, cgroup.path.as_deref()),
            (self.keys.container, container.as_ref().map(|c| &*c.0)),
            (self.keys.container_id, container.as_ref().and_then(|c| c.1.as_deref())),
            (self.keys.state, state.map(ThreadState::name)),
        ];
        self.counts.unlabelled += u64::from(detail != Detail::Thread);
        match detail {
            Detail::Thread => {
                set.extend([number(self.keys.pid, pid), number(self.keys.tid, tid)]);
            }
            Detail::Process => set.push(number(self.keys.pid, pid)),
            Detail::Names => texts[1].1 = None,
        }
        for (key, text) in texts {
            if let Some(text) = text.filter(|t| !t.is_empty()) {
                set.push(Label { key, value: LabelValue::Str(profile.strings.intern(text)) });
            }
        }
        let id = profile.labels.intern(&set);
        *slot = Some(id);
        id
    }
}
