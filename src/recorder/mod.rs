//! A recording from beginning to end: attach, sample and aggregate until the window closes.

mod advice;
mod aggregate;
mod finish;
mod interrupts;
mod ksymbols;
mod pace;
mod snapshot;
mod watch;

use std::process::{Child, ExitStatus};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

pub use aggregate::{Aggregator, Counts, ThreadState, Wall, WallSpec};
pub use finish::Aggregated;
pub use interrupts::Interrupts;
pub use snapshot::snapshot;

use crate::os;
use crate::process::procfs;
use crate::profile::{Builder, Column, Diagnostics, Profile, ValueType};
use crate::sampler::events::Kind;
use crate::sampler::{Error, EventSpec, Options, Session, Stats, Stopped, Target};
use pace::Pace;
use watch::Watch;

/// Longest time between two looks at the rings.
const TICK_MS: i64 = 200;

/// Pages of mapped files that prof keeps in memory at most, and how often that is looked at.
const MAX_FILE_BYTES: u64 = 12 << 20;
const TRIM_EVERY: Duration = Duration::from_secs(2);

/// When a recording begins and ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Window {
    /// Waits so long before sampling begins.
    pub delay: Duration,
    /// Samples so long at most; `None`: until the target ends.
    pub duration: Option<Duration>,
}

/// Which profile types are recorded besides the events that were named.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Types {
    /// CPU time, although other things are recorded, too.
    pub cpu: bool,
    /// Where the time of each thread goes.
    pub wall: Option<WallTime>,
}

/// What of a thread's time is recorded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WallTime {
    /// Not what it runs.
    pub off_cpu_only: bool,
    /// Shorter waits are not told by stack.
    pub min_block: Duration,
}

/// What a sample's weight is and where it goes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Weight {
    /// The sample type.
    pub column: Column,
    /// Every sample weighs this, whatever the event counted.
    pub fixed: Option<i64>,
}

impl Weight {
    /// The weight of a sample that counted so many events.
    pub fn of(&self, counted: u64) -> i64 {
        self.fixed.unwrap_or(i64::try_from(counted).unwrap_or(i64::MAX))
    }
}

/// How far a recording is.
#[derive(Clone, Copy, Debug)]
pub struct Tick {
    /// Since sampling began.
    pub elapsed: Duration,
    /// Counters so far.
    pub stats: Stats,
}

/// A recording that has ended, not yet symbolized.
pub struct Recording {
    /// The profile and what its files are.
    pub aggregated: Aggregated,
    /// The figures; what symbolization adds is still missing.
    pub diagnostics: Diagnostics,
    /// The COMMAND's end, if it has ended.
    pub exit: Option<ExitStatus>,
    /// The COMMAND, if it still runs.
    pub running: Option<i32>,
    /// An end was asked for by a signal.
    pub interrupted: bool,
}

/// Records.
///
/// `say` is told sentences for the user as soon as they are known; `tick` is called a few times
/// a second.
///
/// Errors: one line that says what is in the way, before anything was sampled.
pub fn record(
    options: &Options,
    types: Types,
    window: Window,
    interrupts: &Interrupts,
    say: &mut dyn FnMut(&str),
    tick: &mut dyn FnMut(Tick),
) -> Result<Recording, Error> {
    let mut options = Options { switches: types.wall.is_some(), ..options.clone() };
    let (mut stopped, mut child) = (None, None);
    if let Target::Command(words) = &options.target {
        let started = Stopped::start(words, options.stdout_to_stderr)?;
        interrupts.set_child(started.pid);
        if window.delay.is_zero() {
            stopped = Some(started);
        } else {
            let pid = started.pid;
            child = Some(started.go()?);
            options.target = Target::Processes { pids: vec![pid], tree: true };
        }
    }
    let command = stopped.as_ref().map(|s: &Stopped| s.pid);
    wait_for_delay(window.delay, interrupts, child.as_mut())?;
    // After the command was forked: it must not inherit this.
    let precedence = os::Precedence::take();
    let ticks_before = advice::descendant_ticks(&options.target);
    let mut session = Session::open(&options, command)?;
    session.notes().iter().for_each(|note| say(note));
    if let Some(stopped) = stopped {
        child = Some(stopped.go()?);
    }
    let began = (Instant::now(), SystemTime::now());
    let mut aggregator = new_aggregator(&options, types, &session);
    let mut watch = Watch::new(&options.target, &session.pids, child.as_ref());
    run(&mut session, &mut aggregator, &mut watch, interrupts, window, began.0, tick);
    let end = os::monotonic_nanos();
    session.stop();
    let lasted = began.0.elapsed();
    take_in(&mut session, &mut aggregator, u64::MAX);
    aggregator.end_of_wall(end);
    drop(precedence);
    let settled = aggregator.builder.settle();
    aggregator.scale(session.counts());
    tick(Tick { elapsed: lasted, stats: session.stats() });
    let (exit, running) = end_of(child, interrupts);
    let mut notes = session.notes().to_vec();
    if let Err(e) = settled {
        notes.push(format!("samples are missing: what was put aside cannot be read back: {e}"));
    }
    let interrupted = interrupts.stopped();
    notes.extend(advice::advice(
        &options,
        &session,
        &aggregator,
        ticks_before,
        lasted,
        interrupted,
    ));
    let diagnostics = diagnostics(&session, &aggregator, notes);
    drop_rings(session);
    let aggregated = finish(aggregator, &options, began.1, lasted);
    Ok(Recording { aggregated, diagnostics, exit, running, interrupted: interrupts.stopped() })
}

/// The rings are the largest part of prof's memory and of no use any more.
fn drop_rings(session: Session) {
    drop(session);
}

/// Errors: the command ended before.
fn wait_for_delay(
    delay: Duration,
    interrupts: &Interrupts,
    mut child: Option<&mut Child>,
) -> Result<(), Error> {
    let until = Instant::now() + delay;
    while !interrupts.stopped() {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            break;
        }
        if child.as_mut().is_some_and(|c| matches!(c.try_wait(), Ok(Some(_)))) {
            return Err(Error::other(format!(
                "the command ended before the delay of {delay:?} was over: nothing was recorded; \
                 give a shorter -D"
            )));
        }
        let mut fds = [libc::pollfd { fd: interrupts.fd(), events: libc::POLLIN, revents: 0 }];
        os::poll(&mut fds, left.as_millis().clamp(1, 100) as i32);
    }
    Ok(())
}

fn run(
    session: &mut Session,
    aggregator: &mut Aggregator,
    watch: &mut Watch,
    interrupts: &Interrupts,
    window: Window,
    began: Instant,
    tick: &mut dyn FnMut(Tick),
) {
    let mut fds = Vec::new();
    // Asking whether the target lives costs system calls, so that is not done each time.
    let mut ask = true;
    let (mut asked, mut trimmed) = (began, began);
    let (mut pace, mut took) = (Pace::default(), Duration::ZERO);
    while !interrupts.stopped() {
        let elapsed = began.elapsed();
        let left = window.duration.map(|d| d.saturating_sub(elapsed));
        if left.is_some_and(|l| l.is_zero()) || (ask && watch.ended(aggregator)) {
            return;
        }
        asked = if ask { Instant::now() } else { asked };
        // Rounded up, so that the last moments are not spent polling.
        let left_ms = left.map_or(i64::MAX, |l| l.as_micros().div_ceil(1000) as i64);
        fds.clear();
        fds.push(interrupts.fd());
        fds.extend(watch.fds());
        let tick_ms = pace.tick_ms(aggregator.depth(), took, began.elapsed());
        ask = session.wait(&fds, left_ms.min(tick_ms) as i32)
            || asked.elapsed().as_millis() >= TICK_MS as u128;
        if session.is_thinned() {
            aggregator.look_at_waits();
        }
        let (settled, looked) = (session.settled(), Instant::now());
        take_in(session, aggregator, settled);
        took = looked.elapsed();
        session.widen_rings();
        if trimmed.elapsed() > TRIM_EVERY {
            trimmed = Instant::now();
            if procfs::own_file_bytes().is_some_and(|n| n > MAX_FILE_BYTES) {
                aggregator.table.images.drop_pages();
            }
        }
        tick(Tick { elapsed: began.elapsed(), stats: session.stats() });
    }
}

/// Takes in what has happened before a time that is over.
fn take_in(session: &mut Session, aggregator: &mut Aggregator, until: u64) {
    aggregator.look();
    session.drain(until, |event| aggregator.event(&event));
}

fn new_aggregator(options: &Options, wanted: Types, session: &Session) -> Aggregator {
    let (mut types, weights) = sample_types(options, wanted, session);
    let wall = Column(types.len());
    if wanted.wall.is_some() {
        types.push(("wall".to_owned(), "nanoseconds"));
    }
    let names: Vec<(&str, &str)> = types.iter().map(|(k, u)| (k.as_str(), *u)).collect();
    let mut builder = Builder::new(&names).with_spill(tempfile::tempfile);
    let profile = &mut builder.profile;
    let first = profile.sample_types[1.min(types.len() - 1)];
    if types.len() > 2 {
        profile.default_sample_type = first.kind;
    }
    profile.period_type = first;
    let fixed = weights.first().and_then(|w| w.fixed).or(session.period().map(|p| p as i64));
    profile.period = fixed.unwrap_or(1);
    let period = profile.period;
    let cpu = types.iter().any(|(kind, _)| kind == "cpu").then(|| weights[0].column);
    let mut aggregator = Aggregator::new(builder, options.stacks, weights);
    if let (Some(time), Some(switch)) = (wanted.wall, session.switch_event()) {
        aggregator.set_wall(Wall::new(WallSpec {
            column: wall,
            running: !time.off_cpu_only,
            min_block: time.min_block.as_nanos() as u64,
            began: os::monotonic_nanos(),
            clock: 0,
            switch,
            cpu: cpu.map(|column| (column, period)),
        }));
        for (pid, tid) in threads_of(&options.target, &session.pids) {
            aggregator.was_there(pid, tid);
        }
    }
    aggregator
}

/// The threads that are recorded from the beginning on, each with its process.
fn threads_of(target: &Target, pids: &[i32]) -> Vec<(i32, i32)> {
    match target {
        // It has not begun yet.
        Target::Command(_) => Vec::new(),
        Target::Threads(tids) => {
            tids.iter().filter_map(|&tid| Some((procfs::owner(tid)?.0, tid))).collect()
        }
        _ => {
            let threads = |&pid: &i32| {
                let tids = procfs::threads(pid).unwrap_or_default();
                tids.into_iter().map(move |tid| (pid, tid))
            };
            pids.iter().flat_map(threads).collect()
        }
    }
}

/// `samples/count`, and one for each event.
///
/// CPU time sampled by `cycles` because nobody asked for an event is still told in
/// nanoseconds: each sample stands for one period of the frequency.
fn sample_types(
    options: &Options,
    wanted: Types,
    session: &Session,
) -> (Vec<(String, &'static str)>, Vec<Weight>) {
    let mut types = vec![("samples".to_owned(), "count")];
    let mut weights = Vec::new();
    for spec in session.events() {
        // The clock is there for the sake of wall time, and has no column unless it is wanted.
        let unwanted = wanted.wall.is_some() && !wanted.cpu && options.events.is_empty();
        if spec.kind == Kind::Switch || unwanted {
            continue;
        }
        let (mut kind, mut unit) = spec.value_type();
        let mut fixed = None;
        if options.events.is_empty()
            && spec.kind == Kind::Hardware
            && let crate::sampler::Rate::Frequency(hz) = options.rate
        {
            (kind, unit) = EventSpec::cpu_clock().value_type();
            fixed = Some((1_000_000_000 / hz.max(1)) as i64);
        }
        if types.iter().any(|(k, _)| *k == kind) {
            kind = spec.name.clone();
        }
        weights.push(Weight { column: Column(types.len()), fixed });
        types.push((kind, unit));
    }
    (types, weights)
}

fn end_of(child: Option<Child>, interrupts: &Interrupts) -> (Option<ExitStatus>, Option<i32>) {
    let Some(mut child) = child else { return (None, None) };
    match child.try_wait() {
        Ok(Some(status)) => {
            interrupts.forget_child();
            (Some(status), None)
        }
        _ => (None, Some(child.id() as i32)),
    }
}

fn diagnostics(session: &Session, aggregator: &Aggregator, notes: Vec<String>) -> Diagnostics {
    let counts = &aggregator.counts;
    Diagnostics {
        samples: session.stats().samples,
        distinct: aggregator.builder.distinct() as u64,
        lost: session.stats().lost,
        throttled: session.stats().throttled,
        user_stacks: counts.user_stacks,
        truncated: counts.truncated(),
        completed_later: counts.completed_later,
        folded: aggregator.builder.folded(),
        no_unwind_info: aggregator.without_unwind_info(),
        notes,
        ..Diagnostics::default()
    }
}

fn finish(
    aggregator: Aggregator,
    options: &Options,
    began: SystemTime,
    lasted: Duration,
) -> Aggregated {
    let main = match &options.target {
        Target::Processes { pids, .. } => pids.first().copied(),
        Target::Threads(tids) => tids.first().and_then(|&t| procfs::owner(t)).map(|(pid, _)| pid),
        _ => None,
    };
    let mut aggregated = aggregator.finish(main);
    set_time(&mut aggregated.profile, began, lasted);
    aggregated
}

fn set_time(profile: &mut Profile, began: SystemTime, lasted: Duration) {
    let since_epoch = began.duration_since(UNIX_EPOCH).unwrap_or_default();
    profile.time_nanos = since_epoch.as_nanos() as i64;
    profile.duration_nanos = lasted.as_nanos() as i64;
}

/// True when a value type is CPU time.
pub fn is_cpu(profile: &Profile, value_type: ValueType) -> bool {
    profile.str(value_type.kind) == "cpu"
}
