//! Interpreters among the files of a process, whose structures are not checked yet.

use std::sync::Arc;

use crate::memory::{Memory, ReadError};
use crate::{Process, Refusal, Runtime};

/// An interpreter of a process, as its files have it. What they contain is read once; its structures
/// may have to be checked several times until they pass.
pub trait Candidate: Send {
    /// Checks the structures of the process once, without waiting: that takes some hundred reads, or
    /// thousands. `threads`: its threads, by the numbers that it sees itself.
    ///
    /// # Errors
    ///
    /// It is of a version or kind that is not supported, runs no code at this time, or its structures
    /// are not as expected: those of a process that runs may change in the middle of the reading.
    fn check(&mut self, threads: &[i32], memory: &dyn Memory) -> Result<Arc<dyn Runtime>, Refusal>;
}

/// A kind of candidates.
pub(crate) trait Kind: Sized {
    /// What it is when it has passed the check.
    type Checked: Runtime + 'static;

    /// It among the files of a process, whose memory is read for what files do not have.
    ///
    /// # Errors
    ///
    /// It is of a version or kind that is not supported, or what is read is not as expected.
    fn find(process: &Process) -> Result<Option<Self>, Refusal>;

    /// See [`Candidate::check`].
    fn check(&mut self, threads: &[i32], memory: &dyn Memory) -> Result<Self::Checked, Refusal>;
}

impl<K: Kind + Send> Candidate for K {
    fn check(&mut self, threads: &[i32], memory: &dyn Memory) -> Result<Arc<dyn Runtime>, Refusal> {
        match Kind::check(self, threads, memory) {
            Ok(runtime) => Ok(Arc::new(runtime)),
            Err(refusal) => Err(without_pointers(refusal)),
        }
    }
}

/// A pointer that leads nowhere is a structure that is not as expected.
pub(crate) fn without_pointers(refusal: Refusal) -> Refusal {
    match refusal {
        Refusal::Memory(ReadError::Unmapped) => {
            Refusal::Layout("a pointer leads to memory that is not mapped")
        }
        refusal => refusal,
    }
}

/// The interpreter of a process, if it has one: its check is repeated, with pauses.
///
/// # Errors
///
/// Those of [`Kind`].
#[cfg(any(test, feature = "testing"))]
pub(crate) fn detect<K: Kind>(process: &Process) -> Result<Option<K::Checked>, Refusal> {
    let Some(mut found) = K::find(process)? else { return Ok(None) };
    let check = || found.check(process.threads, process.memory);
    crate::tries::repeated(crate::tries::TRIES, check).map(Some)
}
