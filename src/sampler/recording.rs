//! A recording from start to end: attach, sample and aggregate until the window closes.

mod coverage;
mod ended;
mod interrupts;
mod last_part;
mod live;
mod opened;
mod outcome;
mod prepared;
mod running;
mod watch;
mod window;

use std::process::ExitStatus;
use std::time::Duration;

use super::stack_maker::Aggregated;
use super::types::ProfileTypes;
use super::{Notes, Options, Stats};
pub use ended::set_time;
pub use interrupts::{Ender, Interrupts};
pub use live::{Live, LivePart, PartSpan};
use messages::Message;
use prepared::{Plan, Prepared};
use profile::Diagnostics;
use sys::Error;

/// The start and end of sampling.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Window {
    /// Time before sampling starts.
    pub delay: Duration,
    /// Maximum time of sampling; `None`: until the target ends.
    pub duration: Option<Duration>,
    /// Only the last part, of this length, is kept.
    pub last: Option<Duration>,
}

/// The progress of a recording.
#[derive(Clone, Copy, Debug)]
pub struct Tick {
    /// Time since sampling started.
    pub elapsed: Duration,
    /// Counters so far.
    pub stats: Stats,
}

/// A completed recording, not yet symbolized.
pub struct Recording {
    /// The profile and its files.
    pub aggregated: Aggregated,
    /// The diagnostics, without notes and those of symbolization.
    pub diagnostics: Diagnostics,
    /// Notes for the user.
    pub notes: Notes,
    /// The COMMAND's exit status, if it has exited.
    pub exit: Option<ExitStatus>,
    /// The PID of the COMMAND, if it still runs.
    pub running: Option<i32>,
}

/// Receivers of what happens in a recording.
pub struct Observer<'a> {
    /// Gets the notes that are known before sampling starts.
    pub note: &'a mut dyn FnMut(&Message),
    /// Sampling has started, after this time of preparation.
    pub started: &'a mut dyn FnMut(Duration),
    /// Called a few times per second.
    pub tick: &'a mut dyn FnMut(Tick),
}

/// Records a profile.
///
/// # Errors
///
/// One line that states the obstacle, before anything was sampled.
pub fn record(
    options: &Options,
    types: ProfileTypes,
    window: Window,
    interrupts: &Interrupts,
    observer: &mut Observer<'_>,
) -> Result<Recording, Error> {
    run(Plan { options: options.clone(), window, interrupts }, types, observer, None)
}

/// Records, and hands out what was recorded in parts; the profile of the recording is empty.
///
/// `note` gets the notes that are known before sampling starts.
///
/// # Errors
///
/// As [`record`].
pub fn record_live(
    options: &Options,
    types: ProfileTypes,
    window: Window,
    interrupts: &Interrupts,
    note: &mut dyn FnMut(&Message),
    live: &mut dyn Live,
) -> Result<Recording, Error> {
    let mut observer = Observer { note, started: &mut |_| {}, tick: &mut |_| {} };
    run(Plan { options: options.clone(), window, interrupts }, types, &mut observer, Some(live))
}

/// Each stage consumes the one before: see their files.
fn run<'a>(
    plan: Plan<'a>,
    types: ProfileTypes,
    observer: &mut Observer<'_>,
    live: Option<&'a mut dyn Live>,
) -> Result<Recording, Error> {
    let Observer { note, started, tick } = observer;
    let opened = Prepared::new(plan, types)?.open(note)?;
    let running = opened.begin(started, live)?;
    Ok(running.run(tick).finish(tick))
}
