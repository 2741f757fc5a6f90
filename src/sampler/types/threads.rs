//! Threads: snapshots of all with their stacks and states, and the stacks that start threads.

mod creation;
mod now;
mod round;
mod snapshots;

use clap::Args;

use super::{
    End, EventTrial, Needs, OptionGroup, OwnSamples, Periodic, Preparation, ProfileType,
    Registered, SampleCounting, SampleType, Setup, TypeEvent, TypeStart, ValuesKnown,
};
use crate::sampler::TypeName;
use crate::sampler::stack_maker::StackMaker;
use creation::Creation;
use messages::Message;
pub use now::snapshot;
use profile::{Column, Profile};
use snapshots::Snapshots;
use sys::Error;
use sys::record::{Record, Sample};

/// `-T threads`.
pub const REGISTERED: Registered = Registered {
    name: "threads",
    help: "All threads with their stacks, and where threads are created",
    shown_first: &["threads"],
    values: ValuesKnown::AtTheEnd { lack: "takes none", instead: "prof threads" },
    options: Some(OptionGroup {
        add: ThreadsOptions::augment_args,
        given: |options| options.threads.snapshots.map(|_| "--snapshots"),
        applies: |selection| selection.has("threads"),
        needs: "-T threads",
    }),
    clean_up: None,
    new: |selection| {
        let snapshots = selection.options.threads.snapshots.unwrap_or(1);
        let new = || Box::new(Threads::new(snapshots)) as Box<dyn ProfileType>;
        selection.has("threads").then(new)
    },
};

/// The options of `-T threads`.
#[derive(Clone, Debug, Default, Args)]
pub struct ThreadsOptions {
    /// Take N snapshots of all threads, evenly spaced [default: 1]
    ///
    /// For -T threads. Without --snapshots and other types, the snapshot is taken immediately.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000),
          help_heading = "Profile types")]
    pub snapshots: Option<u32>,
}

/// The column `threads`, without a separate count: nothing else is counted then.
const THREADS: SampleType = SampleType::count("threads");

struct Threads {
    /// The number of snapshots.
    snapshots: u32,
    /// True if threads can be started during the recording.
    lasts: bool,
    creation: Option<Creation>,
    taken: Option<Snapshots>,
}

impl Threads {
    fn new(snapshots: u32) -> Threads {
        Threads { snapshots, lasts: true, creation: None, taken: None }
    }
}

impl ProfileType for Threads {
    fn name(&self) -> TypeName {
        TypeName::Plural("threads")
    }

    fn sample_types(&self) -> Vec<SampleType> {
        let mut types = vec![THREADS];
        if self.taken.is_none() || self.creation.is_some() {
            types.extend(creation::SAMPLE_TYPES);
        }
        types
    }

    /// With several snapshots, the number of observations is not the number of threads.
    fn needs(&self) -> Needs {
        let several = self.snapshots > 1;
        let samples = if several { SampleCounting::Always } else { SampleCounting::WithOthers };
        Needs { samples, processes: true, ..Needs::default() }
    }

    /// The number of threads is what a snapshot is about, and those that were created come behind.
    fn describe(&self, profile: &mut Profile, first: bool) {
        if first {
            profile.default_sample_type = profile.sample_types[0].kind;
        }
    }

    fn prepare(&mut self, setup: &Setup<'_>) -> Result<Preparation, Error> {
        self.lasts = setup.duration.is_none_or(|duration| !duration.is_zero());
        self.taken = Some(Snapshots::new(self.snapshots, setup.duration, setup.target.clone()));
        Ok(Preparation::Ready)
    }

    fn events(&mut self, trial: &mut EventTrial<'_>) -> Result<Vec<TypeEvent>, Error> {
        self.creation = None;
        if !self.lasts {
            return Ok(Vec::new());
        }
        match Creation::find(trial) {
            Ok((creation, event)) => {
                self.creation = Some(creation);
                Ok(vec![event])
            }
            Err(why) => {
                trial.note(Message::NoCreation { why: why.to_string() });
                Ok(Vec::new())
            }
        }
    }

    fn start(&mut self, _maker: &mut StackMaker, start: &TypeStart<'_>) {
        if let Some(taken) = &mut self.taken {
            taken.set_column(start.first);
        }
        if let Some(creation) = &mut self.creation {
            creation.set_columns(Column(start.first.0 + 1));
        }
    }

    fn sample(&mut self, maker: &mut StackMaker, _event: usize, sample: &Sample<'_>, _weight: u64) {
        if let Some(creation) = &mut self.creation {
            creation.sample(maker, sample);
        }
    }

    fn record(&mut self, _maker: &mut StackMaker, record: &Record<'_>) {
        if let (Record::Exit { tid, .. }, Some(creation)) = (record, &mut self.creation) {
            creation.thread_ends(*tid);
        }
    }

    fn periodic(&mut self) -> Option<&mut dyn Periodic> {
        self.taken.as_mut().map(|taken| taken as &mut dyn Periodic)
    }

    fn own_samples(&self) -> OwnSamples {
        let taken = self.taken.as_ref().map_or(0, Snapshots::found);
        OwnSamples { taken, lost: 0 }
    }

    fn end(&mut self, maker: &mut StackMaker, _end: &End) -> Vec<Message> {
        let mut notes = self.taken.as_mut().map_or_else(Vec::new, |taken| taken.end(maker));
        let missing = self.creation.as_mut().and_then(|creation| creation.end(maker));
        notes.extend(missing);
        notes
    }
}
