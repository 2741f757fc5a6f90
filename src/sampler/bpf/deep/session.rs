//! Deep stacks in a recording: the events that have them, and their assignment to samples.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::Arc;

use super::{Deep, DeepStackCounts, StackChunks, cap, clear, watch};
use crate::sampler::attr::Trigger;
use crate::sampler::bpf::filter::SampleFilter;
use crate::sampler::bpf::walk::{MOST_FRAMES, WalkMaps, Walks, most_frames};
use crate::sampler::events::{EventKind, GroupRole};
use crate::sampler::{Event, EventSpec, Options};

/// The deep stacks of a recording, and the walks over frames of interpreters at the same samples.
#[derive(Debug, Default)]
pub struct DeepStacks {
    deep: Option<Deep>,
    why_not: Option<io::Error>,
    walks: Option<Walks>,
    /// Programs of profile types make walks.
    has_walking_programs: bool,
    /// Becomes readable when another quarter of one of the rings has filled.
    filled: Option<OwnedFd>,
    /// The positions in the ring were read since [`DeepStacks::begin`].
    fresh: bool,
}

impl DeepStacks {
    /// For events with their triggers, and the walks that programs of profile types make; empty if
    /// there are none, and none of the events copies stacks.
    pub fn for_events<'e>(
        options: &Options,
        events: impl Iterator<Item = (&'e EventSpec, &'e Trigger)>,
        walks: Option<&Arc<WalkMaps>>,
    ) -> DeepStacks {
        let stacks = DeepStacks::at_events(options, events, walks);
        match walks {
            Some(maps) if stacks.walks.is_none() => stacks.with_walks(maps),
            _ => DeepStacks { has_walking_programs: walks.is_some(), ..stacks },
        }
    }

    /// The same, empty if none of the events copies stacks.
    fn at_events<'e>(
        options: &Options,
        events: impl Iterator<Item = (&'e EventSpec, &'e Trigger)>,
        walks: Option<&Arc<WalkMaps>>,
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
        DeepStacks::new(cap, most_frames(fastest), walks)
            .unwrap_or_else(|why| DeepStacks { why_not: Some(why), ..DeepStacks::default() })
    }

    fn new(cap: u32, most_frames: u32, shared: Option<&Arc<WalkMaps>>) -> io::Result<DeepStacks> {
        let mut deep = Deep::new(cap)?;
        let maps = match shared {
            Some(maps) => {
                maps.set_most(most_frames);
                Ok(maps.clone())
            }
            None => WalkMaps::new(most_frames).map(Arc::new),
        };
        // Without memory for them, stacks are native.
        let walks = maps.and_then(Walks::new).ok();
        if let Some(walks) = &walks {
            deep.set_walks(walks.maps().clone());
        }
        let rings: Vec<_> =
            [deep.ring()].into_iter().chain(walks.as_ref().map(Walks::fd)).collect();
        let filled = Some(watch(&rings)?);
        Ok(DeepStacks { deep: Some(deep), walks, filled, ..DeepStacks::default() })
    }

    /// With the walks of profile types' programs alone.
    fn with_walks(self, maps: &Arc<WalkMaps>) -> DeepStacks {
        maps.set_most(MOST_FRAMES);
        let walks = Walks::new(maps.clone()).ok();
        let filled = walks.as_ref().and_then(|walks| watch(&[walks.fd()]).ok());
        let has_walking_programs = walks.is_some();
        DeepStacks { walks, filled, has_walking_programs, ..self }
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
    /// frames. `walked`: the time of these, if the sample's record has it. To be called for each event.
    pub fn complete<'s>(
        &'s mut self,
        event: &mut Event<'s>,
        walked: Option<u64>,
        chunks: &'s mut StackChunks<'s>,
    ) {
        self.refresh();
        let Event::Sample { sample, .. } = event else { return };
        if let Some(walks) = &mut self.walks {
            sample.walked = walks.records(sample, walked);
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
        let walks =
            self.has_walking_programs || self.deep.as_ref().is_some_and(|deep| deep.walks());
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
