//! The kernel's counts of the events.

use super::Attacher;

/// The kernel's count of an event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EventCount {
    /// In the event's unit.
    pub count: u64,
    /// Time in nanoseconds for which the event was enabled.
    pub enabled: u64,
    /// Time for which it was counted: less than `enabled` if there are more events than counters,
    /// which the kernel then multiplexes.
    pub running: u64,
}

impl EventCount {
    /// The count extrapolated to the whole time, if a part of it was not counted.
    pub fn scaled(self) -> Option<u64> {
        // A tolerance of one thousandth, for the time to start and stop.
        let whole = u128::from(self.running) * 1001 >= u128::from(self.enabled) * 1000;
        if whole || self.running == 0 {
            return None;
        }
        let scaled = u128::from(self.count) * u128::from(self.enabled) / u128::from(self.running);
        Some(u64::try_from(scaled).unwrap_or(u64::MAX))
    }
}

/// The kernel's counts at the end.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// The count of each event.
    pub events: Vec<EventCount>,
    /// Number of samples that could not be written.
    pub lost: u64,
}

impl Attacher {
    /// Reads all counters: the count of each event, inherited ones included, and the number of
    /// samples of all events that the kernel could not write.
    pub fn totals(&mut self) -> Totals {
        let mut totals = Totals { events: vec![EventCount::default(); self.events.len()], lost: 0 };
        for counter in self.counters.iter_mut().chain(&mut self.retired) {
            let Ok(data) = counter.read_full() else { continue };
            totals.lost += data.lost().unwrap_or(0);
            if let Some(opened) = self.ids.get(&counter.id()) {
                let counted = &mut totals.events[usize::from(opened.event)];
                let time = |time: Option<std::time::Duration>| time.unwrap_or_default().as_nanos();
                counted.count += data.count();
                counted.running += time(data.time_running()) as u64;
                counted.enabled += time(data.time_enabled()) as u64;
            }
        }
        if !self.cpu_wide {
            // On each CPU, a thread's event waits while the thread runs on another.
            let cpus = self.cpus.len() as u64;
            totals.events.iter_mut().for_each(|counted| counted.enabled /= cpus);
        }
        totals
    }
}

#[cfg(test)]
mod tests {
    use super::EventCount;

    #[test]
    fn events_that_took_turns_are_scaled() {
        let of = |count, enabled, running| EventCount { count, enabled, running }.scaled();
        assert_eq!(of(1000, 4_000_000, 1_000_000), Some(4000));
        assert_eq!(of(1000, 1_000_000, 1_000_000), None);
        assert_eq!(of(1000, 1_000_500, 1_000_000), None, "started a moment later");
        assert_eq!(of(0, 1_000_000, 0), None, "never counted");
        assert_eq!(of(u64::MAX, u64::MAX, 1 << 20), Some(u64::MAX));
    }
}
