//! A recording from beginning to end: attach, sample and aggregate until the window closes.

mod advice;
mod aggregate;
mod begin;
mod columns;
mod coverage;
mod exits;
mod finish;
mod heap;
mod injected;
mod interrupts;
mod ksymbols;
mod leaks;
mod peak;
mod preloaded;
mod snapshot;
mod threads;
mod tracing;
mod watch;
mod writers;

use std::process::{Child, ExitStatus};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

pub use aggregate::{Aggregator, Births, Counts, Groups, Spans, Wall, WallSpec};
pub use finish::Aggregated;
pub use heap::{Heap, HeapCounts, HeapSpec};
pub use interrupts::Interrupts;
pub use snapshot::snapshot;
pub use threads::ThreadsSpec;

use crate::sampler::bpf::Told;
use crate::sampler::{Options, Session, SpanType, Stats, Stopped, Target};
use preloaded::Preloaded;
use profile::{Column, Diagnostics, Profile, ValueType, comment};
use sys::Error;
use sys::os;
use sys::procfs;
use threads::Snapshots;
use tracing::Tracing;
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
    /// CPU time.
    pub cpu: bool,
    /// Where the time of each thread goes.
    pub wall: Option<WallTime>,
    /// Waits for locks.
    pub lock: Option<Locks>,
    /// Requests to block devices.
    pub io: bool,
    /// System calls.
    pub syscalls: bool,
    /// What a COMMAND allocates.
    pub heap: Option<HeapSpec>,
    /// All threads now and then, and who starts them.
    pub threads: Option<ThreadsSpec>,
}

impl Types {
    /// Those that are made of spans.
    pub fn spans(&self) -> Vec<SpanType> {
        let lock = self.lock.map(|Locks { holders }| SpanType::Lock { holders });
        let io = self.io.then_some(SpanType::Io);
        let syscalls = self.syscalls.then_some(SpanType::Syscalls);
        [lock, io, syscalls].into_iter().flatten().collect()
    }
}

/// What of waits for locks is recorded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Locks {
    /// Also who let them go on.
    pub holders: bool,
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

/// What becomes of an event's samples.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Taker {
    /// They are counted by stack.
    Count(Weight),
    /// They tell what threads run, for wall time and, if that is wanted, CPU time.
    Clock,
    /// They tell where threads stop running.
    Switch,
    /// They tell of waits that are over.
    Waited,
    /// They tell what threads did that end.
    Ended,
    /// They tell when threads that wait are woken.
    Wakeup,
    /// They tell who starts threads.
    Birth,
    /// There are none; the event is there for what comes with it.
    Nobody,
    /// They begin or end spans.
    Span {
        /// Index of the profile type among those that are made of spans.
        of: usize,
        /// Index of the event among those of the type.
        event: usize,
    },
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
    mut types: Types,
    window: Window,
    interrupts: &Interrupts,
    say: &mut dyn FnMut(&str),
    tick: &mut dyn FnMut(Tick),
) -> Result<Recording, Error> {
    // Of recordings that were killed.
    crate::sampler::remove_leftover_probes();
    ::heap::remove_leftovers();
    let (cpu, switches, spans) = (types.cpu, types.wall.is_some(), types.spans());
    let births = types.threads.is_some() && window.duration.is_none_or(|d| !d.is_zero());
    let mut options = Options { cpu, switches, births, spans, ..options.clone() };
    let (mut stopped, mut child, mut notes) = (None, None, Vec::new());
    let mut preloaded = Preloaded::prepare(&mut options, &mut types, interrupts, &mut notes)?;
    options.beside = types.heap.is_some() || types.threads.is_some();
    if let Target::Command(words) = &options.target {
        let (output, ignored) = (options.stdout_to_stderr, interrupts.ignored());
        let started = Stopped::start(words, output, preloaded.environment(), ignored)?;
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
    let mut precedence = os::Precedence::take_real_time();
    let own_before = os::own_usage().0;
    let ticks_before = advice::descendant_ticks(&options.target);
    // Before programs add up the times of threads, which Session::open lets them begin with.
    let tracing = (options.switches || !options.spans.is_empty()).then(Tracing::read);
    let mut session = Session::open(&options, command)?;
    session.notes().iter().chain(&notes).for_each(|note| say(note));
    let said = session.notes().len();
    preloaded.begin(&options, &mut types, &mut notes)?;
    // To open everything may have taken too long for it.
    precedence.renew_at_once();
    // Last of all: from here on the rings fill.
    session.begin();
    let began = (Instant::now(), SystemTime::now());
    let used = coverage::Before::new(&options.target, &session);
    if let Some(stopped) = stopped {
        child = Some(stopped.go()?);
    }
    let mut aggregator = begin::aggregator(&options, types, &mut session);
    if let Some(tracing) = tracing.filter(|_| session.told() != Told::default()) {
        aggregator.expect_programs(tracing);
    }
    let mut watch = Watch::new(&options.target, &session.pids, child.as_ref());
    let snapshots = types.threads.map(|spec| {
        let column = aggregator.threads.expect("it has a column");
        Snapshots::new(spec, window.duration, options.target.clone(), column)
    });
    let mut sources = Sources { session, preloaded, snapshots, precedence };
    run(&mut sources, &mut aggregator, &mut watch, interrupts, window, began.0, tick);
    interrupts.close_window();
    let end = os::monotonic_nanos();
    let Sources { session, preloaded, .. } = &mut sources;
    preloaded.set_active(false);
    session.stop();
    let lasted = began.0.elapsed();
    let about = preloaded.take_out();
    sources.take_in(&mut aggregator, u64::MAX);
    sources.preloaded.take(&mut aggregator, u64::MAX, true);
    let Sources { session, preloaded, snapshots, precedence } = sources;
    let heap = aggregator.heap().map(|heap| heap.counts).unwrap_or_default();
    let leaks = aggregator.end_of_heap();
    aggregator.end_of_wall(end, session.wall_times());
    aggregator.end_of_spans(end);
    aggregator.end_of_calls(session.calls(), end);
    let births = aggregator.end_of_births();
    let looks = snapshots.map(|snapshots| snapshots.end(&mut aggregator));
    let (seen, looks) = looks.unwrap_or_default();
    drop(precedence);
    let settled = aggregator.builder.settle();
    aggregator.scale(session.counts());
    tick(Tick { elapsed: lasted, stats: session.stats() });
    let (exit, running) = end_of(child, interrupts);
    // In the order in which they were said.
    notes.splice(..0, session.notes()[..said].iter().cloned());
    notes.extend_from_slice(&session.notes()[said..]);
    if let Err(e) = settled {
        notes.push(format!("samples are missing: what was put aside cannot be read back: {e}"));
    }
    let (lost, programs) = (preloaded.lost(), aggregator.programs());
    let outlived = exit.and_then(|_| watch::outlived(&aggregator, types.heap.is_some()));
    let of_heap = preloaded.end(heap, programs, outlived.is_some());
    notes.extend(outlived.into_iter().chain(about).chain(of_heap).chain(leaks));
    notes.extend(looks.into_iter().chain(births).chain(aggregator.span_notes()));
    let interrupted = interrupts.stopped();
    let covered = used.coverage(&options.target, &session, &aggregator);
    notes.extend(advice::advice(
        &options,
        &session,
        &aggregator,
        (ticks_before, covered),
        lasted,
        interrupted,
    ));
    let mut diagnostics = diagnostics(&session, &aggregator, heap.sampled + seen, notes);
    diagnostics.recording_cpu_seconds = os::own_usage().0 - own_before;
    diagnostics.covered = covered.map(|covered| (covered.sampled, covered.used));
    diagnostics.lost += lost + heap.unheard;
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
            return Err(Error::failed(format!(
                "the command ended before the delay of {delay:?} was over: nothing was recorded; \
                 give a shorter -D"
            )));
        }
        let mut fds = [libc::pollfd { fd: interrupts.fd(), events: libc::POLLIN, revents: 0 }];
        os::poll(&mut fds, left.as_millis().clamp(1, 100) as i32);
    }
    Ok(())
}

/// Where everything comes from.
struct Sources {
    session: Session,
    preloaded: Preloaded,
    snapshots: Option<Snapshots>,
    precedence: os::Precedence,
}

impl Sources {
    /// Milliseconds until one of them wants to be looked at.
    fn idle_ms(&mut self, elapsed: Duration) -> i64 {
        let looks = self.snapshots.as_ref().map_or(i64::MAX, |s| s.idle_ms(elapsed));
        looks.min(self.preloaded.tick_ms())
    }

    /// Something is not done yet that belongs to the window.
    fn are_busy(&self, elapsed: Duration) -> bool {
        self.snapshots.as_ref().is_some_and(|s| s.is_busy(elapsed))
    }

    /// Looks at the threads, if it is time to.
    fn look(&mut self, aggregator: &mut Aggregator, elapsed: Duration) {
        if let Some(snapshots) = &mut self.snapshots {
            snapshots.step(aggregator, &self.session.pids, elapsed);
        }
    }

    /// Takes in what has happened before a time that is over.
    fn take_in(&mut self, aggregator: &mut Aggregator, until: u64) {
        let Sources { session, preloaded, .. } = self;
        aggregator.look();
        session.drain_timed(until, |time, event| {
            preloaded.take(aggregator, time, false);
            aggregator.event(&event);
        });
        preloaded.take(aggregator, until, false);
    }
}

fn run(
    sources: &mut Sources,
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
    while !interrupts.stopped() {
        let elapsed = began.elapsed();
        let left = window.duration.map(|d| d.saturating_sub(elapsed));
        let closes = left.is_some_and(|l| l.is_zero()) && !sources.are_busy(elapsed);
        if closes || (ask && watch.ended(aggregator)) {
            return;
        }
        if ask {
            asked = Instant::now();
            sources.session.follow_cpus();
        }
        // Rounded up, so that the last moments are not spent polling.
        let left_ms = left.map_or(i64::MAX, |l| l.as_micros().div_ceil(1000) as i64);
        fds.clear();
        fds.push(interrupts.fd());
        fds.extend(watch.fds());
        let tick_ms = TICK_MS.min(sources.idle_ms(elapsed));
        sources.precedence.renew();
        let session = &mut sources.session;
        ask = session.wait(&fds, left_ms.min(tick_ms) as i32)
            || asked.elapsed().as_millis() >= TICK_MS as u128;
        if session.is_thinned() {
            aggregator.look_at_waits();
        }
        let settled = session.settled();
        sources.take_in(aggregator, settled);
        sources.look(aggregator, began.elapsed());
        sources.session.widen_rings();
        sources.preloaded.look(aggregator);
        if trimmed.elapsed() > TRIM_EVERY {
            trimmed = Instant::now();
            if procfs::own_file_bytes().is_some_and(|n| n > MAX_FILE_BYTES) {
                aggregator.table.images.drop_pages();
            }
        }
        let mut stats = sources.session.stats();
        stats.samples += aggregator.heap().map_or(0, |heap| heap.counts.sampled);
        tick(Tick { elapsed: began.elapsed(), stats });
    }
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

fn diagnostics(
    session: &Session,
    aggregator: &Aggregator,
    others: u64,
    notes: Vec<String>,
) -> Diagnostics {
    let counts = &aggregator.counts;
    Diagnostics {
        samples: session.stats().samples + others,
        distinct: aggregator.builder.distinct() as u64,
        lost: session.stats().lost,
        lost_records: session.stats().lost_records,
        throttled: session.stats().throttled,
        user_stacks: counts.user_stacks,
        truncated: counts.truncated(),
        deep: counts.deep,
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
    if let Target::Everything = options.target {
        let profile = &mut aggregated.profile;
        let target = format!("{}: {}", comment::TARGET, comment::WHOLE_MACHINE);
        profile.comments.push(profile.strings.intern(&target));
    }
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
