//! The library in a program, over the length of a recording: preloaded into a COMMAND, or put into
//! a process.

use std::ffi::OsString;

use super::exits::Watcher;
use super::heap::HeapCounts;
use super::injected::Injected;
use super::{Aggregator, HeapSpec, Interrupts, Types};
use crate::sampler::{EventSpec, Options, Target};
use heap::{HeapStats, Library, Ring, why_not_preloaded};
use sys::Error;

/// Milliseconds between two looks at the shared memory: the first, the least and the most.
const FIRST_MS: i64 = 2;
const LEAST_MS: i64 = 2;
const MOST_MS: i64 = 50;

/// How full it should be at most when it is looked at.
const FULL_ENOUGH: f64 = 0.125;

/// How the library came into the program.
enum Way {
    Preloaded(Box<Library>),
    Injected(Box<Injected>),
}

impl Way {
    fn ring(&self) -> &Ring {
        match self {
            Way::Preloaded(library) => &library.ring,
            Way::Injected(injected) => &injected.ring,
        }
    }

    fn ring_mut(&mut self) -> &mut Ring {
        match self {
            Way::Preloaded(library) => &mut library.ring,
            Way::Injected(injected) => &mut injected.ring,
        }
    }
}

/// The library in a program, if its heap is recorded.
pub struct Preloaded {
    library: Option<Way>,
    /// Looks at processes that exit.
    exits: Option<Watcher>,
    interval: u64,
    tick_ms: i64,
}

impl Preloaded {
    /// Makes ready what the recording of the heap needs; `types` loses it if that cannot be, but
    /// other things can be recorded.
    ///
    /// Errors: one line, if nothing else is recorded.
    pub fn prepare(
        options: &mut Options,
        types: &mut Types,
        interrupts: &Interrupts,
        notes: &mut Vec<String>,
    ) -> Result<Preloaded, Error> {
        let mut preloaded =
            Preloaded { library: None, exits: None, interval: 0, tick_ms: FIRST_MS };
        let Some(spec) = types.heap else { return Ok(preloaded) };
        let alone = is_alone(options, types);
        if let Target::Processes { .. } = &options.target
            && !spec.inject
        {
            types.heap = None;
            return Preloaded::by_page_faults(options, notes).map(|()| preloaded);
        }
        match put(spec, &options.target) {
            Ok(way) => {
                if let Way::Preloaded(library) = &way {
                    library.files().for_each(|file| interrupts.remove_when_giving_up(file));
                }
                (preloaded.library, preloaded.interval) = (Some(way), spec.interval);
            }
            Err(error) if alone => return Err(error),
            Err(error) => {
                notes.push(format!("the heap is left out: {error}"));
                types.heap = None;
            }
        }
        Ok(preloaded)
    }

    /// Nobody has said that the library may be put into the process: where its memory grows is told
    /// by the kernel.
    fn by_page_faults(options: &mut Options, notes: &mut Vec<String>) -> Result<(), Error> {
        let faults = EventSpec::parse("page-faults")?;
        if !options.events.iter().any(|event| event.name == faults.name) {
            options.events.push(faults);
        }
        notes.push(
            "of a process that runs, page faults tell where its memory grows; to see what it \
             allocates, add --inject (which puts a library of prof's into it), or start it with \
             prof record -T heap -- COMMAND"
                .to_owned(),
        );
        Ok(())
    }

    /// What the command finds in its environment.
    pub fn environment(&self) -> Vec<(OsString, OsString)> {
        match &self.library {
            Some(Way::Preloaded(library)) => library.environment(),
            _ => Vec::new(),
        }
    }

    /// Sampling begins; `types` loses the heap if that cannot be, but other things are recorded.
    ///
    /// Errors: one line, if nothing else is.
    pub fn begin(
        &mut self,
        options: &Options,
        types: &mut Types,
        notes: &mut Vec<String>,
    ) -> Result<(), Error> {
        let alone = is_alone(options, types);
        match &mut self.library {
            Some(Way::Preloaded(library)) => {
                library.started();
                if let Some(spec) = types.heap.filter(|spec| spec.leaks) {
                    let start = |file: &_| Watcher::start(file, spec.mappings);
                    let watcher = library.ring.watch_exits(start).map_err(|e| {
                        Error::failed(format!("nobody can look for leaks on exit: {e}"))
                    })?;
                    self.exits = Some(watcher);
                }
                library.ring.set_active(true);
            }
            Some(Way::Injected(injected)) => match injected.begin() {
                Ok(()) => {}
                Err(error) if alone => return Err(error),
                Err(error) => {
                    notes.push(format!("the heap is left out: {error}"));
                    (types.heap, self.library) = (None, None);
                }
            },
            None => {}
        }
        Ok(())
    }

    /// Sampling ends.
    pub fn set_active(&self, active: bool) {
        self.library.iter().for_each(|library| library.ring().set_active(active));
    }

    /// Takes the library out of a process that it was put into. Returns what the user should know.
    pub fn take_out(&mut self) -> Vec<String> {
        self.exits.iter_mut().for_each(Watcher::end);
        match &mut self.library {
            Some(Way::Injected(injected)) => injected.end(),
            _ => Vec::new(),
        }
    }

    /// Looks whether the library has to see to what the process has loaded.
    pub fn look(&mut self, aggregator: &mut Aggregator) {
        if let Some(Way::Injected(injected)) = &mut self.library {
            injected.look(aggregator);
        }
    }

    /// Takes in what happened before `until`; when it is `over`, nobody is waited for.
    pub fn take(&mut self, aggregator: &mut Aggregator, until: u64, over: bool) {
        self.exits.iter_mut().for_each(|exits| exits.take(aggregator, until));
        if let Some(library) = &mut self.library {
            let ring = library.ring_mut();
            aggregator.set_shared(ring.shared());
            ring.take(until, over, |record| aggregator.heap_record(&record));
            ring.forget(aggregator.take_ended());
        }
    }

    /// Sampled allocations, and ends of them, that are missing.
    pub fn lost(&self) -> u64 {
        let stats = self.library.as_ref().map(|library| library.ring().stats());
        stats.map_or(0, |stats| stats.lost.saturating_add(stats.lost_frees))
    }

    /// Milliseconds until the next look, as fast as the shared memory fills; to be called before
    /// each.
    pub fn tick_ms(&mut self) -> i64 {
        let Some(library) = &self.library else { return i64::MAX };
        let filled = library.ring().filled();
        let next = self.tick_ms as f64 * FULL_ENOUGH / filled.max(f64::MIN_POSITIVE);
        self.tick_ms = (next as i64).clamp(LEAST_MS, (2 * self.tick_ms).min(MOST_MS));
        self.tick_ms
    }

    /// Removes the library; returns what the user should know. `programs`: so many were started;
    /// `outlived`: some of them go on although the command has ended, which was said.
    pub fn end(self, counts: HeapCounts, programs: u64, outlived: bool) -> Vec<String> {
        let Some(library) = self.library else { return Vec::new() };
        let (stats, mut notes) = (library.ring().stats(), Vec::new());
        let damaged = library.ring().damaged();
        library.ring().give_back();
        let preloaded = matches!(library, Way::Preloaded(_));
        let stays = match library {
            Way::Preloaded(library) => library.remove(),
            Way::Injected(_) => None,
        };
        let without = if preloaded { programs.saturating_sub(stats.loaded) } else { 0 };
        if counts.sampled == 0 {
            notes.push(format!(
                "no allocation was sampled: {}",
                why_none(&stats, without, outlived, self.interval)
            ));
        } else if without > 0 {
            notes.push(format!(
                "{without} of {programs} programs that the command started are not in the heap's \
                 profile: {NOT_LOADED}"
            ));
        }
        if let Some(reason) = damaged {
            notes.push(format!(
                "the heap's profile ends early: the memory that the program shares with prof was \
                 damaged ({reason})"
            ));
        }
        notes.extend(counted(&stats, &counts, self.interval));
        if let Some(path) = stays {
            notes.push(format!(
                "the library for allocations stays in {} because a program still has it",
                path.display()
            ));
        }
        notes
    }
}

/// Why the library is not in a program.
const NOT_LOADED: &str = "prof's library was not loaded into them (linked statically, setuid, \
                          started without the command's environment, or in a root directory of \
                          their own)";

/// Why nothing was sampled.
fn why_none(stats: &HeapStats, without: u64, outlived: bool, interval: u64) -> String {
    if stats.loaded == 0 {
        return "no dynamic linker preloaded prof's library into the command".to_owned();
    }
    if outlived {
        return "the command ended before".to_owned();
    }
    if without > 0 {
        let n = if without == 1 { "a program".to_owned() } else { format!("{without} programs") };
        return format!("the command started {n}, but {NOT_LOADED}");
    }
    format!(
        "less was allocated by malloc and similar functions than the interval of {interval} bytes; \
         lower --heap-interval"
    )
}

/// What was counted that the user should know.
fn counted(stats: &HeapStats, counts: &HeapCounts, interval: u64) -> Vec<String> {
    let mut notes = Vec::new();
    let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    if counts.paced > 0 {
        let each = if interval == 1 { "not each allocation was recorded: " } else { "" };
        notes.push(format!(
            "{each}the program allocated faster than prof could follow, so {} of {} samples were \
             taken at a longer interval (up to {} bytes); each is scaled by its own",
            counts.paced, counts.sampled, counts.longest
        ));
    }
    if stats.lost > 0 {
        notes.push(format!(
            "{} of {} sampled allocations ({:.1} MiB) are missing because prof could not keep up: \
             raise --heap-interval",
            stats.lost,
            stats.lost + counts.sampled,
            mib(stats.lost_bytes)
        ));
    }
    let unseen = stats.lost_frees.saturating_add(counts.unheard);
    if unseen > 0 {
        notes.push(format!(
            "{unseen} sampled allocations were freed unseen and seem to be in use: raise \
             --heap-interval"
        ));
    }
    if counts.untracked > 0 {
        notes.push(format!(
            "{} sampled allocations are not counted as in use, as there were too many: raise \
             --heap-interval",
            counts.untracked
        ));
    }
    if counts.unknown > 0 {
        notes.push(format!(
            "{} sampled allocations are of processes that the kernel did not name: they have no \
             stacks",
            counts.unknown
        ));
    }
    if counts.beyond > 0 {
        notes.push(format!("{} allocations have no stack: too many distinct ones", counts.beyond));
    }
    notes
}

/// Nothing but the heap is recorded.
fn is_alone(options: &Options, types: &Types) -> bool {
    let samples = types.cpu || types.wall.is_some() || types.threads.is_some();
    !samples && types.spans().is_empty() && options.events.is_empty()
}

/// Makes the library ready for a COMMAND, or puts it into a process.
fn put(spec: HeapSpec, target: &Target) -> Result<Way, Error> {
    let words = match target {
        Target::Command(words) => words,
        Target::Processes { pids, .. } => {
            return match pids.as_slice() {
                [pid] => Ok(Way::Injected(Box::new(Injected::load(*pid, spec)?))),
                _ => Err(Error::usage("--inject is for one process at a time: -p PID")),
            };
        }
        _ => {
            return Err(Error::usage(
                "allocations are sampled of a program or a process: record -T heap -- COMMAND, or \
                 record -T heap --inject -p PID; where the memory of others grows, -e page-faults \
                 tells by stack",
            ));
        }
    };
    if let Some(why) = words.first().and_then(|name| why_not_preloaded(name)) {
        return Err(Error::failed(format!(
            "allocations cannot be sampled: {why}; -e page-faults tells where memory grows"
        )));
    }
    Library::unpack(spec.interval, spec.mappings).map(|library| Way::Preloaded(Box::new(library)))
}
