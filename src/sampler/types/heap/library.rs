//! The library in a program, during a recording.

use std::ffi::OsString;
use std::path::PathBuf;

use super::HeapSettings;
use super::exits::Watcher;
use super::injected::Injected;
use super::model::HeapCounts;
use super::stacks::HeapStacks;
use crate::sampler::Target;
use crate::sampler::stack_maker::StackMaker;
use heap::{AllocationRing, HeapStats, Library, why_not_preloaded};
use messages::Message;
use sys::Error;

/// Milliseconds between two reads of the shared memory: initial, minimum and maximum.
const FIRST_MS: i64 = 2;
const LEAST_MS: i64 = 2;
const MOST_MS: i64 = 50;

/// Targeted fill level of the shared memory at each read.
const FULL_ENOUGH: f64 = 0.125;

/// The method that brought the library into the program.
enum LibraryWay {
    Preloaded(Box<Library>),
    Injected(Box<Injected>),
}

impl LibraryWay {
    fn ring(&self) -> &AllocationRing {
        match self {
            LibraryWay::Preloaded(library) => &library.ring,
            LibraryWay::Injected(injected) => &injected.ring,
        }
    }

    fn ring_mut(&mut self) -> &mut AllocationRing {
        match self {
            LibraryWay::Preloaded(library) => &mut library.ring,
            LibraryWay::Injected(injected) => &mut injected.ring,
        }
    }
}

/// The library in a program, and its output.
pub struct InProgram {
    /// `None` after removal.
    way: Option<LibraryWay>,
    /// Checks processes that exit, if their leaks are recorded.
    exits: Option<Watcher>,
    interval: u64,
    /// Milliseconds between the last two reads of the shared memory.
    tick_ms: i64,
}

impl InProgram {
    fn new(way: LibraryWay, interval: u64) -> InProgram {
        InProgram { way: Some(way), exits: None, interval, tick_ms: FIRST_MS }
    }

    fn ring(&self) -> Option<&AllocationRing> {
        self.way.as_ref().map(LibraryWay::ring)
    }

    /// Files to remove if prof aborts.
    pub fn files(&self) -> Vec<PathBuf> {
        match &self.way {
            Some(LibraryWay::Preloaded(library)) => library.files().collect(),
            _ => Vec::new(),
        }
    }

    /// Environment variables for the command.
    pub fn environment(&self) -> Vec<(OsString, OsString)> {
        match &self.way {
            Some(LibraryWay::Preloaded(library)) => library.environment(),
            _ => Vec::new(),
        }
    }

    /// Starts sampling.
    ///
    /// # Errors
    ///
    /// One line that states the obstacle; the process continues unchanged.
    pub fn begin(&mut self, settings: HeapSettings) -> Result<(), Error> {
        match &mut self.way {
            Some(LibraryWay::Preloaded(library)) => {
                library.started();
                if settings.leaks {
                    let start = |file: &_| Watcher::start(file, settings.mappings);
                    let watcher = library.ring.watch_exits(start).map_err(|e| {
                        Error::failed(format!("leaks cannot be checked on exit: {e}"))
                    })?;
                    self.exits = Some(watcher);
                }
                library.ring.set_active(true);
                Ok(())
            }
            Some(LibraryWay::Injected(injected)) => injected.begin(),
            None => Ok(()),
        }
    }

    /// Starts or stops sampling allocations.
    pub fn set_active(&self, active: bool) {
        self.ring().into_iter().for_each(|ring| ring.set_active(active));
    }

    /// Removes the library from a process into which it was injected. Returns notes for the user.
    pub fn take_out(&mut self) -> Vec<Message> {
        self.exits.iter_mut().for_each(Watcher::end);
        match &mut self.way {
            Some(LibraryWay::Injected(injected)) => injected.end(),
            _ => Vec::new(),
        }
    }

    /// Hooks the binaries that the process has loaded since.
    pub fn poll(&mut self, maker: &mut StackMaker) {
        if let Some(LibraryWay::Injected(injected)) = &mut self.way {
            injected.hook_new_binaries(maker);
        }
    }

    /// Adds the records from before `until`; when it is `over`, does not wait for incomplete ones.
    pub fn take_in(
        &mut self,
        stacks: &mut HeapStacks,
        maker: &mut StackMaker,
        until: u64,
        over: bool,
    ) {
        self.exits.iter_mut().for_each(|exits| exits.take(&mut stacks.model, until));
        if let Some(way) = &mut self.way {
            let ring = way.ring_mut();
            stacks.writers.share(ring.shared());
            ring.take(until, over, |record| stacks.take_in(maker, &record));
            ring.forget(stacks.model.take_ended());
        }
    }

    /// Number of lost sampled allocations and frees.
    pub fn lost(&self) -> u64 {
        let stats = self.ring().map(AllocationRing::stats);
        stats.map_or(0, |stats| stats.lost.saturating_add(stats.lost_frees))
    }

    /// Milliseconds until the next read, depending on the rate at which the shared memory fills; to
    /// be called before each read.
    pub fn idle_ms(&mut self) -> i64 {
        let Some(filled) = self.ring().map(AllocationRing::filled) else { return i64::MAX };
        let next = self.tick_ms as f64 * FULL_ENOUGH / filled.max(f64::MIN_POSITIVE);
        self.tick_ms = (next as i64).clamp(LEAST_MS, (2 * self.tick_ms).min(MOST_MS));
        self.tick_ms
    }

    /// Removes the library; returns notes for the user. `programs`: number of started programs;
    /// `outlived`: some of them still run after the command has ended, which was reported.
    pub fn end(&mut self, counts: &HeapCounts, programs: u64, outlived: bool) -> Vec<Message> {
        let Some(library) = self.way.take() else { return Vec::new() };
        let stats = library.ring().stats();
        let mut notes = Vec::new();
        let damaged = library.ring().damaged();
        library.ring().give_back();
        let preloaded = matches!(library, LibraryWay::Preloaded(_));
        let stays = match library {
            LibraryWay::Preloaded(library) => library.remove(),
            LibraryWay::Injected(_) => None,
        };
        let without = if preloaded { programs.saturating_sub(stats.loaded) } else { 0 };
        if counts.sampled == 0 {
            let why = Box::new(why_none(&stats, without, outlived, self.interval));
            notes.push(Message::NothingSampled { why });
        } else if without > 0 {
            notes.push(Message::ProgramsWithout { without, programs });
        }
        notes.extend(damaged.map(|how| Message::MemoryDamaged { how: how.to_owned() }));
        notes.extend(counted(&stats, counts, self.interval));
        let paths = stays.map(|path| path.display().to_string());
        notes.extend(paths.map(|path| Message::LibraryStays { path }));
        notes
    }
}

/// The reason why nothing was sampled.
fn why_none(stats: &HeapStats, without: u64, outlived: bool, interval: u64) -> Message {
    match stats.loaded {
        0 => Message::NotPreloaded,
        _ if outlived => Message::CommandEnded,
        _ if without > 0 => Message::LibraryNotLoaded { programs: without },
        _ => Message::BelowInterval { interval },
    }
}

/// Notes for the user about the counts.
fn counted(stats: &HeapStats, counts: &HeapCounts, interval: u64) -> Vec<Message> {
    let HeapCounts { sampled, paced, longest, unknown, untracked, beyond, late_frees } = *counts;
    let frees = stats.lost_frees.saturating_add(late_frees);
    let lost = stats.lost;
    let bytes = stats.lost_bytes;
    let notes = [
        (paced, Message::Paced { paced, sampled, longest, every: interval == 1 }),
        (lost, Message::AllocationsLost { lost, sampled, bytes }),
        (frees, Message::FreesLost { lost: frees, sampled }),
        (untracked, Message::Untracked { untracked, sampled }),
        (unknown, Message::UnknownProcesses { samples: unknown }),
        (beyond, Message::WithoutStack { allocations: beyond }),
    ];
    notes.into_iter().filter(|(count, _)| *count > 0).map(|(_, note)| note).collect()
}

/// Prepares the library for a COMMAND, or injects it into a process.
///
/// # Errors
///
/// One line that states the obstacle.
pub fn put(settings: HeapSettings, target: &Target) -> Result<InProgram, Error> {
    let interval = settings.interval;
    let words = match target {
        Target::Command(words) => words,
        Target::Processes { pids, .. } => {
            return match pids.as_slice() {
                [pid] => {
                    let injected = Box::new(Injected::load(*pid, settings)?);
                    Ok(InProgram::new(LibraryWay::Injected(injected), interval))
                }
                _ => Err(Error::usage("--inject is for one process at a time: -p PID")),
            };
        }
        _ => {
            return Err(Error::usage(
                "only allocations of a command or a process can be sampled: record -T heap -- \
                 COMMAND, or record -T heap --inject -p PID; -e page-faults shows where the \
                 memory of other targets grows",
            ));
        }
    };
    if let Some(why) = words.first().and_then(|name| why_not_preloaded(name)) {
        return Err(Error::failed(format!(
            "allocations cannot be sampled: {why}; -e page-faults shows where memory grows"
        )));
    }
    let library = Library::unpack(interval, settings.mappings)?;
    Ok(InProgram::new(LibraryWay::Preloaded(Box::new(library)), interval))
}
