//! Deep stacks in a recording: the events that have them, and their assignment to samples.

use std::io;
use std::os::fd::{AsRawFd, RawFd};

use super::{Deep, DeepStackCounts, StackChunks, cap};
use crate::sampler::attr::Trigger;
use crate::sampler::bpf::filter::SampleFilter;
use crate::sampler::events::{EventKind, GroupRole};
use crate::sampler::{Event, EventSpec, Options};

/// The deep stacks of a recording.
#[derive(Debug, Default)]
pub struct DeepStacks {
    deep: Option<Deep>,
    why_not: Option<io::Error>,
    /// The positions in the ring were read since [`DeepStacks::begin`].
    fresh: bool,
}

impl DeepStacks {
    /// For events with their triggers; empty if none of them copies stacks.
    pub fn for_events<'e>(
        options: &Options,
        events: impl Iterator<Item = (&'e EventSpec, &'e Trigger)>,
    ) -> DeepStacks {
        let copied = options.stacks.has_copies();
        let fastest = events
            .filter(|(spec, _)| copied && spec.stack && runs_programs(spec))
            .map(|(spec, trigger)| match *trigger {
                Trigger::Frequency(hertz) => cap(hertz),
                Trigger::Period(period) if spec.kind == EventKind::Clock => {
                    cap(1_000_000_000_u64.div_ceil(period.max(1)))
                }
                Trigger::Period(_) => cap(0),
            })
            .min();
        match fastest.map(|cap| options.deepest.or(cap)) {
            None => DeepStacks::default(),
            Some(None) => {
                let why = "the rate is too high to copy more of each stack; lower -F";
                DeepStacks { why_not: Some(io::Error::other(why)), ..DeepStacks::default() }
            }
            Some(Some(cap)) => match Deep::new(cap) {
                Ok(deep) => DeepStacks { deep: Some(deep), ..DeepStacks::default() },
                Err(why) => DeepStacks { why_not: Some(why), ..DeepStacks::default() },
            },
        }
    }

    /// Attaches the program to an event that copies `dump` bytes, and drops the samples that the
    /// filter drops. Returns false if that fails.
    pub fn attach(
        &mut self,
        event: &impl AsRawFd,
        spec: &EventSpec,
        dump: u32,
        filter: Option<&SampleFilter>,
    ) -> bool {
        let Some(deep) = self.deep.as_mut().filter(|_| dump > 0 && runs_programs(spec)) else {
            return false;
        };
        let attached = deep.attach(event.as_raw_fd(), dump, filter);
        attached.map_err(|why| (self.deep, self.why_not) = (None, Some(why))).is_ok()
    }

    /// To be called before the rings are read.
    pub fn begin(&mut self) {
        self.fresh = false;
    }

    /// Makes [`DeepStacks::fd`] unreadable until the ring has filled further.
    pub fn clear(&self) {
        self.deep.iter().for_each(Deep::clear);
    }

    /// Gives a sample of a ring all of its stack, in `chunks`. To be called for each event.
    pub fn complete<'s>(&'s mut self, event: &mut Event<'s>, chunks: &'s mut StackChunks<'s>) {
        self.refresh();
        if let (Some(deep), Event::Sample { sample, .. }) = (&mut self.deep, event)
            && deep.has(sample.time)
        {
            let all = deep.rest(sample, chunks);
            sample.rest_mut().into_iter().for_each(|rest| *rest = all);
        }
    }

    /// Reads the positions in the ring, once for each time that the other rings are read.
    fn refresh(&mut self) {
        if let Some(deep) = self.deep.as_mut().filter(|_| !self.fresh) {
            deep.refresh();
            self.fresh = true;
        }
    }

    /// Releases everything before this time, which was delivered.
    pub fn end(&mut self, until: u64) {
        if let Some(deep) = &mut self.deep {
            deep.release(until);
        }
    }

    /// Becomes readable when the ring fills.
    pub fn fd(&self) -> Option<RawFd> {
        self.deep.as_ref().map(Deep::fd)
    }

    /// True if the ring fills and has to be read soon.
    pub fn is_filling(&self) -> bool {
        self.deep.as_ref().is_some_and(Deep::is_filling)
    }

    /// The reason why stacks end with the kernel's copy; `None` if they do not.
    pub fn why_not(&self) -> Option<&io::Error> {
        self.why_not.as_ref()
    }

    /// True if a program is attached to the events.
    pub fn is_attached(&self) -> bool {
        self.deep.is_some()
    }

    /// The counts so far.
    pub fn counts(&self) -> DeepStackCounts {
        self.deep.as_ref().map_or_else(DeepStackCounts::default, Deep::counts)
    }
}

/// True if the kernel runs programs at the samples of such an event: not at those of tracepoints
/// and probes, nor at those that other programs write.
fn runs_programs(spec: &EventSpec) -> bool {
    spec.deep_stacks && spec.group != GroupRole::Member
}
