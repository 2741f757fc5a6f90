//! The window in which samples are taken.

use std::process::Child;
use std::time::{Duration, Instant};

use super::last_part::LastPart;
use super::live::PartFeed;
use super::watch::Watch;
use super::{Interrupts, Tick, Window};
use crate::sampler::analysis::{Analysis, MayStay, Work};
use crate::sampler::{Event, Session, Stats};
use sys::born::BornProcesses;
use sys::{Error, os};

/// Maximum time between two reads of the rings, in milliseconds.
const TICK_MS: i64 = 200;

/// The same while programs of interpreters run: names of their functions are read while they live.
const INTERPRETED_TICK_MS: i64 = 20;
/// The same at first, when it is not known whether there are any.
const FIRST_TICK_MS: i64 = 10;
/// The time at first.
const FIRST: Duration = Duration::from_millis(500);

/// Maximum time in milliseconds for which the rings are not read because the files of JIT compilers
/// are.
const WAIT_FOR_FILES_MS: i64 = 5;

/// Interval at which the memory of mapped files is released.
const TRIM_EVERY: Duration = Duration::from_secs(2);

/// Waits until sampling is due to start.
///
/// # Errors
///
/// The command ended earlier.
pub fn wait_for_delay(
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

/// Receivers of what happens while the window is open.
pub struct Observed<'a, 'b> {
    /// Called a few times per second.
    pub tick: &'a mut dyn FnMut(Tick),
    /// Gets parts.
    pub feed: Option<&'a mut PartFeed<'b>>,
    /// Divides the recording, if only its last part is kept.
    pub last_part: Option<&'a mut LastPart>,
    /// The process of the main binary.
    pub main: Option<i32>,
}

/// State of the files of JIT compilers, which are read before the samples of the same period.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RunTimeFiles {
    /// They are to be read.
    Unread,
    /// The other thread reads them.
    Requested,
}

/// The sources of samples, and their destination.
pub struct Sources {
    /// The events.
    pub session: Session,
    /// The aggregator, and the thread that does what takes long.
    pub analysis: Analysis,
    /// The priority of prof over other processes.
    pub precedence: os::Precedence,
    /// Processes that started while recording.
    pub born: BornProcesses,
    files: RunTimeFiles,
    /// Time at which they were last requested; `u64::MAX`: no program makes code at run time.
    files_requested: u64,
    /// Time since sampling started at which periodic work is due; `None`: there is none.
    due: Option<Duration>,
    /// The other thread does periodic work.
    is_polling: bool,
    /// The last count of samples that do not belong to an event.
    own_taken: u64,
    /// Events stay in the rings until the other thread has done what is pending.
    has_left: bool,
}

impl Sources {
    /// Reads the rings of a session.
    pub fn new(session: Session, analysis: Analysis, precedence: os::Precedence) -> Sources {
        Sources {
            session,
            analysis,
            precedence,
            born: BornProcesses::default(),
            files: RunTimeFiles::Unread,
            files_requested: u64::MAX,
            due: None,
            is_polling: false,
            own_taken: 0,
            has_left: false,
        }
    }

    /// Takes samples until the window closes or the target ends.
    pub fn run(
        &mut self,
        watch: &mut Watch,
        interrupts: &Interrupts,
        window: Window,
        began: Instant,
        observed: &mut Observed<'_, '_>,
    ) {
        let Observed { tick, feed, last_part, main } = observed;
        let mut fds = Vec::new();
        // Checking whether the target lives costs system calls, so it is not done each time.
        let mut check = true;
        let mut checked = began;
        let mut trimmed = began;
        while !interrupts.stopped() && !feed.as_ref().is_some_and(|feed| feed.is_over()) {
            let elapsed = began.elapsed();
            let left = window.duration.map(|d| d.saturating_sub(elapsed));
            let closes = left.is_some_and(|l| l.is_zero()) && !self.is_busy(elapsed);
            if closes || (check && self.has_ended(watch)) {
                return;
            }
            if check {
                checked = Instant::now();
                self.session.follow_cpus();
            }
            // Rounded up, to avoid polling in the last milliseconds.
            let left_ms = left.map_or(i64::MAX, |l| l.as_micros().div_ceil(1000) as i64);
            fds.clear();
            fds.push(interrupts.fd());
            fds.extend(watch.fds());
            let analysis = self.analysis.await_idle().then(|| self.analysis.fd());
            let until_part = feed.as_ref().map_or(i64::MAX, |feed| feed.idle_ms());
            let until_slice = last_part.as_ref().map_or(i64::MAX, |part| part.idle_ms());
            let mut tick_ms =
                self.tick_ms(elapsed).min(self.idle_ms(elapsed)).min(until_part).min(until_slice);
            if self.has_left && analysis.is_none() {
                tick_ms = 0;
            }
            self.precedence.renew();
            check = self.session.wait(&fds, analysis, left_ms.min(tick_ms) as i32)
                || checked.elapsed().as_millis() >= TICK_MS as u128;
            if self.waits_for_files() {
                continue;
            }
            let until = self.readable_until();
            let taken_until = self.take_in(until, MayStay::WhileWorkIsPending);
            self.poll(began.elapsed(), taken_until);
            self.session.widen_rings();
            if let Some(feed) = feed
                && !self.has_left
                && let Some(mut aggregator) = self.analysis.if_idle()
            {
                feed.offer(&mut self.session, &mut aggregator, *main);
            }
            if let Some(last_part) = last_part
                && !self.has_left
                && let Some(mut aggregator) = self.analysis.if_idle()
            {
                last_part.advance(&mut self.session, &mut aggregator, taken_until);
            }
            if trimmed.elapsed() > TRIM_EVERY {
                trimmed = Instant::now();
                self.analysis.send(Work::DropPages);
            }
            tick(Tick { elapsed: began.elapsed(), stats: self.stats() });
        }
    }

    /// The longest wait for samples.
    fn tick_ms(&self, elapsed: Duration) -> i64 {
        match self.session.deep().walk_maps() {
            Some(_) if elapsed < FIRST => FIRST_TICK_MS,
            Some(maps) if maps.is_used() => INTERPRETED_TICK_MS,
            _ if self.analysis.has_managed_code() => INTERPRETED_TICK_MS,
            _ => TICK_MS,
        }
    }

    /// True if the target has ended, and all that it has started.
    fn has_ended(&mut self, watch: &mut Watch) -> bool {
        if self.has_left && watch.ended(&self.born) {
            // The rings may have records about what it has started.
            self.take_in(self.readable_until(), MayStay::Never);
        }
        watch.ended(&self.born)
    }

    /// Stops everything and reads the remaining records. Returns the length of the window.
    pub fn stop(&mut self, began: Instant) -> Duration {
        self.analysis.send(Work::Stop);
        self.session.stop();
        let lasted = began.elapsed();
        self.analysis.send(Work::Release);
        self.analysis.send(Work::RunTimeFiles);
        self.take_in(u64::MAX, MayStay::Never);
        self.analysis.send(Work::TakeIn { until: u64::MAX, over: true });
        lasted
    }

    /// The counters so far.
    fn stats(&mut self) -> Stats {
        if let Some(aggregator) = self.analysis.if_idle() {
            self.own_taken = aggregator.own_samples().taken;
        }
        let mut stats = self.session.stats();
        stats.samples += self.own_taken;
        stats
    }

    /// Milliseconds until a profile type has to be polled; no limit while the other thread works,
    /// which reports its end.
    fn idle_ms(&mut self, elapsed: Duration) -> i64 {
        // Asked once for each time that the work is done.
        if self.due.is_none()
            && let Some(mut aggregator) = self.analysis.if_idle()
        {
            self.is_polling = false;
            if aggregator.is_due(self.session.is_thinned()) {
                let until = aggregator.idle_ms(elapsed).clamp(0, TICK_MS);
                self.due = Some(elapsed + Duration::from_millis(until as u64));
            }
        }
        let until_due = self
            .due
            .map_or(i64::MAX, |due| due.saturating_sub(elapsed).as_micros().div_ceil(1000) as i64);
        match self.files {
            RunTimeFiles::Requested => until_due.min(WAIT_FOR_FILES_MS),
            RunTimeFiles::Unread => until_due,
        }
    }

    /// True if a profile type still has work that belongs to the window.
    fn is_busy(&self, elapsed: Duration) -> bool {
        let idle = self.analysis.if_idle();
        idle.map_or(self.is_polling, |mut aggregator| aggregator.is_busy(elapsed))
    }

    /// Requests periodic work that is due, of the samples before `until`.
    fn poll(&mut self, elapsed: Duration, until: u64) {
        if self.due.take_if(|due| elapsed >= *due).is_some() {
            self.is_polling = true;
            let thinned = self.session.is_thinned();
            self.analysis.send(Work::TakeIn { until, over: false });
            self.analysis.send(Work::Poll { elapsed, thinned });
        }
    }

    /// True if the files of JIT compilers are being read and the rings need not be read before.
    fn waits_for_files(&mut self) -> bool {
        match self.files {
            RunTimeFiles::Unread => {
                // Those that stay in the rings came before the last request.
                let is_done = self.has_left && self.files_requested < u64::MAX;
                if is_done || !self.analysis.has_run_time_code() {
                    return false;
                }
                self.files_requested = os::monotonic_nanos();
                self.analysis.send(Work::RunTimeFiles);
                let waits = self.session.has_room();
                if waits {
                    self.files = RunTimeFiles::Requested;
                }
                waits
            }
            RunTimeFiles::Requested => {
                self.files = RunTimeFiles::Unread;
                false
            }
        }
    }

    /// The time before which records can be read: a later sample may be in code that the files of
    /// JIT compilers did not describe yet.
    fn readable_until(&self) -> u64 {
        self.session.settled().min(self.files_requested)
    }

    /// Reads the records before `until`, in order of time. Returns the time before which all were
    /// read.
    fn take_in(&mut self, until: u64, stay: MayStay) -> u64 {
        let Sources { session, analysis, born, .. } = self;
        let taken_until = analysis.take_in(session, until, stay, |event| {
            if let Event::Other(record) = event {
                born.apply(record);
            }
        });
        self.has_left = taken_until < until;
        taken_until
    }
}
