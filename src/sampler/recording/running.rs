//! The third stage of a recording: samples are taken, until the window closes or the target ends.

use super::Tick;
use super::coverage::CpuTimeBefore;
use super::ended::Ended;
use super::last_part::LastPart;
use super::live::PartFeed;
use super::opened::StartTime;
use super::outcome::UsedBefore;
use super::prepared::{Plan, TargetCommand};
use super::watch::{self, Watch};
use super::window::{Observed, Sources};
use crate::sampler::Notes;
use crate::sampler::types::End;
use sys::os;

/// A recording that takes samples.
pub struct Running<'a> {
    pub(super) plan: Plan<'a>,
    pub(super) command: TargetCommand,
    pub(super) used: UsedBefore,
    pub(super) cpu_time: CpuTimeBefore,
    pub(super) notes: Notes,
    /// Number of the session's notes that are among those at the start.
    pub(super) notes_at_start: usize,
    pub(super) start: StartTime,
    pub(super) watch: Watch,
    /// The process of the main binary.
    pub(super) main: Option<i32>,
    /// Hands out parts.
    pub(super) feed: Option<PartFeed<'a>>,
    /// Only the last part is kept.
    pub(super) last_part: Option<LastPart>,
    pub(super) sources: Sources,
}

impl<'a> Running<'a> {
    /// Takes samples until the window closes, and stops all events. The rings are empty then.
    pub fn run(mut self, tick: &mut dyn FnMut(Tick)) -> Ended<'a> {
        let Plan { window, interrupts, .. } = self.plan;
        let mut observed = Observed {
            tick,
            feed: self.feed.as_mut(),
            last_part: self.last_part.as_mut(),
            main: self.main,
        };
        self.sources.run(&mut self.watch, interrupts, window, self.start.instant, &mut observed);
        interrupts.close_window();
        let time = os::monotonic_nanos();
        let lasted = self.sources.stop(self.start.instant);
        let Sources { session, analysis, precedence, .. } = self.sources;
        drop(precedence);
        let (aggregator, has_cut_file) = analysis.finish();
        let command = self.command.end(interrupts);
        let outlived = command.exit.and_then(|_| watch::outlived(&aggregator));
        let end = End {
            time,
            thinned: session.is_thinned(),
            outlived: outlived.is_some(),
            is_last_part: self.last_part.is_some(),
        };
        Ended {
            plan: self.plan,
            used: self.used,
            cpu_time: self.cpu_time,
            notes: self.notes,
            notes_at_start: self.notes_at_start,
            start: self.start,
            main: self.main,
            feed: self.feed,
            last_part: self.last_part,
            session,
            aggregator,
            has_cut_file,
            command,
            outlived,
            end,
            lasted,
        }
    }
}
