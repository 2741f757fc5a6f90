//! The CPU time that prof itself takes.

use std::collections::VecDeque;
use std::time::Duration;

use sys::cpu_allowance::WINDOW;

/// Time that the figure on the screen covers.
const SHOWN: Duration = Duration::from_secs(5);

/// CPU time of prof over the last seconds.
#[derive(Default)]
pub struct CostMeter {
    /// Times and CPU times since the start; the first is at least a window old, or the beginning.
    readings: VecDeque<(Duration, Duration)>,
    /// The most in a window after the first one, as a part of a core.
    most: Option<f64>,
}

impl CostMeter {
    /// Takes a reading; to be called once for each interval. `now` and `used`: time and CPU time of
    /// prof since the start.
    pub fn read(&mut self, now: Duration, used: Duration) {
        self.readings.push_back((now, used));
        while self.readings.get(1).is_some_and(|&(time, _)| now.saturating_sub(time) >= WINDOW) {
            self.readings.pop_front();
        }
        let began = self.readings.front().map_or(now, |first| first.0);
        if began >= WINDOW && now.saturating_sub(began) >= WINDOW {
            let last = self.since(began).into_iter();
            self.most = last.chain(self.most).reduce(f64::max);
        }
    }

    /// In percent of one core, over the last seconds.
    pub fn percent(&self) -> f64 {
        let now = self.readings.back().map_or(Duration::ZERO, |last| last.0);
        let first = self.readings.iter().find(|&&(time, _)| now.saturating_sub(time) <= SHOWN);
        100.0 * first.and_then(|first| self.since(first.0)).unwrap_or(0.0)
    }

    /// The part of a core since the reading at this time.
    fn since(&self, began: Duration) -> Option<f64> {
        let first = self.readings.iter().find(|reading| reading.0 == began)?;
        let last = self.readings.back()?;
        let seconds = last.0.saturating_sub(first.0).as_secs_f64();
        (seconds > 0.0).then(|| last.1.saturating_sub(first.1).as_secs_f64() / seconds)
    }

    /// The sum at the end. `lasted` and `used`: time and CPU time since the start.
    pub fn sum(&self, lasted: Duration, used: Duration) -> String {
        let (lasted, used) = (lasted.as_secs_f64(), used.as_secs_f64());
        let mut text = format!(
            "used {used:.2} s of CPU time in {lasted:.1} s: {:.2}% of a core",
            100.0 * used / lasted.max(1e-3)
        );
        if let Some(most) = self.most {
            let percent = 100.0 * most;
            text += &format!(", at most {percent:.2}% in ten seconds after the first ten");
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meter(seconds: u64, used: impl Fn(u64) -> u64) -> CostMeter {
        let mut meter = CostMeter::default();
        let times = (0..=seconds).map(|s| (Duration::from_secs(s), Duration::from_millis(used(s))));
        times.for_each(|(now, used)| meter.read(now, used));
        meter
    }

    #[test]
    fn the_figure_is_that_of_the_last_seconds() {
        assert_eq!(CostMeter::default().percent(), 0.0);
        assert_eq!(meter(0, |_| 5).percent(), 0.0);
        let busy_first = meter(9, |s| if s < 4 { 100 * s } else { 400 + 10 * (s - 4) });
        assert!((busy_first.percent() - 1.0).abs() < 1e-9, "{}", busy_first.percent());
    }

    #[test]
    fn the_sum_has_the_worst_window_after_the_first() {
        let text = |meter: CostMeter, seconds, ms| {
            meter.sum(Duration::from_secs(seconds), Duration::from_millis(ms))
        };
        assert_eq!(
            text(meter(5, |s| 100 * s), 5, 500),
            "used 0.50 s of CPU time in 5.0 s: 10.00% of a core"
        );
        // 200 ms in the first ten seconds, 50 ms at 25 s.
        let used = |s| if s < 10 { 20 * s } else { 200 + if s >= 25 { 50 } else { 0 } };
        assert_eq!(
            text(meter(40, used), 40, 250),
            "used 0.25 s of CPU time in 40.0 s: 0.62% of a core, at most 0.50% in ten seconds \
             after the first ten"
        );
    }
}
