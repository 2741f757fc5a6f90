//! Stops threads for prof where no system call is interrupted.
//!
//! As root, BPF programs do that ([`StopPrograms`]). Otherwise perf events send the thread a signal
//! while it runs its own code. No thread is ever interrupted by `ptrace(2)`, since it may be asleep
//! then; one that has not stopped is released by ending the thread that traces it, which the target
//! does not notice.

use std::fs::{self, File};
use std::io;
use std::time::{Duration, Instant};

use super::refuse::field;
use super::trace::{Stop, Tracee};
use crate::arch;
use sys::{Error, ThreadId, os, procfs};

/// Sampling interval in nanoseconds of a thread's CPU time, for finding it in user code: of a busy
/// thread, and of one that runs briefly.
const BUSY: u64 = 250_000;
const RARE: u64 = 20_000;

/// Most threads that are watched at a time.
const WATCHED: usize = 8;

/// Polling interval for a thread that can be traced.
const POLL: Duration = Duration::from_micros(40);

/// Time for which a thread is traced without stopping.
#[derive(Clone, Copy)]
struct Patience {
    /// While it sleeps.
    asleep: Duration,
    /// While it waits for a CPU, or runs.
    runnable: Duration,
}

/// Interval between two checks whether a traced thread sleeps.
const ASLEEP: Duration = Duration::from_millis(1);

/// Longest time for which a traced thread may wait for a CPU.
const RUNNABLE: Duration = Duration::from_millis(300);

/// For a thread that programs have seen run.
const NEAR: Patience = Patience { asleep: ASLEEP, runnable: RUNNABLE };

/// For a thread that has blocked the signal.
const BLOCKED: Patience = Patience { asleep: RUNNABLE, runnable: RUNNABLE };

/// Time limits if a signal is sent blindly, for threads that are busy or not.
const BLIND_BUSY: Duration = Duration::from_millis(20);
const BLIND_RARE: Duration = Duration::from_millis(100);

/// Time to wait for another thread than the first.
const FOR_OTHERS: Duration = Duration::from_millis(300);

/// Signals that are ignored by default and rarely used by programs.
const SIGNALS: [i32; 2] = [libc::SIGURG, libc::SIGWINCH];

/// A thread that can be traced now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Near {
    /// Its TID.
    pub tid: i32,
    /// It waits to be traced.
    pub held: bool,
}

/// Kernel events that stop threads. The code that opens perf events provides them.
pub trait StopEvents: Sync {
    /// BPF programs that stop threads with this signal.
    ///
    /// # Errors
    ///
    /// This kernel is too old, or this user has no permission.
    fn programs(&self, signal: i32) -> io::Result<Box<dyn StopPrograms>>;

    /// Sends a signal to a thread each time that it has run for `period` nanoseconds and is in user
    /// code then, until the file is dropped. The thread may block or handle the signal when it
    /// arrives.
    ///
    /// # Errors
    ///
    /// Those of `perf_event_open(2)`.
    fn signal(&self, tid: i32, period: u64, signal: i32) -> io::Result<File>;
}

/// BPF programs that stop a thread where no system call is interrupted: while it runs its own code,
/// or when a call has just returned.
pub trait StopPrograms: Send + Sync {
    /// Begins to search for threads of a process.
    ///
    /// # Errors
    ///
    /// The kernel refuses.
    fn begin(&mut self, pid: i32) -> io::Result<()>;

    /// Ends the search.
    fn end(&mut self);

    /// Checks a thread each time that it has run for `period` nanoseconds and is in user code then,
    /// until the file is dropped.
    ///
    /// # Errors
    ///
    /// It has ended; no permission.
    fn watch(&self, tid: i32, period: u64) -> io::Result<File>;

    /// A thread that could be traced since the last call.
    fn near(&self) -> Option<Near>;

    /// True if a thread has waited to be traced since the last call, and waits no longer.
    fn missed(&self) -> bool;

    /// Stops this thread once it is traced and reaches a safe point; 0: none.
    fn want(&self, tid: i32);
}

/// A stopped thread.
pub struct StoppedThread {
    /// The thread.
    pub tracee: Tracee,
    /// Earliest time at which it may have stopped.
    pub since: Instant,
    /// Nanoseconds that it had waited for a CPU by that time.
    pub waited: u64,
}

/// Stops threads of a process.
pub struct Stops {
    pid: i32,
    /// Signal that stops a thread.
    pub signal: i32,
    events: &'static dyn StopEvents,
    programs: Option<Box<dyn StopPrograms>>,
    /// CPU time of the threads at the last check.
    ran: Vec<(i32, u64)>,
    turn: usize,
    /// Start of the search.
    since: Instant,
    /// A thread has run since the search began.
    pub any_ran: bool,
}

impl Stops {
    /// Prepares stopping threads of this process.
    ///
    /// # Errors
    ///
    /// It handles the signals; the kernel would delay them.
    pub fn new(pid: i32, events: &'static dyn StopEvents) -> Result<Stops, Error> {
        if fs::read_to_string("/sys/kernel/realtime").is_ok_and(|text| text.trim() == "1") {
            return Err(Error::failed(
                "a kernel with PREEMPT_RT delays signals, which might break off a system call",
            ));
        }
        let Some(signal) = choose(&used(pid)) else {
            return Err(Error::failed(
                "it handles both SIGURG and SIGWINCH, one of which prof needs to stop a thread",
            ));
        };
        let programs = events.programs(signal).ok();
        Ok(Stops {
            pid,
            signal,
            events,
            programs,
            ran: Vec::new(),
            turn: 0,
            since: Instant::now(),
            any_ran: false,
        })
    }

    /// Begins to search for threads.
    pub fn begin(&mut self) {
        // Earlier activity does not count.
        (self.any_ran, self.since) = (false, Instant::now());
        self.ran.clear();
        if let Some(programs) = &mut self.programs
            && programs.begin(self.pid).is_err()
        {
            self.programs = None;
        }
    }

    /// Ends the search.
    pub fn end(&mut self) {
        self.programs.iter_mut().for_each(|programs| programs.end());
    }

    /// Stops a thread, if one can be traced. If none can, the calling thread, which has to exist
    /// for this alone, must end: it may still trace one.
    ///
    /// # Errors
    ///
    /// The process has ended, or may not be traced.
    pub fn stop_one(&mut self, until: Instant) -> io::Result<Option<StoppedThread>> {
        let threads = self.threads_by_activity()?;
        let stopped = match &self.programs {
            Some(programs) => self.stop_near(&**programs, &threads, until),
            None => self.stop_blindly(&threads),
        };
        self.any_ran |= matches!(stopped, Ok(Some(_)));
        stopped
    }

    /// True if every thread blocks the signal now.
    pub fn all_block(&self) -> bool {
        used(self.pid).iter().all(|s| has(s.blocked, self.signal))
    }

    /// The threads, starting with those that have run since the last check.
    fn threads_by_activity(&mut self) -> io::Result<Vec<(i32, bool)>> {
        let before = std::mem::take(&mut self.ran);
        let mut tids = procfs::threads(self.pid)?;
        let count = tids.len().max(1);
        tids.rotate_left(self.turn % count);
        self.turn = self.turn.wrapping_add(1);
        let mut threads = Vec::with_capacity(tids.len());
        for tid in tids {
            let Some(SchedTimes { ran, .. }) = schedstat(self.thread(tid)) else { continue };
            let earlier = before.binary_search_by_key(&tid, |t| t.0).ok().map(|i| before[i].1);
            let busy = earlier.is_some_and(|earlier| earlier != ran);
            self.any_ran |= busy;
            self.ran.push((tid, ran));
            threads.push((tid, busy));
        }
        self.ran.sort_unstable();
        threads.sort_by_key(|&(_, busy)| !busy);
        Ok(threads)
    }

    /// A thread of the process.
    fn thread(&self, tid: i32) -> ThreadId {
        ThreadId { pid: self.pid, tid }
    }

    /// Waits for a thread that can be traced, and traces it.
    fn stop_near(
        &self,
        programs: &dyn StopPrograms,
        threads: &[(i32, bool)],
        until: Instant,
    ) -> io::Result<Option<StoppedThread>> {
        let watched = threads.iter().take(WATCHED);
        let watched: Vec<File> =
            watched.filter_map(|&(tid, _)| programs.watch(tid, BUSY).ok()).collect();
        let near = loop {
            if programs.missed() {
                // It waits on its CPU, so prof must not wait for the same one.
                os::leave_this_cpu();
            }
            if let Some(near) = programs.near().filter(|near| self.may_trace(near.tid, threads)) {
                break near;
            }
            if Instant::now() >= until {
                return Ok(None);
            }
            std::thread::sleep(POLL);
        };
        let since = Instant::now();
        programs.want(near.tid);
        let mut tracee = match Tracee::seize(near.tid) {
            Ok(tracee) => tracee,
            Err(e) => return self.not_seized(near.tid, e),
        };
        let waited = schedstat(self.thread(near.tid)).map_or(0, |s| s.waited);
        let stopped = self.wait(&mut tracee, NEAR);
        programs.want(0);
        drop(watched);
        Ok(stopped.then_some(StoppedThread { tracee, since, waited }))
    }

    /// Traces a thread, and has the kernel send it a signal when it runs.
    fn stop_blindly(&self, threads: &[(i32, bool)]) -> io::Result<Option<StoppedThread>> {
        let used = |tid| Signals::read(self.thread(tid)).unwrap_or_default().uses(self.signal);
        let fit = |tid| !used(tid) && self.may_trace(tid, threads);
        let Some(&(tid, busy)) = threads.iter().find(|&&(tid, _)| fit(tid)) else {
            return Ok(None);
        };
        let since = Instant::now();
        let mut tracee = match Tracee::seize(tid) {
            Ok(tracee) => tracee,
            Err(e) => return self.not_seized(tid, e),
        };
        let waited = schedstat(self.thread(tid)).map_or(0, |s| s.waited);
        let event = self.events.signal(tid, if busy { BUSY } else { RARE }, self.signal)?;
        let limit = if busy { BLIND_BUSY } else { BLIND_RARE };
        let patience = Patience { asleep: limit, runnable: limit };
        let mut stopped = self.wait(&mut tracee, patience);
        drop(event);
        if !stopped && is_pending(tid, self.signal) {
            // It has blocked the signal since. It is traced until it has received it, or it would
            // see the signal.
            stopped = self.wait(&mut tracee, BLOCKED);
        }
        Ok(stopped.then_some(StoppedThread { tracee, since, waited }))
    }

    /// True if tracing it has no effect on other threads. While a thread is traced, the kernel does
    /// not drop its ignored signals: `SIGCHLD`, when a child ends, goes to any thread then, and a
    /// call of that one may fail with `EINTR`. For signals that others send to the process, the
    /// kernel checks the first thread, so that one is traced only if no other is available.
    fn may_trace(&self, tid: i32, threads: &[(i32, bool)]) -> bool {
        if threads.len() > 1 && tid == self.pid && self.since.elapsed() < FOR_OTHERS {
            return false;
        }
        let children = || fs::read_to_string(format!("/proc/{}/task/{tid}/children", self.pid));
        threads.len() == 1 || children().unwrap_or_default().trim().is_empty()
    }

    /// It has ended, or the previous tracing thread has not released it yet.
    fn not_seized(&self, tid: i32, error: io::Error) -> io::Result<Option<StoppedThread>> {
        let status = fs::read_to_string(format!("/proc/{}/task/{tid}/status", self.pid));
        let status = status.unwrap_or_default();
        let own = std::process::id().to_string();
        let ends = field(&status, "State").is_none_or(|s| s.starts_with(['Z', 'X']));
        if error.raw_os_error() == Some(libc::ESRCH)
            || field(&status, "TracerPid") == Some(&own)
            || ends
        {
            return Ok(None);
        }
        Err(error)
    }

    /// Waits until the thread has stopped by prof's signal.
    fn wait(&self, tracee: &mut Tracee, patience: Patience) -> bool {
        let began = Instant::now();
        loop {
            let gone_on = match tracee.wait(Instant::now() + ASLEEP) {
                Ok(Some(Stop::Signal(signal))) if signal == self.signal => return true,
                Ok(Some(Stop::Signal(signal))) => {
                    // Untraced, it would have slept through an ignored signal.
                    if let Ok(registers) = tracee.registers() {
                        let left = arch::for_the_kernel(&registers);
                        tracee.set_registers(&left).ok();
                    }
                    tracee.go(signal).is_ok()
                }
                // The process was stopped; it stays so when the thread is released.
                Ok(Some(Stop::Group)) | Err(_) => false,
                Ok(Some(_)) => tracee.go(0).is_ok(),
                Ok(None) => true,
            };
            let waited = began.elapsed();
            let asleep = || waited > patience.asleep && sleeps(self.thread(tracee.tid));
            if !gone_on || waited > patience.runnable || asleep() {
                return false;
            }
        }
    }
}

/// Times of a thread since it started, in nanoseconds (`/proc/PID/task/TID/schedstat`).
#[derive(Clone, Copy, Debug)]
pub struct SchedTimes {
    /// Time for which it has run.
    pub ran: u64,
    /// Time for which it has waited for a CPU.
    pub waited: u64,
}

/// The times of a thread; `None` if it has ended.
pub fn schedstat(thread: ThreadId) -> Option<SchedTimes> {
    let ThreadId { pid, tid } = thread;
    let text = fs::read_to_string(format!("/proc/{pid}/task/{tid}/schedstat")).ok()?;
    let mut words = text.split_ascii_whitespace().map(|word| word.parse().ok());
    Some(SchedTimes { ran: words.next()??, waited: words.next()?? })
}

fn sleeps(thread: ThreadId) -> bool {
    let ThreadId { pid, tid } = thread;
    let stat = fs::read_to_string(format!("/proc/{pid}/task/{tid}/stat")).unwrap_or_default();
    procfs::parse_stat(&stat).is_none_or(|stat| stat.state != 'R')
}

/// Signal masks of a thread.
#[derive(Clone, Copy, Debug, Default)]
struct Signals {
    /// Blocked signals.
    blocked: u64,
    /// Signals that the process handles.
    handled: u64,
}

impl Signals {
    fn read(thread: ThreadId) -> Option<Signals> {
        let ThreadId { pid, tid } = thread;
        let status = fs::read_to_string(format!("/proc/{pid}/task/{tid}/status")).ok()?;
        Some(Signals { blocked: set(&status, "SigBlk"), handled: set(&status, "SigCgt") })
    }

    /// True if it may see the signal: by a handler, or by waiting for it while it is blocked.
    fn uses(self, signal: i32) -> bool {
        has(self.blocked | self.handled, signal)
    }
}

/// Masks of each thread.
fn used(pid: i32) -> Vec<Signals> {
    let tids = procfs::threads(pid).unwrap_or_default();
    tids.into_iter().filter_map(|tid| Signals::read(ThreadId { pid, tid })).collect()
}

/// The signal that the fewest threads block, of those that are not handled. PostgreSQL, for one,
/// blocks SIGURG everywhere, and reads it from a descriptor. A signal that all threads block is
/// still usable: many programs block every signal while they sleep.
fn choose(used: &[Signals]) -> Option<i32> {
    let users = |signal: &i32| used.iter().filter(|s| has(s.blocked, *signal)).count();
    let free = |signal: &i32| used.iter().any(|s| !has(s.handled, *signal));
    SIGNALS.into_iter().filter(free).min_by_key(users)
}

fn set(status: &str, name: &str) -> u64 {
    field(status, name).and_then(|set| u64::from_str_radix(set, 16).ok()).unwrap_or(0)
}

fn has(set: u64, signal: i32) -> bool {
    set & 1 << (signal - 1) != 0
}

fn is_pending(tid: i32, signal: i32) -> bool {
    let status = fs::read_to_string(format!("/proc/{tid}/status")).unwrap_or_default();
    has(set(&status, "SigPnd"), signal)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_that_threads_neither_block_nor_handle() {
        let [first, second] = SIGNALS.map(|signal| 1_u64 << (signal - 1));
        let blocks = |blocked| Signals { blocked, handled: 0 };
        let handles = |handled| Signals { blocked: 0, handled };
        assert_eq!(choose(&[blocks(0); 2]), Some(SIGNALS[0]));
        assert_eq!(choose(&[blocks(first); 2]), Some(SIGNALS[1]));
        assert_eq!(choose(&[handles(first)]), Some(SIGNALS[1]));
        // One thread can be stopped, which is enough.
        assert_eq!(choose(&[blocks(first | second), blocks(second)]), Some(SIGNALS[0]));
        // It may unblock them later.
        assert_eq!(choose(&[blocks(first | second)]), Some(SIGNALS[0]));
        assert_eq!(choose(&[handles(first | second)]), None);
        assert_eq!(choose(&[]), None);
    }
}
