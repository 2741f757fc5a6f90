//! Allocations and the memory in use, sampled by a library inside the program, which writes to
//! memory shared with prof. The library is preloaded into a COMMAND, or injected into a process.

mod exits;
mod injected;
mod leaks;
mod library;
mod model;
mod options;
mod peak;
mod spec;
mod stacks;
mod writers;

use std::ffi::OsString;
use std::time::Duration;

use clap::Args;

use super::{
    End, Needs, OptionGroup, OwnSamples, Periodic, Poll, Preparation, ProfileType, Registered,
    SampleSource, SampleType, Selection, Setup, TypeStart, ValuesKnown,
};
use crate::sampler::stack_maker::StackMaker;
use crate::sampler::{EventSpec, Target, TypeName};
use library::{InProgram, put};
use messages::Message;
use model::HeapModel;
pub use options::{HeapOptions, HeapSettings};
use profile::{Profile, ValueType, comment};
use spec::HeapSpec;
use stacks::HeapStacks;
use sys::Error;
use sys::record::Record;

/// `-T heap`.
pub const REGISTERED: Registered = Registered {
    name: "heap",
    help: "Allocations, and the memory in use at the end",
    shown_first: &["inuse_space", "alloc_space"],
    values: AT_THE_END,
    options: Some(OptionGroup {
        add: HeapOptions::augment_args,
        given: |options| options.heap.given(),
        applies: |selection| selection.has("heap") || selection.has("alloc"),
        needs: "-T heap or -T alloc",
    }),
    clean_up: Some(::heap::remove_leftovers),
    new: |selection| selection.has("heap").then(|| Allocations::boxed(selection, true)),
};

/// `-T alloc`, a part of `-T heap`.
pub const ALLOCATIONS: Registered = Registered {
    name: "alloc",
    help: "Allocations",
    shown_first: &["alloc_space", "alloc_objects"],
    values: AT_THE_END,
    options: None,
    clean_up: None,
    new: |selection| {
        let alone = selection.has("alloc") && !selection.has("heap");
        alone.then(|| Allocations::boxed(selection, false))
    },
};

const AT_THE_END: ValuesKnown =
    ValuesKnown::AtTheEnd { lack: "shows no allocations", instead: "prof record -T heap" };

struct Allocations {
    spec: HeapSpec,
    library: Option<InProgram>,
    stacks: HeapStacks,
    /// Notes for the user from the removal of the library.
    notes: Vec<Message>,
}

impl Allocations {
    fn boxed(selection: &Selection, in_use: bool) -> Box<dyn ProfileType> {
        let spec = HeapSpec { in_use, settings: selection.options.heap.settings() };
        let stacks = HeapStacks::new(HeapModel::new(spec));
        Box::new(Allocations { spec, library: None, stacks, notes: Vec::new() })
    }
}

impl ProfileType for Allocations {
    fn name(&self) -> TypeName {
        TypeName::Singular("the heap")
    }

    fn sample_types(&self) -> Vec<SampleType> {
        self.spec.sample_types().collect()
    }

    fn needs(&self) -> Needs {
        Needs { processes: true, ..Needs::default() }
    }

    fn arguments_for_process(&self) -> &'static str {
        " -T heap --inject"
    }

    /// Without permission to inject the library into a process, page faults show where its memory
    /// grows.
    fn prepare(&mut self, setup: &Setup<'_>) -> Result<Preparation, Error> {
        if let Target::Processes { .. } = setup.target
            && !self.spec.settings.inject
        {
            let by = Box::new(EventSpec::parse("page-faults")?);
            return Ok(Preparation::Replaced { by, note: Message::PageFaultsInstead });
        }
        let library = put(self.spec.settings, setup.target)?;
        for file in library.files() {
            setup.interrupts.remove_when_giving_up(file);
        }
        self.library = Some(library);
        Ok(Preparation::Ready)
    }

    fn environment(&self) -> Vec<(OsString, OsString)> {
        self.library.as_ref().map_or_else(Vec::new, InProgram::environment)
    }

    fn begin(&mut self) -> Result<(), Error> {
        self.library.as_mut().map_or(Ok(()), |library| library.begin(self.spec.settings))
    }

    fn describe(&self, profile: &mut Profile, first: bool) {
        let interval = self.spec.settings.interval;
        if first {
            profile.default_sample_type = profile.strings.intern(self.spec.default_type());
            let kind = profile.strings.intern("space");
            let unit = profile.strings.intern("bytes");
            profile.period_type = ValueType { kind, unit };
            profile.period = i64::try_from(interval).unwrap_or(i64::MAX);
        } else {
            let comment = format!("{}: {interval}", comment::HEAP_INTERVAL);
            profile.comments.push(profile.strings.intern(&comment));
        }
    }

    fn start(&mut self, _maker: &mut StackMaker, start: &TypeStart<'_>) {
        self.stacks.model.set_columns(start.first);
    }

    fn record(&mut self, _maker: &mut StackMaker, record: &Record<'_>) {
        self.stacks.record(record);
    }

    fn periodic(&mut self) -> Option<&mut dyn Periodic> {
        Some(self)
    }

    fn source(&mut self) -> Option<&mut dyn SampleSource> {
        Some(self)
    }

    fn own_samples(&self) -> OwnSamples {
        let counts = self.stacks.model.counts;
        let lost = self.library.as_ref().map_or(0, InProgram::lost);
        OwnSamples { taken: counts.sampled, lost: lost + counts.late_frees }
    }

    fn end(&mut self, maker: &mut StackMaker, end: &End) -> Vec<Message> {
        // Sums of the whole recording have no time.
        maker.builder.set_time(None);
        let leaks = self.stacks.model.finish(&mut maker.builder);
        let mut notes = std::mem::take(&mut self.notes);
        if let Some(library) = &mut self.library {
            let programs = self.stacks.writers.programs;
            let ended = library.end(&self.stacks.model.counts, programs, end.outlived);
            notes.extend(ended);
        }
        notes.extend(leaks);
        notes
    }
}

impl Periodic for Allocations {
    fn is_due(&self, _thinned: bool) -> bool {
        self.library.is_some()
    }

    fn idle_ms(&mut self, _elapsed: Duration) -> i64 {
        self.library.as_mut().map_or(i64::MAX, InProgram::idle_ms)
    }

    fn poll(&mut self, maker: &mut StackMaker, _now: &Poll<'_>) {
        if let Some(library) = &mut self.library {
            library.poll(maker);
        }
    }
}

impl SampleSource for Allocations {
    fn claims(&mut self, record: &Record<'_>) -> bool {
        self.stacks.writers.record(record)
    }

    fn take_in(&mut self, maker: &mut StackMaker, until: u64, over: bool) {
        if let Some(library) = &mut self.library {
            library.take_in(&mut self.stacks, maker, until, over);
        }
    }

    fn stop(&mut self) {
        if let Some(library) = &self.library {
            library.set_active(false);
        }
    }

    fn release(&mut self) {
        self.notes = self.library.as_mut().map_or_else(Vec::new, InProgram::take_out);
    }
}
