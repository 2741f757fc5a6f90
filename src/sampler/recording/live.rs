//! Parts of a recording, handed out while it goes on.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::sampler::aggregator::Aggregator;
use crate::sampler::{Session, Stats};
use profile::{Column, MappingId, Part, PartMarks};
use sys::foreign::Root;

/// A part of a recording.
pub struct LivePart {
    /// Stacks and values since the previous part.
    pub part: Part,
    /// The time that it covers.
    pub lasted: Duration,
    /// Counters since the start of the recording.
    pub stats: Stats,
    /// Current paths of files of its mappings.
    pub files: Vec<(MappingId, PathBuf)>,
    /// Root directories of the processes that mapped them, if not prof's own.
    pub roots: Vec<(MappingId, Arc<Root>)>,
    /// The files that name code generated at run time, by its mapping.
    pub run_time: Vec<(MappingId, String)>,
    /// Mappings whose files changed while recording, without a build ID that proves it.
    pub changed: Vec<MappingId>,
    /// The paths of interpreters so far, as their mappings have them.
    pub interpreters: Vec<String>,
}

/// The time of a part.
pub struct PartSpan {
    /// See [`LivePart::lasted`].
    pub lasted: Duration,
    /// See [`LivePart::stats`].
    pub stats: Stats,
}

/// The receiver of parts.
pub trait Live {
    /// Sampling has started. `command` is the PID of the target's COMMAND, if it has one.
    fn started(&mut self, command: Option<i32>);

    /// Time between two parts.
    fn interval(&self) -> Duration;

    /// True if a part can be taken now; else it becomes a part of the next one.
    fn is_ready(&mut self) -> bool;

    /// Takes a part.
    fn take(&mut self, part: LivePart);

    /// True if the recording is to end.
    fn is_over(&self) -> bool;
}

/// Hands out parts at their time.
pub struct PartFeed<'a> {
    live: &'a mut dyn Live,
    marks: PartMarks,
    /// The counts that earlier parts have, by sample type.
    scaled: Vec<(Column, u64)>,
    taken: Instant,
}

impl<'a> PartFeed<'a> {
    /// The first part begins now.
    pub fn new(live: &'a mut dyn Live) -> PartFeed<'a> {
        PartFeed { live, marks: PartMarks::default(), scaled: Vec::new(), taken: Instant::now() }
    }

    /// True if the recording is to end.
    pub fn is_over(&self) -> bool {
        self.live.is_over()
    }

    /// Milliseconds until the next part is due; no limit if it is due, but cannot be taken yet.
    pub fn idle_ms(&self) -> i64 {
        let left = self.live.interval().saturating_sub(self.taken.elapsed());
        if left.is_zero() { i64::MAX } else { left.as_micros().div_ceil(1000) as i64 }
    }

    /// Hands out a part if it is due.
    pub fn offer(&mut self, session: &mut Session, aggregator: &mut Aggregator, main: Option<i32>) {
        if self.taken.elapsed() >= self.live.interval() && self.live.is_ready() {
            // Data was spilled if no part was taken for long; what cannot be read back is missing.
            let _ = aggregator.maker.builder.settle();
            let counts = session.counts_so_far();
            aggregator.scale_part(counts, &mut self.scaled);
            self.hand_out(session, aggregator, main);
        }
    }

    /// Hands out the last part, with the kernel's counts at the end.
    pub fn end(&mut self, session: &Session, aggregator: &mut Aggregator, main: Option<i32>) {
        aggregator.scale_part(session.counts().collect(), &mut self.scaled);
        self.hand_out(session, aggregator, main);
    }

    /// Hands out a part.
    fn hand_out(&mut self, session: &Session, aggregator: &mut Aggregator, main: Option<i32>) {
        let lasted = self.taken.elapsed();
        self.taken = Instant::now();
        let mut stats = session.stats();
        let own = aggregator.own_samples();
        stats.samples += own.taken;
        stats.lost += own.lost;
        let span = PartSpan { lasted, stats };
        self.live.take(aggregator.maker.take_part(&mut self.marks, main, span));
    }
}
