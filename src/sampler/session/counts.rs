//! The kernel's counts while a recording goes on.

use super::Session;
use crate::sampler::attr::Trigger;
use crate::sampler::events::{EventKind, GroupRole};

/// Most counters that are read for each part of a recording: a read takes about 1 µs.
const MAX_COUNTERS: usize = 1000;

impl Session {
    /// The counts so far of the events whose period the kernel chooses: the periods of a few samples
    /// can add up to many times what happened. None if there are too many counters to read.
    pub fn counts_so_far(&mut self) -> Vec<(usize, u64)> {
        let chosen = |session: &Session, event: usize| {
            matches!(session.attacher.triggers[event], Trigger::Frequency(_))
                && session.attacher.events[event].group == GroupRole::None
        };
        let any = (0..self.attacher.events.len()).any(|event| chosen(self, event));
        if !any || self.filter.is_some() || self.attacher.counters.len() > MAX_COUNTERS {
            return Vec::new();
        }
        let totals = self.attacher.totals();
        let counted = totals.events.iter().zip(&self.attacher.events).enumerate();
        counted
            .filter(|&(event, _)| chosen(self, event))
            .map(|(event, (counted, spec))| {
                let scaled = counted.scaled().filter(|_| spec.kind == EventKind::Hardware);
                (event, scaled.unwrap_or(counted.count))
            })
            .collect()
    }
}
