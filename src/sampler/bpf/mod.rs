//! Programs of prof's that run in the kernel: they do there what happens too often to be told of
//! each time, and tell of some of it, in a way that the whole is known.
//!
//! They need root, a kernel that tells of its types (BTF), and the tracepoints that are named where
//! they are written; whoever lacks one of these records without them, at a higher price. They are
//! gone as soon as prof is, however it ends.

pub mod btf;
mod code;
pub mod deep;
pub mod filter;
pub mod sched;
mod snippets;
pub mod stop;
mod syscall;
pub mod syscalls;
mod thread_set;

use std::io;
use std::os::fd::RawFd;

use profile::ThreadState;
use sys::ThreadId;
pub use thread_set::ThreadScope;

/// Programs in the kernel that do a part of a profile type's work: they write to its events, in their
/// order.
pub trait KernelProgram {
    /// Lets the programs write to the type's events of a CPU, given by their descriptors, which must
    /// outlive them.
    ///
    /// # Errors
    ///
    /// They are not for programs to write to.
    fn connect(&self, cpu: u32, events: &[RawFd]) -> io::Result<()>;

    /// Adds a thread, in a state if that is known. `awaited`: from its `execve` on.
    ///
    /// # Errors
    ///
    /// `AlreadyExists`, or there are too many, which the programs count.
    fn insert(&self, thread: ThreadId, state: Option<ThreadState>, awaited: bool)
    -> io::Result<()>;

    /// Starts the programs.
    ///
    /// # Errors
    ///
    /// The kernel refuses.
    fn attach(&self) -> io::Result<()>;

    /// Ends the programs; what they have added up can be read after that.
    fn detach(&self);
}

/// What programs could not take in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Losses {
    /// Threads that there was no room for.
    pub threads: u64,
    /// The largest interval in nanoseconds: of what was shorter, only some was sampled. 0: all was.
    pub largest_interval: u64,
}

impl Losses {
    /// Sentences for the user: `noun` is the profile type, `what` is sampled, and `known` is exact
    /// all the same.
    pub fn notes(&self, noun: &str, what: &str, known: &str) -> Vec<String> {
        let mut notes = Vec::new();
        if self.largest_interval > 0 {
            notes.push(format!(
                "{noun}: there were so many {what} that of those shorter than {} us only some were \
                 sampled, and are scaled to {known}",
                self.largest_interval.div_ceil(1000)
            ));
        }
        if self.threads > 0 {
            notes.push(format!(
                "{noun}: {} threads are missing: there were too many at once; record fewer \
                 processes",
                self.threads
            ));
        }
        notes
    }
}

/// What something of which a part lasted so long stands for, if those that are shorter than an interval
/// are told of with the chance lasted / interval.
pub fn stands_for(part: u64, lasted: u64, interval: u64) -> u64 {
    if lasted >= interval || lasted == 0 {
        return part;
    }
    let scaled = u128::from(part) * u128::from(interval) / u128::from(lasted);
    u64::try_from(scaled).unwrap_or(u64::MAX)
}

/// A number of eight bytes in what programs tell.
fn number(bytes: &[u8], at: i16) -> Option<u64> {
    Some(u64::from_ne_bytes(*bytes.get(usize::try_from(at).ok()?..)?.first_chunk::<8>()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_short_ones_stand_for_more() {
        assert_eq!(stands_for(10, 10, 0), 10);
        assert_eq!(stands_for(5000, 5000, 4096), 5000);
        // Every 41st of 100 ns, each of which stands for the interval.
        assert_eq!(stands_for(100, 100, 4096), 4096);
        assert_eq!(stands_for(1, 100, 4096), 40);
        assert_eq!(stands_for(0, 0, 4096), 0);
        assert_eq!(stands_for(u64::MAX, 1, 4096), u64::MAX);
    }
}
