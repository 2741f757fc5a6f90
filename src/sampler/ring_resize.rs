//! Replaces a ring by a larger one. The kernel takes 8 to 50 ms each, on a busy machine, to clear
//! the memory of a ring and to wait for all CPUs before events write to it. A thread waits for
//! that, while the smaller ring is still read.

use std::io::{self, PipeReader};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{Builder, JoinHandle};

use perf_event::Counter;

use super::attach;
use super::ring::Ring;
use sys::os;

/// A task of a thread.
struct Work<T> {
    thread: JoinHandle<T>,
    over: Arc<AtomicBool>,
    /// Becomes readable when the task has ended.
    end: PipeReader,
}

impl<T: Send + 'static> Work<T> {
    fn start(work: impl FnOnce() -> T + Send + 'static) -> io::Result<Work<T>> {
        let (end, other_end) = io::pipe()?;
        let over = Arc::new(AtomicBool::new(false));
        let ended = over.clone();
        let thread = Builder::new().name("ring".into()).spawn(move || {
            let _precedence = os::Precedence::take();
            let result = work();
            ended.store(true, Ordering::Release);
            drop(other_end);
            result
        })?;
        Ok(Work { thread, over, end })
    }

    fn is_over(&self) -> bool {
        self.over.load(Ordering::Acquire)
    }

    /// Waits for the result.
    fn result(self) -> io::Result<T> {
        self.thread.join().map_err(|_| io::Error::other("a thread has panicked"))
    }
}

/// The state of a replacement.
pub enum Growing {
    /// The new ring is being mapped, for the CPU with this index.
    Mapping(usize, RingMapping),
    /// The new ring is read, and the events of the CPU with this index are being redirected to it.
    Redirecting(usize, Redirecting),
}

/// See [`Growing::Mapping`].
pub struct RingMapping(Work<io::Result<Ring>>);

/// See [`Growing::Redirecting`].
pub struct Redirecting(Work<io::Result<()>>);

impl Growing {
    /// Starts mapping a ring of `size` bytes on `owner`, an event of `cpu`, which has index `at`.
    ///
    /// # Errors
    ///
    /// No thread can be started.
    pub fn start(at: usize, owner: Counter, cpu: u32, size: usize) -> io::Result<Growing> {
        let work = Work::start(move || Ring::new(owner, cpu, size))?;
        Ok(Growing::Mapping(at, RingMapping(work)))
    }

    /// Starts redirecting `events` to the mapped ring.
    ///
    /// # Errors
    ///
    /// No thread can be started; nothing has changed then.
    pub fn redirect(at: usize, events: Vec<OwnedFd>, ring: &Ring) -> io::Result<Growing> {
        let ring = ring.event()?;
        let work = Work::start(move || attach::redirect(&events, &ring))?;
        Ok(Growing::Redirecting(at, Redirecting(work)))
    }

    /// Becomes readable when the step has ended.
    pub fn fd(&self) -> RawFd {
        match self {
            Growing::Mapping(_, RingMapping(work)) => work.end.as_raw_fd(),
            Growing::Redirecting(_, Redirecting(work)) => work.end.as_raw_fd(),
        }
    }

    /// True if the step has ended.
    pub fn is_over(&self) -> bool {
        match self {
            Growing::Mapping(_, RingMapping(work)) => work.is_over(),
            Growing::Redirecting(_, Redirecting(work)) => work.is_over(),
        }
    }
}

impl RingMapping {
    /// Waits for the ring.
    pub fn ring(self) -> io::Result<Ring> {
        self.0.result()?
    }
}

impl Redirecting {
    /// Waits until the events write to the ring.
    ///
    /// # Errors
    ///
    /// Some of them may still write to the previous ring.
    pub fn end(self) -> io::Result<()> {
        self.0.result()?
    }
}
