//! Spans: what begins with a stack, and is counted with how long it lasted when it ends.
//!
//! Those that last until the end of the recording count until then; those that had begun before it
//! are not known. A span during which records were lost may be two of which the end of the one and
//! the beginning of the other are missing: it is left out, and counted.

mod calls;

use std::collections::hash_map::Entry;

use rustc_hash::FxHashMap;

use super::Aggregator;
use super::held::Held;
use crate::sampler::SpanType;
use crate::sampler::spans::{Key, Mark, SpanSet, Tag, TagValue, Tags};
use calls::Told;
use profile::{Column, Label, LabelSetId, LabelValue};
use sys::procfs;
use sys::record::{Record, Sample};

/// Most spans of a type that are open at once; and most objects that somebody has let others go on
/// with lately.
const MAX_OPEN: usize = 1 << 16;
const MAX_RELEASED: usize = 1 << 12;

/// Most sets of labels with an address in them; what is beyond has none.
const MAX_ADDRESSES: usize = 1 << 14;

/// Stacks that are kept for the next span.
const MAX_SPARE: usize = 1 << 10;

struct Open {
    /// `CLOCK_MONOTONIC`, nanoseconds.
    began: u64,
    pid: i32,
    tid: i32,
    tags: Tags,
    amount: i64,
    object: u64,
    stack: Held,
    /// Records were lost since.
    doubtful: bool,
}

/// Who let others go on with an object, and where.
struct Released {
    time: u64,
    tid: i32,
    stack: Held,
}

/// What was not counted as it should be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Missed {
    /// Left out because records were lost while they lasted, or their end was.
    doubtful: u64,
    /// Left out because too many were open.
    beyond: u64,
    /// Without their address.
    unnamed: u64,
}

/// The spans of one profile type.
pub struct Spans {
    set: SpanSet,
    /// Their number; their time and what else there is come behind it.
    first: Column,
    open: FxHashMap<Key, Open>,
    /// By process and object.
    released: FxHashMap<(i32, u64), Released>,
    spare: Vec<Held>,
    labels: FxHashMap<(LabelSetId, Tags), LabelSetId>,
    missed: Missed,
    /// Those of which programs in the kernel tell.
    told: Told,
}

impl Spans {
    /// None yet, of a type whose values begin with this column.
    pub fn new(set: SpanSet, first: Column) -> Spans {
        let (open, released, labels) = Default::default();
        let (spare, missed) = (Vec::new(), Missed::default());
        Spans { set, first, open, released, spare, labels, missed, told: Told::default() }
    }

    fn spare(&mut self, stack: Held) {
        if self.spare.len() < MAX_SPARE {
            self.spare.push(stack);
        }
    }

    fn begin(&mut self, key: Key, span: Open) {
        if self.open.len() >= MAX_OPEN && !self.open.contains_key(&key) {
            self.missed.beyond += 1;
            return self.spare(span.stack);
        }
        match self.open.entry(key) {
            // A kernel's lock is waited for in two ways, one after the other; a request is handed
            // out again. That is one span.
            Entry::Occupied(_) if key.1 != 0 => self.spare(span.stack),
            Entry::Occupied(mut before) => {
                self.missed.doubtful += 1;
                let before = before.insert(span);
                self.spare(before.stack);
            }
            Entry::Vacant(entry) => {
                entry.insert(span);
            }
        }
    }

    fn release(&mut self, at: (i32, u64), released: Released) {
        if self.released.len() >= MAX_RELEASED && !self.released.contains_key(&at) {
            // Whoever waits for them has been heard of, or will be let go on again.
            self.released.clear();
        }
        if let Some(before) = self.released.insert(at, released) {
            self.spare(before.stack);
        }
    }

    /// Sentences about what was not counted as it should be.
    pub fn notes(&self) -> Vec<String> {
        let Missed { doubtful, beyond, unnamed } = self.missed;
        let name = self.set.of.name();
        let said = [
            (doubtful, "are left out: records were lost while they lasted, or their end was"),
            (beyond, "are left out: too many lasted at the same time"),
            (unnamed, "have no address in their label 'lock': there were too many"),
        ];
        let said = said.into_iter().filter(|(n, _)| *n > 0);
        said.map(|(n, what)| format!("{name}: {n} {what}")).collect()
    }
}

impl Aggregator {
    /// Wants the spans of these types, in the order of their events.
    pub fn set_spans(&mut self, spans: Vec<Spans>) {
        self.spans = spans;
    }

    /// Sentences about spans that were not counted as they should be.
    pub fn span_notes(&self) -> Vec<String> {
        self.spans.iter().flat_map(Spans::notes).collect()
    }

    /// A sample of the event number `event` of a type.
    pub(super) fn span(&mut self, of: usize, event: usize, sample: &Sample<'_>) {
        match (self.spans[of].set.readers[event])(sample) {
            Some(Mark::Begin { key, tags, amount, object }) => {
                let stack = self.held(of, sample);
                let Sample { time: began, pid, tid, .. } = *sample;
                let doubtful = false;
                let span = Open { began, pid, tid, tags, amount, object, stack, doubtful };
                self.spans[of].begin(key, span);
            }
            Some(Mark::End { key, again, released }) => {
                if let Some(span) = self.spans[of].open.remove(&key) {
                    self.close(of, span, sample.time, u64::from(!again), released);
                }
            }
            Some(Mark::Call(call)) => self.call(of, &call, sample),
            Some(Mark::Release { object }) => {
                let stack = self.held(of, sample);
                let released = Released { time: sample.time, tid: sample.tid, stack };
                self.spans[of].release((sample.pid, object), released);
            }
            None => {}
        }
    }

    /// The stack of a sample, to be counted later.
    fn held(&mut self, of: usize, sample: &Sample<'_>) -> Held {
        let mut held = self.spans[of].spare.pop().unwrap_or_default();
        let mut scratch = std::mem::take(&mut self.scratch);
        let leaf = self.stack(sample, &mut scratch);
        held.set(&scratch, leaf);
        self.scratch = scratch;
        held
    }

    /// Counts a span (as so many) that ends at `time`.
    fn close(&mut self, of: usize, span: Open, time: u64, count: u64, released: bool) {
        let spans = &mut self.spans[of];
        if span.doubtful {
            spans.missed.doubtful += 1;
            return spans.spare(span.stack);
        }
        let lasted = time.saturating_sub(span.began) as i64;
        let first = spans.first.0;
        let values = [
            (Column(first), count as i64),
            (Column(first + 1), lasted),
            (Column(first + 2), span.amount),
        ];
        let used = if spans.set.of == SpanType::Io { 3 } else { 2 };
        self.add_span(of, &span.stack, (span.pid, span.tid), &span.tags, &values[..used]);
        if released {
            self.blame(of, &span, time, &[(Column(first + 2), 1), (Column(first + 3), lasted)]);
        }
        self.spans[of].spare(span.stack);
    }

    /// Counts what somebody waited for another thread, by where that let it go on.
    fn blame(&mut self, of: usize, span: &Open, time: u64, values: &[(Column, i64)]) {
        let at = (span.pid, span.object);
        let Some(by) = self.spans[of].released.remove(&at) else { return };
        if (span.began..=time).contains(&by.time) {
            self.add_span(of, &by.stack, (span.pid, by.tid), &span.tags, values);
        }
        // It may let several go on.
        self.spans[of].released.insert(at, by);
    }

    fn add_span(
        &mut self,
        of: usize,
        stack: &Held,
        (pid, tid): (i32, i32),
        tags: &Tags,
        values: &[(Column, i64)],
    ) {
        let base = self.labels_of(pid, tid, None);
        let labels = self.tagged(of, base, tags);
        self.add_values(stack, labels, values);
    }

    fn add_values(&mut self, stack: &Held, labels: LabelSetId, values: &[(Column, i64)]) {
        // The first column counts samples of time, which these are not.
        let mut all = [(Column(0), 0); 4];
        all[1..=values.len()].copy_from_slice(values);
        let all = &all[..=values.len()];
        self.builder.add_stack(&stack.callers, stack.innermost, labels, all);
    }

    /// These labels and those of a span.
    fn tagged(&mut self, of: usize, base: LabelSetId, tags: &Tags) -> LabelSetId {
        let spans = &mut self.spans[of];
        if let Some(&labels) = spans.labels.get(&(base, *tags)) {
            return labels;
        }
        let address = |tag: &Tag| matches!(tag.value, TagValue::Address(_));
        if spans.labels.len() >= MAX_ADDRESSES && tags.iter().flatten().any(address) {
            spans.missed.unnamed += 1;
            let tags = tags.map(|tag| match tag {
                Some(tag) if address(&tag) => Some(Tag { value: TagValue::Word("[other]"), ..tag }),
                other => other,
            });
            return self.tagged(of, base, &tags);
        }
        let profile = &mut self.builder.profile;
        let mut set = profile.labels.get(base).to_vec();
        for tag in tags.iter().flatten() {
            let key = profile.strings.intern(tag.key);
            let value = LabelValue::Str(profile.strings.intern(&text(tag.value)));
            set.push(Label { key, value });
        }
        let labels = profile.labels.intern(&set);
        spans.labels.insert((base, *tags), labels);
        labels
    }

    /// Ends of threads, and losses.
    pub(super) fn spans_record(&mut self, record: &Record<'_>) {
        match *record {
            Record::Exit { tid, time, .. } => {
                for of in 0..self.spans.len() {
                    let spans = &mut self.spans[of];
                    let by_thread = spans.set.of != SpanType::Io;
                    let key = (tid as u32 as u64, 0);
                    if by_thread && let Some(span) = spans.open.remove(&key) {
                        self.close(of, span, time, 1, false);
                    }
                }
            }
            Record::Lost(_) | Record::LostSamples(_) => {
                let open = self.spans.iter_mut().flat_map(|spans| spans.open.values_mut());
                open.for_each(|span| span.doubtful = true);
            }
            _ => {}
        }
    }

    /// The recording ends at `time`.
    pub fn end_of_spans(&mut self, time: u64) {
        for of in 0..self.spans.len() {
            let open = std::mem::take(&mut self.spans[of].open);
            for (_, span) in open {
                self.close(of, span, time, 1, false);
            }
        }
    }
}

/// What a label says.
fn text(value: TagValue) -> String {
    const LOCK_FLAGS: [&str; 6] = ["spin", "read", "write", "rt", "percpu", "mutex"];
    match value {
        TagValue::Word(word) => word.to_owned(),
        TagValue::Address(address) => format!("{address:#x}"),
        TagValue::Number(number) => format!("syscall {number}"),
        TagValue::Compat(number) => format!("32-bit syscall {number}"),
        TagValue::Device(number) => {
            let (major, minor) = (number >> 20, number & 0xf_ffff);
            procfs::block_device(major, minor).unwrap_or_else(|| format!("{major}:{minor}"))
        }
        TagValue::LockFlags(flags) => {
            let set = |i: &usize| flags & 1 << i != 0;
            let names: Vec<_> = (0..LOCK_FLAGS.len()).filter(set).map(|i| LOCK_FLAGS[i]).collect();
            names.join("|")
        }
    }
}
