//! A snapshot of all threads of processes: their states and stacks.
//!
//! No thread is stopped. For a sleeping thread, `/proc` has the kernel functions and registers; its
//! stack is copied, and counts if the thread still sleeps afterwards. A running thread is sampled
//! by the clock shortly afterwards.

use std::time::{Instant, SystemTime};

use rustc_hash::FxHashSet;

use super::THREADS;
use super::round::{Round, ThreadCounting, ThreadsSeen};
use crate::sampler::interpreters::Interpreters;
use crate::sampler::permissions::{Wanted, refused};
use crate::sampler::recording::{Recording, set_time};
use crate::sampler::stack_maker::{StackMaker, truncated};
use crate::sampler::{Notes, StackMethod, Target};
use messages::Message;
use profile::{Builder, Diagnostics};
use sys::record::MAX_DUMP;
use sys::{Error, ThreadId, os, procfs};

/// The threads of the target, each once: sample type `threads/count`, with the label `state`.
///
/// # Errors
///
/// One line that states the obstacle; no thread could be read.
pub fn snapshot(target: &Target) -> Result<Recording, Error> {
    let began = (Instant::now(), SystemTime::now());
    let threads = threads(target)?;
    // If very many threads wait for a CPU, prof would run after all of them.
    let precedence = os::Precedence::take();
    let builder = Builder::new(&[(THREADS.kind, THREADS.unit)]);
    let stacks = StackMethod::Auto { dump: MAX_DUMP };
    let mut maker = StackMaker::new(builder, stacks);
    maker.read_jit_files();
    maker.interpreters = Interpreters::of_sleepers();
    let mut round = Round::begin(&mut maker, threads.clone(), ThreadCounting::Alone);
    while !round.step(&mut maker, 1) {}
    let Round { seen, mut notes, .. } = round;
    drop(precedence);
    if seen.found == 0 {
        return Err(none_read(&seen, &threads));
    }
    notes.extend(note_missing(&seen));
    let diagnostics = diagnostics(&maker, seen.found);
    let notes = Notes { at_start: Vec::new(), at_end: notes };
    let lasted = began.0.elapsed();
    let mut aggregated = maker.into_profile(threads.first().map(|thread| thread.pid));
    let profile = &mut aggregated.profile;
    profile.period_type = profile.sample_types[0];
    profile.period = 1;
    set_time(profile, began.1, lasted);
    Ok(Recording { aggregated, diagnostics, notes, exit: None, running: None })
}

/// The reason why no thread could be read.
fn none_read(seen: &ThreadsSeen, threads: &[ThreadId]) -> Error {
    if seen.refused == 0 {
        return Error::failed("all threads ended before they could be read");
    }
    let denied = std::io::Error::from_raw_os_error(libc::EACCES);
    let pid = threads.first().map_or(0, |thread| thread.pid);
    refused(&denied, Wanted::OtherProcess(pid as u32))
}

/// All live threads of the target, each once.
fn threads(target: &Target) -> Result<Vec<ThreadId>, Error> {
    let mut known = FxHashSet::default();
    let mut threads = all_threads(target)?;
    threads.retain(|&thread| known.insert(thread));
    Ok(threads)
}

fn all_threads(target: &Target) -> Result<Vec<ThreadId>, Error> {
    let pids = match target {
        Target::Processes { pids, tree } => {
            let more = if *tree { procfs::descendants(pids) } else { Vec::new() };
            pids.iter().copied().chain(more).collect()
        }
        Target::Threads(_) => Vec::new(),
        // prof would only observe its own snapshot.
        Target::Everything => {
            let own = std::process::id() as i32;
            procfs::processes().into_iter().filter(|&pid| pid != own).collect()
        }
        Target::Cgroup(_) | Target::Command(_) => {
            return Err(Error::usage(
                "a snapshot needs a target: give -p PID, -t TID, or -a for the whole machine",
            ));
        }
    };
    Ok(target.threads(&pids))
}

/// Notes about threads that are missing.
pub fn note_missing(seen: &ThreadsSeen) -> Vec<Message> {
    let [gone, threads] = [seen.gone, seen.refused].map(|n| n as u64);
    let ended = (gone > 0).then_some(Message::ThreadsEnded { threads: gone });
    let root_may = os::uid() != 0;
    let refused = (threads > 0).then_some(Message::ThreadsRefused { threads, root_may });
    ended.into_iter().chain(refused).collect()
}

fn diagnostics(maker: &StackMaker, found: usize) -> Diagnostics {
    let counts = &maker.counts;
    Diagnostics {
        samples: found as u64,
        distinct: maker.builder.distinct() as u64,
        user_stacks: counts.user_stacks,
        truncated: truncated(&counts.ends),
        deep: counts.deep,
        no_unwind_info: maker.without_unwind_info(),
        ..Diagnostics::default()
    }
}
