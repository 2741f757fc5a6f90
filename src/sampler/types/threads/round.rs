//! One look at all threads: those that sleep at once, those that run as soon as they are sampled.

use std::io::{self, ErrorKind};
use std::time::{Duration, Instant};

use rustc_hash::FxHashSet;

use crate::sampler::stack_maker::StackMaker;
use crate::sampler::types::ProfileTypes;
use crate::sampler::{Event, EventSpec, Options, Rate, Session, StackMethod, Target, thread_state};
use profile::{Column, ThreadState};
use sys::record::{MAX_DUMP, Sample};
use sys::{Error, ThreadId, procfs};

/// The clock that samples threads that run, in nanoseconds.
const PERIOD: u64 = 100_000;

/// Bytes that are copied of a deep stack: it is sampled for a moment only.
const DEEPEST: u32 = 512 << 10;

/// How long threads are waited for that get no CPU, and how often it is looked whether they sleep.
const PATIENCE: Duration = Duration::from_millis(500);
const AGAIN: Duration = Duration::from_millis(10);

/// Events that are open in one go: each thread needs one for each CPU.
const MAX_EVENTS: usize = 2048;

/// Instead of a stack.
const NOT_PERMITTED: &str = "[stack not known: not permitted]";
const NO_CPU: &str = "[stack not known: it waits for a CPU]";

/// What became of the threads.
#[derive(Clone, Copy, Debug, Default)]
pub struct ThreadsSeen {
    /// They ended before they were looked at.
    pub gone: usize,
    /// Their stacks may not be read.
    pub refused: usize,
    /// They count, with a stack or without.
    pub found: usize,
}

/// A look at all threads that is under way.
pub struct Round {
    /// What became of those that are done.
    pub seen: ThreadsSeen,
    /// Sentences for the user.
    pub notes: Vec<String>,
    /// Counted there, besides the first column; what else the events say is known then.
    column: Option<Column>,
    /// They do not sleep, and nobody waits for them yet.
    later: Vec<ThreadId>,
    sampled: Option<SampledThreads>,
}

/// Threads that are sampled as soon as they run.
struct SampledThreads {
    threads: Vec<ThreadId>,
    session: Session,
    missing: FxHashSet<i32>,
    began: Instant,
    looked: Instant,
}

impl Round {
    /// Takes in all threads that sleep.
    pub fn begin(maker: &mut StackMaker, threads: Vec<ThreadId>, column: Option<Column>) -> Round {
        let mut seen = ThreadsSeen::default();
        let later = sleepers(maker, threads, &mut seen, column);
        Round { seen, notes: Vec::new(), column, later, sampled: None }
    }

    /// Takes in threads that have run meanwhile, or within so many milliseconds. True: nothing is
    /// left to do.
    pub fn step(&mut self, maker: &mut StackMaker, timeout_ms: i32) -> bool {
        let Some(mut sampled) = self.sampled.take() else { return !self.open(maker) };
        sampled.session.wait(&[], timeout_ms);
        let (settled, column) = (sampled.session.settled(), self.column);
        let missing = &mut sampled.missing;
        sampled.session.drain(settled, |event| match event {
            Event::Sample { sample, .. } if missing.remove(&sample.tid) => {
                add_running(maker, &sample, column);
            }
            Event::Sample { .. } => {}
            Event::Other(record) if column.is_none() => maker.record(&record),
            Event::Other(_) => {}
        });
        let over = sampled.began.elapsed() > PATIENCE;
        if over || sampled.missing.is_empty() || sampled.looked.elapsed() > AGAIN {
            let all = sampled.threads.len();
            sampled.threads.retain(|thread| sampled.missing.contains(&thread.tid));
            self.seen.found += all - sampled.threads.len();
            sampled.threads = sleepers(maker, sampled.threads, &mut self.seen, column);
            sampled.missing = sampled.threads.iter().map(|thread| thread.tid).collect();
            sampled.looked = Instant::now();
            if over {
                self.give_up(maker, std::mem::take(&mut sampled.threads), NO_CPU);
            }
        }
        self.sampled = Some(sampled).filter(|s| !s.threads.is_empty());
        self.sampled.is_none() && self.later.is_empty()
    }

    /// Samples the next ones; false: there are none.
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
                    let looked = began;
                    self.sampled =
                        Some(SampledThreads { threads, session, missing, began, looked });
                    return true;
                }
                Ok(None) => {}
                Err(error) => {
                    self.notes.push(error.to_string());
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
            add_without_stack(maker, thread, ThreadState::Runnable, why, self.column);
        }
    }

    /// The recording ends: those that have not run by now are counted without their stacks.
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

/// What came of looking at a thread that seemed to sleep.
enum SleeperRead {
    /// Its stack was read.
    Taken,
    /// It runs by now, or did in between.
    MovedOn,
}

/// Values of a thread: once in the first column, and in `column`.
fn values(column: Option<Column>) -> Option<(Column, i64)> {
    column.map(|column| (column, 1))
}

/// Adds a thread that runs and was sampled.
fn add_running(maker: &mut StackMaker, sample: &Sample<'_>, column: Option<Column>) {
    maker.make_stack(sample);
    let labels = maker.labels_in_state(sample.thread(), Some(ThreadState::Running));
    maker.add_last(labels, values(column).as_slice());
}

/// Adds a thread that sleeps, without disturbing it.
///
/// # Errors
///
/// It has ended, or this user may not read its stack.
fn add_asleep(
    maker: &mut StackMaker,
    thread: ThreadId,
    state: ThreadState,
    column: Option<Column>,
) -> io::Result<SleeperRead> {
    if !maker.make_stack_of_sleeper(thread)? {
        return Ok(SleeperRead::MovedOn);
    }
    let labels = maker.labels_in_state(thread, Some(state));
    maker.add_last(labels, values(column).as_slice());
    Ok(SleeperRead::Taken)
}

/// Adds a thread whose stack is not known, for a reason in brackets.
fn add_without_stack(
    maker: &mut StackMaker,
    thread: ThreadId,
    state: ThreadState,
    why: &str,
    column: Option<Column>,
) {
    let labels = maker.labels_in_state(thread, Some(state));
    maker.add_without_stack(why, labels, values(column).as_slice());
}

/// Takes in those of the threads that sleep; returns the others.
fn sleepers(
    maker: &mut StackMaker,
    threads: Vec<ThreadId>,
    seen: &mut ThreadsSeen,
    column: Option<Column>,
) -> Vec<ThreadId> {
    let mut awake = Vec::new();
    for thread in threads {
        let Some(stat) = procfs::stat(thread.tid).filter(|s| !matches!(s.state, 'Z' | 'X')) else {
            seen.gone += 1;
            continue;
        };
        let state = thread_state::of_letter(stat.state);
        let asleep = match state {
            // Whether it may be sampled is found out here, too.
            ThreadState::Runnable => {
                procfs::asleep_at(thread.pid, thread.tid).map(|_| SleeperRead::MovedOn)
            }
            _ => add_asleep(maker, thread, state, column),
        };
        match asleep {
            Ok(SleeperRead::Taken) => seen.found += 1,
            Ok(SleeperRead::MovedOn) => awake.push(thread),
            Err(e) if e.kind() == ErrorKind::PermissionDenied => {
                seen.refused += 1;
                add_without_stack(maker, thread, state, NOT_PERMITTED, column);
            }
            Err(_) => seen.gone += 1,
        }
    }
    awake
}

/// Samples those of the threads that still live; `None`: none does.
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
            // One has ended just now: without it, then.
            Err(_) if awake.iter().any(|thread| procfs::stat(thread.tid).is_none()) => {}
            Err(error) => return Err(error),
        }
    }
}
