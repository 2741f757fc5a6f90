//! All threads of processes as they are now: what each does, with which stack.
//!
//! Nobody is stopped. Of a thread that sleeps, `/proc` tells where it entered the kernel; its stack
//! is copied, and counts if the thread is still there afterwards. One that runs is sampled by the
//! clock, shortly after it is asked for.

use std::io::ErrorKind;
use std::time::{Duration, Instant, SystemTime};

use rustc_hash::FxHashSet;

use super::aggregate::Asleep;
use super::{Aggregator, Recording, ThreadState, Weight};
use crate::os;
use crate::process::procfs;
use crate::profile::{Builder, Column, Diagnostics};
use crate::sampler::permissions::{Wanted, explain};
use crate::sampler::{Error, Event, EventSpec, MAX_DUMP, Options, Rate, Session, Stacks, Target};

/// The clock that samples threads that run, in nanoseconds.
const PERIOD: u64 = 100_000;

/// How long threads are waited for that get no CPU, and how often it is looked whether they sleep.
const PATIENCE: Duration = Duration::from_millis(500);
const ROUND: Duration = Duration::from_millis(10);

/// Events that are open in one go: each thread needs one for each CPU.
const MAX_EVENTS: usize = 2048;

/// Instead of a stack.
const NOT_PERMITTED: &str = "[stack not known: not permitted]";

/// A thread and its process.
type Thread = (i32, i32);

/// What became of the threads.
#[derive(Default)]
struct Seen {
    /// They ended before they were looked at.
    gone: usize,
    /// Their stacks may not be read.
    refused: usize,
    found: usize,
}

/// The threads of the target, each once: sample type `threads/count`, with the label `state`.
///
/// Errors: one line that says what is in the way; nothing of any thread could be read.
pub fn snapshot(target: &Target) -> Result<Recording, Error> {
    let began = (Instant::now(), SystemTime::now());
    let threads = threads(target)?;
    // Where very many threads want a CPU, it would be prof's turn after all of them.
    let precedence = os::Precedence::take();
    let builder = Builder::new(&[("threads", "count")]);
    let stacks = Stacks::Auto { dump: MAX_DUMP };
    let weight = Weight { column: Column(0), fixed: Some(1) };
    let mut aggregator = Aggregator::new(builder, stacks, vec![weight]);
    aggregator.look();
    let (mut seen, mut notes) = (Seen::default(), Vec::new());
    let mut awake = sleepers(&mut aggregator, threads.clone(), &mut seen);
    let at_once = (MAX_EVENTS / procfs::online_cpus().len().max(1)).max(1);
    while !awake.is_empty() {
        let more = awake.split_off(awake.len().min(at_once));
        let (left, why) = match runners(&mut aggregator, &mut awake, &mut seen, &mut notes) {
            Ok(()) => (awake, "[stack not known: it waits for a CPU]"),
            Err(error) => {
                notes.push(error.to_string());
                (awake, NOT_PERMITTED)
            }
        };
        seen.found += left.len();
        for (pid, tid) in left {
            aggregator.add_nowhere(pid, tid, ThreadState::Runnable, why);
        }
        awake = more;
    }
    drop(precedence);
    if seen.found == 0 {
        return Err(nothing(&seen, &threads));
    }
    notes.extend(told(&seen));
    let diagnostics = diagnostics(&aggregator, seen.found, notes);
    let lasted = began.0.elapsed();
    let mut aggregated = aggregator.finish(threads.first().map(|t| t.0));
    let profile = &mut aggregated.profile;
    profile.period_type = profile.sample_types[0];
    profile.period = 1;
    super::set_time(profile, began.1, lasted);
    Ok(Recording { aggregated, diagnostics, exit: None, running: None, interrupted: false })
}

/// Why no thread at all could be looked at.
fn nothing(seen: &Seen, threads: &[Thread]) -> Error {
    if seen.refused == 0 {
        return Error::other("all threads ended before they could be looked at");
    }
    let denied = std::io::Error::from_raw_os_error(libc::EACCES);
    let pid = threads.first().map_or(0, |t| t.0);
    Error::other(explain(&denied, Wanted::OtherProcess(pid as u32)))
}

/// All threads of the target that live, each once.
fn threads(target: &Target) -> Result<Vec<Thread>, Error> {
    let mut known = FxHashSet::default();
    let mut threads = all_threads(target)?;
    threads.retain(|&thread| known.insert(thread));
    Ok(threads)
}

fn all_threads(target: &Target) -> Result<Vec<Thread>, Error> {
    let pids = match target {
        Target::Processes { pids, tree } => {
            let more = if *tree { procfs::descendants(pids) } else { Vec::new() };
            pids.iter().copied().chain(more).collect()
        }
        Target::Threads(_) => Vec::new(),
        // prof would only see itself looking.
        Target::Everything => {
            let own = std::process::id() as i32;
            procfs::processes().into_iter().filter(|&pid| pid != own).collect()
        }
        Target::Cgroup(_) | Target::Command(_) => {
            return Err(Error::usage(
                "threads are looked at now: give -p PID, -t TID, or -a for the whole machine",
            ));
        }
    };
    Ok(super::threads_of(target, &pids))
}

/// Takes in those of the threads that sleep; returns the others.
fn sleepers(aggregator: &mut Aggregator, threads: Vec<Thread>, seen: &mut Seen) -> Vec<Thread> {
    let mut awake = Vec::new();
    for (pid, tid) in threads {
        let Some(stat) = procfs::stat(tid).filter(|s| !matches!(s.state, 'Z' | 'X')) else {
            seen.gone += 1;
            continue;
        };
        let state = ThreadState::of_letter(stat.state);
        let asleep = match state {
            // Whether it may be sampled is found out here, too.
            ThreadState::Runnable => procfs::asleep_at(pid, tid).map(|_| Asleep::MovedOn),
            _ => aggregator.add_asleep(pid, tid, state),
        };
        match asleep {
            Ok(Asleep::Taken) => seen.found += 1,
            Ok(Asleep::MovedOn) => awake.push((pid, tid)),
            Err(e) if e.kind() == ErrorKind::PermissionDenied => {
                seen.refused += 1;
                aggregator.add_nowhere(pid, tid, state, NOT_PERMITTED);
            }
            Err(_) => seen.gone += 1,
        }
    }
    awake
}

/// Takes in those of the threads that are on a CPU soon, or sleep, and leaves the others.
///
/// Errors: none of them can be sampled.
fn runners(
    aggregator: &mut Aggregator,
    awake: &mut Vec<Thread>,
    seen: &mut Seen,
    notes: &mut Vec<String>,
) -> Result<(), Error> {
    let Some(mut session) = open(awake, seen)? else { return Ok(()) };
    if notes.is_empty() {
        notes.extend(session.notes().iter().cloned());
    }
    let began = Instant::now();
    while began.elapsed() < PATIENCE && !awake.is_empty() {
        let mut missing: FxHashSet<i32> = awake.iter().map(|t| t.1).collect();
        let round = Instant::now();
        while round.elapsed() < ROUND && !missing.is_empty() {
            session.wait(&[], 1);
            let settled = session.settled();
            session.drain(settled, |event| take(aggregator, &event, &mut missing));
        }
        seen.found += awake.len() - missing.len();
        awake.retain(|(_, tid)| missing.contains(tid));
        *awake = sleepers(aggregator, std::mem::take(awake), seen);
    }
    Ok(())
}

/// Samples those of the threads that still live; `None`: none does.
fn open(awake: &mut Vec<Thread>, seen: &mut Seen) -> Result<Option<Session>, Error> {
    loop {
        awake.retain(|&(_, tid)| {
            let lives = procfs::stat(tid).is_some_and(|s| !matches!(s.state, 'Z' | 'X'));
            seen.gone += usize::from(!lives);
            lives
        });
        if awake.is_empty() {
            return Ok(None);
        }
        let options = Options {
            target: Target::Threads(awake.iter().map(|t| t.1).collect()),
            cpus: None,
            events: vec![EventSpec::cpu_clock()],
            switches: false,
            rate: Rate::Period(PERIOD),
            stacks: Stacks::Auto { dump: MAX_DUMP },
            inherit: false,
            stdout_to_stderr: false,
        };
        match Session::open(&options, None) {
            Ok(session) => return Ok(Some(session)),
            // One has ended just now: without it, then.
            Err(_) if awake.iter().any(|&(_, tid)| procfs::stat(tid).is_none()) => {}
            Err(error) => return Err(error),
        }
    }
}

/// Takes in the first sample of each thread that is missing.
fn take(aggregator: &mut Aggregator, event: &Event<'_>, missing: &mut FxHashSet<i32>) {
    match event {
        Event::Sample { sample, .. } if missing.remove(&sample.tid) => {
            aggregator.add_running(sample);
        }
        Event::Sample { .. } => {}
        other => aggregator.event(other),
    }
}

fn told(seen: &Seen) -> Vec<String> {
    let mut told = Vec::new();
    let threads = |n: usize| if n == 1 { "1 thread".to_owned() } else { format!("{n} threads") };
    if seen.gone > 0 {
        told.push(format!("{} ended before it could be looked at", threads(seen.gone)));
    }
    if seen.refused > 0 {
        let how = if os::uid() == 0 { "" } else { "; run as root" };
        let who = threads(seen.refused);
        told.push(format!("the stack of {who} is not for this user to read{how}"));
    }
    told
}

fn diagnostics(aggregator: &Aggregator, found: usize, notes: Vec<String>) -> Diagnostics {
    let counts = &aggregator.counts;
    Diagnostics {
        samples: found as u64,
        distinct: aggregator.builder.distinct() as u64,
        user_stacks: counts.user_stacks,
        truncated: counts.truncated(),
        completed_later: counts.completed_later,
        no_unwind_info: aggregator.without_unwind_info(),
        notes,
        ..Diagnostics::default()
    }
}
