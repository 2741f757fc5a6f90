//! The window in which samples are taken.

use std::process::Child;
use std::time::{Duration, Instant};

use super::live::PartFeed;
use super::watch::Watch;
use super::{Interrupts, Tick, Window};
use crate::sampler::Session;
use crate::sampler::aggregator::Aggregator;
use crate::sampler::types::Poll;
use sys::{Error, os, procfs};

/// Maximum time between two reads of the rings, in milliseconds.
const TICK_MS: i64 = 200;

/// Limit for the pages of mapped files in prof's memory, and the interval of checks.
const MAX_FILE_BYTES: u64 = 12 << 20;
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
    /// The process of the main binary.
    pub main: Option<i32>,
}

/// A running recording: the source of samples and their destination.
pub struct Running {
    /// The events.
    pub session: Session,
    /// The aggregated samples.
    pub aggregator: Aggregator,
    /// The priority of prof over other processes.
    pub precedence: os::Precedence,
}

impl Running {
    /// Takes samples until the window closes or the target ends.
    pub fn run(
        &mut self,
        watch: &mut Watch,
        interrupts: &Interrupts,
        window: Window,
        began: Instant,
        observed: &mut Observed<'_, '_>,
    ) {
        let Observed { tick, feed, main } = observed;
        let mut fds = Vec::new();
        // Checking whether the target lives costs system calls, so it is not done each time.
        let mut check = true;
        let mut checked = began;
        let mut trimmed = began;
        while !interrupts.stopped() && !feed.as_ref().is_some_and(|feed| feed.is_over()) {
            let elapsed = began.elapsed();
            let left = window.duration.map(|d| d.saturating_sub(elapsed));
            let closes = left.is_some_and(|l| l.is_zero()) && !self.is_busy(elapsed);
            if closes || (check && watch.ended(&self.aggregator)) {
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
            let until_part = feed.as_ref().map_or(i64::MAX, |feed| feed.idle_ms());
            let tick_ms = TICK_MS.min(self.idle_ms(elapsed)).min(until_part);
            self.precedence.renew();
            check = self.session.wait(&fds, left_ms.min(tick_ms) as i32)
                || checked.elapsed().as_millis() >= TICK_MS as u128;
            let settled = self.session.settled();
            self.take_in(settled, false);
            self.poll(began.elapsed());
            self.session.widen_rings();
            if let Some(feed) = feed {
                feed.offer(&mut self.session, &mut self.aggregator, *main);
            }
            if trimmed.elapsed() > TRIM_EVERY {
                trimmed = Instant::now();
                if procfs::own_file_bytes().is_some_and(|n| n > MAX_FILE_BYTES) {
                    self.aggregator.maker.table.images.drop_pages();
                }
            }
            let mut stats = self.session.stats();
            stats.samples += self.aggregator.own_samples().taken;
            tick(Tick { elapsed: began.elapsed(), stats });
        }
    }

    /// Stops everything and reads the remaining records. Returns the length of the window.
    pub fn stop(&mut self, began: Instant) -> Duration {
        let Running { session, aggregator, .. } = self;
        aggregator.types.iter_mut().for_each(|(_, one)| one.stop());
        session.stop();
        let lasted = began.elapsed();
        aggregator.types.iter_mut().for_each(|(_, one)| one.release());
        self.take_in(u64::MAX, true);
        lasted
    }

    /// Milliseconds until a profile type has to be polled.
    fn idle_ms(&mut self, elapsed: Duration) -> i64 {
        let types = self.aggregator.types.iter_mut();
        types.map(|(_, one)| one.idle_ms(elapsed)).min().unwrap_or(i64::MAX)
    }

    /// True if a profile type still has work that belongs to the window.
    fn is_busy(&self, elapsed: Duration) -> bool {
        self.aggregator.types.iter().any(|(_, one)| one.is_busy(elapsed))
    }

    fn poll(&mut self, elapsed: Duration) {
        let thinned = self.session.is_thinned();
        self.aggregator.poll(&Poll { elapsed, pids: &self.session.pids, thinned });
    }

    /// Reads the records before `until`, in order of time; `over`: these are the last.
    fn take_in(&mut self, until: u64, over: bool) {
        let Running { session, aggregator, .. } = self;
        aggregator.maker.read_jit_files();
        session.drain_timed(until, |time, event| {
            aggregator.take_in(time, false);
            aggregator.event(&event);
        });
        aggregator.take_in(until, over);
    }
}
