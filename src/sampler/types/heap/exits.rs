//! Leak checks of processes that exit: each requests one and waits, and a thread of prof reads its
//! memory at once.

use std::collections::VecDeque;
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{JoinHandle, sleep};
use std::time::{Duration, Instant};
use std::{fs::File, io};

use rustc_hash::FxHashMap;

use super::model::HeapModel;
use heap::inject::is_unconfined;
use heap::layout::exit::PATIENCE;
use heap::leaks::{self, Failure, Verdict};
use heap::{ExitRequest, Exits};
use sys::maps::parse_line;
use sys::{ThreadId, os, procfs};

/// Maximum time until prof sees the request of a process.
const POLL_INTERVAL: Duration = Duration::from_millis(1);

/// Part of the time that a process waits which is reserved for the reply.
const MARGIN: Duration = Duration::from_millis(50);

/// The result of a leak check: the verdict for each block, by ID; or the reason why there is none.
pub type ExitFindings = Result<FxHashMap<u64, Verdict>, String>;

/// The thread that reads processes that exit.
pub struct Watcher {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    results: Receiver<SeenExit>,
    pending: VecDeque<SeenExit>,
}

/// Time (`CLOCK_MONOTONIC`, nanoseconds), process and result of a check.
type SeenExit = (u64, i32, ExitFindings);

impl Watcher {
    /// Starts to wait for processes that exit. `mappings` count as allocations, too.
    ///
    /// # Errors
    ///
    /// No memory or no thread is available.
    pub fn start(shared: &File, mappings: bool) -> io::Result<Watcher> {
        let exits = Exits::map(shared)?;
        let inode = shared.metadata()?.ino();
        let stop = Arc::new(AtomicBool::new(false));
        let (sender, results) = channel();
        let until = stop.clone();
        let thread =
            std::thread::Builder::new().name("prof-exits".to_owned()).spawn(move || {
                let reader = ExitReader { exits, inode, mappings, sender };
                while !until.load(Relaxed) {
                    match reader.exits.next() {
                        Some(request) => reader.check(request),
                        None => sleep(POLL_INTERVAL),
                    }
                }
            })?;
        Ok(Watcher { stop, thread: Some(thread), results, pending: VecDeque::new() })
    }

    /// Delivers the results from before `until`.
    pub fn take(&mut self, model: &mut HeapModel, until: u64) {
        self.pending.extend(self.results.try_iter());
        let before = self.pending.partition_point(|seen| seen.0 < until);
        for (_, pid, result) in self.pending.drain(..before) {
            model.exits(pid, result);
        }
    }

    /// Stops checking.
    pub fn end(&mut self) {
        self.stop.store(true, Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.join().ok();
        }
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.end();
    }
}

struct ExitReader {
    exits: Exits,
    /// Inode of the memory shared with the processes.
    inode: u64,
    mappings: bool,
    sender: Sender<SeenExit>,
}

impl ExitReader {
    fn check(&self, mut request: ExitRequest) {
        let now = os::monotonic_nanos();
        let waited = Duration::from_nanos(now.saturating_sub(request.time));
        let left = Duration::from_nanos(PATIENCE).saturating_sub(waited + MARGIN);
        let until = Instant::now() + left;
        // Any process can write a request.
        let found = self.find(&request);
        let is_known = found.is_some();
        if let Some(found) = found {
            request.pid = found.pid;
            request.tid = found.tid;
        }
        let confined = !is_known || request.tid == 0 || !is_unconfined(request.pid, request.tid);
        if !self.exits.begin_search(&mut request, confined) {
            return;
        }
        // The default result, if the check is late: the process does not wait longer.
        self.send(now, request.pid, Err(Failure::TooLong));
        let result = if is_known {
            leaks::analyze(&request, self.mappings, until)
        } else {
            Err(Failure::System(io::Error::from_raw_os_error(libc::ESRCH)))
        };
        // If the process has continued in the meantime, its memory may have changed.
        let result = match result {
            Ok(_) if !self.exits.waits(&request) => Err(Failure::TooLong),
            result => result,
        };
        self.send(now, request.pid, result);
        self.exits.release(&request);
    }

    fn send(&self, time: u64, pid: i32, result: Result<Vec<(u64, Verdict)>, Failure>) {
        let result = result.map(|verdicts| verdicts.into_iter().collect());
        // Without a receiver, the recording has ended.
        self.sender.send((time, pid, result.map_err(|e| e.to_string()))).ok();
    }

    /// The process and the thread in prof's PID namespace: the process has mapped the shared memory
    /// at the address in the request, and has the requested PID there or in a namespace of its own.
    /// TID 0: unknown.
    fn find(&self, request: &ExitRequest) -> Option<ThreadId> {
        if self.has_mapped(request, request.pid) {
            return Some(ThreadId { pid: request.pid, tid: request.tid });
        }
        let mut others = procfs::processes().into_iter();
        let pid = others.find(|&pid| {
            procfs::inner_pid(pid) == Some(request.pid) && self.has_mapped(request, pid)
        })?;
        Some(ThreadId { pid, tid: procfs::outer_tid(pid, request.tid).unwrap_or(0) })
    }

    fn has_mapped(&self, request: &ExitRequest, pid: i32) -> bool {
        let maps = std::fs::read_to_string(format!("/proc/{pid}/maps"));
        let maps = maps.unwrap_or_default();
        let mut lines = maps.lines().filter_map(parse_line);
        lines.any(|l| l.start == request.shared.0 && l.shared && l.file.inode == self.inode)
    }
}
