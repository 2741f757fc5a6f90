//! Deep stacks in a recording: which events have them, and how samples get theirs.

use std::io;
use std::os::fd::{AsRawFd, RawFd};

use super::{Deep, DeepStackCounts, MAX_CHUNKS, cap};
use crate::sampler::attr::Trigger;
use crate::sampler::bpf::filter::SampleFilter;
use crate::sampler::events::EventKind;
use crate::sampler::{Event, EventSpec, Options, StackMethod};
use sys::record::{Chunk, Sample, UserStack};

/// What a recording has of deep stacks.
#[derive(Debug, Default)]
pub struct DeepStacks {
    deep: Option<Deep>,
    why_not: Option<io::Error>,
    /// It was looked what is in the ring, since [`DeepStacks::begin`].
    fresh: bool,
    /// [`DeepStacks::fd`] has become readable since then.
    readable: bool,
}

impl DeepStacks {
    /// Of events with their triggers; nothing, if none of them copies stacks.
    pub fn of<'e>(
        options: &Options,
        events: impl Iterator<Item = (&'e EventSpec, &'e Trigger)>,
    ) -> DeepStacks {
        let copied = matches!(options.stacks, StackMethod::Auto { .. } | StackMethod::Dwarf { .. });
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

    /// Lets the program run at the samples of an event that copies `dump` bytes, and drop those that
    /// the filter drops. Returns false if it does not.
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

    /// The rings are about to be read.
    pub fn begin(&mut self) {
        self.fresh = false;
        if let Some(deep) = self.deep.as_ref().filter(|_| std::mem::take(&mut self.readable)) {
            deep.clear();
        }
    }

    /// [`DeepStacks::fd`] was found to be readable.
    pub fn found_readable(&mut self) {
        self.readable = true;
    }

    /// Hands out an event that was found in a ring: a sample with all of its stack.
    pub fn complete(&mut self, event: Event<'_>, consume: impl FnOnce(Event<'_>)) {
        self.look();
        let Some(deep) = &mut self.deep else { return consume(event) };
        match event {
            Event::Sample { event, weight, sample } if deep.has(sample.time) => {
                let mut chunks = [Chunk::default(); MAX_CHUNKS];
                let rest = deep.rest(&sample, &mut chunks);
                let user = match sample.user {
                    UserStack::Native { regs, all, bytes, full, .. } => {
                        UserStack::Native { regs, all, bytes, full, rest }
                    }
                    other => other,
                };
                consume(Event::Sample { event, weight, sample: Sample { user, ..sample } });
            }
            other => consume(other),
        }
    }

    /// Looks what is in the ring, once for each time that the other rings are read.
    fn look(&mut self) {
        if let Some(deep) = self.deep.as_mut().filter(|_| !self.fresh) {
            deep.refresh();
            self.fresh = true;
        }
    }

    /// Everything before this time was handed out.
    pub fn end(&mut self, until: u64) {
        if let Some(deep) = &mut self.deep {
            deep.release(until);
        }
    }

    /// Becomes readable when the ring fills.
    pub fn fd(&self) -> Option<RawFd> {
        self.deep.as_ref().map(Deep::fd)
    }

    /// The ring fills, and is to be read soon.
    pub fn is_filling(&self) -> bool {
        self.deep.as_ref().is_some_and(Deep::is_filling)
    }

    /// Bytes of the ring.
    pub fn ring_bytes(&self) -> u64 {
        self.deep.as_ref().map_or(0, Deep::ring_bytes)
    }

    /// Why stacks end where the kernel's copy does; `None`: they do not.
    pub fn why_not(&self) -> Option<&io::Error> {
        self.why_not.as_ref()
    }

    /// A program is at the events.
    pub fn is_attached(&self) -> bool {
        self.deep.is_some()
    }

    /// What became of deep stacks so far.
    pub fn counts(&self) -> DeepStackCounts {
        self.deep.as_ref().map_or_else(DeepStackCounts::default, Deep::counts)
    }
}

/// The kernel runs programs at the samples of such an event: not at those of tracepoints and
/// probes, nor at what other programs write.
fn runs_programs(spec: &EventSpec) -> bool {
    spec.deep_stacks && !spec.member
}
