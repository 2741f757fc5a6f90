//! Trial opening of events, with which a profile type chooses its events.

use super::{Attacher, Trigger};
use crate::sampler::{EventSpec, Target};
use messages::Message;
use sys::Error;

/// Tries whether the kernel has an event and the user may open it.
pub struct EventTrial<'a>(pub(super) &'a mut Attacher);

impl EventTrial<'_> {
    /// True if whole CPUs (or a cgroup) are recorded instead of threads.
    pub fn is_cpu_wide(&self) -> bool {
        matches!(self.0.options.target, Target::Everything | Target::Cgroup(_))
    }

    /// True if kernel code may be sampled.
    pub fn may_sample_kernel(&self) -> bool {
        self.0.features.kernel
    }

    /// Opens and closes an event.
    ///
    /// # Errors
    ///
    /// One line that states the obstacle.
    pub fn can_open(&mut self, spec: &EventSpec) -> Result<(), Error> {
        let tried = self.0.try_event(spec, Trigger::Period(1));
        tried.map_err(|e| self.0.refused(spec, &e))
    }

    /// Like [`EventTrial::can_open`]; true if kernel code is still sampled with it. Otherwise
    /// restores the features.
    pub fn with_kernel(&mut self, spec: &EventSpec) -> bool {
        let tried = self.attempt(|trial| match trial.can_open(spec) {
            Ok(()) if trial.may_sample_kernel() => Ok(()),
            _ => Err(()),
        });
        tried.is_ok()
    }

    /// Restores the features and notes if `attempt` fails.
    ///
    /// # Errors
    ///
    /// Those of `attempt`.
    pub fn attempt<E>(
        &mut self,
        attempt: impl FnOnce(&mut EventTrial<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        self.0.or_restore(|attacher| attempt(&mut EventTrial(attacher)))
    }

    /// Adds a note for the user.
    pub fn note(&mut self, note: Message) {
        self.0.notes.push(note);
    }
}
