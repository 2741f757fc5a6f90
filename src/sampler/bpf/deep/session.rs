//! Deep stacks in a recording: the events that have them, and their assignment to samples.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::Arc;

use super::{Deep, DeepStackCounts, StackChunks, cap, clear, watch};
use crate::sampler::attr::Trigger;
use crate::sampler::bpf::filter::SampleFilter;
use crate::sampler::bpf::walk::{WalkMaps, Walks, most_frames};
use crate::sampler::events::{EventKind, GroupRole};
use crate::sampler::{Event, EventSpec, Options};

/// The deep stacks of a recording, and the walks over frames of interpreters at the same samples.
#[derive(Debug, Default)]
pub struct DeepStacks {
    deep: Option<Deep>,
    why_not: Option<io::Error>,
    walks: Option<Walks>,
    /// Becomes readable when another quarter of one of the rings has filled.
    filled: Option<OwnedFd>,
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
        let rates = events.filter(|(spec, _)| copied && spec.stack && runs_programs(spec)).map(
            |(spec, trigger)| match *trigger {
                Trigger::Frequency(hertz) => hertz,
                Trigger::Period(period) if spec.kind == EventKind::Clock => {
                    1_000_000_000_u64.div_ceil(period.max(1))
                }
                Trigger::Period(_) => 0,
            },
        );
        // An unknown rate (0) counts as the highest.
        let Some(fastest) = rates.max_by_key(|hertz| hertz.wrapping_sub(1)) else {
            return DeepStacks::default();
        };
        let Some(cap) = options.deepest.or(cap(fastest)) else {
            let why = "the rate is too high to copy more of each stack; lower -F";
            return DeepStacks { why_not: Some(io::Error::other(why)), ..DeepStacks::default() };
        };
        DeepStacks::new(cap, most_frames(fastest))
            .unwrap_or_else(|why| DeepStacks { why_not: Some(why), ..DeepStacks::default() })
    }

    fn new(cap: u32, most_frames: u32) -> io::Result<DeepStacks> {
        let mut deep = Deep::new(cap)?;
        // Without memory for them, stacks are native.
        let maps = WalkMaps::new(most_frames).map(Arc::new);
        let walks = maps.and_then(Walks::new).ok();
        if let Some(walks) = &walks {
            deep.set_walks(walks.maps().clone());
        }
        let rings: Vec<_> =
            [deep.ring()].into_iter().chain(walks.as_ref().map(Walks::fd)).collect();
        let filled = Some(watch(&rings)?);
        Ok(DeepStacks { deep: Some(deep), walks, filled, ..DeepStacks::default() })
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
        self.filled.iter().for_each(clear);
    }

    /// Gives a sample of a ring all of its stack, in `chunks`, and the copies of an interpreter's
    /// frames. To be called for each event.
    pub fn complete<'s>(&'s mut self, event: &mut Event<'s>, chunks: &'s mut StackChunks<'s>) {
        self.refresh();
        let Event::Sample { sample, .. } = event else { return };
        if let Some(walks) = &mut self.walks {
            sample.walked = walks.records(sample);
        }
        if let Some(deep) = &mut self.deep
            && deep.has(sample.time)
        {
            let all = deep.rest(sample, chunks);
            sample.rest_mut().into_iter().for_each(|rest| *rest = all);
        }
    }

    /// Reads the positions in the ring, once for each time that the other rings are read.
    fn refresh(&mut self) {
        if !std::mem::replace(&mut self.fresh, true) {
            self.deep.iter_mut().for_each(Deep::refresh);
            self.walks.iter_mut().for_each(Walks::refresh);
        }
    }

    /// Releases everything before this time, which was delivered.
    pub fn end(&mut self, until: u64) {
        self.deep.iter_mut().for_each(|deep| deep.release(until));
        self.walks.iter_mut().for_each(|walks| walks.release(until));
    }

    /// Becomes readable when one of the rings fills.
    pub fn fd(&self) -> Option<RawFd> {
        self.filled.as_ref().map(AsRawFd::as_raw_fd)
    }

    /// True if one of the rings fills and has to be read soon.
    pub fn is_filling(&self) -> bool {
        self.deep.as_ref().is_some_and(Deep::is_filling)
            || self.walks.as_ref().is_some_and(Walks::is_filling)
    }

    /// The walks of processes, if programs make them.
    pub fn walk_maps(&self) -> Option<&Arc<WalkMaps>> {
        let walks = self.deep.as_ref().is_some_and(|deep| deep.walks());
        self.walks.as_ref().filter(|_| walks).map(Walks::maps)
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
