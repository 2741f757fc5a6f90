//! Priorities of threads.

#![allow(unsafe_code)]

use std::io;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::time::{Duration, Instant};

use super::limits;

/// Gives the calling thread precedence over others, if this user may, so that the rings are read in
/// time on an overloaded machine; undone when dropped.
pub struct Precedence {
    /// The previous priority, if it was raised.
    nice: Option<i32>,
    /// The previous limit of real-time CPU time, if the thread has a real-time priority.
    limit: Option<libc::rlimit>,
    /// Time at which the loss of the real-time priority was noticed.
    lost: Option<Instant>,
}

/// Pause before a lost real-time priority is taken again.
const PAUSE: Duration = Duration::from_secs(1);

/// CPU time in microseconds that a thread may use with a real-time priority without waiting.
const MAX_REAL_TIME: u64 = 300_000;

/// The thread that has a real-time priority, or had until it exceeded its time; 0: none.
static REAL_TIME: AtomicI32 = AtomicI32::new(0);
/// It exceeded its time.
static TOO_LONG: AtomicBool = AtomicBool::new(false);

impl Precedence {
    /// Raises the calling thread's priority.
    pub fn take() -> Precedence {
        // SAFETY: both calls take integers; -1 is also a priority, so errno would have to be
        // checked, but restoring -1 instead of 0 would be harmless.
        let nice = unsafe {
            let before = libc::getpriority(libc::PRIO_PROCESS, 0);
            let raised = libc::setpriority(libc::PRIO_PROCESS, 0, -20) == 0;
            raised.then_some(before)
        };
        Precedence { nice, limit: None, lost: None }
    }

    /// Takes a real-time priority as well, for one thread of the process: a high priority ranks
    /// only among the threads of the same session or cgroup. A thread that runs for longer than
    /// [`MAX_REAL_TIME`] without waiting loses it for at least [`PAUSE`].
    ///
    /// Processes that the thread starts do not inherit it.
    pub fn take_real_time() -> Precedence {
        let mut taken = Precedence::take();
        taken.limit = limit_real_time().ok();
        if taken.limit.is_some() {
            // SAFETY: the call takes nothing and cannot fail.
            REAL_TIME.store(unsafe { libc::gettid() }, Ordering::Relaxed);
            if set_real_time().is_err() {
                taken.end_real_time();
            }
        }
        taken
    }

    /// Takes the real-time priority again some time after it was lost; to be called regularly.
    pub fn renew(&mut self) {
        if TOO_LONG.load(Ordering::Relaxed)
            && self.lost.get_or_insert_with(Instant::now).elapsed() >= PAUSE
        {
            self.renew_at_once();
        }
    }

    /// Takes the real-time priority again if it was lost, without waiting for [`PAUSE`] to pass.
    /// Only for work that is done once; otherwise the thread could keep a CPU for ever.
    pub fn renew_at_once(&mut self) {
        let Some(before) = &self.limit else { return };
        if !TOO_LONG.load(Ordering::Relaxed) {
            return;
        }
        self.lost = None;
        TOO_LONG.store(false, Ordering::Relaxed);
        // The kernel raises the limit each time that it is reached.
        if set_real_time_limit(before).is_ok() {
            let _ = set_real_time();
            // The kernel includes the earlier time until the thread has waited.
            pause_briefly();
        }
    }

    fn end_real_time(&mut self) {
        let Some(limit) = self.limit.take() else { return };
        end_real_time(0);
        REAL_TIME.store(0, Ordering::Relaxed);
        // SAFETY: setrlimit reads a value of the right type.
        unsafe { libc::setrlimit(libc::RLIMIT_RTTIME, &raw const limit) };
    }
}

/// Waits briefly, so that other threads run during long work that is done once, and that work does
/// not count as never waiting ([`Precedence::take_real_time`]).
pub fn pause_briefly() {
    std::thread::sleep(Duration::from_micros(50));
}

impl Drop for Precedence {
    fn drop(&mut self) {
        self.end_real_time();
        if let Some(before) = self.nice {
            // SAFETY: the call takes integers.
            unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, before) };
        }
    }
}

/// Limits real-time CPU time; a signal then ends the real-time priority. Returns the previous
/// limit.
fn limit_real_time() -> io::Result<libc::rlimit> {
    // SAFETY: sigaction is plain data for which zero is valid; the handler makes one system call
    // and stores one number, both of which are async-signal-safe; the call reads a local of the
    // right type.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = ran_too_long as extern "C" fn(libc::c_int) as usize;
        action.sa_flags = libc::SA_RESTART;
        if libc::sigaction(libc::SIGXCPU, &raw const action, std::ptr::null_mut()) != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    let before = limits(libc::RLIMIT_RTTIME)?;
    // At the hard limit the kernel kills the process.
    if before.rlim_max != libc::RLIM_INFINITY {
        return Err(io::ErrorKind::Unsupported.into());
    }
    set_real_time_limit(&before)?;
    Ok(before)
}

fn set_real_time_limit(before: &libc::rlimit) -> io::Result<()> {
    let limit = libc::rlimit { rlim_cur: MAX_REAL_TIME.min(before.rlim_cur), ..*before };
    // SAFETY: setrlimit reads a local of the right type.
    match unsafe { libc::setrlimit(libc::RLIMIT_RTTIME, &raw const limit) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

extern "C" fn ran_too_long(_: libc::c_int) {
    TOO_LONG.store(true, Ordering::Relaxed);
    match REAL_TIME.load(Ordering::Relaxed) {
        0 => {}
        thread => end_real_time(thread),
    }
}

fn set_real_time() -> io::Result<()> {
    let lowest = libc::sched_param { sched_priority: 1 };
    set_scheduler(0, libc::SCHED_RR | libc::SCHED_RESET_ON_FORK, lowest)
}

fn end_real_time(thread: i32) {
    let _ = set_scheduler(thread, libc::SCHED_OTHER, libc::sched_param { sched_priority: 0 });
}

fn set_scheduler(thread: i32, policy: i32, parameter: libc::sched_param) -> io::Result<()> {
    // SAFETY: the call reads a local of the right type.
    match unsafe { libc::sched_setscheduler(thread, policy, &raw const parameter) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::os::own_usage;

    fn policy() -> i32 {
        // SAFETY: the call takes an integer.
        unsafe { libc::sched_getscheduler(0) & !libc::SCHED_RESET_ON_FORK }
    }

    #[test]
    fn a_real_time_thread_that_never_waits_loses_its_priority() {
        let mut precedence = Precedence::take_real_time();
        if policy() != libc::SCHED_RR {
            return crate::testing::skip("this user has no real-time priority");
        }
        let inherited = std::thread::spawn(policy).join().unwrap();
        assert_eq!(inherited, libc::SCHED_OTHER);
        let began = Instant::now();
        while policy() == libc::SCHED_RR {
            assert!(began.elapsed() < Duration::from_secs(60), "it keeps a CPU for ever");
        }
        precedence.renew();
        assert_eq!(policy(), libc::SCHED_OTHER, "not at once");
        while policy() == libc::SCHED_OTHER {
            assert!(began.elapsed() < Duration::from_secs(120), "it never gets it back");
            precedence.renew();
        }
        let used = own_usage().0;
        while own_usage().0 - used < 1.0 {
            assert_eq!(policy(), libc::SCHED_RR, "it waits");
            // The kernel counts its ticks, also those in which another virtual machine has most of
            // the CPU: 20 ms of CPU time may be more than it allows then.
            let step = Instant::now();
            while step.elapsed() < Duration::from_millis(20) {}
            pause_briefly();
        }
        while policy() == libc::SCHED_RR {
            assert!(began.elapsed() < Duration::from_secs(180), "it keeps a CPU for ever");
        }
        precedence.renew_at_once();
        assert_eq!(policy(), libc::SCHED_RR);
        drop(precedence);
        assert_eq!(policy(), libc::SCHED_OTHER);
    }
}
