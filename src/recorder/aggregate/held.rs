//! Stacks that are counted later than they are taken.

use super::{Innermost, Scratch};
use profile::LocationId;

/// A stack that will be counted when it is known for how long.
#[derive(Default)]
pub(super) struct Held {
    /// Outermost first.
    pub callers: Vec<LocationId>,
    pub innermost: Option<Innermost>,
}

impl Held {
    pub fn set(&mut self, scratch: &Scratch, innermost: Option<Innermost>) {
        self.callers.clone_from(&scratch.callers);
        self.innermost = innermost;
    }

    pub fn is_empty(&self) -> bool {
        self.callers.is_empty() && self.innermost.is_none()
    }
}
