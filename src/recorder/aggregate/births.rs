//! Which stacks start threads, and which of those threads are still there at the end.

use rustc_hash::FxHashMap;

use super::{Aggregator, Innermost};
use crate::sampler::Field;
use profile::{Column, LabelSetId, LocationId};
use sys::record::{Record, Sample};

/// Most threads that are told from which stack they come, while they live.
const MAX_ALIVE: usize = 1 << 16;

/// A thread's beginning: the stack of whoever started it, outermost frame first.
struct Birth {
    callers: Box<[LocationId]>,
    innermost: Option<Innermost>,
    labels: LabelSetId,
}

/// The threads that were started while recording.
pub struct Births {
    created: Column,
    grown: Column,
    /// The new thread, of the fields of `task:task_newtask`.
    child: Field,
    alive: FxHashMap<i32, Birth>,
    /// Threads beyond [`MAX_ALIVE`].
    missed: u64,
}

impl Births {
    /// Counts all in one column, and those that live on in the other; the field tells the new thread.
    pub fn new(created: Column, grown: Column, child: Field) -> Births {
        Births { created, grown, child, alive: FxHashMap::default(), missed: 0 }
    }
}

impl Aggregator {
    /// Wants to know who starts threads.
    pub fn set_births(&mut self, births: Births) {
        self.births = Some(births);
    }

    /// A thread starts another.
    pub(super) fn starts(&mut self, sample: &Sample<'_>) {
        let child = self.births.as_ref().and_then(|births| births.child.number(sample.raw));
        let Some(child) = child else { return };
        let mut scratch = std::mem::take(&mut self.scratch);
        let innermost = self.stack(sample, &mut scratch);
        let labels = self.labels(sample.pid, sample.tid);
        if let Some(births) = &mut self.births {
            // No thread was looked at, which the first column counts.
            let values = [(Column(0), 0), (births.created, 1)];
            self.builder.add_stack(&scratch.callers, innermost, labels, &values);
            if births.alive.len() < MAX_ALIVE {
                let callers = scratch.callers.as_slice().into();
                births.alive.insert(child as i32, Birth { callers, innermost, labels });
            } else {
                births.missed += 1;
            }
        }
        self.scratch = scratch;
    }

    /// A thread that ends is no growth.
    pub(super) fn thread_ends(&mut self, record: &Record<'_>) {
        if let (Record::Exit { tid, .. }, Some(births)) = (record, &mut self.births) {
            births.alive.remove(tid);
        }
    }

    /// The recording has ended: what lives by now has come to stay. A sentence for the user, if
    /// something is missing.
    pub fn end_of_births(&mut self) -> Option<String> {
        let births = self.births.take()?;
        for birth in births.alive.into_values() {
            let Birth { callers, innermost, labels } = birth;
            let values = [(Column(0), 0), (births.grown, 1)];
            self.builder.add_stack(&callers, innermost, labels, &values);
        }
        (births.missed > 0).then(|| {
            format!(
                "{} new threads are not known to live or not (sample type threads_grown): there \
                 were too many at a time",
                births.missed
            )
        })
    }
}
