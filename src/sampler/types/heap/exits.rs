//! Processes that exit while their leaks are recorded: a thread of prof's looks at each as soon as it
//! asks, since it waits.

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
use heap::{Asked, Exits};
use sys::maps::parse_line;
use sys::os;
use sys::procfs;

/// How long a process waits for prof to see it, at most.
const LOOK: Duration = Duration::from_millis(1);

/// What is left of the time that a process waits, for it to be told.
const MARGIN: Duration = Duration::from_millis(50);

/// What was seen of a process: whether pointers lead to its blocks, by their names; or why that is
/// not known.
pub type ExitFindings = Result<FxHashMap<u64, Verdict>, String>;

/// The thread that looks at processes that exit.
pub struct Watcher {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    told: Receiver<SeenExit>,
    looked: VecDeque<SeenExit>,
}

/// When (`CLOCK_MONOTONIC`, nanoseconds) what was seen of which process.
type SeenExit = (u64, i32, ExitFindings);

impl Watcher {
    /// Begins to wait for processes that exit. `mappings` count as allocations, too.
    ///
    /// # Errors
    ///
    /// There is no memory, or no thread.
    pub fn start(shared: &File, mappings: bool) -> io::Result<Watcher> {
        let (exits, inode) = (Exits::of(shared)?, shared.metadata()?.ino());
        let stop = Arc::new(AtomicBool::new(false));
        let (tell, told) = channel();
        let until = stop.clone();
        let thread =
            std::thread::Builder::new().name("prof-exits".to_owned()).spawn(move || {
                let look = ExitReader { exits, inode, mappings, tell };
                while !until.load(Relaxed) {
                    match look.exits.next() {
                        Some(asked) => look.at(asked),
                        None => sleep(LOOK),
                    }
                }
            })?;
        Ok(Watcher { stop, thread: Some(thread), told, looked: VecDeque::new() })
    }

    /// Hands over what was seen before `until`.
    pub fn take(&mut self, model: &mut HeapModel, until: u64) {
        self.looked.extend(self.told.try_iter());
        let before = self.looked.partition_point(|seen| seen.0 < until);
        for (_, pid, looked) in self.looked.drain(..before) {
            model.exits(pid, looked);
        }
    }

    /// Nobody is looked at any more.
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
    /// Of the memory that is shared with the processes.
    inode: u64,
    mappings: bool,
    tell: Sender<SeenExit>,
}

impl ExitReader {
    fn at(&self, mut asked: Asked) {
        let now = os::monotonic_nanos();
        let waited = Duration::from_nanos(now.saturating_sub(asked.time));
        let left = Duration::from_nanos(PATIENCE).saturating_sub(waited + MARGIN);
        let until = Instant::now() + left;
        // It may be any process that says so.
        let found = self.find(&asked);
        let is_it = found.is_some();
        (asked.pid, asked.tid) = found.unwrap_or((asked.pid, asked.tid));
        let confined = !is_it || asked.tid == 0 || !is_unconfined(asked.pid, asked.tid);
        if !self.exits.look(&mut asked, confined) {
            return;
        }
        // What holds unless it is done in time: the process does not wait longer.
        self.tell(now, asked.pid, Err(Failure::TooLong));
        let looked = match is_it {
            true => leaks::look(&asked, self.mappings, until),
            false => Err(Failure::System(io::Error::from_raw_os_error(libc::ESRCH))),
        };
        // If it has gone on meanwhile, its memory was not what it seemed.
        let looked = match looked {
            Ok(_) if !self.exits.waits(&asked) => Err(Failure::TooLong),
            looked => looked,
        };
        self.tell(now, asked.pid, looked);
        self.exits.let_go(&asked);
    }

    fn tell(&self, time: u64, pid: i32, looked: Result<Vec<(u64, Verdict)>, Failure>) {
        let looked = looked.map(|verdicts| verdicts.into_iter().collect());
        // Where nobody hears it, the recording has ended.
        self.tell.send((time, pid, looked.map_err(|e| e.to_string()))).ok();
    }

    /// The process and the thread as prof sees them: the process has the shared memory where it says,
    /// and has its number there or in a namespace of its own.
    fn find(&self, asked: &Asked) -> Option<(i32, i32)> {
        if self.has_mapped(asked, asked.pid) {
            return Some((asked.pid, asked.tid));
        }
        let mut others = procfs::processes().into_iter();
        let pid = others.find(|&pid| {
            procfs::inner_pid(pid) == Some(asked.pid) && self.has_mapped(asked, pid)
        })?;
        Some((pid, procfs::outer_tid(pid, asked.tid).unwrap_or(0)))
    }

    fn has_mapped(&self, asked: &Asked, pid: i32) -> bool {
        let maps = std::fs::read_to_string(format!("/proc/{pid}/maps"));
        let maps = maps.unwrap_or_default();
        let mut lines = maps.lines().filter_map(parse_line);
        lines.any(|l| l.start == asked.shared.0 && l.shared && l.file.inode == self.inode)
    }
}
