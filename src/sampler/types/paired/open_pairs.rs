//! Operations that have begun and not ended yet.

use std::collections::hash_map::Entry;

use rustc_hash::FxHashMap;

use super::{PairKey, PairMark, Tag, TagValue, Tags, key_of_thread};
use crate::sampler::stack_maker::{PendingStack, StackMaker};
use messages::Message;
use profile::{Column, Label, LabelSetId, LabelValue};
use sys::record::Sample;
use sys::{ThreadId, procfs};

/// Maximum number of open operations of a type, and of objects whose last release is stored.
const MAX_OPEN: usize = 1 << 16;
const MAX_RELEASED: usize = 1 << 12;

/// Maximum number of label sets with an address; further ones have none.
const MAX_ADDRESSES: usize = 1 << 14;

/// Maximum number of stacks whose memory is reused.
const MAX_SPARE: usize = 1 << 10;

struct OpenPair {
    /// Start time (`CLOCK_MONOTONIC`, nanoseconds).
    began: u64,
    thread: ThreadId,
    tags: Tags,
    amount: i64,
    object: u64,
    stack: PendingStack,
    /// True if records were lost since.
    doubtful: bool,
}

/// The thread that woke others waiting for an object, and its stack.
struct Release {
    time: u64,
    tid: i32,
    stack: PendingStack,
}

/// An object of a process.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Object {
    pid: i32,
    address: u64,
}

/// The end of an operation.
#[derive(Clone, Copy)]
struct PairEnd {
    time: u64,
    /// 1, or 0 if it will be continued.
    count: i64,
    /// True if another thread ended it.
    released: bool,
}

impl PairEnd {
    fn at(time: u64) -> PairEnd {
        PairEnd { time, count: 1, released: false }
    }
}

/// Numbers of operations that are not counted completely.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Missed {
    /// Left out because records were lost during the operation, or its end was.
    doubtful: u64,
    /// Left out because too many were open.
    beyond: u64,
    /// Counted without an address.
    unnamed: u64,
}

/// The open operations of one profile type, and the columns of their values.
#[derive(Default)]
pub struct OpenPairs {
    /// The column of the count; those of the time and of other values follow.
    first: Column,
    has_amount: bool,
    open: FxHashMap<PairKey, OpenPair>,
    released: FxHashMap<Object, Release>,
    spare: Vec<PendingStack>,
    labels: FxHashMap<(LabelSetId, Tags), LabelSetId>,
    missed: Missed,
}

impl OpenPairs {
    /// Sets the first column of the values.
    pub fn set_columns(&mut self, first: Column, has_amount: bool) {
        (self.first, self.has_amount) = (first, has_amount);
    }

    /// Forgets the labels of objects.
    pub fn forget_labels(&mut self) {
        self.labels.clear();
    }

    /// Handles a decoded sample.
    pub fn mark(&mut self, maker: &mut StackMaker, sample: &Sample<'_>, mark: &PairMark) {
        match *mark {
            PairMark::Begin { key, tags, amount, object } => {
                maker.make_stack(sample);
                let stack = self.keep(maker.last_stack());
                let began = sample.time;
                let thread = sample.thread();
                let open = OpenPair { began, thread, tags, amount, object, stack, doubtful: false };
                self.begin(key, open);
            }
            PairMark::End { key, again, released } => {
                if let Some(open) = self.open.remove(&key) {
                    let ended = PairEnd { time: sample.time, count: i64::from(!again), released };
                    self.close(maker, open, ended);
                }
            }
            PairMark::Release { object } => {
                maker.make_stack(sample);
                let stack = self.keep(maker.last_stack());
                let object = Object { pid: sample.pid, address: object };
                self.release(object, Release { time: sample.time, tid: sample.tid, stack });
            }
        }
    }

    /// A copy of a stack, in reused memory.
    pub fn keep(&mut self, stack: &PendingStack) -> PendingStack {
        let mut kept = self.spare.pop().unwrap_or_default();
        kept.clone_from(stack);
        kept
    }

    /// Returns the memory of a stack for reuse.
    pub fn recycle(&mut self, stack: PendingStack) {
        if self.spare.len() < MAX_SPARE {
            self.spare.push(stack);
        }
    }

    fn begin(&mut self, key: PairKey, open: OpenPair) {
        if self.open.len() >= MAX_OPEN && !self.open.contains_key(&key) {
            self.missed.beyond += 1;
            return self.recycle(open.stack);
        }
        match self.open.entry(key) {
            // The wait for a kernel lock may have two phases, and a request may be issued again.
            // That is one pair.
            Entry::Occupied(_) if key.1 != 0 => self.recycle(open.stack),
            Entry::Occupied(mut before) => {
                self.missed.doubtful += 1;
                let before = before.insert(open);
                self.recycle(before.stack);
            }
            Entry::Vacant(entry) => {
                entry.insert(open);
            }
        }
    }

    fn release(&mut self, object: Object, release: Release) {
        if self.released.len() >= MAX_RELEASED && !self.released.contains_key(&object) {
            // The waiting threads were woken, or will be again.
            self.released.clear();
        }
        if let Some(before) = self.released.insert(object, release) {
            self.recycle(before.stack);
        }
    }

    fn close(&mut self, maker: &mut StackMaker, open: OpenPair, ended: PairEnd) {
        if open.doubtful {
            self.missed.doubtful += 1;
            return self.recycle(open.stack);
        }
        let lasted = ended.time.saturating_sub(open.began) as i64;
        let values = [ended.count, lasted, open.amount];
        let used = if self.has_amount { 3 } else { 2 };
        self.add(maker, &open.stack, open.thread, &open.tags, &self.columns(0, &values[..used]));
        if ended.released {
            self.attribute_to_releaser(maker, &open, ended.time, lasted);
        }
        self.recycle(open.stack);
    }

    /// Attributes the time that a thread waited for another to the stack that released it.
    fn attribute_to_releaser(
        &mut self,
        maker: &mut StackMaker,
        open: &OpenPair,
        time: u64,
        lasted: i64,
    ) {
        let object = Object { pid: open.thread.pid, address: open.object };
        let Some(by) = self.released.remove(&object) else { return };
        if (open.began..=time).contains(&by.time) {
            let thread = ThreadId { pid: open.thread.pid, tid: by.tid };
            self.add(maker, &by.stack, thread, &open.tags, &self.columns(2, &[1, lasted]));
        }
        // It may release several threads.
        self.released.insert(object, by);
    }

    /// Values for the type's sample types, starting with number `from`.
    pub fn columns(&self, from: usize, values: &[i64]) -> Values {
        let mut columns = [(Column::default(), 0); 3];
        for (i, &value) in values.iter().enumerate() {
            columns[i] = (Column(self.first.0 + from + i), value);
        }
        Values { columns, used: values.len() }
    }

    /// Adds values, which are no samples, to a stack of a thread, with labels in addition to the thread's.
    pub fn add(
        &mut self,
        maker: &mut StackMaker,
        stack: &PendingStack,
        thread: ThreadId,
        tags: &Tags,
        values: &Values,
    ) {
        let labels = self.labels(maker, thread, tags);
        maker.add_pending(stack, labels, 0, values.as_slice());
    }

    /// The labels of a thread and those of `tags`.
    pub fn labels(&mut self, maker: &mut StackMaker, thread: ThreadId, tags: &Tags) -> LabelSetId {
        let base = maker.labels_in_state(thread, None);
        self.tagged(maker, base, tags)
    }

    fn tagged(&mut self, maker: &mut StackMaker, base: LabelSetId, tags: &Tags) -> LabelSetId {
        if let Some(&labels) = self.labels.get(&(base, *tags)) {
            return labels;
        }
        let address = |tag: &Tag| matches!(tag.value, TagValue::Address(_));
        if self.labels.len() >= MAX_ADDRESSES && tags.iter().flatten().any(address) {
            self.missed.unnamed += 1;
            let tags = tags.map(|tag| match tag {
                Some(tag) if address(&tag) => Some(Tag { value: TagValue::Word("[other]"), ..tag }),
                other => other,
            });
            return self.tagged(maker, base, &tags);
        }
        let profile = &mut maker.builder.profile;
        let mut set = profile.labels.get(base).to_vec();
        for tag in tags.iter().flatten() {
            let key = profile.strings.intern(tag.key);
            let value = LabelValue::Str(profile.strings.intern(&text(tag.value)));
            set.push(Label { key, value });
        }
        let labels = profile.labels.intern(&set);
        self.labels.insert((base, *tags), labels);
        labels
    }

    /// A thread exits, which ends its operations.
    pub fn thread_ends(&mut self, maker: &mut StackMaker, tid: i32, time: u64) {
        if let Some(open) = self.open.remove(&key_of_thread(tid)) {
            self.close(maker, open, PairEnd::at(time));
        }
    }

    /// Records were lost, possibly an end.
    pub fn lose_records(&mut self) {
        self.open.values_mut().for_each(|open| open.doubtful = true);
    }

    /// The recording ends.
    pub fn end(&mut self, maker: &mut StackMaker, time: u64) {
        for (_, open) in std::mem::take(&mut self.open) {
            self.close(maker, open, PairEnd::at(time));
        }
    }

    /// Notes about operations that are not counted completely; `noun` is the type.
    pub fn notes(&self, noun: &'static str) -> Vec<Message> {
        let Missed { doubtful, beyond, unnamed } = self.missed;
        let noun = || noun.to_owned();
        let notes = [
            (doubtful, Message::PairsLost { noun: noun(), count: doubtful }),
            (beyond, Message::PairsBeyondLimit { noun: noun(), count: beyond }),
            (unnamed, Message::PairsWithoutAddress { noun: noun(), count: unnamed }),
        ];
        notes.into_iter().filter(|(count, _)| *count > 0).map(|(_, note)| note).collect()
    }
}

/// Values of one stack.
pub struct Values {
    columns: [(Column, i64); 3],
    used: usize,
}

impl Values {
    /// The values, as arguments of the profile's builder.
    pub fn as_slice(&self) -> &[(Column, i64)] {
        &self.columns[..self.used]
    }
}

/// The text of a label.
fn text(value: TagValue) -> String {
    const LOCK_FLAGS: [&str; 6] = ["spin", "read", "write", "rt", "percpu", "mutex"];
    match value {
        TagValue::Word(word) => word.to_owned(),
        TagValue::Address(address) => format!("{address:#x}"),
        TagValue::Number(number) => format!("syscall {number}"),
        TagValue::Compat(number) => format!("32-bit syscall {number}"),
        TagValue::Device(number) => {
            let major = number >> 20;
            let minor = number & 0xf_ffff;
            procfs::block_device(major, minor).unwrap_or_else(|| format!("{major}:{minor}"))
        }
        TagValue::LockFlags(flags) => {
            let set = |i: &usize| flags & 1 << i != 0;
            let names: Vec<_> = (0..LOCK_FLAGS.len()).filter(set).map(|i| LOCK_FLAGS[i]).collect();
            names.join("|")
        }
    }
}
