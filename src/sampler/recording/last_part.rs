//! Recordings of which only the last part is kept: the builder has slices of time, and the figures
//! at the start of each are kept beside them.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use super::opened::StartTime;
use crate::sampler::aggregator::Aggregator;
use crate::sampler::types::OwnSamples;
use crate::sampler::{Session, Stats};
use profile::{KeptTime, SliceLimits, Truncation};
use unwind::StackEnd;

/// Number of slices of the time that is kept: it is longer than requested by one of them at most.
const SLICES: u32 = 30;

/// The shortest slice.
const SHORTEST: Duration = Duration::from_millis(100);

/// Most bytes of the slices.
const MOST_BYTES: usize = 64 << 20;

/// Counters of a recording, or of a part of it.
#[derive(Clone, Debug, Default)]
pub struct Figures {
    /// Those of the session.
    pub stats: Stats,
    /// Samples that do not belong to an event.
    pub own: OwnSamples,
    /// Number of user stacks.
    pub user_stacks: u64,
    /// Number of deep user stacks.
    pub deep: u64,
    /// Number of threads whose samples have no label `tid`.
    pub unlabelled: u64,
    /// Number of samples whose stack was cut because there were too many.
    pub folded: u64,
    ends: [u64; StackEnd::ALL.len()],
    /// The kernel's counts of events; those of a part: where they were known at its start.
    pub counts: Vec<(usize, u64)>,
}

impl Figures {
    /// Those so far.
    pub fn now(session: &Session, aggregator: &Aggregator, counts: Vec<(usize, u64)>) -> Figures {
        let stacks = &aggregator.maker.counts;
        Figures {
            stats: session.stats(),
            own: aggregator.own_samples(),
            user_stacks: stacks.user_stacks,
            deep: stacks.deep,
            unlabelled: stacks.unlabelled,
            folded: aggregator.maker.builder.folded(),
            ends: stacks.ends,
            counts,
        }
    }

    /// Those since `start`.
    pub fn since(&self, start: &Figures) -> Figures {
        let Stats { samples, lost, lost_records, throttled, not_kept, damaged } = self.stats;
        let before = start.stats;
        let mut ends = self.ends;
        ends.iter_mut().zip(start.ends).for_each(|(end, before)| *end -= before.min(*end));
        let counted = |&(event, count): &(usize, u64)| {
            let (_, before) = start.counts.iter().find(|(known, _)| *known == event)?;
            Some((event, count.saturating_sub(*before)))
        };
        Figures {
            stats: Stats {
                samples: samples.saturating_sub(before.samples),
                lost: lost.saturating_sub(before.lost),
                lost_records: lost_records.saturating_sub(before.lost_records),
                throttled: throttled.saturating_sub(before.throttled),
                not_kept: not_kept.saturating_sub(before.not_kept),
                damaged: damaged.saturating_sub(before.damaged),
            },
            own: OwnSamples {
                taken: self.own.taken.saturating_sub(start.own.taken),
                lost: self.own.lost.saturating_sub(start.own.lost),
            },
            user_stacks: self.user_stacks.saturating_sub(start.user_stacks),
            deep: self.deep.saturating_sub(start.deep),
            unlabelled: self.unlabelled.saturating_sub(start.unlabelled),
            folded: self.folded.saturating_sub(start.folded),
            ends,
            counts: self.counts.iter().filter_map(counted).collect(),
        }
    }

    /// Number of truncated stacks, by reason.
    pub fn truncated(&self) -> Vec<(Truncation, u64)> {
        crate::sampler::stack_maker::truncated(&self.ends)
    }
}

/// The start of a slice.
struct SliceStart {
    /// `CLOCK_MONOTONIC`, nanoseconds.
    at: u64,
    /// `None`: the start of the recording.
    figures: Option<Figures>,
}

/// Divides a recording into slices.
pub struct LastPart {
    slice: Duration,
    began: Instant,
    /// Those of the slices that are kept, the oldest first.
    starts: VecDeque<SliceStart>,
}

/// The part that was kept.
pub struct KeptPart {
    /// Its time.
    pub time: KeptTime,
    /// The figures at its start; `None`: it is the whole recording.
    pub before: Option<Figures>,
}

impl LastPart {
    /// Keeps the last `length` of what is aggregated from now on.
    pub fn new(length: Duration, start: StartTime, aggregator: &mut Aggregator) -> LastPart {
        let limits = SliceLimits {
            length: u64::try_from(length.as_nanos()).unwrap_or(u64::MAX),
            bytes: MOST_BYTES,
            durations: aggregator.durations(),
        };
        aggregator.maker.builder.keep_slices(limits, start.monotonic);
        let first = SliceStart { at: start.monotonic, figures: None };
        LastPart {
            slice: (length / SLICES).max(SHORTEST),
            began: Instant::now(),
            starts: [first].into(),
        }
    }

    /// Milliseconds until the next slice begins.
    pub fn idle_ms(&self) -> i64 {
        let left = self.slice.saturating_sub(self.began.elapsed());
        if left.is_zero() { i64::MAX } else { left.as_micros().div_ceil(1000) as i64 }
    }

    /// Begins a slice if it is time: with what follows `at` (`CLOCK_MONOTONIC`, nanoseconds).
    pub fn advance(&mut self, session: &mut Session, aggregator: &mut Aggregator, at: u64) {
        if self.began.elapsed() < self.slice {
            return;
        }
        self.began = Instant::now();
        let counts = session.counts_so_far();
        let figures = Figures::now(session, aggregator, counts);
        self.starts.push_back(SliceStart { at, figures: Some(figures) });
        let since = aggregator.maker.builder.begin_slice(at);
        aggregator.drop_old_labels();
        while self.starts.front().is_some_and(|start| start.at < since) {
            self.starts.pop_front();
        }
    }

    /// Adds up what was kept.
    pub fn end(mut self, aggregator: &mut Aggregator) -> KeptPart {
        let joined = aggregator.maker.builder.join_slices();
        let first = self.starts.pop_front();
        let at = first.as_ref().map_or(0, |first| first.at);
        KeptPart {
            time: joined.unwrap_or(KeptTime { since: at, shortened: false }),
            before: first.and_then(|first| first.figures),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_of_a_part_are_differences() {
        let start = Figures {
            stats: Stats { samples: 100, lost: 3, ..Stats::default() },
            user_stacks: 40,
            counts: vec![(1, 1000)],
            ..Figures::default()
        };
        let end = Figures {
            stats: Stats { samples: 150, lost: 3, throttled: 2, ..Stats::default() },
            user_stacks: 70,
            counts: vec![(0, 7), (1, 1500)],
            ..Figures::default()
        };
        let part = end.since(&start);
        assert_eq!(part.stats, Stats { samples: 50, throttled: 2, ..Stats::default() });
        assert_eq!(part.user_stacks, 30);
        assert_eq!(part.counts, [(1, 500)]);
    }
}
