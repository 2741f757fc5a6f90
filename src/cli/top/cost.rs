//! The CPU time that prof itself takes.

use std::collections::VecDeque;
use std::time::Instant;

use sys::os;

/// Readings that are kept.
const READINGS: usize = 6;

/// CPU time of prof over the last seconds.
#[derive(Default)]
pub struct CostMeter {
    readings: VecDeque<(Instant, f64)>,
}

impl CostMeter {
    /// Reads the CPU time; to be called once for each interval.
    pub fn read(&mut self) {
        if self.readings.len() == READINGS {
            self.readings.pop_front();
        }
        self.readings.push_back((Instant::now(), os::own_usage().0));
    }

    /// In percent of one core, since the oldest reading that is kept.
    pub fn percent(&self) -> f64 {
        let (Some(first), Some(last)) = (self.readings.front(), self.readings.back()) else {
            return 0.0;
        };
        let seconds = last.0.duration_since(first.0).as_secs_f64();
        if seconds > 0.0 { 100.0 * (last.1 - first.1) / seconds } else { 0.0 }
    }
}
