//! One snapshot of all threads: sleeping ones are read at once, running ones are sampled.

use std::io::{self, ErrorKind};
use std::time::{Duration, Instant};

use rustc_hash::FxHashSet;

use crate::sampler::stack_maker::StackMaker;
use crate::sampler::types::ProfileTypes;
use crate::sampler::{Event, EventSpec, Options, Rate, Session, StackMethod, Target, thread_state};
use messages::Message;
use profile::{Column, ThreadState};
use sys::record::{MAX_DUMP, Sample};
use sys::{Error, ThreadId, procfs};

/// Period of the clock that samples running threads, in nanoseconds.
const PERIOD: u64 = 100_000;

/// Bytes that are copied of a deep stack: the events are open for a short time only.
const DEEPEST: u32 = 512 << 10;

/// Maximum wait for threads that get no CPU, and the interval of checks whether they sleep.
const PATIENCE: Duration = Duration::from_millis(500);
const AGAIN: Duration = Duration::from_millis(10);

/// Maximum number of events that are opened together: each thread needs one for each CPU.
const MAX_EVENTS: usize = 2048;

/// The frame in place of a stack.
const NOT_PERMITTED: &str = "[stack not known: not permitted]";
const NO_CPU: &str = "[stack not known: it waits for a CPU]";

/// Numbers of threads by result.
#[derive(Clone, Copy, Debug, Default)]
pub struct ThreadsSeen {
    /// They exited before they were read.
    pub gone: usize,
    /// Their stacks may not be read.
    pub refused: usize,
    /// They count, with or without a stack.
    pub found: usize,
}

/// The values of the threads of a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ThreadCounting {
    /// The first column counts threads, and nothing else is recorded: the snapshot applies records
    /// about processes.
    Alone,
    /// Part of a recording, in which this column counts threads.
    Recorded(Column),
}

impl ThreadCounting {
    /// The column that counts threads.
    fn column(self) -> Column {
        match self {
            ThreadCounting::Alone => Column::default(),
            ThreadCounting::Recorded(column) => column,
        }
    }

    /// Samples of each thread: if threads are all that is counted, their column is the first.
    fn samples(self) -> u32 {
        u32::from(self.column() != Column::SAMPLES)
    }

    /// The values of one thread.
    fn values(self) -> [(Column, i64); 1] {
        [(self.column(), 1)]
    }
}

/// A snapshot of all threads in progress.
pub struct Round {
    /// Results so far.
    pub seen: ThreadsSeen,
    /// Notes for the user.
    pub notes: Vec<Message>,
    counting: ThreadCounting,
    /// Threads that do not sleep and are not sampled yet.
    later: Vec<ThreadId>,
    sampled: Option<SampledThreads>,
}

/// Threads that are sampled when they run.
struct SampledThreads {
    threads: Vec<ThreadId>,
    session: Session,
    missing: FxHashSet<i32>,
    began: Instant,
    last_check: Instant,
}

impl Round {
    /// Reads all sleeping threads.
    pub fn begin(
        maker: &mut StackMaker,
        threads: Vec<ThreadId>,
        counting: ThreadCounting,
    ) -> Round {
        let mut seen = ThreadsSeen::default();
        let later = sleepers(maker, threads, &mut seen, counting);
        Round { seen, notes: Vec::new(), counting, later, sampled: None }
    }

    /// Reads threads that have run, or do within `timeout_ms` milliseconds. True if the snapshot is
    /// complete.
    pub fn step(&mut self, maker: &mut StackMaker, timeout_ms: i32) -> bool {
        let Some(mut sampled) = self.sampled.take() else { return !self.open(maker) };
        sampled.session.wait(&[], None, timeout_ms);
        let settled = sampled.session.settled();
        let counting = self.counting;
        let missing = &mut sampled.missing;
        sampled.session.drain(settled, |event| match event {
            Event::Sample { sample, .. } if missing.remove(&sample.tid) => {
                add_running(maker, &sample, counting);
            }
            Event::Sample { .. } => {}
            Event::Other(record) if counting == ThreadCounting::Alone => maker.record(&record),
            Event::Other(_) => {}
        });
        let over = sampled.began.elapsed() > PATIENCE;
        if over || sampled.missing.is_empty() || sampled.last_check.elapsed() > AGAIN {
            let all = sampled.threads.len();
            sampled.threads.retain(|thread| sampled.missing.contains(&thread.tid));
            self.seen.found += all - sampled.threads.len();
            sampled.threads = sleepers(maker, sampled.threads, &mut self.seen, counting);
            sampled.missing = sampled.threads.iter().map(|thread| thread.tid).collect();
            sampled.last_check = Instant::now();
            if over {
                self.give_up(maker, std::mem::take(&mut sampled.threads), NO_CPU);
            }
        }
        self.sampled = Some(sampled).filter(|s| !s.threads.is_empty());
        self.sampled.is_none() && self.later.is_empty()
    }

    /// Samples the next threads; false if there are none.
    fn open(&mut self, maker: &mut StackMaker) -> bool {
        let at_once = (MAX_EVENTS / procfs::online_cpus().len().max(1)).max(1);
        while !self.later.is_empty() {
            let more = self.later.split_off(self.later.len().min(at_once));
            let mut threads = std::mem::replace(&mut self.later, more);
            match open(&mut threads, &mut self.seen) {
                Ok(Some(session)) => {
                    if self.notes.is_empty() {
                        self.notes.extend_from_slice(session.notes());
                    }
                    let (missing, began) =
                        (threads.iter().map(|thread| thread.tid).collect(), Instant::now());
                    let last_check = began;
                    self.sampled =
                        Some(SampledThreads { threads, session, missing, began, last_check });
                    return true;
                }
                Ok(None) => {}
                Err(error) => {
                    self.notes.push(Message::ThreadsNotSampled { why: error.to_string() });
                    self.give_up(maker, threads, NOT_PERMITTED);
                }
            }
        }
        false
    }

    /// Counts threads without their stacks.
    fn give_up(&mut self, maker: &mut StackMaker, threads: Vec<ThreadId>, why: &str) {
        self.seen.found += threads.len();
        for thread in threads {
            add_without_stack(maker, thread, ThreadState::Runnable, why, self.counting);
        }
    }

    /// The recording ends: threads that have not run are counted without their stacks.
    pub fn end(&mut self, maker: &mut StackMaker) {
        if let Some(mut sampled) = self.sampled.take() {
            self.seen.found += sampled.threads.len() - sampled.missing.len();
            sampled.threads.retain(|thread| sampled.missing.contains(&thread.tid));
            self.give_up(maker, sampled.threads, NO_CPU);
        }
        let later = std::mem::take(&mut self.later);
        self.give_up(maker, later, NO_CPU);
    }
}

/// The result of reading a thread that appeared to sleep.
enum SleeperRead {
    /// Its stack was read.
    Taken,
    /// It runs now, or did in between.
    MovedOn,
}

/// Adds a sampled running thread.
fn add_running(maker: &mut StackMaker, sample: &Sample<'_>, counting: ThreadCounting) {
    maker.make_stack(sample);
    let labels = maker.labels_in_state(sample.thread(), Some(ThreadState::Running));
    maker.add_last(labels, counting.samples(), &counting.values());
}

/// Adds a sleeping thread, without disturbing it.
///
/// # Errors
///
/// It has exited, or this user may not read its stack.
fn add_asleep(
    maker: &mut StackMaker,
    thread: ThreadId,
    state: ThreadState,
    counting: ThreadCounting,
) -> io::Result<SleeperRead> {
    if !maker.make_stack_of_sleeper(thread)? {
        return Ok(SleeperRead::MovedOn);
    }
    let labels = maker.labels_in_state(thread, Some(state));
    maker.add_last(labels, counting.samples(), &counting.values());
    Ok(SleeperRead::Taken)
}

/// Adds a thread without a stack, for a reason in brackets.
fn add_without_stack(
    maker: &mut StackMaker,
    thread: ThreadId,
    state: ThreadState,
    why: &str,
    counting: ThreadCounting,
) {
    let labels = maker.labels_in_state(thread, Some(state));
    maker.add_without_stack(why, labels, counting.samples(), &counting.values());
}

/// Reads those of the threads that sleep; returns the others.
fn sleepers(
    maker: &mut StackMaker,
    threads: Vec<ThreadId>,
    seen: &mut ThreadsSeen,
    counting: ThreadCounting,
) -> Vec<ThreadId> {
    let mut awake = Vec::new();
    for thread in threads {
        let Some(stat) = procfs::stat(thread.tid).filter(|s| !matches!(s.state, 'Z' | 'X')) else {
            seen.gone += 1;
            continue;
        };
        let state = thread_state::from_letter(stat.state);
        let asleep = match state {
            // The permission to sample it is checked here, too.
            ThreadState::Runnable => procfs::asleep_at(thread).map(|_| SleeperRead::MovedOn),
            _ => add_asleep(maker, thread, state, counting),
        };
        match asleep {
            Ok(SleeperRead::Taken) => seen.found += 1,
            Ok(SleeperRead::MovedOn) => awake.push(thread),
            Err(e) if e.kind() == ErrorKind::PermissionDenied => {
                seen.refused += 1;
                add_without_stack(maker, thread, state, NOT_PERMITTED, counting);
            }
            Err(_) => seen.gone += 1,
        }
    }
    awake
}

/// Samples those of the threads that still exist; `None`: none does.
fn open(awake: &mut Vec<ThreadId>, seen: &mut ThreadsSeen) -> Result<Option<Session>, Error> {
    loop {
        awake.retain(|thread| {
            let lives = procfs::stat(thread.tid).is_some_and(|s| !matches!(s.state, 'Z' | 'X'));
            seen.gone += usize::from(!lives);
            lives
        });
        if awake.is_empty() {
            return Ok(None);
        }
        let target = Target::Threads(awake.iter().map(|thread| thread.tid).collect());
        let stacks = StackMethod::Auto { dump: MAX_DUMP };
        let options = Options {
            events: vec![EventSpec::cpu_clock()],
            deepest: Some(DEEPEST),
            inherit: false,
            ..Options::new(target, Rate::Period(PERIOD), stacks)
        };
        match Session::open(&options, &mut ProfileTypes::default(), None) {
            Ok(mut session) => {
                session.begin();
                return Ok(Some(session));
            }
            // One has just exited: continue without it.
            Err(_) if awake.iter().any(|thread| procfs::stat(thread.tid).is_none()) => {}
            Err(error) => return Err(error),
        }
    }
}
