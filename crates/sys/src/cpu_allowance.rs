//! The CPU time that prof allows itself while it records for views that go on.
//!
//! What reads the rings and draws goes on whatever it costs. Work that can wait, such as the lookup
//! of names, goes on while all of prof together has used less than a limit within the last seconds.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::os;

/// Work that can wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deferrable {
    /// The lookup of names.
    Names,
    /// The analysis of code, and of tables that describe stacks.
    Analysis,
}

/// The window of time in which CPU time is limited.
pub const WINDOW: Duration = Duration::from_secs(10);

/// Parts of that window, in each of which a part of the limits applies: what cannot wait may come
/// later in the window.
const PARTS: u32 = 4;

/// Time between two readings that are kept.
const STEP: Duration = Duration::from_millis(100);

/// Time after the start in which work does not wait: the first picture is to have names.
const START: Duration = Duration::from_secs(3);

/// CPU time that all of prof may use in that time before work waits.
const AT_START: Duration = Duration::from_millis(500);

/// What is watched, which decides what that may cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Watched {
    /// The whole machine, maybe for days: 1 % of a core.
    #[default]
    Machine,
    /// Processes that the user has chosen, and waits for: 5 % of a core. A large program of an
    /// interpreter has new stacks all the time.
    Chosen,
}

impl Watched {
    /// The factor of all limits.
    pub fn times(self) -> u32 {
        match self {
            Watched::Machine => 1,
            Watched::Chosen => 5,
        }
    }
}

/// The limits of a kind of work, as CPU time in each window.
#[derive(Clone, Copy, Debug)]
struct Limits {
    /// The work waits while all of prof has used more.
    all: Duration,
    /// The work waits if it has used more itself.
    most: Duration,
    /// The work does not wait if it has used less itself: it would never be done on a machine on
    /// which the rest is expensive.
    least: Duration,
}

impl Deferrable {
    /// All together stay below 1 % of a core, with what cannot wait: 100 ms in 10 s; see
    /// [`Watched::times`].
    const fn limits(self) -> Limits {
        const fn ms(n: u64) -> Duration {
            Duration::from_millis(n)
        }
        match self {
            Deferrable::Names => Limits { all: ms(65), most: ms(30), least: ms(8) },
            Deferrable::Analysis => Limits { all: ms(85), most: ms(20), least: ms(4) },
        }
    }
}

/// CPU time within the last part of a [`WINDOW`].
#[derive(Debug, Default)]
struct Ledger {
    /// Times and sums so far, at least [`STEP`] apart; the first is older than the part, or the
    /// beginning.
    readings: VecDeque<(Duration, Duration)>,
}

impl Ledger {
    /// CPU time within the last part, rounded up to a step. `sum`: that since the beginning.
    fn used(&mut self, now: Duration, sum: Duration) -> Duration {
        if self.readings.back().is_none_or(|&(last, _)| now.saturating_sub(last) >= STEP) {
            self.readings.push_back((now, sum));
        }
        let is_old = |&(time, _): &(Duration, Duration)| now.saturating_sub(time) >= WINDOW / PARTS;
        while self.readings.get(1).is_some_and(is_old) {
            self.readings.pop_front();
        }
        let before = self.readings.front().map_or(Duration::ZERO, |&(_, sum)| sum);
        sum.saturating_sub(before)
    }
}

/// Decides what may go on, from times and sums of CPU time.
#[derive(Debug, Default)]
struct Decision {
    watched: Watched,
    all: Ledger,
    names: Ledger,
    analysis: Ledger,
}

impl Decision {
    /// True if the work may go on. `all` and `own`: CPU time since the start of prof, and of the
    /// work.
    fn allows(&mut self, work: Deferrable, now: Duration, all: Duration, own: Duration) -> bool {
        let times = self.watched.times();
        if now < START {
            return all < AT_START * times;
        }
        let limits = work.limits();
        let [all_limit, most, least] =
            [limits.all, limits.most, limits.least].map(|limit| limit * times);
        let ledger = match work {
            Deferrable::Names => &mut self.names,
            Deferrable::Analysis => &mut self.analysis,
        };
        let own = ledger.used(now, own);
        let all = self.all.used(now, all);
        own < least / PARTS || (own < most / PARTS && all < all_limit / PARTS)
    }
}

/// The CPU time that a recording allows itself, from now on.
#[derive(Debug)]
pub struct CpuAllowance {
    watched: Watched,
    started: Instant,
    before: Duration,
    decision: Mutex<Decision>,
    /// CPU time of work that can wait, in nanoseconds.
    names: AtomicU64,
    analysis: AtomicU64,
    /// Nothing waits any more.
    is_lifted: AtomicBool,
}

impl Default for CpuAllowance {
    fn default() -> CpuAllowance {
        CpuAllowance::new(Watched::default())
    }
}

impl CpuAllowance {
    /// Of a recording that begins now.
    pub fn new(watched: Watched) -> CpuAllowance {
        CpuAllowance {
            watched,
            started: Instant::now(),
            before: os::own_cpu_time(),
            decision: Mutex::new(Decision { watched, ..Decision::default() }),
            names: AtomicU64::new(0),
            analysis: AtomicU64::new(0),
            is_lifted: AtomicBool::new(false),
        }
    }

    /// What is watched.
    pub fn watched(&self) -> Watched {
        self.watched
    }

    /// True if this work may go on now.
    pub fn allows(&self, work: Deferrable) -> bool {
        if self.is_lifted.load(Ordering::Relaxed) {
            return true;
        }
        let own = self.used(work);
        let all = os::own_cpu_time().saturating_sub(self.before);
        let mut decision = self.decision.lock().unwrap_or_else(PoisonError::into_inner);
        decision.allows(work, self.started.elapsed(), all, own)
    }

    /// CPU time that such work has used so far.
    pub fn used(&self, work: Deferrable) -> Duration {
        Duration::from_nanos(self.sum(work).load(Ordering::Relaxed))
    }

    /// True while work does not wait because the recording has just started.
    pub fn is_starting(&self) -> bool {
        self.started.elapsed() < START
    }

    /// Adds CPU time that such work has used.
    pub fn add(&self, work: Deferrable, used: Duration) {
        self.sum(work).fetch_add(used.as_nanos() as u64, Ordering::Relaxed);
    }

    /// From now on, nothing waits: the recording has ended.
    pub fn lift(&self) {
        self.is_lifted.store(true, Ordering::Relaxed);
    }

    fn sum(&self, work: Deferrable) -> &AtomicU64 {
        match work {
            Deferrable::Names => &self.names,
            Deferrable::Analysis => &self.analysis,
        }
    }
}

/// Adds the CPU time of the calling thread, from its creation until it is dropped, to a kind of
/// work.
pub struct ThreadTime<'a> {
    allowance: Option<&'a CpuAllowance>,
    work: Deferrable,
    before: Duration,
}

impl<'a> ThreadTime<'a> {
    /// Begins now. Without an allowance, it does nothing.
    pub fn begin(allowance: Option<&'a CpuAllowance>, work: Deferrable) -> ThreadTime<'a> {
        let before = allowance.map_or(Duration::ZERO, |_| os::thread_cpu_time());
        ThreadTime { allowance, work, before }
    }

    /// Adds what was used so far.
    pub fn add(&mut self) {
        if let Some(allowance) = self.allowance {
            let now = os::thread_cpu_time();
            allowance.add(self.work, now.saturating_sub(self.before));
            self.before = now;
        }
    }
}

impl Drop for ThreadTime<'_> {
    fn drop(&mut self) {
        self.add();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(n: u64) -> Duration {
        Duration::from_millis(n)
    }

    /// Prof with work that goes on whenever it may, each time for `piece`, and `fixed` of other CPU
    /// time in each 100 ms. Returns the CPU time so far after each 100 ms, and that of the work.
    fn run(work: Deferrable, fixed: Duration, piece: Duration, seconds: u64) -> Vec<[Duration; 2]> {
        run_for(Watched::Machine, work, [fixed, piece], seconds)
    }

    fn run_for(
        watched: Watched,
        work: Deferrable,
        [fixed, piece]: [Duration; 2],
        seconds: u64,
    ) -> Vec<[Duration; 2]> {
        let mut decision = Decision { watched, ..Decision::default() };
        let (mut all, mut own) = (Duration::ZERO, Duration::ZERO);
        let mut sums = Vec::new();
        for step in 0..seconds * 10 {
            all += fixed;
            let now = ms(100 * step);
            if decision.allows(work, now, all, own) {
                all += piece;
                own += piece;
            }
            sums.push([all, own]);
        }
        sums
    }

    /// The most CPU time in any window that begins after the start.
    fn most(sums: &[[Duration; 2]], which: usize) -> Duration {
        let start = 10 * START.as_secs() as usize;
        let window = 10 * WINDOW.as_secs() as usize;
        let later = &sums[start..];
        later.windows(window + 1).map(|w| w[window][which] - w[0][which]).max().unwrap()
    }

    #[test]
    fn all_of_prof_stays_below_the_limit_in_every_window_after_the_start() {
        for work in [Deferrable::Names, Deferrable::Analysis] {
            for fixed in [0, 200, 400, 600] {
                let (fixed, piece) = (Duration::from_micros(fixed), ms(5));
                let sums = run(work, fixed, piece, 60);
                assert!(most(&sums, 0) < ms(100), "{work:?} {fixed:?}: {:?}", most(&sums, 0));
                let limits = work.limits();
                // In each part of the window, a piece may begin just below the limit.
                let own = limits.most + piece * PARTS;
                assert!(most(&sums, 1) < own, "{work:?} {fixed:?}: {:?}", most(&sums, 1));
            }
        }
    }

    #[test]
    fn processes_that_the_user_has_chosen_may_cost_more() {
        for work in [Deferrable::Names, Deferrable::Analysis] {
            let sums = run_for(Watched::Chosen, work, [ms(1), ms(5)], 60);
            assert!(most(&sums, 0) < ms(500), "{work:?}: {:?}", most(&sums, 0));
            let machine = run(work, ms(1), ms(5), 60);
            let used = |sums: &[[Duration; 2]]| sums[599][1] - sums[199][1];
            assert!(used(&sums) > 3 * used(&machine), "{work:?}: {:?}", used(&sums));
        }
    }

    #[test]
    fn what_is_left_is_used() {
        let sums = run(Deferrable::Names, Duration::from_micros(300), ms(5), 60);
        let used = sums[599][1] - sums[199][1];
        // 40 ms in each of four windows.
        assert!(used > ms(4 * 30), "{used:?}");
    }

    #[test]
    fn work_goes_on_a_little_where_the_rest_is_expensive() {
        for work in [Deferrable::Names, Deferrable::Analysis] {
            let sums = run(work, ms(3), ms(1), 60);
            let least = work.limits().least;
            let used = sums[599][1] - sums[199][1];
            assert!(used >= 3 * least && used <= 5 * least, "{work:?}: {used:?}");
        }
    }

    #[test]
    fn the_start_does_not_wait_but_for_a_bound() {
        let sums = run(Deferrable::Names, Duration::ZERO, ms(50), 20);
        assert_eq!(sums[29][0], AT_START);
        // What the start used does not count later.
        assert!(sums[130][0] > sums[29][0]);
        let mut decision = Decision::default();
        assert!(decision.allows(Deferrable::Analysis, ms(2900), ms(400), ms(400)));
    }

    #[test]
    fn nothing_waits_after_the_end() {
        let allowance = CpuAllowance::default();
        allowance.add(Deferrable::Names, Duration::from_secs(1));
        allowance.lift();
        assert!(allowance.allows(Deferrable::Names) && allowance.allows(Deferrable::Analysis));
    }

    #[test]
    fn the_time_of_a_thread_is_added() {
        let allowance = CpuAllowance::default();
        let before = os::thread_cpu_time();
        {
            let _time = ThreadTime::begin(Some(&allowance), Deferrable::Analysis);
            while os::thread_cpu_time() < before + ms(2) {}
        }
        assert!(allowance.used(Deferrable::Analysis) >= ms(1));
        assert_eq!(allowance.used(Deferrable::Names), Duration::ZERO);
    }
}
