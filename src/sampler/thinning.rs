//! Bounds the cost of a recording that goes on: where its samples are too expensive, because stacks
//! are deep or caches cold, only one of N is used, and represents N.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::Event;
use sys::cpu_allowance::{CpuAllowance, Deferrable, Watched};
use sys::os;

/// CPU time for samples, as a part of a core.
fn share(watched: Watched) -> f64 {
    match watched {
        Watched::Machine => 0.003,
        Watched::Chosen => 0.03,
    }
}

/// The largest N.
const MOST: u32 = 8;

/// Interval at which N is chosen.
const INTERVAL: Duration = Duration::from_secs(1);

/// N, by the CPU time that samples take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Factor(u32);

impl Factor {
    /// The next N, if the samples of a time took `used`. It grows at once, and shrinks slowly, so
    /// that a compiler that is started again and again is a steady load.
    fn next(self, time: Duration, used: Duration, watched: Watched) -> Factor {
        let share = used.as_secs_f64() / time.as_secs_f64().max(1e-3);
        let wanted =
            (f64::from(self.0) * share / self::share(watched)).ceil().min(f64::from(MOST)) as u32;
        Factor(wanted.clamp(self.0 - self.0 / 4, MOST).max(1))
    }
}

/// Selects the samples that are used.
pub struct Thinning {
    /// True for events whose samples have a weight, which can be multiplied.
    weighted: Vec<bool>,
    factor: Factor,
    allowance: Arc<CpuAllowance>,
    /// State of a generator of random numbers: samples of several CPUs may take turns.
    random: u64,
    /// When N was chosen, with the CPU time until then.
    chosen: (Instant, Duration),
}

impl Thinning {
    /// All samples are used at first. `weighted`: for each event, whether samples can represent
    /// others.
    pub fn new(weighted: Vec<bool>, allowance: Arc<CpuAllowance>) -> Thinning {
        let random = os::monotonic_nanos() | 1;
        let chosen = (Instant::now(), Duration::ZERO);
        Thinning { weighted, factor: Factor(1), allowance, random, chosen }
    }

    /// Chooses N, if it is time. To be called by the thread that reads the rings.
    pub fn adapt(&mut self) {
        let time = self.chosen.0.elapsed();
        if time < INTERVAL {
            return;
        }
        let used = os::thread_cpu_time() + self.allowance.used(Deferrable::Analysis);
        // What is read and analysed for the first time is expensive.
        if !self.allowance.is_starting() {
            self.factor = self.factor.next(
                time,
                used.saturating_sub(self.chosen.1),
                self.allowance.watched(),
            );
        }
        self.chosen = (Instant::now(), used);
    }

    /// True if an event is used: a sample then has the weight of those that it represents. Else
    /// another one represents it.
    pub fn selects(&mut self, event: &mut Event<'_>) -> bool {
        let Event::Sample { event: index, weight, represents, .. } = event else { return true };
        let Factor(n) = self.factor;
        if n == 1 || !self.weighted.get(*index).is_some_and(|weighted| *weighted) {
            return true;
        }
        (*weight, *represents) = (weight.saturating_mul(u64::from(n)), n);
        self.next_random().is_multiple_of(u64::from(n))
    }

    /// A random number (xorshift).
    fn next_random(&mut self) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random >> 11
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sys::record::{Callchain, GroupCounts, Record, Sample, UserStack};

    const SECOND: Duration = Duration::from_secs(1);

    /// N after some seconds in which each sample takes `each`, and all else `fixed`.
    fn settled(samples: u32, each: Duration, fixed: Duration) -> u32 {
        let mut factor = Factor(1);
        for _ in 0..30 {
            factor = factor.next(SECOND, fixed + each * samples / factor.0, Watched::Machine);
        }
        factor.0
    }

    #[test]
    fn one_of_n_is_used_so_that_samples_stay_in_their_budget() {
        let (us, ms) = (Duration::from_micros, Duration::from_millis);
        assert_eq!(settled(198, us(15), Duration::ZERO), 1);
        // 198 samples of 60 µs are 12 ms.
        assert!((3..=4).contains(&settled(198, us(60), Duration::ZERO)));
        assert_eq!(settled(198, us(60), ms(50)), MOST);
        let next = |n, used| Factor(n).next(SECOND, used, Watched::Machine);
        assert_eq!(next(8, Duration::ZERO), Factor(6));
        assert_eq!(next(1, Duration::ZERO), Factor(1));
        assert_eq!(next(1, ms(100)), Factor(MOST));
        assert_eq!(Factor(1).next(SECOND, ms(15), Watched::Chosen), Factor(1));
    }

    #[test]
    fn weights_of_all_samples_are_kept_on_average_and_other_events_pass() {
        let sample = Sample {
            id: 1,
            ip: 2,
            pid: 3,
            tid: 3,
            time: 4,
            period: None,
            group: GroupCounts::default(),
            cgroup: None,
            walked: &[],
            kernel: false,
            callchain: Callchain::default(),
            raw: &[],
            user: UserStack::None,
        };
        let mut thinning = Thinning::new(vec![true, false], Arc::default());
        thinning.random = 1;
        thinning.factor = Factor(4);
        let mut sum = |event| -> u64 {
            let weights = (0..40_000).map(|_| {
                let mut event = Event::Sample { event, weight: 10, represents: 1, sample };
                match (thinning.selects(&mut event), event) {
                    (true, Event::Sample { weight, represents, .. }) => {
                        assert_eq!(weight, 10 * u64::from(represents));
                        weight
                    }
                    _ => 0,
                }
            });
            weights.sum()
        };
        // 10,000 of them, with a deviation of 87.
        assert!(sum(0).abs_diff(400_000) < 40 * 600, "{}", sum(0));
        assert_eq!(sum(1), 400_000, "samples without a weight");
        assert!(thinning.selects(&mut Event::Other(Record::Throttle)));
        thinning.factor = Factor(1);
        let event = Event::Sample { event: 0, weight: 10, represents: 1, sample };
        let mut selected = event;
        assert!(thinning.selects(&mut selected));
        assert_eq!(selected, event);
    }
}
