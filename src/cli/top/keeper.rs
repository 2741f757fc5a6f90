//! The data of a recording that goes on: windows with names, and figures.

use std::sync::mpsc::Sender;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use super::cost::CostMeter;
use super::names::Names;
use super::recorder::{Message, Running};
use crate::report::locks;
use crate::sampler::{LivePart, Stats};
use profile::{Diagnostics, LiveWindow, NameRequest, Profile, Windows, comment};
use symbols::SymbolOptions;
use sys::os;

/// The data so far.
pub struct Keeper {
    windows: Windows,
    names: Names,
    /// CPU time of prof.
    pub cost: CostMeter,
    started: Instant,
    /// Counters since the start.
    pub stats: Stats,
    /// Counters of the last part.
    pub last: Stats,
    /// Time since the start.
    pub elapsed: Duration,
    is_whole_machine: bool,
    /// The paths of interpreters.
    interpreters: Vec<String>,
}

impl Keeper {
    /// Without any data, for this recording.
    ///
    /// # Errors
    ///
    /// There can be no further thread.
    pub fn new(
        names: SymbolOptions,
        sender: Sender<Message>,
        recorder: &Running,
    ) -> anyhow::Result<Keeper> {
        let mut cost = CostMeter::default();
        let started = Instant::now();
        cost.read(Duration::ZERO, os::own_cpu_time());
        Ok(Keeper {
            windows: Windows::default(),
            names: Names::start(names, recorder.allowance.clone(), recorder.number, sender)?,
            cost,
            started,
            stats: Stats::default(),
            last: Stats::default(),
            elapsed: Duration::ZERO,
            is_whole_machine: recorder.is_whole_machine,
            interpreters: Vec::new(),
        })
    }

    /// Adds a part, and looks up the names of its new addresses.
    pub fn add(&mut self, part: LivePart) {
        let LivePart { part, lasted, stats, files, roots, run_time, changed, interpreters } = part;
        self.interpreters = interpreters;
        self.windows.add(part, lasted.as_nanos() as u64);
        for (mapping, file) in run_time {
            self.windows.set_file(mapping, &file);
        }
        self.names.add_files(files, roots, changed);
        self.elapsed += lasted;
        self.last = Stats {
            samples: stats.samples.saturating_sub(self.stats.samples),
            lost: stats.lost.saturating_sub(self.stats.lost),
            ..stats
        };
        self.stats = stats;
        self.cost.read(self.started.elapsed(), os::own_cpu_time());
        self.names.look_up(&mut self.windows, now());
    }

    /// The CPU time of prof, in a sentence.
    pub fn sum(&self) -> String {
        self.cost.sum(self.started.elapsed(), os::own_cpu_time())
    }

    /// Takes over names that were looked up.
    pub fn named(&mut self, request: &NameRequest) {
        self.names.done(request, &mut self.windows);
    }

    /// Looks up all names that are left, after the end of the recording.
    pub fn name_rest(&mut self) {
        self.names.look_up_rest(&mut self.windows, now());
    }

    /// True while names are looked up that will be known soon.
    pub fn is_naming(&self) -> bool {
        self.names.are_near()
    }

    /// The profile of a window.
    pub fn profile(&mut self, window: LiveWindow) -> Profile {
        let mut profile = self.windows.profile(window);
        profile.time_nanos = now().saturating_sub(profile.duration_nanos);
        locks::classify(&mut profile);
        let (own_cpu_seconds, own_peak_bytes) = os::own_usage();
        let diagnostics = Diagnostics {
            samples: symbols::counted(&profile),
            distinct: profile.samples.len() as u64,
            lost: if window == LiveWindow::Last { self.last.lost } else { self.stats.lost },
            folded: self.windows.folded(),
            own_cpu_seconds,
            own_peak_bytes,
            unsymbolized: symbols::unsymbolized(&profile),
            ..Diagnostics::default()
        };
        let mut comments = diagnostics.to_comments();
        if self.is_whole_machine {
            comments.push(format!("{}: {}", comment::TARGET, comment::WHOLE_MACHINE));
        }
        let interpreters = self.interpreters.iter();
        comments.extend(interpreters.map(|file| format!("{}: {file}", comment::INTERPRETER)));
        let strings = &mut profile.strings;
        profile.comments.extend(comments.iter().map(|text| strings.intern(text)));
        profile
    }
}

/// The time since the epoch in nanoseconds.
fn now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_nanos()).unwrap_or(i64::MAX)
}
