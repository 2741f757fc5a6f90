//! The last stage of a recording: all events are stopped, and their records are read. What remains
//! is to complete the profile.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::coverage::CpuTimeBefore;
use super::last_part::{Figures, KeptPart, LastPart};
use super::live::PartFeed;
use super::opened::StartTime;
use super::outcome::{Outcome, UsedBefore};
use super::prepared::{CommandEnd, Plan};
use super::{Recording, Tick};
use crate::sampler::aggregator::Aggregator;
use crate::sampler::stack_maker::Aggregated;
use crate::sampler::types::End;
use crate::sampler::{Notes, Session, Target};
use messages::{CpuCoverage, Message};
use profile::{Diagnostics, Profile, comment};
use sys::os;

/// A recording whose window has closed.
pub struct Ended<'a> {
    pub(super) plan: Plan<'a>,
    pub(super) used: UsedBefore,
    pub(super) cpu_time: CpuTimeBefore,
    pub(super) notes: Notes,
    pub(super) notes_at_start: usize,
    pub(super) start: StartTime,
    pub(super) main: Option<i32>,
    pub(super) feed: Option<PartFeed<'a>>,
    pub(super) last_part: Option<LastPart>,
    pub(super) session: Session,
    pub(super) aggregator: Aggregator,
    /// True if a binary was truncated while it was read.
    pub(super) has_cut_file: bool,
    pub(super) command: CommandEnd,
    /// Processes that the COMMAND has started and that still run.
    pub(super) outlived: Option<Message>,
    pub(super) end: End,
    /// The length of the window.
    pub(super) lasted: Duration,
}

/// The part of a recording that is in its profile: the whole, unless only the last is kept.
struct RecordedPart {
    figures: Figures,
    date: SystemTime,
    lasted: Duration,
    is_whole: bool,
}

impl Ended<'_> {
    /// Completes the profile.
    pub fn finish(mut self, tick: &mut dyn FnMut(Tick)) -> Recording {
        let part = self.complete_values();
        tick(Tick { elapsed: self.lasted, stats: self.session.stats() });
        let covered = self.cpu_time.coverage(
            &self.plan.options.target,
            &self.session,
            &self.aggregator.maker,
        );
        // The CPU time at the start of a part is not known.
        let covered = covered.filter(|_| part.is_whole);
        self.note_outcome(&part, covered);
        let diagnostics = self.diagnostics(&part, covered);
        // The rings are the largest part of prof's memory and no longer needed.
        drop(self.session);
        Recording {
            aggregated: aggregated(self.aggregator, &self.plan, part.date, part.lasted),
            diagnostics,
            notes: self.notes,
            exit: self.command.exit,
            running: self.command.running,
        }
    }

    /// Adds the remaining values of the profile types, hands out the last part, and scales the
    /// values to the kernel's counts.
    fn complete_values(&mut self) -> RecordedPart {
        let type_notes = self.aggregator.end(&self.end);
        if let Some(feed) = &mut self.feed {
            feed.end(&self.session, &mut self.aggregator, self.main);
        }
        let kept = self.last_part.take().map(|last| last.end(&mut self.aggregator));
        let settled = self.aggregator.maker.builder.settle();
        let shortened = kept.as_ref().is_some_and(|kept| kept.time.shortened);
        let part = self.part(kept);
        self.aggregator.scale(part.figures.counts.iter().copied());
        let spill = settled.err().map(|e| Message::SpillUnreadable { error: e.to_string() });
        let seconds = part.lasted.as_secs_f64();
        let shortened = shortened.then_some(Message::LastPartShortened { seconds });
        let without_time = self.aggregator.maker.builder.without_time().filter(|&n| n > 0);
        let notes = spill
            .into_iter()
            .chain(self.outlived.take())
            .chain(shortened)
            .chain(without_time.map(|samples| Message::WithoutTime { samples }));
        let at_end = &mut self.notes.at_end;
        at_end.extend_from_slice(&self.session.notes()[self.notes_at_start..]);
        at_end.extend(notes);
        at_end.extend(type_notes);
        part
    }

    /// The part that is in the profile.
    fn part(&self, kept: Option<KeptPart>) -> RecordedPart {
        let counts = self.session.counts().collect();
        let figures = Figures::now(&self.session, &self.aggregator, counts);
        let StartTime { date, monotonic, .. } = self.start;
        match kept {
            Some(KeptPart { time, before: Some(before) }) => {
                let from = Duration::from_nanos(time.since.saturating_sub(monotonic));
                RecordedPart {
                    figures: figures.since(&before),
                    date: date + from,
                    lasted: self.lasted.saturating_sub(from),
                    is_whole: false,
                }
            }
            _ => RecordedPart { figures, date, lasted: self.lasted, is_whole: true },
        }
    }

    /// Adds notes about few or incomplete samples.
    fn note_outcome(&mut self, part: &RecordedPart, covered: Option<CpuCoverage>) {
        let notes = self.used.notes(&Outcome {
            options: &self.plan.options,
            session: &self.session,
            aggregator: &self.aggregator,
            stats: part.figures.stats,
            unlabelled: part.figures.unlabelled,
            covered,
            lasted: part.lasted,
            is_whole: part.is_whole,
            interrupted: self.plan.interrupts.stopped(),
            has_cut_file: self.has_cut_file || sys::mmap::cut_pages() > 0,
        });
        self.notes.at_end.extend(notes);
    }

    fn diagnostics(&self, part: &RecordedPart, covered: Option<CpuCoverage>) -> Diagnostics {
        let maker = &self.aggregator.maker;
        let figures = &part.figures;
        let Figures { stats, own, .. } = *figures;
        Diagnostics {
            samples: stats.samples + own.taken,
            distinct: maker.builder.distinct() as u64,
            lost: stats.lost + own.lost,
            lost_records: stats.lost_records,
            throttled: stats.throttled,
            not_kept: stats.not_kept,
            user_stacks: figures.user_stacks,
            truncated: figures.truncated(),
            deep: figures.deep,
            folded: figures.folded,
            without_time: maker.builder.without_time(),
            no_unwind_info: maker.without_unwind_info(),
            recording_cpu_seconds: os::own_usage().0 - self.used.own_cpu_seconds,
            longest_pause_seconds: Some(self.session.longest_pause().as_secs_f64()),
            covered: covered.map(|covered| (covered.sampled, covered.used)),
            ..Diagnostics::default()
        }
    }
}

fn aggregated(
    aggregator: Aggregator,
    plan: &Plan<'_>,
    began: SystemTime,
    lasted: Duration,
) -> Aggregated {
    let mut aggregated = aggregator.maker.into_profile(plan.main_process());
    if let Target::Everything = plan.options.target {
        let profile = &mut aggregated.profile;
        let target = format!("{}: {}", comment::TARGET, comment::WHOLE_MACHINE);
        profile.comments.push(profile.strings.intern(&target));
    }
    set_time(&mut aggregated.profile, began, lasted);
    aggregated
}

/// Sets the start and the length of a recording.
pub fn set_time(profile: &mut Profile, began: SystemTime, lasted: Duration) {
    let since_epoch = began.duration_since(UNIX_EPOCH).unwrap_or_default();
    profile.time_nanos = since_epoch.as_nanos() as i64;
    profile.duration_nanos = lasted.as_nanos() as i64;
}
