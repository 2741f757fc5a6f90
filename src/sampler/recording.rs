//! A recording from start to end: attach, sample and aggregate until the window closes.

mod coverage;
mod interrupts;
mod live;
mod outcome;
mod prepare;
mod watch;
mod window;

use std::process::ExitStatus;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use super::aggregator::Aggregator;
use super::analysis::AnalysisThread;
use super::bpf::btf::Btf;
use super::notes::RecordingNote;
use super::stack_maker::{Aggregated, BpfFrames};
use super::types::{self, End, ProfileTypes};
use super::{Note, Notes, Options, Session, Stats, Target, remove_leftover_probes};
pub use coverage::CpuCoverage;
pub use interrupts::Interrupts;
use live::PartFeed;
pub use live::{Live, LivePart};
use outcome::{EndedRecording, UsedBefore};
use prepare::Started;
use profile::{Diagnostics, Profile, TimeLimits, ValueType, comment};
use sys::{Error, os, procfs};
use watch::Watch;

/// The start and end of sampling.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Window {
    /// Time before sampling starts.
    pub delay: Duration,
    /// Maximum time of sampling; `None`: until the target ends.
    pub duration: Option<Duration>,
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
    /// True if a signal ended it.
    pub interrupted: bool,
}

/// Receivers of what happens in a recording.
pub struct Observer<'a> {
    /// Gets the notes that are known before sampling starts.
    pub note: &'a mut dyn FnMut(&Note),
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
    run(options, types, window, interrupts, observer, None)
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
    note: &mut dyn FnMut(&Note),
    live: &mut dyn Live,
) -> Result<Recording, Error> {
    let mut observer = Observer { note, started: &mut |_| {}, tick: &mut |_| {} };
    run(options, types, window, interrupts, &mut observer, Some(live))
}

fn run(
    options: &Options,
    mut types: ProfileTypes,
    window: Window,
    interrupts: &Interrupts,
    observer: &mut Observer<'_>,
    mut live: Option<&mut dyn Live>,
) -> Result<Recording, Error> {
    let called = Instant::now();
    let Observer { note, started: tell_start, tick } = observer;
    procfs::check_mounted()?;
    remove_leftover_probes();
    types::remove_leftovers();
    let mut options = options.clone();
    let prepared = prepare::types(&mut types, &mut options, window.duration, interrupts)?;
    let mut started = Started::new(&mut options, &types, window.delay, interrupts)?;
    window::wait_for_delay(window.delay, interrupts, started.child.as_mut())?;
    // After the fork of the command, which must not inherit it.
    // It has no precedence.
    let analysis = AnalysisThread::start().map_err(|e| {
        Error::failed(format!("cannot start a thread for analysis: {e}; check ulimit -u and -n"))
    })?;
    let mut precedence = os::Precedence::take_real_time();
    let given = UsedBefore::now(&options.target);
    // Before Session::open attaches programs that aggregate the times of threads.
    let frames = types.iter().any(|(_, one)| one.needs_thread_events()).then(BpfFrames::read);
    let mut session = Session::open(&options, &mut types, started.command())?;
    let of_session = session.notes().len();
    let at_start: Vec<Note> = session.notes().iter().chain(&prepared).cloned().collect();
    at_start.iter().for_each(&mut *note);
    let mut at_end = prepare::begin(&mut types, &options)?;
    Btf::release();
    // Opening the events may have taken longer than it lasts.
    precedence.renew_at_once();
    // Last of all, because the rings fill from here on.
    session.begin();
    let began = (Instant::now(), SystemTime::now());
    let start = os::monotonic_nanos();
    let used = coverage::Before::new(&options.target, &session);
    started.go()?;
    tell_start(called.elapsed());
    let mut aggregator = Aggregator::new(&options, types, &session);
    if let Some(max_samples) = options.times {
        aggregator.maker.builder.keep_times(TimeLimits { start, max_samples });
    }
    if let Some(frames) = frames.filter(|_| session.has_programs()) {
        aggregator.maker.expect_programs(frames);
    }
    let mut watch = Watch::new(&options.target, &session.pids, started.child.as_ref());
    let main = main_process(&options);
    if let Some(live) = &mut live {
        live.started(started.child.as_ref().map(|child| child.id() as i32));
    }
    let mut feed = live.map(PartFeed::new);
    let analysis = analysis.begin(aggregator, session.pids.clone());
    let mut sources = window::Running::new(session, analysis, precedence);
    let mut observed = window::Observed { tick, feed: feed.as_mut(), main };
    sources.run(&mut watch, interrupts, window, began.0, &mut observed);
    interrupts.close_window();
    let time = os::monotonic_nanos();
    let lasted = sources.stop(began.0);
    let window::Running { session, analysis, precedence, .. } = sources;
    // The rings are empty.
    drop(precedence);
    let (mut aggregator, has_cut_file) = analysis.finish();
    let (exit, running) = started.end(interrupts);
    let outlived = exit.and_then(|_| watch::outlived(&aggregator));
    let end = End { time, thinned: session.is_thinned(), outlived: outlived.is_some() };
    let of_types = aggregator.end(&end);
    if let Some(feed) = &mut feed {
        feed.end(&session, &mut aggregator, main);
    }
    let settled = aggregator.maker.builder.settle();
    aggregator.scale(session.counts());
    tick(Tick { elapsed: lasted, stats: session.stats() });
    at_end.extend_from_slice(&session.notes()[of_session..]);
    let spill = settled.err().map(|e| RecordingNote::SpillUnreadable(e.to_string()));
    at_end.extend(spill.into_iter().chain(outlived).map(Note::from));
    let without_time = aggregator.maker.builder.without_time().filter(|&samples| samples > 0);
    at_end.extend(without_time.map(RecordingNote::WithoutTime).map(Note::from));
    at_end.extend(of_types);
    let covered = used.coverage(&options.target, &session, &aggregator.maker);
    let at_last = given.notes(&EndedRecording {
        options: &options,
        session: &session,
        aggregator: &aggregator,
        covered,
        lasted,
        interrupted: interrupts.stopped(),
        has_cut_file: has_cut_file || sys::mmap::cut_pages() > 0,
    });
    at_end.extend(at_last.into_iter().map(Note::from));
    let notes = Notes { at_start, at_end };
    let mut diagnostics = diagnostics(&session, &aggregator);
    diagnostics.recording_cpu_seconds = os::own_usage().0 - given.own_cpu_seconds;
    diagnostics.not_kept = session.stats().not_kept;
    diagnostics.longest_pause_seconds = Some(session.longest_pause().as_secs_f64());
    diagnostics.covered = covered.map(|covered| (covered.sampled, covered.used));
    // The rings are the largest part of prof's memory and no longer needed.
    drop(session);
    let aggregated = finish(aggregator, &options, began.1, lasted);
    let interrupted = interrupts.stopped();
    Ok(Recording { aggregated, diagnostics, notes, exit, running, interrupted })
}

fn diagnostics(session: &Session, aggregator: &Aggregator) -> Diagnostics {
    let maker = &aggregator.maker;
    let own = aggregator.own_samples();
    let counts = &maker.counts;
    Diagnostics {
        samples: session.stats().samples + own.taken,
        distinct: maker.builder.distinct() as u64,
        lost: session.stats().lost + own.lost,
        lost_records: session.stats().lost_records,
        throttled: session.stats().throttled,
        user_stacks: counts.user_stacks,
        truncated: counts.truncated(),
        deep: counts.deep,
        folded: maker.builder.folded(),
        without_time: maker.builder.without_time(),
        no_unwind_info: maker.without_unwind_info(),
        ..Diagnostics::default()
    }
}

/// The process whose binary is the main one, if the target has such a process.
fn main_process(options: &Options) -> Option<i32> {
    match &options.target {
        Target::Processes { pids, .. } => pids.first().copied(),
        Target::Threads(tids) => tids.first().and_then(|&t| procfs::owner(t)).map(|(pid, _)| pid),
        _ => None,
    }
}

fn finish(
    aggregator: Aggregator,
    options: &Options,
    began: SystemTime,
    lasted: Duration,
) -> Aggregated {
    let mut aggregated = aggregator.maker.into_profile(main_process(options));
    if let Target::Everything = options.target {
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

/// True if a value type is CPU time.
pub fn is_cpu(profile: &Profile, value_type: ValueType) -> bool {
    profile.str(value_type.kind) == "cpu"
}
