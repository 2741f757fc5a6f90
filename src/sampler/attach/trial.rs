//! What a profile type may try before it says which events it has.

use super::{Attacher, Trigger};
use crate::sampler::{EventSpec, Target};
use sys::Error;

/// Tries events: whether the kernel has them, and the user may open them.
pub struct EventTrial<'a>(pub(super) &'a mut Attacher);

impl EventTrial<'_> {
    /// Everything on CPUs (or all of a cgroup) is recorded, not some threads.
    pub fn is_cpu_wide(&self) -> bool {
        matches!(self.0.options.target, Target::Everything | Target::Cgroup(_))
    }

    /// Kernel code may be sampled.
    pub fn may_sample_kernel(&self) -> bool {
        self.0.features.kernel
    }

    /// Opens an event for a moment.
    ///
    /// # Errors
    ///
    /// One line that says what is in the way.
    pub fn can_open(&mut self, spec: &EventSpec) -> Result<(), Error> {
        let tried = self.0.try_event(spec, Trigger::Period(1));
        tried.map_err(|e| self.0.refused(spec, &e))
    }

    /// The same; true if kernel code is still sampled with it. Else nothing has changed.
    pub fn with_kernel(&mut self, spec: &EventSpec) -> bool {
        let tried = self.attempt(|trial| match trial.can_open(spec) {
            Ok(()) if trial.may_sample_kernel() => Ok(()),
            _ => Err(()),
        });
        tried.is_ok()
    }

    /// Undoes what was narrowed down, and is to be said of it, if this fails.
    ///
    /// # Errors
    ///
    /// As of `attempt`.
    pub fn attempt<E>(
        &mut self,
        attempt: impl FnOnce(&mut EventTrial<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        self.0.or_as_before(|attacher| attempt(&mut EventTrial(attacher)))
    }

    /// Tells the user something.
    pub fn note(&mut self, note: String) {
        self.0.notes.push(note);
    }
}
