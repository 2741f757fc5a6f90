//! The stacks that start threads, and the number of those threads that still exist at the end.

use rustc_hash::FxHashMap;

use crate::sampler::EventSpec;
use crate::sampler::events::EventKind;
use crate::sampler::permissions::{Wanted, refused};
use crate::sampler::stack_maker::{PendingStack, StackMaker};
use crate::sampler::tracepoint::{Field, Tracepoint};
use crate::sampler::types::{EventTrial, SampleType, TypeEvent};
use messages::Message;
use perf_event_open_sys::bindings as abi;
use profile::{Column, LabelSetId};
use std::io;
use sys::Error;
use sys::record::Sample;

/// Started threads, and those that still exist.
pub const SAMPLE_TYPES: [SampleType; 2] =
    [SampleType::count("threads_created"), SampleType::count("threads_grown")];

/// Maximum number of live threads whose creation is stored.
const MAX_ALIVE: usize = 1 << 16;

/// The creation of a thread: the stack that started it.
struct Created {
    stack: PendingStack,
    labels: LabelSetId,
}

/// The threads that were started while recording.
pub struct Creation {
    created: Column,
    grown: Column,
    /// The field of `task:task_newtask` with the new thread.
    child: Field,
    alive: FxHashMap<i32, Created>,
    /// Number of threads beyond [`MAX_ALIVE`].
    missed: u64,
}

impl Creation {
    /// The event: a thread starts another of its process.
    ///
    /// # Errors
    ///
    /// This user may not open tracepoints.
    pub fn find(trial: &mut EventTrial<'_>) -> Result<(Creation, TypeEvent), Error> {
        let name = "task:task_newtask";
        let denied = |e: io::Error| refused(&e, Wanted::Tracefs(name.to_owned()));
        let found = Tracepoint::find("task", "task_newtask").map_err(denied)?;
        let child = found.field("pid").map_err(denied)?;
        let spec = EventSpec::plain(name, EventKind::OfType, abi::PERF_TYPE_TRACEPOINT, found.id);
        let filter = Some(format!("clone_flags & {}", libc::CLONE_THREAD));
        let spec = EventSpec { raw: true, filter, auxiliary: true, ..spec };
        trial.attempt(|trial| trial.can_open(&spec))?;
        let creation = Creation {
            created: Column::default(),
            grown: Column::default(),
            child,
            alive: FxHashMap::default(),
            missed: 0,
        };
        Ok((creation, TypeEvent::each_time(spec)))
    }

    /// Sets the first column of the values of [`SAMPLE_TYPES`].
    pub fn set_columns(&mut self, first: Column) {
        (self.created, self.grown) = (first, Column(first.0 + 1));
    }

    /// A thread starts another.
    pub fn sample(&mut self, maker: &mut StackMaker, sample: &Sample<'_>) {
        let Some(child) = self.child.number(sample.raw) else { return };
        maker.make_stack(sample);
        let labels = maker.labels(sample.thread());
        maker.add_last(labels, 0, &[(self.created, 1)]);
        if self.alive.len() < MAX_ALIVE {
            let stack = maker.last_stack().clone();
            self.alive.insert(child as i32, Created { stack, labels });
        } else {
            self.missed += 1;
        }
    }

    /// A thread that exits is no growth.
    pub fn thread_ends(&mut self, tid: i32) {
        self.alive.remove(&tid);
    }

    /// The recording has ended: counts the threads that still exist. Returns a note for the user,
    /// if some are missing.
    pub fn end(&mut self, maker: &mut StackMaker) -> Option<Message> {
        for Created { stack, labels } in std::mem::take(&mut self.alive).into_values() {
            maker.add_pending(&stack, labels, 0, &[(self.grown, 1)]);
        }
        (self.missed > 0).then_some(Message::CreatedThreadsMissing { threads: self.missed })
    }
}
