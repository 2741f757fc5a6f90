//! Stacks that are counted later than they are made.

use super::Innermost;
use profile::LocationId;

/// A stack to be counted when its value is known.
#[derive(Default)]
pub struct PendingStack {
    /// Outermost first.
    pub(super) callers: Vec<LocationId>,
    pub(super) innermost: Option<Innermost>,
}

impl PendingStack {
    /// A single frame.
    pub fn of(location: LocationId) -> PendingStack {
        PendingStack { callers: vec![location], innermost: None }
    }

    /// True before the first stack was set.
    pub fn is_empty(&self) -> bool {
        self.callers.is_empty() && self.innermost.is_none()
    }
}

impl Clone for PendingStack {
    fn clone(&self) -> PendingStack {
        PendingStack { callers: self.callers.clone(), innermost: self.innermost }
    }

    /// Keeps the memory of the stack before.
    fn clone_from(&mut self, other: &PendingStack) {
        self.callers.clone_from(&other.callers);
        self.innermost = other.innermost;
    }
}
