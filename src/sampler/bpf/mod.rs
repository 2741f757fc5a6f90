//! BPF programs that aggregate in the kernel what is too frequent to report event by event. They
//! sample a part of it, and keep exact sums of the whole.
//!
//! They need root, a kernel with BTF, and the tracepoints named in each program; without one of
//! these, prof records events instead, at a higher cost. The kernel removes the programs when prof
//! ends, in whichever way.

pub mod btf;
mod code;
pub mod deep;
pub mod filter;
mod go_stack;
mod return_probes;
pub mod sched;
mod snippets;
pub mod stack_parts;
pub mod stop;
mod syscall;
pub mod syscalls;
pub mod thread_pointers;
mod thread_set;
pub mod walk;

use std::io;
use std::os::fd::RawFd;

use profile::ThreadState;
use sys::ThreadId;
pub use thread_set::ThreadScope;

/// Tests that need BPF programs.
#[cfg(test)]
pub mod testing {
    use sys::testing::{skip, skip_hardware};

    /// Reports that this test does not run here because programs cannot be loaded. That is a
    /// failure with `CI=true`, but on a kernel without BTF.
    #[track_caller]
    pub fn skip_programs(reason: &str) {
        match super::btf::Btf::running() {
            Ok(_) => skip(reason),
            Err(_) => skip_hardware("the kernel has no BTF"),
        }
    }
}

/// BPF programs that do a part of a profile type's work: they write to its events, in their order.
pub trait KernelProgram: Send + Sync {
    /// Directs the output of the programs to the type's events of a CPU, given by their
    /// descriptors, which must outlive them.
    ///
    /// # Errors
    ///
    /// The events are not of a kind that programs can write to.
    fn connect(&self, cpu: u32, events: &[RawFd]) -> io::Result<()>;

    /// Adds a thread, with its state if known. `awaited`: it counts from its `execve` on.
    ///
    /// # Errors
    ///
    /// `AlreadyExists`, or there is no room, which the programs count.
    fn insert(&self, thread: ThreadId, state: Option<ThreadState>, awaited: bool)
    -> io::Result<()>;

    /// Attaches the programs.
    ///
    /// # Errors
    ///
    /// The kernel refuses.
    fn attach(&self) -> io::Result<()>;

    /// True if the programs that write stacks walk over frames of interpreters.
    fn walks(&self) -> bool;

    /// Detaches the programs; their sums can be read after that.
    fn detach(&self);
}

/// Threads and samples that programs could not handle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Losses {
    /// Threads for which there was no room.
    pub threads: u64,
    /// The largest interval in nanoseconds: shorter events were sampled in part only. 0: all were
    /// recorded.
    pub largest_interval: u64,
}

/// The extrapolated value of a `part` of an event that lasted `lasted` nanoseconds, if events
/// shorter than an interval are sampled with the probability lasted / interval.
pub fn extrapolate(part: u64, lasted: u64, interval: u64) -> u64 {
    if lasted >= interval || lasted == 0 {
        return part;
    }
    let scaled = u128::from(part) * u128::from(interval) / u128::from(lasted);
    u64::try_from(scaled).unwrap_or(u64::MAX)
}

/// A number of eight bytes in the output of programs.
fn number(bytes: &[u8], at: i16) -> Option<u64> {
    Some(u64::from_ne_bytes(*bytes.get(usize::try_from(at).ok()?..)?.first_chunk::<8>()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_events_represent_more() {
        assert_eq!(extrapolate(10, 10, 0), 10);
        assert_eq!(extrapolate(5000, 5000, 4096), 5000);
        // Every 41st of 100 ns, each of which represents the interval.
        assert_eq!(extrapolate(100, 100, 4096), 4096);
        assert_eq!(extrapolate(1, 100, 4096), 40);
        assert_eq!(extrapolate(0, 0, 4096), 0);
        assert_eq!(extrapolate(u64::MAX, 1, 4096), u64::MAX);
    }
}
