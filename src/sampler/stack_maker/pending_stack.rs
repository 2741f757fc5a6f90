//! Stacks that are counted later than they are built.

use super::Innermost;
use profile::LocationId;

/// The frame in place of the stack of something that was counted without a sample.
pub const NOT_SAMPLED: &str = "[stack not known: it was not sampled]";

/// A stack whose value is not known yet.
#[derive(Default)]
pub struct PendingStack {
    /// Outermost first.
    pub(super) callers: Vec<LocationId>,
    pub(super) innermost: Option<Innermost>,
}

impl PendingStack {
    /// A stack with a single frame.
    pub fn single(location: LocationId) -> PendingStack {
        PendingStack { callers: vec![location], innermost: None }
    }

    /// True if no stack was set yet.
    pub fn is_empty(&self) -> bool {
        self.callers.is_empty() && self.innermost.is_none()
    }
}

impl Clone for PendingStack {
    fn clone(&self) -> PendingStack {
        PendingStack { callers: self.callers.clone(), innermost: self.innermost }
    }

    /// Reuses the memory of the previous stack.
    fn clone_from(&mut self, other: &PendingStack) {
        self.callers.clone_from(&other.callers);
        self.innermost = other.innermost;
    }
}
